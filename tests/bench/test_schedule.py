"""The workload that measures cron schedules: what it measures, not how fast."""

import pytest

from bench import schedule
from domain.schedule.schedule import TEXT_LIMIT, Cron, Refused, parse_cron


def test_every_engine_answers_and_nothing_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "STEPS", 2)
    monkeypatch.setattr(schedule, "REPEATS", 1)
    monkeypatch.setattr(schedule, "BATCH", 1)
    monkeypatch.setattr(schedule, "LONG_TEXTS", 2)
    found = schedule.measure()
    assert found["texts"] > 50
    assert set(found["ours"]) >= {"next_us", "new_text_us", "known_text_us"}
    for name in ("croniter", "cronsim"):
        assert found[name]["next_us"]["median"] > 0
    assert set(found["worst_ms"]) == {"rare", "long", "random"}


def test_the_long_texts_are_near_the_limit_and_taken() -> None:
    for _, text in zip(range(5), schedule.long_texts(), strict=False):
        assert TEXT_LIMIT - 30 <= len(text) <= TEXT_LIMIT
        assert isinstance(parse_cron(text, "UTC"), Cron)


def test_the_rare_ones_are_taken_or_never_match() -> None:
    for text, dialect, gap in schedule.RARE:
        found = parse_cron(text, "America/New_York", dialect=dialect, gap=gap)
        assert isinstance(found, Cron) or "never matches" in found.detail, text
        assert not isinstance(found, Refused) or found.pointer == "/schedule"
