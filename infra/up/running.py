"""Where the engines of a running `up` are, for commands that are given on the same data folder."""

from pathlib import Path
from typing import Final

import msgspec

from infra.embedded.processes import start_ticks
from infra.settings import Settings, replaced

FILE: Final = "up.json"
POSTGRES: Final = ("postgres", "url")
KAFKA: Final = ("kafka", "bootstrap")
CLICKHOUSE: Final = ("clickhouse", "url")


class NotRunning(Exception):
    """An engine has no address: none is set, and no `up` runs on the data folder."""


class Running(msgspec.Struct, frozen=True):
    """A running `up`: its pid, what proves that it is that process, and where everything is."""

    pid: int
    start_ticks: int
    ops: str
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


def attached(settings: Settings, *needed: tuple[str, str]) -> Settings:
    """Return settings with the addresses of a running `up` where none are set.

    `needed` are some of POSTGRES, KAFKA and CLICKHOUSE; raises NotRunning where one of them has no
    address.
    """
    found = find(settings.data_dir)
    if found is not None:
        for section, name, address in (
            (*POSTGRES, found.postgres),
            (*KAFKA, found.kafka),
            (*CLICKHOUSE, found.clickhouse),
        ):
            if not getattr(getattr(settings, section), name):
                settings = replaced(settings, section, **{name: address})
    missing = [
        f"{section}.{name}"
        for section, name in needed
        if not getattr(getattr(settings, section), name)
    ]
    if missing:
        raise NotRunning(
            f"no address is set for {', '.join(missing)}, and no `tocsin up` runs on"
            f" {settings.data_dir}: set them, or start one"
        )
    return settings


def write_privately(path: Path, content: bytes) -> None:
    """Replace a file by one that only its owner can read, in one step."""
    draft = path.with_name(f"{path.name}.new")
    draft.unlink(missing_ok=True)
    draft.touch(mode=0o600)
    draft.write_bytes(content)
    draft.replace(path)
