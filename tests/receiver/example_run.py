"""An example of the kit as a process of its own, on a real socket."""

import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx

from infra.embedded.processes import Child, ChildOptions, wait_until
from infra.listening import LOOPBACK, free_port
from tests.receiver.calls import OTHER_SECRET, SECRET, Call

KIT: Final = Path(__file__).parents[2] / "clients" / "receiver"
EXAMPLES: Final = KIT / "examples"
START_S: Final = 60.0
STOP_S: Final = 10.0

WSGI: Final = {"flask_app", "django_app"}


class Example:
    """A running example, and how it is called."""

    def __init__(self, name: str, port: int) -> None:
        self.path = "/" if name == "asgi_app" else "/tocsin/report"
        self.url = f"http://{LOOPBACK}:{port}"

    def post(self, call: Call, **headers: str) -> httpx.Response:
        """Send a call, with some headers changed."""
        return httpx.post(
            self.url + self.path, content=call.body, headers=call.headers() | headers, timeout=30
        )


@contextmanager
def started(
    name: str, folder: Path, secrets: str = f"{OTHER_SECRET} {SECRET}"
) -> Iterator[Example]:
    """Run an example until the block ends."""
    port = free_port(LOOPBACK, 0, "port")
    command: tuple[str, ...]
    if name in WSGI:
        server = Path(__file__).with_name("wsgi_server.py")
        command = (sys.executable, str(server), name, str(port))
    else:
        command = (sys.executable, "-m", "uvicorn", f"{name}:app", "--port", str(port))
    child = Child(
        ChildOptions(
            argv=command,
            log_path=folder / f"{name}.log",
            cwd=folder,
            environment={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": os.pathsep.join((str(KIT), str(EXAMPLES))),
                "TOCSIN_SECRETS": secrets,
            },
        )
    )
    try:

        def listens() -> bool:
            try:
                socket.create_connection((LOOPBACK, port), 1).close()
            except OSError:
                return child.exit_status() is not None
            return True

        assert wait_until(listens, START_S), child.log_tail()
        assert child.exit_status() is None, child.log_tail()
        yield Example(name, port)
    finally:
        child.stop(signal.SIGTERM, STOP_S)


def now_s() -> int:
    """Return the time that an example has too."""
    return int(time.time())
