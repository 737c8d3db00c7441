"""`tocsin schedule`: ask when a schedule fires. It needs no engine, no settings and no server."""

import argparse
import sys
from typing import Any, Final

from commandside.commands.language import ENGLISH, known, told
from commandside.definitions.when import read_recurring
from domain.refusal import Refused
from domain.schedule import zone
from domain.schedule.cron import DIALECTS
from domain.schedule.delay import ORIGINS
from domain.schedule.once import read_instant
from domain.schedule.schedule import FixedDelay, Plan, ScheduleBreach, ScheduleSpec, plan, warnings
from domain.schedule.telling import local_text
from infra.cli.schedule_lines import COUNT, COUNT_MAX, answer_lines, instant_text
from infra.clock import wall_ms
from infra.languages.descriptor import CronTeller

REFUSED: Final = 1
_MIN_INTERVAL_S: Final = 60
_TELLER: Final = CronTeller()
Refusals = tuple[Refused, ...]


def main(typed: list[str]) -> int:
    """Run `tocsin schedule` with its words; returns the exit status."""
    parser = _parser()
    words = parser.parse_args(typed)
    if words.exclude and getattr(words, "jsonl", False):
        parser.error("--exclude is not for --jsonl: it is asked about one schedule")
    if getattr(words, "jsonl", False):
        with open(sys.stdin.fileno(), "rb", closefd=False) as source:  # its type has read1
            answer_lines(source, sys.stdout.buffer, wall_ms, words.min_interval)
        return 0
    spec = read_recurring(_body(words), words.min_interval)
    if isinstance(spec, tuple):
        return _refused(spec)
    try:
        after = read_instant(words.after) if words.after else wall_ms()
    except ValueError as error:
        return _refused((Refused("/after", str(error)),))
    if isinstance(spec, FixedDelay):
        words.count = 1  # what follows it depends on how long the run takes
    slots = _slots(spec, words, after)
    if isinstance(slots, tuple):
        return _refused(slots)
    if words.action == "next":
        _list(spec, slots, after, words.count)
        if isinstance(spec, FixedDelay):
            print(*warnings(spec, after), sep="\n", file=sys.stderr)
    elif words.action == "explain":
        _explain(spec, slots, after, words)
    else:
        print(f"{told(_TELLER, spec, words.language)[0]} (zone data {zone.VERSION})")
    return 0


def _parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="tocsin schedule", description=__doc__)
    actions = top.add_subparsers(dest="action", required=True, metavar="ACTION")
    following = actions.add_parser("next", help="list the next instants, in UTC and local time")
    following.add_argument(
        "--jsonl", action="store_true", help="answer a JSON question a line from standard input"
    )
    explain = actions.add_parser("explain", help="say in words what it does, and what may surprise")
    check = actions.add_parser("check", help="say whether it is accepted: exit status 0, else 1")
    for action in (following, explain, check):
        _schedule_words(action)
    return top


def _schedule_words(action: argparse.ArgumentParser) -> None:
    action.add_argument("schedule", nargs="?", help="a cron text")
    action.add_argument("--every", metavar="DURATION", help="instead: such as PT90M or P1M")
    action.add_argument("--rrule", metavar="RULE", help="instead: such as FREQ=MONTHLY;BYDAY=-1FR")
    action.add_argument("--anchor", metavar="INSTANT", help="where --every or --rrule begins")
    action.add_argument(
        "--from",
        metavar="WORD",
        help=f"what --every is counted from: {', '.join(ORIGINS)} of a run",
    )
    action.add_argument("--timezone", metavar="NAME", default="UTC", help="default: UTC")
    action.add_argument(
        "--dialect", metavar="NAME", help=f"of the cron text: {', '.join(DIALECTS)}; default: vixie"
    )
    action.add_argument("--gap", metavar="WORD", help="where the clock goes forward: next, skip")
    action.add_argument(
        "--exclude",
        action="append",
        metavar="FILE",
        help="leave out what an iCalendar file, or the JSON of a calendar, says; may be repeated",
    )
    action.add_argument("--fold", metavar="WORD", help="where it goes back: first, last, both")
    action.add_argument(
        "--language",
        type=_language,
        default=ENGLISH,
        help=f"of a cron text in words: {', '.join(_TELLER.languages)}; default: %(default)s",
    )
    action.add_argument("--after", metavar="INSTANT", help="RFC 3339; default: now")
    action.add_argument("--count", type=_count, default=COUNT, help="default: %(default)s")
    action.add_argument(
        "--min-interval",
        type=int,
        metavar="SECONDS",
        default=_MIN_INTERVAL_S,
        help="least distance of two fires; default: %(default)s",
    )


def _count(text: str) -> int:
    count = int(text)
    if not 1 <= count <= COUNT_MAX:
        raise argparse.ArgumentTypeError(f"a whole number from 1 to {COUNT_MAX}")
    return count


def _language(text: str) -> str:
    found = known(text, _TELLER)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(_TELLER.languages)}")
    return found


def _body(words: argparse.Namespace) -> dict[str, Any]:
    given = {
        name: getattr(words, name)
        for name in ("schedule", "every", "rrule", "anchor", "from", "timezone", "dialect")
        if getattr(words, name) is not None
    }
    dst = {name: getattr(words, name) for name in ("gap", "fold") if getattr(words, name)}
    return given | {"dst": dst} if dst else given


def _slots(spec: ScheduleSpec, words: argparse.Namespace, after: int) -> Plan | Refusals:
    """Return the plan, without what files exclude, or what is wrong with those."""
    if not words.exclude:
        return plan(spec)
    if isinstance(spec, FixedDelay):
        return (Refused("/exclude", "not beside --from: a delay after an end has no slots"),)
    from infra.cli.schedule_exclude import plan_without  # slow to load, and seldom asked for

    slots = plan_without(spec, words.exclude, wall_ms())
    if isinstance(slots, tuple):
        return slots
    try:
        if slots.next_after(after) is not None:
            return slots
    except ScheduleBreach as breach:
        return (Refused("/exclude", f"never runs: {breach}"),)
    return (Refused("/exclude", "never runs: nothing is left of the schedule"),)


def _refused(reasons: Refusals) -> int:
    for reason in reasons:
        print(f"{reason.pointer[1:]}: {reason.detail}", file=sys.stderr)
    return REFUSED


def _list(spec: ScheduleSpec, slots: Plan, after: int, count: int) -> None:
    slot = slots.next_after(after)
    while slot is not None and count:
        print(f"{instant_text(slot)}  {local_text(spec, slot)}")
        slot, count = slots.next_after(slot), count - 1


def _explain(spec: ScheduleSpec, slots: Plan, after: int, words: argparse.Namespace) -> None:
    print(told(_TELLER, spec, words.language)[0])
    for sentence in warnings(spec, after):
        print(f"- {sentence}")
    _list(spec, slots, after, words.count)
