"""A real Apache Kafka for tests: one KRaft node on loopback, from jars that Maven brings.

The jars are kept in `.cache/kafka` under the hash of `kafka/pom.xml`, so that only the first run
of a version downloads (54 MB, about half a minute). A node listens within about four seconds and
takes about 400 MB. What it acknowledged is still there after a kill of the process.
"""

import hashlib
import os
import shutil
import signal
import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from infra.embedded.processes import Child, ChildOptions
from infra.listening import LOOPBACK, free_port

POM = Path(__file__).with_name("kafka") / "pom.xml"
CACHE = Path(__file__).resolve().parents[2] / ".cache" / "kafka"

DOWNLOAD_TIMEOUT_S = 600.0
FORMAT_TIMEOUT_S = 60.0
READY_TIMEOUT_S = 90.0
"""Four seconds are usual; two cores that others load take many times that."""

ASK_TIMEOUT_S = 1.0
"""One metadata request; between two of them the process is looked at."""

STOP_TIMEOUT_S = 30.0

# The heap bounds the whole: 400 MB resident are usual with it.
JAVA_OPTIONS = ("-Xmx512m", "-XX:-UsePerfData", "-Djava.net.preferIPv4Stack=true")

# Topics are made by who knows their partitions; one node cannot replicate; a killed node may come
# back only when its session is over, hence a short one.
PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers={host}:{controller_port}
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}
advertised.listeners=PLAINTEXT://{host}:{port}
controller.listener.names=CONTROLLER
log.dirs={data}
auto.create.topics.enable=false
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=3000
group.initial.rebalance.delay.ms=0
offsets.topic.num.partitions=4
offsets.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
transaction.state.log.replication.factor=1
"""


class KafkaMissing(Exception):
    """Apache Kafka cannot be had here: java, mvn or the download is missing."""


class KafkaFailed(Exception):
    """Apache Kafka was started and did not do what it should; its log's end is in the message."""


class ApacheKafka:
    """One node with its folder; ports and data stay the same over stop, kill and start."""

    def __init__(self, folder: Path, port: int = 0) -> None:
        """Prepare a node with its data below `folder`; port 0 chooses a free one."""
        self._java, self._jars = tool("java"), jars()
        self._folder = folder
        self._log = folder / "kafka.log"
        self._settings = folder / "server.properties"
        self._data = folder / "data"
        self._child: Child | None = None
        self.port = free_port(LOOPBACK, port, "port")
        self._controller_port = free_port(LOOPBACK, 0, "controller port")
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def bootstrap(self) -> str:
        """The address for `bootstrap.servers`."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def pid(self) -> int:
        """The process id of the running node."""
        return self._running().pid

    def start(self) -> None:
        """Start the node on the data it has, and return when it answers."""
        assert self._child is None, "already running"
        if not self._data.exists():
            self._format()
        self._child = Child(
            ChildOptions(
                argv=self._command("kafka.Kafka", str(self._settings)),
                log_path=self._log,
                cwd=self._folder,
                environment=environment(),
            )
        )
        try:
            self._wait_until_ready()
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Stop in order; kill when that takes too long. Data stays."""
        child, self._child = self._child, None
        if child is not None:
            child.stop(signal.SIGTERM, STOP_TIMEOUT_S)

    def kill(self) -> None:
        """SIGKILL the node, as a crash does. Data stays."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()

    def wipe(self) -> None:
        """Remove all data of a stopped node: the next start is a new cluster."""
        assert self._child is None, "stop it first"
        shutil.rmtree(self._data)

    def _running(self) -> Child:
        assert self._child is not None, "not running"
        return self._child

    def _command(self, main: str, *arguments: str) -> tuple[str, ...]:
        return (self._java, *JAVA_OPTIONS, "-cp", f"{self._jars}/*", main, *arguments)

    def _format(self) -> None:
        self._settings.write_text(
            PROPERTIES.format(
                host=LOOPBACK,
                port=self.port,
                controller_port=self._controller_port,
                data=self._data,
            ),
            encoding="utf-8",
        )
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        # A leading dash would read as an option.
        cluster = cluster.replace("-", "A")
        formatted = subprocess.run(
            self._command(
                "kafka.tools.StorageTool",
                *("format", "--standalone", "-t", cluster, "-c", str(self._settings)),
            ),
            cwd=self._folder,
            env=environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=FORMAT_TIMEOUT_S,
        )
        if formatted.returncode != 0:
            message = f"storage could not be formatted:\n{formatted.stdout}{formatted.stderr}"
            raise KafkaFailed(message)

    def _wait_until_ready(self) -> None:
        child, deadline = self._running(), time.monotonic() + READY_TIMEOUT_S
        admin = AdminClient(
            {
                "bootstrap.servers": self.bootstrap,
                "reconnect.backoff.ms": 50,
                "reconnect.backoff.max.ms": 200,
                # Refused connections are what a start looks like; they are no news.
                "log_level": 0,
            }
        )
        while time.monotonic() < deadline:
            if child.exit_status() is not None:
                message = f"ended with {child.exit_status()} while starting:\n{child.log_tail()}"
                raise KafkaFailed(message)
            try:
                if admin.list_topics(timeout=ASK_TIMEOUT_S).brokers:
                    return
            except KafkaException as error:
                refused = error
        message = f"did not answer in {READY_TIMEOUT_S} s ({refused}):\n{child.log_tail()}"
        raise KafkaFailed(message)


@contextmanager
def start(folder: Path, port: int = 0) -> Iterator[ApacheKafka]:
    """Run one node with its data below `folder` until the block ends; it may be killed inside."""
    node = ApacheKafka(folder, port)
    node.start()
    try:
        yield node
    finally:
        node.stop()


def tool(name: str) -> str:
    """Return the path of a program; raises KafkaMissing when there is none."""
    path = shutil.which(name)
    if path is None:
        message = f"Apache Kafka needs '{name}', which is not on PATH (java 17 or newer, and mvn)"
        raise KafkaMissing(message)
    return path


def jars() -> Path:
    """Return the folder of Kafka's jars, brought by Maven on the first call for this pom."""
    key = hashlib.sha256(POM.read_bytes()).hexdigest()[:16]
    kept = CACHE / key
    if kept.is_dir():
        return kept
    draft = CACHE / f"{key}.{os.getpid()}"
    command = (
        *(tool("mvn"), "-q", "-B", "-f", str(POM), "dependency:copy-dependencies"),
        *("-DincludeScope=runtime", f"-DoutputDirectory={draft}"),
    )
    try:
        brought = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=DOWNLOAD_TIMEOUT_S,
        )
        if brought.returncode != 0:
            message = f"Maven could not bring Apache Kafka:\n{brought.stdout}{brought.stderr}"
            raise KafkaMissing(message)
        # Another run that was faster has the same jars.
        if not kept.is_dir():
            draft.replace(kept)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return kept


def environment() -> dict[str, str]:
    """Return what java needs of our environment."""
    return {name: os.environ[name] for name in ("JAVA_HOME", "PATH") if name in os.environ}
