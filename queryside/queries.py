"""The questions of tenants, each bound to who asks: another's job is as absent as none.

One job is answered from the log itself, so its answer is never behind. Lists and histories come
from views; a caller who brings the `position` of a command waits for its view.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from domain import ids
from domain.catalogue import DomainEvent
from domain.instant import LAST
from domain.job import events as e
from domain.job import state as s
from domain.job.redrive import KEPT_MS
from domain.opaque import Seal, read_position
from domain.ports import Unavailable
from domain.problem import PARAMETER, Problem, invalid
from domain.refusal import Refused
from domain.run import state as rs
from domain.run.events import DEAD, Progressed, Scheduled
from domain.schedule.once import read_instant
from domain.schedule.schedule import OneTime, parse_one_time
from domain.tenant import Caller
from projections import job_board, run_history
from projections.dead_letters import DeadFilter, DeadPlace
from projections.ports import Recorded
from queryside import shown
from queryside.dead_letters import Letters
from queryside.pages import Cursors, Cut, Edge, cut, limit_of
from queryside.ports import (
    Fetch,
    Freshness,
    JobBoard,
    JobFilter,
    JobPlace,
    Reveal,
    RunHistory,
    RunLine,
    RunPlace,
    Standing,
    Truth,
)

REDRIVES_READ: Final = 1_000
"""Commands of one job that are looked through for whose place a redrive took."""
_REDRIVES: Final = (ids.REDRIVE, ids.REDRIVE_OWN)
WAIT_S: Final = 2.0
"""How long a list waits for its view; then it says so."""
POLL_S: Final = 0.025
EVENTS_PAGE: Final = 500
RUN_EVENTS_MAX: Final = 500
"""Of a run, the newest that say what became of it: three an attempt, of 100 and a few more."""
TRIES: Final = 5
VERSION_DIGITS: Final = 9
STATUSES: Final = ("active", "paused", "finished", "cancelled")
LABELS_ASKED_MAX: Final = 10
TEXT_MAX: Final = 253
CAUSE_MAX: Final = 64


class Views(msgspec.Struct, frozen=True):
    """The views of a process that answers lists; one that does not has none."""

    board: JobBoard
    history: RunHistory
    freshness: Freshness

    @property
    def letters(self) -> Letters:
        """The list of dead letters."""
        return Letters(self.history, self.board)


class Queries:
    """Raises Problem for refusals, Unavailable when an engine cannot be reached."""

    def __init__(  # noqa: PLR0913 - its ports
        self,
        truth: Truth,
        views: Views | None,
        reveal: Reveal,
        fetch: Fetch,
        *,
        now: Callable[[], int],
        cursors: Seal,
        positions: Seal,
        kept_ms: int = KEPT_MS,
    ) -> None:
        """`now` is ms of the database clock as estimated; the seals make tokens.

        `kept_ms`: for so long after its end a dead run is a dead letter.
        """
        self._truth = truth
        self._views = views
        self._reveal = reveal
        self._fetch = fetch
        self._now = now
        self._cursors = cursors
        self._positions = positions
        self._kept_ms = kept_ms

    # ------------------------------------------------------------ one job

    async def job(
        self, caller: Caller, job_id: str, *, min_version: str | None, as_of: str | None
    ) -> shown.JobShown:
        """Return a job as it stands, or as it stood."""
        wanted = _version(min_version)
        standing = await self._standing(caller, job_id)
        if wanted > standing.job.facts.version:
            raise Problem("behind", f"the job is at version {standing.job.facts.version}")
        if as_of is None:
            payload = await self._payload(standing.job)
            return shown.job(standing.job, standing.runs, self._now(), payload)
        at = self._past(as_of)
        past = await self._as_of(standing.job.facts.job_id, at)
        if past is None:
            raise Problem("absent", "there was no such job then")
        return shown.job(past, None, at, await self._payload(past))

    async def _payload(self, state: s.JobState) -> dict[str, Any]:
        """Return what a job shows of its payload."""
        facts = state.facts
        sealed: bytes | str = facts.spec.payload
        if facts.spec.payload_ref is not None:
            sealed = await self._fetch(facts.tenant_id, facts.job_id, facts.spec.payload_ref)
        if isinstance(sealed, str):
            return {sealed: True}
        plain = self._reveal(facts.tenant_id, facts.job_id, sealed) if sealed else b""
        return shown.payload(facts.spec.content_type, plain)

    async def _standing(self, caller: Caller, job_id: str) -> Standing:
        raw = ids.parse(ids.JOB, job_id)
        found = await self._truth.standing(raw) if raw is not None else None
        if found is None or found.job.facts.tenant_id != caller.tenant_id:
            raise Problem("absent", "there is no such job")
        return found

    def _past(self, text: str) -> int:
        found = parse_one_time(text, 0)
        if isinstance(found, OneTime) and 0 <= found.run_at <= self._now():
            return found.run_at
        why = "an instant of the past" if isinstance(found, OneTime) else found.detail
        raise invalid((Refused(f"{PARAMETER}as_of", why),))

    async def _as_of(self, job_id: bytes, at: int) -> s.JobState | None:
        state: s.JobState | None = None
        seen = 0
        while True:
            page = await self._truth.events(job_id, job_id, seen, EVENTS_PAGE)
            for event in page:
                assert isinstance(event, e.Event), "a job's stream holds events of jobs"
                if event.at > at:
                    return state
                state = s.evolve(job_id, state, event)
            seen += len(page)
            if len(page) < EVENTS_PAGE:
                return state

    async def events(
        self, caller: Caller, job_id: str, *, run: str | None, limit: str | None, cursor: str | None
    ) -> shown.EventPage:
        """Return the audit trail of a job, or of one of its runs, oldest first."""
        count = limit_of(limit)
        standing = await self._standing(caller, job_id)
        job = standing.job.facts.job_id
        stream = job if run is None else ids.parse(ids.RUN, run)
        if stream is None:
            raise Problem("absent", "there is no such run")
        cursors = self._cursors_of(caller, b"events", job + stream)
        edge = cursors.read(cursor)
        after = edge.number if edge else 0
        found = await self._truth.events(job, stream, after, count + 1)
        if not found and run is not None and after == 0:
            raise Problem("absent", "there is no such run")
        items = [
            shown.event_item(after + index, event) for index, event in enumerate(found[:count], 1)
        ]
        return shown.EventPage(
            items,
            cursors.issue(after + count, b"") if len(found) > count else None,
            cursors.issue(max(0, after - count), b"") if after else None,
        )

    async def run(self, caller: Caller, run_id: str) -> shown.RunShown:
        """Return a run with all its attempts, as its own stream tells them."""
        raw = ids.parse(ids.RUN, run_id)
        if raw is None:
            raise Problem("absent", "there is no such run")
        for _ in range(TRIES):
            told = await self._truth.told(raw, run_history.TELLING, RUN_EVENTS_MAX)
            planned = next((event for _, event in told if isinstance(event, Scheduled)), None)
            if planned is None or planned.tenant_id != caller.tenant_id:
                raise Problem("absent", "there is no such run")
            standing = await self._truth.standing(planned.job_id)
            runs = () if standing is None else standing.runs
            line = _line(raw, told, runs)
            if line is not None:
                return await self._shown(line, runs)
            # It has ended since its events were read.
        raise Unavailable("the run moves faster than it can be read")

    async def _shown(self, line: RunLine, runs: tuple[rs.OpenRun, ...]) -> shown.RunShown:
        said = await self._progress(runs, {line.run.run_id})
        item = shown.run_shown(line, said.get(line.run.run_id), self._kept_ms)
        await self._link_redrives([line], [item])
        return item

    # ------------------------------------------------------------ lists

    async def jobs(
        self,
        caller: Caller,
        wanted: JobFilter,
        *,
        limit: str | None,
        cursor: str | None,
        position: str | None,
    ) -> shown.JobPage:
        """Return a page of the tenant's jobs, newest first."""
        views = self._lists()
        _check(wanted)
        count = limit_of(limit)
        cursors = self._cursors_of(caller, b"jobs", msgspec.msgpack.encode(wanted))
        edge = cursors.read(cursor)
        await self._wait_for(views, job_board.VIEW, caller, position)
        place = JobPlace(edge.number, edge.id) if edge else None
        lines = await asyncio.to_thread(
            views.board.page,
            caller.tenant_id,
            wanted,
            place,
            count + 1,
            newer=edge is not None and edge.newer,
        )
        page = cut(lines, count, edge)
        older, newer = _ends(page, cursors, lambda line: (line.row.defined_at, line.row.job_id))
        return shown.JobPage([shown.job_item(line) for line in page.lines], older, newer)

    async def runs(
        self,
        caller: Caller,
        job_id: str,
        *,
        limit: str | None,
        cursor: str | None,
        position: str | None,
    ) -> shown.RunPage:
        """Return a page of a job's runs, newest first: those in the history and the open ones."""
        views = self._lists()
        count = limit_of(limit)
        standing = await self._standing(caller, job_id)
        job = standing.job.facts.job_id
        cursors = self._cursors_of(caller, b"runs", job)
        edge = cursors.read(cursor)
        await self._wait_for(views, run_history.VIEW, caller, position)
        place = RunPlace(edge.number, edge.id) if edge else None
        newer = edge is not None and edge.newer
        past = await asyncio.to_thread(
            views.history.page, caller.tenant_id, job, place, count + 1, newer=newer
        )
        page = cut(_merged(past, standing.runs, edge, count + 1), count, edge)
        ends = _ends(page, cursors, lambda line: (line.run.nominal, line.run.run_id))
        said = await self._progress(standing.runs, {line.run.run_id for line in page.lines})
        items = [shown.run_item(line, said.get(line.run.run_id)) for line in page.lines]
        await self._link_redrives(page.lines, items)
        return shown.RunPage(items, *ends)

    async def dead_letters(
        self,
        caller: Caller,
        wanted: DeadFilter,
        *,
        limit: str | None,
        cursor: str | None,
        position: str | None,
    ) -> shown.DeadLetterPage:
        """Return a page of the dead runs still kept, the last to end first, redriven ones too."""
        views = self._lists()
        count = limit_of(limit)
        cursors = self._cursors_of(caller, b"dead", msgspec.msgpack.encode(wanted))
        edge = cursors.read(cursor)
        if wanted.labels:
            await self._wait_for(views, job_board.VIEW, caller, position)
        await self._wait_for(views, run_history.VIEW, caller, position)
        place = DeadPlace(edge.number, edge.id) if edge else None
        newer = edge is not None and edge.newer
        kept = wanted.ended_since(self._now() - self._kept_ms)
        lines = await asyncio.to_thread(
            views.letters.dead, caller.tenant_id, kept, place, count + 1, newer=newer
        )
        page = cut(lines, count, edge)
        ends = _ends(page, cursors, lambda line: (line.run.ended_at, line.run.run_id))
        items = [shown.dead_letter(line, self._kept_ms) for line in page.lines]
        await self._link_redrives(page.lines, items)
        return shown.DeadLetterPage(items, *ends)

    async def _link_redrives(
        self, lines: Sequence[RunLine], items: Sequence[shown.RunItem]
    ) -> None:
        """Say of dead runs which run took their place, and of redrives whose place they took."""
        by_dead = {
            row.run_id: ids.redrive_id(row.job_id, row.nominal, row.run_id)
            for row in (line.run for line in lines)
            if row.status == DEAD
        }
        redriven = await self._truth.last_events(tuple(by_dead.values())) if by_dead else {}
        of: dict[bytes, bytes] = {}
        for job_id in {line.run.job_id for line in lines if line.run.kind in _REDRIVES}:
            for _, event in await self._truth.told(job_id, (e.RedriveRequested,), REDRIVES_READ):
                assert isinstance(event, e.RedriveRequested)
                of.update(zip(event.runs, event.redriven, strict=True))
        for line, item in zip(lines, items, strict=True):
            run = line.run.run_id
            by = by_dead.get(run)
            if by is not None and by in redriven:
                item.redriven_by = shown.redriven_by(by, redriven[by])
            if run in of:
                item.redrive_of = ids.text(ids.RUN, of[run])

    async def _progress(
        self, runs: tuple[rs.OpenRun, ...], asked: set[bytes]
    ) -> dict[bytes, Progressed]:
        """Return what the handlers of accepted attempts have said last, by run."""
        since = {
            run.facts.run_id: run.leased_at
            for run in runs
            if isinstance(run, rs.Awaiting) and run.facts.run_id in asked
        }
        if not since:
            return {}
        found = await self._truth.latest(tuple(since), Progressed)
        return {run: said for run, said in found.items() if said.at >= since[run]}

    def _lists(self) -> Views:
        if self._views is None:
            raise Problem("no_route", "lists are answered by the query role")
        return self._views

    def _cursors_of(self, caller: Caller, name: bytes, rest: bytes) -> Cursors:
        return Cursors(self._cursors, caller.tenant_id + name + b"\0" + rest)

    async def _wait_for(self, views: Views, view: str, caller: Caller, token: str | None) -> None:
        """Wait until a view has read what a command wrote; raises Problem when it has not."""
        if token is None:
            return
        found = read_position(self._positions, caller.tenant_id, token)
        if found is None:
            reason = Refused(f"{PARAMETER}position", "the position that a command answered")
            raise invalid((reason,))
        shard, position = found
        try:
            async with asyncio.timeout(WAIT_S):
                while await asyncio.to_thread(views.freshness.reached, view, shard) < position:  # noqa: ASYNC110 - the projector is another process
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            raise Problem("behind", "the list has not come to this position yet") from None


def _version(text: str | None) -> int:
    if text is None:
        return 0
    if text.isascii() and text.isdecimal() and len(text) <= VERSION_DIGITS:
        return int(text)
    raise invalid((Refused(f"{PARAMETER}min_version", "a version, a whole number"),))


def _check(wanted: JobFilter) -> None:
    wrong = []
    if wanted.status and wanted.status not in STATUSES:
        wrong.append(Refused(f"{PARAMETER}status", f"one of {', '.join(STATUSES)}"))
    for name, value in (("name_prefix", wanted.name_prefix), ("host", wanted.host)):
        if len(value) > TEXT_MAX or "\0" in value:
            wrong.append(Refused(f"{PARAMETER}{name}", f"at most {TEXT_MAX} characters"))
    if wrong:
        raise invalid(wrong)


def dead_filter(asked: Mapping[str, str], labels: list[str]) -> DeadFilter:
    """Read the parameters of a list of dead letters; raises Problem."""
    wrong = []
    job_id = ids.parse(ids.JOB, asked["job_id"]) if "job_id" in asked else b""
    if job_id is None:
        wrong.append(Refused(f"{PARAMETER}job_id", "the id of a job: jb_ and 32 hex digits"))
    cause = asked.get("cause", "")
    if len(cause) > CAUSE_MAX or ("cause" in asked and not cause):
        wrong.append(Refused(f"{PARAMETER}cause", f"a text of 1 to {CAUSE_MAX} characters"))
    bounds = {"since": 0, "until": LAST}
    for name in bounds:
        if name in asked:
            try:
                bounds[name] = read_instant(asked[name])
            except ValueError as error:
                wrong.append(Refused(f"{PARAMETER}{name}", str(error)))
    if bounds["since"] > bounds["until"]:
        wrong.append(Refused(f"{PARAMETER}since", "not later than until"))
    if wrong:
        raise invalid(wrong)
    return DeadFilter(job_id or b"", cause, bounds["since"], bounds["until"], labels_of(labels))


def labels_of(texts: list[str]) -> tuple[tuple[str, str], ...]:
    """Read parameters `label`, each `name:value`; raises Problem."""
    found = [text.partition(":") for text in texts]
    fits = len(texts) <= LABELS_ASKED_MAX and all(len(text) <= 2 * TEXT_MAX for text in texts)
    if not fits or any(not name or not mark or "\0" in name + value for name, mark, value in found):
        reason = Refused(f"{PARAMETER}label", f"name:value, at most {LABELS_ASKED_MAX} times")
        raise invalid((reason,))
    return tuple(sorted((name, value) for name, _, value in found))


def _ends(
    page: Cut[Any], cursors: Cursors, place: Callable[[Any], tuple[int, bytes]]
) -> tuple[str | None, str | None]:
    """Return the cursors of the next (older) and of the previous (newer) page."""
    if not page.lines:
        return None, None
    older = cursors.issue(*place(page.lines[-1])) if page.older else None
    newer = cursors.issue(*place(page.lines[0]), newer=True) if page.newer else None
    return older, newer


def _merged(
    past: list[RunLine], runs: tuple[rs.OpenRun, ...], edge: Edge | None, limit: int
) -> list[RunLine]:
    """Return the page of history and open runs together, in the order of both.

    The open runs were read first: one that ended since is shown as the history has it.
    """
    lines = {_place(line): line for line in past}
    for run in runs:
        place = run.facts.nominal, run.facts.run_id
        if edge is not None and (place > (edge.number, edge.id)) != edge.newer:
            continue
        known = lines.get(place)
        if known is None or known.run.status not in shown.ENDED:
            lines[place] = shown.open_line(run, known)
    order = sorted(lines, reverse=True)
    if edge is not None:
        order = [place for place in order if place != (edge.number, edge.id)]
    kept = order[-limit:] if edge is not None and edge.newer else order[:limit]
    return [lines[place] for place in kept]


def _line(
    run_id: bytes, told: Sequence[tuple[int, DomainEvent]], runs: tuple[rs.OpenRun, ...]
) -> RunLine | None:
    """Return a run by its events and its job's open runs; None where they contradict each other."""
    attempts, rows = run_history.rows(
        Recorded(0, version, run_id, version, event) for version, event in told
    )
    latest = {attempt.attempt: attempt for attempt in attempts}
    past = [row for row in rows if row.run_id == run_id][-1:]
    line = RunLine(past[0], tuple(latest.values())) if past else None
    for run in runs:
        if run.facts.run_id == run_id:
            return shown.open_line(run, line)
    return line if line is not None and line.run.status in shown.ENDED else None


def _place(line: RunLine) -> tuple[int, bytes]:
    return line.run.nominal, line.run.run_id
