"""Identity: every id is 16 raw bytes inside, `<prefix>_<32 hex>` at the edges.

Ids that stand for something a client or a schedule already named are pure functions of that name,
so a repeated command or a replayed plan meets the same stream (protocol.md §2).
"""

from hashlib import blake2b
from typing import Final

SIZE: Final = 16
TENANT: Final = "tn"
JOB: Final = "jb"
RUN: Final = "rn"

SLOT, MANUAL, BACKFILL, REDRIVE, BESIDE, RERUN, REDRIVE_OWN = 0, 1, 2, 3, 4, 5, 6
"""Kinds of run. Only `SLOT` runs are links of the job's chain.

`BESIDE` is a manual run that was asked for beside whatever is in flight; its id is a manual one's.
`RERUN` is a backfill run with a key of its own; its id is a backfill's. `REDRIVE_OWN` is a redrive
of a run with a key of its own; its id is a redrive's.
"""

KIND_NAMES: Final = ("slot", "manual", "backfill", "redrive", "manual", "backfill", "redrive")

OWN_KEY: Final = (MANUAL, BESIDE, RERUN, REDRIVE_OWN)
"""Kinds of run whose key is not their instant's, but ends in the last bytes of their id."""
OWN_KEY_BYTES: Final = 4


def text(prefix: str, raw: bytes) -> str:
    """Return the form of an id that users see, for example `jb_0f…` (prefix, `_`, 32 hex)."""
    return f"{prefix}_{raw.hex()}"


def parse(prefix: str, value: str) -> bytes | None:
    """Return the 16 bytes of a textual id, or None where `value` is not exactly one."""
    head, mark, digits = value.partition("_")
    if head != prefix or not mark or len(digits) != 2 * SIZE or digits != digits.lower():
        return None
    try:
        return bytes.fromhex(digits) if digits.isalnum() else None
    except ValueError:
        return None


def derived(domain: str, *parts: bytes) -> bytes:
    """Return 16 bytes that are a function of `parts`, separated by use (`domain`, ≤ 16 ASCII)."""
    digest = blake2b(digest_size=SIZE, person=domain.encode("ascii"))
    for part in parts:
        digest.update(len(part).to_bytes(4, "big"))
        digest.update(part)
    return digest.digest()


def job_id_of_key(tenant_id: bytes, kind: str, key: str) -> bytes:
    """Return the id of a job that a client named; `kind` is `key` or `request`."""
    return derived("job", tenant_id, kind.encode("ascii"), key.encode())


def command_id_of(tenant_id: bytes, key: str) -> bytes:
    """Return the id of a command that carries an `Idempotency-Key`."""
    return derived("command", tenant_id, key.encode())


def run_id(job_id: bytes, life: int, nominal: int, kind: int, salt: bytes = b"") -> bytes:
    """Return the stream id of one occurrence: UUIDv8, time-ordered by its nominal instant (ms).

    `salt` is the command id of a manual run, the generation (4 bytes) of a backfill, the dead run
    of a redrive; a slot's is its job's spec version (`slot_id`).
    """
    digest = blake2b(digest_size=10, person=b"run")
    digest.update(b"%b%d/%d/%d/%b" % (job_id, life, nominal, kind, salt))
    tail = digest.digest()
    return b"".join(
        (
            nominal.to_bytes(6, "big"),
            bytes(((tail[0] & 0x0F) | 0x80, tail[1], (tail[2] & 0x3F) | 0x80)),
            tail[3:],
        )
    )


def backfill_id(job_id: bytes, life: int, nominal: int, generation: int) -> bytes:
    """Return the stream id of a slot that a backfill runs.

    The generation is the version of the request in the job's stream: it rises, and no two requests
    share one.
    """
    return run_id(job_id, life, nominal, BACKFILL, generation.to_bytes(4, "big"))


def redrive_id(job_id: bytes, nominal: int, dead: bytes) -> bytes:
    """Return the stream id of the run that takes the place of a dead one: there is one at most.

    It ends as the dead run's id does, because the key of a run may end so.
    """
    return run_id(job_id, 0, nominal, REDRIVE, dead)[:-OWN_KEY_BYTES] + dead[-OWN_KEY_BYTES:]


def callback_id(stream_id: bytes, version: int) -> bytes:
    """Return the id of the job that tells of the event at `version` of a stream.

    Whoever reads that event meets the same job, whenever and however often.
    """
    return derived("callback", stream_id, version.to_bytes(4, "big"))


def slot_id(job_id: bytes, life: int, nominal: int, spec_version: int) -> bytes:
    """Return the stream id of a slot as planned under one version of the spec.

    An edit that takes a slot away and another that brings it back plan it as two streams. So no
    planned stream was ever there before, and a report need not look for one that was withdrawn. The
    idempotency key has no part in this: it is a function of job and instant.
    """
    return run_id(job_id, life, nominal, SLOT, spec_version.to_bytes(4, "big"))
