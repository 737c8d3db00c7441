"""The system under test and the sink beside it: started, watched and stopped as processes."""

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import psycopg

from bench import cpu

START_TIMEOUT_S: Final = 180.0
STOP_TIMEOUT_S: Final = 60.0
HTTP_TIMEOUT_S: Final = 30.0
POLL_S: Final = 0.05
SETTLE_TIMEOUT_S: Final = 60.0
LOG_LINES: Final = 30

# Whether a view has not read a shard to its end: an index look-up a shard, whatever the size.
_BEHIND: Final = """
with heads as materialized (
    select s as shard, (select max(e.position) from events e where e.shard = s) as position
    from generate_series(0, (select shards from installation) - 1) s
), views as (select distinct view from view_positions)
select (select count(*) from views) < %s or exists (
    select from views cross join heads left join view_positions p using (view, shard)
    where heads.position is not null and coalesce(p.position, 0) < heads.position)
"""
VIEWS: Final = 2
"""Job board and run history: before both have begun, nobody is at the head."""
_BUSY: Final = "select exists (select from due_index where wake_at < %s)"


class BenchError(Exception):
    """The run cannot go on; the text says why."""


def fetch(url: str, *, method: str = "GET", headers: Mapping[str, str] | None = None) -> bytes:
    """Return the body of an answer; raises BenchError."""
    request = urllib.request.Request(url, method=method, headers=dict(headers or {}))  # noqa: S310 - our own addresses
    try:
        with urllib.request.urlopen(request, timeout=HTTP_TIMEOUT_S) as answer:  # noqa: S310 - as above
            body: bytes = answer.read()
    except urllib.error.HTTPError as error:
        raise BenchError(f"{method} {url}: {error.code} {error.read(500)!r}") from error
    except OSError as error:
        raise BenchError(f"{method} {url}: {error}") from error
    return body


def wait_until_s(at_s: float) -> None:
    """Wait until the wall clock shows this."""
    time.sleep(max(0.0, at_s - time.time()))


class Sink:
    """A sink by its address: ours, or one that was started by somebody else."""

    def __init__(self, url: str, pid: int | None = None) -> None:
        self.url = url
        self._pid = pid

    def cpu_s(self) -> float:
        """Return the CPU seconds of our sink so far: the yardstick of the machine's mood."""
        return cpu.by_name(cpu.table(), {"sink": self._pid})["sink"] if self._pid else 0.0

    def distinct(self) -> int:
        """Return how many different fires have come."""
        return int(json.loads(fetch(f"{self.url}/count"))["distinct"])

    def reset(self) -> None:
        """Forget what has come."""
        fetch(f"{self.url}/reset", method="POST")

    def report(self, expected: int) -> dict[str, Any]:
        """Return the figures of what has come."""
        found: dict[str, Any] = json.loads(fetch(f"{self.url}/report?expect={expected}"))
        return found

    def await_all(self, count: int, until_s: float, stall_s: float = 30.0) -> bool:
        """Wait for so many different fires; False if they do not come, or stop coming."""
        seen, moved_s = -1, time.time()
        while (now_s := time.time()) < until_s:
            distinct = self.distinct()
            if distinct >= count:
                return True
            if distinct != seen:
                seen, moved_s = distinct, now_s
            elif seen > 0 and now_s - moved_s > stall_s:
                return False
            time.sleep(POLL_S)
        return False


@contextlib.contextmanager
def sink(host: str = "127.0.0.1") -> Iterator[Sink]:
    """Start a sink as a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.sink", "--host", host], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield Sink(process.stdout.readline().strip(), process.pid)
    finally:
        _end(process)


class Stack:
    """A running `tocsin up`, as its ready file describes it."""

    def __init__(self, ready_file: Path, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self._file = ready_file
        self._process = process
        self._log = log
        self._await_ready()
        first = self._read()
        self.api: str = first["api"]
        self.headers = {"Authorization": f"Bearer {first['api_key']}"}
        self.versions: dict[str, str] = first.get("versions", {})
        self._postgres = psycopg.connect(first["postgres"], autocommit=True, connect_timeout=10)
        self._ops: dict[str, str] = first.get("ops_by_role", {})

    def close(self) -> None:
        """Stop everything that was started."""
        self._postgres.close()
        _end(self._process)

    @property
    def pids(self) -> dict[str, int]:
        """Process ids by role and engine, as they are now."""
        pids: dict[str, int] = self._read()["pids"]
        return pids

    @property
    def postgres(self) -> "psycopg.Connection[Any]":
        """A connection of the bench's own; what it does is counted as Postgres'."""
        return self._postgres

    def cpu(self) -> dict[str, float]:
        """Return CPU seconds by role and engine so far."""
        return cpu.by_name(cpu.table(), self.pids)

    def metric(self, role: str, name: str) -> float:
        """Return the sum of a metric's samples of a role."""
        address = next((url for key, url in self._ops.items() if key.startswith(role)), None)
        if address is None:
            raise BenchError(f"no operators' listener of {role} among {sorted(self._ops)}")
        text = fetch(f"{address}/metrics").decode()
        return sum(
            float(line.rsplit(" ", 1)[1])
            for line in text.splitlines()
            if line.startswith((f"{name} ", f"{name}{{"))
        )

    def settled(self) -> bool:
        """Say whether nothing is due or in flight, and every view has read the log to its head."""
        now_ms = time.time_ns() // 1_000_000
        busy = self._postgres.execute(_BUSY, [now_ms + 1]).fetchone()
        if busy is None or busy[0]:
            return False
        behind = self._postgres.execute(_BEHIND, [VIEWS]).fetchone()
        return behind is not None and not behind[0]

    def settle(self) -> None:
        """Wait until it is settled; raises BenchError after a bound."""
        until = time.monotonic() + SETTLE_TIMEOUT_S
        while not self.settled():
            if time.monotonic() > until:
                raise BenchError(f"views are not at the head within {SETTLE_TIMEOUT_S:.0f} s")
            time.sleep(POLL_S)

    def analyze(self) -> None:
        """Give the planner what autovacuum would have given it by and by."""
        self._postgres.execute("analyze")

    def _read(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._file.read_text())
        return found

    def _await_ready(self) -> None:
        until = time.monotonic() + START_TIMEOUT_S
        while not self._file.exists():
            if self._process.poll() is not None:
                raise BenchError(f"`tocsin up` ended at once:\n{self.tail()}")
            if time.monotonic() > until:
                raise BenchError(f"not ready within {START_TIMEOUT_S:.0f} s:\n{self.tail()}")
            time.sleep(POLL_S)

    def tail(self) -> str:
        """Return the last lines that `tocsin up` said."""
        lines = self._log.read_text(errors="replace").splitlines()
        return "\n".join(lines[-LOG_LINES:])


@contextlib.contextmanager
def stack(settings: Mapping[str, str] | None = None) -> Iterator[Stack]:
    """Start a Tocsin on an empty folder; `settings` are environment variables for it."""
    folder = Path(tempfile.mkdtemp(prefix="tocsin-bench-"))
    log = folder / "up.log"
    command = [sys.executable, "-m", "infra.cli", "up", "--data", str(folder / "data")]
    command += ["--port", "0", "--ops-port", "0", "--allow-target", "127.0.0.0/8", "--no-demo"]
    command += ["--ready-file", str(folder / "ready.json")]
    with contextlib.ExitStack() as stack_:
        stack_.callback(shutil.rmtree, folder, ignore_errors=True)
        output = stack_.enter_context(log.open("wb"))
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, **(settings or {})},
            start_new_session=True,
        )
        stack_.callback(_end, process)
        running = Stack(folder / "ready.json", process, log)
        stack_.callback(running.close)
        try:
            yield running
        except BenchError as error:
            raise BenchError(f"{error}\nlast lines of `tocsin up`:\n{running.tail()}") from error


def stopped_reading(seconds: float) -> bool:
    """Wait for the end of standard input, at most so long."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        readable, _, _ = select.select([sys.stdin], (), (), left)
        if readable and not os.read(sys.stdin.fileno(), 4096):
            return True
    return False


def _end(process: "subprocess.Popen[Any]") -> None:
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(STOP_TIMEOUT_S)
    finally:
        if process.stdout is not None:
            process.stdout.close()
