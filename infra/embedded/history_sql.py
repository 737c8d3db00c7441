"""Where an INSERT's statement ends and its data begins.

Over HTTP the two come in one text; the engine wants them apart. Only the words before the data are
read, and only as far as is needed to find `FORMAT name` outside of quotes, comments and brackets.
"""

import re
from typing import NamedTuple

# A statement this long before its data is not one of ours; the scan ends there.
_HEAD_BYTES_MAX = 256 * 1024

_TOKEN = re.compile(
    rb"""
      (?P<skip>  \s+ | --[^\n]* | /\*.*?\*/ )
    | (?P<quoted> '(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*" | `(?:[^`\\]|\\.|``)*` )
    | (?P<word>  \w+ )
    | (?P<other> . )
    """,
    re.DOTALL | re.VERBOSE,
)
# ClickHouse: blanks after the format's name are skipped, and then one line end.
_BEFORE_DATA = re.compile(rb"[ \t\f]*\r?\n?")
_FORMAT_AT_END = re.compile(rb"\bformat\s+(\w+)\s*;?\s*$", re.IGNORECASE)
_FORMAT_TAIL_BYTES = 200
_QUOTES = frozenset((b"'", b'"', b"`"))
# Behind these an INSERT has no separate data: the engine reads the whole text.
_NO_DATA_WORDS = frozenset((b"select", b"values", b"with", b"infile", b"watch"))


class Insert(NamedTuple):
    """An INSERT taken apart: its statement without FORMAT, the format, and the data."""

    statement: str
    format: str
    data: bytes


def split_insert(text: bytes) -> Insert | None:
    """Take an `INSERT ... FORMAT name data` apart; None for every other text."""
    depth = 0
    words_seen = 0
    after_format = False
    format_at = 0
    for token in _TOKEN.finditer(text, 0, min(len(text), _HEAD_BYTES_MAX)):
        kind, value = token.lastgroup, token.group()
        if kind == "word" and depth == 0:
            word = value.lower()
            words_seen += 1
            if words_seen == 1 and word != b"insert":
                return None
            if after_format:
                data_at = _data_start(text, token.end())
                statement = text[:format_at].decode("utf-8", errors="replace")
                return Insert(statement, value.decode("ascii", errors="replace"), text[data_at:])
            if word in _NO_DATA_WORDS:
                return None
            after_format = word == b"format"
            format_at = token.start()
        elif kind in {"other", "quoted"}:
            if value in _QUOTES:  # opened and never closed: nothing behind it can be told apart
                return None
            after_format = False
            depth += (value in b"([{") - (value in b")]}") if kind == "other" else 0
    return None


def output_format(text: bytes, default: str) -> str:
    """The name behind a final FORMAT of a query, or the default."""
    found = _FORMAT_AT_END.search(text[-_FORMAT_TAIL_BYTES:])
    return found.group(1).decode("ascii", errors="replace") if found else default


def _data_start(text: bytes, end_of_name: int) -> int:
    blanks = _BEFORE_DATA.match(text, end_of_name)
    return blanks.end() if blanks else end_of_name
