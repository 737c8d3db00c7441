"""The one error of a request that is not to be trusted or not to be understood."""

from typing import Final, Literal

Reason = Literal[
    "missing", "repeated", "malformed", "too_old", "too_new", "forged", "too_large", "cut_off"
]
"""Words for logs and metrics: few, fixed, and never what the request said."""

_STATUS: Final[dict[Reason, int]] = {
    "missing": 401,
    "repeated": 400,
    "malformed": 400,
    "too_old": 401,
    "too_new": 401,
    "forged": 401,
    "too_large": 413,
    "cut_off": 400,
}


class Refused(Exception):
    """A request that is refused; `detail` says what is wrong and what would be right."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason: Reason = reason
        self.detail = detail

    @property
    def status(self) -> int:
        """The HTTP status that says so; Tocsin does not repeat such a call by itself."""
        return _STATUS[self.reason]
