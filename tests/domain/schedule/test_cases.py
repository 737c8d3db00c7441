"""Every cron question of `tests/cases/cases.jsonl`."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from domain.schedule.schedule import Cron, Refused, parse_cron, plan

CASES = [
    json.loads(line)
    for line in (Path(__file__).parents[2] / "cases" / "cases.jsonl").read_text().splitlines()
]
CRON_CASES = [case for case in CASES if "schedule" in case["input"]]

MENTIONED = [case for case in CASES if "must_mention" in case["expected"].get("error", {})]
"""Definitions whose refusal is asked for certain words."""


def _text(schedule: str | dict[str, Any]) -> str:
    if isinstance(schedule, str):
        return schedule
    repeated: str = schedule["repeat"] * schedule["times"]
    return f"{schedule.get('prefix', '')}{repeated}{schedule.get('suffix', '')}"


def _ms(text: str) -> int:
    since = datetime.fromisoformat(text) - datetime(1970, 1, 1, tzinfo=UTC)
    return since // timedelta(milliseconds=1)


def _answer(spec: Cron | Refused, asked: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
    """What we say to a question, in the words of the wanted answer."""
    if isinstance(spec, Refused):
        return {"reject": spec.pointer}
    slots, found = plan(spec), []
    if "before" in asked:
        return {"previous_utc": [slots.last_until(_ms(asked["before"]) - 1)]}
    t: int | None = _ms(asked.get("after", "2026-01-01T00:00:00Z"))
    for _ in wanted.get("next_utc", ()):
        t = slots.next_after(t) if t is not None else None
        found.append(t)
    return {"next_utc": found}


def _wanted(expected: dict[str, Any]) -> dict[str, Any]:
    if "reject" in expected:
        return {"reject": f"/{expected['reject']['field']}"}
    return {key: [_ms(text) for text in texts] for key, texts in expected.items()}


@pytest.mark.parametrize("case", CRON_CASES, ids=lambda case: case["id"])
def test_a_cron_question_gets_a_right_answer(case: dict[str, Any]) -> None:
    asked = case["input"]
    spec = parse_cron(_text(asked["schedule"]), asked["timezone"])
    allowed = case["expected"].get("either", [case["expected"]])
    assert any(_answer(spec, asked, one) == _wanted(one) for one in allowed), spec


@pytest.mark.parametrize("case", MENTIONED, ids=lambda case: case["id"])
def test_a_refusal_has_the_words_that_help(case: dict[str, Any]) -> None:
    body, error = case["input"]["body"], case["expected"]["error"]
    refused = parse_cron(body["schedule"], body["timezone"])
    assert isinstance(refused, Refused)
    assert refused.pointer == f"/{error['field']}"
    assert [words for words in error["must_mention"] if words not in refused.detail] == []


# Where a case allows several answers, these are ours (contract: strict, the Debian rule).
CHOSEN: dict[str, dict[str, Any]] = {
    "FOLD-15": {"next_utc": ["2025-10-26T02:23:00Z", "2025-10-26T03:23:00Z"]},
    "ALIAS-01": {"next_utc": ["2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z"]},
    "DOW-04": {"reject": {"field": "schedule"}},
    "DOW-09": {"reject": {"field": "schedule"}},
    "WRAP-01": {"reject": {"field": "schedule"}},
    "EXT-01": {"reject": {"field": "schedule"}},
    "FIELD-04": {"reject": {"field": "schedule"}},
}


@pytest.mark.parametrize("name", CHOSEN)
def test_a_choice_that_a_case_leaves_open_stays_as_documented(name: str) -> None:
    asked = next(case["input"] for case in CRON_CASES if case["id"] == name)
    spec = parse_cron(asked["schedule"], asked["timezone"])
    assert _answer(spec, asked, CHOSEN[name]) == _wanted(CHOSEN[name])
