"""`tocsin schedule … --exclude FILE`: slots without those of calendars in files."""

import json
from pathlib import Path

import pytest

from infra.cli import main

ICS = """BEGIN:VCALENDAR
VERSION:2.0
PRODID:-//x//y//EN
BEGIN:VEVENT
UID:1
DTSTAMP:20260101T000000Z
DTSTART;VALUE=DATE:20261225
DTEND;VALUE=DATE:20261227
END:VEVENT
END:VCALENDAR
"""
AFTER = ["--timezone", "Europe/Berlin", "--after", "2026-12-23T12:00:00Z", "--count", "3"]


@pytest.fixture
def holidays(tmp_path: Path) -> str:
    path = tmp_path / "holidays.ics"
    path.write_text(ICS.replace("\n", "\r\n"), "utf-8")
    return str(path)


@pytest.fixture
def weekends(tmp_path: Path) -> str:
    path = tmp_path / "weekends.json"
    path.write_text(json.dumps({"weekly": [{"from": "sat 00:00", "until": "mon 00:00"}]}), "utf-8")
    return str(path)


def days(text: str) -> list[str]:
    return [line[:10] for line in text.splitlines() if line.startswith("2026-")]


def test_what_a_file_excludes_is_not_listed(
    capsys: pytest.CaptureFixture[str], holidays: str, weekends: str
) -> None:
    for action in ("next", "explain"):
        assert main(["schedule", action, "0 9 * * *", *AFTER, "--exclude", holidays]) == 0
        assert days(capsys.readouterr().out) == ["2026-12-24", "2026-12-27", "2026-12-28"]
    both = ["--exclude", holidays, "--exclude", weekends]
    assert main(["schedule", "next", "0 9 * * *", *AFTER, *both]) == 0
    assert days(capsys.readouterr().out) == ["2026-12-24", "2026-12-28", "2026-12-29"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"{", "weekends.json: the body is refused"),
        (b'{"weekly": [{"from": "sat", "until": "mon 00:00"}]}', "weekends.json: weekly/0/from"),
        (b'{"days": []}', "weekends.json: days: unknown field"),
        (b"nothing of a calendar", "weekends.json: ics"),
        (b"\xff\xfe", "weekends.json cannot be read"),
        (b'{"weekly": [{"from": "mon 08:00", "until": "mon 10:00"}]}', "never runs"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_its_name(
    capsys: pytest.CaptureFixture[str], weekends: str, content: bytes, says: str
) -> None:
    Path(weekends).write_bytes(content)
    for action in ("next", "check"):
        assert main(["schedule", action, "0 9 * * 1", "--exclude", weekends]) == 1
        assert says in capsys.readouterr().err


def test_a_file_that_is_not_there_and_a_question_without_slots_are_refused(
    capsys: pytest.CaptureFixture[str], weekends: str
) -> None:
    assert main(["schedule", "check", "0 9 * * 1", "--exclude", "/nowhere.ics"]) == 1
    assert "exclude: /nowhere.ics cannot be read" in capsys.readouterr().err
    delay = ["--every", "PT1H", "--from", "completion", "--exclude", weekends]
    assert main(["schedule", "next", *delay]) == 1
    assert "not beside --from" in capsys.readouterr().err
    with pytest.raises(SystemExit) as left:
        main(["schedule", "next", "--jsonl", "--exclude", weekends])
    assert left.value.code == 2
