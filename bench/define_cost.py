"""What a definition costs in CPU without I/O, step by step: python bench/define_cost.py [lines]."""

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from commandside.command_port import Accepted, Answer, CommandLog
from commandside.commands.batch import Batch
from commandside.commands.calendars import TenantCalendars
from commandside.commands.jobs import Jobs
from commandside.commands.payloads import Payloads
from commandside.commands.secret_keeper import SecretKeeper
from commandside.definitions.definition import Bounds, Definitions
from commandside.definitions.reading import read_job
from commandside.ports import Vault
from domain.envelope import Decision
from domain.opaque import Seal
from domain.run.state import Ready
from domain.tenant import SCOPES, Caller
from infra.faults import NoFaults
from infra.ics import read_ics
from infra.memory.calendars import MemoryCalendars
from infra.memory.payloads import MemoryPayloadList, MemoryPayloadStore
from infra.memory.secret_store import MemorySecretStore
from infra.postgres import append

TENANT = bytes(range(16))
AT = 1_790_000_000_000
CHUNK = 65_536


class _Vault:
    """AES-GCM under one key, as the real one seals."""

    def __init__(self) -> None:
        self._key = AESGCM(bytes(32))

    def seal(self, tenant_id: bytes, job_id: bytes, plain: bytes) -> bytes:
        nonce = os.urandom(12)
        return b"\x01\x00\x01" + nonce + self._key.encrypt(nonce, plain, tenant_id + job_id)

    def open(self, tenant_id: bytes, job_id: bytes, sealed: bytes) -> bytes:
        return self._key.decrypt(sealed[3:15], sealed[15:], tenant_id + job_id)

    def knows(self, _tenant_id: bytes) -> bool:
        return True

    def fetch(self, _tenant_id: bytes) -> None:
        """Nothing to wait for."""


class _Log:
    """Encodes groups of decisions as the real log does, and says that they are committed."""

    shards = 64

    async def define_all(self, decisions: Sequence[Decision]) -> list[Answer | Exception]:
        append.request(decisions, self.shards, AT)
        return [_made(decision) for decision in decisions]


def _made(decision: Decision) -> Accepted:
    head, run = decision.slices
    assert isinstance(run.after, Ready)
    return Accepted(head.after, (run.after,), 1, 7, AT)  # type: ignore[arg-type]  # a job's slice


def _timed(name: str, count: int, call: Callable[[], object]) -> None:
    call()
    begun = time.process_time()
    for _ in range(count):
        call()
    print(f"{name:30} {(time.process_time() - begun) / count * 1e6:8.1f} us")


def _line(number: int) -> bytes:
    return json.dumps(
        {
            "type": "recurring",
            "schedule": "0 */1 * * *",
            "timezone": "America/New_York",
            "target": {
                "kind": "http",
                "url": "https://hooks.example.com/run",
                "method": "POST",
                "headers": {"Authorization": "Bearer abc"},
            },
            "payload": {"number": number, "report": "daily"},
            "retry": {"max_attempts": 5, "backoff": "exponential"},
            "idempotency_key_template": "job-{job_id}-run-{scheduled_ts}",
            "name": f"job {number}",
        }
    ).encode()


async def _pieces(data: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(data), CHUNK):
        yield data[start : start + CHUNK]


async def _batch(jobs: Jobs, data: bytes) -> int:
    batch = Batch(jobs, Caller(TENANT, "k", SCOPES), "", print)
    return sum([chunk.count(b"\n") async for chunk in batch.replies(_pieces(data))])


def main() -> None:
    """Print a table."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    line = _line(1)
    definitions = Definitions(Bounds())
    body, payload = read_job(line)
    _timed("strict JSON", count, lambda: read_job(line))
    _timed("judge the definition", count, lambda: definitions.define(body, payload, AT, bytes(16)))
    log: CommandLog = _Log()  # type: ignore[assignment]  # definitions only
    vault: Vault = _Vault()
    _timed("seal a payload", count, lambda: vault.seal(TENANT, TENANT, b"x" * 40))
    jobs = Jobs(
        log,
        vault,
        SecretKeeper(MemorySecretStore(lambda: AT)),
        definitions,
        TenantCalendars(MemoryCalendars(lambda: AT), log, read_ics, lambda: AT),
        Payloads(MemoryPayloadStore(), MemoryPayloadList(lambda: AT), NoFaults()),
        now=lambda: AT,
        new_id=os.urandom,
        positions=Seal(bytes(32), "position"),
        zone_data="2026a",
    )
    data = b"\n".join(_line(number) for number in range(count))
    begun = time.process_time()
    answers = asyncio.run(_batch(jobs, data))
    spent = time.process_time() - begun
    assert answers == count
    print(f"{'a line of a batch, in all':30} {spent / count * 1e6:8.1f} us ({answers} lines)")


if __name__ == "__main__":
    main()
