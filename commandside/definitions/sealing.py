"""A spec's secrets on their way into events: sealed, and left as they are where nothing changed.

A definition sent twice must not look like an edit, and the same plain bytes have another ciphertext
each time; so what is sealed already is opened and compared.
"""

from collections.abc import Iterable, Mapping
from hashlib import sha256
from itertools import islice
from typing import Any

import msgspec

from commandside.definitions.destination import KEPT
from commandside.payload_port import INLINE_BYTES_MAX, PayloadObject
from commandside.ports import KeyGone, Vault
from commandside.secret_port import Judged
from domain.callback import NAMES, Callbacks, callbacks_of
from domain.job.events import JobSpec
from domain.payload import ref_of
from domain.problem import Problem, invalid
from domain.refusal import Refused, token
from domain.target import BASIC, HEADERS_MAX, Header, Target, is_secret_name


class Body(msgspec.Struct):
    """A body that is too large for its spec: the object, and what the spec keeps instead."""

    object: PayloadObject
    data: bytes
    """The ciphertext that is the object."""
    digest: bytes
    sealed_digest: bytes
    not_after: int = 0
    """Until when a decision may name it (ms); 0: it is not written."""


class Unwritten(Exception):
    """A spec needs a body in the store that is not there yet."""

    def __init__(self, body: Body) -> None:
        super().__init__("the body is not written yet")
        self.body = body


class Sealer:
    """Seals the plain values of a definition for one job."""

    def __init__(
        self,
        vault: Vault,
        tenant_id: bytes,
        job_id: bytes,
        *,
        inline_max: int = INLINE_BYTES_MAX,
        body: Body | None = None,
    ) -> None:
        """`body`: a large one of this job that is sealed already."""
        self._vault = vault
        self._tenant_id = tenant_id
        self._job_id = job_id
        self._inline_max = inline_max
        self.body = body
        """The large body of the last spec that needs one; it may still have to be written."""

    def new(self, values: dict[str, Any]) -> JobSpec:
        """Return the spec of a new job; raises KeyGone, Unavailable."""
        found = {**values, "target": self._new_target(values["target"])}
        if values["callbacks"] is not None:
            found["callbacks"] = self.callbacks(values["callbacks"], None)
        payload: bytes = values["payload"]
        if len(payload) > self._inline_max:
            found |= _named(self._large(payload))
        elif payload:
            found["payload"] = self._vault.seal(self._tenant_id, self._job_id, payload)
        return JobSpec(**found)

    def sealed(self, spec: JobSpec) -> JobSpec:
        """Return a spec of plain values and a small body sealed; raises KeyGone, Unavailable."""
        payload = self._vault.seal(self._tenant_id, self._job_id, spec.payload)
        target = self._new_target(spec.target)
        return msgspec.structs.replace(spec, target=target, payload=payload)

    def callbacks(self, plain: Callbacks, old: Callbacks | None) -> Callbacks:
        """Return callbacks sealed, where they are not what they were; raises as `over` does."""
        before = (None, None, None) if old is None else old.targets
        targets = [
            None if target is None else self._target(target, was)
            for target, was in zip(plain.targets, before, strict=True)
        ]
        return callbacks_of(targets, plain.off)

    def over(self, values: dict[str, Any], old: JobSpec) -> JobSpec:
        """Return `old` with new values; raises KeyGone, Unavailable, Unwritten."""
        found = dict(values)
        if "payload" in values:
            found |= self._payload(values["payload"], old)
        if "target" in values:
            found["target"] = self._target(values["target"], old.target)
        if values.get("callbacks") is not None:
            found["callbacks"] = self.callbacks(values["callbacks"], old.callbacks)
        return msgspec.structs.replace(old, **found)

    def _payload(self, plain: bytes, old: JobSpec) -> dict[str, Any]:
        """Return what a spec says of a body, as before where it is the same."""
        if old.payload_ref is not None and plain:
            if self._opens_to(old.payload, sha256(plain).digest()):
                return {"payload": old.payload, "payload_ref": old.payload_ref}
        elif old.payload and plain and self._opens_to(old.payload, plain):
            return {"payload": old.payload, "payload_ref": None}
        if len(plain) <= self._inline_max:
            sealed = self._vault.seal(self._tenant_id, self._job_id, plain) if plain else b""
            return {"payload": sealed, "payload_ref": None}
        body = self._large(plain)
        if not body.not_after:
            raise Unwritten(body)
        return _named(body)

    def _large(self, plain: bytes) -> Body:
        """Seal a body that becomes an object, unless that was done."""
        digest = sha256(plain).digest()
        if self.body is None or self.body.digest != digest:
            data = self._vault.seal(self._tenant_id, self._job_id, plain)
            place = PayloadObject(self._tenant_id, self._job_id, ref_of(data))
            sealed = self._vault.seal(self._tenant_id, self._job_id, digest)
            self.body = Body(place, data, digest, sealed)
        return self.body

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


def _named(body: Body) -> dict[str, Any]:
    return {"payload": body.sealed_digest, "payload_ref": body.object.ref}


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


def targets_of(spec: JobSpec) -> list[Named]:
    """Return all targets of a job."""
    return targets_in({"target": spec.target, "callbacks": spec.callbacks})


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
    return fit | secrets_of(targets_of(old))


def refused_for_missing(targets: Iterable[Named], judged: Judged) -> Problem | None:
    """Return the refusal of targets that name a secret which is not there."""
    for member, target in targets:
        for header in target.headers:
            if header.secret in judged.missing:
                pointer = f"/{member}/headers/{token(header.name)}/secret"
                detail = f"there is no secret {header.secret!r}"
                said = f"{detail}: PUT /v1/secrets/{header.secret} sets it"
                return invalid((Refused(pointer, said),))
    return None


def warnings(targets: Iterable[Named], judged: Judged) -> list[str]:
    """Return what may surprise in the secrets that targets name."""
    return [
        f"the secret {header.secret!r} has no colon: Basic sends user:password"
        for _, target in targets
        for header in target.headers
        if header.secret in judged.no_pairs and header.scheme.lower() == BASIC
    ]
