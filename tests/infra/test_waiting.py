"""Waiting for descriptors of any number."""

import fcntl
import os
import resource
import socket
from collections.abc import Iterator

import pytest

from infra.waiting import wait

PATIENCE_US = 20_000_000


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    with one, other:
        yield one, other


def test_what_is_readable_or_writable_ends_the_wait(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    one, other = pair
    assert wait([], [one.fileno()], PATIENCE_US)
    assert not wait([one.fileno()], [], 0)
    other.send(b"x")
    assert wait([one.fileno()], [], PATIENCE_US)


def test_a_descriptor_beyond_what_select_holds_can_be_waited_for(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert hard > 1_100, "the machine must allow 1,100 open files"
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1_100), hard))
    high = fcntl.fcntl(pair[0], fcntl.F_DUPFD_CLOEXEC, 1_050)
    try:
        pair[1].send(b"x")
        assert wait([high], [], PATIENCE_US)
    finally:
        os.close(high)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_closed_descriptor_is_an_error_and_no_busy_loop(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    closed = os.dup(pair[0].fileno())
    os.close(closed)
    with pytest.raises(OSError, match=f"descriptor {closed}"):
        wait([closed], [], PATIENCE_US)
