"""A real RabbitMQ for tests: one node on loopback, from Debian's package `rabbitmq-server`.

It runs without its wrapper, as whoever runs the tests, in a folder of its own, with a port mapper
(`epmd`) of its own, so that nothing of it is left when it ends.
"""

import os
import re
import shutil
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from infra.embedded.processes import Child, ChildOptions, wait_until
from infra.listening import LOOPBACK, free_port

SERVERS = Path("/usr/lib/rabbitmq/lib")
READY_TIMEOUT_S = 120.0
"""Some seconds are usual; two cores that others load take many times that."""
STOP_TIMEOUT_S = 30.0
TAIL = 800
STARTED = re.compile("Server startup complete")


class RabbitMissing(Exception):
    """RabbitMQ cannot be had here."""


class RabbitFailed(Exception):
    """RabbitMQ was started and did not do what it should; its log's end is in the message."""


class RabbitMQ:
    """One node with its folder; ports and data stay the same over kill and start."""

    def __init__(self, folder: Path) -> None:
        """Prepare a node with its data below `folder`."""
        self._program = program()
        self._folder = folder
        self._child: Child | None = None
        self._mapper: Child | None = None
        self.port, *self._ports = _ports(3)
        self._starts = 0
        folder.mkdir(parents=True, exist_ok=True)
        settings = f"listeners.tcp.1 = {LOOPBACK}:{self.port}\nlog.console = true\n"
        (folder / "rabbitmq.conf").write_text(settings, encoding="ascii")
        (folder / "enabled_plugins").write_text("[].\n", encoding="ascii")

    @property
    def pid(self) -> int:
        """The process id of the running node."""
        assert self._child is not None, "not running"
        return self._child.pid

    def start(self) -> None:
        """Start the node on the data it has, and return when it listens."""
        assert self._child is None, "already running"
        if self._mapper is None:
            self._mapper = self._run("epmd", (tool("epmd"), "-address", LOOPBACK))
        self._starts += 1
        name = f"rabbit-{self._starts}"
        self._child = child = self._run(name, (str(self._program),))
        log = self._folder / f"{name}.log"

        def settled() -> bool:
            return child.exit_status() is not None or (self._listens() and _says(log))

        if not wait_until(settled, READY_TIMEOUT_S) or child.exit_status() is not None:
            tail = child.log_tail()
            self.kill()
            raise RabbitFailed(f"did not start:\n{tail[-TAIL:]}")

    def kill(self) -> None:
        """SIGKILL the node, as a crash does. Data stays."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()

    def stop(self) -> None:
        """End the node and its port mapper."""
        child, self._child = self._child, None
        if child is not None:
            child.stop(signal.SIGTERM, STOP_TIMEOUT_S)
        mapper, self._mapper = self._mapper, None
        if mapper is not None:
            mapper.kill()

    def _run(self, name: str, argv: tuple[str, ...]) -> Child:
        folder, (distribution, mapper) = self._folder, self._ports
        return Child(
            ChildOptions(
                argv=argv,
                log_path=folder / f"{name}.log",
                cwd=folder,
                environment={
                    "PATH": os.environ["PATH"],
                    "HOME": str(folder),
                    "ERL_EPMD_ADDRESS": LOOPBACK,
                    "ERL_EPMD_PORT": str(mapper),
                    # Without it, the script stays in between and a signal does not reach the node.
                    "RABBITMQ_ALLOW_INPUT": "1",
                    "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
                    "RABBITMQ_DIST_PORT": str(distribution),
                    "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
                    "RABBITMQ_LOG_BASE": str(folder / "log"),
                    "RABBITMQ_LOGS": "-",
                    "RABBITMQ_MNESIA_BASE": str(folder / "data"),
                    "RABBITMQ_NODENAME": "tocsin@localhost",
                    "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
                        "-noinput +sbwt none -kernel inet_dist_use_interface {127,0,0,1}"
                    ),
                },
            )
        )

    def _listens(self) -> bool:
        try:
            socket.create_connection((LOOPBACK, self.port), 1.0).close()
        except OSError:
            return False
        return True


def _ports(count: int) -> list[int]:
    """Return free ports that are not each other's."""
    found: set[int] = set()
    while len(found) < count:
        found.add(free_port(LOOPBACK, 0, "port"))
    return list(found)


def _says(log: Path) -> bool:
    return STARTED.search(log.read_text(encoding="utf-8", errors="replace")) is not None


@contextmanager
def start(folder: Path) -> Iterator[RabbitMQ]:
    """Run one node with its data below `folder` until the block ends; it may be killed inside."""
    node = RabbitMQ(folder / "first")
    try:
        try:
            node.start()
        except RabbitFailed:
            # A port that was free may be another's by the time that the node listens.
            node.stop()
            node = RabbitMQ(folder / "second")
            node.start()
        yield node
    finally:
        node.stop()


def tool(name: str) -> str:
    """Return the path of a program; raises RabbitMissing when there is none."""
    path = shutil.which(name)
    if path is None:
        message = f"RabbitMQ needs '{name}', which is not on PATH: apt-get install rabbitmq-server"
        raise RabbitMissing(message)
    return path


def program() -> Path:
    """Return the program that starts a node; raises RabbitMissing when there is none."""
    tool("erl")
    tool("epmd")
    found = sorted(SERVERS.glob("rabbitmq_server-*/sbin/rabbitmq-server"))
    if not found:
        raise RabbitMissing(f"no RabbitMQ below {SERVERS}: apt-get install rabbitmq-server")
    return found[-1]
