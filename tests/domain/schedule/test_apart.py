"""Parts of a union that come too close to each other."""

from typing import Any

import pytest

from commandside.definitions.when import read_recurring
from domain.schedule.schedule import Union

QUARTZ = {"dialect": "quartz"}


def read(*parts: dict[str, Any], min_interval_s: int = 60) -> Any:
    return read_recurring({"schedules": list(parts), "timezone": "UTC"}, min_interval_s)


@pytest.mark.parametrize(
    ("parts", "apart", "at"),
    [
        (
            ({"schedule": "0 9 * * *"}, {"schedule": "1 0 9 * * ?"} | QUARTZ),
            "1 s apart",
            "2026-01-01T09:00:00.000Z and 2026-01-01T09:00:01.000Z",
        ),
        (
            ({"every": "PT60S"}, {"every": "PT61S"}),
            "29 s apart",
            "2026-01-01T00:00:00.000Z and 2026-01-01T00:00:29.000Z",
        ),
        (
            ({"schedule": "30 9 * * *"}, {"every": "P1D", "anchor": "2027-01-01T09:29:50Z"}),
            "10 s apart",
            "2027-01-01T09:29:50.000Z and 2027-01-01T09:30:00.000Z",
        ),
    ],
)
def test_parts_that_fire_too_close_are_refused_with_an_example(
    parts: tuple[dict[str, Any], ...], apart: str, at: str
) -> None:
    (refused,) = read(*parts)
    assert refused.pointer == "/schedules"
    assert apart in refused.detail
    assert at in refused.detail
    assert "schedules.min_interval_s" in refused.detail


@pytest.mark.parametrize(
    "parts",
    [
        ({"schedule": "0 9 * * *"}, {"schedule": "0 9 * * 1"}),
        ({"schedule": "0 9 * * *"}, {"schedule": "1 9 * * *"}),
        ({"schedule": "0 9 * * *"}, {"every": "PT1H"}),
        ({"schedule": "0 0 9 ? * MON"} | QUARTZ, {"schedule": "30 0 9 ? * TUE"} | QUARTZ),
    ],
)
def test_parts_that_share_a_slot_or_keep_their_distance_are_taken(
    parts: tuple[dict[str, Any], ...],
) -> None:
    assert isinstance(read(*parts), Union)


def test_an_operator_may_allow_less() -> None:
    parts = {"schedule": "0 9 * * *"}, {"schedule": "1 0 9 * * ?"} | QUARTZ
    assert isinstance(read(*parts, min_interval_s=1), Union)
    (refused,) = read({"schedule": "0 9 * * *"}, {"schedule": "1 9 * * *"}, min_interval_s=90)
    assert "60 s apart" in refused.detail
