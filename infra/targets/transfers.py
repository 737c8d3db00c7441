"""libcurl's transfers over epoll: what is ready is moved on, and nothing else is looked at.

A step costs what it moves, however many calls hang: `curl_multi_perform` would read from each of
them, and `select` cannot hold descriptors from 1,024 on. All of libcurl's sockets are behind one
descriptor, so that an owner waits for thousands as for one.

A socket is left in epoll when libcurl is done with it for now: nearly always the next request of
its connection asks for the same again. What is ready there although nobody asks, as when a target
closes an idle connection, is taken out then.
"""

import contextlib
import select
from typing import Final

import pycurl

STREAMS_MAX: Final = 100
"""Calls on one connection of HTTP/2; most servers allow no more."""
READY_MAX: Final = 1_024
"""Sockets served in a step; the others are ready in the next."""
STEPS_MAX: Final = 4
"""Rounds of what libcurl wants to do at once; what is left wakes the owner."""

_IN, _OUT = select.EPOLLIN, select.EPOLLOUT
_MASKS: Final = {pycurl.POLL_IN: _IN, pycurl.POLL_OUT: _OUT, pycurl.POLL_INOUT: _IN | _OUT}
_BROKEN: Final = pycurl.CSELECT_IN | pycurl.CSELECT_OUT | pycurl.CSELECT_ERR
_ACTIONS: Final = {
    _IN: pycurl.CSELECT_IN,
    _OUT: pycurl.CSELECT_OUT,
    _IN | _OUT: pycurl.CSELECT_IN | pycurl.CSELECT_OUT,
}


class Transfers:
    """The transfers that are under way, of one thread."""

    def __init__(self, connections_max: int) -> None:
        """`connections_max` connections are kept."""
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_PIPELINING, pycurl.PIPE_MULTIPLEX)
        self._multi.setopt(pycurl.M_MAX_CONCURRENT_STREAMS, STREAMS_MAX)
        self._multi.setopt(pycurl.M_MAXCONNECTS, connections_max)
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._on_wish)
        self._epoll = select.epoll()
        self._watched: dict[int, int] = {}
        """What epoll watches each socket for; less than 0 where libcurl does not ask for it now."""
        self._active = 0

    @property
    def active(self) -> int:
        """How many transfers are under way."""
        return self._active

    def fileno(self) -> int:
        """Return the descriptor that is readable when `advance` has something to do."""
        return self._epoll.fileno()

    def timeout_ms(self) -> int:
        """Return after how many ms `advance` must be called even if nothing is ready; -1: never."""
        return self._multi.timeout() if self._active else -1

    def add(self, curl: pycurl.Curl) -> None:
        """Begin a transfer at the next `advance`."""
        self._multi.add_handle(curl)
        self._active += 1

    def remove(self, curl: pycurl.Curl) -> None:
        """End a transfer, whether it has ended by itself or not."""
        self._multi.remove_handle(curl)
        self._active -= 1

    def advance(self) -> list[tuple[pycurl.Curl, int]]:
        """Move on what can move; return what ended, each with libcurl's code (0: well)."""
        if not self._active:
            return []
        multi = self._multi
        act, watched = multi.socket_action, self._watched
        for descriptor, events in self._epoll.poll(0, READY_MAX):
            if watched.get(descriptor, 0) > 0:
                act(descriptor, _ACTIONS.get(events, _BROKEN))
            else:
                self._forget(descriptor)
        for _ in range(STEPS_MAX):
            if multi.timeout():
                break
            act(pycurl.SOCKET_TIMEOUT, 0)
        _, ended, failed = multi.info_read(self._active)
        return [(curl, 0) for curl in ended] + [(curl, code) for curl, code, _ in failed]

    def opened(self, descriptor: int) -> None:
        """Note that a descriptor is a new socket: whatever had its number is closed."""
        self._watched.pop(descriptor, None)

    def close(self) -> None:
        """Close every connection; all transfers must have been removed."""
        self._multi.close()
        self._epoll.close()

    def _on_wish(self, what: int, descriptor: int, _multi: object, _data: object) -> None:
        """Watch a socket for what libcurl wants of it."""
        before = self._watched.get(descriptor)
        if what == pycurl.POLL_REMOVE:
            if before is not None:
                self._watched[descriptor] = -before
            return
        self._watched[descriptor] = what
        if before is None:
            self._epoll.register(descriptor, _MASKS[what])
        elif abs(before) != what:
            self._epoll.modify(descriptor, _MASKS[what])

    def _forget(self, descriptor: int) -> None:
        self._watched.pop(descriptor, None)
        # Where it was closed in this very step, epoll has let go of it by itself.
        with contextlib.suppress(OSError):
            self._epoll.unregister(descriptor)
