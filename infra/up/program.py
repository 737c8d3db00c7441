"""`tocsin up`: the lock on the folder, the supervisor, the demo, and what is said of them."""

from pathlib import Path
from typing import Final

from infra.embedded.errors import EngineError
from infra.embedded.processes import FolderLock
from infra.lifecycle import Stop
from infra.settings import Settings, replaced
from infra.up import demo
from infra.up.console import Console
from infra.up.roles import Argv, program
from infra.up.supervisor import Interrupted, Supervisor, write_ready_file

LOCK_FILE: Final = "up.lock"


def up(settings: Settings, ready_file: Path | None = None, argv: Argv = program) -> int:
    """Run everything on this machine until SIGTERM or Ctrl-C; returns the exit status.

    Raises EngineError, OpsError, UpError and what Postgres and migrations say.
    """
    console = Console()
    settings = _settled(settings)
    if ready_file is not None:
        ready_file = ready_file.absolute()
        ready_file.unlink(missing_ok=True)
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    with Stop() as stop, _lock(settings.data_dir):
        console.say(f"tocsin: starting on {settings.data_dir}")
        supervisor = Supervisor(settings, stop, console.say, argv)
        shown = _Shown(supervisor, console, ready_file)
        try:
            supervisor.start()
            shown.everything()
            supervisor.watch(shown.keep_current)
        except Interrupted:
            pass
        finally:
            console.say("tocsin: stopping; everything that was accepted is kept")
            if ready_file is not None:
                ready_file.unlink(missing_ok=True)
            supervisor.finish(shown.close)
        console.say("tocsin: stopped")
    return 0


class _Shown:
    """What a person and a script see of a running supervisor."""

    def __init__(self, supervisor: Supervisor, console: Console, ready_file: Path | None) -> None:
        self._supervisor, self._console, self._file = supervisor, console, ready_file
        self._receiver: demo.Receiver | None = None
        self._pids: dict[str, int] = {}

    def everything(self) -> None:
        """Say where everything is, and begin the demo."""
        supervisor, say = self._supervisor, self._console.say
        api, versions = supervisor.roles.address, supervisor.versions
        names = ("tocsin", "postgres", "broker", "history", "zones")
        say("  " + ", ".join(f"{name} {versions[name]}" for name in names if name in versions))
        say(f"  commands and queries  {api}, described at {api}/openapi.json")
        say(f"  operators             {supervisor.ops.address}/readyz, /healthz, /metrics")
        say(f"  data and logs         {supervisor.settings.data_dir}")
        say(f"  demo API key          {supervisor.api_key}")
        if supervisor.settings.up.demo:
            self._demo(api)
        self.keep_current()

    def keep_current(self) -> None:
        """Write the ready file again whenever a process was replaced."""
        pids = self._supervisor.pids()
        if self._file is None or pids == self._pids:
            return
        self._pids = pids
        supervisor = self._supervisor
        write_ready_file(
            self._file,
            {
                "api": supervisor.roles.address,
                "query": supervisor.roles.address,
                "ops": supervisor.ops.address,
                "api_key": supervisor.api_key,
                "pids": pids,
                "versions": supervisor.versions,
                "ops_by_role": {
                    process.name: f"http://{process.options.ops_host}:{process.options.ops_port}"
                    for process in supervisor.roles.processes
                },
                "postgres": supervisor.settings.postgres.url,
                "kafka": supervisor.settings.kafka.bootstrap,
                "clickhouse": supervisor.settings.clickhouse.url,
            },
        )

    def close(self) -> None:
        """Close the receiver: nobody calls it any more."""
        if self._receiver is not None:
            self._receiver.close()

    def _demo(self, api: str) -> None:
        say, key = self._console.say, self._supervisor.api_key
        self._receiver = receiver = demo.Receiver(say)
        say(f"  demo receiver         {receiver.url}: {demo.RANGE} is allowed as a target for it")
        try:
            jobs = demo.define_jobs(api, key, receiver.url)
        except demo.DemoError as error:
            say(f"  demo jobs             not defined: {error}")
            return
        say(f"  demo jobs             {jobs.once} in 5 s, {jobs.minutely} every minute\n")
        say("\n".join(demo.curl_lines(api, key, jobs.minutely, receiver.url)))
        say(
            "\nEach fire of the demo is shown below; Ctrl-C drains and stops, a second one hurries."
        )


def _settled(settings: Settings) -> Settings:
    """Return settings whose paths hold in any working directory, and what the demo needs."""
    settings = replaced(settings, "data", dir=str(settings.data_dir.absolute()))
    if settings.has_master_file:
        settings = replaced(settings, "keys", master_file=str(settings.master_file.absolute()))
    if settings.keys.next_file:
        next_file = str(Path(settings.keys.next_file).expanduser().absolute())
        settings = replaced(settings, "keys", next_file=next_file)
    if settings.targets.connections_file:
        file = Path(settings.targets.connections_file).expanduser().absolute()
        settings = replaced(settings, "targets", connections_file=str(file))
    if settings.up.demo and demo.RANGE not in settings.targets.allow:
        allow = (*settings.targets.allow, demo.RANGE)
        settings = replaced(settings, "targets", allow=allow)
    return settings


def _lock(data_dir: Path) -> FolderLock:
    try:
        return FolderLock(data_dir / LOCK_FILE, "up")
    except EngineError as error:
        raise EngineError(
            f"{error}, another `tocsin up`: stop that one, or name another folder with --data"
        ) from error
