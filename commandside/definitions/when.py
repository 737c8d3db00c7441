"""When a job fires, as JSON: `run_at`, or one of the fields that name a recurring schedule.

Whoever asks about schedules reads them here: a definition, a preview and the console.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from domain.instant import rfc3339
from domain.refusal import Refused, token
from domain.schedule import schedule as schedules
from domain.schedule.apart import refuse_close
from domain.schedule.delay import COMPLETION, ORIGINS
from domain.schedule.dialects.interval import iso_duration
from domain.schedule.once import read_instant
from domain.schedule.schedule import Cron, FixedDelay, OneTime, RRule, ScheduleSpec, Union

KINDS: Final = ("schedule", "every", "rrule", "schedules")
"""Each names a recurring schedule; one of them is given."""
_GO_DIALECTS: Final = ("k8s", "robfig")
"""They have `@every` beside their fields."""
_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "schedule": ("timezone", "dialect", "dst"),
    "every": ("anchor", "from", "timezone", "dst"),
    "rrule": ("anchor", "timezone", "dst"),
    "schedules": ("timezone",),
}
"""What may be said beside each."""
RECURRING: Final = (*KINDS, "timezone", "dialect", "dst", "anchor", "from")
_WITHOUT_YEARS: Final = ("vixie", "k8s", "robfig", "spring")
_PART: Final = frozenset(RECURRING) - {"schedules"}
PARTS_MAX: Final = 8
"""Schedules of one job. The least distance of two fires is kept within each."""
_RECURRING: Final = frozenset(RECURRING)
ENDS: Final = ("starts_at", "ends_at")
SPAN: Final = (*ENDS, "max_runs")
RUNS_MAX: Final = 1_000_000
"""Occurrences that a job may be limited to; each is an event of the job."""
_SPAN: Final = frozenset(SPAN)
Found = ScheduleSpec | tuple[Refused, ...]


def read_when(body: Mapping[str, Any], at: int, min_interval_s: int) -> Found:
    """Return the schedule of a definition, or what is wrong with it; `at` is now, in ms."""
    kind = body.get("type")
    if kind == "recurring":
        found = _answering(body, read_recurring(body, min_interval_s), at)
        alone = Refused("/run_at", "only for a one-time job")
        return _either(found, (alone,) if "run_at" in body else ())
    if kind != "one_time":
        return (Refused("/type", "one_time or recurring"),)
    wrong: tuple[Refused, ...] = ()
    if not _RECURRING.isdisjoint(body):
        wrong = tuple(
            Refused(f"/{field}", "not for a one-time job") for field in RECURRING if field in body
        )
    texts = _Texts(body)
    run_at = texts.take("run_at")
    if run_at is None:
        return wrong + tuple(texts.wrong)
    return _either(schedules.parse_one_time(run_at, at), wrong)


def _answering(body: Mapping[str, Any], found: Found, at: int) -> Found:
    """Refuse a schedule that has no slot any more, or whose next one cannot be worked out.

    The others have one in every century: they are not asked here.
    """
    if not isinstance(found, Cron | RRule | Union) or _endless(found):
        return found
    kind = next(kind for kind in KINDS if kind in body)
    try:
        slots = schedules.plan(found)
        if slots.next_after(at) is not None:
            return found
        newest = slots.last_until(at)
    except schedules.ScheduleBreach as breach:
        return (Refused(f"/{kind}", f"what is next cannot be worked out: {breach}"),)
    last = f": its last slot was {rfc3339(newest)}" if newest is not None else ""
    return (Refused(f"/{kind}", f"never runs again{last}; give one with a slot still to come"),)


def _endless(found: Cron | RRule | Union) -> bool:
    return isinstance(found, Cron) and found.dialect in _WITHOUT_YEARS


def _either(
    found: ScheduleSpec | Refused | tuple[Refused, ...], wrong: tuple[Refused, ...]
) -> Found:
    if isinstance(found, Refused):
        return (*wrong, found)
    if isinstance(found, tuple):
        return wrong + found
    return wrong or found


def read_recurring(body: Mapping[str, Any], min_interval_s: int) -> Found:
    """Return the recurring schedule that a body names, or what is wrong with it.

    Other fields of the body are left alone.
    """
    given = [kind for kind in KINDS if kind in body]
    if not given:
        return (Refused("/schedule", f"required: one of {', '.join(KINDS)}"),)
    if len(given) > 1:
        return (Refused(f"/{given[1]}", f"given beside {given[0]}: one of the two"),)
    kind = given[0]
    strange = [
        Refused(f"/{field}", f"not beside {kind}")
        for field in RECURRING
        if field in body and field != kind and field not in _FIELDS[kind]
    ]
    found = _READERS[kind](body, min_interval_s)
    return _either(found, tuple(strange))


def counts_ends(body: Mapping[str, Any]) -> bool:
    """Tell whether a body asks for a fixed delay: each run so long after the end of the last."""
    return body.get("from") == COMPLETION


def read_span(
    body: Mapping[str, Any], schedule: ScheduleSpec | None, at: int
) -> dict[str, int] | tuple[Refused, ...]:
    """Return `starts_at`, `ends_at` (ms) and `max_runs`, 0 for none, or what is wrong with them.

    `schedule` is the one they cut, where that is known; `at` is now, in ms.
    """
    found: dict[str, int] = dict.fromkeys(SPAN, 0)
    if _SPAN.isdisjoint(body):
        return found
    wrong = []
    if "max_runs" in body:
        found["max_runs"] = runs = body["max_runs"]
        if body.get("type") == "one_time":
            wrong.append(Refused("/max_runs", "not for a one-time job"))
        elif isinstance(runs, bool) or not isinstance(runs, int) or not 1 <= runs <= RUNS_MAX:
            wrong.append(Refused("/max_runs", f"a whole number from 1 to {RUNS_MAX}"))
    for field in ENDS:
        if field not in body:
            continue
        try:
            found[field] = _instant_of(body, field, at)
        except ValueError as error:
            wrong.append(Refused(f"/{field}", str(error)))
    if not wrong and 0 < found["ends_at"] < found["starts_at"]:
        wrong.append(Refused("/ends_at", "before starts_at: give a later instant"))
    if wrong or not found["ends_at"] or schedule is None:
        return tuple(wrong) or found
    try:
        first = schedules.between(schedule, found["starts_at"], found["ends_at"]).next_after(at)
    except schedules.ScheduleBreach:
        return found  # a schedule that cannot answer any more does not stand in the way of an end
    if first is None:
        since = "starts_at" if found["starts_at"] > at else "now"
        return (Refused("/ends_at", f"no slot of the schedule lies between {since} and ends_at"),)
    return found


def _instant_of(body: Mapping[str, Any], field: str, at: int) -> int:
    if body.get("type") == "one_time":
        raise ValueError("not for a one-time job")
    value = body[field]
    if not isinstance(value, str):
        raise ValueError("a string, such as 2027-03-01T09:00:00Z")
    instant = read_instant(value)
    if instant < 0:
        raise ValueError("before 1970")
    if field == "ends_at" and instant <= at:
        raise ValueError(f"{value} is past: give an instant still to come, or cancel the job")
    return instant


_SUCH_AS: Final = {
    "run_at": "2027-03-01T09:00:00Z",
    "schedule": "0 9 * * 1-5",
    "every": "PT90M or P1M",
    "rrule": "FREQ=MONTHLY;BYDAY=-1FR",
    "anchor": "2027-03-01T09:00:00Z",
    "timezone": "Europe/Berlin or UTC",
    "dialect": "quartz",
    "from": COMPLETION,
}


class _Texts:
    """Takes texts out of a body, and collects what is wrong with them."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        self.body = body
        self.wrong: list[Refused] = []

    def take(self, field: str, default: str | None = None) -> str | None:
        """Return a text, its default, or None after refusing it."""
        value = self.body.get(field, default)
        if isinstance(value, str):
            return value
        what = "a string" if field in self.body else "required"
        self.wrong.append(Refused(f"/{field}", f"{what}, such as {_SUCH_AS[field]}"))
        return None

    def dst(self) -> tuple[str, str]:
        """Return gap and fold, empty where they are not given."""
        dst = self.body.get("dst")
        if dst is None and "dst" not in self.body:
            return "", ""
        if not isinstance(dst, dict):
            self.wrong.append(Refused("/dst", "an object with gap and fold"))
            return "", ""
        for name, value in dst.items():
            if name not in ("gap", "fold"):
                refused = Refused(f"/dst/{token(name[:64])}", "unknown field; gap or fold")
                self.wrong.append(refused)
            elif not isinstance(value, str) or not value:
                detail = "one of the words of the contract, such as first"
                self.wrong.append(Refused(f"/dst/{name}", detail))
        return dst.get("gap", ""), dst.get("fold", "")


def _cron(body: Mapping[str, Any], min_interval_s: int) -> Found | Refused:
    texts = _Texts(body)
    text, zone = texts.take("schedule"), texts.take("timezone")
    dialect, (gap, fold) = texts.take("dialect", "vixie"), texts.dst()
    if texts.wrong or text is None or zone is None or dialect is None:
        return tuple(texts.wrong)
    if dialect in _GO_DIALECTS and text.lower().startswith("@every"):
        found = _go_every(text, zone, gap, fold, min_interval_s)
        if found is not None:
            return found
    return schedules.parse_cron(
        text, zone, dialect=dialect, gap=gap, fold=fold, min_interval_s=min_interval_s
    )


def _go_every(
    text: str, zone: str, gap: str, fold: str, min_interval_s: int
) -> ScheduleSpec | Refused | None:
    """Read `@every 1h30m`; None for what is no duration of whole seconds.

    There it is counted from the start of a process, which no event of ours depends on: here from
    the instant that `every` without an anchor is counted from.
    """
    duration = iso_duration(text)
    if duration is None:
        return None
    found = schedules.parse_every(
        duration, None, zone, gap=gap, fold=fold, min_interval_s=min_interval_s
    )
    if isinstance(found, Refused) and found.pointer == "/every":
        return Refused("/schedule", found.detail)
    return found


def _every(body: Mapping[str, Any], min_interval_s: int) -> Found | Refused:
    texts = _Texts(body)
    text, (gap, fold) = texts.take("every"), texts.dst()
    # An interval of hours, minutes and seconds has nothing to do with a zone.
    local = text is not None and text.startswith("P") and "T" not in text and not counts_ends(body)
    zone = texts.take("timezone", None if local else "UTC")
    anchor = texts.take("anchor") if "anchor" in body else None
    origin = texts.take("from", ORIGINS[0])
    if origin is not None and origin not in ORIGINS:
        detail = (
            f"{origin[:20]!r} is not one of {', '.join(ORIGINS)}: equally far apart, or so long "
            "after the end of each run"
        )
        texts.wrong.append(Refused("/from", detail))
    if texts.wrong or text is None or zone is None:
        return tuple(texts.wrong)
    parse = schedules.parse_delay if origin == COMPLETION else schedules.parse_every
    return parse(text, anchor, zone, gap=gap, fold=fold, min_interval_s=min_interval_s)


def _rrule(body: Mapping[str, Any], min_interval_s: int) -> Found | Refused:
    texts = _Texts(body)
    text, zone, (gap, fold) = texts.take("rrule"), texts.take("timezone"), texts.dst()
    anchor = texts.take("anchor") if "anchor" in body else None
    if texts.wrong or text is None or zone is None:
        return tuple(texts.wrong)
    return schedules.parse_rrule(
        text, anchor, zone, gap=gap, fold=fold, min_interval_s=min_interval_s
    )


def _union(body: Mapping[str, Any], min_interval_s: int) -> Found | Refused:
    given = body["schedules"]
    if not isinstance(given, list) or not 1 <= len(given) <= PARTS_MAX:
        return Refused("/schedules", f"a list of 1 to {PARTS_MAX} schedules")
    parts, wrong = [], []
    for number, part in enumerate(given):
        found = _part(part, body, min_interval_s)
        if isinstance(found, tuple):
            wrong += [Refused(f"/schedules/{number}{one.pointer}", one.detail) for one in found]
        elif isinstance(found, FixedDelay):
            detail = "not in one of several schedules: the end of a run has one next one"
            wrong.append(Refused(f"/schedules/{number}/from", detail))
        elif not isinstance(found, OneTime | Union):
            parts.append(found)
    union = Union(tuple(parts))
    return tuple(wrong) or refuse_close(union, min_interval_s) or union


def _part(part: object, body: Mapping[str, Any], min_interval_s: int) -> Found:
    if not isinstance(part, dict):
        return (Refused("", 'an object such as {"schedule": "0 9 * * 1-5"}'),)
    strange = [
        Refused(f"/{token(name[:64])}", f"unknown field; one of {', '.join(sorted(_PART))}")
        for name in part
        if name not in _PART
    ]
    if strange:
        return tuple(strange)
    zone = {"timezone": body["timezone"]} if "timezone" in body else {}
    return read_recurring(zone | part, min_interval_s)


_READERS: Final[dict[str, Callable[[Mapping[str, Any], int], Found | Refused]]] = {
    "schedule": _cron,
    "every": _every,
    "rrule": _rrule,
    "schedules": _union,
}
