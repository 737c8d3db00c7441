"""The idempotency key of an occurrence: one key for all its attempts, and for it alone.

A template is text with the two placeholders, each exactly once; whatever else is substituted by
`str.format` (attributes, indices, widths) is not part of the language.
"""

import re
from typing import Final

import msgspec

from domain.ids import OWN_KEY_BYTES
from domain.refusal import Refused

TEMPLATE_BYTES_MAX: Final = 200
_JOB: Final = "{job_id}"
_INSTANT: Final = "{scheduled_ts}"
_LITERAL = re.compile(r"[A-Za-z0-9_-]*")


class Template(msgspec.Struct, frozen=True, array_like=True):
    """A checked template; made by `parse_template` only."""

    text: str


DEFAULT_TEMPLATE: Final = Template("job-{job_id}-run-{scheduled_ts}")


def parse_template(text: str) -> Template | Refused:
    """Check a template; a key made of it is at most 239 bytes of `[A-Za-z0-9_-]`."""
    pointer = "/idempotency_key_template"
    if len(text) > TEMPLATE_BYTES_MAX:
        return Refused(pointer, f"at most {TEMPLATE_BYTES_MAX} bytes")
    if text.count(_JOB) != 1 or text.count(_INSTANT) != 1:
        return Refused(pointer, f"{_JOB} and {_INSTANT} must each be there exactly once")
    if not _LITERAL.fullmatch(text.replace(_JOB, "", 1).replace(_INSTANT, "", 1)):
        return Refused(
            pointer, f"only letters, digits, '_' and '-' are allowed beside {_JOB} and {_INSTANT}"
        )
    return Template(text)


def manual_suffix(run_id: bytes) -> str:
    """Return what sets the key of a manual or forced run apart from the slot at its instant.

    The id's last bytes: its first ones are the instant, which two such runs may share.
    """
    return f"-m-{run_id[-OWN_KEY_BYTES:].hex()}"


def render(template: Template, job_text_id: str, scheduled_ts: int, suffix: str = "") -> str:
    """Make the key; `scheduled_ts` is the nominal instant in milliseconds of the epoch."""
    return template.text.replace(_JOB, job_text_id, 1).replace(
        _INSTANT, f"{scheduled_ts}{suffix}", 1
    )
