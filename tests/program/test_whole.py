"""`tocsin up` as a person meets it: real roles, real engines, the demo."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from infra.embedded.processes import wait_until
from infra.kafka.options import Config
from tests.program.started import REAL, START_S, Up, all_gone, kill

FIRE = re.compile(
    r"fire  due (?P<due>\S+Z)  late +(?P<late>\d+) ms  status 204  key (?P<key>job-\S+)"
)
CURL_TIMEOUT_S = 30.0
FILLER_MB = 80
PRODUCE_S = 30.0


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    kept = Up(tmp_path_factory.mktemp("whole"), "--port", "0", module=REAL)
    yield kept
    kept.close()


@pytest.fixture
def up(kept: Up) -> Up:
    """A running `up`; a test may end it in any way."""
    return kept if kept.running else kept.start()


def pasted(line: str) -> dict[str, Any]:
    """Run a line as a shell would, and return the JSON that it prints."""
    done = subprocess.run(
        ["bash", "-c", line], capture_output=True, timeout=CURL_TIMEOUT_S, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def curl_lines(up: Up) -> list[str]:
    """Return those of the last start."""
    return [line for line in up.text.splitlines() if line.startswith("curl ")][-3:]


def jobs(up: Up) -> dict[str, dict[str, Any]]:
    """Return the tenant's jobs by id."""
    ready = up.ready
    answer = httpx.get(
        f"{ready['api']}/v1/jobs",
        headers={"Authorization": f"Bearer {ready['api_key']}"},
        timeout=10,
    )
    answer.raise_for_status()
    return {job["job_id"]: job for job in answer.json()["items"]}


def fill(bootstrap: str, megabytes: int) -> None:
    """Let the broker hold so much: it forgets nothing by itself."""
    config: Config = {"bootstrap.servers": bootstrap, "log_level": 0}
    admin = AdminClient(config)  # a name of its own: its requests end with it
    admin.create_topics([NewTopic("filler", 1, 1)])["filler"].result(PRODUCE_S)
    producer = Producer(config | {"queue.buffering.max.kbytes": 1024 * megabytes * 2})
    for _ in range(megabytes):
        producer.produce("filler", os.urandom(900_000))
    producer.flush(PRODUCE_S)


def fires(up: Up, key_part: str) -> list[str]:
    """Return the keys of fires shown whose key has this part."""
    return [found["key"] for found in FIRE.finditer(up.text) if key_part in found["key"]]


def test_each_demo_fire_is_a_line_with_due_instant_lateness_status_and_key(up: Up) -> None:
    once = re.findall(r"demo jobs +(jb_\w+) in 5 s", up.text)[-1]
    assert wait_until(lambda: bool(fires(up, once)), START_S), up.text


def test_the_three_curl_lines_work_when_pasted(up: Up) -> None:
    listed, runs, defined = curl_lines(up)
    assert wait_until(lambda: bool(pasted(listed)["items"]), START_S)
    assert "items" in pasted(runs)
    job_id = pasted(defined)["job_id"]
    assert wait_until(lambda: bool(fires(up, job_id)), START_S), up.text


def test_after_the_whole_tree_was_killed_jobs_and_fires_go_on(up: Up) -> None:
    assert wait_until(lambda: bool(jobs(up)), START_S)
    before, pids = set(jobs(up)), up.pids
    for pid in pids.values():
        os.kill(pid, signal.SIGSTOP)  # so that none of them notices the others' end
    for pid in pids.values():
        kill(pid)
    up.ended()
    up.start()
    assert wait_until(lambda: before < set(jobs(up)), START_S), "jobs of before, and a new one"
    job_id = pasted(curl_lines(up)[2])["job_id"]
    assert wait_until(lambda: bool(fires(up, job_id)), START_S), up.text


def test_a_job_fires_while_every_role_but_the_api_has_just_been_killed(up: Up) -> None:
    pids = up.pids
    for role in ("scheduler", "dispatcher", "projector"):
        kill(pids[role])
    job_id = pasted(curl_lines(up)[2])["job_id"]
    assert wait_until(lambda: bool(fires(up, job_id)), START_S), up.text


def test_a_broker_above_its_memory_is_replaced_and_jobs_fire_all_the_same(up: Up) -> None:
    up.close()
    with up.environment_of(TOCSIN_KAFKA_MEMORY_MB="64"):
        up.start()
    before = up.pids["broker"]
    fill(up.ready["kafka"], FILLER_MB)
    assert wait_until(lambda: up.pids["broker"] not in {0, before}, START_S), up.text
    assert "above 64: replaced by an empty one" in up.text
    job_id = pasted(curl_lines(up)[2])["job_id"]
    assert wait_until(lambda: bool(fires(up, job_id)), START_S), up.text


def test_ctrl_c_drains_and_ends_everything_that_was_started(up: Up) -> None:
    pids = up.pids
    up.signal(signal.SIGINT)
    assert up.ended() == 0, up.text
    assert all_gone(pids)
    assert "was killed before it had drained" not in up.text
    assert "Traceback" not in up.text
