"""What was found: violations, how often each path was taken, and how late fires were."""

from collections import Counter
from typing import Final

import msgspec

PATHS: Final = {
    "fires": "attempts leased",
    "retries": "attempts after a failure",
    "reclaims": "attempts given up because nobody spoke for them (lost)",
    "abandoned": "attempts leased and never sent",
    "late_successes": "successes taken after their lease had lapsed",
    "accepted": "attempts that their handler took to end by itself",
    "zombie_hits": "requests that arrived after their attempt had been given up",
    "duplicate_hits": "requests after one that was answered 2xx",
    "ghost_messages": "entries handed off for which there was no event",
    "published_again": "entries handed off more than once",
    "direct_claims": "entries found in the log, without the broker",
    "fence_refusals": "reports refused because another attempt had begun (counted by the harness)",
    "ambiguous_commits": "appends of unknown outcome (counted by the harness)",
    "skipped": "occurrences with a stream that did not fire, by policy",
    "passed": "slots that passed without a stream (ranges)",
    "catch_ups": "links that carried missed slots",
    "withdrawn": "runs withdrawn by a pause or an edit",
    "cancelled": "runs cancelled",
    "superseded": "runs cancelled by a newer occurrence",
    "dead": "runs that ended dead",
    "succeeded": "runs that succeeded",
    "manual": "runs asked for by a client",
    "backfilled": "runs of a backfill",
    "redriven": "runs in the place of a dead one",
    "unknown_calls": "calls of clients without an answer",
}
"""Every path that is counted, and what it is."""


class Violation(msgspec.Struct, frozen=True, gc=False):
    """One statement that is false. `run` and `job` are empty where it is of neither."""

    invariant: str
    what: str
    job: bytes = b""
    run: bytes = b""

    def text(self) -> str:
        """Return it in a line."""
        where = f" run {self.run.hex()}" if self.run else ""
        where += f" job {self.job.hex()}" if self.job else ""
        return f"{self.invariant}: {self.what}{where}"


KEPT: Final = 1_000
"""Violations kept of each invariant; the others are counted."""


SHOWN: Final = 20
QUANTILES: Final = (0.5, 0.99, 0.999)


class Report:
    """Filled by the checks, read by who asked."""

    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self.broken: Counter[str] = Counter()
        """How often each invariant was violated."""
        self.paths: Counter[str] = Counter()
        self.lateness_ms: dict[str, list[int]] = {}
        """By kind of fault, `none` without one."""
        self.unjudged: Counter[str] = Counter()
        """What could not be judged, and how often."""
        self.events = 0
        self.told: Violation | None = None
        """The violation of which there is the story."""
        self.story: list[str] = []

    def wrong(self, invariant: str, what: str, *, job: bytes = b"", run: bytes = b"") -> None:
        """Note a violation."""
        self.broken[invariant] += 1
        if self.broken[invariant] <= KEPT:
            self.violations.append(Violation(invariant, what, job, run))

    def text(self) -> str:
        """Return all of it, in lines."""
        lines = [f"{self.events} events, {sum(self.broken.values())} violations"]
        lines += [f"  {name}: {times}" for name, times in sorted(self.broken.items())]
        lines += [f"{v.text()}" for v in self.violations[:SHOWN]]
        if len(self.violations) > SHOWN:
            lines.append(f"… {sum(self.broken.values()) - SHOWN} more")
        if self.told is not None:
            lines += ["", f"the story of {self.told.text()}", *self.story]
        lines += ["", "paths"]
        lines += [f"  {self.paths[name]:9} {name}: {said}" for name, said in PATHS.items()]
        if self.lateness_ms:
            lines += ["", "lateness of first attempts, ms: p50, p99, p99.9, max (number)"]
        for kind, found in sorted(self.lateness_ms.items()):
            found.sort()
            shares = [found[min(len(found) - 1, int(len(found) * q))] for q in QUANTILES]
            shown = ", ".join(map(str, shares))
            lines.append(f"  {kind}: {shown}, {found[-1]} ({len(found)})")
        if self.unjudged:
            lines += ["", "not judged"]
            lines += [f"  {times:9} {what}" for what, times in sorted(self.unjudged.items())]
        return "\n".join(lines)
