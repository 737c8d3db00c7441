"""A spec's secrets on their way into events: sealed, and left as they are where nothing changed.

A definition sent twice must not look like an edit, and the same plain bytes have another ciphertext
each time; so what is sealed already is opened and compared.
"""

from collections.abc import Mapping
from itertools import islice
from typing import Any

import msgspec

from commandside.destination import KEPT
from commandside.ports import KeyGone, Vault
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
        target: Target = values["target"]
        if target.headers:
            sealed = tuple(self._seal(header) for header in target.headers)
            target = msgspec.structs.replace(target, headers=sealed)
        payload: bytes = values["payload"]
        if payload:
            payload = self._vault.seal(self._tenant_id, self._job_id, payload)
        return JobSpec(**{**values, "target": target, "payload": payload})

    def over(self, values: dict[str, Any], old: JobSpec) -> JobSpec:
        """Return `old` with new values; raises KeyGone, Unavailable."""
        found = dict(values)
        if "payload" in values:
            found["payload"] = self._again(values["payload"], old.payload)
        if "target" in values:
            target: Target = values["target"]
            before = {header.name: header for header in old.target.headers}
            headers = tuple(
                self._kept(header, before.get(header.name)) for header in target.headers
            )
            found["target"] = msgspec.structs.replace(target, headers=headers)
        return msgspec.structs.replace(old, **found)

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


def secrets_of(target: Target) -> set[str]:
    """Return the secrets that a target names."""
    return {header.secret for header in target.headers if header.secret}


def secrets_in(patch: Mapping[str, Any], old: Target) -> set[str]:
    """Return the secrets that a target may name after a patch, which nobody has judged yet."""
    target = patch.get("target")
    headers = target.get("headers") if isinstance(target, dict) else None
    given = islice(headers.values(), HEADERS_MAX) if isinstance(headers, dict) else ()
    names = {value.get("secret") for value in given if isinstance(value, dict)}
    fit = {name for name in names if isinstance(name, str) and is_secret_name(name)}
    return fit | secrets_of(old)


def refused_for_missing(target: Target, missing: frozenset[str]) -> Problem | None:
    """Return the refusal of a target that names a secret which is not there."""
    for header in target.headers:
        if header.secret in missing:
            pointer = f"/target/headers/{token(header.name)}/secret"
            detail = f"there is no secret {header.secret!r}"
            said = f"{detail}: PUT /v1/secrets/{header.secret} sets it"
            return invalid((Refused(pointer, said),))
    return None
