"""What a call takes from the tenant's secrets, at the instant of the attempt."""

import base64
import datetime as dt

import msgspec
import pytest
from standardwebhooks import Webhook

from commandside.command_port import BodyDiffers
from commandside.secret_port import V1
from domain.job.events import JobSpec
from domain.run import events as re
from domain.run.state import Ready
from domain.target import Header
from infra.memory.targets import Reply
from tests.commandside.scene import Scene, header
from tests.contracts import jobs


def naming(scene: Scene, *headers: Header) -> Ready:
    """Define a job whose target has these headers."""
    spec: JobSpec = jobs.spec(jobs.once(scene.clock.now() + 1_000), payload=b"")
    target = msgspec.structs.replace(spec.target, headers=headers)
    return scene.define(msgspec.structs.replace(spec, target=target))


def test_every_attempt_is_signed_by_the_keys_in_force() -> None:
    scene = Scene()
    made = scene.secrets.add_signing_key(jobs.TENANT, V1, 0)
    assert not isinstance(made, BodyDiffers)
    run = scene.one_time()
    scene.hand_off()
    scene.until(lambda: scene.ended(run))
    (hit,) = scene.deliverer.hits
    # The scene's clock is not the machine's, by which `verify` judges: so it is signed again.
    when = dt.datetime.fromtimestamp(int(header(hit.call, "webhook-timestamp")), dt.UTC)
    message = header(hit.call, "webhook-id")
    expected = Webhook(made[0].text).sign(message, when, hit.call.body.decode())
    assert header(hit.call, "webhook-signature") == expected


@pytest.mark.parametrize(
    ("scheme", "value"),
    [
        ("", "u:p"),
        ("Bearer", "Bearer u:p"),
        ("Basic", "Basic " + base64.b64encode(b"u:p").decode()),
        ("basic", "basic " + base64.b64encode(b"u:p").decode()),
    ],
)
def test_a_header_has_the_value_of_its_secret(scheme: str, value: str) -> None:
    scene = Scene()
    scene.secrets.put_secret(jobs.TENANT, "crm", b"u:p")
    run = naming(scene, Header("Authorization", b"", "crm", scheme))
    scene.hand_off()
    scene.until(lambda: scene.ended(run))
    assert header(scene.deliverer.hits[0].call, "Authorization") == value


def test_a_retry_takes_the_secret_as_it_is_then() -> None:
    scene = Scene()
    scene.secrets.put_secret(jobs.TENANT, "crm", b"old")
    run = naming(scene, Header("X-Token", b"", "crm"))
    scene.answer = lambda call: Reply(200 if header(call, "X-Token") == "new" else 500)
    scene.hand_off()
    scene.until(lambda: "Fired" in scene.names(run))
    scene.secrets.put_secret(jobs.TENANT, "crm", b"new")
    scene.hand_off()
    scene.until(lambda: scene.ended(run))
    assert [header(hit.call, "X-Token") for hit in scene.deliverer.hits] == ["old", "new"]


def test_an_attempt_without_its_secret_fails_in_words_and_is_retried() -> None:
    scene = Scene()
    scene.secrets.put_secret(jobs.TENANT, "crm", b"value")
    run = naming(scene, Header("X-Token", b"", "crm"))
    scene.secrets.remove_secret(jobs.TENANT, "crm")
    scene.hand_off()
    scene.until(lambda: "Fired" in scene.names(run))
    fired = [event for event in scene.events(run.facts.run_id) if isinstance(event, re.Fired)]
    assert [(event.outcome, event.error) for event in fired] == [(re.FAILED, "secret_missing")]
    assert scene.deliverer.hits == []
    scene.secrets.put_secret(jobs.TENANT, "crm", b"value")
    scene.hand_off()
    scene.until(lambda: scene.ended(run))
    assert scene.names(run)[-1] == "Completed"
    assert len(scene.deliverer.hits) == 1
