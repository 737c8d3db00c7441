"""Waits for descriptors of any number: `select` cannot hold those from 1,024 on."""

import errno
import os
import select
from collections.abc import Iterable


def wait(readable: Iterable[int], writable: Iterable[int], us: int) -> bool:
    """Wait until one is ready, at most `us` microseconds, which are rounded up to milliseconds.

    Returns whether one is. Raises OSError where one is closed: whoever waits for it would be woken
    for ever.
    """
    polled = select.poll()
    wanted: dict[int, int] = {}
    for descriptor in readable:
        wanted[descriptor] = select.POLLIN
    for descriptor in writable:
        wanted[descriptor] = wanted.get(descriptor, 0) | select.POLLOUT
    for descriptor, events in wanted.items():
        polled.register(descriptor, events)
    ready = polled.poll(us / 1_000)
    for descriptor, events in ready:
        if events & select.POLLNVAL:
            raise OSError(errno.EBADF, f"{os.strerror(errno.EBADF)}: descriptor {descriptor}")
    return bool(ready)
