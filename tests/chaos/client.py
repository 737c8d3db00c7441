"""What clients of a chaos run do, each call on record with its invocation and its outcome."""

import datetime as dt
import random
import threading
import time
from collections.abc import Callable
from hashlib import sha256
from typing import Any, Final, Literal

import httpx
import msgspec

from domain import ids
from tests.chaos.scenario import Load
from tests.checker.inputs import Operation, Slots

LEAD_MS: Final = 3_000
EVERY_MS: Final = 2_000
LINES_MAX: Final = 200
TRIES_MAX: Final = 60
PAUSE_S: Final = 0.5
AROUND_MS: Final = 50
"""Changes come within so many milliseconds of their job's instant."""


class Client:
    """One client with its own key; calls from several threads are on record in one list."""

    def __init__(self, api: httpx.Client, tenant: bytes, targets_url: str) -> None:
        self._api, self._tenant, self._url = api, tenant, targets_url
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self.operations: list[Operation] = []
        self.oracle: list[Slots] = []
        self.jobs: list[bytes] = []
        """Jobs whose definition was acknowledged."""

    def close(self) -> None:
        """Let go of whatever waits."""
        self._closing.set()

    # ------------------------------------------------------------ definitions

    def define_one_time(self, load: Load, random_: random.Random, start_ms: int) -> list[int]:
        """Define the jobs that fire once; return their instants (ms)."""
        dues, bodies = [], []
        for n in range(load.jobs):
            due = start_ms + round(n * load.seconds * 1_000 / load.jobs)
            roll = random_.random()
            kind = "flaky" if roll < load.flaky else "steady"
            kind = "slow" if load.flaky <= roll < load.flaky + load.slow else kind
            dues.append(due)
            bodies.append(
                {
                    "key": f"once-{n}",
                    "type": "one_time",
                    "run_at": _rfc3339(due),
                    "target": self._target(f"/{kind}/{n}"),
                    "payload": {"n": n},
                    "retry": {"max_attempts": 8, "backoff": "fixed", "base_s": 1},
                    "timeout_s": 5,
                }
            )
        for first in range(0, len(bodies), LINES_MAX):
            self._until_taken(bodies[first : first + LINES_MAX], first)
        return dues

    def define_recurring(self, load: Load, start_ms: int) -> None:
        """Define the jobs that fire every other second, with an anchor of our own."""
        for n in range(load.recurring):
            body = {
                "key": f"ever-{n}",
                "type": "recurring",
                "every": "PT2S",
                "anchor": _rfc3339(start_ms),
                "starts_at": _rfc3339(start_ms),
                "ends_at": _rfc3339(start_ms + round(load.seconds * 1_000)),
                "target": self._target(f"/steady/ever-{n}"),
                "payload": {"ever": n},
                "misfire": "all",
                "overlap": "allow",
                "timeout_s": 5,
            }
            (job,) = self._until_taken([body], 1_000_000 + n)
            last = start_ms + round(load.seconds * 1_000)
            slots = tuple(range(start_ms, last + 1, EVERY_MS))
            self.oracle.append(Slots(job, 1, start_ms, last, slots))

    def probe(self, number: int) -> tuple[bytes, int]:
        """Define a job due in three seconds; return its id and its instant (ms)."""
        due = time.time_ns() // 1_000_000 + LEAD_MS
        body = {
            "key": f"probe-{number}",
            "type": "one_time",
            "run_at": _rfc3339(due),
            "target": self._target(f"/steady/probe-{number}"),
        }
        (job,) = self._until_taken([body], 2_000_000 + number)
        return job, due

    def _until_taken(self, bodies: list[dict[str, Any]], number: int) -> list[bytes]:
        """Define jobs, as often as it takes: each has a key, so a repeat makes no second one."""
        payloads = [sha256(msgspec.json.encode(body.get("payload"))).digest() for body in bodies]
        content = b"\n".join(msgspec.json.encode(body) for body in bodies)
        for _ in range(TRIES_MAX):
            began = _now_us()
            answer = self._call(
                "POST",
                "/v1/jobs:batch",
                content=content,
                headers={"content-type": "application/x-ndjson", "idempotency-key": f"n{number}"},
            )
            ended = _now_us()
            lines = _lines(answer)
            found: list[bytes] = []
            for at, (body, payload) in enumerate(zip(bodies, payloads, strict=True)):
                line = lines.get(at + 1, {})
                code = line.get("code", 0)
                told = ids.parse(ids.JOB, line["job"]["job_id"]) if code in (200, 201) else None
                job = told or ids.job_id_of_key(self._tenant, "key", str(body["key"]))
                if told is not None:
                    found.append(told)
                self._note(
                    "define",
                    job,
                    (began, ended, code),
                    command=f"n{number}/{at + 1}",
                    body=msgspec.json.encode(body),
                    payload=payload if "payload" in body else None,
                    version=line.get("job", {}).get("version", 0),
                )
            if len(found) == len(bodies):
                self.jobs.extend(found)
                return found
            self._closing.wait(PAUSE_S)
        raise AssertionError(f"not taken after {TRIES_MAX} tries: {answer and answer.text[:500]}")

    # ------------------------------------------------------------ changes

    def change(self, load: Load, random_: random.Random, dues: list[int]) -> None:
        """Cancel, edit, pause or trigger jobs within a moment of their instants."""
        picked = sorted(random_.sample(range(load.jobs), min(load.changes, load.jobs)))
        for count, n in enumerate(picked):
            at = dues[n] + random_.randint(-AROUND_MS, AROUND_MS)
            if self._closing.wait(max(0.0, at / 1_000 - time.time())):
                return
            action = random_.choice(("cancel", "revise", "trigger"))
            job = ids.job_id_of_key(self._tenant, "key", f"once-{n}")
            self._change(action, job, f"c{count}", n)

    def _change(self, action: str, job: bytes, command: str, n: int) -> None:
        path = f"/v1/jobs/{ids.text(ids.JOB, job)}"
        body: dict[str, Any] | None = None
        payload = None
        if action == "cancel":
            method = "DELETE"
        elif action == "revise":
            method, body = "PATCH", {"payload": {"n": n, "edited": True}}
            payload = sha256(msgspec.json.encode(body["payload"])).digest()
        else:
            method, path = "POST", f"{path}/trigger"
        content = msgspec.json.encode(body) if body is not None else b""
        kind = "application/merge-patch+json" if body is not None else "application/json"
        began = _now_us()
        answer = self._call(
            method,
            path,
            content=content,
            headers={"content-type": kind, "idempotency-key": command},
        )
        said = answer.json() if answer is not None and answer.status_code < 300 else {}
        named = said.get("in_flight")
        flying = None if named is None else tuple(_run(one) for one in named)
        self._note(
            action,
            job,
            (began, _now_us(), answer.status_code if answer is not None else 0),
            command=command,
            body=content,
            payload=payload,
            version=said.get("version", 0),
            in_flight=flying,
        )

    # ------------------------------------------------------------ record

    def _call(self, method: str, path: str, **how: Any) -> httpx.Response | None:
        try:
            return self._api.request(method, path, **how)
        except httpx.HTTPError:
            return None

    def _note(
        self,
        action: str,
        job: bytes,
        call: tuple[int, int, int],
        *,
        body: bytes,
        **more: Any,
    ) -> None:
        began, ended, code = call
        refused: Literal["fail", "info"] = "fail" if 400 <= code < 500 else "info"
        with self._lock:
            self.operations.append(
                Operation(
                    "client-1",
                    self._tenant,
                    action,
                    began,
                    ended,
                    "ok" if 200 <= code < 300 else refused,
                    job=job,
                    status=code,
                    body_sha256=sha256(body).digest(),
                    payload_sha256=more.pop("payload", None),
                    **more,
                )
            )

    def _target(self, path: str) -> dict[str, str]:
        return {"kind": "http", "url": f"{self._url}{path}", "method": "POST"}


def in_thread(work: Callable[[], None]) -> threading.Thread:
    """Start work beside the caller, which joins it."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def _lines(answer: httpx.Response | None) -> dict[int, dict[str, Any]]:
    if answer is None or answer.status_code != 200:
        return {}
    found = {}
    for text in answer.content.splitlines():
        try:
            line = msgspec.json.decode(text)
        except msgspec.DecodeError:
            # The answer was cut within a line.
            break
        found[line["line"]] = line
    return found


def _run(text: str) -> bytes:
    found = ids.parse(ids.RUN, text)
    assert found is not None, text
    return found


def _rfc3339(ms: int) -> str:
    return dt.datetime.fromtimestamp(ms / 1000, dt.UTC).isoformat(timespec="milliseconds")


def _now_us() -> int:
    return time.time_ns() // 1_000
