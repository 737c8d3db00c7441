"""Whom a tenant tells by default how occurrences end: put, shown, removed."""

from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from commandside.callback_port import OWNER, CallbackDefaults, Default
from commandside.commands.outcomes import told
from commandside.commands.replies import Instant
from commandside.commands.secret_keeper import SecretKeeper
from commandside.definitions import callback_body
from commandside.definitions.definition import Bounds
from commandside.definitions.given import with_values
from commandside.definitions.patch import with_credentials
from commandside.definitions.reading import strange
from commandside.definitions.sealing import (
    Sealer,
    refused_for_missing,
    secrets_of,
    targets_in,
    warnings,
)
from commandside.ports import KeyGone, Vault
from domain import wording
from domain.callback import NAMES, Callbacks
from domain.envelope import Rejected
from domain.instant import rfc3339
from domain.problem import Problem, invalid
from domain.refusal import Refused
from domain.tenant import Caller

_ABSENT: Final = "there is no default: PUT /v1/callbacks makes one"


class CallbacksShown(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A tenant's default; what of it is not there tells nobody."""

    version: Annotated[int, Meta(description="the ETag")]
    at: Annotated[Instant, Meta(description="it tells of what ended after this")]
    on_success: dict[str, Any] | None = None
    on_failure: dict[str, Any] | None = None
    on_skipped: dict[str, Any] | None = None
    warnings: list[str] = []


class CallbacksGone(msgspec.Struct):
    """There is no default any more; `version` was the last one in force."""

    version: int


class TenantCallbacks:
    """What clients do with their default. Raises Problem, Unavailable."""

    def __init__(
        self, store: CallbackDefaults, vault: Vault, secrets: SecretKeeper, bounds: Bounds
    ) -> None:
        """`bounds` are those of definitions: what a job may call, a callback may."""
        self._store = store
        self._vault = vault
        self._secrets = secrets
        self._bounds = bounds

    async def put(
        self, caller: Caller, body: Mapping[str, Any], if_version: int
    ) -> tuple[CallbacksShown, bool]:
        """Make a default, or its next version; returns whether there was none."""
        tenant_id = caller.tenant_id
        current = await self._store.current(tenant_id)
        before = current.callbacks if current else None
        plain = self._read(body, before)
        callback_body.judge_sending(plain, tenant_id, self._bounds.grants)
        targets = targets_in({"callbacks": plain})
        judged = await self._secrets.judged(tenant_id, secrets_of(targets))
        refused = refused_for_missing(targets, judged)
        if refused is not None:
            raise refused
        try:
            sealed = Sealer(self._vault, tenant_id, OWNER).callbacks(plain, before)
        except KeyGone as error:
            raise told(error) from error
        made = await self._store.put(tenant_id, sealed, caller.kid, if_version)
        if isinstance(made, Rejected):
            raise _problem(made)
        shown = _shown(made.default)
        shown.warnings = warnings(targets, judged)
        return shown, current is None

    async def show(self, caller: Caller) -> CallbacksShown:
        """Return the default."""
        current = await self._store.current(caller.tenant_id)
        if current is None:
            raise Problem("absent", _ABSENT)
        return _shown(current)

    async def remove(self, caller: Caller, if_version: int) -> CallbacksGone:
        """Tell nobody by default."""
        current = await self._store.current(caller.tenant_id)
        refused = await self._store.remove(caller.tenant_id, caller.kid, if_version)
        if refused is not None:
            raise _problem(refused)
        return CallbacksGone(current.version if current else 0)

    def _read(self, body: Mapping[str, Any], before: Callbacks | None) -> Callbacks:
        body = with_credentials(body)
        unknown = strange(body, NAMES)
        found, wrong = callback_body.read_default(body, self._bounds, before)
        if unknown or wrong:
            raise invalid(with_values(unknown + wrong, body))
        return found


def _shown(default: Default) -> CallbacksShown:
    return CallbacksShown(
        version=default.version,
        at=rfc3339(default.at),
        **wording.callbacks(default.callbacks),
    )


def _problem(refused: Rejected) -> Problem:
    if refused.code == "absent":
        return Problem("absent", _ABSENT)
    return Problem(refused.code, refused.detail, (Refused("@If-Match", refused.detail),))
