"""What reached the targets, held against the log (I1, I2, I4, I6, I7, I8, I10, I11)."""

from collections.abc import Iterable
from typing import Final

from domain.ids import BESIDE, MANUAL, REDRIVE_OWN, RERUN
from domain.job.events import JobSpec
from domain.run import events as e
from domain.target import HttpTarget
from tests.checker.inputs import Hit, Scenario
from tests.checker.report import Report
from tests.checker.track import CLOCKS_MS, Attempt, Case, Faults, Job, Run

OWN_KEY: Final = (MANUAL, BESIDE, RERUN, REDRIVE_OWN)
UNSEEN: Final = (
    "blocked_address",
    "broker_down",
    "confirm_lost",
    "connect",
    "dns",
    "key_gone",
    "message_too_large",
    "no_connection",
    "secret_missing",
    "tls",
    "unsendable",
)
"""Errors of attempts that no target needs to have seen."""


class Keys:
    """Whose each key is, across the whole system (I4)."""

    def __init__(self) -> None:
        self._owners: dict[str, tuple[bytes, int, bytes]] = {}

    def other(self, key: str, owner: tuple[bytes, int, bytes]) -> tuple[bytes, int, bytes] | None:
        """Return who else has a key; `owner` is job, instant, and run of a key of its own."""
        found = self._owners.setdefault(key, owner)
        return None if found == owner else found


class Targets:
    """The hits of one job."""

    def __init__(  # noqa: PLR0913 - what is judged, what it is judged by, and where that is said
        self, case: Case, job: Job, keys: Keys, faults: Faults, scenario: Scenario, report: Report
    ) -> None:
        self.case, self.job, self.keys = case, job, keys
        self.faults, self.scenario, self.report = faults, scenario, report
        self.bodies = {
            op.version: op.payload_sha256
            for op in case.clients
            if op.outcome == "ok" and op.payload_sha256 is not None and op.version
        }
        """By version of the job: what its fires carry, as the client who said so knows it."""

    def judge(self) -> None:
        """Judge every hit, and every run that should have some."""
        for run_id, hits in self.case.hits.items():
            run = self.job.runs.get(run_id)
            if run is None:
                self.wrong("I2", "a request came for a run that is not in the log", run_id)
                continue
            hits.sort(key=lambda hit: hit.at_us)
            self._run(run, hits)
        if self.scenario.exact_hits:
            for run in self.job.runs.values():
                self._confirmed(run, self.case.hits.get(run.id, []))

    def wrong(self, invariant: str, what: str, run: bytes) -> None:
        self.report.wrong(invariant, what, job=self.job.id, run=run)

    # ---------------------------------------------------------------- each hit

    def _run(self, run: Run, hits: list[Hit]) -> None:
        seen: set[int] = set()
        for hit in hits:
            if not 0 < hit.attempt <= len(run.attempts):
                self.wrong("I6", f"attempt {hit.attempt} came, which was never leased", run.id)
                continue
            attempt = run.attempts[hit.attempt - 1]
            if hit.attempt in seen:
                self.wrong("I6", f"attempt {hit.attempt} came twice", run.id)
            seen.add(hit.attempt)
            self._lease(run, attempt, hit)
            self._words(run, attempt, hit)
            self._cancelled(run, attempt, hit)
        self._same(run, hits)
        self._duplicates(run, hits)

    def _lease(self, run: Run, attempt: Attempt, hit: Hit) -> None:
        slack = self.scenario.early_ms
        if hit.fence != attempt.fence:
            what = f"attempt {hit.attempt} came with fence {hit.fence}, leased as {attempt.fence}"
            self.wrong("I6", what, run.id)
        if hit.at_us < (attempt.at - max(slack, CLOCKS_MS)) * 1_000:
            self.wrong("I6", f"attempt {hit.attempt} came before its lease", run.id)
        early_us = attempt.due_at * 1_000 - hit.at_us
        if early_us > slack * 1_000:
            what = f"attempt {hit.attempt} came {early_us // 1_000} ms before it was due"
            self.wrong("I10", what, run.id)
        if attempt.ended_at and hit.at_us > (attempt.ended_at + slack) * 1_000:
            self.report.paths["zombie_hits"] += 1

    def _words(self, run: Run, attempt: Attempt, hit: Hit) -> None:
        """I2 and I4: tenant, address, body and key are those of the run's job."""
        if hit.tenant and hit.tenant != self.job.tenant:
            self.wrong("I2", f"attempt {hit.attempt} came to a target of another tenant", run.id)
        if hit.url and attempt.spec is not None and not _is_at(hit.url, attempt.spec):
            self.wrong("I2", f"attempt {hit.attempt} came to {hit.url}", run.id)
        body = self.bodies.get(attempt.payload_version)
        if body is not None and body != hit.body_sha256:
            what = f"attempt {hit.attempt} has another body than version {attempt.payload_version}"
            self.wrong("I2", what, run.id)
        pinned = self.job.specs.get(run.attempts[0].payload_version)
        key = "" if pinned is None else key_of(pinned.key_template, self.job.id, run)
        if key != hit.key:
            what = f"attempt {hit.attempt} has the key {hit.key!r}, and not {key!r}"
            self.wrong("I4", what, run.id)
        if hit.webhook_id and hit.webhook_id != hit.key:
            what = f"attempt {hit.attempt} has the webhook-id {hit.webhook_id!r} beside its key"
            self.wrong("I4", what, run.id)

    def _same(self, run: Run, hits: list[Hit]) -> None:
        first = hits[0]
        for hit in hits[1:]:
            if (hit.key, hit.body_sha256) != (first.key, first.body_sha256):
                what = f"attempt {hit.attempt} has another key or body than {first.attempt}"
                self.wrong("I4", what, run.id)
                break
        # A redrive has the key of the run in whose place it is; an instant has one key.
        suffix = run.id[-4:] if run.kind in OWN_KEY else b""
        other = self.keys.other(first.key, (self.job.id, run.nominal, suffix))
        if other is not None:
            what = f"its key {first.key!r} is that of {other[1]} of job {other[0].hex()} too"
            self.wrong("I4", what, run.id)

    # ---------------------------------------------------------------- duplicates

    def _duplicates(self, run: Run, hits: list[Hit]) -> None:
        """I7: once a target has answered 2xx in time nobody calls again, unless something broke."""
        extra = 0
        answered: Hit | None = None
        for hit in hits:
            if answered is not None:
                extra += 1
                self.report.paths["duplicate_hits"] += 1
            elif self._is_taken(run, hit):
                answered = hit
        if not extra or answered is None:
            return
        start, end = answered.at_us // 1_000, hits[-1].at_us // 1_000
        broken = self.faults.within(start - self._before(run), end, self.job.id)
        excused = sum(
            1
            for fault in broken
            for hit in hits
            if fault.start * 1_000 <= hit.at_us + self._flight_us(run, hit)
            and fault.end * 1_000 >= hit.at_us
        )
        if extra > max(excused, len(broken)):
            what = f"{extra} more requests came after attempt {answered.attempt} was answered"
            self.wrong("I7", f"{what} {answered.status}; {len(broken)} faults were near", run.id)

    def _before(self, run: Run) -> int:
        """Return how long a fault may be over whose effect is still there: a session's length."""
        return 12_000

    def _flight_us(self, run: Run, hit: Hit) -> int:
        attempt = run.attempts[hit.attempt - 1] if hit.attempt <= len(run.attempts) else None
        spec = attempt.spec if attempt is not None else None
        return (spec.timeout_ms if spec is not None else 0) * 1_000 + 12_000_000

    def _is_taken(self, run: Run, hit: Hit) -> bool:
        """Tell whether a target did what it was asked: 2xx within the timeout, and whole."""
        if not 200 <= hit.status <= 299 or not hit.answered_us:
            return False
        if hit.attempt > len(run.attempts):
            return False
        attempt = run.attempts[hit.attempt - 1]
        if attempt.accepted or hit.status == 202:
            # Taken to be ended by its handler, which may give it up.
            return False
        timeout = attempt.spec.timeout_ms if attempt.spec is not None else 0
        return hit.answered_us - hit.at_us < timeout * 1_000

    # ---------------------------------------------------------------- cancels

    def _cancelled(self, run: Run, attempt: Attempt, hit: Hit) -> None:
        """I8: what comes after an acknowledged cancel was in flight, soon, and was named."""
        for op in self.case.clients:
            if op.action != "cancel" or op.outcome != "ok" or hit.at_us <= op.returned_us:
                continue
            tombstone = next((c for c in self.job.cancels if c[2] == op.version), None)
            if tombstone is None or run.life != self._life(op.version):
                continue
            late_ms = hit.at_us // 1_000 - op.returned_us // 1_000
            if attempt.position > tombstone[0]:
                what = f"attempt {hit.attempt} came {late_ms} ms after the cancel, and was leased"
                self.wrong("I8", f"{what} after it", run.id)
            elif late_ms > self.scenario.send_ms and not self.faults.within(
                attempt.at, hit.at_us // 1_000
            ):
                self.wrong("I8", f"attempt {hit.attempt} came {late_ms} ms after a cancel", run.id)
            if op.in_flight is not None and run.id not in op.in_flight:
                what = f"attempt {hit.attempt} came after a cancel whose answer does not name it"
                self.wrong("I8", what, run.id)

    def _life(self, version: int) -> int:
        found = 0
        for force in self.job.forces:
            if force.version <= version:
                found = force.life
        return found

    # ---------------------------------------------------------------- confirmed

    def _confirmed(self, run: Run, hits: list[Hit]) -> None:
        """I1: a run that succeeded was taken by its target; one that failed was not."""
        by_number = {hit.attempt: hit for hit in hits}
        taken = {hit.attempt for hit in hits if 200 <= hit.status <= 299}
        if run.verdict == e.SUCCEEDED and not taken:
            self.wrong("I1", "it succeeded, and its target answered 2xx to no request", run.id)
        for attempt in run.attempts:
            leased = all(number <= len(run.attempts) for number in by_number)
            if attempt.outcome == e.OK and taken and leased and attempt.number not in taken:
                # Somebody else's answer was taken for its own.
                what = f"attempt {attempt.number} is said to be ok, and was not answered 2xx"
                self.wrong("I5", what, run.id)
            if attempt.outcome != e.FAILED or attempt.accepted:
                continue
            hit = by_number.get(attempt.number)
            if hit is None:
                seen = attempt.status != 0
                if seen:
                    what = f"attempt {attempt.number} failed with status {attempt.status}"
                    self.wrong("I1", f"{what}, and its target never saw it", run.id)
            elif self._is_taken(run, hit) and not self._excused(attempt, hit):
                what = f"attempt {attempt.number} failed, and its target answered {hit.status}"
                self.wrong("I1", what, run.id)

    def _excused(self, attempt: Attempt, hit: Hit) -> bool:
        until = max(attempt.ended_at, hit.answered_us // 1_000)
        near = self.faults.within(attempt.at, until, self.job.id)
        return bool(near) or attempt.error in ("response_too_large", "bad_response")


def key_of(template: str, job_id: bytes, run: Run) -> str:
    """Return the idempotency key of a run, as the contract has it."""
    instant = str(run.nominal)
    if run.kind in OWN_KEY:
        instant += "-m-" + run.id[-4:].hex()
    return template.replace("{job_id}", "jb_" + job_id.hex()).replace("{scheduled_ts}", instant)


def _is_at(url: str, spec: JobSpec) -> bool:
    """Tell whether a request came to where its job's target is; a path alone is compared alone."""
    target = spec.target
    if not isinstance(target, HttpTarget):
        return True
    if url.startswith("/"):
        return target.path == url
    port = (
        "" if (target.scheme, target.port) in (("https", 443), ("http", 80)) else f":{target.port}"
    )
    host = f"{target.scheme}://{target.host}"
    return url in (f"{host}{port}{target.path}", f"{host}:{target.port}{target.path}")


def seen_first(hits: Iterable[Hit]) -> int:
    """Return when the first request of a run came (ms), 0 where none did."""
    return min((hit.at_us for hit in hits), default=0) // 1_000


__all__ = ["UNSEEN", "Keys", "Targets", "key_of", "seen_first"]
