"""Names whose addresses are of one family only, or of which some do not answer."""

import contextlib
import socket
from collections.abc import Iterator

import pytest

from tests.chaos.wire import Wire, wired
from tests.engines.name_server import NameServer
from tests.engines.sink import TargetServer

BOTH = "both.example.com"
TIMEOUT_MS = 2_000
"""Shorter than a connect timeout: whoever tries one family after the other does not make it."""


@contextlib.contextmanager
def black_hole(host: str, port: int) -> Iterator[None]:
    """Take a port whose row of connections is full, so that every further one hears nothing."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket(family))
        listener.bind((host, port))
        listener.listen(0)
        for _ in range(4):
            client = stack.enter_context(socket.socket(family))
            client.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                client.connect((host, port))
        yield


def test_f126_a_target_that_has_only_ipv6_is_called(names: NameServer) -> None:
    with TargetServer(host="::1") as sink, wired(sink, names) as wire:
        names.address("six.example.com", "::1")
        assert wire.hit(host="six.example.com").status == 200
        assert sink.connections == 1
    assert names.questions("six.example.com") == ["six.example.com A", "six.example.com AAAA"]


@pytest.mark.parametrize(("broken", "works"), [("::1", "127.0.0.1"), ("127.0.0.1", "::1")])
def test_f126_a_family_that_is_broken_does_not_hold_up_the_other(
    names: NameServer, broken: str, works: str
) -> None:
    with TargetServer(host=works) as sink, wired(sink, names) as wire:
        names.address(BOTH, "127.0.0.1", "::1")
        with black_hole(broken, sink.port):
            answer = wire.hit(host=BOTH, timeout_ms=TIMEOUT_MS)
            assert (answer.status, answer.error) == (200, "")
            again = wire.hit("/again", host=BOTH, timeout_ms=TIMEOUT_MS)
            assert (again.status, again.error) == (200, "")
        assert [request.path for request in sink.requests] == ["/", "/again"]


def test_f126_of_two_addresses_of_a_family_the_one_that_works_is_found(
    names: NameServer,
) -> None:
    with TargetServer(host="127.0.0.2") as sink, wired(sink, names) as wire:
        names.address(BOTH, "127.0.0.1", "127.0.0.2")
        assert wire.hit(host=BOTH).status == 200
        assert len(sink.requests) == 1


def test_f126_addresses_that_all_refuse_are_one_failed_connect(wire: Wire) -> None:
    wire.names.address(BOTH, "127.0.0.2", "127.0.0.3", "::1")
    answer = wire.hit(host=BOTH)
    assert (answer.status, answer.error, answer.sent) == (0, "connect", False)
    assert wire.names.questions(BOTH)


def test_f126_one_forbidden_address_of_the_other_family_condemns_the_name(wire: Wire) -> None:
    wire.names.address(BOTH, "127.0.0.1", "fd00:ec2::254")
    assert wire.hit(host=BOTH).error == "blocked_address"
    assert wire.names.questions(BOTH) == [f"{BOTH} A", f"{BOTH} AAAA"]
    assert wire.sink.connections == 0
