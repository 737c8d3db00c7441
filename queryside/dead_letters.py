"""Dead letters by the labels of their jobs: those are on the job board, the letters in the history.

Which jobs have dead letters is asked of the history first, and which of them have the labels of the
board: a tenant has far fewer jobs with dead letters than jobs.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from domain.problem import Problem
from projections.dead_letters import DeadFilter, DeadPlace
from projections.rows import RunRow
from queryside.ports import JobBoard, RunHistory, RunLine

JOBS_MAX: Final = 10_000
"""Jobs with dead letters that a filter by labels looks at."""


class Letters:
    """The list of dead letters, by any filter. Plain calls; raises Problem, Unavailable."""

    def __init__(self, history: RunHistory, board: JobBoard) -> None:
        self._history = history
        self._board = board

    def dead(
        self,
        tenant_id: bytes,
        wanted: DeadFilter,
        edge: DeadPlace | None,
        limit: int,
        *,
        newer: bool = False,
    ) -> list[RunLine]:
        """Return up to `limit` dead runs next to `edge`, as `RunHistory.dead` does."""
        resolved = self._resolved(tenant_id, wanted)
        return self._history.dead(tenant_id, resolved, edge, limit, newer=newer)

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
        resolved = self._resolved(tenant_id, wanted)
        return self._history.dead_rows(tenant_id, resolved, edge, limit, newer=newer)

    def _resolved(self, tenant_id: bytes, wanted: DeadFilter) -> DeadFilter:
        if not wanted.labels:
            return wanted
        jobs: Sequence[bytes] = self._history.dead_jobs(tenant_id, wanted, JOBS_MAX + 1)
        if len(jobs) > JOBS_MAX:
            detail = f"more than {JOBS_MAX} jobs have dead letters then: ask for a shorter time"
            raise Problem("invalid", detail)
        found = self._board.labelled(tenant_id, jobs, wanted.labels)
        return msgspec.structs.replace(wanted, jobs=tuple(found))
