"""The job board as lists read it, in memory: over the board's rows and the log's due rows."""

from collections.abc import Iterator, Sequence

import msgspec

from domain.ids import SLOT
from domain.run.state import Ready
from infra.memory.log import MemoryLog
from infra.memory.views import MemoryBoardStore
from projections.job_board import VIEW
from projections.ports import Positions
from projections.rows import BoardRow
from queryside.ports import JobFilter, JobLine, JobPlace


class MemoryBoard:
    """`queryside.ports.JobBoard`."""

    def __init__(self, log: MemoryLog, store: MemoryBoardStore) -> None:
        """Read what a projector wrote into `store`, and the open runs of `log`."""
        self._log = log
        self._store = store

    def page(
        self,
        tenant_id: bytes,
        wanted: JobFilter,
        edge: JobPlace | None,
        limit: int,
        *,
        newer: bool = False,
    ) -> list[JobLine]:
        """Return up to `limit` jobs next to `edge`, in the order of lists."""
        lines = sorted(
            (line for line in self._lines(tenant_id) if _fits(line.row, wanted)), key=_order
        )
        if edge is None:
            return lines[:limit]
        place = (-edge.defined_at, edge.job_id)
        if newer:
            return [line for line in lines if _order(line) < place][-limit:]
        return [line for line in lines if _order(line) > place][:limit]

    def labelled(
        self, tenant_id: bytes, job_ids: Sequence[bytes], labels: Sequence[tuple[str, str]]
    ) -> list[bytes]:
        """Return those of these jobs that have all these labels."""
        rows = self._store.rows.get(VIEW, {})
        found = [rows[job_id] for job_id in job_ids if job_id in rows]
        return [
            row.job_id
            for row in found
            if row.tenant_id == tenant_id and set(labels) <= set(row.labels)
        ]

    def _lines(self, tenant_id: bytes) -> Iterator[JobLine]:
        for row in self._store.rows.get(VIEW, {}).values():
            if row.tenant_id != tenant_id:
                continue
            runs = self._log.runs_of(row.job_id)
            links = [run.facts for run in runs if run.facts.kind == SLOT]
            waiting = [facts for facts in links if not facts.begun]
            first = min(waiting, key=lambda facts: facts.nominal, default=None)
            over = row.one_time and row.status == "active" and not links
            yield JobLine(
                msgspec.structs.replace(row, status="finished") if over else row,
                first.nominal if first else None,
                first.due_at if first else None,
                sum(not isinstance(run, Ready) for run in runs),
            )


class MemoryFreshness:
    """`queryside.ports.Freshness`."""

    def __init__(self, positions: Positions) -> None:
        """Read what projectors saved."""
        self._positions = positions

    def reached(self, view: str, shard: int) -> int:
        """Return the position of a view in a shard."""
        return self._positions.load(view).get(shard, 0)


def _order(line: JobLine) -> tuple[int, bytes]:
    return -line.row.defined_at, line.row.job_id


def _fits(row: BoardRow, wanted: JobFilter) -> bool:
    return (
        (not wanted.status or row.status == wanted.status)
        and (not wanted.host or row.host == wanted.host)
        and (not wanted.job_id or row.job_id == wanted.job_id)
        and row.name.startswith(wanted.name_prefix)
        and set(wanted.labels) <= set(row.labels)
    )
