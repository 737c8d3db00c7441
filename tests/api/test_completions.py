"""What handlers say over HTTP: with the token of their attempt, and with nothing else."""

from typing import Any

import httpx
import pytest

from commandside.ports import Granted
from domain.opaque import COMPLETION, Seal, completion_token
from domain.run.accepted import accept
from tests.api.test_openapi import Page
from tests.api.test_queries import lease, without_payload
from tests.api.world import JOB, SECRET, World

HOUR_MS = 3_606_000
BEAT = {"heartbeat_timeout_s": 30, "max_run_time_s": 3600}
TOKEN = "Tocsin-Completion-Token"


class Working:
    """A job whose one occurrence was accepted."""

    def __init__(self, world: World, **fields: Any) -> None:
        self.world = world
        self.job = world.define(without_payload(**BEAT | fields))["job_id"]
        world.clock.advance_ms(HOUR_MS)
        (self.granted,) = lease(world)
        self.take(self.granted)
        facts = self.granted.run.facts
        self.run = f"rn_{facts.run_id.hex()}"
        seal = Seal(SECRET, COMPLETION)
        self.token = completion_token(seal, facts.run_id, facts.job_id, facts.fence)

    def take(self, granted: Granted) -> None:
        """Accept as a dispatcher writes it down."""
        run, now = granted.run, self.world.clock.now()
        decision = accept(granted.job.facts.spec, run, run.facts.fence, now)
        assert decision is not None
        assert not self.world.log.append([decision], now).refused

    def say(self, word: str, body: Any = None, *, token: str = "", run: str = "") -> httpx.Response:
        """Send a handler's word."""
        shown = {TOKEN.lower().replace("-", "_"): token or self.token}
        path = f"/v1/runs/{run or self.run}/{word}"
        return self.world.send("POST", path, body, key="", **shown)

    def shown(self) -> dict[str, Any]:
        """Return the run as its history shows it."""
        self.world.project()
        found: dict[str, Any] = self.world.send("GET", f"/v1/jobs/{self.job}/runs").json()
        run: dict[str, Any]
        (run,) = [item for item in found["items"] if item["run_id"] == self.run]
        return run

    def stored(self) -> int:
        return self.world.stored()


@pytest.fixture
def working(world: World) -> Working:
    return Working(world)


def test_a_handler_beats_with_its_progress_which_the_history_shows(working: Working) -> None:
    shown = working.shown()
    assert (shown["status"], shown["attempts_made"], "progress" in shown) == ("running", 1, False)
    working.world.clock.advance_ms(10_000)
    said = working.say("heartbeat", {"progress": 40, "note": "page 4"})
    assert (said.status_code, said.json()["status"]) == (200, "running")
    assert said.json()["lease_until"] > shown["fired_at"]
    progress = working.shown()["progress"]
    assert (progress["percent"], progress["note"]) == (40, "page 4")
    events = working.stored()
    again = working.say("heartbeat", {"progress": 41})
    assert again.json() == said.json()
    assert working.stored() == events


def test_a_handler_completes_and_its_result_is_that_of_the_attempt(working: Working) -> None:
    working.world.clock.advance_ms(20_000)
    said = working.say("complete", b'{"result": {"rows":  3}}')
    assert said.status_code == 200
    assert said.json() == {
        "run_id": working.run,
        "status": "succeeded",
        "lease_until": None,
        "next_attempt_at": None,
    }
    shown = working.shown()
    (attempt,) = shown["attempts"]
    assert (shown["status"], shown["verdict"]) == ("succeeded", "succeeded")
    assert (attempt["status"], attempt["body"]) == (202, '{"rows":  3}')
    assert attempt["latency_ms"] == 20_000
    events = working.stored()
    assert working.say("complete").json() == said.json()
    assert working.stored() == events
    other = working.say("fail")
    assert (other.status_code, other.json()["type"]) == (409, "/problems/ended")


def test_a_result_is_cut_like_the_body_of_an_answer(working: Working) -> None:
    assert working.say("complete", {"result": "x" * 5_000}).status_code == 200
    assert working.shown()["attempts"][0]["body"] == '"' + "x" * 1_023


def test_a_handler_gives_up_and_the_retry_policy_goes_on(working: Working) -> None:
    said = working.say("fail", {"reason": "disk full"})
    assert (said.status_code, said.json()["status"]) == (200, "waiting")
    assert said.json()["next_attempt_at"] is not None
    (attempt,) = working.shown()["attempts"]
    assert (attempt["error"], attempt["body"], attempt["then"]) == ("handler", "disk full", "retry")
    assert working.say("fail", {"reason": "disk full"}).json() == said.json()


def test_a_handler_that_needs_no_retry_ends_its_run(working: Working) -> None:
    assert working.say("fail", {"retry": False}).json()["status"] == "dead"
    shown = working.shown()
    assert (shown["status"], shown["cause"]) == ("dead", "handler")


def test_a_superseded_attempt_changes_nothing(working: Working) -> None:
    working.say("fail")
    working.world.clock.advance_ms(60_000)
    (second,) = lease(working.world)
    assert second.run.facts.fence > working.granted.run.facts.fence
    events = working.stored()
    for word in ("heartbeat", "complete"):
        said = working.say(word)
        assert (said.status_code, said.json()["type"]) == (409, "/problems/superseded")
    assert working.stored() == events


def test_beats_after_a_cancel_are_answered_gone(working: Working) -> None:
    working.world.send("DELETE", f"/v1/jobs/{working.job}")
    said = working.say("heartbeat")
    assert (said.status_code, said.json()["type"]) == (410, "/problems/gone")
    assert working.say("complete").json()["status"] == "succeeded"


def test_a_wrong_token_and_a_run_that_never_was_are_answered_alike(working: Working) -> None:
    never = "rn_" + "0" * 32
    facts = working.granted.run.facts
    foreign = completion_token(Seal(bytes(32), COMPLETION), facts.run_id, facts.job_id, facts.fence)
    position = Seal(SECRET, "position").issue(facts.run_id, facts.job_id + bytes(4))
    tries = [
        ("x", working.run),
        (foreign, working.run),
        (position, working.run),
        (working.token, never),
        (working.token + "A", working.run),
        (working.token, "rn_zz"),
        (working.token, working.job),
    ]
    answers = []
    for token, run in tries:
        for word in ("heartbeat", "complete", "fail"):
            said = working.say(word, token=token, run=run)
            answers.append((said.status_code, said.json()["type"], said.json()["detail"]))
    assert set(answers) == {
        (404, "/problems/absent", "there is no such run, or the token is not for it")
    }


def test_a_key_is_no_token_and_a_token_is_no_key(working: Working) -> None:
    path = f"/v1/runs/{working.run}/complete"
    said = working.world.send("POST", path)
    assert said.status_code == 400
    assert said.json()["errors"][0]["header"] == TOKEN
    bearer = working.world.send("GET", f"/v1/jobs/{working.job}", key=working.token)
    assert bearer.status_code == 401


@pytest.mark.parametrize(
    ("word", "body", "pointer"),
    [
        ("heartbeat", {"progress": 101}, "/progress"),
        ("heartbeat", {"progress": 1.5}, "/progress"),
        ("heartbeat", {"progress": True}, "/progress"),
        ("heartbeat", {"progress": None}, "/progress"),
        ("heartbeat", {"note": "n"}, "/progress"),
        ("heartbeat", {"progress": 1, "note": "n" * 257}, "/note"),
        ("heartbeat", {"percent": 1}, "/percent"),
        ("complete", {"results": 1}, "/results"),
        ("fail", {"reason": 7}, "/reason"),
        ("fail", {"reason": "r" * 513}, "/reason"),
        ("fail", {"retry": "no"}, "/retry"),
    ],
)
def test_a_wrong_word_is_named_and_nothing_is_stored(
    working: Working, word: str, body: dict[str, Any], pointer: str
) -> None:
    events = working.stored()
    said = working.say(word, body)
    assert (said.status_code, said.json()["errors"][0]["pointer"]) == (422, pointer)
    assert working.stored() == events


def test_an_empty_object_and_no_body_are_the_same(working: Working) -> None:
    assert working.say("heartbeat", {}).json() == working.say("heartbeat").json()


def test_what_is_said_before_the_acceptance_is_written_counts(world: World) -> None:
    working = Working(world)
    early = Working.__new__(Working)
    early.__dict__ |= working.__dict__
    assert working.say("complete").json()["status"] == "succeeded"
    world.clock.advance_ms(HOUR_MS)
    (granted,) = lease(world)
    facts = granted.run.facts
    early.run = f"rn_{facts.run_id.hex()}"
    seal = Seal(SECRET, COMPLETION)
    early.token = completion_token(seal, facts.run_id, facts.job_id, facts.fence)
    assert early.say("heartbeat").json()["status"] == "running"
    assert early.say("complete").json()["status"] == "succeeded"


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"heartbeat_timeout_s": 29}, "/heartbeat_timeout_s"),
        ({"heartbeat_timeout_s": 86_401}, "/heartbeat_timeout_s"),
        ({"heartbeat_timeout_s": "60"}, "/heartbeat_timeout_s"),
        ({"heartbeat_timeout_s": 120, "max_run_time_s": 60}, "/heartbeat_timeout_s"),
        ({"max_run_time_s": 59}, "/max_run_time_s"),
        ({"max_run_time_s": 2_592_001}, "/max_run_time_s"),
    ],
)
def test_limits_of_accepted_attempts_are_judged(
    world: World, fields: dict[str, Any], pointer: str
) -> None:
    said = world.send("POST", "/v1/jobs", JOB | fields)
    assert (said.status_code, said.json()["errors"][0]["pointer"]) == (422, pointer)


def test_limits_of_accepted_attempts_are_shown_and_changed(world: World) -> None:
    job = world.define(JOB | BEAT)["job_id"]
    spec = world.send("GET", f"/v1/jobs/{job}").json()["spec"]
    assert {name: spec[name] for name in BEAT} == BEAT
    world.send("PATCH", f"/v1/jobs/{job}", {"heartbeat_timeout_s": None, "max_run_time_s": 90})
    spec = world.send("GET", f"/v1/jobs/{job}").json()["spec"]
    assert ("heartbeat_timeout_s" in spec, spec["max_run_time_s"]) == (False, 90)


def test_every_answer_to_a_handler_is_what_the_page_says(working: Working) -> None:
    page = Page(working.world)
    for word, body in (
        ("heartbeat", {"progress": 1}),
        ("fail", {"retry": 1}),
        ("complete", None),
        ("heartbeat", None),
        ("fail", None),
    ):
        found = working.say(word, body)
        operation = page.operation("POST", f"/v1/runs/{working.run}/{word}")
        said = operation["responses"][str(found.status_code)]
        (kind, content), *_ = said["content"].items()
        assert found.headers["content-type"] == kind
        assert page.wrong(found.json(), content["schema"]) == []
        assert operation["security"] == [{"run": []}]


def test_a_log_that_is_away_is_said_and_the_word_can_be_said_again(working: Working) -> None:
    working.world.log.away = True
    said = working.say("complete")
    assert (said.status_code, said.headers["retry-after"]) == (503, "1")
    working.world.log.away = False
    assert working.say("complete").json()["status"] == "succeeded"
