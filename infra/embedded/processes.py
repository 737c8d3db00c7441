"""Start engine processes that do not outlive their supervisor, and reap those that did.

Invariants: a process is signalled only when it is a child of ours that we have not waited for, or
when /proc proves that it is the one an earlier supervisor recorded (boot, start time and command
line all equal), so a reused pid is never hit. A data folder has one supervisor at a time: the
holder of its lock. The lock and not the record decides who may reap.
"""

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple, Self

import msgspec

from infra.embedded.errors import EngineError

# Engines answer within milliseconds once up; a slower poll would only lengthen every start.
_POLL_S = 0.02
# After SIGKILL only the kernel's own work is left; a process in disk wait may take seconds.
_KILL_WAIT_S = 10.0
# One old log is kept, so that a folder's logs stay below about twice this.
_LOG_BYTES_MAX = 16 * 1024 * 1024
_TAIL_BYTES = 8 * 1024
_TETHER = Path(__file__).with_name("tether.py")
_START_TIME_FIELD = 19  # of /proc/PID/stat, counted after the parenthesised name


class Account(NamedTuple):
    """The operating-system account an engine runs as."""

    name: str
    uid: int
    gid: int


class ChildOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to run. `environment` is the child's whole environment: nothing is inherited."""

    argv: tuple[str, ...]
    log_path: Path
    cwd: Path = Path("/")
    environment: Mapping[str, str] = {}
    account: Account | None = None
    death_signal: int = signal.SIGKILL
    record_path: Path | None = None


class Record(msgspec.Struct, frozen=True):
    """What proves, to a later supervisor, that a process is the one we started."""

    pid: int
    boot_id: str
    start_ticks: int
    argv: tuple[str, ...]


class Child:
    """A running engine process that is a child of this one."""

    def __init__(self, options: ChildOptions) -> None:
        """Start the process; raises EngineError when it cannot be executed."""
        self.options = options
        account = options.account
        tether = (
            sys.executable,
            "-I",
            "-S",
            str(_TETHER),
            str(int(options.death_signal)),
            str(os.getpid()),
            str(account.uid if account else -1),
            str(account.gid if account else -1),
        )
        with _open_log(options.log_path) as log:
            try:
                self._process = subprocess.Popen(  # noqa: S603 - argv is ours, no shell
                    tether + options.argv,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=options.cwd,
                    env=dict(options.environment),
                    # Ctrl-C at the terminal is the supervisor's to hand down, in its order.
                    start_new_session=True,
                )
            except OSError as error:
                message = f"cannot run {options.argv[0]}: {error}"
                raise EngineError(message) from error
        if options.record_path is not None:
            _write_record(options.record_path, self.pid, options.argv)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def exit_status(self) -> int | None:
        """The exit status (negative for a signal), or None while it runs."""
        return self._process.poll()

    def log_tail(self) -> str:
        """The last kilobytes of the log, for naming what went wrong."""
        return read_tail(self.options.log_path)

    def rss_bytes(self) -> int:
        """Resident memory in bytes; 0 once the process has ended."""
        return rss_bytes(self.pid)

    def stop(self, signal_number: int, timeout_s: float) -> bool:
        """Ask to end, wait, then SIGKILL; True when it ended without being killed."""
        polite = True
        if self._process.poll() is None:
            self._process.send_signal(signal_number)
            try:
                self._process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                polite = False
                self.kill()
        self._forget()
        return polite

    def kill(self) -> None:
        """SIGKILL and wait; raises EngineError if the kernel does not let it go."""
        if self._process.poll() is None:
            self._process.kill()
            try:
                self._process.wait(_KILL_WAIT_S)
            except subprocess.TimeoutExpired as error:
                message = f"process {self.pid} ({self.options.argv[0]}) survived SIGKILL"
                raise EngineError(message) from error
        self._forget()

    def _forget(self) -> None:
        if self.options.record_path is not None:
            self.options.record_path.unlink(missing_ok=True)


class FolderLock:
    """Exclusive use of a data folder, released by the kernel when this process ends."""

    def __init__(self, path: Path, engine: str, timeout_s: float = 0.0) -> None:
        """Take the lock; raises EngineError naming the holder when it is taken after timeout_s."""
        self._file = path.open("a+", encoding="ascii")
        if not wait_until(self._try_lock, timeout_s):
            self._file.seek(0)
            holder = self._file.read(20).strip() or "unknown"
            self._file.close()
            message = f"{engine}: the folder {path.parent} is in use by process {holder}"
            raise EngineError(message)
        self._file.truncate(0)
        self._file.write(f"{os.getpid()}\n")
        self._file.flush()

    def _try_lock(self) -> bool:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def release(self) -> None:
        """Give the folder back."""
        self._file.close()

    def __enter__(self) -> Self:
        """Return the lock, already held."""
        return self

    def __exit__(self, *_exc: object) -> None:
        """Release."""
        self.release()


def reap(record_path: Path, timeout_s: float, signal_number: int = signal.SIGTERM) -> int | None:
    """End what an earlier supervisor left; the pid that was ended, or None if nothing was ours.

    The caller holds the folder's lock. Asks with `signal_number`, and kills after timeout_s.
    """
    try:
        record = msgspec.json.decode(record_path.read_bytes(), type=Record)
    except (FileNotFoundError, msgspec.DecodeError):
        # A torn record is one whose writer died while writing: its child died by the tether.
        record_path.unlink(missing_ok=True)
        return None

    def ours() -> bool:
        return (
            record.boot_id == boot_id()
            and start_ticks(record.pid) == record.start_ticks
            and _same_command(command_line(record.pid), record.argv)
        )

    reaped = record.pid if ours() else None
    if reaped is not None:
        end_foreign(reaped, ours, timeout_s, signal_number)
    record_path.unlink(missing_ok=True)
    return reaped


def end_foreign(
    pid: int, still_ours: Callable[[], bool], timeout_s: float, signal_number: int
) -> None:
    """Signal a process that is not our child, then SIGKILL it; raises EngineError if it stays."""
    for number, patience_s in ((signal_number, timeout_s), (signal.SIGKILL, _KILL_WAIT_S)):
        if not still_ours():
            return
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return
        except PermissionError as error:
            message = f"process {pid} of an earlier run belongs to another user: end it by hand"
            raise EngineError(message) from error
        if wait_until(lambda: not still_ours(), patience_s):
            return
    message = f"process {pid} of an earlier run does not end"
    raise EngineError(message)


def wait_until(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Poll until the condition holds; False when timeout_s passed first."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_S)
    return True


def boot_id() -> str:
    """The kernel's id of this boot; empty where there is no /proc, which proves nothing."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def start_ticks(pid: int) -> int | None:
    """When the process started, in clock ticks since boot; None if it is gone or a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[_START_TIME_FIELD])


def command_line(pid: int) -> tuple[str, ...]:
    """The arguments of a process; empty if it is gone or hides them."""
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ()
    return tuple(os.fsdecode(word) for word in raw.rstrip(b"\0").split(b"\0"))


def children(pid: int) -> tuple[int, ...]:
    """The direct children of a process, as far as /proc tells."""
    try:
        words = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    except OSError:
        return ()
    return tuple(int(word) for word in words)


def rss_bytes(*pids: int) -> int:
    """Resident memory in bytes; pages shared with other processes are counted once, at most."""
    private = shared_max = 0
    for pid in pids:
        try:
            words = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()
        except OSError:
            continue  # it ended since its pid was read
        resident, shared = int(words[1]), int(words[2])
        private += resident - shared
        shared_max = max(shared_max, shared)
    return (private + shared_max) * os.sysconf("SC_PAGE_SIZE")


def read_tail(path: Path) -> str:
    """The last kilobytes of a text file; empty if there is none."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - _TAIL_BYTES))
            return file.read().decode("utf-8", errors="replace")
    except OSError:
        return ""


def _open_log(path: Path) -> BinaryIO:
    # Rotated at a start only: a running engine keeps its file.
    if path.exists() and path.stat().st_size > _LOG_BYTES_MAX:
        path.replace(path.with_name(path.name + ".old"))
    return path.open("ab")


def _write_record(path: Path, pid: int, argv: Sequence[str]) -> None:
    record = Record(pid, boot_id(), start_ticks(pid) or 0, tuple(argv))
    draft = path.with_name(path.name + ".new")
    draft.write_bytes(msgspec.json.encode(record))
    draft.replace(path)


def _same_command(actual: Sequence[str], recorded: Sequence[str]) -> bool:
    # Until its exec, the process still shows the tether's words in front of the command's.
    return len(recorded) > 0 and tuple(actual[-len(recorded) :]) == tuple(recorded)
