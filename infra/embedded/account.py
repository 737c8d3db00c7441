"""Which account an engine runs as that refuses root, and how it reaches its files.

Postgres refuses to run as root. For root it therefore runs as an ordinary account, which must be
able to pass through the folders above its files; root's home and temporary folders are usually
closed to it. Opening those to everybody (as `chmod o+x` would) gives away more than is needed, so
exactly that account gets exactly the right to pass, by an access control list.
"""

import os
import pwd
import stat
import struct
from pathlib import Path

from infra.embedded.errors import EngineError
from infra.embedded.processes import Account

# An operator who wants the engine's files apart from those of `nobody` creates the first one.
_ACCOUNT_NAMES = ("tocsin", "nobody")

_ACL_ATTRIBUTE = "system.posix_acl_access"
_ACL_VERSION = 2
_ENTRY = struct.Struct("<HHI")  # tag, permissions, id
_USER_OBJ, _USER, _GROUP_OBJ, _GROUP, _MASK, _OTHER = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20
_NO_ID = 0xFFFFFFFF
_PASS = 0x1


def account_for_root() -> Account | None:
    """The account engines run as when we are root; None when we are not, and run as ourselves."""
    if os.geteuid() != 0:
        return None
    for name in _ACCOUNT_NAMES:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(name, entry.pw_uid, entry.pw_gid)
    message = (
        "Postgres cannot run as root, and there is no account to run it as:"
        f" create one with 'useradd --system {_ACCOUNT_NAMES[0]}'"
    )
    raise EngineError(message)


def let_pass(account: Account, path: Path) -> None:
    """Let the account pass through every folder above `path` (absolute, without symbolic links)."""
    for folder in path.parents:
        if not _may_pass(account, folder):
            _grant(account, folder)


def _may_pass(account: Account, folder: Path) -> bool:
    status = folder.stat()
    if status.st_uid == account.uid:
        return bool(status.st_mode & stat.S_IXUSR)
    entries = _read_acl(folder)
    # A later chmod of the folder leaves our entry and takes its effect away, by the mask.
    mask = next((permissions for tag, permissions, _ in entries if tag == _MASK), 7)
    for tag, permissions, identity in entries:
        if tag == _USER and identity == account.uid:
            return bool(permissions & mask & _PASS)
    return bool(status.st_mode & stat.S_IXOTH)


def _grant(account: Account, folder: Path) -> None:
    entries = _read_acl(folder) or _acl_of_mode(stat.S_IMODE(folder.stat().st_mode))
    kept = [e for e in entries if (e[0], e[2]) != (_USER, account.uid) and e[0] != _MASK]
    kept.append((_USER, _PASS, account.uid))
    mask = 0
    for tag, permissions, _identity in kept:
        if tag in (_USER, _GROUP_OBJ, _GROUP):
            mask |= permissions
    kept.append((_MASK, mask, _NO_ID))
    kept.sort(key=lambda entry: (entry[0], entry[2]))
    packed = struct.pack("<I", _ACL_VERSION) + b"".join(_ENTRY.pack(*entry) for entry in kept)
    try:
        os.setxattr(folder, _ACL_ATTRIBUTE, packed)
    except (OSError, AttributeError) as error:
        message = (
            f"Postgres runs as account '{account.name}' (it refuses root), which may not pass"
            f" through {folder}: run 'chmod o+x {folder}' or choose another data folder"
        )
        raise EngineError(message) from error


def _read_acl(folder: Path) -> list[tuple[int, int, int]]:
    try:
        packed = os.getxattr(folder, _ACL_ATTRIBUTE)
    except (OSError, AttributeError):
        return []  # no list, or a file system without lists: the mode says it all
    return [_ENTRY.unpack(packed[at : at + _ENTRY.size]) for at in range(4, len(packed), 8)]


def _acl_of_mode(mode: int) -> list[tuple[int, int, int]]:
    return [
        (_USER_OBJ, mode >> 6 & 7, _NO_ID),
        (_GROUP_OBJ, mode >> 3 & 7, _NO_ID),
        (_OTHER, mode & 7, _NO_ID),
    ]
