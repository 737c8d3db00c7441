"""Load: definitions as a client writes them, sent over a few connections at once."""

import io
import json
import re
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final

import pycurl

from bench.stack import BenchError

LINES_A_REQUEST: Final = 2_000
TRIES_MAX: Final = 5
JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"
TIMEOUT_S: Final = 120
PAYLOAD: Final = {"order": "A-1001", "note": "x" * 170}
"""About 200 bytes as JSON, like the bodies of the peers."""

_TAKEN: Final = re.compile(rb'"code":20[01]')


def instant(at_ms: int) -> str:
    """Return RFC 3339 in UTC with milliseconds."""
    moment = datetime.fromtimestamp(at_ms / 1000, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at_ms % 1000:03d}Z"


def one_time(sink: str, identity: str, due_ms: int) -> bytes:
    """Return a job that calls the sink once, with its id and due instant in the query."""
    target = {
        "kind": "http",
        "url": f"{sink}/fire?id={identity}&due={due_ms}",
        "method": "POST",
    }
    job = {"type": "one_time", "run_at": instant(due_ms), "target": target, "payload": PAYLOAD}
    return json.dumps(job, separators=(",", ":")).encode()


def hourly(sink: str, minute: int) -> bytes:
    """Return a recurring job, as the original design writes them."""
    job = {
        "type": "recurring",
        "schedule": f"{minute % 60} */1 * * *",
        "timezone": "America/New_York",
        "target": {"kind": "http", "url": f"{sink}/fire", "method": "POST"},
        "payload": PAYLOAD,
        "retry": {"max_attempts": 5, "backoff": "exponential"},
    }
    return json.dumps(job, separators=(",", ":")).encode()


class Client:
    """One keep-alive connection to the API: libcurl's, which takes little of the machine's CPU."""

    def __init__(self, api: str, headers: Mapping[str, str]) -> None:
        self._api = api
        # Without `Expect`, which would hold a long body back for a round trip.
        self._headers = {**headers, "Expect": ""}
        self._curl = pycurl.Curl()
        self._curl.setopt(pycurl.TIMEOUT, TIMEOUT_S)
        self._curl.setopt(pycurl.NOSIGNAL, 1)
        self._curl.setopt(pycurl.POST, 1)

    def post(self, path: str, body: bytes, headers: Mapping[str, str], status: HTTPStatus) -> bytes:
        """Return the body of the answer; raises BenchError unless the status is the expected."""
        curl, answer = self._curl, io.BytesIO()
        sent = {**self._headers, **headers}
        curl.setopt(pycurl.URL, self._api + path)
        curl.setopt(pycurl.HTTPHEADER, [f"{name}: {value}" for name, value in sent.items()])
        curl.setopt(pycurl.POSTFIELDS, body)
        curl.setopt(pycurl.WRITEFUNCTION, answer.write)
        try:
            curl.perform()
        except pycurl.error as error:
            raise BenchError(f"POST {path}: {error!r}") from error
        text = answer.getvalue()
        if (code := curl.getinfo(pycurl.RESPONSE_CODE)) != status:
            raise BenchError(f"POST {path}: {code} {text[:500]!r}")
        return text

    def close(self) -> None:
        """Close the connection."""
        self._curl.close()


def define_batch(
    api: str, headers: Mapping[str, str], jobs: Sequence[bytes], connections: int = 4
) -> float:
    """Define jobs through NDJSON; return how many a second. Raises BenchError for a refused one.

    As a careful client does, every request has an idempotency key, and is sent again with it where
    a line of it could not be taken (503).
    """

    def work(mine: list[Sequence[bytes]]) -> None:
        client = Client(api, headers)
        try:
            for lines in mine:
                _define_lines(client, lines)
        finally:
            client.close()

    requests = list(_cut(jobs, min(LINES_A_REQUEST, -(-len(jobs) // connections))))
    return _timed(len(jobs), [requests[n::connections] for n in range(connections)], work)


def define_singly(
    api: str, headers: Mapping[str, str], jobs: Sequence[bytes], connections: int = 16
) -> float:
    """Define jobs by one request each; return how many a second."""

    def work(mine: list[bytes]) -> None:
        client = Client(api, headers)
        try:
            for job in mine:
                client.post("/v1/jobs", job, {"Content-Type": JSON}, HTTPStatus.CREATED)
        finally:
            client.close()

    return _timed(len(jobs), [list(jobs[n::connections]) for n in range(connections)], work)


def _define_lines(client: Client, lines: Sequence[bytes]) -> None:
    body = b"\n".join(lines) + b"\n"
    headers = {"Content-Type": NDJSON, "Idempotency-Key": f"bench-{uuid.uuid4().hex}"}
    for _ in range(TRIES_MAX):
        answers = client.post("/v1/jobs:batch", body, headers, HTTPStatus.OK).splitlines()
        refused = [line for line in answers if not _TAKEN.search(line)]
        if not refused and len(answers) == len(lines):
            return
        if any(b'"code":503' not in line for line in refused):
            break
        print(f"bench: {len(refused)} of {len(lines)} lines met a 503, sent again", file=sys.stderr)
    example = refused[0][:500] if refused else b""
    raise BenchError(
        f"{len(answers)} answers to {len(lines)} lines; {len(refused)} bad: {example!r}"
    )


def _timed(count: int, shares: list[list[Any]], work: Callable[[list[Any]], None]) -> float:
    """Have each share done by a thread of its own; return how many a second."""
    began = time.monotonic()
    with ThreadPoolExecutor(len(shares)) as threads:
        for done in [threads.submit(work, share) for share in shares if share]:
            done.result()
    return count / (time.monotonic() - began)


def _cut(jobs: Sequence[bytes], size: int) -> Iterator[Sequence[bytes]]:
    for start in range(0, len(jobs), max(size, 1)):
        yield jobs[start : start + size]
