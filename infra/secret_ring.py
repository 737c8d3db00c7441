"""The secrets of one tenant in memory, opened and ready for use."""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from commandside.secret_port import SecretMissing
from infra.signing import Signer, signature, signer

FOR_EVER: Final = 0
_SIGNING: Final = b"signing key %d"
_NAMED: Final = b"secret "


def owner_of_key(key_id: int) -> bytes:
    """Return what a sealed signing key is bound to, beside its tenant."""
    return _SIGNING % key_id


def owner_of_secret(name: str) -> bytes:
    """Return what a sealed secret is bound to, beside its tenant."""
    return _NAMED + name.encode()


class OpenKey(msgspec.Struct, frozen=True):
    """A signing key, opened; `expires_s` 0 for never."""

    key_id: int
    scheme: int
    key: bytes
    expires_s: int = FOR_EVER


class Ring:
    """Signs calls of a tenant, and knows its secrets by name."""

    __slots__ = ("_named", "_until", "_used")

    def __init__(self, keys: Iterable[OpenKey], named: Mapping[str, bytes]) -> None:
        newest_first = sorted(keys, key=lambda key: -key.key_id)
        self._until = [(key.expires_s, signer(key.scheme, key.key)) for key in newest_first]
        self._named = named
        self._used: tuple[int, list[Signer]] = (-1, [])

    def sign(self, key: str, seconds: int, body: bytes) -> bytes:
        """Return the signatures of the keys in force, newest first; empty without any."""
        if not self._until:
            return b""
        if self._used[0] != seconds:
            live = [sign for until, sign in self._until if not until or until > seconds]
            self._used = seconds, live
        return signature(self._used[1], key, seconds, body)

    def value(self, name: str) -> bytes:
        """Return a secret; raises SecretMissing."""
        found = self._named.get(name)
        if found is None:
            raise SecretMissing(f"there is no secret {name!r}")
        return found
