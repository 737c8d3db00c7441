"""Nobody reads a secret in the history because its target repeated it."""

import base64
import html
import json
from urllib.parse import quote

import msgspec
import pytest

from commandside.deliverer_port import KEPT_BODY_BYTES, KEPT_VALUE_CHARS, Answer
from commandside.firing.redaction import redacted
from domain.run import events as re
from domain.target import Header
from infra.memory.targets import Reply
from tests.commandside.scene import Scene, header
from tests.contracts import jobs

SECRET = b'user:p/4"ss&w\\rd+>?<~'
"""Of a length that base64 does not pad, so that nothing of it is left."""


def kept_of(scene: Scene, *headers: Header) -> re.Fired:
    """Fire a job whose target has these headers; return what the log keeps of it."""
    spec = jobs.spec(jobs.once(scene.clock.now() + 1_000), payload=b"")
    target = msgspec.structs.replace(spec.target, headers=headers)
    run = scene.define(msgspec.structs.replace(spec, target=target))
    scene.hand_off()
    scene.until(lambda: "Fired" in scene.names(run))
    events = scene.events(run.facts.run_id)
    return next(event for event in events if isinstance(event, re.Fired))


@pytest.mark.parametrize("scheme", ["", "Bearer", "Basic"])
def test_a_target_that_repeats_its_request_puts_no_secret_into_the_log(scheme: str) -> None:
    scene = Scene()
    scene.secrets.put_secret(jobs.TENANT, "crm", SECRET)

    def echo(call: object) -> Reply:
        value = header(call, "Authorization")  # type: ignore[arg-type]  # of a scene, always HTTP
        text = f"refused: Authorization: {value} (X-Other: plain)"
        return Reply(400, headers=(("x-request-id", value),), body=text.encode())

    scene.answer = echo
    named = Header("Authorization", b"", "crm", scheme)
    fired = kept_of(scene, named)
    repeated = f"{scheme} ****".strip()
    assert fired.body == f"refused: Authorization: {repeated} (X-Other: plain)".encode()
    assert dict(fired.headers)["x-request-id"] == repeated


def test_what_a_target_says_otherwise_is_kept_as_it_is() -> None:
    scene = Scene()
    scene.answer = lambda _call: Reply(400, body=b"no such user: p/4")
    scene.secrets.put_secret(jobs.TENANT, "crm", SECRET)
    assert kept_of(scene, Header("X-Token", b"", "crm")).body == b"no such user: p/4"


def spelled(secret: bytes) -> list[bytes]:
    text = secret.decode()
    return [
        secret,
        secret.partition(b":")[2],
        base64.b64encode(secret),
        base64.urlsafe_b64encode(secret),
        base64.b64encode(secret).replace(b"/", b"\\/"),
        json.dumps(text).encode(),
        json.dumps(text).replace("/", "\\/").encode(),
        quote(text, safe="").encode(),
        html.escape(text).encode(),
    ]


@pytest.mark.parametrize("text", spelled(SECRET))
def test_a_secret_is_found_however_it_is_spelled(text: bytes) -> None:
    body = redacted(Answer(1, 500, "", True, 1, body=b"<" + text + b">"), (SECRET,)).body
    assert body.strip(b'<>="') == b"****"


@pytest.mark.parametrize("shown", range(4, len(SECRET)))
def test_a_secret_that_is_cut_by_the_end_is_found(shown: int) -> None:
    rest = KEPT_BODY_BYTES - shown
    answer = Answer(1, 500, "", True, 1, body=b"-" * rest + SECRET[:shown])
    assert redacted(answer, (SECRET,)).body == b"-" * rest + b"****"
    broken = Answer(1, 500, "reset", True, 1, body=b"-" + SECRET[:shown])
    assert redacted(broken, (SECRET,)).body == b"-****"
    value = "-" * (KEPT_VALUE_CHARS - shown) + SECRET[:shown].decode()
    cut = Answer(1, 500, "", True, 1, (("server", value),))
    assert redacted(cut, (SECRET,)).headers == (("server", value[:-shown] + "****"),)


def test_a_longer_secret_goes_before_one_that_it_holds_and_short_words_stay() -> None:
    answer = Answer(1, 200, "", True, 1, body=b"abcdefgh abcd abc")
    assert redacted(answer, (b"abcd", b"abcdefgh", b"abc")).body == b"**** **** abc"


def test_nothing_grows_and_bytes_that_are_no_text_stay() -> None:
    body = bytes(range(256)) * 2 + b"tok1" * 128
    found = redacted(Answer(1, 200, "", True, 1, body=body), (b"tok1",)).body
    assert found == bytes(range(256)) * 2 + b"****" * 128


def test_the_header_that_says_what_the_run_does_next_is_not_touched() -> None:
    headers = (("tocsin-completion", "async"), ("server", "async"))
    found = redacted(Answer(1, 202, "", True, 1, headers), (b"async",)).headers
    assert found == (("tocsin-completion", "async"), ("server", "****"))
