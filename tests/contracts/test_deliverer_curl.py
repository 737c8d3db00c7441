"""The deliverer over libcurl, against real sockets."""

import select
import socket
import time
from collections.abc import Iterator

import msgspec
import pytest

from commandside.deliverer_port import RESPONSE_BYTES_MAX, Answer, Call
from domain.target import address_rules
from infra.lifecycle import Sockets
from infra.targets.addresses import AddressBook
from infra.targets.curl import CurlDeliverer
from infra.targets.resolver import Found
from tests.contracts.deliverer import Behaviour, HttpContract, HttpWorld
from tests.engines.sink import PATIENCE_S, TargetServer

replace = msgspec.structs.replace


class Names:
    """A resolver that answers from a table, after having made its caller wait."""

    def __init__(self) -> None:
        self.table: dict[str, tuple[str, ...]] = {}
        self.silent = False
        """No lookup ends."""
        self.asked: list[str] = []
        self.forgotten: list[str] = []
        self._ended: list[str] = []
        self._wake, self._waker = socket.socketpair()

    def ask(self, name: str, tenant_id: bytes) -> Found | None:
        assert len(tenant_id) == 16
        self.asked.append(name)
        if not self.silent:
            self._ended.append(name)
            self._waker.send(b"\0")
        return None

    def forget(self, name: str) -> None:
        self.forgotten.append(name)

    def collect(self) -> list[tuple[str, Found]]:
        ended, self._ended = self._ended, []
        if ended:
            self._wake.recv(4096)
        return [(name, Found(self.table.get(name, ()), 1)) for name in ended]

    def fileno(self) -> int:
        return self._wake.fileno()

    def close(self) -> None:
        self._wake.close()
        self._waker.close()


class SocketWorld:
    def __init__(self, server: TargetServer) -> None:
        self.server = server
        self.names = Names()
        self.deliverer = CurlDeliverer(
            AddressBook(address_rules(["127.0.0.0/8"])), self.names, concurrency=64
        )

    def call(self, token: int, path: str = "/") -> Call:
        return Call(
            token,
            b"t" * 16,
            "http",
            "127.0.0.1",
            self.server.port,
            path,
            "POST",
            [b"Content-Type: application/json"],
            b'{"a": 1}',
            30_000,
            time.monotonic_ns() // 1000 + 60_000_000,
        )

    def behave(self, path: str, behaviour: Behaviour) -> None:
        self.server.behave(path, behaviour)

    def resolve(self, name: str, *addresses: str) -> None:
        self.names.table[name] = addresses

    def closed_port(self) -> int:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port: int = listener.getsockname()[1]
        return port

    def hush(self) -> None:
        self.behave("/", Behaviour(end="silent"))

    def arrived(self) -> int:
        return len(self.paths())

    def answers(self, count: int) -> list[Answer]:
        got: list[Answer] = []
        until = time.monotonic() + PATIENCE_S
        while len(got) < count:
            assert time.monotonic() < until, f"{len(got)} of {count} answers"
            self.deliverer.wait(100)
            got += self.deliverer.poll()
        return got

    def paths(self) -> list[str]:
        return [request.path for request in self.server.requests]

    def one(self, call: Call) -> Answer:
        self.deliverer.submit([call])
        return self.answers(1)[0]


@pytest.fixture
def sockets() -> Iterator[SocketWorld]:
    with TargetServer() as server:
        found = SocketWorld(server)
        yield found
        found.deliverer.close()


@pytest.fixture
def world(sockets: SocketWorld) -> HttpWorld:
    return sockets


class TestCurlDeliverer(HttpContract):
    """The whole contract."""


def test_what_is_sent_is_what_was_given_and_frames_itself(sockets: SocketWorld) -> None:
    headers = [b"Content-Type: application/x-any", b"webhook-id: k-1", b"X-Mine:  spaced"]
    body = bytes(range(256))
    sockets.one(replace(sockets.call(1, "/a%2Fb?x=1&y"), headers=headers, body=body))
    (request,) = sockets.server.requests
    assert request.head.split(b"\r\n")[0] == b"POST /a%2Fb?x=1&y HTTP/1.1"
    assert request.body == body
    assert sorted(request.lines) == sorted(
        [
            *headers,
            b"Host: 127.0.0.1:%d" % sockets.server.port,
            b"Content-Length: 256",
            b"Accept-Encoding: identity",
        ]
    )


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
@pytest.mark.parametrize("body", [b"", b"text"])
def test_each_method_is_sent_with_and_without_a_body(
    sockets: SocketWorld, method: str, body: bytes
) -> None:
    if method == "HEAD":
        body = b""
        sockets.server.behave("/", Behaviour(body=b""))
    # The same handle does all of them, so that what one left behind would be seen.
    for turn, name in enumerate(("POST", method, "DELETE", method)):
        mine = body if name == method else b"other"
        answer = sockets.one(replace(sockets.call(turn), method=name, body=mine))
        assert (answer.status, answer.error) == (200, "")
        request = sockets.server.requests[-1]
        assert (request.head.split(b" ")[0], request.body) == (name.encode(), mine)


def test_one_connection_serves_calls_that_follow_each_other(sockets: SocketWorld) -> None:
    for token in range(5):
        sockets.one(sockets.call(token))
    assert {request.connection for request in sockets.server.requests} == {1}


def test_a_long_body_is_sent_without_asking_first(sockets: SocketWorld) -> None:
    body = b"x" * (1 << 21)
    assert sockets.one(replace(sockets.call(1), body=body)).status == 200
    (request,) = sockets.server.requests
    assert request.body == body
    assert not any(line.lower().startswith(b"expect:") for line in request.lines)


def test_an_idle_connection_that_the_target_closed_wakes_nobody_for_ever(
    sockets: SocketWorld,
) -> None:
    sockets.server.close_after("/last")
    sockets.one(sockets.call(1, "/last"))
    sockets.behave("/slow", Behaviour(end="silent"))
    sockets.deliverer.submit([sockets.call(2, "/slow")])
    waited = [sockets.deliverer.sockets()[0]]
    until = time.monotonic() + PATIENCE_S
    while select.select(waited[-1], (), (), 0.2)[0]:
        assert time.monotonic() < until
        sockets.deliverer.poll()
        waited.append(sockets.deliverer.sockets()[0])
    assert len(waited) < 50


def test_calls_that_hang_are_behind_one_descriptor(sockets: SocketWorld) -> None:
    sockets.behave("/slow", Behaviour(end="silent"))
    sockets.deliverer.submit([sockets.call(n, "/slow") for n in range(60)])
    until = time.monotonic() + PATIENCE_S
    while sockets.arrived() < 60:
        assert time.monotonic() < until
        sockets.deliverer.wait(100)
        assert sockets.deliverer.poll() == []
    assert len(sockets.deliverer.sockets()[0]) == 1
    sockets.deliverer.submit([sockets.call(99)])
    assert [answer.token for answer in sockets.answers(1)] == [99]


def test_tenants_do_not_share_connections(sockets: SocketWorld) -> None:
    for token, tenant in enumerate((b"a" * 16, b"b" * 16, b"a" * 16, b"b" * 16)):
        sockets.one(replace(sockets.call(token), tenant_id=tenant))
    assert [request.connection for request in sockets.server.requests] == [1, 2, 1, 2]


def test_a_request_that_meets_a_dead_connection_is_not_sent_again(sockets: SocketWorld) -> None:
    sockets.one(sockets.call(1))
    sockets.behave("/gone", Behaviour(end="cut"))
    answer = sockets.one(sockets.call(2, "/gone"))
    assert (answer.error, answer.sent) == ("reset", True)
    assert sockets.paths() == ["/", "/gone"]


def test_a_connection_that_the_target_closed_is_replaced_before_sending(
    sockets: SocketWorld,
) -> None:
    sockets.server.close_after("/last")
    sockets.one(sockets.call(1, "/last"))
    answer = sockets.one(sockets.call(2))
    # The end may be seen before or after the request has been handed to the kernel.
    assert answer.status == 200 or (answer.error, answer.sent) == ("reset", True)
    assert sockets.paths().count("/") <= 1


def test_proxies_of_the_environment_are_not_used(
    sockets: SocketWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{sockets.closed_port()}")
    assert sockets.one(sockets.call(1)).status == 200


def test_a_name_keeps_its_host_header_and_is_asked_for_at_every_call(sockets: SocketWorld) -> None:
    sockets.resolve("hook.example.com", "127.0.0.1")
    for token in (1, 2):
        sockets.one(replace(sockets.call(token), host="hook.example.com"))
    host = b"Host: hook.example.com:%d" % sockets.server.port
    assert all(host in request.lines for request in sockets.server.requests)
    assert sockets.names.asked == ["hook.example.com"] * 2


def test_a_name_that_turns_private_is_refused_although_a_connection_is_open(
    sockets: SocketWorld,
) -> None:
    call = replace(sockets.call(1), host="hook.example.com")
    sockets.resolve("hook.example.com", "127.0.0.1")
    assert sockets.one(call).status == 200
    sockets.resolve("hook.example.com", "10.0.0.1")
    assert sockets.one(call).error == "blocked_address"
    assert len(sockets.server.requests) == 1


def test_a_name_that_never_comes_costs_a_call_its_deadline_and_no_more(
    sockets: SocketWorld,
) -> None:
    sockets.names.silent = True
    quick, slow = (
        replace(sockets.call(token), host="hook.example.com", timeout_ms=timeout_ms)
        for token, timeout_ms in ((1, 200), (2, 700))
    )
    sockets.deliverer.submit([quick, slow])
    (first,) = sockets.answers(1)
    assert (first.token, first.status, first.error, first.sent) == (1, 0, "timeout", False)
    assert sockets.names.forgotten == []
    (second,) = sockets.answers(1)
    assert (second.token, second.error) == (2, "timeout")
    assert sockets.names.forgotten == ["hook.example.com"]
    assert sockets.deliverer.in_flight == 0
    assert sockets.server.connections == 0


def test_loopback_is_refused_by_default(sockets: SocketWorld) -> None:
    strict = CurlDeliverer(AddressBook(address_rules()), Names())
    strict.submit([sockets.call(1)])
    assert [answer.error for answer in strict.poll()] == ["blocked_address"]
    strict.close()
    assert sockets.server.connections == 0


def test_a_peer_that_the_book_refuses_is_never_connected_to(sockets: SocketWorld) -> None:
    class Forgetful(AddressBook):
        """Lets everything pass once, as a check that is raced would."""

        seen = 0

        def allowed(self, address: str, port: int, host: str = "") -> bool:
            self.seen += 1
            return self.seen == 1

    raced = CurlDeliverer(Forgetful(address_rules()), Names())
    raced.submit([sockets.call(1)])
    (answer,) = raced.poll()
    assert (answer.error, answer.sent) == ("blocked_address", False)
    raced.close()
    assert sockets.server.connections == 0


def test_informational_answers_count_towards_the_bound(sockets: SocketWorld) -> None:
    sockets.server.behave("/", b"HTTP/1.1 103 Early Hints\r\nX: y\r\n\r\n" * 5000)
    answer = sockets.one(sockets.call(1))
    assert (answer.status, answer.error) == (0, "response_too_large")


def test_headers_count_towards_the_bound(sockets: SocketWorld) -> None:
    line = b"X-Long: " + b"y" * 1000 + b"\r\n"
    sockets.server.behave("/", b"HTTP/1.1 200 OK\r\n" + line * (RESPONSE_BYTES_MAX // 1000 + 9))
    answer = sockets.one(sockets.call(1))
    assert (answer.status, answer.error) == (0, "response_too_large")


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/3.7 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"<html>",
    ],
)
def test_a_broken_answer_is_an_error_and_never_an_exception(
    sockets: SocketWorld, answer: bytes
) -> None:
    sockets.server.behave("/", answer)
    sockets.server.close_after("/")
    got = sockets.one(sockets.call(1))
    assert (got.status if got.error == "" else 0, got.error) == (0, "bad_response")


def test_a_chunked_answer_with_trailers_is_read(sockets: SocketWorld) -> None:
    sockets.server.behave(
        "/",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n"
        b"Content-Type: text/plain\r\n\r\n3\r\nabc\r\n0\r\nX-Request-Id: late\r\n\r\n",
    )
    answer = sockets.one(sockets.call(1))
    assert (answer.status, answer.error, answer.body) == (201, "", b"abc")
    assert answer.headers == (("content-type", "text/plain"),)


def test_kept_headers_are_cut_and_printable(sockets: SocketWorld) -> None:
    value = b"a\x01b\xff" + b"y" * 400
    sockets.server.behave(
        "/", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nServer: " + value + b"\r\n\r\n"
    )
    kept = dict(sockets.one(sockets.call(1)).headers)["server"]
    assert kept.startswith("a?b")
    assert len(kept) == 256
    assert kept.isprintable()


def test_what_is_not_tls_is_a_tls_error() -> None:
    with TargetServer(greeting=b"HTTP/1.1 400 Speak plainly\r\n\r\n") as server:
        world = SocketWorld(server)
        answer = world.one(replace(world.call(1), scheme="https"))
        world.deliverer.close()
    assert (answer.error, answer.sent) == ("tls", False)


def test_an_owner_can_wait_for_its_sockets_beside_its_own(sockets: SocketWorld) -> None:
    def all_sockets() -> Sockets:
        return sockets.deliverer.sockets()

    sockets.resolve("hook.example.com", "127.0.0.1")
    sockets.deliverer.submit([replace(sockets.call(1), host="hook.example.com")])
    answers: list[Answer] = []
    for _ in range(50):
        readable, writable = all_sockets()
        assert list(readable) + list(writable)
        ready = select.select(readable, writable, (), PATIENCE_S)
        assert any(ready)
        answers += sockets.deliverer.poll()
        if answers:
            break
    assert [answer.status for answer in answers] == [200]
    assert sockets.deliverer.sockets() == ([], [])


def test_what_ended_at_once_wakes_an_owner_that_sleeps(sockets: SocketWorld) -> None:
    sockets.deliverer.submit([replace(sockets.call(1), host="10.0.0.1")])
    readable, writable = sockets.deliverer.sockets()
    assert any(select.select(readable, writable, (), PATIENCE_S))
    assert sockets.deliverer.timeout_ms() == 0
