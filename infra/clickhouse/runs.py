"""`queryside.ports.RunHistory` on ClickHouse: pages by key, without FINAL.

Reading with FINAL merges whole parts; a page needs a few keys. So rows are read in the order of the
primary key and the first of each key, by position, is taken (`limit 1 by`), which ends as soon as
the page is full.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from infra.clickhouse.connection import Connection
from infra.clickhouse.packing import ATTEMPT_COLUMNS, RUN_COLUMNS
from infra.clickhouse.tables import Tables
from projections.dead_letters import DeadFilter, DeadPlace
from projections.rows import AttemptRow, RunRow
from queryside.ports import ATTEMPTS_SHOWN, RunLine, RunPlace

_BOUNDS: Final = {
    "readonly": 1,
    "max_execution_time": 5,
    "max_memory_usage": 512 * 1024 * 1024,
    "max_threads": 2,
    "max_block_size": 8_192,  # a page is small: do not read far past it
    "optimize_read_in_order": 1,
}

_RUNS: Final = """
select {columns} from {table}
where tenant_id = toFixedString(unhex({{tenant:String}}), 16)
  and job_id = toFixedString(unhex({{job:String}}), 16)
  {edge}
order by nominal {order}, run_id {order}, position desc
limit 1 by nominal, run_id
limit {{limit:UInt32}}
"""
_FOLLOWING: Final = """
  and nominal <= {nominal:Int64}
  and (nominal < {nominal:Int64} or run_id < toFixedString(unhex({run:String}), 16))"""
_BEFORE: Final = """
  and nominal >= {nominal:Int64}
  and (nominal > {nominal:Int64} or run_id > toFixedString(unhex({run:String}), 16))"""

# Dead is an end: whatever rows of such a key are not merged yet, those that say so are equal.
_DEAD: Final = """
select {columns} from {table}
where tenant_id = toFixedString(unhex({{tenant:String}}), 16) and status = 'dead'
  and ended_at >= {{since:Int64}} and ended_at <= {{until:Int64}}
  {filter}
order by ended_at {order}, run_id {order}
limit 1 by run_id
limit {{limit:UInt32}}
"""
_OF_JOB: Final = " and job_id = toFixedString(unhex({job:String}), 16)"
_OF_JOBS: Final = """
  and job_id in (select toFixedString(unhex(arrayJoin({jobs:Array(String)})), 16))"""
_OF_CAUSE: Final = " and cause = {cause:String}"
_DEAD_JOBS: Final = """
select distinct job_id from {table}
where tenant_id = toFixedString(unhex({{tenant:String}}), 16) and status = 'dead'
  and ended_at >= {{since:Int64}} and ended_at <= {{until:Int64}}
  {filter}
limit {{limit:UInt32}}
"""
_PLACE: Final = """
  and (ended_at, run_id) {than} ({{ended:Int64}}, toFixedString(unhex({{run:String}}), 16))"""

_ATTEMPTS: Final = """
select {columns} from (
    select {columns} from {table}
    where tenant_id = toFixedString(unhex({{tenant:String}}), 16)
      and job_id in (select toFixedString(unhex(arrayJoin({{jobs:Array(String)}})), 16))
      and nominal >= {{first:Int64}} and nominal <= {{last:Int64}}
      and has({{runs:Array(String)}}, hex(run_id))
    order by run_id, attempt, position desc
    limit 1 by run_id, attempt
)
order by run_id, attempt desc
limit {{shown:UInt32}} by run_id
"""
# Bytes of the targets' choice, and ours, which are text by construction.
_FORMATS: Final[dict[str, str | dict[str, str]]] = {"body": "bytes", "headers": "bytes"}
_HEADERS: Final = msgspec.json.Decoder(tuple[tuple[str, str], ...])


class ClickHouseRuns:
    """Pages of a job's runs. Safe to call from several threads."""

    def __init__(self, url: str, database: str) -> None:
        """Connect lazily."""
        self._connection = Connection(url)
        self._tables = Tables(database)

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
        values: dict[str, Any] = {
            "tenant": tenant_id.hex(),
            "job": job_id.hex(),
            "limit": limit,
        }
        if edge is not None:
            values |= {"nominal": edge.nominal, "run": edge.run_id.hex()}
        statement = _RUNS.format(
            columns=", ".join(RUN_COLUMNS),
            table=self._tables.runs,
            edge="" if edge is None else _BEFORE if newer else _FOLLOWING,
            order="asc" if newer else "desc",
        )
        runs = [RunRow(*row) for row in self._rows(statement, values)]
        if newer:
            runs.reverse()
        return self._lines(values, runs)

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
        runs = self.dead_rows(tenant_id, wanted, edge, limit, newer=newer)
        return self._lines({"tenant": tenant_id.hex()}, runs)

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
        values, filters = _asked(tenant_id, wanted, limit)
        if edge is not None:
            values |= {"ended": edge.ended_at, "run": edge.run_id.hex()}
            filters += _PLACE.format(than=">" if newer else "<")
        statement = _DEAD.format(
            columns=", ".join(RUN_COLUMNS),
            table=self._tables.runs,
            filter=filters,
            order="asc" if newer else "desc",
        )
        runs = [RunRow(*row) for row in self._rows(statement, values)]
        return runs[::-1] if newer else runs

    def dead_jobs(self, tenant_id: bytes, wanted: DeadFilter, limit: int) -> list[bytes]:
        """Return up to `limit` of the jobs that have dead runs of this filter."""
        values, filters = _asked(tenant_id, wanted, limit)
        statement = _DEAD_JOBS.format(table=self._tables.runs, filter=filters)
        return [job_id for (job_id,) in self._rows(statement, values)]

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _lines(self, values: dict[str, Any], runs: Sequence[RunRow]) -> list[RunLine]:
        attempts = self._attempts(values, [run for run in runs if run.attempts > 0])
        return [RunLine(run, tuple(attempts.get(run.run_id, ()))) for run in runs]

    def _attempts(
        self, values: dict[str, Any], runs: Sequence[RunRow]
    ) -> dict[bytes, list[AttemptRow]]:
        """Return the attempts of each of these runs, oldest first."""
        found: dict[bytes, list[AttemptRow]] = {}
        if not runs:
            return found
        asked = {
            "tenant": values["tenant"],
            "jobs": sorted({run.job_id.hex() for run in runs}),
            "first": min(run.nominal for run in runs),
            "last": max(run.nominal for run in runs),
            "runs": [run.run_id.hex().upper() for run in runs],
            "shown": ATTEMPTS_SHOWN,
        }
        statement = _ATTEMPTS.format(
            columns=", ".join(ATTEMPT_COLUMNS), table=self._tables.attempts
        )
        for row in self._rows(statement, asked):
            attempt = _attempt(row)
            found.setdefault(attempt.run_id, []).append(attempt)
        for attempts in found.values():
            attempts.reverse()
        return found

    def _rows(self, statement: str, values: dict[str, Any]) -> Sequence[Sequence[Any]]:
        with self._connection.use() as client:
            result = client.query(
                statement, parameters=values, settings=_BOUNDS, column_formats=_FORMATS
            )
            return result.result_rows


def _asked(tenant_id: bytes, wanted: DeadFilter, limit: int) -> tuple[dict[str, Any], str]:
    """Return the parameters of a filter, and its conditions."""
    values: dict[str, Any] = {
        "tenant": tenant_id.hex(),
        "since": wanted.since,
        "until": wanted.until,
        "limit": limit,
    }
    filters = ""
    if wanted.job_id:
        values["job"], filters = wanted.job_id.hex(), filters + _OF_JOB
    if wanted.jobs is not None:
        values["jobs"], filters = [job.hex() for job in wanted.jobs], filters + _OF_JOBS
    if wanted.cause:
        values["cause"], filters = wanted.cause, filters + _OF_CAUSE
    return values, filters


_HEADERS_AT: Final = ATTEMPT_COLUMNS.index("headers")


def _attempt(row: Sequence[Any]) -> AttemptRow:
    fields = list(row)
    fields[_HEADERS_AT] = _HEADERS.decode(fields[_HEADERS_AT])
    return AttemptRow(*fields)
