"""The zone tables against `zoneinfo` on the same files, and the names that are known."""

import random
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from itertools import pairwise

import pytest

from domain.schedule import zone
from domain.schedule.schedule import Cron, Refused, parse_cron
from tests.properties.minute_walk import zone_info

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAST_S = 253_402_200_000
SEED = 20_260_301
DRAWN = 12


def _offset_by_zoneinfo(name: str, instant_s: int) -> int:
    offset = (EPOCH + timedelta(seconds=instant_s)).astimezone(zone_info(name)).utcoffset()
    assert offset is not None
    return int(offset.total_seconds())


@pytest.mark.parametrize("part", range(4))
def test_every_zone_has_the_offsets_that_zoneinfo_has_up_to_the_year_9999(part: int) -> None:
    drawn = random.Random(SEED + part)
    for name in zone.NAMES[part::4]:
        table = zone.load(name)
        jumps = drawn.sample(table.starts[1:], min(DRAWN, len(table.starts) - 1))
        instants = [jump + beside for jump in jumps for beside in (-1, 0)]
        instants += [drawn.randrange(0, LAST_S) for _ in range(DRAWN)]
        for instant in instants:
            assert table.offset_s(instant) == _offset_by_zoneinfo(name, instant), (name, instant)


def test_the_jumps_of_a_zone_are_further_apart_than_they_are_wide() -> None:
    for name in zone.NAMES:
        table = zone.load(name)
        widest = max((abs(b - a) for a, b in pairwise(table.offsets)), default=0)
        nearest = min((b - a for a, b in pairwise(table.starts[1:])), default=1 << 40)
        assert nearest > 2 * 86_400 > widest, name


def test_the_names_are_those_of_the_package_but_for_the_one_that_means_none() -> None:
    assert len(zone.NAMES) == 597
    assert "Factory" not in zone.NAMES


def test_the_version_is_that_of_the_data_itself() -> None:
    source = files("tzdata").joinpath("zoneinfo", "tzdata.zi").read_text()
    assert source.startswith(f"# version {zone.VERSION}\n")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("america/new_york", "did you mean America/New_York?"),
        ("America/New York", "did you mean America/New_York?"),
        ("berlin", "did you mean Europe/Berlin?"),
        ("utc", "did you mean UTC?"),
        (" UTC", "did you mean UTC?"),
        ("", "give one of the list"),
        ("Etc/Unknown", "give one of the list"),
        ("America", "give one of the list"),
        ("Factory", "give one of the list"),
        ("localtime", "give one of the list"),
        ("posixrules", "give one of the list"),
        ("right/UTC", "give one of the list"),
        ("posix/UTC", "give one of the list"),
        ("zone.tab", "give one of the list"),
        ("../zones", "give one of the list"),
        ("../../etc/passwd", "give one of the list"),
        ("/etc/localtime", "give one of the list"),
        ("America/New_York\x00", "give one of the list"),
        ("America/New_York/", "give one of the list"),
        ("EST5EDT,M3.2.0,M11.1.0", "give one of the list"),
        ("+02:00", "give one of the list"),
        ("x" * 5000, "not a known IANA time zone"),
    ],
)
def test_a_name_outside_the_list_is_refused_with_the_one_that_was_meant(
    name: str, meant: str
) -> None:
    refused = parse_cron("0 9 * * *", name)
    assert isinstance(refused, Refused)
    assert refused.pointer == "/timezone"
    assert meant in refused.detail


def test_an_old_name_of_a_zone_has_the_same_table_as_its_new_one() -> None:
    assert isinstance(parse_cron("0 9 * * *", "Asia/Calcutta"), Cron)
    old, new = zone.load("Asia/Calcutta"), zone.load("Asia/Kolkata")
    assert (old.starts, old.offsets) == (new.starts, new.offsets)
