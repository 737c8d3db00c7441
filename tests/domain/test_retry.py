"""When an attempt is made again: delays, and what a target wishes, with the collected cases."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest

from domain.retry import (
    RECURRING_DEFAULT,
    RETRY_AFTER_MS_MAX,
    RETRY_AFTER_MS_MIN,
    RetryPolicy,
    classify,
    delay_ms,
    parse_retry,
    retry_after_ms,
)

CASES: Final[dict[str, dict[str, Any]]] = {
    case["id"]: case
    for case in map(
        json.loads,
        (Path(__file__).parents[1] / "cases" / "cases.jsonl").read_text("utf-8").splitlines(),
    )
}
WISHES: Final = [case for case in CASES.values() if case["kind"] == "retry-after"]
NOW: Final = int(datetime(2026, 10, 21, 7, tzinfo=UTC).timestamp()) * 1_000
RUN: Final = b"r" * 16


def policy(**fields: object) -> RetryPolicy:
    """Return a policy as a definition asks for it."""
    found = parse_retry(fields, RECURRING_DEFAULT)
    assert isinstance(found, RetryPolicy), found
    return found


@pytest.mark.parametrize("case", WISHES, ids=lambda case: case["id"])
def test_the_wish_of_a_target_never_makes_an_attempt_earlier_than_the_backoff(
    case: dict[str, Any],
) -> None:
    asked = case["input"]
    at_ms = int(datetime.fromisoformat(asked["now"]).timestamp()) * 1_000
    wish_ms = retry_after_ms(asked["handler_response"]["headers"]["Retry-After"], at_ms)
    waits_ms = max(wish_ms, asked["internal_backoff_s"] * 1_000)
    assert waits_ms == case["expected"]["next_attempt_in_s"] * 1_000


@pytest.mark.parametrize(
    ("header", "wait_ms"),
    [
        ("0", RETRY_AFTER_MS_MIN),
        (" 7\t", 7_000),
        ("86400", RETRY_AFTER_MS_MAX),
        ("86401", RETRY_AFTER_MS_MAX),
        ("0000000000000012", 12_000),
        ("9" * 5_000, RETRY_AFTER_MS_MAX),
        ("Wed, 21 Oct 2026 07:01:00 GMT", 60_000),
        ("Wednesday, 21-Oct-26 07:01:00 GMT", 60_000),
        ("Wed Oct 21 07:01:00 2026", 60_000),
        ("Thu Oct  1 07:01:00 2026", RETRY_AFTER_MS_MIN),
        ("Wednesday, 21-Oct-99 07:01:00 GMT", RETRY_AFTER_MS_MIN),
        ("Wed, 21 Oct 2026 07:00:60 GMT", 59_000),
        ("Wed, 32 Oct 2026 07:01:00 GMT", 0),
        ("Wed, 21 Okt 2026 07:01:00 GMT", 0),
        ("", 0),
        ("1.5", 0),
        ("\u0661\u0662", 0),
    ],
)
def test_a_wish_is_seconds_or_a_date_of_http_within_bounds_or_none(
    header: str, wait_ms: int
) -> None:
    assert retry_after_ms(header, NOW) == wait_ms


def test_delays_double_up_to_the_longest_and_never_beyond() -> None:
    """RET-01."""
    case = CASES["RET-01"]
    asked = policy(**case["input"]["body"]["retry"])
    wanted = [seconds * 1_000 for seconds in case["expected"]["delays_s"]]
    found = [delay_ms(asked, RUN, failure) for failure in range(1, asked.max_attempts + 1)]
    assert found[: len(wanted)] == wanted
    assert set(found[len(wanted) :]) == {asked.max_ms}


def test_a_policy_without_a_longest_delay_has_one() -> None:
    """RET-03."""
    case = CASES["RET-03"]
    asked = policy(**case["input"]["retry"])
    most = case["expected"]["delay_s_max"] * 1_000
    assert asked.max_ms == most
    assert delay_ms(asked, RUN, case["input"]["attempt"]) <= most


@pytest.mark.parametrize("failure", [1, 2, 3, 8, 40, 100])
def test_a_drawn_delay_is_the_same_everywhere_and_within_its_bounds(failure: int) -> None:
    asked = policy(base_s=2, max_s=60)
    drawn = {delay_ms(asked, bytes([n] * 16), failure) for n in range(64)}
    assert drawn == {delay_ms(asked, bytes([n] * 16), failure) for n in range(64)}
    assert min(drawn) >= asked.base_ms
    assert max(drawn) <= min(asked.max_ms, max(2 * asked.base_ms, asked.base_ms << (failure - 1)))
    assert len(drawn) > 1


def test_the_last_delay_of_a_list_repeats() -> None:
    asked = policy(backoff="list", delays_s=[1, 5])
    assert [delay_ms(asked, RUN, failure) for failure in (1, 2, 3, 9)] == [
        *(1_000, 5_000),
        *(5_000, 5_000),
    ]


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        *((200, "ok"), (299, "ok"), (302, "retry"), (400, "dead"), (404, "dead"), (410, "pause")),
        *((408, "retry"), (409, "retry"), (425, "retry"), (429, "retry"), (500, "retry")),
        *((0, "retry"), (599, "retry")),
    ],
)
def test_a_status_is_judged_as_the_contract_says(status: int, verdict: str) -> None:
    assert classify(status, RECURRING_DEFAULT) == verdict


def test_a_map_of_statuses_goes_before_the_default() -> None:
    asked = policy(statuses={"404": "retry", "500": "dead", "503": "pause"})
    assert [classify(status, asked) for status in (404, 500, 503)] == ["retry", "dead", "pause"]


@pytest.mark.parametrize(
    ("raw", "pointers"),
    [
        ([], ["/retry"]),
        ({"max_attempts": 0}, ["/retry/max_attempts"]),
        ({"max_attempts": True}, ["/retry/max_attempts"]),
        ({"base_s": 10, "max_s": 5}, ["/retry/base_s"]),
        ({"backoff": "list"}, ["/retry/delays_s"]),
        ({"delays_s": [1]}, ["/retry/delays_s"]),
        ({"backoff": "list", "delays_s": []}, ["/retry/delays_s"]),
        ({"statuses": {"200": "dead"}}, ["/retry/statuses"]),
        ({"statuses": {"404": "ok"}}, ["/retry/statuses"]),
        ({"base_s": 1e400, "colour": 1}, ["/retry/base_s", "/retry/colour"]),
    ],
)
def test_a_wrong_field_of_a_policy_is_named(raw: object, pointers: list[str]) -> None:
    found = parse_retry(raw, RECURRING_DEFAULT)
    assert isinstance(found, tuple)
    assert [refused.pointer for refused in found] == pointers
