"""The run history's embedded engine: one process that owns a chdb folder and speaks HTTP.

Only one process may open such a folder, so it is a process of its own, and projector and query use
the same `clickhouse-connect` HTTP client as against a ClickHouse server. Run it as
`python -m infra.embedded.history --data DIR --port N`, or through `EmbeddedHistory`.

It listens on 127.0.0.1 only. SQL can read and write files and run programs with the rights of its
process; so when started by root it gives them up, as Postgres does, after everything is loaded,
and a password can be asked for (`--password-file`).

An insert is acknowledged when its part is in the file system: it survives `kill -9` of everything.
To survive a power cut as well, create tables with `fsync_after_insert = 1,
fsync_part_directory = 1`. At rest the process takes about 280 MB, of which 200 are the engine's
shared code.
"""

import argparse
import http.client
import os
import signal
import stat
import sys
import threading
from pathlib import Path
from typing import Self

import msgspec

import infra
from infra.embedded import processes
from infra.embedded.account import account_for_root, let_pass
from infra.embedded.engine import Engine
from infra.embedded.errors import EngineError
from infra.embedded.history_http import HttpServer, Limits
from infra.embedded.tether import become
from infra.listening import LOOPBACK, free_port, listen

PORT_SETTING = "clickhouse.port"

# A request in progress is answered; its own bound is max_execution_time.
_DRAIN_TIMEOUT_S = 10.0
_STOP_TIMEOUT_S = 15.0
# A predecessor that was killed may still be giving its memory back.
_LOCK_TIMEOUT_S = 5.0
_PING_TIMEOUT_S = 1.0


class HistoryOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where the data are, the port (0 for any) and the file with the password, if one is asked."""

    data_dir: Path
    port: int = 0
    password_file: Path | None = None
    start_timeout_s: float = 60.0


class EmbeddedHistory(Engine):
    """The history process under our control."""

    def __init__(self, options: HistoryOptions) -> None:
        """Remember the options; nothing is touched before `start`."""
        super().__init__("history")
        self.options = options
        self.log_path = options.data_dir / "history.log"
        self.port = options.port

    @property
    def address(self) -> str:
        """`host:port` of the HTTP interface."""
        return f"{LOOPBACK}:{self.port}"

    def start(self) -> Self:
        """Start, and return once it answers; it is warm then.

        Raises EngineError if the port is taken, the folder is in use or it does not come up.
        """
        self.options.data_dir.mkdir(parents=True, exist_ok=True)
        # Resolved here, so that the child's working directory does not matter.
        folder = Path(os.path.realpath(self.options.data_dir))
        record = folder / "history.pid"
        self.port = free_port(LOOPBACK, self.options.port, PORT_SETTING)
        password = self.options.password_file
        extra = ("--password-file", os.path.realpath(password)) if password else ()
        self._child = child = processes.Child(
            processes.ChildOptions(
                argv=(
                    sys.executable, "-m", __spec__.name,
                    "--data", str(folder), "--port", str(self.port), *extra,
                ),
                log_path=self.log_path,
                environment={
                    "PATH": os.defpath,
                    "LC_ALL": "C.UTF-8",
                    "TZ": "UTC",
                    "PYTHONPATH": str(Path(infra.__path__[0]).parent),
                },
                record_path=record,
            )
        )  # fmt: skip

        def settled() -> bool:
            return child.exit_status() is not None or self._answers()

        if not processes.wait_until(settled, self.options.start_timeout_s) or (
            child.exit_status() is not None
        ):
            lines = child.log_tail().strip().splitlines() or ["it said nothing"]
            self.kill()
            raise EngineError(f"history did not start: {lines[-1]} (log: {self.log_path})")
        return self

    def stop(self) -> None:
        """Answer what is in progress, close the database, end; killed after a bound."""
        self._running().stop(signal.SIGTERM, _STOP_TIMEOUT_S)
        self._child = None

    def kill(self) -> None:
        """SIGKILL it, as a crash would."""
        self._running().kill()
        self._child = None

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection(LOOPBACK, self.port, timeout=_PING_TIMEOUT_S)
        try:
            connection.request("GET", "/ping")
            return connection.getresponse().read() == b"Ok.\n"
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


def serve(options: HistoryOptions, stop: threading.Event) -> None:
    """Own the folder and answer on the port until `stop` is set; raises EngineError.

    When run by root, gives up root for good: give it a process of its own.
    """
    # Not above: the process that starts this one must not carry 200 MB of engine.
    from infra.embedded.history_engine import HistoryEngine  # noqa: PLC0415 - as just said
    from infra.embedded.history_interface import HistoryInterface  # noqa: PLC0415 - it too

    folder = Path(os.path.realpath(options.data_dir))
    folder.mkdir(parents=True, exist_ok=True)
    password = _read_password(options.password_file)
    with (
        processes.FolderLock(folder / "lock", "history", _LOCK_TIMEOUT_S),
        listen(LOOPBACK, options.port, PORT_SETTING) as listener,
    ):
        _give_up_root(folder)
        engine = HistoryEngine(folder / "chdb")
        limits = Limits()
        interface = HistoryInterface(engine, password, limits.body_bytes_max)
        server = HttpServer(listener, interface.answer, limits)
        accepting = threading.Thread(target=server.serve, name="accept")
        accepting.start()
        stop.wait()
        server.close(_DRAIN_TIMEOUT_S)
        accepting.join(_DRAIN_TIMEOUT_S)
        engine.close()


def main(argv: list[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m infra.embedded.history")
    parser.add_argument("--data", type=Path, required=True, help="folder that holds the data")
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1; 0 for any")
    parser.add_argument("--password-file", type=Path, help="file with the password to ask for")
    words = parser.parse_args(argv)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    options = HistoryOptions(
        data_dir=words.data, port=words.port, password_file=words.password_file
    )
    try:
        serve(options, stop)
    except EngineError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _read_password(path: Path | None) -> str:
    if path is None:
        return ""
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise EngineError(f"history: cannot read the password: {error}") from error


def _give_up_root(folder: Path) -> None:
    account = account_for_root()
    if account is not None:
        let_pass(account, folder / "chdb")
        if folder.stat().st_uid != account.uid:  # new, or from a time before this account
            for path in (folder, *folder.rglob("*")):
                os.chown(path, account.uid, account.gid, follow_symlinks=False)
    folder.chmod(stat.S_IRWXU)
    if account is not None:
        become(account.uid, account.gid)


if __name__ == "__main__":
    sys.exit(main())
