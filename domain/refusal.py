"""What a parser answers instead of a value: which field is wrong, and what would be right."""

import msgspec


class Refused(msgspec.Struct, frozen=True):
    """One refused field: `pointer` is a JSON pointer into the body, `detail` says what is right."""

    pointer: str
    detail: str
    value: str = ""
    """What was given, as JSON, cut; empty where that is not said."""


def token(name: str) -> str:
    """Return a member's name as a JSON pointer has it (RFC 6901)."""
    return name.replace("~", "~0").replace("/", "~1")
