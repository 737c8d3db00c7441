"""Roles as processes of their own over engines that the test has: killed, armed and watched."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec
import psycopg

from infra.embedded.processes import Child, ChildOptions, wait_until
from infra.keys.masters import masters_of
from infra.keys.wrapping import unlock
from infra.listening import free_port
from infra.postgres.tenants import Tenants
from infra.settings import Settings, exported, replaced

ROOT: Final = Path(__file__).parents[2]
START_S: Final = 30.0
END_S: Final = 60.0


class Engines(msgspec.Struct, frozen=True):
    """Where the engines of a cell are."""

    postgres: str
    kafka: str
    clickhouse: str
    prefix: str
    session_timeout_ms: int


class RoleRun:
    """One process of one role."""

    def __init__(self, role: str, settings: Settings, folder: Path) -> None:
        self.role = role
        self.settings = settings
        self.ops = f"http://127.0.0.1:{settings.api.ops_port}"
        self._process = Child(
            ChildOptions(
                argv=(sys.executable, "-m", "infra.cli", role),
                log_path=folder / f"{role}-{settings.api.ops_port}.log",
                cwd=ROOT,
                environment={"PATH": os.environ["PATH"]} | exported(settings),
            )
        )

    def ready(self) -> bool:
        """Tell whether it says that it is ready."""
        with contextlib.suppress(httpx.HTTPError):
            return httpx.get(f"{self.ops}/readyz", timeout=2).status_code == 200
        return False

    def started(self) -> "RoleRun":
        """Wait until it is ready, or has ended."""
        assert wait_until(lambda: self.ready() or not self.running, START_S), self.text
        return self

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.exit_status() is None

    def died(self, seconds: float = END_S) -> bool:
        """Wait until it is killed; False where it still lives, or ended by itself."""
        wait_until(lambda: not self.running, seconds)
        return self._process.exit_status() == -signal.SIGKILL

    def kill(self) -> None:
        self._process.kill()

    def stop(self) -> int | None:
        """Let it drain, and return its exit status."""
        self._process.stop(signal.SIGTERM, END_S)
        return self._process.exit_status()

    @property
    def text(self) -> str:
        return self._process.log_tail()


class Cell:
    """A tenant, its key, and the processes that were started."""

    def __init__(self, engines: Engines, folder: Path) -> None:
        self.engines = engines
        self._folder = folder
        settings = Settings()
        settings = replaced(settings, "data", dir=str(folder))
        settings = replaced(settings, "postgres", url=engines.postgres)
        settings = replaced(
            settings,
            "kafka",
            bootstrap=engines.kafka,
            prefix=engines.prefix,
            session_timeout_ms=engines.session_timeout_ms,
        )
        settings = replaced(settings, "clickhouse", url=engines.clickhouse, database=engines.prefix)
        settings = replaced(settings, "targets", allow=("127.0.0.0/8",))
        self._settings = replaced(settings, "api", port=free_port("127.0.0.1", 0, "api.port"))
        self.key = self.key_of("acme")
        self._runs: list[RoleRun] = []
        self.planned_before = 0
        """One-time jobs that tests have defined so far."""
        self.client = httpx.Client(
            base_url=f"http://127.0.0.1:{self._settings.api.port}",
            headers={"authorization": f"Bearer {self.key}"},
            timeout=30,
        )

    @property
    def payloads(self) -> Path:
        """The folder of large payloads."""
        return self._folder / "payloads"

    def key_of(self, tenant: str) -> str:
        """Return a new key of a tenant, who is made if needed."""
        keys = unlock(self.engines.postgres, masters_of(self._settings, create=True))
        with contextlib.closing(Tenants(self.engines.postgres, keys)) as tenants:
            return tenants.create_key(tenant)

    @property
    def tenant_id(self) -> bytes:
        """The id of the tenant whose key the client has."""
        keys = unlock(self.engines.postgres, masters_of(self._settings, create=True))
        with contextlib.closing(Tenants(self.engines.postgres, keys)) as tenants:
            return tenants.ensure("acme")

    def tocsin(self, *words: str) -> str:
        """Run a command of the console to its end, and return what it printed."""
        done = subprocess.run(
            (sys.executable, "-m", "infra.cli", *words),
            cwd=ROOT,
            env={"PATH": os.environ["PATH"]} | exported(self._settings),
            capture_output=True,
            text=True,
            timeout=END_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    @property
    def master_file(self) -> Path:
        """The file of the master key."""
        return self._settings.master_file

    def log_files(self) -> list[Path]:
        """Return where the processes write what they say."""
        return sorted(self._folder.glob("*.log"))

    @property
    def running(self) -> list[RoleRun]:
        """The processes that run."""
        return [run for run in self._runs if run.running]

    def schedules(self, **changes: Any) -> None:
        """Give roles that start from now on these settings of schedules."""
        self._settings = replaced(self._settings, "schedules", **changes)

    def connect(self, text: str) -> None:
        """Give roles that start from now on these connections to brokers."""
        file = self._folder / "connections.toml"
        file.write_text(text, encoding="utf-8")
        file.chmod(0o600)
        self._settings = replaced(self._settings, "targets", connections_file=str(file))

    def start(self, role: str, fault: str = "", postgres: str = "") -> RoleRun:
        """Start a process of this role, armed to die at a point and hit (`called:3`).

        `postgres` is another way to the same database.
        """
        port = free_port("127.0.0.1", 0, "api.ops_port")
        settings = replaced(self._settings, "api", ops_port=port, with_queries=True)
        settings = replaced(settings, "fault", point=fault)
        if postgres:
            settings = replaced(settings, "postgres", url=postgres)
        run = RoleRun(role, settings, self._folder)
        self._runs.append(run)
        return run

    def restart(self, role: str) -> None:
        """Kill the processes of a role that run, and start one again."""
        self.replace(role)

    def replace(self, role: str, fault: str = "") -> RoleRun:
        """Kill the processes of a role that run, and start one that is armed with a fault."""
        for run in self._runs:
            if run.role == role and run.running:
                run.kill()
        return self.start(role, fault).started()

    def handed_off(self) -> int:
        """Return how many due rows are marked as handed off."""
        query = "select count(*) from due_index where handed_off_at is not null"
        with psycopg.connect(self.engines.postgres) as connection:
            row = connection.execute(query).fetchone()
        assert row is not None
        return int(row[0])

    def define(self, job: dict[str, Any]) -> dict[str, Any]:
        """Define a job, and return the answer."""
        answer = self.client.post("/v1/jobs", json=job)
        assert answer.status_code == 201, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def define_many(self, jobs: list[dict[str, Any]]) -> list[str]:
        """Define jobs through the batch endpoint, and return their ids."""
        body = b"\n".join(msgspec.json.encode(job) for job in jobs)
        answer = self.client.post(
            "/v1/jobs:batch", content=body, headers={"content-type": "application/x-ndjson"}
        )
        assert answer.status_code == 200, answer.text
        lines = [msgspec.json.decode(line) for line in answer.content.splitlines()]
        assert all(line["code"] == 201 for line in lines), lines[:3]
        return [line["job"]["job_id"] for line in lines]

    def settled(self, jobs: int, seconds: float = END_S) -> None:
        """Wait until every run of so many one-time jobs has ended, each once."""
        query = (
            "select count(*) filter (where name = any(%s)), count(distinct stream_id)"
            " filter (where name = 'run.scheduled.v1') from events"
        )
        ends = ["run.completed.v1", "run.skipped.v1", "run.cancelled.v1"]
        found: tuple[int, int] = (0, 0)

        def all_ended() -> bool:
            nonlocal found
            with psycopg.connect(self.engines.postgres) as connection:
                row = connection.execute(query, (ends,)).fetchone()
            assert row is not None
            found = (row[0], row[1])
            return found[0] >= jobs

        assert wait_until(all_ended, seconds), f"(ended, planned) = {found} of {jobs}"
        assert found == (jobs, jobs)

    def logs(self) -> str:
        """Return what all processes have said."""
        return "\n".join(f"--- {run.role}\n{run.text[-2000:]}" for run in self._runs)

    def close(self) -> None:
        """End every process."""
        self.client.close()
        for run in self._runs:
            if run.running:
                run.kill()


@contextlib.contextmanager
def opened(engines: Engines, folder: Path) -> Iterator[Cell]:
    """A cell that is closed whatever happens."""
    cell = Cell(engines, folder)
    try:
        yield cell
    finally:
        cell.close()
