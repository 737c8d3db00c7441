"""The engine against a walk over every minute, and the laws that hold for any schedule."""

from datetime import UTC, datetime, timedelta
from functools import cache

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from domain.schedule import zone
from domain.schedule.schedule import Cron, Plan, Refused, parse_cron, passed, plan
from tests.properties.minute_walk import Expression, from_s, slots, to_ms

ODD_ZONES = (
    "Africa/Casablanca",
    "America/Havana",
    "America/New_York",
    "America/Santiago",
    "Antarctica/Troll",
    "Asia/Kathmandu",
    "Atlantic/Azores",
    "Australia/Lord_Howe",
    "Europe/Dublin",
    "Pacific/Apia",
    "Pacific/Chatham",
)
ASKED_EACH = 40
YEAR_2000_S = 946_684_800
YEAR_2040_S = 2_208_988_800
LAST_MS = 253_402_300_799_999
CYCLE_MS = zone.CYCLE_S * 1000
SLOW = settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)


@cache
def _jumps(name: str) -> tuple[int, ...]:
    return tuple(s for s in zone.load(name).starts if YEAR_2000_S < s < YEAR_2040_S)


def _elements(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    step = st.integers(1, high - low)
    span = st.tuples(number, number).map(lambda ends: f"{min(ends)}-{max(ends)}")
    one = st.one_of(number.map(str), number.map(str), span, st.builds("{}/{}".format, span, step))
    star = st.one_of(st.just("*"), st.just("*"), st.builds("*/{}".format, step))
    return st.one_of(star, one, st.lists(one | star, min_size=2, max_size=3).map(",".join))


minutes = st.one_of(_elements(0, 59), st.sampled_from(["0", "30", "0,30", "*/15"]))
hours = st.one_of(_elements(0, 23), st.sampled_from(["0", "1", "2", "0-3", "23", "1,2"]))
texts = st.builds(
    "{} {} {} {} {}".format,
    minutes,
    hours,
    st.just("*") | _elements(1, 31),
    st.just("*") | _elements(1, 12),
    st.just("*") | _elements(0, 7),
).filter(lambda text: len(text) <= 128)
zones = st.one_of(st.sampled_from(ODD_ZONES), st.sampled_from(zone.NAMES))
gaps = st.sampled_from(["", "", "next", "skip"])
folds = st.sampled_from(["", "", "first", "last", "both"])


@st.composite
def places(draw: st.DrawFn) -> tuple[str, datetime]:
    """A zone and the start of three days, most often around one of its clock changes."""
    name = draw(zones)
    jumps = _jumps(name)
    beside = draw(st.integers(0, 3)) > 0
    if jumps and beside:
        jump = jumps[draw(st.integers(0, len(jumps) - 1))]
        start_s = jump - draw(st.integers(6 * 3600, 54 * 3600))
    else:
        start_s = draw(st.integers(YEAR_2000_S, YEAR_2040_S))
    return name, from_s(start_s)


def _compiled(text: str, name: str, gap: str = "", fold: str = "") -> Plan | None:
    spec = parse_cron(text, name, gap=gap, fold=fold)
    return plan(spec) if isinstance(spec, Cron) else None


@SLOW
@given(texts, places(), gaps, folds, st.data())
def test_next_and_newest_slots_are_those_of_a_walk_over_every_minute(
    text: str, place: tuple[str, datetime], gap: str, fold: str, data: st.DataObject
) -> None:
    name, start = place
    end = start + timedelta(days=3)
    compiled = _compiled(text, name, gap, fold)
    truth = [to_ms(slot) for slot in slots(text, name, (start, end), gap, fold)]
    if compiled is None:
        assert truth == []
        return
    low, high = to_ms(start), to_ms(end)
    seed = data.draw(st.randoms(use_true_random=False))
    edges = [slot + late for slot in truth[:10] for late in (-1, 0, 1)]
    asked = [seed.randrange(low, high) for _ in range(ASKED_EACH)] + edges
    for t in asked:
        after = [slot for slot in truth if slot > t]
        until = [slot for slot in truth if slot <= t]
        following, newest = compiled.next_after(t), compiled.last_until(t)
        assert following == after[0] if after else following is None or following >= high
        assert newest == until[-1] if until else newest is None or newest < low


dates = st.builds("0 0 {} {} {}".format, _elements(1, 31), _elements(1, 12), _elements(0, 7))


@SLOW
@given(dates, st.integers(1970, 2130), st.integers(1, 366))
def test_sparse_dates_are_those_of_a_walk_over_every_day(text: str, year: int, day: int) -> None:
    start = datetime(year, 1, 1, tzinfo=UTC) + timedelta(days=day)
    expression = Expression(text)
    days = (start + timedelta(days=ahead) for ahead in range(1, 41 * 366))
    truth = next((to_ms(local) for local in days if expression.matches_day(local)), None)
    compiled = _compiled(text, "UTC")
    assert (compiled.next_after(to_ms(start)) if compiled else None) == truth
    if compiled and truth is not None:
        newest = compiled.last_until(truth - 1)
        assert newest is None or newest <= to_ms(start)


instants = st.one_of(st.integers(0, LAST_MS), st.integers(YEAR_2000_S * 1000, YEAR_2040_S * 1000))


@SLOW
@given(texts, zones, gaps, folds, instants)
def test_next_goes_forward_and_newest_finds_it_again(
    text: str, name: str, gap: str, fold: str, t: int
) -> None:
    compiled = _compiled(text, name, gap, fold)
    if compiled is None:
        return
    following = compiled.next_after(t)
    newest = compiled.last_until(t)
    if following is not None:
        assert t < following <= LAST_MS
        assert compiled.last_until(following) == following
        assert compiled.last_until(following - 1) == newest
    if newest is not None:
        assert 0 <= newest <= t
        assert compiled.next_after(newest - 1) == newest
        assert compiled.next_after(newest) == following


@SLOW
@given(texts, zones, st.lists(instants, min_size=2, max_size=6))
def test_next_and_newest_are_monotone(text: str, name: str, asked: list[int]) -> None:
    compiled = _compiled(text, name)
    if compiled is None:
        return
    answers = [compiled.next_after(t) for t in sorted(asked)]
    numbers = [LAST_MS + 1 if slot is None else slot for slot in answers]
    assert numbers == sorted(numbers)
    newest = [compiled.last_until(t) for t in sorted(asked)]
    numbers = [-1 if slot is None else slot for slot in newest]
    assert numbers == sorted(numbers)


@SLOW
@given(texts, zones, st.integers(4_102_444_800_000, LAST_MS - 2 * CYCLE_MS), st.integers(1, 2))
def test_the_calendar_of_four_hundred_years_repeats(
    text: str, name: str, t: int, cycles: int
) -> None:
    compiled = _compiled(text, name)
    if compiled is None:
        return
    near, far = compiled.next_after(t), compiled.next_after(t + cycles * CYCLE_MS)
    if near is not None and far is not None:
        assert far == near + cycles * CYCLE_MS


@SLOW
@given(texts, places(), st.integers(0, 72 * 60), st.integers(1, 50))
def test_passed_slots_are_those_found_one_by_one(
    text: str, place: tuple[str, datetime], wide: int, limit: int
) -> None:
    name, start = place
    compiled = _compiled(text, name)
    if compiled is None:
        return
    after, until = to_ms(start), to_ms(start) + wide * 60_000
    found: list[int] = []
    slot = compiled.next_after(after)
    while slot is not None and slot <= until:
        found.append(slot)
        slot = compiled.next_after(slot)
    answer = passed(compiled, after, until, limit)
    count = len(found) if len(found) <= limit else None
    assert answer == ((found[0], found[-1], count) if found else None)


@SLOW
@given(st.text(max_size=140) | st.text("0123456789*/,-LW#? @=SUNMON\t", max_size=140))
def test_any_text_is_accepted_or_refused_with_a_reason(text: str) -> None:
    spec = parse_cron(text, "Europe/Berlin")
    if isinstance(spec, Refused):
        assert spec.pointer == "/schedule"
        assert spec.detail
    else:
        assert plan(spec).next_after(0) is not None


@SLOW
@given(texts)
def test_the_canonical_form_is_its_own_canonical_form_and_has_the_same_slots(text: str) -> None:
    spec = parse_cron(text, "Europe/Berlin")
    if isinstance(spec, Cron):
        again = parse_cron(spec.text, "Europe/Berlin")
        assert isinstance(again, Cron)
        assert again.text == spec.text
        t = 1_790_000_000_000
        assert plan(again).next_after(t) == plan(spec).next_after(t)
