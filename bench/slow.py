"""What calls cost that hang: thousands at once, each of another host, in one deliverer.

The deliverer is a process of its own (`python -m bench.slow PORT COUNT`) against one sink that
holds every connection. Its memory is the most that it had resident, Python and libraries included.
"""

import json
import resource
import select
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from bench.deliver_client import BODY, HEADERS, OK, TENANT, NoNames, cpu_s
from bench.stack import BenchError
from commandside.deliverer_port import Call
from domain.target import address_rules
from infra import lifecycle
from infra.settings import Dispatch
from infra.targets.addresses import AddressBook
from infra.targets.curl import CurlDeliverer

LIMIT_MB: Final = 300
WAVE: Final = 250
"""Calls submitted at once: a batch of a stripe."""
QUICK: Final = 500
HOLD_S: Final = 3.0
TIMEOUT_S: Final = 600
DEADLINE_S: Final = 300
HOSTS_A_NET: Final = 250


def measure(count: int) -> dict[str, Any]:
    """Hold so many calls at once, and return what they cost."""
    with subprocess.Popen(
        [sys.executable, "-m", "bench.slow_sink"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as sink:
        assert sink.stdin is not None
        assert sink.stdout is not None
        port = sink.stdout.readline().strip()
        with subprocess.Popen(
            [sys.executable, "-m", "bench.slow", port, str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as client:
            assert client.stdin is not None
            assert client.stdout is not None
            try:
                until_s = time.monotonic() + DEADLINE_S
                while (held := _ask(sink.stdin, sink.stdout)) < count:
                    if client.poll() is not None or time.monotonic() > until_s:
                        raise BenchError(f"{held} of {count} calls are held")
                    time.sleep(0.2)
                client.stdin.write("held\n")
                client.stdin.flush()
                found: dict[str, Any] = json.loads(client.stdout.readline() or "{}")
                sink.stdin.write("answer\n")
                sink.stdin.flush()
                found |= json.loads(client.stdout.readline() or "{}")
            finally:
                client.kill()
                sink.stdin.close()
    if found.get("answered") != count:
        raise BenchError(f"{found.get('answered')} of {count} held calls were answered")
    return {"workload": "slow", "held": count, "limit_mb": LIMIT_MB, **found}


def _ask(told: Any, heard: Any) -> int:
    told.write("held\n")
    told.flush()
    return int(heard.readline())


def resident_mb() -> dict[str, float]:
    """Return what this process has resident now, and the most that it had."""
    lines = Path("/proc/self/status").read_text().splitlines()
    kb = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)
          if name in ("VmRSS", "VmHWM")}  # fmt: skip
    return {"now": round(kb["VmRSS"] / 1024, 1), "most": round(kb["VmHWM"] / 1024, 1)}


def _host(number: int) -> str:
    net, host = divmod(number, HOSTS_A_NET)
    return f"127.{1 + net // 200}.{net % 200}.{1 + host}"


class _Client:
    """The deliverer's process."""

    def __init__(self, port: int, count: int) -> None:
        lifecycle.allow_files(Dispatch(concurrency=count + QUICK).files)
        self._headers = [f"{name}: {value}".encode() for name, value in HEADERS.items()]
        self._port, self._token = port, 0
        self._deliverer = CurlDeliverer(
            AddressBook(address_rules(["127.0.0.0/8"])), NoNames(), concurrency=count + QUICK
        )

    def run(self, count: int) -> int:
        """Hold, look, and take the answers."""
        with closing(self._deliverer):
            self._answered(self._submit(1, "/quick"))
            empty = resident_mb()["now"]
            for first in range(0, count, WAVE):
                self._submit(min(WAVE, count - first), "/slow")
                self._deliverer.wait(0)
                assert not self._deliverer.poll()
            self._until_told()
            before, began = cpu_s(), time.monotonic()
            while time.monotonic() - began < HOLD_S:
                self._deliverer.wait(100)
                assert not self._deliverer.poll()
            idle = (cpu_s() - before) / HOLD_S
            memory = resident_mb()
            before = cpu_s()
            self._answered(self._submit(QUICK, "/quick"))
            quick_us = (cpu_s() - before) / QUICK * 1e6
            found = {
                "memory_mb": memory["most"],
                "memory_kb_a_call": round((memory["now"] - empty) * 1024 / count, 1),
                "cpu_share_while_held": round(idle, 4),
                "cpu_us_of_a_quick_call_beside": round(quick_us, 1),
                "files_allowed": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            }
            print(json.dumps(found), flush=True)
            self._answered(count)
            after = resident_mb()["most"]
            print(json.dumps({"answered": count, "memory_mb_in_the_end": after}), flush=True)
        return 0

    def _submit(self, count: int, path: str) -> int:
        not_after_us = time.monotonic_ns() // 1_000 + 1_000_000
        calls = []
        for _ in range(count):
            self._token += 1
            calls.append(
                Call(
                    self._token, TENANT, "http", _host(self._token), self._port, path, "POST",
                    [*self._headers], BODY, TIMEOUT_S * 1_000, not_after_us,
                )
            )  # fmt: skip
        self._deliverer.submit(calls)
        return count

    def _answered(self, count: int) -> None:
        until_s = time.monotonic() + DEADLINE_S
        while count:
            if time.monotonic() > until_s:
                raise SystemExit(f"{count} answers did not come")
            self._deliverer.wait(1_000)
            for answer in self._deliverer.poll():
                if answer.status != OK or answer.error:
                    raise SystemExit(f"answered {answer}")
                count -= 1

    def _until_told(self) -> None:
        """Move on what connects until the sink holds all."""
        while not select.select([sys.stdin], (), (), 0)[0]:
            self._deliverer.wait(100)
            assert not self._deliverer.poll()
        sys.stdin.readline()


if __name__ == "__main__":
    sys.exit(_Client(int(sys.argv[1]), int(sys.argv[2])).run(int(sys.argv[2])))
