"""The tables of the run history, and how a second copy stands beside the live one.

Instants are Int64 milliseconds, as everywhere. A key's rows are merged to the one of the highest
position; merging happens within a partition only, so the partition is a function of the key: spans
of thirty days of the nominal instant, one for everything after the year 2100.
"""

import re
from typing import Final

import msgspec

LIVE: Final = ""
"""Name of the live copy."""
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,40}")

_SPAN_MS: Final = 30 * 24 * 3600 * 1000
_YEAR_2100_MS: Final = 4_102_444_800_000
# Per insert and partition: a day of a projector's inserts, long after any repeat.
_TOKENS_KEPT: Final = 10_000
_SETTINGS: Final = (
    f"non_replicated_deduplication_window = {_TOKENS_KEPT},"
    # Positions in Postgres say that a row is kept: it must survive a power cut as they do.
    " fsync_after_insert = 1, fsync_part_directory = 1"
)
_KEY: Final = """
    tenant_id FixedString(16),
    job_id FixedString(16),
    nominal Int64 codec(Delta, ZSTD(1)),
    run_id FixedString(16),"""
_ENGINE: Final = f"""
) engine = ReplacingMergeTree(position)
partition by intDiv(least(nominal, {_YEAR_2100_MS}), {_SPAN_MS})"""

_ATTEMPTS: Final = f"""
create table if not exists {{table}} ({_KEY}
    attempt UInt32,
    kind UInt8,
    due_at Int64 codec(Delta, ZSTD(1)),
    leased_at Int64 codec(Delta, ZSTD(1)),
    ended_at Int64 codec(Delta, ZSTD(1)),
    lateness_ms Int64 codec(ZSTD(1)),
    elapsed_us Int64 codec(ZSTD(1)),
    outcome LowCardinality(String),
    then LowCardinality(String),
    status Int32 codec(ZSTD(1)),
    error String codec(ZSTD(1)),
    late Bool,
    fence Int32 codec(ZSTD(1)),
    headers String codec(ZSTD(1)),
    body String codec(ZSTD(1)),
    position Int64 codec(Delta, ZSTD(1)){_ENGINE}
order by (tenant_id, job_id, nominal, run_id, attempt)
settings {_SETTINGS}
"""
_RUNS: Final = f"""
create table if not exists {{table}} ({_KEY}
    kind UInt8,
    last Int64 codec(Delta, ZSTD(1)),
    count UInt32,
    due_at Int64 codec(Delta, ZSTD(1)),
    status LowCardinality(String),
    verdict LowCardinality(String),
    cause LowCardinality(String),
    attempts UInt32,
    fired_at Int64 codec(Delta, ZSTD(1)),
    ended_at Int64 codec(Delta, ZSTD(1)),
    position Int64 codec(Delta, ZSTD(1)){_ENGINE}
order by (tenant_id, job_id, nominal, run_id)
settings {_SETTINGS}
"""


class Tables(msgspec.Struct, frozen=True):
    """The two tables of one copy; `copy` is empty for the live one."""

    database: str
    copy: str = LIVE

    def __post_init__(self) -> None:
        """Refuse what is no plain name, since names cannot be bound as parameters."""
        for name in (self.database, self.copy or "live"):
            if not _NAME.fullmatch(name):
                raise ValueError(f"{name!r} is no name for a database or a copy")

    @property
    def attempts(self) -> str:
        """Qualified name of the attempts."""
        return self._named("attempts")

    @property
    def runs(self) -> str:
        """Qualified name of the runs."""
        return self._named("runs")

    def create(self) -> tuple[str, ...]:
        """Return the statements that create what is missing."""
        return (
            f"create database if not exists {self.database}",
            _ATTEMPTS.format(table=self.attempts),
            _RUNS.format(table=self.runs),
        )

    def drop(self) -> tuple[str, ...]:
        """Return the statements that drop this copy."""
        return tuple(f"drop table if exists {t} sync" for t in (self.attempts, self.runs))

    def exchange(self) -> tuple[str, ...]:
        """Return the statements that put this copy in the place of the live one."""
        live = Tables(self.database)
        return (
            f"exchange tables {self.attempts} and {live.attempts}",
            f"exchange tables {self.runs} and {live.runs}",
        )

    def _named(self, table: str) -> str:
        return f"{self.database}.{table}{'_' if self.copy else ''}{self.copy}"
