"""The scripted deliverer keeps the port's promises."""

import msgspec
import pytest

from commandside.deliverer_port import Answer, Call
from domain.target import address_allowed, address_rules
from infra.memory.targets import NEVER_US, MemoryDeliverer, Reply
from tests.contracts.deliverer import Behaviour, HttpContract, HttpWorld

RULES = address_rules(["127.0.0.0/8"])
CLOSED_PORT = 9
ERRORS = {"cut": "reset", "garbage": "bad_response", "stalled": "timeout"}


class MemoryWorld:
    def __init__(self) -> None:
        self.now_us = 10_000_000_000
        self.deliverer = MemoryDeliverer(self.rule, lambda: self.now_us)
        self._behaviours: dict[str, Behaviour] = {}
        self._names: dict[str, tuple[str, ...]] = {}

    def call(self, token: int, path: str = "/") -> Call:
        deadline = self.now_us + 60_000_000
        host, port = "127.0.0.1", 8080
        tenant = b"t" * 16
        return Call(
            token, tenant, "http", host, port, path, "POST", [b"A: b"], b"{}", 30_000, deadline
        )

    def behave(self, path: str, behaviour: Behaviour) -> None:
        self._behaviours[path] = behaviour

    def resolve(self, name: str, *addresses: str) -> None:
        self._names[name] = addresses

    def closed_port(self) -> int:
        return CLOSED_PORT

    def paths(self) -> list[str]:
        return [hit.call.path for hit in self.deliverer.hits]

    def hush(self) -> None:
        self.behave("/", Behaviour(end="silent"))

    def arrived(self) -> int:
        return len(self.paths())

    def answers(self, count: int) -> list[Answer]:
        got: list[Answer] = []
        while len(got) < count:
            next_us = self.deliverer.next_us
            assert next_us is not None, f"{len(got)} of {count} answers"
            self.now_us = max(self.now_us, next_us)
            got += self.deliverer.poll()
        return got

    def rule(self, call: Call, now_us: int) -> Reply:
        assert now_us == self.now_us
        named = call.host.endswith(".com")
        addresses = self._names.get(call.host, ()) if named else (call.host,)
        if not addresses:
            return Reply(0, error="dns")
        if not all(address_allowed(address, call.port, RULES) for address in addresses):
            return Reply(0, error="blocked_address")
        if call.port == CLOSED_PORT:
            return Reply(0, error="connect")
        behaviour = self._behaviours.get(call.path, Behaviour())
        if behaviour.end == "silent":
            return Reply(0, NEVER_US)
        error = ERRORS.get(behaviour.end, "")
        status = 0 if behaviour.end in ("cut", "garbage") else behaviour.status
        latency_us = NEVER_US if behaviour.end == "stalled" else 1_000
        return Reply(status, latency_us, error, behaviour.headers, behaviour.body)


@pytest.fixture
def world() -> HttpWorld:
    return MemoryWorld()


class TestMemoryDeliverer(HttpContract):
    """The whole contract."""


def test_answers_come_in_the_order_in_which_they_end() -> None:
    now_us = 0

    def rule(call: Call, _: int) -> Reply:
        return Reply(latency_us=1_000 * (10 - call.token))

    deliverer = MemoryDeliverer(rule, lambda: now_us)
    call = msgspec.structs.replace(MemoryWorld().call(0), not_after_us=1)
    deliverer.submit([msgspec.structs.replace(call, token=token) for token in range(3)])
    assert deliverer.next_us == 8_000
    now_us = 9_000
    assert [answer.token for answer in deliverer.poll()] == [2, 1]
    assert deliverer.in_flight == 1
