"""The master keys that a process has: the one in force, and while it changes the other one."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from commandside.ports import Unavailable
from infra.clock import mono_us
from infra.keys.kms import KmsMaster
from infra.keys.local import LocalMaster, from_file, from_text
from infra.keys.port import MasterKey
from infra.settings import Settings

READ_AGAIN_US: Final = 1_000_000
"""A name that is not known is looked for again after this: its file may have come meanwhile."""


class MasterMissing(Unavailable):
    """A key is under a master key that this process does not have, or not yet."""


class Masters:
    """Master keys by name; those in files are read again where a name is not known."""

    def __init__(self, read: Callable[[], Sequence[MasterKey]]) -> None:
        """`read` returns the keys there are now, the current one first."""
        self._read = read
        self._keys = tuple(read())
        self._read_us = mono_us()

    @property
    def current(self) -> MasterKey:
        """The first one."""
        return self._keys[0]

    @property
    def following(self) -> MasterKey | None:
        """The one that is changed over to, where there is one."""
        return self._keys[1] if len(self._keys) > 1 else None

    def read_again(self) -> None:
        """Look what there is now; raises MasterKeyError, Unavailable."""
        self._keys = tuple(self._read())
        self._read_us = mono_us()

    def named(self, name: str) -> MasterKey:
        """Return a key by its name; raises MasterMissing, MasterKeyError, Unavailable."""
        found = self._found(name)
        if found is None and mono_us() - self._read_us >= READ_AGAIN_US:
            self.read_again()
            found = self._found(name)
        if found is None:
            raise MasterMissing(f"the master key {name} is not one that this process has")
        return found

    def _found(self, name: str) -> MasterKey | None:
        return next((key for key in self._keys if key.name == name), None)


def one_master(key: bytes) -> Masters:
    """Return a single key that is held here."""
    return Masters(lambda: (LocalMaster(key),))


def following_file(settings: Settings) -> Path:
    """Return where the master key that is changed over to is, unless settings say another place."""
    file = settings.master_file
    return file.with_name(file.name + ".next")


def masters_of(settings: Settings, *, create: bool = False) -> Masters:
    """Return the master keys that the settings name; raises MasterKeyError, Unavailable.

    With `create`, a file of the current one is made where there is none.
    """
    keys = settings.keys
    kms: dict[str, KmsMaster] = {}

    def in_kms(name: str) -> KmsMaster:
        if name not in kms:
            kms[name] = KmsMaster(name, region=keys.kms_region, endpoint=keys.kms_endpoint)
        return kms[name]

    def read() -> list[MasterKey]:
        found: list[MasterKey] = []
        if keys.master_kms:
            found.append(in_kms(keys.master_kms))
        elif keys.master_key:
            found.append(from_text(keys.master_key))
        else:
            found.append(from_file(settings.master_file, create=create))
        if keys.next_kms:
            found.append(in_kms(keys.next_kms))
        elif keys.next_key:
            found.append(from_text(keys.next_key))
        elif keys.next_file:
            found.append(from_file(Path(keys.next_file)))
        elif settings.has_master_file and following_file(settings).exists():
            found.append(from_file(following_file(settings)))
        return found

    return Masters(read)


def where(settings: Settings) -> str:
    """Return which setting says what the current master key is, for people."""
    keys = settings.keys
    if keys.master_kms:
        return f"KMS key {keys.master_kms}"
    return "keys.master_key" if keys.master_key else str(settings.master_file)
