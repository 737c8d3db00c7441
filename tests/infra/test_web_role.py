"""What the processes that answer over HTTP open for themselves."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
import uvicorn

from infra.faults import NoFaults
from infra.keys.masters import one_master
from infra.keys.wrapping import Unlocked, WrappingKeys
from infra.roles import web
from infra.roles.process import Process
from infra.settings import Api, Clickhouse, Settings


class Opened:
    """A process of a web role whose engines are nowhere, and which notes what it asks for."""

    def __init__(self) -> None:
        self.settings = Settings(
            api=Api(port=0, query_port=0), clickhouse=Clickhouse(url="http://127.0.0.1:1")
        )
        self.conninfo = "host=127.0.0.1 port=1"
        self.keeper = SimpleNamespace(clock=None)
        self.shards, self.telemetry, self.faults = 8, None, NoFaults()
        self.keys = Unlocked(bytes(32), WrappingKeys(one_master(bytes(32))))
        self.queues = 0

    def unavailable(self, detail: str) -> None:
        raise AssertionError(detail)

    def now(self) -> int:
        return 0

    def queue(self, **_kind: bool) -> Any:
        self.queues += 1
        return SimpleNamespace(close=lambda: None)


@pytest.mark.parametrize(("run", "queues"), [(web.run, 1), (web.run_queries, 0)])
def test_only_a_role_that_takes_commands_has_a_producer(
    monkeypatch: pytest.MonkeyPatch, run: Any, queues: int
) -> None:
    monkeypatch.setattr(uvicorn.Server, "run", lambda *_args, **_named: None)
    opened = Opened()
    assert run(cast("Process", opened)) == 0
    assert opened.queues == queues
