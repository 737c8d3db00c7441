"""Laws of texts of every dialect, accepted or not, at any instant up to the year 9999."""

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from random import Random

from cronsim import CronSim
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from domain.schedule import cron
from domain.schedule.schedule import TEXT_LIMIT, Cron, Plan, Refused, parse_cron, plan
from tests.properties.dialect_texts import DIALECTS, draw
from tests.properties.minute_walk import to_ms

SLOW = settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
LAST_MS = 253_402_300_799_999
YEAR_2200_MS = 7_258_118_400_000
TYPED = "0123456789*/,-LW#?@ .~:ABCMONSUNFRI="
COMPARED = 4

randoms = st.randoms(use_true_random=False)
dialects = st.sampled_from(DIALECTS)
instants = st.one_of(st.integers(0, LAST_MS), st.integers(0, YEAR_2200_MS))


def mistyped(random: Random, text: str) -> str:
    """Change up to three characters."""
    for _ in range(random.randint(0, 3)):
        at = random.randrange(len(text) + 1)
        end = at + random.randint(0, 1)
        text = text[:at] + random.choice(("", random.choice(TYPED))) + text[end:]
    return text


def keeps_its_laws(slots: Plan, t: int) -> None:
    """Next goes forward, and newest finds it again."""
    following, newest = slots.next_after(t), slots.last_until(t)
    if following is not None:
        assert t < following <= LAST_MS
        assert slots.last_until(following) == following
        assert slots.last_until(following - 1) == newest
        beyond = slots.next_after(following)
        assert beyond is None or beyond > following
    if newest is not None:
        assert 0 <= newest <= t
        assert slots.next_after(newest - 1) == newest
        assert slots.next_after(newest) == following


@SLOW
@given(randoms, dialects, dialects, instants)
def test_a_mistyped_text_is_refused_with_a_reason_or_keeps_the_laws(
    random: Random, written: str, asked: str, t: int
) -> None:
    text = mistyped(random, draw(random, written).text)
    spec = parse_cron(text, "America/New_York", dialect=asked, min_interval_s=1)
    if isinstance(spec, Refused):
        assert spec.pointer == "/schedule"
        assert len(spec.detail) > 20
        return
    keeps_its_laws(plan(spec), t)
    if len(spec.text) <= TEXT_LIMIT:
        again = parse_cron(spec.text, "America/New_York", dialect=asked, min_interval_s=1)
        assert again == Cron(spec.text, spec.text, "America/New_York", asked)
    assert cron.read(spec.text, asked) == cron.read(text, asked)


@SLOW
@given(randoms, st.sampled_from(("quartz", "aws")), st.integers(1970, 2099), instants)
def test_a_text_with_years_keeps_the_laws_and_runs_in_no_other_year(
    random: Random, dialect: str, first: int, t: int
) -> None:
    drawn = draw(random, dialect).text.removesuffix(" *") if dialect == "aws" else ""
    text = f"{drawn or draw(random, dialect).text} {first}-{min(first + 3, 2099)}"
    spec = parse_cron(text, "Europe/Berlin", dialect=dialect)
    if isinstance(spec, Refused):
        assert "never matches" in spec.detail, text
        return
    keeps_its_laws(plan(spec), t)
    begin = to_ms(datetime(first, 1, 1, tzinfo=UTC) - timedelta(hours=3))
    end = to_ms(datetime(first + 4, 1, 1, tzinfo=UTC))
    slot = plan(spec).next_after(-1)
    assert slot is not None
    assert begin <= slot < end
    newest = plan(spec).last_until(LAST_MS)
    assert newest is not None
    assert begin <= newest < end


@SLOW
@given(randoms, st.integers(631_152_000, 2_840_140_800))
def test_cronsim_finds_the_same_last_days_and_nth_weekdays(random: Random, start_s: int) -> None:
    weekday = random.randrange(7)
    day, name = random.choice(
        (("L", "*"), ("LW", "*"), ("*", f"{weekday}L"), ("*", f"{weekday}#{random.randint(1, 5)}"))
    )
    text = f"{random.randrange(60)} {random.randrange(24)} {day} * {name}"
    spec = parse_cron(f"0 {text}", "UTC", dialect="spring")
    assert isinstance(spec, Cron)
    start = datetime.fromtimestamp(start_s // 60 * 60, UTC)
    theirs, t = CronSim(text, start), to_ms(start)
    for _ in range(COMPARED):
        slot = plan(spec).next_after(t)
        assert slot is not None
        with suppress(StopIteration):
            assert slot == to_ms(next(theirs)), text
        t = slot
