"""Defining jobs over HTTP."""

from typing import Any

import pytest

from commandside.ports import Resting, Unavailable
from tests.api.world import JOB, Away, World


def test_the_form_of_the_original_design_works_verbatim(world: World) -> None:
    found = world.send("POST", "/v1/jobs", JOB)
    answer = found.json()
    assert found.status_code == 201, found.text
    assert found.headers["location"] == f"/v1/jobs/{answer['job_id']}"
    assert found.headers["etag"] == '"1"'
    assert answer["status"] == "active"
    assert answer["next_run_at"] == "2025-11-30T01:00:00.000Z"
    assert answer["next_runs"][:2] == ["2025-11-30T01:00:00.000Z", "2025-11-30T02:00:00.000Z"]
    assert len(answer["next_runs"]) == 5


def test_every_answer_has_a_request_id(world: World) -> None:
    good = world.send("POST", "/v1/jobs", JOB)
    bad = world.send("POST", "/v1/jobs", b"{")
    assert good.headers["x-request-id"]
    assert bad.json()["request_id"] == bad.headers["x-request-id"]
    assert good.headers["x-request-id"] != bad.headers["x-request-id"]


def test_no_secret_reaches_the_log_in_plain(world: World) -> None:
    world.vault.seal = lambda *sealed: bytes(byte ^ 0x55 for byte in sealed[-1])  # type: ignore[method-assign]  # as if it were secret
    world.define()
    stored = b"".join(written.data for stream in world.log.streams.values() for written in stream)
    assert b"Bearer abc" not in stored
    assert b"daily" not in stored
    assert b"hooks.example.com" in stored


def test_warnings_say_what_an_author_may_not_expect(world: World) -> None:
    answer = world.define(JOB | {"schedule": "0 9 * * 6,0"})
    assert "never on a weekday" in answer["warnings"]


def test_the_same_idempotency_key_and_body_is_one_job_with_one_answer(world: World) -> None:
    first = world.define(idempotency_key='"order-7"')
    world.clock.advance_ms(3_600_000)
    world.send("POST", f"/v1/jobs/{first['job_id']}/pause")
    assert world.define(idempotency_key="order-7") == first
    assert len(world.log.heads) == 1


def test_the_same_idempotency_key_with_another_body_is_422(world: World) -> None:
    world.define(idempotency_key="k")
    found = world.send("POST", "/v1/jobs", JOB | {"name": "x"}, idempotency_key="k")
    assert found.status_code == 422
    assert found.json()["type"] == "/problems/body_differs"
    assert len(world.log.heads) == 1


def test_an_idempotency_key_is_the_tenants_own(world: World) -> None:
    mine = world.define(idempotency_key="k")
    theirs = world.define(idempotency_key="k", key=world.other_key)
    assert mine["job_id"] != theirs["job_id"]


def test_a_one_time_definition_is_repeated_after_its_instant_has_passed(world: World) -> None:
    body: dict[str, Any] = {
        "type": "one_time",
        "run_at": "2025-11-30T00:10:00Z",
        "target": JOB["target"],
    }
    first = world.define(body, idempotency_key="k")
    named = world.define(body | {"key": "once"})
    world.clock.advance_ms(86_400_000)
    assert world.define(body, idempotency_key="k") == first
    assert world.define(body | {"key": "once"})["job_id"] == named["job_id"]
    assert world.send("POST", "/v1/jobs", body).status_code == 422


def test_defining_a_key_again_revises_its_job_and_answers_200(world: World) -> None:
    first = world.define(JOB | {"key": "report"})
    found = world.send("POST", "/v1/jobs", JOB | {"key": "report", "schedule": "30 * * * *"})
    assert found.status_code == 200
    assert found.json()["job_id"] == first["job_id"]
    assert found.json()["version"] == 2
    assert found.json()["next_run_at"] == "2025-11-30T00:30:00.000Z"


def test_defining_a_key_again_without_a_change_writes_nothing(world: World) -> None:
    world.vault.seal = _salted(world)  # type: ignore[method-assign]  # like real ciphertext
    world.define(JOB | {"key": "report"})
    before = world.stored()
    found = world.send("POST", "/v1/jobs", JOB | {"key": "report"})
    assert found.json()["version"] == 1
    assert world.stored() == before


def _salted(world: World) -> Any:
    plain_seal, plain_open = world.vault.seal, world.vault.open

    def seal(tenant: bytes, job: bytes, plain: bytes) -> bytes:
        return plain_seal(tenant, job, world.new_id(8) + plain)

    world.vault.open = lambda *sealed: plain_open(*sealed)[8:]  # type: ignore[method-assign]  # its inverse
    return seal


def test_a_key_of_a_cancelled_job_begins_its_next_life(world: World) -> None:
    first = world.define(JOB | {"key": "report"})
    world.send("DELETE", f"/v1/jobs/{first['job_id']}")
    found = world.send("POST", "/v1/jobs", JOB | {"key": "report"})
    assert found.status_code == 201
    assert found.json()["job_id"] == first["job_id"]
    assert found.json()["version"] == 3


@pytest.mark.parametrize("method", ["define", "command", "standing"])
def test_a_log_that_cannot_be_reached_is_503_with_retry_after(world: World, method: str) -> None:
    job = world.define()["job_id"]
    setattr(world.commands, method, getattr(Away(), method))
    path, verb = {
        "define": ("/v1/jobs", "POST"),
        "command": (f"/v1/jobs/{job}/pause", "POST"),
        "standing": (f"/v1/jobs/{job}", "GET"),
    }[method]
    found = world.send(verb, path, JOB if method == "define" else None)
    assert found.status_code == 503
    assert found.headers["retry-after"] == "1"
    assert found.json()["type"] == "/problems/unavailable"


def test_a_process_that_rests_says_why(world: World) -> None:
    async def resting(kid: str) -> Any:
        raise Resting("this node has other zone data")

    world.keys.find = resting  # type: ignore[method-assign]  # anything that decides
    found = world.send("POST", "/v1/jobs", JOB)
    assert found.status_code == 503
    assert found.json()["detail"] == "this node has other zone data"
    assert world.stored() == 0


def test_a_key_store_that_cannot_be_reached_lets_nobody_in(world: World) -> None:
    async def away(kid: str) -> Any:
        raise Unavailable("away")

    world.keys.find = away  # type: ignore[method-assign]  # the store is away
    assert world.send("POST", "/v1/jobs", JOB).status_code == 503
    assert world.stored() == 0


def test_a_tenant_whose_key_is_destroyed_can_define_nothing(world: World) -> None:
    world.vault.destroy(b"t" * 16)
    assert world.send("POST", "/v1/jobs", JOB).status_code == 403
    assert world.stored() == 0


def test_a_bug_is_500_and_says_nothing_of_itself(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    async def broken(decision: object) -> Any:
        raise KeyError("secret detail")

    world.commands.define = broken  # type: ignore[method-assign]  # a bug of ours
    found = world.send("POST", "/v1/jobs", JOB)
    assert found.status_code == 500
    assert "secret detail" not in found.text
    assert "secret detail" in capsys.readouterr().err


def test_what_definitions_have_in_common_is_not_confused(world: World) -> None:
    world.define(JOB | {"timeout_s": 1})
    assert world.send("POST", "/v1/jobs", JOB | {"timeout_s": True}).status_code == 422
    one = world.define(JOB | {"timeout_s": 1.0, "labels": {"a": "1"}})
    two = world.define(JOB | {"timeout_s": 1.0, "labels": {"a": "2"}})
    heads = {job_id.hex(): head for job_id, (head, _) in world.log.heads.items()}
    labels = [heads[answer["job_id"][3:]].facts.spec.labels for answer in (one, two)]
    assert labels == [(("a", "1"),), (("a", "2"),)]
