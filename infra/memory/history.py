"""The run history in memory: `projections.ports.HistoryStore` and `queryside.ports.RunHistory`."""

from collections.abc import Sequence

from commandside.ports import Unavailable
from projections.dead_letters import DeadFilter, DeadPlace
from projections.rows import AttemptRow, RunRow
from queryside.ports import ATTEMPTS_SHOWN, RunLine, RunPlace

_AttemptKey = tuple[bytes, bytes, int, bytes, int]
_RunKey = tuple[bytes, bytes, int, bytes]


class _Copy:
    """What one copy holds; of two rows with one key, that of the higher position."""

    def __init__(self) -> None:
        self.attempts: dict[_AttemptKey, AttemptRow] = {}
        self.runs: dict[_RunKey, RunRow] = {}
        self.tokens: set[str] = set()


class MemoryHistories:
    """The engine: live copy under the empty name, others beside it; `away` makes it unreachable."""

    def __init__(self) -> None:
        self.away = False
        self.copies: dict[str, _Copy] = {}


class MemoryHistory:
    """`projections.ports.HistoryStore`: one copy."""

    def __init__(self, engine: MemoryHistories, copy: str = "") -> None:
        """Write one of the engine's copies."""
        self._engine = engine
        self._copy = copy

    def missing(self) -> bool:
        """Tell whether the copy is not there."""
        self._reach()
        return self._copy not in self._engine.copies

    def prepare(self) -> None:
        """Create the copy, if it is missing."""
        self._reach()
        self._engine.copies.setdefault(self._copy, _Copy())

    def begin(self) -> None:
        """Empty the copy."""
        self._reach()
        self._engine.copies[self._copy] = _Copy()

    def swap(self) -> None:
        """Put the copy in the place of the live one."""
        self._reach()
        self._engine.copies[""] = self._engine.copies.pop(self._copy)

    def write(self, attempts: Sequence[AttemptRow], runs: Sequence[RunRow], token: str) -> None:
        """Keep rows, once for each token."""
        self._reach()
        copy = self._engine.copies.get(self._copy)
        if copy is None:
            raise Unavailable("the history was lost")
        if token in copy.tokens:
            return
        copy.tokens.add(token)
        for attempt in attempts:
            key = (
                attempt.tenant_id,
                attempt.job_id,
                attempt.nominal,
                attempt.run_id,
                attempt.attempt,
            )
            old = copy.attempts.get(key)
            if old is None or old.position <= attempt.position:
                copy.attempts[key] = attempt
        for run in runs:
            place = (run.tenant_id, run.job_id, run.nominal, run.run_id)
            known = copy.runs.get(place)
            if known is None or known.position <= run.position:
                copy.runs[place] = run

    def _reach(self) -> None:
        if self._engine.away:
            raise Unavailable("the history is away")


class MemoryRuns:
    """`queryside.ports.RunHistory` over the live copy."""

    def __init__(self, engine: MemoryHistories) -> None:
        """Read what others write."""
        self._engine = engine

    def page(
        self,
        tenant_id: bytes,
        job_id: bytes,
        edge: RunPlace | None,
        limit: int,
        *,
        newer: bool = False,
    ) -> list[RunLine]:
        """Return up to `limit` rows next to `edge`, newest first, with their attempts."""
        copy = self._live()
        mine = [r for k, r in copy.runs.items() if k[:2] == (tenant_id, job_id)]
        mine.sort(key=_place, reverse=True)
        if edge is not None:
            at = (edge.nominal, edge.run_id)
            mine = [r for r in mine if (_place(r) > at if newer else _place(r) < at)]
        page = mine[-limit:] if newer else mine[:limit]
        return [RunLine(run, self._attempts(copy, run)) for run in page]

    def dead(
        self,
        tenant_id: bytes,
        wanted: DeadFilter,
        edge: DeadPlace | None,
        limit: int,
        *,
        newer: bool = False,
    ) -> list[RunLine]:
        """Return up to `limit` dead runs next to `edge`, the last to end first, with attempts."""
        copy = self._live()
        rows = self.dead_rows(tenant_id, wanted, edge, limit, newer=newer)
        return [RunLine(run, self._attempts(copy, run)) for run in rows]

    def dead_rows(
        self,
        tenant_id: bytes,
        wanted: DeadFilter,
        edge: DeadPlace | None,
        limit: int,
        *,
        newer: bool = False,
    ) -> list[RunRow]:
        """Return the same without attempts."""
        rows = self._live().runs.values()
        mine = [r for r in rows if r.tenant_id == tenant_id and wanted.takes(r)]
        mine.sort(key=_end, reverse=True)
        if edge is not None:
            at = (edge.ended_at, edge.run_id)
            mine = [r for r in mine if (_end(r) > at if newer else _end(r) < at)]
        return mine[-limit:] if newer else mine[:limit]

    def dead_jobs(self, tenant_id: bytes, wanted: DeadFilter, limit: int) -> list[bytes]:
        """Return up to `limit` of the jobs that have dead runs of this filter."""
        rows = self._live().runs.values()
        mine = {r.job_id for r in rows if r.tenant_id == tenant_id and wanted.takes(r)}
        return sorted(mine)[:limit]

    def _live(self) -> _Copy:
        copy = self._engine.copies.get("")
        if self._engine.away or copy is None:
            raise Unavailable("the history is away")
        return copy

    def _attempts(self, copy: _Copy, run: RunRow) -> tuple[AttemptRow, ...]:
        key = (run.tenant_id, run.job_id, run.nominal, run.run_id)
        found = sorted((k[4], a) for k, a in copy.attempts.items() if k[:4] == key)
        return tuple(attempt for _, attempt in found[-ATTEMPTS_SHOWN:])


def _place(run: RunRow) -> tuple[int, bytes]:
    return (run.nominal, run.run_id)


def _end(run: RunRow) -> tuple[int, bytes]:
    return (run.ended_at, run.run_id)
