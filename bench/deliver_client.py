"""One client of `tocsin bench deliver`, a process of its own: prints what a request costs.

    python -m bench.deliver_client tocsin http://127.0.0.1:PORT

All send the same: a POST of 200 bytes with the headers of a fire, over connections that are kept,
no more than `--concurrency` at once, none of them following redirects or reading the environment;
each answer is read to its end.
"""

import argparse
import asyncio
import json
import resource
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from typing import Final
from urllib.parse import urlsplit

from commandside.deliverer_port import Call
from domain.target import address_rules
from infra.targets.addresses import AddressBook
from infra.targets.curl import CurlDeliverer
from infra.targets.resolver import Found

TENANT: Final = b"bench-of-targets"
TIMEOUT_S: Final = 30
OK: Final = 200
BODY: Final = b'{"order":"A-1001","note":"' + b"x" * 172 + b'"}'
RUN: Final = "8f14e45fceea167a5a36dedd4bea2543"
KEY: Final = f"job-jb_{RUN}-run-1767225600000"
HEADERS: Final = {
    "Content-Type": "application/json",
    "User-Agent": "Tocsin/0.1",
    "Idempotency-Key": KEY,
    "webhook-id": KEY,
    "webhook-timestamp": "1767225600",
    "Tocsin-Job-Id": f"jb_{RUN}",
    "Tocsin-Run-Id": f"rn_{RUN}",
    "Tocsin-Scheduled-For": "2026-01-01T00:00:00.000Z",
    "Tocsin-Attempt": "1",
    "Tocsin-Fence": "2",
    "Tocsin-Completion-Token": "x" * 64,
    "traceparent": f"00-{RUN}-{RUN[:16]}-01",
    "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
}

Run = Callable[[int], None]
"""Makes so many requests, and returns when the last was answered well."""


class NoNames:
    """A resolver that is not asked: the sink is called by its address."""

    def __init__(self) -> None:
        self._idle, self._other = socket.socketpair()

    def ask(self, name: str, tenant_id: bytes) -> Found | None:
        """Know nothing."""
        raise AssertionError((name, tenant_id))

    def forget(self, name: str) -> None:
        """Have nothing to forget."""
        raise AssertionError(name)

    def collect(self) -> list[tuple[str, Found]]:
        """Return nothing."""
        return []

    def fileno(self) -> int:
        """Return a descriptor that is never readable."""
        return self._idle.fileno()

    def close(self) -> None:
        """Close the descriptor."""
        self._idle.close()
        self._other.close()


def _tocsin(url: str, concurrency: int) -> Iterator[Run]:
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or 80
    rules = address_rules(["127.0.0.0/8"])
    headers = [f"{name}: {value}".encode() for name, value in HEADERS.items()]

    def call(token: int) -> Call:
        not_after_us = time.monotonic_ns() // 1_000 + 1_000_000
        # A list of its own, as every fire has.
        return Call(
            token, TENANT, "http", host, port, "/fire", "POST", [*headers], BODY,
            TIMEOUT_S * 1_000, not_after_us,
        )  # fmt: skip

    with closing(
        CurlDeliverer(AddressBook(rules), NoNames(), concurrency=concurrency)
    ) as deliverer:

        def run(count: int) -> None:
            token = done = 0
            while done < count:
                fresh = min(deliverer.room, count - token)
                if fresh:
                    deliverer.submit([call(token + n) for n in range(fresh)])
                    token += fresh
                deliverer.wait(1_000)
                for answer in deliverer.poll():
                    if answer.status != OK or answer.error:
                        raise SystemExit(f"answered {answer}")
                    done += 1

        yield run


def _workers(one: Callable[[], Awaitable[int]], concurrency: int, count: int) -> Awaitable[object]:
    left = iter(range(count))

    async def work() -> None:
        for _ in left:
            if (status := await one()) != OK:
                raise SystemExit(f"answered {status}")

    return asyncio.gather(*(work() for _ in range(concurrency)))


def _aiohttp(url: str, concurrency: int) -> Iterator[Run]:
    import aiohttp  # noqa: PLC0415 - a process has one client

    async def opened() -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=concurrency),
            timeout=aiohttp.ClientTimeout(total=TIMEOUT_S),
            auto_decompress=False,
            skip_auto_headers=("Accept", "Accept-Encoding"),
        )

    with _runner() as runner:
        session = runner.run(opened())

        async def one() -> int:
            async with session.post(
                f"{url}/fire", data=BODY, headers=HEADERS, allow_redirects=False
            ) as answer:
                await answer.read()
                return answer.status

        async def run(count: int) -> None:
            await _workers(one, concurrency, count)

        yield lambda count: runner.run(run(count))
        runner.run(session.close())


def _httpx(url: str, concurrency: int) -> Iterator[Run]:
    import httpx  # noqa: PLC0415 - a process has one client

    limits = httpx.Limits(max_connections=concurrency, max_keepalive_connections=concurrency)
    client = httpx.AsyncClient(limits=limits, timeout=TIMEOUT_S, trust_env=False)

    async def one() -> int:
        answer = await client.post(f"{url}/fire", content=BODY, headers=HEADERS)
        return answer.status_code

    async def run(count: int) -> None:
        await _workers(one, concurrency, count)

    with _runner() as runner:
        yield lambda count: runner.run(run(count))
        runner.run(client.aclose())


def _runner() -> "asyncio.Runner":
    """Return the loop that these clients are quickest on."""
    import uvloop  # noqa: PLC0415 - a process has one client

    return asyncio.Runner(loop_factory=uvloop.new_event_loop)


CLIENTS: Final = {"tocsin": _tocsin, "aiohttp": _aiohttp, "httpx": _httpx}


def cpu_s() -> float:
    """Return CPU seconds of this process so far, its own and the kernel's for it."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main(arguments: list[str] | None = None) -> int:
    """Warm up, measure, print one line of JSON."""
    parser = argparse.ArgumentParser(prog="bench.deliver_client", description=__doc__)
    parser.add_argument("client", choices=CLIENTS)
    parser.add_argument("url")
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--concurrency", type=int, default=200)
    words = parser.parse_args(arguments)
    for run in CLIENTS[words.client](words.url, words.concurrency):
        warm_up = max(words.requests // 4, words.concurrency)
        run(warm_up)
        before, began = cpu_s(), time.monotonic()
        run(words.requests)
        took_s = time.monotonic() - began
        us = (cpu_s() - before) / words.requests * 1e6
        found = {"us": us, "per_s": words.requests / took_s, "requests": words.requests + warm_up}
        print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
