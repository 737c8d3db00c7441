"""What a client asks of its jobs, as it was sent, and what is answered."""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final

import msgspec

from commandside.commands.replies import JobReply
from domain.envelope import Command
from domain.ids import command_id_of
from domain.tenant import Caller

ANY_VERSION: Final = 0


class Asked(msgspec.Struct, frozen=True):
    """A command on a job as a client sent it.

    `body` decides whether a repeat is the same command; `if_version` is what If-Match asks for.
    """

    caller: Caller
    job_id: bytes
    name: str
    body: bytes = b""
    idempotency_key: str = ""
    if_version: int = ANY_VERSION

    @property
    def command(self) -> Command | None:
        """The command's id and hash, None without an Idempotency-Key."""
        if not self.idempotency_key:
            return None
        identity = command_id_of(self.caller.tenant_id, self.idempotency_key)
        return Command(identity, body_hash(self.name, self.body))


class Done(msgspec.Struct, frozen=True):
    """A command's answer. `created`: it defined a job, rather than found one."""

    reply: JobReply
    created: bool = False


class Sent(msgspec.Struct, frozen=True):
    """A definition as a client sent it: its JSON, the bytes of its `payload`, and all its bytes."""

    body: Mapping[str, Any]
    payload: bytes | None
    raw: bytes
    idempotency_key: str = ""


def body_hash(name: str, body: bytes) -> bytes:
    """Return what tells one use of an Idempotency-Key from another."""
    return blake2b(name.encode() + b"\n" + body, digest_size=16).digest()
