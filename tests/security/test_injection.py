"""No header leads past its line, and whatever target is accepted arrives as it was given."""

import time
from collections.abc import Iterator
from typing import Final

import msgspec
import pytest
from hypothesis import given, seed
from hypothesis import strategies as st

from commandside.definitions.destination import judge_sending
from commandside.deliverer_port import Answer, Call
from commandside.firing.calls import Calls
from domain.job.events import JobSpec
from domain.opaque import COMPLETION, Seal
from domain.problem import Problem
from domain.retry import ONE_TIME_DEFAULT
from domain.run.state import Facts
from domain.schedule.schedule import OneTime
from domain.target import (
    METHODS,
    Header,
    HttpTarget,
    address_rules,
    parse_headers,
    parse_http_target,
)
from infra.memory.secret_store import MemorySecretStore
from infra.memory.vault import MemoryVault
from infra.targets.addresses import AddressBook
from infra.targets.curl import CurlDeliverer
from tests.contracts import jobs
from tests.contracts.test_deliverer_curl import Names
from tests.engines.sink import PATIENCE_S, Request, TargetServer
from tests.fuzz.seeds import injections

NOW: Final = 1_800_000_000_000
RULES = address_rules(("127.0.0.0/8",))
CORPUS = injections()
OURS = {
    *("accept-encoding", "content-length", "host", "idempotency-key", "traceparent"),
    *("tocsin-attempt", "tocsin-completion-token", "tocsin-fence", "tocsin-job-id"),
    *("tocsin-run-id", "tocsin-scheduled-for", "webhook-id", "webhook-timestamp"),
}


def test_the_corpus_is_as_large_as_it_should_be() -> None:
    assert len({(one["name"], one["value"]) for one in CORPUS}) == len(CORPUS) >= 300


def test_no_header_of_the_corpus_is_accepted() -> None:
    passed = [one for one in CORPUS if parse_headers({one["name"]: one["value"]})[0]]
    assert passed == []


def test_each_is_refused_by_its_name_beside_one_that_is_kept() -> None:
    for one in CORPUS:
        kept, wrong = parse_headers({"X-Fine": "yes", one["name"]: one["value"]})
        assert kept == (Header("X-Fine", b"yes"),)
        assert [found.pointer[:16] for found in wrong] == ["/target/headers/"]


class Sending:
    """A target that is defined, built into a call, and sent."""

    def __init__(self) -> None:
        self.sink = TargetServer()
        self.sink.__enter__()
        self.deliverer = CurlDeliverer(AddressBook(RULES), Names(), concurrency=4)
        self.vault = MemoryVault()
        self.calls = Calls(self.vault, MemorySecretStore(lambda: 0), Seal(bytes(32), COMPLETION))

    def close(self) -> None:
        self.deliverer.close()
        self.sink.__exit__(None, None, None)

    def send(self, target: HttpTarget, asked: "Asked") -> tuple[Answer, Request]:
        run, spec = self._run(target, asked)
        until_us = time.monotonic_ns() // 1000 + 60_000_000
        call = self.calls.build(run, spec, spec, token=1, at=NOW, not_after_us=until_us)
        assert isinstance(call, Call)
        self.deliverer.submit([call])
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            self.deliverer.wait(100)
            for answer in self.deliverer.poll():
                assert len(self.sink.requests) == 1, answer
                return answer, self.sink.requests.pop()
        raise AssertionError("no answer")

    def _run(self, target: HttpTarget, asked: "Asked") -> tuple[Facts, JobSpec]:
        job_id = jobs.job_id(0, 8)

        def sealed(plain: bytes) -> bytes:
            return self.vault.seal(jobs.TENANT, job_id, plain)

        headers = tuple(Header(one.name, sealed(one.value)) for one in target.headers)
        spec = JobSpec(
            OneTime(NOW),
            msgspec.structs.replace(target, headers=headers),
            ONE_TIME_DEFAULT,
            30_000,
            "{job_id}_{scheduled_ts}",
            sealed(asked.body) if asked.body else b"",
            content_type=asked.content_type,
        )
        return jobs.ready_run(jobs.define(job_id, spec, NOW)).facts, spec


class Asked(msgspec.Struct, frozen=True):
    """What a tenant asks to be sent."""

    path: str
    method: str
    headers: dict[str, str]
    body: bytes
    content_type: str


@pytest.fixture(scope="module")
def sending() -> Iterator[Sending]:
    found = Sending()
    yield found
    found.close()


PRINTABLE: Final = "".join(map(chr, range(0x21, 0x7F)))
PATHS: Final = st.text(PRINTABLE.replace("#", "").replace("\\", ""), max_size=200)
KNOWN: Final = (
    *(
        "Accept",
        "Authorization",
        "Cookie",
        "Content-Type",
        "User-Agent",
        "Range",
        "Date",
        "Referer",
    ),
    *(
        "Content-Encoding",
        "If-Match",
        "Content-Range",
        "A",
        "-",
        "Cache-Control",
        "Origin",
        "Pragma",
    ),
)
NAMES: Final = st.from_regex(r"[A-Za-z0-9-]{1,64}", fullmatch=True) | st.sampled_from(KNOWN)
VALUES: Final = st.text(" " + PRINTABLE, min_size=1, max_size=100).map(str.strip).filter(bool)
ASKED: Final = st.builds(
    Asked,
    path=PATHS,
    method=st.sampled_from(METHODS),
    headers=st.dictionaries(NAMES, VALUES, max_size=20),
    body=st.binary(max_size=300),
    content_type=st.sampled_from(["", "application/json", "text/plain; charset=utf-8"]),
)


@seed(20_261_130)
@given(asked=ASKED)
def test_whatever_is_accepted_arrives_byte_for_byte(sending: Sending, asked: Asked) -> None:
    url = f"http://127.0.0.1:{sending.sink.port}/{asked.path}"
    target = parse_http_target(url, asked.method, asked.headers, RULES)
    if not isinstance(target, HttpTarget):
        assert all(one.pointer.startswith("/target/headers/") for one in target)
        assert len(parse_headers(asked.headers)[0]) < len(asked.headers)
        return
    try:
        judge_sending(target, len(asked.body), jobs.TENANT, {})
    except Problem:
        assert (asked.method, bool(asked.body)) == ("HEAD", True)
        return
    answer, request = sending.send(target, asked)
    assert (answer.status, answer.error) == (200, "")
    assert request.head.split(b"\r\n")[0] == f"{asked.method} /{asked.path} HTTP/1.1".encode()
    assert request.body == asked.body
    sent = [line.partition(b": ") for line in request.lines]
    mine = {name.decode(): value.decode() for name, _, value in sent}
    assert {name: mine.get(name) for name in asked.headers} == asked.headers
    others = {name.lower() for name in mine if name not in asked.headers}
    assert others <= OURS | {"content-type", "user-agent"}
    assert len(sent) == len(others) + len(asked.headers)
