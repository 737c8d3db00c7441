"""Clients, views, hand-off, secrets, rest and means, broken by hand: that one is found alone."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from domain.job import events as je
from tests.checker import product
from tests.checker.check import check
from tests.checker.inputs import (
    Attempt,
    Budget,
    Canary,
    Command,
    Due,
    Fault,
    HandOff,
    Head,
    History,
    Probe,
    Run,
    Sample,
    Session,
    Standing,
    Text,
)
from tests.checker.scene import MINUTE, SECOND, START, TENANT, Scene, broken

OTHER = bytes(15) + b"\x08"
HOUR = 3_600_000


def whole(**scenario: Any) -> History:
    """Return a right history with views: one job that has fired twice, once after a retry."""
    scene = Scene()
    job = scene.define()
    run = scene.plan(job, START + MINUTE)
    scene.lease(run)
    scene.hit(run, 500)
    scene.fail(run)
    scene.fire(run)
    run = scene.plan(job, START + 2 * MINUTE)
    scene.fire(run)
    scene.plan(job, START + 3 * MINUTE)
    found = scene.history(**scenario)
    found.projections = product.projections(found.events)
    found.history = product.history(found.events)
    return found


def invariants(history: History) -> set[str]:
    """Return what a history violates."""
    report = check(history)
    print(report.text())
    return set(report.broken)


def altered(rows: Any, kind: type, **fields: Any) -> list[Any]:
    """Return rows of which the first of a kind is another."""
    found = list(rows)
    place = next(n for n, row in enumerate(found) if isinstance(row, kind))
    found[place] = msgspec.structs.replace(found[place], **fields)
    return found


def test_views_that_are_the_fold_of_the_log_are_right() -> None:
    assert invariants(whole()) == set()


# -------------------------------------------------------------------- I12


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (Due, {"due_at": START}),
        (Due, {"run_id": bytes(16)}),
        (Head, {"version": 2}),
        (Head, {"state": b"\x93"}),
    ],
)
def test_i12_a_row_that_is_not_what_the_log_says(kind: type, fields: dict[str, Any]) -> None:
    history = whole()
    history.projections = altered(history.projections, kind, **fields)
    assert invariants(history) == {"I12"}


@pytest.mark.parametrize("kind", [Due, Head])
def test_i12_a_row_that_is_missing(kind: type) -> None:
    history = whole()
    history.projections = [row for row in history.projections or () if not isinstance(row, kind)]
    assert invariants(history) == {"I12"}


def test_i12_a_due_row_of_a_run_that_has_ended() -> None:
    history = whole()
    ended = next(e.stream for e in history.events if e.name == "run.completed.v1")
    due = next(row for row in history.projections or () if isinstance(row, Due))
    history.projections = [
        *(history.projections or ()),
        msgspec.structs.replace(due, run_id=ended),
    ]
    assert invariants(history) == {"I12"}


# -------------------------------------------------------------------- I14


def handed(history: History) -> list[HandOff]:
    """Return an entry for every time a run was planned."""
    return [
        HandOff(START * 1_000, e.stream, e.version)
        for e in history.events
        if e.name == "run.scheduled.v1"
    ]


def test_i14_a_lease_of_what_was_never_handed_off() -> None:
    history = whole()
    history.hand_offs = handed(history)
    assert invariants(history) == set()
    history.hand_offs = handed(history)[1:]
    assert invariants(history) == {"I14"}


def test_a_message_without_an_event_is_counted() -> None:
    history = whole()
    ghost = HandOff(START * 1_000, bytes(16), 1)
    history.hand_offs = [*handed(history), ghost, handed(history)[0]]
    report = check(history)
    assert not report.broken
    assert (report.paths["ghost_messages"], report.paths["published_again"]) == (1, 1)


# -------------------------------------------------------------------- I15


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (Attempt, {"status": 200}),
        (Attempt, {"attempt": 7}),
        (Run, {"status": "dead"}),
        (Run, {"attempts": 1}),
    ],
)
def test_i15_a_row_of_the_history_that_is_not_what_the_log_says(
    kind: type, fields: dict[str, Any]
) -> None:
    history = whole(quiescent=True)
    history.projections = None
    history.history = altered(history.history, kind, **fields)
    assert invariants(history) == {"I15"}


def test_i15_rows_that_are_missing_or_there_twice() -> None:
    history = whole(quiescent=True)
    history.projections = None
    rows = list(history.history or ())
    for changed in (rows[1:], [*rows, rows[0]]):
        history.history = changed
        assert invariants(history) == {"I15"}


def test_i15_a_view_that_is_behind_misses_nothing_yet() -> None:
    history = whole()
    history.history = list(history.history or ())[:1]
    assert invariants(history) == set()


# -------------------------------------------------------------------- I16, I22


def test_i16_a_text_of_another_tenant() -> None:
    history = whole(canaries=(Canary(OTHER, "canary-of-b"),))
    assert invariants(history) == set()
    history.texts = [Text("an answer", "a job called canary-of-b", TENANT)]
    assert invariants(history) == {"I16"}
    history.texts = [Text("an answer", "a job called canary-of-b", OTHER)]
    assert invariants(history) == set()
    history.history = altered(history.history, Attempt, body=b"canary-of-b")
    assert invariants(history) == {"I16"}


@pytest.mark.parametrize(
    "leak",
    [
        lambda h: setattr(h, "texts", [Text("a log line", "password=s3cr3t-value")]),
        lambda h: setattr(h, "history", altered(h.history, Attempt, body=b"s3cr3t-value")),
    ],
)
def test_i22_a_secret_where_it_can_be_read(leak: Callable[[History], None]) -> None:
    history = whole(secrets=("s3cr3t-value",))
    assert invariants(history) == set()
    leak(history)
    assert invariants(history) == {"I22"}


def test_i22_a_secret_in_an_event() -> None:
    scene = Scene()
    job = scene.define()
    scene.plan(job, START + MINUTE)
    scene.put(job, je.RunRequested(scene.now, bytes(16), START, bytes(16), "s3cr3t-value"))
    assert broken(scene, secrets=("s3cr3t-value",)) == {"I22"}


# -------------------------------------------------------------------- I19, I20


def commanded() -> tuple[Scene, bytes]:
    """Return a job on which a command with an id was carried out."""
    scene = Scene()
    job = scene.define()
    scene.chain(job, 1)
    scene.told("trigger", job, 1, command="once", body_sha256=b"a")
    return scene, job


def test_i19_a_command_id_with_two_bodies() -> None:
    scene, job = commanded()
    scene.now += SECOND
    scene.told("trigger", job, 1, command="once", body_sha256=b"b")
    assert broken(scene) == {"I19"}


@pytest.mark.parametrize(
    ("status", "body", "wrong"),
    [(422, b"b", set()), (422, b"a", {"I19"}), (409, b"b", {"I19"}), (503, b"a", set())],
)
def test_i19_a_repeat_is_answered_422_if_its_body_is_another(
    status: int, body: bytes, wrong: set[str]
) -> None:
    scene, job = commanded()
    scene.now += SECOND
    scene.told("trigger", job, 0, command="once", body_sha256=body, outcome="fail", status=status)
    assert broken(scene) == wrong


def test_i19_a_command_that_asks_for_two_runs() -> None:
    scene, job = commanded()
    for _ in range(2):
        scene.put(job, je.RunRequested(scene.now, scene.new_id(), START, b"c" * 16))
    assert broken(scene) == {"I19"}


def test_i19_two_rows_of_a_command() -> None:
    history = whole()
    job = history.events[0].stream
    row = Command(job, b"c" * 16, b"", 1, 1, START)
    history.projections = [*(history.projections or ()), row]
    assert invariants(history) == set()
    history.projections = [*history.projections, row]
    assert invariants(history) == {"I19"}


def test_i20_a_client_that_sees_a_job_go_back() -> None:
    scene, job = commanded()
    scene.put(job, je.CatchUpClosed(scene.now, START, tenant_id=TENANT))
    for version in (2, 1):
        scene.now += SECOND
        scene.told("read", job, version)
    assert broken(scene) == {"I20"}


def test_i20_a_read_that_is_older_than_was_asked_for() -> None:
    scene, job = commanded()
    scene.now += SECOND
    scene.told("read", job, 1, min_version=2)
    assert broken(scene) == {"I20"}


def test_what_may_have_happened_is_not_asked_for() -> None:
    scene, job = commanded()
    scene.told("cancel", job, 9, outcome="info", status=0)
    report = check(scene.history())
    assert not report.broken
    assert report.paths["unknown_calls"] == 1


# -------------------------------------------------------------------- I23, I24


def test_i23_a_lease_that_is_over_and_nobody_reclaims() -> None:
    scene = Scene()
    job = scene.define()
    run = scene.plan(job, START + MINUTE)
    scene.lease(run)
    scene.now += 5 * MINUTE
    assert broken(scene, quiescent=True, exact_hits=False) == {"I23"}
    scene.faults.append(Fault("postgres", "still away", START, scene.now))
    assert broken(scene, quiescent=True, exact_hits=False) == set()


def test_i23_a_view_that_is_behind_at_rest() -> None:
    history = whole(quiescent=True)
    rows = [row for row in history.projections or () if not isinstance(row, Standing)]
    history.projections = [*rows, Standing("run_history", 0, 3)]
    assert "I23" in invariants(history)


def test_i23_a_process_that_is_down() -> None:
    assert invariants(whole(up=False)) == {"I23"}


def test_i23_the_probe_fires_on_time() -> None:
    history = whole()
    job = history.events[0].stream
    for probed, wrong in ((job, set()), (bytes(16), {"I23"})):
        history.scenario = msgspec.structs.replace(history.scenario, probe=Probe(probed))
        assert invariants(history) == wrong


def test_i24_a_resource_over_its_budget() -> None:
    history = whole(budgets=(Budget("rss_mb", 200),))
    history.samples = [Sample(START + n * MINUTE, "api", "rss_mb", 150.0) for n in range(60)]
    assert invariants(history) == set()
    history.samples = [*history.samples, Sample(START + HOUR, "api", "rss_mb", 201.0)]
    assert invariants(history) == {"I24"}


def test_i24_a_resource_that_rises() -> None:
    history = whole()
    history.samples = [Sample(START + n * MINUTE, "api", "fds", 100.0 + n) for n in range(120)]
    assert invariants(history) == {"I24"}


# -------------------------------------------------------------------- paths


def test_a_path_that_the_run_was_for_and_never_took() -> None:
    assert invariants(whole(expected=("retries",))) == set()
    assert invariants(whole(expected=("reclaims",))) == {"path"}
    assert invariants(whole(expected=("fence_refusals",), counted={"fence_refusals": 3})) == set()


def test_a_session_has_no_invariant_of_its_own() -> None:
    history = whole()
    history.projections = [*(history.projections or ()), Session(bytes(16), START, ended=True)]
    assert invariants(history) == set()
