"""Answers of the routes that are asked seldom; those of definitions are made in `routes`."""

from typing import Final

import msgspec
from litestar.response.base import ASGIResponse

_ENCODE: Final = msgspec.json.Encoder().encode


def answer(
    shown: msgspec.Struct, status: int = 200, headers: dict[str, str] | None = None
) -> ASGIResponse:
    """Return a struct as JSON."""
    return ASGIResponse(
        body=_ENCODE(shown),
        status_code=status,
        headers=headers,
        media_type="application/json",
    )
