"""Canaries: no secret's value is anywhere but at the target, whatever succeeds or fails."""

import base64
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import clickhouse_connect
import httpx
import psycopg
import pytest
from confluent_kafka import Consumer, TopicPartition
from psycopg import sql

from infra.embedded.processes import wait_until
from tests.end_to_end.cell import Cell
from tests.end_to_end.receiver import Receiver

SHOWN_S = 60.0
ENGINE_S = 10.0
ROLES = ("api", "scheduler", "dispatcher", "projector")
BEARER = "canary-bearer-5f0d1e9a7c"
PAIR = "canary-user:canary-basic-81c2b7d4e6"
PLAIN = "canary-header-c94e02f1ab"
PAYLOAD = "canary-payload-7be9d3a815"
WRONG = "canary-refused-2d6f8b0c94"


def forms(secret: bytes) -> dict[str, bytes]:
    """Return a secret as it might be written somewhere."""
    return {
        "as it is": secret,
        "in hex": secret.hex().encode(),
        "in base64": base64.b64encode(secret).rstrip(b"="),
        "in URL-safe base64": base64.urlsafe_b64encode(secret).rstrip(b"="),
    }


class Scan:
    """What was looked through for canaries, and where which was found."""

    def __init__(self, secrets: dict[str, bytes]) -> None:
        self._wanted = {
            f"{name}, {how}": text
            for name, secret in secrets.items()
            for how, text in forms(secret).items()
        }
        self.found: list[str] = []
        self.bytes: dict[str, int] = {}

    def look(self, where: str, content: bytes | str) -> None:
        raw = content.encode() if isinstance(content, str) else content
        self.bytes[where] = self.bytes.get(where, 0) + len(raw)
        self.found += [f"{what} in {where}" for what, text in self._wanted.items() if text in raw]


def tables(conninfo: str) -> Iterator[tuple[str, bytes]]:
    """Yield every row of every table, as text and with its byte strings as they are."""
    with psycopg.connect(conninfo) as connection:
        names = connection.execute(
            "select table_name from information_schema.tables where table_schema = 'public'"
        ).fetchall()
        for (name,) in names:
            query = sql.SQL("select t.*, t::text from {} t").format(sql.Identifier(name))
            for row in connection.execute(query):
                for value in row:
                    yield name, value if isinstance(value, bytes) else str(value).encode()


def history(url: str, database: str) -> Iterator[bytes]:
    """Yield what the run history holds, table by table."""
    with clickhouse_connect.get_client(dsn=f"{url}/{database}") as client:
        for (name,) in client.query("show tables").result_rows:
            yield client.raw_query(f"select * from {name}", fmt="RowBinary")  # noqa: S608 - a name of ours


def messages(bootstrap: str, prefix: str) -> Iterator[bytes]:
    """Yield what is in our topics now: more comes all the time."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "canary", "log_level": 0})
    topics = consumer.list_topics(timeout=ENGINE_S).topics
    left = 0
    places = []
    for name, topic in topics.items():
        for partition in topic.partitions if name.startswith(prefix) else ():
            place = TopicPartition(name, partition)
            low, high = consumer.get_watermark_offsets(place, timeout=ENGINE_S)
            left += high - low
            places.append(TopicPartition(name, partition, low))
    consumer.assign(places)
    for _ in range(left):
        found = consumer.poll(ENGINE_S)
        assert found is not None, f"{left} messages were there"
        yield (found.value() or b"") + (found.key() or b"")
    consumer.close()


def job(url: str, name: str, **more: Any) -> dict[str, Any]:
    """Return a job that fires when it is triggered, with a secret in every place there is."""
    headers = {
        "Authorization": {"secret": "bearer", "scheme": "Bearer"},
        "X-Key": {"secret": "bearer"},
        "X-Plain": PLAIN,
    }
    return {
        "type": "recurring",
        "schedule": "0 0 1 1 *",
        "timezone": "UTC",
        "name": name,
        "target": {"kind": "http", "url": f"{url}/{name}", "method": "POST", "headers": headers},
        "payload": {"card": PAYLOAD},
        "retry": {"max_attempts": 1},
        **more,
    }


@pytest.fixture
def nobody() -> str:
    """The address of a port at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    return f"http://127.0.0.1:{port}"


def test_a_secrets_value_is_nowhere_but_at_its_target(
    module_cell: Cell, receiver: Receiver, nobody: str
) -> None:
    cell, client = module_cell, module_cell.client
    for role in ROLES:
        cell.start(role).started()
    for name, value in (("bearer", BEARER), ("pair", PAIR), ("gone", BEARER + "x")):
        assert client.put(f"/v1/secrets/{name}", json={"value": value}).status_code == 201
    receiver.answer = lambda got: 500 if got.path == "/fails" else 200

    basic = job(receiver.url, "basic")
    basic["target"]["headers"].pop("Authorization")
    basic["target"]["credentials"] = {"secret": "pair"}
    missing = job(receiver.url, "missing")
    missing["target"]["headers"]["X-Gone"] = {"secret": "gone"}
    wanted = [job(receiver.url, "works"), basic, job(receiver.url, "fails"), missing]
    wanted.append(job(nobody, "refused"))
    jobs = {one["name"]: cell.define(one)["job_id"] for one in wanted}
    assert client.delete("/v1/secrets/gone").status_code == 200
    answers = [client.post(f"/v1/jobs/{one}/trigger") for one in jobs.values()]
    assert [answer.status_code for answer in answers] == [200] * 5
    got = receiver.wait(lambda got: len({one.path for one in got}) == 3)
    sent = {one.path: one for one in got}
    assert sent["/works"].headers["authorization"] == f"Bearer {BEARER}"
    assert sent["/works"].headers["x-key"] == BEARER
    pair = base64.b64encode(PAIR.encode()).decode()
    assert sent["/basic"].headers["authorization"] == f"Basic {pair}"
    assert all(PAYLOAD.encode() in one.body for one in got)

    letters: dict[str, str | None] = {}

    def dead() -> bool:
        items = client.get("/v1/dead-letters").json()["items"]
        names = {job_id: name for name, job_id in jobs.items()}
        letters.update({names[one["job_id"]]: one["attempts"][0]["error"] for one in items})
        return len(items) == 3

    assert wait_until(dead, SHOWN_S), letters
    assert letters == {"fails": None, "missing": "secret_missing", "refused": "connect"}

    answers += refusals(client, jobs["works"], receiver.url)
    answers += shown(client, jobs)
    answers += rotated(cell, client, jobs["basic"], receiver)

    keys = client.get("/v1/signing-keys").json()["items"]
    signing = base64.b64decode(keys[0]["secret"].removeprefix("whsec_"))
    secrets = {
        "the secret of a bearer": BEARER.encode(),
        "the secret of a user": PAIR.encode(),
        "its password": PAIR.partition(":")[2].encode(),
        "the value of a header": PLAIN.encode(),
        "the signing key": signing,
        "the API key": cell.key.split("_")[3].encode(),
        "the master key": cell.master_file.read_bytes(),
        "a refused value": WRONG.encode(),
    }
    payload = {"a payload": PAYLOAD.encode()}
    for scan, given in ((Scan(secrets), answers), (Scan(payload), ())):
        for answer in given:
            scan.look("answers", answer.content + str(answer.headers).encode())
        look_everywhere(cell, scan)
        assert not scan.found
        for where in ("table events", "table tenant_secrets", "the history", "the topics"):
            assert scan.bytes[where] > 100, f"nothing was looked through in {where}"
        assert scan.bytes["figures"] > 1_000


def look_everywhere(cell: Cell, scan: Scan) -> None:
    """Look through what engines hold and what processes show and say."""
    for table, value in tables(cell.engines.postgres):
        scan.look(f"table {table}", value)
    for content in history(cell.engines.clickhouse, cell.engines.prefix):
        scan.look("the history", content)
    for content in messages(cell.engines.kafka, cell.engines.prefix):
        scan.look("the topics", content)
    for run in cell.running:
        for path in ("/metrics", "/readyz", "/healthz"):
            scan.look("figures", httpx.get(run.ops + path).content)
    for file in cell.log_files():
        scan.look("what processes said", file.read_bytes())


def test_a_scan_finds_a_canary_in_every_form() -> None:
    for how, text in forms(BEARER.encode()).items():
        scan = Scan({"it": BEARER.encode()})
        scan.look("here", b"before " + text + b" after")
        assert f"it, {how} in here" in scan.found


def refusals(client: httpx.Client, job_id: str, url: str) -> list[httpx.Response]:
    """Send what is refused, each with a value that is nobody's business."""
    target = {"kind": "http", "url": url}

    def define(**more: Any) -> httpx.Response:
        return client.post("/v1/jobs", json=job(url, "wrong") | more)

    found = [
        define(target=target | {"headers": {"Authorization": f"Bearer {WRONG}\r\n"}}),
        define(target=target | {"headers": {"X-A": {"secret": "bearer", "scheme": f"a {WRONG}"}}}),
        define(target=target | {"url": f"http://me:{WRONG}@127.0.0.1/"}),
        define(target=target | {"credentials": f"me:{WRONG}"}),
        define(target=target | {"token": WRONG}),
        define(authorization=WRONG),
        define(payload_base64=f"{WRONG}!", payload=None),
        client.put("/v1/secrets/bad", json={"value": f"{WRONG}\n"}),
        client.put("/v1/secrets/bad", json={"value": WRONG, "more": WRONG}),
        client.put("/v1/secrets/bad", json={"value": [WRONG]}),
        client.post("/v1/jobs", content=b'{"payload": "%b' % WRONG.encode()),
        client.patch(
            f"/v1/jobs/{job_id}",
            json={"target": {"headers": {"X-A": f"{WRONG}\n"}}},
            headers={"content-type": "application/merge-patch+json"},
        ),
        client.get("/v1/jobs", headers={"authorization": f"Bearer {WRONG}"}),
        client.get("/v1/jobs", headers={"authorization": f"Basic {WRONG}"}),
    ]
    for answer in found:
        assert 400 <= answer.status_code < 500, answer.text
    return found


def shown(client: httpx.Client, jobs: dict[str, str]) -> list[httpx.Response]:
    """Ask for everything that shows a job, a run or a secret, but for payloads and signing keys."""
    paths = ["/v1/jobs", "/v1/secrets", "/v1/dead-letters", "/openapi.json"]
    for job_id in jobs.values():
        paths += [f"/v1/jobs/{job_id}{rest}" for rest in ("", "/runs", "/events")]
        runs = client.get(f"/v1/jobs/{job_id}/runs").json()["items"]
        ids = [run["run_id"] for run in runs if run["run_id"]]
        paths += [f"/v1/runs/{run}" for run in ids]
        paths += [f"/v1/jobs/{job_id}/events?run={run}" for run in ids]
    found = [client.get(path) for path in paths]
    for path, answer in zip(paths, found, strict=True):
        assert answer.status_code == 200, (path, answer.text)
    return found


def rotated(
    cell: Cell, client: httpx.Client, job_id: str, receiver: Receiver
) -> list[httpx.Response]:
    """Change a secret, the signing key and the master key, and fire again under them."""
    answers = [client.put("/v1/secrets/pair", json={"value": PAIR})]
    rotate = client.post("/v1/signing-keys", json={"overlap_s": 0})
    assert rotate.status_code == 201
    file = Path(tempfile.mkdtemp()) / "said"
    file.write_text(cell.tocsin("keys", "rotate"), encoding="utf-8")
    assert cell.master_file.read_bytes() not in file.read_bytes()
    before = len(receiver.got)
    answers.append(client.post(f"/v1/jobs/{job_id}/trigger"))
    receiver.wait(lambda got: len(got) > before)
    return answers
