"""A head that does not end costs its sender the connection, and nobody else anything."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from typing import Any, cast

import pytest
import uvicorn
from uvicorn.server import ServerState

from infra.request_heads import HEAD_BYTES_MAX, BoundedHeads

BEGIN = b"POST /v1/jobs HTTP/1.1\r\nHost: tocsin\r\n"


class Wire:
    """Keeps what is written to the client; as uvloop's, it is no asyncio.Transport."""

    def __init__(self) -> None:
        self.written = b""
        self.closed = False

    def get_extra_info(self, name: str) -> None:
        """Nothing is known of the other end."""

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


async def _app(scope: Any, receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


Connected = tuple[BoundedHeads, Wire]


@pytest.fixture
def connected() -> Iterator[Connected]:
    config = uvicorn.Config(_app, log_config=None)
    config.load()
    loop = asyncio.new_event_loop()
    with closing(loop):
        protocol, wire = BoundedHeads(config, ServerState(), {}, loop), Wire()
        protocol.connection_made(cast("asyncio.Transport", wire))
        yield protocol, wire
        protocol.connection_lost(None)
        for task in list(protocol.tasks):
            loop.run_until_complete(task)


def test_a_head_beyond_its_bound_is_refused(connected: Connected) -> None:
    protocol, wire = connected
    protocol.data_received(BEGIN + b"X: ")
    protocol.data_received(b"a" * HEAD_BYTES_MAX)
    assert wire.written == b""
    protocol.data_received(b"a")
    assert wire.closed
    assert wire.written.startswith(b"HTTP/1.1 431 ")


def test_a_body_is_not_counted_as_a_head(connected: Connected) -> None:
    protocol, wire = connected
    body = b"a" * (2 * HEAD_BYTES_MAX)
    protocol.data_received(BEGIN + b"Content-Length: %d\r\n\r\n" % len(body))
    protocol.data_received(body + BEGIN)
    assert not wire.closed


def test_a_head_that_does_not_end_is_closed(connected: Connected) -> None:
    protocol, wire = connected
    protocol.data_received(BEGIN)
    protocol.look()
    protocol.data_received(b"X: a\r\n")
    protocol.look()
    assert wire.closed


def test_a_connection_that_says_nothing_is_closed(
    connected: Connected,
) -> None:
    protocol, wire = connected
    protocol.look()
    protocol.look()
    assert wire.closed


def test_a_request_whose_body_takes_its_time_is_not_closed(
    connected: Connected,
) -> None:
    protocol, wire = connected
    protocol.data_received(BEGIN + b"Content-Length: 2\r\n\r\n{")
    protocol.look()
    protocol.look()
    assert not wire.closed
