"""The story of one run: events, requests, calls of clients and what was broken, in order."""

from datetime import UTC, datetime
from typing import Final

import msgspec

from tests.checker.inputs import History, Stored
from tests.checker.log import decoded
from tests.checker.report import Violation
from tests.checker.track import Case, Faults

LINES_MAX: Final = 200
LONG: Final = 160
"""Characters of an event that are shown."""
NEAR_MS: Final = 60_000


def tell(
    violation: Violation, cases: dict[bytes, Case], history: History, faults: Faults
) -> list[str]:
    """Return what happened around a violation, in the order of time."""
    case = cases.get(violation.job)
    if case is None:
        return []
    # The job's own events, and those of the run, where it is about one.
    wanted = (violation.job, violation.run) if violation.run else None
    lines = [
        _event(stored, violation.job)
        for stored in case.events
        if wanted is None or stored.stream in wanted
    ]
    runs = [violation.run] if violation.run else list(case.hits)
    for run in runs:
        for hit in case.hits.get(run, ()):
            text = f"H  request attempt {hit.attempt} fence {hit.fence} key {hit.key}"
            lines.append((hit.at_us, f"{text}, answered {hit.status or 'nothing'}"))
    for op in case.clients:
        text = f"C  {op.client} {op.action}: {op.outcome} {op.status or ''} version {op.version}"
        lines.append((op.invoked_us, text))
    if lines:
        first, last = min(lines)[0] // 1_000, max(lines)[0] // 1_000
        for fault in faults.within(first - NEAR_MS, last + NEAR_MS, violation.job):
            text = f"N  {fault.name} ({fault.kind}) for {fault.end - fault.start} ms"
            lines.append((fault.start * 1_000, text))
    lines.sort(key=lambda line: line[0])
    told = [f"{_clock(at)}  {text}" for at, text in lines]
    if len(told) > LINES_MAX:
        half = LINES_MAX // 2
        told = [*told[:half], f"… {len(told) - LINES_MAX} lines …", *told[-half:]]
    return told


def _event(stored: Stored, job: bytes) -> tuple[int, str]:
    event = decoded(stored)
    at = stored.db_time or getattr(event, "at", 0)
    whose = "job" if stored.stream == job else f"run {stored.stream.hex()[-8:]}"
    if isinstance(event, str):
        return at * 1_000, f"E  {stored.position} {whose} v{stored.version}: {event}"
    words = []
    for name, value in msgspec.structs.asdict(event).items():
        if value and name not in ("at", "job_id", "tenant_id", "spec"):
            words.append(f"{name}={value.hex() if isinstance(value, bytes) else value}")
    text = " ".join(words)[:LONG]
    name = type(event).__name__
    return at * 1_000, f"E  {stored.position} {whose} v{stored.version} {name} {text}"


def _clock(at_us: int) -> str:
    if not 0 < at_us < 250_000_000_000_000_000:
        return str(at_us)
    instant = datetime.fromtimestamp(at_us / 1_000_000, UTC)
    return instant.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
