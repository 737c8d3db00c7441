"""Dead letters: the runs of the history that ended dead, by when they did.

They are rows of the history and need no table: dead is an end, so such a row never changes. A
filter by labels is answered in two steps, since labels are of jobs and stand on the job board.
"""

import msgspec

from domain.instant import LAST
from domain.run.events import DEAD
from projections.rows import RunRow


class DeadFilter(msgspec.Struct, frozen=True, gc=False):
    """Which dead letters are asked for: those that ended in [since, until] (ms).

    An empty job or cause is any. `jobs`: None, or those whose labels are the ones asked for.
    """

    job_id: bytes = b""
    cause: str = ""
    since: int = 0
    until: int = LAST
    labels: tuple[tuple[str, str], ...] = ()
    jobs: tuple[bytes, ...] | None = None

    def ended_since(self, at: int) -> "DeadFilter":
        """Return the same filter without what ended before `at`."""
        return msgspec.structs.replace(self, since=max(self.since, at))

    def takes(self, row: RunRow) -> bool:
        """Tell whether a row of the history is one."""
        return (
            row.status == DEAD
            and (not self.job_id or row.job_id == self.job_id)
            and (self.jobs is None or row.job_id in self.jobs)
            and (not self.cause or row.cause == self.cause)
            and self.since <= row.ended_at <= self.until
        )


class DeadPlace(msgspec.Struct, frozen=True, gc=False):
    """A dead letter's place in their order: `ended_at` falling, then `run_id` falling (bytes)."""

    ended_at: int
    run_id: bytes
