"""A fire of a job whose target is a queue: the message, and what its broker says of it."""

import msgspec
import pytest

from commandside.deliverer_port import Message
from commandside.firing.calls import Calls, occurrence_key
from domain.retry import RetryPolicy
from domain.run import events as re
from domain.run.state import Ready
from domain.target import Header, KafkaTarget
from infra.memory.vault import MemoryVault
from tests.commandside.scene import COMPLETIONS, Scene
from tests.contracts import jobs

TARGET = KafkaTarget("main", "orders", "", ())


def queue_job(scene: Scene) -> Ready:
    spec = jobs.spec(jobs.once(scene.clock.now() + 1_000), payload=b"")
    soon = RetryPolicy(5, "fixed", 100, 1_000)
    return scene.define(msgspec.structs.replace(spec, target=TARGET, retry=soon))


def fired(scene: Scene, run: Ready) -> re.Fired:
    found = [e for e in scene.events(run.facts.run_id) if isinstance(e, re.Fired)]
    return found[-1]


def test_a_fire_is_one_message_with_the_headers_that_a_call_has() -> None:
    scene = Scene()
    run = queue_job(scene)
    scene.hand_off()
    scene.until(lambda: scene.ended(run))
    (sent,) = scene.deliverer.messages
    message = sent.message
    named = dict(message.headers)
    assert scene.deliverer.hits == []
    assert message.target == TARGET
    assert message.group == f"jb_{run.facts.job_id.hex()}"
    assert named["idempotency-key"] == named["webhook-id"] == message.key.encode()
    assert named["tocsin-run-id"] == f"rn_{run.facts.run_id.hex()}".encode()
    assert named["tocsin-attempt"] == b"1"
    assert set(named) == {name.lower() for name in named}
    result = fired(scene, run)
    assert (result.outcome, result.status, result.error) == (re.OK, 0, "")


@pytest.mark.parametrize("error", ["broker_down", "confirm_lost", "unroutable", "unknown_topic"])
def test_what_may_pass_is_tried_again_with_the_same_key(error: str) -> None:
    """F81, F82 and F83: the run."""
    scene = Scene()
    run = queue_job(scene)
    keys: list[str] = []

    def confirm(message: Message) -> str:
        keys.append(message.key)
        return error if len(keys) < 3 else ""

    scene.confirm = confirm
    scene.hand_off()
    scene.until(lambda: scene.ended(run))
    assert len(keys) == 3
    assert len(set(keys)) == 1
    errors = [e.error for e in scene.events(run.facts.run_id) if isinstance(e, re.Fired)]
    assert errors == [error, error, ""]


@pytest.mark.parametrize("error", ["message_too_large", "unsendable"])
def test_what_only_another_definition_mends_is_dead_at_once(error: str) -> None:
    scene = Scene()
    run = queue_job(scene)
    scene.confirm = lambda _message: error
    scene.hand_off()
    scene.until(lambda: scene.ended(run))
    assert (fired(scene, run).outcome, fired(scene, run).error) == (re.FAILED, error)
    assert scene.names(run)[-1] == "Completed"
    assert scene.deliverer.messages == []


class Signer:
    """Signs visibly, and knows one secret."""

    def __init__(self) -> None:
        self.signed: list[tuple[str, bytes]] = []

    def sign(self, _tenant: bytes, key: str, _seconds: int, body: bytes) -> bytes:
        self.signed.append((key, body))
        return b"v1,abc"

    def value(self, _tenant: bytes, name: str, _seconds: int) -> bytes:
        return name.encode() + b"-value"


def test_a_message_is_signed_and_its_headers_name_secrets_as_those_of_a_call() -> None:
    scene, signer = Scene(), Signer()
    facts = queue_job(scene).facts
    naming = Header("X-Token", b"", "crm", "Bearer")
    spec = msgspec.structs.replace(
        jobs.spec(jobs.once(1), payload=b""),
        target=msgspec.structs.replace(TARGET, headers=(naming,)),
    )
    message = Calls(MemoryVault(), signer, COMPLETIONS).build(
        facts, spec, spec, token=1, at=1_800_000_000_000, not_after_us=0
    )
    assert isinstance(message, Message)
    named = dict(message.headers)
    assert named["webhook-signature"] == b"v1,abc"
    assert named["x-token"] == b"Bearer crm-value"
    assert signer.signed == [(occurrence_key(spec.key_template, facts), b"")]
