"""The bytes of every event, as they were first written. What is stored is read for ever.

A line of `events.txt` is a name and the bytes of that event in hex. Lines are added for new events
and new fields; a line that is there never changes.
"""

from pathlib import Path
from typing import Final

import msgspec
import pytest

from domain.catalogue import NAMES, TYPES, decode, encode
from domain.run.events import Leased
from tests.domain.golden.events import AT, EVENTS, NONCE, READ_ONLY, SESSION

FILE: Final = Path(__file__).with_name("events.txt")


def golden() -> dict[str, bytes]:
    """Return the recorded bytes by name."""
    lines = FILE.read_text(encoding="ascii").splitlines()
    return {name: bytes.fromhex(data) for name, data in (line.split("\t") for line in lines)}


@pytest.mark.parametrize("name", [name for name in EVENTS if name not in READ_ONLY])
def test_an_event_is_written_as_it_always_was(name: str) -> None:
    assert encode(EVENTS[name]).hex() == golden()[name].hex()


@pytest.mark.parametrize("name", EVENTS)
def test_recorded_bytes_are_read_as_the_event_they_were(name: str) -> None:
    assert decode(name.split(" ", maxsplit=1)[0], golden()[name]) == EVENTS[name]


def test_every_kind_of_event_is_recorded() -> None:
    assert {name.split(" ")[0] for name in golden()} == set(TYPES)
    assert set(golden()) == set(EVENTS)


def test_an_event_recorded_with_every_field_has_none_left_at_its_default() -> None:
    for name, event in EVENTS.items():
        if name.endswith(" full") and name not in READ_ONLY:
            for field in msgspec.structs.fields(type(event)):
                if not field.required:
                    assert getattr(event, field.name) != field.default, (name, field.name)


def test_no_two_events_share_a_tag() -> None:
    # A tag is the first element of the array; all of them are below 128, hence one byte.
    firsts = [data[3:4] if data[:1] == b"\xdc" else data[1:2] for data in golden().values()]
    assert len(set(firsts)) == len(NAMES)


def test_the_name_of_a_later_version_is_not_an_error() -> None:
    assert decode("run.teleported.v1", b"\x90") is None


def test_bytes_that_are_not_what_the_name_says_are_an_error() -> None:
    with pytest.raises(msgspec.ValidationError):
        decode("run.accepted.v1", encode(EVENTS["run.withdrawn.v1"]))


def test_a_lease_as_the_database_writes_it_is_read_as_one() -> None:
    written = (
        b"\x96\x21\xc4\x10"
        + SESSION
        + b"\xc4\x08"
        + NONCE
        + b"\xcf"
        + AT.to_bytes(8, "big")
        + b"\xcf"
        + (AT + 61_000).to_bytes(8, "big")
        + b"\xce"
        + (1).to_bytes(4, "big")
    )
    assert decode("run.leased.v1", written) == Leased(SESSION, NONCE, AT, AT + 61_000, 1)
