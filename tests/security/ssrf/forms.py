"""The corpus: URLs that must not be called, names that lead inside, and URLs that must work.

One form a line, in `closed.jsonl`, `inside.jsonl` and `open.jsonl`. `names` are the answers of each
name, which take turns, with the addresses of each; or `@` and the name that it is an alias of.
"""

import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec

from tests.engines.name_server import NameServer, Says

HERE: Final = Path(__file__).parent
_AUTHORITY: Final = re.compile(r"[^/]*/*([^/?#]*)")
_PORT: Final = re.compile(r"(.*?):([0-9]{0,5})$", re.DOTALL)
TURNS: Final = 4
"""Calls of a name: more than it has turns."""


class Form(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line."""

    family: str
    url: str
    names: dict[str, list[list[str]] | str] = {}
    redirect: str = ""
    status: int = 0


def forms(file: str) -> list[Form]:
    """Return the lines of a file."""
    lines = (HERE / f"{file}.jsonl").read_text("ascii").splitlines()
    return [msgspec.json.decode(line, type=Form) for line in lines]


def tell(server: NameServer, form: Form) -> None:
    """Let a name server say what a form wants."""
    for name in form.names:
        links, turns = _resolved(form, name)
        for kind in ("A", "AAAA"):
            server.tell(name, kind, *(Says((*links, *_records(turn, kind))) for turn in turns))


def _resolved(form: Form, name: str) -> tuple[list[str], list[list[str]]]:
    """Return the aliases of a name as lines, and the records at their end, by turn."""
    links: list[str] = []
    while isinstance(found := form.names[name], str):
        after = found.removeprefix("@")
        links.append(f"{name} 0 CNAME {after}.")
        name = after
    return links, [[f"{name} {address}" for address in turn] for turn in found]


def _records(turn: list[str], kind: str) -> Iterator[str]:
    for one in turn:
        name, address = one.split(" ")
        if (":" in address) == (kind == "AAAA"):
            yield f"{name} 0 {kind} {address}"


def readings(url: str) -> Iterator[tuple[str, int]]:
    """Yield the hosts and ports that some parser might find in a URL."""
    found = {url, unicodedata.normalize("NFKC", url), unquote(url)}
    found |= {re.sub(r"[\t\r\n]", "", one).strip() for one in found}
    places: set[tuple[str, int]] = set()
    for one in found | {one.replace("\\", "/") for one in found}:
        try:
            parts = urlsplit(one)
            places.add((parts.hostname or "", parts.port or 80))
        except ValueError:
            pass
        match = _AUTHORITY.match(one)
        if match is not None:
            for text in (match[1], match[1].rpartition("@")[2], match[1].partition("@")[0]):
                host = _PORT.match(text)
                places.add((host[1], int(host[2] or 80)) if host else (text, 80))
    for name, number in sorted(places):
        text = name.removeprefix("[").removesuffix("]")
        if text and text.isascii() and "\0" not in text:
            yield text, number
