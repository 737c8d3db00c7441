"""The deliverer over HTTP/2, against a real server: off unless the operator names the host."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pycurl
import pytest

from commandside.deliverer_port import Answer, Call
from domain.target import address_rules
from infra.targets.addresses import AddressBook
from infra.targets.curl import CurlDeliverer, knows_http2
from tests.contracts.test_deliverer_curl import Names
from tests.engines.authority import Authority
from tests.engines.http2_sink import Http2Server
from tests.engines.sink import PATIENCE_S, TargetServer

HOST = "api.example.com"
replace = msgspec.structs.replace


class Http2World:
    def __init__(self, port: int, authority: Authority, granted: tuple[str, ...]) -> None:
        self._port = port
        names = Names()
        names.table[HOST] = ("127.0.0.1",)
        self.deliverer = CurlDeliverer(
            AddressBook(address_rules(["127.0.0.0/8"])),
            names,
            concurrency=64,
            ca_file=str(authority.file),
            http2_hosts=granted,
        )

    def call(self, token: int, path: str = "/") -> Call:
        until_us = time.monotonic_ns() // 1000 + 60_000_000
        headers = [b"Content-Type: text/plain", b"Webhook-Id: k", b"X-Mine: 1"]
        place = ("https", HOST, self._port, path, "POST")
        return Call(token, b"t" * 16, *place, headers, b"payload", 20_000, until_us)

    def answers(self, *calls: Call) -> dict[int, Answer]:
        self.deliverer.submit(calls)
        got: dict[int, Answer] = {}
        until = time.monotonic() + PATIENCE_S
        while len(got) < len(calls):
            assert time.monotonic() < until, f"{len(got)} of {len(calls)} answers"
            self.deliverer.wait(100)
            got |= {answer.token: answer for answer in self.deliverer.poll()}
        return got

    def one(self, call: Call) -> Answer:
        return self.answers(call)[call.token]


@contextmanager
def calling(
    port: int, authority: Authority, granted: tuple[str, ...] = (HOST,)
) -> Iterator[Http2World]:
    world = Http2World(port, authority, granted)
    try:
        yield world
    finally:
        world.deliverer.close()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def server(authority: Authority) -> Iterator[Http2Server]:
    assert knows_http2(), f"{pycurl.version} has no HTTP/2"
    with Http2Server(authority.context([HOST])) as found:
        yield found


@pytest.fixture
def world(server: Http2Server, authority: Authority) -> Iterator[Http2World]:
    with calling(server.port, authority) as found:
        yield found


def test_a_granted_host_is_called_over_http2(server: Http2Server, world: Http2World) -> None:
    answer = world.one(world.call(1))
    assert (answer.status, answer.error, answer.sent) == (200, "", True)
    assert (answer.body, answer.retry_after) == (b"two", "7")
    ((_, _, headers),) = server.requests
    found = dict(headers)
    assert found[":authority"] == f"{HOST}:{server.port}"
    kept = ("content-type", "webhook-id", "x-mine", "accept-encoding", "content-length")
    assert [found[name] for name in kept] == ["text/plain", "k", "1", "identity", "7"]
    assert "accept" not in found
    assert server.bodies == [b"payload"]


def test_calls_at_once_share_a_connection_and_tenants_do_not(
    server: Http2Server, world: Http2World
) -> None:
    server.gather = 20
    calls = [world.call(n, "/gather") for n in range(40)]
    calls = [replace(call, tenant_id=bytes([call.token % 2]) * 16) for call in calls]
    answers = world.answers(*calls)
    assert {answer.status for answer in answers.values()} == {200}
    assert server.connections == 2


@pytest.mark.parametrize("path", ["/refused", "/cut"])
def test_a_stream_that_is_refused_or_cut_is_a_failure_and_never_sent_again(
    server: Http2Server, world: Http2World, path: str
) -> None:
    answer = world.one(world.call(1, path))
    assert (answer.error, answer.sent) == ("reset", True)
    assert [found for _, found, _ in server.requests] == [path]
    assert world.one(world.call(2)).status == 200


def test_a_connection_that_is_taken_leave_of_is_a_failure_and_replaced(
    server: Http2Server, world: Http2World
) -> None:
    answer = world.one(world.call(1, "/goodbye"))
    assert (answer.error, answer.sent) == ("reset", True)
    # The end may be seen before or after the next request has been handed to it.
    second = world.one(world.call(2))
    assert second.status == 200 or (second.error, second.sent) == ("reset", True)
    assert world.one(world.call(3)).status == 200
    paths = [found for _, found, _ in server.requests]
    assert paths.count("/goodbye") == 1
    assert paths.count("/") <= 2
    assert server.connections >= 2


def test_a_refused_stream_leaves_its_neighbours_alone(
    server: Http2Server, world: Http2World
) -> None:
    server.gather = 10
    calls = [world.call(n, "/gather") for n in range(10)]
    answers = world.answers(*calls[:9], world.call(99, "/refused"), calls[9])
    assert answers.pop(99).error == "reset"
    assert {answer.status for answer in answers.values()} == {200}
    assert len(server.requests) == 11


def test_a_flood_of_headers_is_cut(server: Http2Server, world: Http2World) -> None:
    answer = world.one(world.call(1, "/flood"))
    assert (answer.status, answer.error in {"response_too_large", "reset"}) == (0, True)
    assert len(server.requests) == 1


def test_a_silent_stream_times_out_and_leaves_the_connection(
    server: Http2Server, world: Http2World
) -> None:
    world.one(world.call(1))
    answer = world.one(replace(world.call(2, "/silent"), timeout_ms=200))
    assert (answer.status, answer.error, answer.sent) == (0, "timeout", True)
    assert world.one(world.call(3)).status == 200
    assert server.connections == 1


@pytest.mark.parametrize("granted", [(), ("other.example.com",), ("*.api.example.com",)])
def test_a_host_that_is_not_granted_is_called_over_http1(
    authority: Authority, granted: tuple[str, ...]
) -> None:
    context = authority.context([HOST])
    context.set_alpn_protocols(["h2", "http/1.1"])
    with TargetServer(context) as sink, calling(sink.port, authority, granted) as world:
        assert world.one(world.call(1)).status == 200
        assert sink.requests[0].head.startswith(b"POST / HTTP/1.1\r\n")


def test_a_granted_host_that_does_not_offer_it_is_called_over_http1(authority: Authority) -> None:
    context = authority.context([HOST])
    with TargetServer(context) as sink, calling(sink.port, authority, ("*.example.com",)) as world:
        assert world.one(world.call(1)).status == 200
        assert sink.requests[0].head.startswith(b"POST / HTTP/1.1\r\n")


def test_an_answer_over_http1_that_says_http2_is_none() -> None:
    with TargetServer() as sink:
        sink.behave("/", b"HTTP/2 200 \r\nContent-Length: 0\r\n\r\n")
        sink.close_after("/")
        names = Names()
        names.table[HOST] = ("127.0.0.1",)
        deliverer = CurlDeliverer(
            AddressBook(address_rules(["127.0.0.0/8"])), names, http2_hosts=(HOST,)
        )
        until_us = time.monotonic_ns() // 1000 + 60_000_000
        place = ("http", HOST, sink.port, "/", "POST")
        deliverer.submit([Call(1, b"t" * 16, *place, [], b"", 10_000, until_us)])
        answers: list[Answer] = []
        while not answers:
            assert time.monotonic_ns() // 1000 < until_us
            deliverer.wait(100)
            answers = deliverer.poll()
        deliverer.close()
    assert [(answer.status, answer.error) for answer in answers] == [(0, "bad_response")]
