"""A dispatcher hears "I have it": the attempt is its handler's then, and no process holds it."""

import pytest

from commandside.ports import Append
from domain import ids
from domain.opaque import read_completion
from domain.run import events as re
from domain.run.accepted import succeeded
from domain.run.report import report
from domain.run.state import Awaiting, InFlight, Ready
from infra.memory.fire_log import Fate
from infra.memory.targets import Reply
from tests.commandside.scene import COMPLETIONS, Scene, drain, header, once

ASYNC = (("Tocsin-Completion", "async"),)


def accepting(**headers: str) -> Scene:
    scene = Scene()
    said = tuple(headers.items()) or ASYNC
    scene.answer = lambda _call: Reply(status=202, headers=said)
    return scene


def handed_over(scene: Scene) -> Ready:
    run = scene.one_time()
    scene.hand_off()
    scene.until(lambda: "Accepted" in scene.names(run))
    return run


def complete(scene: Scene, run: Ready) -> None:
    """End the run as its handler does through the API."""
    open_run = scene.log.due[run.facts.run_id].run
    job = scene.log.heads[run.facts.job_id][0]
    result, now = succeeded(open_run, scene.clock.now(), b"1"), scene.clock.now()
    decision = report(job, open_run, open_run.facts.fence, result, now, alone=True)
    assert decision is not None
    scene.append(decision)


def test_a_target_that_takes_the_work_is_left_to_end_it() -> None:
    scene = accepting()
    run = handed_over(scene)
    assert scene.names(run) == ["Scheduled", "Leased", "Accepted"]
    assert isinstance(scene.log.due[run.facts.run_id].run, Awaiting)
    scene.until(lambda: scene.dispatcher.unreported == 0)
    assert scene.telemetry.counts["attempts_accepted"] == 1


@pytest.mark.parametrize(
    "reply",
    [
        Reply(status=202),
        Reply(status=202, headers=(("Tocsin-Completion", "later"),)),
        Reply(status=200, headers=ASYNC),
        Reply(status=204, headers=ASYNC),
    ],
)
def test_any_other_success_is_the_end(reply: Reply) -> None:
    scene = Scene()
    scene.answer = lambda _call: reply
    run = scene.one_time()
    scene.hand_off()
    scene.until(lambda: scene.ended(run))
    assert scene.names(run) == ["Scheduled", "Leased", "Fired", "Completed"]
    assert scene.telemetry.counts["attempts_accepted"] == 0


@pytest.mark.parametrize("word", ["async", " Async ", "ASYNC"])
def test_the_word_has_no_case(word: str) -> None:
    scene = Scene()
    scene.answer = lambda _call: Reply(status=202, headers=(("tocsin-completion", word),))
    handed_over(scene)


def test_every_call_brings_the_token_of_its_attempt_and_of_no_other() -> None:
    scene = Scene()
    scene.answer = lambda _call: Reply(status=500)
    run = scene.one_time()
    scene.hand_off()
    scene.until(lambda: "Fired" in scene.names(run))
    scene.hand_off()
    scene.until(lambda: len(scene.deliverer.hits) >= 2)
    tokens = [header(hit.call, "Tocsin-Completion-Token") for hit in scene.deliverer.hits]
    facts = run.facts
    read = [read_completion(COMPLETIONS, facts.run_id, token) for token in tokens]
    fences = [int(header(hit.call, "Tocsin-Fence")) for hit in scene.deliverer.hits]
    assert read == [(facts.job_id, fence) for fence in fences]
    assert fences[0] < fences[1]
    other = ids.run_id(facts.job_id, 1, facts.nominal, ids.SLOT)
    assert read_completion(COMPLETIONS, other, tokens[0]) is None
    assert read_completion(COMPLETIONS, facts.run_id, tokens[0][:-1] + "!") is None


def test_accepted_attempts_do_not_hold_a_drain() -> None:
    scene = accepting()
    run = handed_over(scene)
    drain(scene)
    assert scene.names(run) == ["Scheduled", "Leased", "Accepted"]


@pytest.mark.parametrize("fate", [Fate.REQUEST_LOST, Fate.REPLY_LOST])
def test_an_acceptance_of_unknown_fate_is_written_once(fate: Fate) -> None:
    scene = accepting()
    run = scene.one_time()
    scene.hand_off()
    scene.fates = once(Append, fate)
    scene.until(lambda: "Accepted" in scene.names(run))
    scene.until(lambda: scene.dispatcher.unreported == 0)
    assert scene.names(run) == ["Scheduled", "Leased", "Accepted"]


def test_an_acceptance_after_the_handlers_end_has_nothing_left_to_say() -> None:
    scene = accepting()
    run = scene.one_time()
    scene.hand_off()
    scene.until(lambda: scene.deliverer.hits)
    assert isinstance(scene.log.due[run.facts.run_id].run, InFlight)
    complete(scene, run)
    scene.until(lambda: scene.dispatcher.unreported == 0)
    assert scene.names(run) == ["Scheduled", "Leased", "Fired", "Completed"]
    assert scene.telemetry.alarms == []


def test_an_acceptance_after_the_lapse_is_dropped_and_the_retry_goes_on() -> None:
    scene = accepting()
    scene.answer = lambda _call: Reply(status=202, headers=ASYNC, latency_us=20_000_000)
    run = scene.one_time()
    scene.hand_off()
    scene.until(lambda: scene.deliverer.hits)
    for session in list(scene.log.sessions):
        scene.log.end(session)
    scene.audit()
    scene.run_ms(25_000)
    events = scene.events(run.facts.run_id)
    lost = [event for event in events if isinstance(event, re.Fired)]
    assert [event.outcome for event in lost] == [re.LOST]
    assert scene.names(run)[:4] == ["Scheduled", "Leased", "Fired", "Scheduled"]
