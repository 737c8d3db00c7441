"""Who may ask what: bearer keys, scopes, and refusals that tell nothing."""

import pytest

from domain.tenant import JOBS_READ, JOBS_WRITE, RUNS_READ
from tests.api.world import JOB, START, World


@pytest.mark.parametrize(
    "authorization",
    [
        "",
        "Bearer",
        "Bearer ",
        "Bearer abc",
        "Basic YTpi",
        "Bearer sk_test_0000000000000000_" + "0" * 64 + "_00000000",
        "Bearer " + "x" * 10_000,
    ],
)
def test_a_key_that_is_none_is_401(world: World, authorization: str) -> None:
    found = world.send("POST", "/v1/jobs", JOB, authorization=authorization)
    assert found.status_code == 401
    assert found.headers["www-authenticate"] == "Bearer"
    assert world.stored() == 0


def test_no_key_at_all_is_401(world: World) -> None:
    assert world.send("GET", "/v1/jobs", key="").status_code == 401


def test_a_key_in_the_query_string_is_refused(world: World) -> None:
    found = world.send("GET", f"/v1/jobs?api_key={world.key}", key="")
    assert found.status_code == 401


def test_a_revoked_or_expired_key_is_401(world: World) -> None:
    revoked = world.add_key(b"t" * 16, revoked_at=START - 1)
    expired = world.add_key(b"t" * 16, expires_at=START)
    assert world.send("GET", "/v1/jobs", key=revoked).status_code == 401
    assert world.send("GET", "/v1/jobs", key=expired).status_code == 401


def test_a_key_with_another_secret_is_401(world: World) -> None:
    mine, other = world.key.split("_"), world.other_key.split("_")
    mixed = "_".join([*mine[:3], other[3], mine[4]])
    assert world.send("GET", "/v1/jobs", key=mixed).status_code == 401


def test_a_revocation_is_seen_within_five_seconds(world: World) -> None:
    kid = world.key.split("_")[2]
    assert world.send("GET", "/v1/jobs").status_code == 200
    record = world.keys._records[kid]
    world.keys._records.pop(kid)
    world.clock.advance_ms(5_000)
    assert world.send("GET", "/v1/jobs").status_code == 401
    assert record.kid == kid


@pytest.mark.parametrize(
    ("scopes", "method", "path", "status"),
    [
        ((JOBS_READ,), "POST", "/v1/jobs", 403),
        ((JOBS_READ,), "POST", "/v1/jobs:batch", 403),
        ((JOBS_READ,), "DELETE", "/v1/jobs/jb_00", 403),
        ((JOBS_WRITE,), "GET", "/v1/jobs", 403),
        ((JOBS_WRITE,), "GET", "/v1/jobs/jb_00", 403),
        ((JOBS_READ,), "GET", "/v1/jobs/jb_00/runs", 403),
        ((RUNS_READ,), "GET", "/v1/jobs/jb_00/events", 403),
        ((JOBS_READ,), "GET", "/v1/jobs", 200),
    ],
)
def test_a_key_does_what_its_scopes_allow(
    world: World, scopes: tuple[str, ...], method: str, path: str, status: int
) -> None:
    key = world.add_key(b"t" * 16, scopes)
    body = JOB if method == "POST" else None
    assert world.send(method, path, body, key=key).status_code == status
    assert world.stored() == 0


def test_the_openapi_page_needs_no_key(world: World) -> None:
    assert world.send("GET", "/openapi.json", key="").status_code == 200
