"""The value that a refusal is about, in few characters, as the body has it.

Header values and payloads are never repeated, nor what an unknown field holds, nor a URL with a
password or a query: answers are kept in logs.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from domain.callback import NAMES
from domain.problem import Reason
from domain.refusal import Refused
from domain.strict_json import shown

_TARGETS: Final = ("target", *NAMES)
_SILENT: Final = (
    "/payload",
    "/content_type",
    *(f"/{name}/{field}" for name in _TARGETS for field in ("headers", "credentials")),
)
_URLS: Final = frozenset(f"/{name}/url" for name in _TARGETS)
_SHORT: Final = 40


def with_values(wrong: Iterable[Reason], body: Mapping[str, Any]) -> list[Reason]:
    """Return the refusals, each with what the body has at its pointer if that is one value."""
    return [
        Refused(one.pointer, one.detail, _value(one.pointer, body) if _known(one) else "")
        for one in wrong
    ]


def _known(one: Reason) -> bool:
    """Tell whether it is about a value: what an unknown field holds may be a secret."""
    return one.pointer.startswith("/") and not one.detail.startswith("unknown field")


def _value(pointer: str, body: Mapping[str, Any]) -> str:
    """Return JSON, cut; empty for what is not there, has parts, or may be secret."""
    if pointer.startswith(_SILENT):
        return ""
    found: Any = body
    for part in pointer[1:].split("/"):
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        elif isinstance(found, Mapping) and name in found:
            found = found[name]
        else:
            return ""
    if pointer in _URLS and not {"@", "?"}.isdisjoint(str(found)):
        return ""
    if isinstance(found, str):
        return shown(found)
    return "" if isinstance(found, Mapping | list) else json.dumps(found)[:_SHORT]
