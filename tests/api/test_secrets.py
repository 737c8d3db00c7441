"""Signing keys and named secrets over HTTP."""

import json
import threading
from collections.abc import Callable, Sequence

import msgspec
import pytest

from commandside.ports import Unavailable
from commandside.secret_port import Judged
from infra.memory.secret_store import MemorySecretStore
from infra.memory.vault import MemoryVault
from infra.web import build_app
from tests.api.world import JOB, World

NAMING = JOB | {
    "target": JOB["target"] | {"headers": {"Authorization": {"secret": "crm", "scheme": "Bearer"}}}
}


def test_a_new_signing_key_comes_with_what_verifies_it(world: World) -> None:
    made = world.send("POST", "/v1/signing-keys", {})
    assert made.status_code == 201, made.text
    assert made.json()["secret"].startswith("whsec_")
    public = world.send("POST", "/v1/signing-keys", {"scheme": "v1a"}).json()
    assert public["public_key"].startswith("whpk_")
    assert public["secret"] is None
    items = world.send("GET", "/v1/signing-keys").json()["items"]
    assert [(item["key_id"], item["scheme"]) for item in items] == [(2, "v1a"), (1, "v1")]


def test_a_rotation_says_until_when_the_old_key_signs(world: World) -> None:
    world.send("POST", "/v1/signing-keys")
    new = world.send("POST", "/v1/signing-keys", {"overlap_s": 60}).json()
    old = world.send("GET", "/v1/signing-keys").json()["items"][1]
    assert new["expires_at"] is None
    assert old["expires_at"] is not None


def test_a_rotation_that_is_sent_twice_makes_one_key(world: World) -> None:
    first = world.send("POST", "/v1/signing-keys", {}, idempotency_key="a")
    again = world.send("POST", "/v1/signing-keys", {}, idempotency_key="a")
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json()
    other = world.send("POST", "/v1/signing-keys", {"scheme": "v1a"}, idempotency_key="a")
    assert other.status_code == 422


def test_no_more_keys_sign_at_once_than_a_header_bears(world: World) -> None:
    for _ in range(5):
        assert world.send("POST", "/v1/signing-keys", {}).status_code == 201
    refused = world.send("POST", "/v1/signing-keys", {})
    assert refused.status_code == 409
    assert "expire" in refused.json()["detail"]


def test_a_secret_is_set_and_listed_and_its_value_never_shown(world: World) -> None:
    made = world.send("PUT", "/v1/secrets/crm", {"value": "open sesame"})
    assert (made.status_code, made.json()["version"]) == (201, 1)
    again = world.send("PUT", "/v1/secrets/crm", {"value": "open sesame"})
    assert (again.status_code, again.json()["version"]) == (200, 2)
    listed = world.send("GET", "/v1/secrets")
    assert [item["name"] for item in listed.json()["items"]] == ["crm"]
    assert "sesame" not in made.text + again.text + listed.text
    assert world.send("GET", "/v1/secrets", key=world.other_key).json()["items"] == []


def test_a_secret_that_is_removed_is_gone(world: World) -> None:
    world.send("PUT", "/v1/secrets/crm", {"value": "x"})
    assert world.send("DELETE", "/v1/secrets/crm").status_code == 200
    assert world.send("DELETE", "/v1/secrets/crm").status_code == 404


@pytest.mark.parametrize(
    ("method", "path", "body", "pointer"),
    [
        ("POST", "/v1/signing-keys", {"scheme": "v2"}, "/scheme"),
        ("POST", "/v1/signing-keys", {"scheme": ["v1"]}, "/scheme"),
        ("POST", "/v1/signing-keys", {"overlap_s": -1}, "/overlap_s"),
        ("POST", "/v1/signing-keys", {"overlap_s": True}, "/overlap_s"),
        ("POST", "/v1/signing-keys", {"overlap_s": 1e12}, "/overlap_s"),
        ("POST", "/v1/signing-keys", {"secret": "x"}, "/secret"),
        ("PUT", "/v1/secrets/crm", {}, "/value"),
        ("PUT", "/v1/secrets/crm", {"value": ""}, "/value"),
        ("PUT", "/v1/secrets/crm", {"value": "a\r\nX: b"}, "/value"),
        ("PUT", "/v1/secrets/crm", {"value": "x" * 1025}, "/value"),
        ("PUT", "/v1/secrets/crm", {"value": 7}, "/value"),
        ("PUT", "/v1/secrets/crm", {"value": "x", "more": 1}, "/more"),
    ],
)
def test_what_cannot_be_is_refused_by_its_pointer(
    world: World, method: str, path: str, body: dict[str, object], pointer: str
) -> None:
    found = world.send(method, path, json.dumps(body).encode())
    assert found.status_code == 422, found.text
    assert [error["pointer"] for error in found.json()["errors"]] == [pointer]
    assert world.send("GET", "/v1/secrets").json()["items"] == []
    assert world.send("GET", "/v1/signing-keys").json()["items"] == []


def test_a_refused_secret_is_not_repeated(world: World) -> None:
    found = world.send("PUT", "/v1/secrets/crm", {"value": "open\nsesame"})
    assert "sesame" not in found.text


def test_only_a_key_that_may_administer_keys_sees_secrets(world: World) -> None:
    weak = world.add_key(b"t" * 16, ("jobs:read", "jobs:write"))
    for method, path in (
        ("GET", "/v1/signing-keys"),
        ("POST", "/v1/signing-keys"),
        ("GET", "/v1/secrets"),
        ("PUT", "/v1/secrets/crm"),
        ("DELETE", "/v1/secrets/crm"),
    ):
        assert world.send(method, path, key=weak).status_code == 403


def test_a_header_names_a_secret_that_is_there(world: World) -> None:
    refused = world.send("POST", "/v1/jobs", NAMING)
    assert refused.status_code == 422
    (error,) = refused.json()["errors"]
    assert error["pointer"] == "/target/headers/Authorization/secret"
    assert "PUT /v1/secrets/crm" in error["detail"]
    world.send("PUT", "/v1/secrets/crm", {"value": "x"})
    made = world.send("POST", "/v1/jobs", NAMING)
    assert made.status_code == 201, made.text
    job = made.json()["job_id"]
    shown = world.send("GET", f"/v1/jobs/{job}").json()["spec"]["target"]
    assert shown["headers"] == {"Authorization": {"secret": "crm", "scheme": "Bearer"}}
    again = world.send("PATCH", f"/v1/jobs/{job}", {"target": shown})
    assert again.json()["version"] == 1, "nothing changed"


def test_the_event_loop_waits_for_no_store_of_secrets(world: World) -> None:
    world.send("PUT", "/v1/secrets/crm", {"value": "x"})
    store = _Threads(world.clock.now)
    store.put_secret(b"t" * 16, "crm", b"x")
    ports = msgspec.structs.replace(world.ports, secrets=store)
    world.app = build_app(ports, command=True, query=True)
    job = world.define(NAMING)["job_id"]
    target = {"headers": {"X-More": {"secret": "crm"}}}
    assert world.send("PATCH", f"/v1/jobs/{job}", {"target": target}).status_code == 200
    assert len(store.asked) == 2
    assert threading.get_ident() not in store.asked


def test_a_patch_names_a_secret_that_is_there_and_so_does_what_it_keeps(world: World) -> None:
    world.send("PUT", "/v1/secrets/crm", {"value": "x"})
    job = world.define(NAMING)["job_id"]
    strange = {"headers": {"X-More": {"secret": "no\0name"}, "X-Other": {"secret": ["crm"]}}}
    assert world.send("PATCH", f"/v1/jobs/{job}", {"target": strange}).status_code == 422
    for header in ({"X-More": {"secret": "other"}}, {"X-More": "plain"}):
        refused = world.send("PATCH", f"/v1/jobs/{job}", {"target": {"headers": header}})
        assert refused.status_code == (422 if header["X-More"] != "plain" else 200), refused.text
    world.send("DELETE", "/v1/secrets/crm")
    refused = world.send("PATCH", f"/v1/jobs/{job}", {"target": {"method": "PUT"}})
    (error,) = refused.json()["errors"]
    assert error["pointer"] == "/target/headers/Authorization/secret"


class _Threads(MemorySecretStore):
    """Remembers which threads asked it about a definition."""

    def __init__(self, now: Callable[[], int]) -> None:
        super().__init__(now)
        self.asked: list[int] = []

    def judged(self, tenant_id: bytes, names: Sequence[str]) -> Judged:
        self.asked.append(threading.get_ident())
        return super().judged(tenant_id, names)

    def value(self, tenant_id: bytes, name: str, _seconds: int) -> bytes:
        self.asked.append(threading.get_ident())
        return super().value(tenant_id, name, _seconds)


def test_a_header_goes_from_a_value_to_a_secret_and_back(world: World) -> None:
    world.send("PUT", "/v1/secrets/crm", {"value": "x"})
    job = world.define()["job_id"]
    for value in ({"secret": "crm"}, "Bearer plain", {"secret": "crm", "scheme": "Basic"}):
        change = {"target": {"headers": {"Authorization": value}}}
        assert world.send("PATCH", f"/v1/jobs/{job}", change).status_code == 200
    shown = world.send("GET", f"/v1/jobs/{job}").json()["spec"]["target"]["headers"]
    assert shown == {"Authorization": {"secret": "crm", "scheme": "Basic"}}


@pytest.mark.parametrize(
    ("value", "pointer"),
    [
        ({}, "/secret"),
        ({"secret": ""}, "/secret"),
        ({"secret": "a b"}, "/secret"),
        ({"secret": 1}, "/secret"),
        ({"secret": "crm", "scheme": ""}, "/scheme"),
        ({"secret": "crm", "scheme": "Bea\rer"}, "/scheme"),
        ({"secret": "crm", "prefix": "x"}, "/prefix"),
    ],
)
def test_a_header_that_names_a_secret_wrongly_is_refused(
    world: World, value: dict[str, object], pointer: str
) -> None:
    body = JOB | {"target": JOB["target"] | {"headers": {"X-Token": value}}}
    found = world.send("POST", "/v1/jobs", body)
    assert found.status_code == 422, found.text
    assert found.json()["errors"][0]["pointer"] == f"/target/headers/X-Token{pointer}"


def test_credentials_are_sent_as_the_header_that_http_has_for_them(world: World) -> None:
    world.send("PUT", "/v1/secrets/db", {"value": "user:password"})
    target = {"kind": "http", "url": "https://hooks.example.com/run"}
    job = world.define(JOB | {"target": target | {"credentials": {"secret": "db"}}})
    assert not [said for said in job["warnings"] if "colon" in said]
    path = f"/v1/jobs/{job['job_id']}"

    def headers() -> dict[str, object]:
        found: dict[str, object] = world.send("GET", path).json()["spec"]["target"]["headers"]
        return found

    assert headers() == {"Authorization": {"secret": "db", "scheme": "Basic"}}
    world.send("PUT", "/v1/secrets/other", {"value": "user:other"})
    changed = world.send("PATCH", path, {"target": {"credentials": {"secret": "other"}}})
    assert changed.status_code == 200, changed.text
    assert headers() == {"Authorization": {"secret": "other", "scheme": "Basic"}}
    gone = world.send("PATCH", path, {"target": {"credentials": {"secret": "never"}}})
    assert gone.status_code == 422
    assert "never" in gone.text
    assert world.send("PATCH", path, {"target": {"credentials": None}}).status_code == 200
    assert headers() == {}


@pytest.mark.parametrize(
    "wrong",
    [
        {"credentials": "user:password"},
        {"credentials": {"secret": "db", "scheme": "Bearer"}},
        {"credentials": {}},
        {"credentials": {"secret": "db"}, "headers": {"authorization": "Bearer x"}},
    ],
)
def test_credentials_that_cannot_be_are_refused_by_name(
    world: World, wrong: dict[str, object]
) -> None:
    world.send("PUT", "/v1/secrets/db", {"value": "user:password"})
    target = {"kind": "http", "url": "https://hooks.example.com/run"} | wrong
    found = world.send("POST", "/v1/jobs", JOB | {"target": target})
    assert found.status_code == 422, found.text
    assert [error["pointer"] for error in found.json()["errors"]] == ["/target/credentials"]
    assert "password" not in found.json()["errors"][0].get("value", "")


def test_credentials_in_the_text_of_a_url_are_refused_with_what_is_right(world: World) -> None:
    target = {"kind": "http", "url": "https://user:hunter2@hooks.example.com/run"}
    found = world.send("POST", "/v1/jobs", JOB | {"target": target})
    assert found.status_code == 422
    assert "target.credentials" in found.text
    assert "hunter2" not in found.text


def test_basic_with_a_secret_that_has_no_colon_is_warned_of(world: World) -> None:
    world.send("PUT", "/v1/secrets/db", {"value": "token"})
    headers = {"Authorization": {"secret": "db", "scheme": "basic"}, "X-Key": {"secret": "db"}}
    body = JOB | {"key": "k", "target": JOB["target"] | {"headers": headers}}
    job = world.define(body)
    (said,) = [one for one in job["warnings"] if "colon" in one]
    assert "'db'" in said
    assert [one for one in world.define(body)["warnings"] if "colon" in one] == [said]
    path = f"/v1/jobs/{job['job_id']}"
    changed = world.send("PATCH", path, {"target": {"method": "PUT"}}).json()
    assert [one for one in changed["warnings"] if "colon" in one] == [said]
    world.send("PUT", "/v1/secrets/db", {"value": "user:token"})
    changed = world.send("PATCH", path, {"target": {"method": "POST"}}).json()
    assert not [one for one in changed["warnings"] if "colon" in one]
    bearer = {"Authorization": {"secret": "db", "scheme": "Bearer"}}
    other = world.define(JOB | {"target": JOB["target"] | {"headers": bearer}})
    assert not [one for one in other["warnings"] if "colon" in one]


class _SlowVault(MemoryVault):
    """Has to read each tenant's keys first, and notes which thread did."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[tuple[bytes, int]] = []

    def knows(self, tenant_id: bytes) -> bool:
        return tenant_id in [tenant for tenant, _ in self.fetched]

    def fetch(self, tenant_id: bytes) -> None:
        if self.away:
            raise Unavailable("the keys cannot be read")
        self.fetched.append((tenant_id, threading.get_ident()))


def test_the_keys_of_a_tenant_are_read_once_and_not_in_the_event_loop(world: World) -> None:
    vault = _SlowVault()
    ports = msgspec.structs.replace(world.ports, vault=vault)
    world.app = build_app(ports, command=True, query=True)
    vault.away = True
    assert world.send("POST", "/v1/jobs", JOB).status_code == 503
    vault.away = False
    for _ in range(2):
        world.define()
        world.send("GET", "/v1/jobs", key=world.other_key)
    (mine, thread), (theirs, _) = vault.fetched
    assert (mine, theirs) == (b"t" * 16, b"u" * 16)
    assert thread != threading.get_ident()
