"""Builds the call of an attempt: what is sent, to where, with which headers (contract.md §3)."""

from binascii import b2a_base64
from typing import Final

from commandside.deliverer_port import AnyCall, Call, Message
from commandside.ports import Vault
from commandside.secret_port import Secrets
from domain import ids
from domain.idempotency import Template, manual_suffix, render
from domain.instant import SECOND, rfc3339
from domain.job.events import JobSpec
from domain.opaque import Seal, completion_token
from domain.run.state import Facts
from domain.target import BASIC, Header, HttpTarget

USER_AGENT: Final = b"User-Agent: Tocsin/0.1"


def occurrence_key(template: str, run: Facts) -> str:
    """Return the idempotency key of a run's occurrence, the same for every attempt."""
    suffix = manual_suffix(run.run_id) if run.kind in ids.OWN_KEY else ""
    return render(Template(template), ids.text(ids.JOB, run.job_id), run.nominal, suffix)


def _pair(line: bytes) -> tuple[str, bytes]:
    name, _, value = line.partition(b": ")
    return name.decode("ascii").lower(), value


def _named(header: Header, secret: bytes) -> bytes:
    """Return the value of a header that names a secret."""
    if header.scheme.lower() == BASIC:
        secret = b2a_base64(secret, newline=False)
    return header.scheme.encode() + b" " + secret if header.scheme else secret


class Calls:
    """Makes calls out of leased runs; keeps no secret."""

    def __init__(self, vault: Vault, secrets: Secrets, completion: Seal) -> None:
        """`completion` makes the tokens that let a handler end its attempt."""
        self._vault = vault
        self._secrets = secrets
        self._completion = completion

    def build(  # noqa: PLR0913 - a call is what a lease, a spec and two clocks say
        self, run: Facts, spec: JobSpec, pinned: JobSpec, *, token: int, at: int, not_after_us: int
    ) -> AnyCall:
        """Return the call of a run's attempt, or its message.

        Raises KeyGone, SecretMissing, Unavailable.

        `spec` is the job's current one, `pinned` the one whose body and key the run carries. `at`
        is the database clock, ms.
        """
        tenant_id, job_id = run.tenant_id, run.job_id
        open_sealed = self._vault.open
        body = open_sealed(tenant_id, job_id, pinned.payload) if pinned.payload else b""
        target = spec.target
        headers: list[bytes] = []
        named: set[str] = set()
        secrets: tuple[bytes, ...] = ()
        for header in target.headers:
            named.add(header.name.lower())
            if header.secret:
                secret = self._secrets.value(tenant_id, header.secret, at // SECOND)
                secrets += (secret,)
                value = _named(header, secret)
            else:
                value = open_sealed(tenant_id, job_id, header.value)
            headers.append(b"%b: %b" % (header.name.encode(), value))
        if body and pinned.content_type and "content-type" not in named:
            # First, where deliverers look for it.
            headers.insert(0, b"Content-Type: %b" % pinned.content_type.encode())
        if "user-agent" not in named:
            headers.append(USER_AGENT)
        headers += self._own(run, pinned, body, at)
        if not isinstance(target, HttpTarget):
            return Message(
                token,
                tenant_id,
                target,
                occurrence_key(pinned.key_template, run),
                ids.text(ids.JOB, job_id),
                [_pair(line) for line in headers],
                body,
                spec.timeout_ms,
                not_after_us,
                secrets,
            )
        return Call(
            token,
            tenant_id,
            target.scheme,
            target.host,
            target.port,
            target.path,
            target.method,
            headers,
            body,
            spec.timeout_ms,
            not_after_us,
            secrets,
        )

    def _own(self, run: Facts, pinned: JobSpec, body: bytes, at: int) -> list[bytes]:
        """Return the headers that are Tocsin's, built in one piece: this is per fire."""
        key = occurrence_key(pinned.key_template, run)
        run_hex = run.run_id.hex()
        seconds = at // SECOND
        token = completion_token(self._completion, run.run_id, run.job_id, run.fence)
        text = (
            f"Idempotency-Key: {key}\n"
            f"webhook-id: {key}\n"
            f"webhook-timestamp: {seconds}\n"
            f"Tocsin-Job-Id: jb_{run.job_id.hex()}\n"
            f"Tocsin-Run-Id: rn_{run_hex}\n"
            f"Tocsin-Scheduled-For: {rfc3339(run.nominal)}\n"
            f"Tocsin-Attempt: {run.attempt}\n"
            f"Tocsin-Fence: {run.fence}\n"
            f"Tocsin-Completion-Token: {token}\n"
            f"traceparent: 00-{run_hex}-{run_hex[16:24]}{run.attempt:08x}-01"
        )
        if run.lost:
            text += "\nTocsin-Possible-Duplicate: true"
        lines = text.encode("ascii").split(b"\n")
        signature = self._secrets.sign(run.tenant_id, key, seconds, body)
        if signature:
            lines.append(b"webhook-signature: " + signature)
        return lines
