"""The examples run as they are written, each on its server, and are called as Tocsin calls."""

import time
from collections.abc import Iterator

import pytest

from tests.receiver.calls import Call
from tests.receiver.example_run import EXAMPLES, Example, now_s, started

NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py"))


@pytest.fixture(scope="module", params=NAMES)
def example(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Example]:
    with started(request.param, tmp_path_factory.mktemp(request.param)) as found:
        yield found


def call(**fields: int) -> Call:
    """Return a call of an occurrence of its own."""
    return Call(slot=str(time.time_ns()), sent_s=now_s(), attempt=fields.get("attempt", 1))


def test_there_is_one_for_each_framework() -> None:
    assert NAMES == ["asgi_app", "django_app", "fastapi_app", "flask_app", "litestar_app"]


def test_a_signed_call_is_handled_once(example: Example) -> None:
    first = call()
    answer = example.post(first)
    said = {"key": first.key, "done_in_attempt": 1}
    assert (answer.status_code, answer.json()) == (200, said), answer.text
    assert "tocsin-repeated" not in answer.headers
    second = Call(slot=first.slot, attempt=2, fence=first.fence + 1, sent_s=now_s())
    again = example.post(second)
    assert (again.status_code, again.json()) == (200, said), again.text
    assert again.headers["tocsin-repeated"] == "true"
    assert again.headers["content-type"] == answer.headers["content-type"]


def test_a_forged_call_is_refused(example: Example) -> None:
    forged = Call(slot=str(time.time_ns()), sent_s=now_s(), keys=(bytes(24),))
    answer = example.post(forged)
    assert (answer.status_code, answer.json()["title"]) == (401, "forged")
    # Nothing of it stays: the true one is the first.
    true = Call(slot=forged.slot, sent_s=now_s())
    assert example.post(true).json() == {"key": true.key, "done_in_attempt": 1}


def test_an_unsigned_call_is_refused(example: Example) -> None:
    answer = example.post(call(), **{"webhook-signature": ""})
    assert (answer.status_code, answer.json()["title"]) == (401, "missing")


def test_an_old_timestamp_is_refused(example: Example) -> None:
    answer = example.post(Call(slot=str(time.time_ns()), sent_s=now_s() - 400))
    assert (answer.status_code, answer.json()["title"]) == (401, "too_old")


def test_a_lower_fence_is_refused(example: Example) -> None:
    slot = str(time.time_ns())
    assert example.post(Call(slot=slot, attempt=2, fence=7, sent_s=now_s())).status_code == 200
    answer = example.post(Call(slot=slot, attempt=1, fence=6, sent_s=now_s()))
    assert (answer.status_code, answer.json()["title"]) == (409, "stale_fence")
