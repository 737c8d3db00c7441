"""A refusal names the field, says what was wrong, and proposes what is right and is accepted."""

import pytest

from domain.schedule.dialects.interval import iso_duration
from domain.schedule.schedule import Cron, Refused, parse_cron, parse_every

SENTENCES = {
    "*/90 * * * *": (
        "a step of 90 is larger than the minute field (0-59): this would run once an hour at "
        'minute 0; for every 90 minutes use {"every": "PT90M"}, or give at most 59'
    ),
    "*/60 * * * *": 'for every 60 minutes use {"every": "PT1H"}',
    "0 */24 * * *": 'for every 24 hours use {"every": "P1D"}',
    "0 */36 * * *": 'for every 36 hours use {"every": "PT36H"}',
    "0 0 */45 * *": 'once a month on day 1; for every 45 days use {"every": "P45D"}',
    "0 0 1 */18 *": 'once a year in January; for every 18 months use {"every": "P18M"}',
    "0 0 */32 * *": "or give at most 31",
    "0 0 1 */13 *": "or give at most 12",
    "0 0 * * */10": 'for every 10 days use {"every": "P10D"}',
    "every 5 minutes": '{"every": "PT5M"}',
    "every hour": '{"every": "PT1H"}',
    "Every 2 weeks": '{"every": "P2W"}',
    "15m": '{"every": "PT15M"}',
    "PT90M": '{"every": "PT90M"}',
    "P1D": '{"every": "P1D"}',
    "rate(5 minutes)": '{"every": "PT5M"}',
    "@every 1h30m": '{"every": "PT1H30M"}',
    "@every 0s": "is an interval",
    "RRULE:FREQ=DAILY": "recurrence rule",
    "FREQ=WEEKLY;BYDAY=MO": "recurrence rule",
    "2026-12-01T00:00:00Z": "type one_time with run_at",
    "at(2026-12-01T00:00:00)": "type one_time with run_at",
    "cron(0 10 * * ? *)": '"dialect": "aws"',
    "Mon..Fri 09:00": '"dialect": "systemd"',
    "*-*-01 03:00": '"dialect": "systemd"',
    "0 0 12 * * ?": '"dialect": "quartz"',
    "0 0 12 * * ? 2030": '"dialect": "quartz" for both',
    "15 10 * * 1 2026": '"dialect": "aws" for a year at the end',
    "*/30 * * * * *": '"dialect": "spring" or "quartz"',
    "0 9 * * MON, TUE": "a list has no blanks",
    "0 9 * * 1\u20135": "write -",
    "0 9 * * tues": "write TUE",
    "0 9 * * mo": "write MON",
    "0 9 1 sept *": "write SEP",
    "0 9 * mon *": "that is for the day-of-week field",
    "mon 9 * * *": "a name is for the day-of-week field",
    "60 * * * *": "for the start of the next hour write 0",
    "0 24 * * *": "for the start of the next day write 0",
    "0 0 0 * *": "the first is 1, and any is *",
    "0 0 * 0 *": "the first is 1, and any is *",
    "0 0 * * 8": "Sunday is 0 or 7, Saturday 6",
    "0 0 31 2 *": "the last day of a month is L in the dialects quartz, aws and spring",
    "0 9 ? * 1": 'write *, or ask for "dialect": "quartz" or "aws"',
    "H 9 * * 1": "spread the fires with jitter_s",
    "0~59 9 * * 1": "spread the fires with jitter_s",
    "TZ=Asia/Tokyo 0 9 * * *": '"timezone": "Asia/Tokyo"',
    "CRON_TZ=UTC 0 9 * * *": '"timezone": "UTC"',
}


@pytest.mark.parametrize(("text", "words"), SENTENCES.items())
def test_a_refusal_says_what_would_be_right(text: str, words: str) -> None:
    refused = parse_cron(text, "UTC")
    assert isinstance(refused, Refused), refused
    assert refused.pointer == "/schedule"
    assert words in refused.detail


PROPOSED = [
    ("vixie", "0 22-2 * * *"),
    ("vixie", "0 0 * * fri-mon"),
    ("vixie", "0 0 1 11-2/3 *"),
    ("vixie", "5/15 * * * *"),
    ("vixie", "09:30"),
    ("vixie", "9pm"),
    ("vixie", "12am"),
    ("vixie", "every day at 9:15"),
    ("vixie", "every monday at 9"),
    ("vixie", "weekdays at 8:30 am"),
    ("vixie", "daily"),
    ("k8s", "0 0 * * sat-sun"),
    ("quartz", "0 0 12 * * *"),
    ("quartz", "0 0 12 ? * ?"),
    ("quartz", "0 0 12 15 * MON"),
    ("quartz", "every friday at 17:00"),
    ("quartz", "7:45"),
    ("quartz", "0 0 12 * * ? 2030-2028"),
    ("aws", "0 10 * * * *"),
    ("aws", "0 9 28-3 * ? *"),
    ("aws", "every day at 9"),
    ("spring", "0 0 22-2 * * *"),
    ("spring", "on saturdays at 10pm"),
    ("systemd", "Fri..Mon"),
    ("systemd", "*:*/15"),
]


@pytest.mark.parametrize(("dialect", "text"), PROPOSED)
def test_what_a_refusal_proposes_to_write_is_accepted(dialect: str, text: str) -> None:
    refused = parse_cron(text, "UTC", dialect=dialect)
    assert isinstance(refused, Refused), refused
    _, written, proposal = refused.detail.rpartition("write ")
    if not written:
        _, _, proposal = refused.detail.rpartition("such as ")
    tried = [proposal]
    for part in text.split():  # a proposal for one place stands in for what was there
        tried.append(text.replace(part, proposal, 1))
        tried.append(text.replace(part.rpartition(":")[2], proposal, 1))
    accepted = [one for one in tried if isinstance(parse_cron(one, "UTC", dialect=dialect), Cron)]
    assert accepted, refused.detail


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("@every 1h", "PT1H"),
        ("@every 90s", "PT1M30S"),
        ("@every 1h30m10s", "PT1H30M10S"),
        ("@every 3600000ms", "PT1H"),
        ("@every 100h", "PT100H"),
        ("@EVERY 5m", "PT5M"),
        ("@every 1.5h", None),
        ("@every 1500ms", None),
        ("@every", None),
        ("@every 1d", None),
        ("@every -1h", None),
        ("rate(1 minute)", "PT1M"),
        ("rate(12 hours)", "PT12H"),
        ("rate(7 days)", "P7D"),
        ("rate(0 minutes)", None),
        ("every 30 seconds", "PT30S"),
        ("every day", "P1D"),
        ("10 h", "PT10H"),
        ("0 9 * * *", None),
        ("", None),
    ],
)
def test_an_interval_of_any_dialect_is_an_iso_duration(text: str, duration: str | None) -> None:
    assert iso_duration(text) == duration
    if duration is not None:
        assert not isinstance(parse_every(duration, None, "UTC", min_interval_s=1), Refused)


def test_a_time_that_is_always_skipped_is_refused_with_the_rule_that_would_fire_it() -> None:
    refused = parse_cron("30 2 8 3 */7", "America/New_York", gap="skip")
    assert isinstance(refused, Refused)
    assert '"dst": {"gap": "next"}' in refused.detail
