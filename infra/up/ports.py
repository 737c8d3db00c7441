"""Ports for engines and roles, chosen before they start, so that each can be told of the others."""

import errno
import socket
from typing import Final

from infra.embedded.errors import EngineError
from infra.ids import new_nonce

FIRST, LAST = 18_000, 32_000
"""Below the range from which kernels take ports for outgoing connections: none gets in between."""
TRIES: Final = 200


def free_port(host: str, port: int, setting: str) -> int:
    """Return `port` if it can be listened on, or a free one for 0.

    Raises EngineError with the setting.
    """
    if port:
        _try(host, port, setting)
        return port
    for _ in range(TRIES):
        port = FIRST + int.from_bytes(new_nonce(), "big") % (LAST - FIRST)
        try:
            _try(host, port, setting)
        except EngineError:
            continue
        return port
    raise EngineError(f"no free port on {host} between {FIRST} and {LAST}: set {setting}")


def shown_host(host: str) -> str:
    """Return the host by which a listener on `host` is reached from this machine."""
    if host in {"", "0.0.0.0"}:  # noqa: S104 - compared, not bound
        return "127.0.0.1"
    return f"[{'::1' if host == '::' else host}]" if ":" in host else host


def _try(host: str, port: int, setting: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        what = "is taken" if taken else f"cannot be used: {error.strerror}"
        raise EngineError(
            f"port {port} on {host} {what}: set {setting} to another, or 0 for any"
        ) from error
