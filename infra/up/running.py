"""Where the engines of a running `up` are, for commands that are given on the same data folder."""

from pathlib import Path
from typing import Final

import msgspec

from infra.embedded.processes import start_ticks
from infra.settings import Settings, replaced

FILE: Final = "up.json"


class NotRunning(Exception):
    """An engine has no address: none is set, and no `up` runs on the data folder."""


class Running(msgspec.Struct, frozen=True):
    """A running `up`: its pid, what proves that it is that process, and its engines' addresses."""

    pid: int
    start_ticks: int
    postgres: str
    kafka: str
    clickhouse: str


def write(data_dir: Path, running: Running) -> None:
    """Write it, readable by the owner only, whole or not at all."""
    write_privately(data_dir / FILE, msgspec.json.encode(running))


def forget(data_dir: Path) -> None:
    """Remove it: the engines are about to stop."""
    (data_dir / FILE).unlink(missing_ok=True)


def find(data_dir: Path) -> Running | None:
    """Return the `up` that runs on this folder, if one does."""
    try:
        found = msgspec.json.decode((data_dir / FILE).read_bytes(), type=Running)
    except (FileNotFoundError, msgspec.DecodeError):
        return None
    return found if start_ticks(found.pid) == found.start_ticks else None


def attached(settings: Settings) -> Settings:
    """Return settings with the addresses of a running `up` where none are set.

    Raises NotRunning where an address is needed and there is none.
    """
    given = (settings.postgres.url, settings.kafka.bootstrap, settings.clickhouse.url)
    if all(given):
        return settings
    found = find(settings.data_dir)
    if found is None:
        missing = ("postgres.url", "kafka.bootstrap", "clickhouse.url")
        names = ", ".join(n for n, value in zip(missing, given, strict=True) if not value)
        raise NotRunning(
            f"no address is set for {names}, and no `tocsin up` runs on {settings.data_dir}:"
            " set them, or start one"
        )
    settings = replaced(settings, "postgres", url=settings.postgres.url or found.postgres)
    settings = replaced(settings, "kafka", bootstrap=settings.kafka.bootstrap or found.kafka)
    return replaced(settings, "clickhouse", url=settings.clickhouse.url or found.clickhouse)


def write_privately(path: Path, content: bytes) -> None:
    """Replace a file by one that only its owner can read, in one step."""
    draft = path.with_name(f"{path.name}.new")
    draft.unlink(missing_ok=True)
    draft.touch(mode=0o600)
    draft.write_bytes(content)
    draft.replace(path)
