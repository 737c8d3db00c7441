"""The history of a system whose log and targets are in memory: nothing goes through files."""

from collections.abc import Iterable
from hashlib import sha256
from typing import Final

import msgspec

from commandside.deliverer_port import Call
from infra.memory.log import MemoryLog
from infra.memory.targets import NEVER_US, MemoryDeliverer, Reply, Rule
from projections.due_index import due_row
from projections.rows import AttemptRow, RunRow
from tests.checker.inputs import (
    Attempt,
    Command,
    Due,
    Head,
    Hit,
    Kept,
    Row,
    Run,
    Session,
    Stored,
)

NOT_SENT: Final = ("blocked_address", "connect", "dns", "tls")
"""Errors of calls that reach no target."""


def events(log: MemoryLog) -> list[Stored]:
    """Return E."""
    return [
        Stored(shard, w.position, w.stream_id, w.version, w.name, w.data)
        for shard, feed in enumerate(log.feed)
        for w in feed
    ]


def projections(log: MemoryLog) -> list[Row]:
    """Return P, as far as the log itself keeps it: views have their own."""
    found: list[Row] = []
    for due in log.due.values():
        row = due_row(due.run)
        assert row is not None
        found.append(Due(*msgspec.structs.astuple(row)))
    found += [Head(*msgspec.structs.astuple(head)) for _, head in log.heads.values()]
    found += [
        Command(job_id, command_id, effect.body_hash, effect.version, effect.position, effect.at)
        for (job_id, command_id), effect in log.commands.items()
    ]
    found += [Session(key, row.until, row.ended) for key, row in log.sessions.items()]
    return found


def history(attempts: Iterable[AttemptRow], runs: Iterable[RunRow]) -> list[Kept]:
    """Return Q from the rows of a view, each key once."""
    found: list[Kept] = [Attempt(*msgspec.structs.astuple(row)) for row in attempts]
    found += [Run(*msgspec.structs.astuple(row)) for row in runs]
    return found


def hits(deliverers: Iterable[MemoryDeliverer]) -> list[Hit]:
    """Return H without answers: a deliverer in memory does not keep what its targets said."""
    return [hit_of(hit.call, hit.at_us) for each in deliverers for hit in each.hits]


class Watched:
    """A rule of a target, and H of all that it was asked, answers included."""

    def __init__(self, rule: Rule) -> None:
        self.hits: list[Hit] = []
        self._rule = rule

    def __call__(self, call: Call, at_us: int) -> Reply:
        """Answer as the rule does."""
        reply = self._rule(call, at_us)
        if reply.error not in NOT_SENT:
            whole = not reply.error and reply.latency_us < NEVER_US
            answered_us = at_us + reply.latency_us if whole else 0
            self.hits.append(hit_of(call, at_us, reply.status if whole else 0, answered_us))
        return reply


def hit_of(call: Call, at_us: int, status: int = 0, answered_us: int = 0) -> Hit:
    """Return the hit that a call is, with the answer that its target gave."""
    named = {}
    for line in call.headers:
        name, _, value = line.partition(b": ")
        named[name.decode().lower()] = value.decode()
    return Hit(
        at_us,
        bytes.fromhex(named.pop("tocsin-run-id").removeprefix("rn_")),
        int(named.pop("tocsin-attempt")),
        int(named.pop("tocsin-fence")),
        named.pop("idempotency-key"),
        f"{call.scheme}://{call.host}:{call.port}{call.path}",
        sha256(call.body).digest(),
        status,
        answered_us,
        named.pop("webhook-id", ""),
        call.tenant_id,
        tuple(named.items()),
        "tocsin-possible-duplicate" in named,
    )
