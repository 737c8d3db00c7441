"""Ports on 127.0.0.1: choosing free ones, and saying plainly when one is taken."""

import errno
import socket

from infra.embedded.errors import EngineError

HOST = "127.0.0.1"


def choose_port(port: int, setting: str) -> int:
    """`port` if it is free, or a free one for 0; raises EngineError naming the setting if taken.

    Another process may take the port before the engine does: engines report that as well.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As the engines do: a port in TIME_WAIT from the last run is not taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
            probe.listen(1)
        except OSError as error:
            raise bind_error(error, port, setting) from error
        return int(probe.getsockname()[1])


def bind_error(error: OSError, port: int, setting: str) -> EngineError:
    """The one-line error for a port that could not be listened on."""
    if error.errno == errno.EADDRINUSE:
        return EngineError(
            f"port {port} on {HOST} is taken: set {setting} to another, or 0 for any"
        )
    return EngineError(f"cannot listen on port {port} of {HOST} ({setting}): {error.strerror}")
