"""What is wrong with settings that no type can say: section, name and reason of each."""

import base64
import binascii
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from domain.refusal import Refused
from domain.target import is_host_rule, parse_range
from infra.faults import fault_point

if TYPE_CHECKING:
    from infra.settings import Keys, Payloads, Settings

STORE_SCHEMES: Final = ("file", "s3", "gs", "az", "abfs", "abfss")
MASTER_KEY_BYTES: Final = 32
TARGET_PORT_MIN: Final = 1_024
TARGET_PORT_MAX: Final = 65_535


def refusals(settings: "Settings") -> Iterator[tuple[str, str, str]]:
    """Yield section, name and reason of what no type can say."""
    for name, ranges in (("allow", settings.targets.allow), ("deny", settings.targets.deny)):
        for text in ranges:
            found = parse_range(text)
            if isinstance(found, Refused):
                yield "targets", name, found.detail
    for port in settings.targets.ports:
        if not TARGET_PORT_MIN <= port <= TARGET_PORT_MAX:
            yield "targets", "ports", f"{port}: from {TARGET_PORT_MIN} to {TARGET_PORT_MAX}"
    for port in settings.targets.closed_ports:
        if not 1 <= port <= TARGET_PORT_MAX:
            yield "targets", "closed_ports", f"{port}: from 1 to {TARGET_PORT_MAX}"
    targets = settings.targets
    for name, texts in (("hosts", targets.hosts), ("http2_hosts", targets.http2_hosts)):
        for text in texts:
            if not is_host_rule(text):
                detail = f"{text!r}: a name in lower case, or '*.' and what names end in"
                yield "targets", name, detail
    yield from _refused_store(settings.payloads)
    yield from _refused_keys(settings.keys)
    try:
        fault_point(settings.fault.point)
    except ValueError as error:
        yield "fault", "point", str(error)


def _refused_store(payloads: "Payloads") -> Iterator[tuple[str, str, str]]:
    store = urlsplit(payloads.store)
    if payloads.store and store.scheme not in STORE_SCHEMES:
        yield "payloads", "store", f"a URL that begins with one of {', '.join(STORE_SCHEMES)}://"
    elif store.scheme == "file" and (store.netloc or not store.path.startswith("/")):
        yield "payloads", "store", "a folder is file:/// and its absolute path"
    elif store.scheme not in ("", "file") and not store.netloc:
        yield "payloads", "store", f"{store.scheme}:// is followed by the name of a bucket"
    if payloads.endpoint and store.scheme != "s3":
        yield "payloads", "endpoint", "only with a payloads.store that begins with s3://"
    elif payloads.endpoint and urlsplit(payloads.endpoint).scheme not in ("http", "https"):
        yield "payloads", "endpoint", "an address that begins with http:// or https://"


def _refused_keys(keys: "Keys") -> Iterator[tuple[str, str, str]]:
    for which in ("master", "next"):
        names = [f"{which}_{kind}" for kind in ("file", "key", "kms")]
        given = [name for name in names if getattr(keys, name)]
        if len(given) > 1:
            yield "keys", given[1], f"there is keys.{given[0]} already: one of {', '.join(names)}"
        text = getattr(keys, f"{which}_key")
        if text and not is_master_key(text):
            # The text is a secret: it is not repeated.
            yield "keys", f"{which}_key", "32 bytes as base64, which are 44 characters"


def is_master_key(text: str) -> bool:
    """Tell whether a text is a master key as base64."""
    try:
        return len(base64.b64decode(text, validate=True)) == MASTER_KEY_BYTES
    except (binascii.Error, ValueError):
        return False
