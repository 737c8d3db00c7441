"""Named secrets in what is kept of an answer, for targets that repeat what they were sent.

The history is read by more people than secrets are. A target that hides a value from us, by hex or
by its hash, can do so: this is about pages of errors and dumps of requests.
"""

import json
from base64 import b64encode
from collections.abc import Iterable
from html import escape
from typing import Final
from urllib.parse import quote

import msgspec

from commandside.deliverer_port import KEPT_BODY_BYTES, KEPT_VALUE_CHARS, Answer
from commandside.firing.reports import COMPLETION

REDACTED: Final = b"****"
MIN_BYTES: Final = len(REDACTED)
"""Shorter texts are no secrets, and would be found everywhere; so no text grows either."""
_URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")


def redacted(answer: Answer, secrets: Iterable[bytes]) -> Answer:
    """Return an answer without the secrets that its call carried."""
    if not answer.body and not answer.headers:
        return answer
    spelled = {text for secret in secrets for text in _spellings(secret)}
    found = sorted((text for text in spelled if len(text) >= MIN_BYTES), key=len, reverse=True)
    # Where it ends early, it may end within a secret.
    is_cut = bool(answer.error) or len(answer.body) >= KEPT_BODY_BYTES
    headers = tuple(
        (name, value if name == COMPLETION else _in_header(value, found))
        for name, value in answer.headers
    )
    body = _without(answer.body, found, is_cut=is_cut)
    return msgspec.structs.replace(answer, headers=headers, body=body)


def _in_header(value: str, found: list[bytes]) -> str:
    is_cut = len(value) >= KEPT_VALUE_CHARS
    # Printable characters of latin-1, as the deliverer keeps them.
    return _without(value.encode("latin-1", "replace"), found, is_cut=is_cut).decode("latin-1")


def _spellings(secret: bytes) -> set[bytes]:
    """Return a secret as it may be repeated: as it is, in base64, in JSON, in a URL, in a page."""
    _, _, password = secret.partition(b":")
    standard = b64encode(secret)
    # Without their padding, which says nothing.
    coded = {standard.rstrip(b"="), standard.translate(_URL_SAFE).rstrip(b"=")}
    texts = [text.decode("ascii") for text in {secret, password, *coded}]
    found: set[str] = set()
    for text in texts:
        quoted = json.dumps(text)[1:-1]
        found |= {text, quoted, quoted.replace("/", "\\/"), quote(text, safe=""), escape(text)}
    return {text.encode() for text in found}


def _without(text: bytes, found: list[bytes], *, is_cut: bool) -> bytes:
    """Replace what was found, the longest first."""
    if is_cut:
        for secret in found:
            place = _begun(text, secret)
            if place >= 0:
                text = text[:place] + REDACTED
                break
    for secret in found:
        text = text.replace(secret, REDACTED)
    return text


def _begun(text: bytes, secret: bytes) -> int:
    """Return where a text ends with the beginning of a secret, -1 if it does not."""
    first = secret[:MIN_BYTES]
    place = text.find(first, max(0, len(text) - len(secret) + 1))
    while place >= 0 and not secret.startswith(text[place:]):
        place = text.find(first, place + 1)
    return place
