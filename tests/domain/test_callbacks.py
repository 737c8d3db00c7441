"""Which ends are told, to whom, and by which job: functions of the event alone."""

import json
from typing import Any

import msgspec
import pytest

from commandside.payload_port import INLINE_BYTES_MAX
from domain.callback import (
    FAILURE,
    NAMES,
    SKIPPED,
    SUCCESS,
    CallbackOf,
    Callbacks,
    chosen,
)
from domain.catalogue import DomainEvent
from domain.ids import MANUAL, callback_id
from domain.instant import LAST
from domain.job import events as je
from domain.job.callback import SKIPPED_MAX, Ended, body, define, ended, spec_of
from domain.retry import ONE_TIME_DEFAULT
from domain.run import events as re
from domain.schedule.schedule import OneTime
from domain.target import HttpTarget
from tests.domain.golden.events import AT, EVENTS, FULL_SPEC, JOB, PASSED, RUN, SLOT, TENANT

TARGET = HttpTarget("https", "a.example", 443, "/x", "POST", (), "https://a.example/x")
OTHER = msgspec.structs.replace(TARGET, path="/y", url_typed="https://a.example/y")
TELLING = {
    "run.fired.v1 least": SUCCESS,
    "run.fired.v1 full": FAILURE,
    "run.completed.v1 full": FAILURE,
    "run.skipped.v1 least": SKIPPED,
    "run.skipped.v1 full": SKIPPED,
    "run.scheduled.v1 full": SKIPPED,
    "job.revised.v1 full": SKIPPED,
    "job.revised.v1 pausing full": SKIPPED,
    "job.revised.v1 excluding full": SKIPPED,
    "job.revised.v1 naming full": SKIPPED,
    "job.revised.v1 placed full": SKIPPED,
    "job.revised.v1 stored full": SKIPPED,
    "job.revised.v1 telling full": SKIPPED,
    "job.paused.v1 full": SKIPPED,
    "job.paused.v1 until full": SKIPPED,
    "job.resumed.v1 full": SKIPPED,
    "job.cancelled.v1 full": SKIPPED,
    "job.finished.v1 full": SKIPPED,
    "job.replanned.v1 full": SKIPPED,
    "job.replanned.v1 excluding full": SKIPPED,
    "job.catch-up-closed.v1 full": SKIPPED,
}


def fired(then: str, **fields: Any) -> re.Fired:
    """Return the end of an attempt."""
    event = EVENTS["run.fired.v1 full"]
    assert isinstance(event, re.Fired)
    return msgspec.structs.replace(event, then=then, **fields)


def end_of(event: DomainEvent, stream: bytes = RUN, version: int = 7) -> Ended:
    """Return the end that an event is."""
    found = ended(stream, version, event)
    assert found is not None
    return found


@pytest.mark.parametrize("name", EVENTS)
def test_of_all_events_those_are_ends(name: str) -> None:
    stream = JOB if name.startswith("job") else RUN
    found = ended(stream, 7, EVENTS[name])
    assert (found.event if found else None) == TELLING.get(name)
    if found is not None:
        assert (found.tenant_id, found.job_id, found.at) == (TENANT, JOB, AT)
        assert (found.stream_id, found.version) == (stream, 7)


@pytest.mark.parametrize("then", [re.RETRY, re.WITHDRAWN, re.CANCELLED])
def test_an_attempt_that_ends_nothing_is_no_end(then: str) -> None:
    assert ended(RUN, 7, fired(then)) is None


def test_slots_that_a_calendar_excludes_are_told_to_nobody() -> None:
    gone = re.Passed(SLOT, SLOT, 1, re.BLACKOUT, "calendar")
    assert ended(JOB, 3, je.Finished(AT, AT, (gone,), TENANT)) is None
    end = end_of(je.Finished(AT, AT, (gone, *PASSED), TENANT), JOB)
    assert end.passed == PASSED
    assert end.nominal == PASSED[0].first
    assert ended(RUN, 2, re.Skipped(AT, JOB, TENANT, SLOT, re.BLACKOUT)) is None


def test_a_job_says_for_itself_and_else_the_default_does() -> None:
    default = Callbacks(on_success=OTHER, on_failure=OTHER)
    own = Callbacks(on_failure=TARGET, off=(SUCCESS,))
    assert chosen(FAILURE, own, default) == (TARGET, False)
    assert chosen(SUCCESS, own, default) is None
    assert chosen(SKIPPED, own, default) is None
    assert chosen(SUCCESS, None, default) == (OTHER, True)
    assert chosen(FAILURE, Callbacks(on_success=TARGET), default) == (OTHER, True)
    assert chosen(FAILURE, None, None) is None
    assert chosen(FAILURE, own, None) == (TARGET, False)


GOLDEN = {
    "run.fired.v1 least": (
        '{"type":"run.succeeded","timestamp":"2027-01-15T08:00:00.123Z","data":{'
        '"job_id":"jb_00010203040506070809a0a1a2a3a4a5","name":"nightly invoices",'
        '"labels":{"team":"billing","env":"prod"},'
        '"run_id":"rn_0191aabbccddeeff8081828384858687","kind":"slot",'
        '"scheduled_for":"2027-01-15T08:01:00.000Z","cause":null,"attempts":1,'
        '"last_status":null,"last_error":null}}'
    ),
    "run.fired.v1 full": (
        '{"type":"run.dead","timestamp":"2027-01-15T08:00:00.123Z","data":{'
        '"job_id":"jb_00010203040506070809a0a1a2a3a4a5","name":"nightly invoices",'
        '"labels":{"team":"billing","env":"prod"},'
        '"run_id":"rn_0191aabbccddeeff8081828384858687","kind":"manual",'
        '"scheduled_for":"2027-01-15T08:01:00.000Z","cause":"attempts","attempts":2,'
        '"last_status":503,"last_error":"response_too_large"}}'
    ),
    "run.completed.v1 full": (
        '{"type":"run.dead","timestamp":"2027-01-15T08:00:00.123Z","data":{'
        '"job_id":"jb_00010203040506070809a0a1a2a3a4a5","name":"nightly invoices",'
        '"labels":{"team":"billing","env":"prod"},'
        '"run_id":"rn_0191aabbccddeeff8081828384858687","kind":"slot",'
        '"scheduled_for":"2027-01-15T08:01:00.000Z","cause":"expired","attempts":2,'
        '"last_status":null,"last_error":null}}'
    ),
    "run.skipped.v1 full": (
        '{"type":"run.skipped","timestamp":"2027-01-15T08:00:00.123Z","data":{'
        '"job_id":"jb_00010203040506070809a0a1a2a3a4a5","name":"nightly invoices",'
        '"labels":{"team":"billing","env":"prod"},'
        '"run_id":"rn_0191aabbccddeeff8081828384858687","kind":"manual",'
        '"scheduled_for":"2027-01-15T08:01:00.000Z","skipped":[{'
        '"first":"2027-01-15T08:01:00.000Z","last":"2027-01-15T08:01:00.000Z","count":1,'
        '"verdict":"expired","cause":"max_lateness"}]}}'
    ),
    "job.finished.v1 full": (
        '{"type":"run.skipped","timestamp":"2027-01-15T08:00:00.123Z","data":{'
        '"job_id":"jb_00010203040506070809a0a1a2a3a4a5","name":"nightly invoices",'
        '"labels":{"team":"billing","env":"prod"},"run_id":null,"kind":"slot",'
        '"scheduled_for":"2027-01-15T07:59:00.000Z","skipped":[{'
        '"first":"2027-01-15T07:59:00.000Z","last":"2027-01-15T08:00:00.000Z","count":2,'
        '"verdict":"misfire","cause":"outage"},{'
        '"first":"2027-01-15T08:00:30.000Z","last":"2027-01-15T08:00:30.000Z","count":null,'
        '"verdict":"overlap","cause":null}]}}'
    ),
}
"""The contract with receivers: a member that is there never changes."""


@pytest.mark.parametrize("name", GOLDEN)
def test_what_a_receiver_is_sent_never_changes(name: str) -> None:
    stream = JOB if name.startswith("job") else RUN
    assert body(end_of(EVENTS[name], stream), FULL_SPEC).decode() == GOLDEN[name]


def test_a_body_lists_no_more_ranges_than_it_may() -> None:
    many = tuple(re.Passed(SLOT + n, SLOT + n, 1, re.OVERLAP) for n in range(SKIPPED_MAX + 5))
    said = json.loads(body(end_of(je.Finished(AT, AT, many, TENANT), JOB), FULL_SPEC))
    assert len(said["data"]["skipped"]) == SKIPPED_MAX


def test_the_largest_body_is_kept_in_the_spec_of_its_job() -> None:
    far = LAST - 1
    many = tuple(re.Passed(far, far, None, "x" * 8, "y" * 32) for _ in range(SKIPPED_MAX + 1))
    labels = tuple((f"{n:063}", "\U0001f642" * 128) for n in range(20))
    spec = msgspec.structs.replace(FULL_SPEC, name="\U0001f642" * 128, labels=labels)
    end = end_of(je.Finished(AT, AT, many, TENANT), JOB)
    assert len(body(end, spec)) <= INLINE_BYTES_MAX


def test_the_job_that_tells_follows_from_the_event() -> None:
    end = end_of(fired(re.DEAD))
    spec = spec_of(end, FULL_SPEC, TARGET, 3)
    assert spec.schedule == OneTime(AT + 2_000), "as the end's instant says, whenever it is read"
    assert (spec.target, spec.retry) == (TARGET, ONE_TIME_DEFAULT)
    assert spec.callbacks is None
    assert spec.callback_of == CallbackOf(JOB, RUN, RUN, 7, FAILURE, 3)
    assert spec.name == "on_failure of nightly invoices"
    assert spec.labels == FULL_SPEC.labels
    decision = define(end, spec)
    assert decision.job_id == end.callback_id == callback_id(RUN, 7)
    assert decision == define(end, spec)
    head, run = decision.slices
    assert [type(event) for event in (*head.events, *run.events)] == [je.Defined, re.Scheduled]
    assert {event.at for event in (*head.events, *run.events)} == {AT}
    (planned,) = run.events
    assert isinstance(planned, re.Scheduled)
    assert (planned.nominal, planned.due_at) == (AT + 2_000, AT + 2_000)


def test_every_event_has_a_job_of_its_own() -> None:
    ids = {callback_id(stream, version) for stream in (RUN, JOB) for version in range(1, 50)}
    assert len(ids) == 2 * 49
    assert callback_id(RUN, 7).hex() == "ee8b6458cb6be68fcc97ad130b16829d"


def test_a_long_name_is_cut() -> None:
    spec = msgspec.structs.replace(FULL_SPEC, name="n" * 128)
    assert len(spec_of(end_of(fired(re.DEAD)), spec, TARGET, 0).name) == 128


def test_a_job_without_a_name_is_told_by_its_id() -> None:
    spec = msgspec.structs.replace(FULL_SPEC, name="")
    end = end_of(fired(re.SUCCEEDED, kind=MANUAL))
    assert spec_of(end, spec, TARGET, 0).name == f"{NAMES[SUCCESS]} of jb_{JOB.hex()}"
