"""A spec's secrets on their way into events: sealed, and left as they are where nothing changed.

A definition sent twice must not look like an edit, and the same plain bytes have another ciphertext
each time; so what is sealed already is opened and compared.
"""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

import msgspec

from commandside.destination import KEPT
from commandside.ports import KeyGone, Vault
from domain.callback import NAMES, Callbacks, callbacks_of
from domain.job.events import JobSpec
from domain.problem import Problem, invalid
from domain.refusal import Refused, token
from domain.target import HEADERS_MAX, Header, Target, is_secret_name


class Sealer:
    """Seals the plain values of a definition for one job."""

    def __init__(self, vault: Vault, tenant_id: bytes, job_id: bytes) -> None:
        self._vault = vault
        self._tenant_id = tenant_id
        self._job_id = job_id

    def new(self, values: dict[str, Any]) -> JobSpec:
        """Return the spec of a new job; raises KeyGone, Unavailable."""
        return self.sealed(JobSpec(**values))

    def sealed(self, spec: JobSpec) -> JobSpec:
        """Return a spec of plain values sealed; raises KeyGone, Unavailable."""
        payload = spec.payload
        if payload:
            payload = self._vault.seal(self._tenant_id, self._job_id, payload)
        target = self._new_target(spec.target)
        if spec.callbacks is None:
            return msgspec.structs.replace(spec, target=target, payload=payload)
        callbacks = self.callbacks(spec.callbacks, None)
        return msgspec.structs.replace(spec, target=target, payload=payload, callbacks=callbacks)

    def callbacks(self, plain: Callbacks, old: Callbacks | None) -> Callbacks:
        """Return callbacks sealed, where they are not what they were; raises as `over` does."""
        before = (None, None, None) if old is None else old.targets
        targets = [
            None if target is None else self._target(target, was)
            for target, was in zip(plain.targets, before, strict=True)
        ]
        return callbacks_of(targets, plain.off)

    def over(self, values: dict[str, Any], old: JobSpec) -> JobSpec:
        """Return `old` with new values; raises KeyGone, Unavailable."""
        found = dict(values)
        if "payload" in values:
            found["payload"] = self._again(values["payload"], old.payload)
        if "target" in values:
            found["target"] = self._target(values["target"], old.target)
        if values.get("callbacks") is not None:
            found["callbacks"] = self.callbacks(values["callbacks"], old.callbacks)
        return msgspec.structs.replace(old, **found)

    def _target(self, target: Target, old: Target | None) -> Target:
        if old is None or not target.headers:
            return self._new_target(target)
        before = {header.name: header for header in old.headers}
        headers = tuple(self._kept(header, before.get(header.name)) for header in target.headers)
        return msgspec.structs.replace(target, headers=headers)

    def _new_target(self, target: Target) -> Target:
        if not target.headers:
            return target
        headers = tuple(self._seal(header) for header in target.headers)
        return msgspec.structs.replace(target, headers=headers)

    def _kept(self, header: Header, old: Header | None) -> Header:
        if header.secret or old is None or old.secret:
            return self._seal(header)
        if header.value == KEPT:
            return old
        return Header(header.name, self._again(header.value, old.value))

    def _seal(self, header: Header) -> Header:
        if header.secret:
            return header
        return Header(header.name, self._vault.seal(self._tenant_id, self._job_id, header.value))

    def _again(self, plain: bytes, sealed: bytes) -> bytes:
        if not plain:
            return b""
        return (
            sealed
            if sealed and self._opens_to(sealed, plain)
            else self._vault.seal(self._tenant_id, self._job_id, plain)
        )

    def _opens_to(self, sealed: bytes, plain: bytes) -> bool:
        try:
            return self._vault.open(self._tenant_id, self._job_id, sealed) == plain
        except KeyGone:
            # What was sealed under a destroyed key is gone; the new value is sealed anew.
            return False


def opened_target(vault: Vault, tenant_id: bytes, owner: bytes, target: Target) -> Target:
    """Return a target with plain header values; raises KeyGone, Unavailable."""
    if not target.headers:
        return target
    headers = tuple(
        header
        if header.secret
        else msgspec.structs.replace(header, value=vault.open(tenant_id, owner, header.value))
        for header in target.headers
    )
    return msgspec.structs.replace(target, headers=headers)


Named = tuple[str, Target]
"""A target, and the member of a body that it is."""


def targets_in(values: Mapping[str, Any]) -> list[Named]:
    """Return all targets among values that were read."""
    found: list[Named] = [("target", values["target"])] if "target" in values else []
    callbacks: Callbacks | None = values.get("callbacks")
    if callbacks is None:
        return found
    named = zip(NAMES, callbacks.targets, strict=True)
    return found + [(name, target) for name, target in named if target is not None]


def secrets_of(targets: Iterable[Named]) -> set[str]:
    """Return the secrets that targets name."""
    return {header.secret for _, target in targets for header in target.headers if header.secret}


def secrets_in(patch: Mapping[str, Any], old: JobSpec) -> set[str]:
    """Return the secrets that targets may name after a patch, which nobody has judged yet."""
    given: list[object] = []
    for member in ("target", *NAMES):
        target = patch.get(member)
        headers = target.get("headers") if isinstance(target, dict) else None
        values = islice(headers.values(), HEADERS_MAX) if isinstance(headers, dict) else ()
        given += [value.get("secret") for value in values if isinstance(value, dict)]
    fit = {name for name in given if isinstance(name, str) and is_secret_name(name)}
    return fit | secrets_of(targets_in({"target": old.target, "callbacks": old.callbacks}))


def refused_for_missing(targets: Iterable[Named], missing: frozenset[str]) -> Problem | None:
    """Return the refusal of targets that name a secret which is not there."""
    for member, target in targets:
        for header in target.headers:
            if header.secret in missing:
                pointer = f"/{member}/headers/{token(header.name)}/secret"
                detail = f"there is no secret {header.secret!r}"
                said = f"{detail}: PUT /v1/secrets/{header.secret} sets it"
                return invalid((Refused(pointer, said),))
    return None
