"""Payloads that are too large for the log: written before the event that names them."""

import base64
import json
from typing import Any

import pytest

from commandside.payload_port import APPEND_WITHIN_MS, PayloadObject
from domain.job import events as e
from domain.job.events import JobSpec
from domain.run.decide import Result
from domain.run.events import OK
from infra.memory.payloads import MemoryPayloadStore
from infra.memory.vault import MemoryVault
from tests.api.test_queries import fire, without_payload
from tests.api.world import World

KIB, MIB = 1024, 1024 * 1024
TENANT = b"t" * 16


def text(size: int, letter: str = "x") -> dict[str, Any]:
    """Return a job whose body has so many bytes."""
    return without_payload(payload_text=letter * size)


def spec_of(world: World, job: str) -> JobSpec:
    (head, _) = world.log.heads[bytes.fromhex(job.removeprefix("jb_"))]
    return head.facts.spec


def shown(world: World, job: str) -> dict[str, Any]:
    found = world.send("GET", f"/v1/jobs/{job}")
    assert found.status_code == 200
    spec: dict[str, Any] = found.json()["spec"]
    return spec


def object_of(world: World, job: str) -> PayloadObject:
    ref = spec_of(world, job).payload_ref
    assert ref is not None
    return PayloadObject(TENANT, bytes.fromhex(job.removeprefix("jb_")), ref)


# ------------------------------------------------------------------ where a body is


@pytest.mark.parametrize(("size", "objects"), [(1, 0), (16 * KIB, 0), (16 * KIB + 1, 1), (MIB, 1)])
def test_a_body_is_in_the_log_up_to_its_limit_and_in_the_store_beyond(
    world: World, size: int, objects: int
) -> None:
    job = world.define(text(size))["job_id"]
    assert len(world.objects.objects) == objects
    assert (spec_of(world, job).payload_ref is None) == (objects == 0)
    assert shown(world, job)["payload_text"] == "x" * size
    longest = max(len(event.data) for stream in world.log.streams.values() for event in stream)
    assert longest < 17 * KIB


def test_a_body_beyond_the_limit_of_all_is_refused_and_nothing_is_stored(world: World) -> None:
    found = world.send("POST", "/v1/jobs", text(MIB + 1))
    assert found.status_code == 422
    assert found.json()["errors"][0]["pointer"] == "/payload_text"
    assert (world.objects.objects, world.stored()) == ({}, 0)


@pytest.mark.parametrize("fields", [{"schedule": "bad"}, {"nonsense": 1}])
def test_a_refused_definition_stores_no_body(world: World, fields: dict[str, Any]) -> None:
    assert world.send("POST", "/v1/jobs", text(20 * KIB) | fields).status_code == 422
    assert world.objects.objects == {}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("payload", {"a": ["grüße"] * 5_000}),
        ("payload_text", "grüße" * 5_000),
        ("payload_base64", base64.b64encode(bytes(range(256)) * 100).decode()),
    ],
)
def test_a_large_body_comes_back_as_the_kind_it_was_sent(
    world: World, field: str, value: object
) -> None:
    job = world.define(without_payload(**{field: value}))["job_id"]
    assert len(world.objects.objects) == 1
    assert shown(world, job)[field] == value


def test_what_is_in_the_store_is_sealed_for_its_tenant_and_job(world: World) -> None:
    job = world.define(text(20 * KIB))["job_id"]
    ((wanted, data),) = world.objects.objects.items()
    assert wanted == object_of(world, job)
    assert world.vault.open(TENANT, wanted.job_id, data) == b"x" * 20 * KIB


# ------------------------------------------------------------------ every way in


def test_every_line_of_a_batch_has_its_own_body(world: World) -> None:
    sizes = [10, 20 * KIB, 16 * KIB, 100 * KIB, MIB]
    lines = b"\n".join(json.dumps(text(size, str(n))).encode() for n, size in enumerate(sizes))
    jobs = [line["job"]["job_id"] for line in world.batch(lines)]
    assert len(world.objects.objects) == 3
    for n, (job, size) in enumerate(zip(jobs, sizes, strict=True)):
        assert shown(world, job)["payload_text"] == str(n) * size


def test_a_patch_moves_a_body_between_the_log_and_the_store(world: World) -> None:
    job = world.define(text(10))["job_id"]
    for n, size in enumerate([20 * KIB, MIB, 10, 17 * KIB]):
        found = world.send("PATCH", f"/v1/jobs/{job}", {"payload_text": str(n) * size})
        assert found.status_code == 200
        assert found.json()["version"] == n + 2
        assert shown(world, job)["payload_text"] == str(n) * size
        assert (spec_of(world, job).payload_ref is None) == (size == 10)
    world.send("PATCH", f"/v1/jobs/{job}", {"payload_text": None})
    assert "payload_text" not in shown(world, job)
    assert spec_of(world, job).payload_ref is None


def test_a_patch_with_the_same_body_changes_and_stores_nothing(world: World) -> None:
    job = world.define(text(20 * KIB))["job_id"]
    found = world.send("PATCH", f"/v1/jobs/{job}", {"payload_text": "x" * 20 * KIB})
    assert (found.status_code, found.json()["version"]) == (200, 1)
    assert len(world.objects.objects) == 1


class Fresh(MemoryVault):
    """A vault whose ciphertext is never the same twice, as of the real one."""

    sealed = 0

    def seal(self, tenant_id: bytes, job_id: bytes, plain: bytes) -> bytes:
        """Return the bytes with a number after them."""
        self.sealed += 1
        return super().seal(tenant_id, job_id, plain + self.sealed.to_bytes(8, "big"))

    def open(self, tenant_id: bytes, job_id: bytes, sealed: bytes) -> bytes:
        """Return the bytes without it."""
        return super().open(tenant_id, job_id, sealed)[:-8]


@pytest.mark.parametrize("size", [20 * KIB, 10])
def test_the_same_body_is_known_though_its_ciphertext_would_be_another(size: int) -> None:
    world = World()
    world.serve(vault=Fresh())
    job = world.define(text(size) | {"key": "k"})["job_id"]
    before = len(world.objects.objects)
    assert world.define(text(size) | {"key": "k"})["version"] == 1
    found = world.send("PATCH", f"/v1/jobs/{job}", {"payload_text": "x" * size})
    assert (found.status_code, found.json()["version"]) == (200, 1)
    assert len(world.objects.objects) == before == (size > 16 * KIB)
    world.send("PATCH", f"/v1/jobs/{job}", {"payload_text": "y" * size})
    assert len(world.objects.objects) == 2 * before
    assert shown(world, job)["payload_text"] == "y" * size


def test_a_patch_of_something_else_keeps_the_body(world: World) -> None:
    job = world.define(text(20 * KIB))["job_id"]
    before = spec_of(world, job)
    world.send("PATCH", f"/v1/jobs/{job}", {"name": "other"})
    assert spec_of(world, job).payload_ref == before.payload_ref
    assert shown(world, job)["payload_text"] == "x" * 20 * KIB


@pytest.mark.parametrize("fields", [{"schedule": "bad"}, {"nonsense": 1}])
def test_a_refused_patch_stores_no_body(world: World, fields: dict[str, Any]) -> None:
    job = world.define(text(10))["job_id"]
    patch = {"payload_text": "y" * 20 * KIB} | fields
    assert world.send("PATCH", f"/v1/jobs/{job}", patch).status_code == 422
    stale = world.send("PATCH", f"/v1/jobs/{job}", {"payload_text": "y" * 20 * KIB}, if_match='"7"')
    assert stale.status_code == 412
    theirs = world.send(
        "PATCH", f"/v1/jobs/{job}", {"payload_text": "y" * 20 * KIB}, key=world.other_key
    )
    assert theirs.status_code == 404
    assert world.objects.objects == {}


def test_defining_again_with_the_same_body_stores_nothing_and_with_another_revises(
    world: World,
) -> None:
    first = world.define(text(20 * KIB) | {"key": "k"})
    again = world.define(text(20 * KIB) | {"key": "k"})
    assert (again["job_id"], again["version"]) == (first["job_id"], 1)
    assert len(world.objects.objects) == 1
    other = world.define(text(20 * KIB, "y") | {"key": "k"})
    assert other["version"] == 2
    assert shown(world, first["job_id"])["payload_text"] == "y" * 20 * KIB


def test_a_cancelled_job_that_is_defined_again_has_its_new_body(world: World) -> None:
    job = world.define(text(20 * KIB) | {"key": "k"})["job_id"]
    world.send("DELETE", f"/v1/jobs/{job}")
    again = world.send("POST", "/v1/jobs", text(30 * KIB, "y") | {"key": "k"})
    assert again.status_code == 201
    assert shown(world, job)["payload_text"] == "y" * 30 * KIB


def test_a_repeated_command_is_answered_and_its_body_is_that_of_the_first(world: World) -> None:
    first = world.define(text(20 * KIB), idempotency_key="a")
    assert world.define(text(20 * KIB), idempotency_key="a") == first
    differs = world.send("POST", "/v1/jobs", text(20 * KIB, "y"), idempotency_key="a")
    assert differs.status_code == 422
    assert shown(world, first["job_id"])["payload_text"] == "x" * 20 * KIB


def test_what_a_job_was_sent_with_once_is_shown_as_of_then(world: World) -> None:
    job = world.define(text(20 * KIB))["job_id"]
    then = "2025-11-30T00:00:01.000Z"
    world.clock.advance_ms(60_000)
    world.send("PATCH", f"/v1/jobs/{job}", {"payload_text": "y" * 20 * KIB})
    found = world.send("GET", f"/v1/jobs/{job}?as_of={then}").json()
    assert found["spec"]["payload_text"] == "x" * 20 * KIB


def test_a_run_carries_the_version_of_its_body(world: World) -> None:
    job = world.define(text(20 * KIB))["job_id"]
    world.send("PATCH", f"/v1/jobs/{job}", {"payload_text": "y" * 20 * KIB})
    world.clock.advance_ms(3_606_000)
    (due,) = [row.run for row in world.log.waking(world.clock.now())]
    assert due.facts.payload_version == 2
    fire(world, Result(OK, "ok", 200))
    revised = world.log.events_of(bytes.fromhex(job.removeprefix("jb_")))[1]
    assert isinstance(revised, e.Revised)
    assert revised.spec.payload_ref == spec_of(world, job).payload_ref


# ------------------------------------------------------------------ the store is away


def test_while_the_store_is_away_large_bodies_are_503_and_small_ones_are_taken(
    world: World,
) -> None:
    job = world.define(text(10))["job_id"]
    before = world.stored()
    world.objects.away = True
    large = world.send("POST", "/v1/jobs", text(20 * KIB))
    patch = world.send("PATCH", f"/v1/jobs/{job}", {"payload_text": "y" * 20 * KIB})
    for found in (large, patch):
        assert found.status_code == 503
        assert found.headers["retry-after"]
        assert "payloads of this size cannot be stored now" in found.json()["detail"]
    assert world.stored() == before
    lines = world.batch(
        b"\n".join(json.dumps(text(size)).encode() for size in (10, 20 * KIB, 16 * KIB))
    )
    assert [line["code"] for line in lines] == [201, 503, 201]
    assert "cannot be stored now" in lines[1]["problem"]["detail"]


def test_a_job_is_shown_while_its_body_cannot_be_read(world: World) -> None:
    job = world.define(text(20 * KIB))["job_id"]
    world.objects.away = True
    assert shown(world, job)["payload_unavailable"] is True
    world.objects.away = False
    wanted = object_of(world, job)
    world.objects.objects[wanted] = b"?" * wanted.ref.size
    assert shown(world, job)["payload_altered"] is True
    world.objects.delete([wanted])
    spec = shown(world, job)
    assert spec["payload_missing"] is True
    assert "payload_text" not in spec
    assert spec["content_type"] == "text/plain; charset=utf-8"


def test_an_erased_tenant_has_unreadable_objects(world: World) -> None:
    job = world.define(text(20 * KIB))["job_id"]
    world.vault.destroy(TENANT)
    assert shown(world, job)["payload_erased"] is True
    assert world.send("POST", "/v1/jobs", text(20 * KIB)).status_code == 403


# ------------------------------------------------------------------ between store and log


def test_a_body_whose_event_cannot_be_written_is_left_to_the_collector(world: World) -> None:
    world.log.away = True
    assert world.send("POST", "/v1/jobs", text(20 * KIB)).status_code == 503
    world.log.away = False
    assert world.stored() == 0
    assert len(world.objects.objects) == 1


class Slow(MemoryPayloadStore):
    """A store that a process sleeps in."""

    def __init__(self, world: World, ms: int) -> None:
        super().__init__()
        self._world, self._ms = world, ms

    def put(self, objects: Any) -> None:
        """Write objects, long after they were noted."""
        super().put(objects)
        self._world.clock.advance_ms(self._ms)


@pytest.mark.parametrize(("late_ms", "status"), [(0, 201), (1, 503)])
def test_an_event_names_its_object_in_time_or_never(late_ms: int, status: int) -> None:
    world = World()
    slow = Slow(world, APPEND_WITHIN_MS + late_ms)
    world.serve(objects=slow)
    body = text(20 * KIB) | {"type": "recurring"}
    assert world.send("POST", "/v1/jobs", body).status_code == status
    assert (world.stored() > 0) == (status == 201)


def test_the_body_is_in_the_store_before_the_event_is_in_the_log(world: World) -> None:
    seen: list[int] = []

    class Watched(MemoryPayloadStore):
        def put(self, objects: Any) -> None:
            seen.append(world.stored())
            super().put(objects)

    world.serve(objects=Watched())
    job = world.define(text(20 * KIB))["job_id"]
    world.send("PATCH", f"/v1/jobs/{job}", {"payload_text": "y" * 20 * KIB})
    assert seen == [0, 2]
