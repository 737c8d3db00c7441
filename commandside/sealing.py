"""A spec's secrets on their way into events: sealed, and left as they are where nothing changed.

A definition sent twice must not look like an edit, and the same plain bytes have another ciphertext
each time; so what is sealed already is opened and compared.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from commandside.destination import KEPT
from commandside.ports import KeyGone, Vault
from commandside.secret_port import SecretMissing, Secrets
from domain.instant import SECOND
from domain.job.events import JobSpec
from domain.problem import invalid
from domain.refusal import Refused, token
from domain.target import Header, Target


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


def refuse_missing(secrets: Secrets, tenant_id: bytes, values: Mapping[str, Any], at: int) -> None:
    """Refuse a target that names a secret which is not there."""
    if "target" not in values:
        return
    for header in values["target"].headers:
        if header.secret:
            try:
                secrets.value(tenant_id, header.secret, at // SECOND)
            except SecretMissing as error:
                pointer = f"/target/headers/{token(header.name)}/secret"
                detail = f"{error}: PUT /v1/secrets/{header.secret} sets it"
                raise invalid((Refused(pointer, detail),)) from error
