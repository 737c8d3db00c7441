"""Ports that are listened on: chosen before they are told to others, plainly refused when taken."""

import errno
import socket
from typing import Final

from infra.embedded.errors import EngineError
from infra.embedded.processes import wait_until
from infra.ids import new_nonce

LOOPBACK: Final = "127.0.0.1"
FIRST, LAST = 18_000, 32_000
"""Below the range from which kernels take ports for outgoing connections: none gets in between."""
TRIES: Final = 200
_RELEASE_TIMEOUT_S: Final = 2.0
"""A killed process' threads hold its port for a moment after it is seen to have ended."""


def listen(host: str, port: int, setting: str) -> socket.socket:
    """Return a listening socket on `port`, or on one that the kernel chooses for 0.

    Raises EngineError, one line that names port and setting, if it cannot be listened on.
    """
    listener: socket.socket | None = None
    failure = OSError(errno.EADDRINUSE, "")

    def bound() -> bool:
        nonlocal listener, failure
        try:
            listener = _bound(host, port)
        except OSError as error:
            failure = error
        return listener is not None or failure.errno != errno.EADDRINUSE

    wait_until(bound, _RELEASE_TIMEOUT_S)
    if listener is not None:
        return listener
    taken = failure.errno == errno.EADDRINUSE
    what = "is taken" if taken else f"cannot be used: {failure.strerror}"
    raise EngineError(f"port {port} on {host} {what}: set {setting} to another, or 0 for any")


def free_port(host: str, port: int, setting: str) -> int:
    """Return `port` if it can be listened on, or a free one for 0; errors as `listen`.

    Another process may take it before the one that is told of it does: that says so as well.
    """
    if port:
        listen(host, port, setting).close()
        return port
    for _ in range(TRIES):
        port = FIRST + int.from_bytes(new_nonce(), "big") % (LAST - FIRST)
        try:
            _bound(host, port).close()
        except OSError:
            continue
        return port
    raise EngineError(f"no free port on {host} between {FIRST} and {LAST}: set {setting}")


def shown_host(host: str) -> str:
    """Return the host by which a listener on `host` is reached from this machine."""
    if host in {"", "0.0.0.0"}:  # noqa: S104 - compared, not bound
        return LOOPBACK
    return f"[{'::1' if host == '::' else host}]" if ":" in host else host


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family)
