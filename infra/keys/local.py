"""Master keys that this process holds itself: in a file, or a text of its environment."""

import base64
import os
import stat
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from domain.opaque import subkey
from infra.ids import new_secret
from infra.keys.port import KEY_BYTES, MasterKeyError, WrongMaster

NONCE_BYTES: Final = 12
NAME_BYTES: Final = 8


def wrap(cipher: AESGCM, key: bytes, context: bytes) -> bytes:
    """Return a key under a cipher: `nonce (12) | AES-GCM`, with the context as associated data."""
    nonce = os.urandom(NONCE_BYTES)
    return nonce + cipher.encrypt(nonce, key, context)


def unwrap(cipher: AESGCM, wrapped: bytes, context: bytes) -> bytes:
    """Return the key again; raises WrongMaster."""
    try:
        return cipher.decrypt(wrapped[:NONCE_BYTES], wrapped[NONCE_BYTES:], context)
    except (InvalidTag, ValueError) as error:
        raise WrongMaster("the bytes were not wrapped by this key in this context") from error


class LocalMaster:
    """`infra.keys.port.MasterKey` of 32 bytes."""

    def __init__(self, key: bytes) -> None:
        assert len(key) == KEY_BYTES
        self.key = key
        self._cipher = AESGCM(key)
        self.name = f"local:{subkey(key, 'master name')[:NAME_BYTES].hex()}"

    def wrap(self, key: bytes, context: bytes) -> bytes:
        """Return a key wrapped."""
        return wrap(self._cipher, key, context)

    def unwrap(self, wrapped: bytes, context: bytes) -> bytes:
        """Return it again; raises WrongMaster."""
        return unwrap(self._cipher, wrapped, context)


def from_file(path: Path, *, create: bool = False) -> LocalMaster:
    """Return the key in `path`; with `create`, make an owner-only file where there is none."""
    try:
        if create and not path.exists():
            _create(path)
        mode = path.stat().st_mode
        key = path.read_bytes()
    except OSError as error:
        raise MasterKeyError(
            f"master key {path}: {error.strerror}; keys.master_file says where it is"
        ) from error
    if stat.S_IMODE(mode) & 0o077:
        raise MasterKeyError(f"master key {path} is readable by others; run chmod 600 on it")
    if len(key) != KEY_BYTES:
        raise MasterKeyError(f"master key {path} has {len(key)} bytes; it must have {KEY_BYTES}")
    return LocalMaster(key)


def from_text(text: str) -> LocalMaster:
    """Return the key of a base64 text, which the settings have judged."""
    return LocalMaster(base64.b64decode(text, validate=True))


def _create(path: Path) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(handle, new_secret())
        os.fsync(handle)
    finally:
        os.close(handle)
