"""Ports on 127.0.0.1: choosing free ones, and saying plainly when one is taken."""

import errno
import socket

from infra.embedded.errors import EngineError
from infra.embedded.processes import wait_until

HOST = "127.0.0.1"

# A killed engine's threads hold its port for a moment after its process is seen to have ended.
_RELEASE_TIMEOUT_S = 2.0


def listen(port: int, setting: str) -> socket.socket:
    """A listening socket on `port`, or on a free one for 0.

    Raises EngineError naming port and setting if it is taken.
    """
    listener: socket.socket | None = None
    failure = OSError(errno.EADDRINUSE, "")

    def bound() -> bool:
        nonlocal listener, failure
        try:
            listener = socket.create_server((HOST, port))
        except OSError as error:
            failure = error
        return listener is not None or failure.errno != errno.EADDRINUSE

    wait_until(bound, _RELEASE_TIMEOUT_S)
    if listener is None:
        raise bind_error(failure, port, setting)
    return listener


def choose_port(port: int, setting: str) -> int:
    """`port` if it is free, or a free one for 0; errors as `listen`.

    Another process may take the port before the engine does: engines report that as well.
    """
    with listen(port, setting) as listener:
        return int(listener.getsockname()[1])


def bind_error(error: OSError, port: int, setting: str) -> EngineError:
    """The one-line error for a port that could not be listened on."""
    if error.errno == errno.EADDRINUSE:
        return EngineError(
            f"port {port} on {HOST} is taken: set {setting} to another, or 0 for any"
        )
    return EngineError(f"cannot listen on port {port} of {HOST} ({setting}): {error.strerror}")
