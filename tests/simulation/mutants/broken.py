"""Broken twins of the product's functions: each is one bug of reliability.md §6, put in by a test.

A mutant takes the place of a function or method for the time of one play. Nothing in the product
knows of them.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from commandside.commands.jobs import Jobs
from commandside.firing import calls
from commandside.firing.auditor import Auditor
from commandside.firing.calls import Calls
from commandside.firing.hand_off import HandOff
from commandside.firing.leasing import LEASE_EXPIRY_MS
from commandside.firing.scheduler import Scheduler
from commandside.ports import Chunk, Lease, Published, Ref, Tick
from domain.envelope import JobAt, RunAt, StreamAt
from domain.job import decide, resume
from domain.run import lease, report
from domain.run import state as s
from infra.memory.command_log import MemoryCommandLog
from infra.memory.fire_log import MemoryFireLog
from infra.memory.log import MemoryLog
from infra.memory.targets import MemoryDeliverer
from projections.run_history import rows
from projections.runner import HistoryView, _token

Patch = tuple[Any, str, Callable[..., Any]]
"""Where, which name, and the twin."""


class Mutant(msgspec.Struct, frozen=True):
    """A bug. `needs`: a seed that has not drawn these features can not meet it."""

    name: str
    patches: Callable[[], list[Patch]]
    needs: tuple[str, ...] = ()


def _no_version_check() -> list[Patch]:
    kept = MemoryLog._is_so

    def is_so(self: MemoryLog, guard: Any) -> bool:
        return isinstance(guard, RunAt | StreamAt | JobAt) or kept(self, guard)

    return [(MemoryLog, "_is_so", is_so), (MemoryLog, "_check", lambda _self, _decision: None)]


def _fence_not_checked() -> list[Patch]:
    def is_legal(run: s.OpenRun, _fence: int, _result: report.Result) -> bool:
        return isinstance(run, s.InFlight | s.Awaiting)

    return [(report, "_is_legal", is_legal)]


def _key_per_attempt() -> list[Patch]:
    kept = calls.occurrence_key

    def key(template: str, run: s.Facts) -> str:
        return f"{kept(template, run)}-{run.attempt}"

    return [(calls, "occurrence_key", key)]


def _key_of_send_time() -> list[Patch]:
    kept = Calls._own

    def own(self: Calls, run: s.Facts, pinned: Any, body: bytes, at: int) -> list[bytes]:
        return kept(self, msgspec.structs.replace(run, nominal=at), pinned, body, at)

    return [(Calls, "_own", own)]


def _checkpoint_before_rows() -> list[Patch]:
    def apply(self: HistoryView, batch: Any, positions: Any) -> None:
        self._positions.save(self.name, positions)
        attempts, runs = rows(batch)
        if attempts or runs:
            self._store.write(attempts, runs, _token(self.name, batch))

    return [(HistoryView, "apply", apply)]


def _marked_before_published() -> list[Patch]:
    kept = HandOff.publish

    def publish(self: HandOff, chunks: Sequence[Chunk], tick: Tick) -> bool:
        if chunks:
            self.due.mark([Published(chunk, Ref("nowhere", 0, 0)) for chunk in chunks])
        return kept(self, chunks, tick)

    return [(HandOff, "publish", publish)]


def _no_auditor() -> list[Patch]:
    return [(Auditor, "_audit", lambda _self, _shards, _tick: None)]


def _client_retries() -> list[Patch]:
    kept = MemoryDeliverer._answer

    def answer(self: MemoryDeliverer, call: Any, now_us: int) -> Any:
        first = kept(self, call, now_us)
        return kept(self, call, now_us) if first.error == "reset" else first

    return [(MemoryDeliverer, "_answer", answer)]


def _lease_by_local_clock() -> list[Patch]:
    kept = MemoryFireLog._do

    def do(self: MemoryFireLog, ticket: int, request: Any) -> Any:
        if not isinstance(request, Lease):
            return kept(self, ticket, request)
        right = self._log.now
        # A node whose wall clock is half a second ahead, as one that asks nobody may be.
        self._log.now = lambda: request.expires_at - LEASE_EXPIRY_MS + 500
        try:
            return self._log.lease(
                ticket, request.session, request.nonce, request.wants, request.expires_at + 500
            )
        finally:
            self._log.now = right

    def due(self: Any, at: int) -> Any:
        return kept_due(self, at + 500)

    from commandside.firing.timing import TimingHeap

    kept_due = TimingHeap.due
    return [(MemoryFireLog, "_do", do), (TimingHeap, "due", due)]


def _next_from_now() -> list[Patch]:
    kept = report.next_link

    def next_link(job: Any, _cursor: int, times: tuple[int, int], owed: Any = None) -> Any:
        return kept(job, times[1], times, owed)

    return [(report, "next_link", next_link)]


def _end_and_next_apart() -> list[Patch]:
    kept = MemoryFireLog._do

    def do(self: MemoryFireLog, ticket: int, request: Any) -> Any:
        decisions = getattr(request, "decisions", ())
        if not any(_ends(decision) for decision in decisions):
            return kept(self, ticket, request)
        first = [
            msgspec.structs.replace(d, slices=d.slices[:1]) if _ends(d) else d for d in decisions
        ]
        reply: Any = kept(self, ticket, msgspec.structs.replace(request, decisions=first))
        faults = getattr(self, "_faults", None)
        if faults is not None:
            faults.step()
        if not reply.expired:
            held = [d for n, d in enumerate(decisions) if n not in reply.refused and _ends(d)]
            rest = [msgspec.structs.replace(d, slices=d.slices[1:], guards=()) for d in held]
            self._log.append(rest, self._log.now())
        return reply

    return [(MemoryFireLog, "_do", do)]


def _ends(decision: Any) -> bool:
    return (
        len(decision.slices) == 2
        and isinstance(decision.slices[0].after, s.Ended)
        and isinstance(decision.slices[1].after, s.Ready)
    )


def _misfire_fires_all() -> list[Patch]:
    return [(lease._Lease, "_is_misfire", lambda _self: False)]


def _retry_with_old_spec() -> list[Patch]:
    kept = Calls.build

    def build(self: Calls, run: s.Facts, spec: Any, pinned: Any, **named: Any) -> Any:
        del spec
        return kept(self, run, pinned, pinned, **named)

    return [(Calls, "build", build)]


def _tenant_not_compared() -> list[Patch]:
    kept = Jobs._command

    async def command(self: Jobs, asked: Any, verb: Any, reason: str = "", **named: Any) -> Any:
        standing = await self._log.standing(asked.job_id)
        if asked.name == "pause" and standing is not None:
            caller = msgspec.structs.replace(asked.caller, tenant_id=standing.job.facts.tenant_id)
            asked = msgspec.structs.replace(asked, caller=caller)
        return await kept(self, asked, verb, reason, **named)

    return [(Jobs, "_command", command)]


def _leader_without_deadline() -> list[Patch]:
    return [(Scheduler, "_forget", lambda _self: None)]


def _resume_forgets() -> list[Patch]:
    return [(resume._Resume, "_plan", lambda _self, _kept: None)]


def _sent_before_commit() -> list[Patch]:
    from commandside.firing.leasing import Leasing
    from commandside.firing.reports import Flight

    def doubt(self: Leasing, stripe: Any, sent: Any) -> None:
        """Call what was asked for, although nobody knows whether it is leased."""
        log = self._flights.log._log  # type: ignore[attr-defined]  # the memory's
        leased = []
        for entry in sent.entries:
            row, head = log.due.get(entry[1]), log.heads.get(entry[2])
            self._flights.settle(entry)
            if row is None or head is None or not isinstance(row.run, s.Ready):
                continue
            facts = row.run.facts
            facts = msgspec.structs.replace(
                facts, attempt=facts.attempt + 1, fence=facts.version + 1
            )
            run = s.InFlight(facts, sent.session, sent.nonce, log.now(), log.now() + 40_000)
            leased.append(Flight(run, head[0], stripe.index, alone=True))
        tick = Tick(log.now(), sent.mono_us)
        self._flights.depart(stripe, leased, sent, tick)

    return [(Leasing, "doubt", doubt)]


def _command_id_forgotten() -> list[Patch]:
    return [(MemoryCommandLog, "_repeat", lambda _self, _job, _id, _hash: None)]


def _nonce_not_compared() -> list[Patch]:
    kept = MemoryLog.read_back

    def read_back(self: MemoryLog, _nonce: bytes, wants: Any) -> Any:
        found = []
        for want in wants:
            row = self.due.get(want.run_id)
            if row is not None and isinstance(row.run, s.InFlight):
                found += kept(self, row.run.nonce, [want])
        return found

    return [(MemoryLog, "read_back", read_back)]


def _cancel_spares_retries() -> list[Patch]:
    kept = decide.cancel

    def cancel(job: Any, runs: Any, by: Any) -> Any:
        return kept(
            job, tuple(r for r in runs if not (r.facts.begun and isinstance(r, s.Ready))), by
        )

    return [(decide, "cancel", cancel)]


MUTANTS: Final = (
    Mutant("no version check on append", _no_version_check),
    Mutant("fence not checked on a report", _fence_not_checked, ("sleep", "slow")),
    Mutant("a key of each attempt", _key_per_attempt, ("fail",)),
    Mutant("the key from the time of sending", _key_of_send_time),
    Mutant("checkpoint before rows", _checkpoint_before_rows, ("view",)),
    Mutant("marked before it was published", _marked_before_published),
    Mutant("no auditor", _no_auditor, ("port",)),
    Mutant("sent before the lease's commit is known", _sent_before_commit, ("log",)),
    Mutant("the HTTP client retries by itself", _client_retries, ("fail",)),
    Mutant("lease by a local clock", _lease_by_local_clock),
    Mutant("next occurrence from now, not from the slot", _next_from_now, ("every",)),
    Mutant("end and next occurrence in two transactions", _end_and_next_apart, ("port",)),
    Mutant("misfire fires everything", _misfire_fires_all, ("outage",)),
    Mutant("retry under the old spec", _retry_with_old_spec, ("edit", "fail")),
    Mutant("tenant not compared at one endpoint", _tenant_not_compared, ("foreign",)),
    Mutant("leader without a deadline of its own", _leader_without_deadline, ("postgres",)),
    Mutant("resume forgets the open occurrence", _resume_forgets, ("pause",)),
    Mutant("a command id is not remembered", _command_id_forgotten, ("repeat", "trigger")),
    Mutant("a lease is read back by existence, not nonce", _nonce_not_compared, ("log",)),
    Mutant("cancel spares waiting retries", _cancel_spares_retries, ("cancel", "fail")),
)

ELSEWHERE: Final = (
    ("bare-sequence log cursor", "tests/integration/test_projections.py"),
    ("automatic offset commits", "tests/integration/test_kafka_ready_queue.py"),
    ("redirects followed", "tests/contracts/test_deliverer_curl.py"),
    ("ClickHouse retry without de-duplication", "tests/contracts/test_run_history_clickhouse.py"),
    ("projector skips unknown events", "tests/projections/test_projector.py"),
    ("fixed local time fires twice in a fold", "tests/properties/test_schedule_walk.py"),
    ("shutdown acknowledges an unfinished message", "tests/commandside/test_dispatcher.py"),
)
"""Bugs that memory cannot have or that need no world, and the tests that are for them."""
NOT_BUILT: Final = (("wall-clock allowance", "there is no allowance yet"),)
