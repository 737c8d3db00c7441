"""kill -9 of each role at each named crash point, under load: nothing is lost, no key changes."""

import datetime as dt
import time
from typing import Any

import pytest

from commandside import fault_points
from infra.embedded.broker import EmbeddedBroker
from infra.embedded.processes import wait_until
from tests.end_to_end.cell import Cell
from tests.end_to_end.receiver import Got, Receiver, attempts, keys_of_runs

JOBS = 120
LEAD_MS = 1_500
DIES_S = 60.0
ENDS_S = 90.0


@pytest.fixture(scope="module")
def served(module_cell: Cell) -> Cell:
    """A cell whose API answers; the other roles come and go."""
    module_cell.start("api").started()
    return module_cell


class Load:
    """Jobs due in a moment: most are taken at once, some are refused the first time."""

    def __init__(self, cell: Cell, receiver: Receiver, jobs: int = JOBS) -> None:
        receiver.answer = self._answer
        self._receiver = receiver
        due = dt.datetime.fromtimestamp((time.time_ns() // 1_000_000 + LEAD_MS) / 1000, dt.UTC)
        self.ids = cell.define_many(
            [
                {
                    "type": "one_time",
                    "run_at": due.isoformat(timespec="milliseconds"),
                    "target": {
                        "kind": "http",
                        "url": f"{receiver.url}/{'flaky' if n % 10 == 0 else 'steady'}",
                        "method": "POST",
                    },
                    "payload": {"n": n},
                }
                for n in range(jobs)
            ]
        )
        cell.planned_before += jobs

    @staticmethod
    def _answer(got: Got) -> int:
        return 503 if got.path == "/flaky" and got.headers["tocsin-attempt"] == "1" else 200

    def ended(self, cell: Cell) -> list[Got]:
        """Wait until all runs have ended, then hold what came against the contract."""
        cell.settled(cell.planned_before, ENDS_S)
        mine = {f"{job_id}" for job_id in self.ids}
        got = [one for one in self._receiver.got if one.headers["tocsin-job-id"] in mine]
        assert {one.headers["tocsin-job-id"] for one in got} == mine, "an occurrence never fired"
        assert all(len(keys) == 1 for keys in keys_of_runs(got).values()), "a key changed"
        assert len(keys_of_runs(got)) == len(mine)
        assert max(attempts(got).values()) == 1, "an attempt was sent twice"
        return got


@pytest.mark.parametrize("point", fault_points.DISPATCHER)
def test_a_dispatcher_killed_at_any_point_loses_nothing(
    served: Cell, receiver: Receiver, point: str
) -> None:
    scheduler = served.start("scheduler").started()
    armed = served.start("dispatcher", f"{point}:2").started()
    load = Load(served, receiver)
    assert armed.died(DIES_S), f"{point} was not hit: {armed.text}"
    dispatcher = served.start("dispatcher").started()
    load.ended(served)
    assert dispatcher.stop() == 0
    assert scheduler.stop() == 0


SCHEDULING = [p for p in fault_points.SCHEDULER if p not in fault_points.AUDITOR]
LAPSING = [
    fault_points.SESSIONS_REAPED,
    fault_points.LAPSES_DECIDED,
    fault_points.LAPSES_APPENDED,
]


@pytest.mark.parametrize("point", SCHEDULING)
def test_a_scheduler_killed_at_any_point_loses_nothing(
    served: Cell, receiver: Receiver, point: str
) -> None:
    dispatcher = served.start("dispatcher").started()
    armed = served.start("scheduler", point)
    load = Load(served, receiver)
    assert armed.died(DIES_S), f"{point} was not hit: {armed.text}"
    scheduler = served.start("scheduler").started()
    load.ended(served)
    assert scheduler.stop() == 0
    assert dispatcher.stop() == 0


@pytest.mark.parametrize("point", LAPSING)
def test_an_audit_killed_between_reaping_and_retrying_loses_nothing(
    served: Cell, receiver: Receiver, point: str
) -> None:
    """DUP-07."""
    scheduler = served.start("scheduler").started()
    doomed = served.start("dispatcher", f"{fault_points.CALLED}:2").started()
    load = Load(served, receiver)
    assert doomed.died(DIES_S)
    assert scheduler.stop() == 0
    armed = served.start("scheduler", point)
    assert armed.died(DIES_S), f"{point} was not hit: {armed.text}"
    scheduler = served.start("scheduler").started()
    dispatcher = served.start("dispatcher").started()
    load.ended(served)
    assert dispatcher.stop() == 0
    assert scheduler.stop() == 0


def test_an_audit_killed_while_it_takes_back_the_marks_of_a_wiped_broker_loses_nothing(
    served: Cell, receiver: Receiver, embedded_broker: EmbeddedBroker
) -> None:
    armed = served.start("scheduler", fault_points.MARKS_FORGOTTEN).started()
    load = Load(served, receiver)
    assert wait_until(lambda: served.handed_off() >= JOBS, DIES_S)
    embedded_broker.recycle()
    assert armed.died(DIES_S), armed.text
    scheduler = served.start("scheduler").started()
    dispatcher = served.start("dispatcher").started()
    load.ended(served)
    assert dispatcher.stop() == 0
    assert scheduler.stop() == 0


def test_an_api_and_a_projector_killed_under_load_lose_nothing_that_was_accepted(
    served: Cell, receiver: Receiver
) -> None:
    scheduler = served.start("scheduler").started()
    dispatcher = served.start("dispatcher").started()
    projector = served.start("projector").started()
    load = Load(served, receiver)
    projector.kill()
    served.restart("api")
    served.start("projector")
    load.ended(served)
    history: dict[str, Any] = {}

    def projected() -> bool:
        nonlocal history
        history = served.client.get(f"/v1/jobs/{load.ids[0]}/runs").json()
        # An API that has just come back may say first that it is not ready.
        found = history.get("items")
        return found is not None and any(run["status"] == "succeeded" for run in found[:1])

    assert wait_until(projected, ENDS_S), history
    assert dispatcher.stop() == 0
    assert scheduler.stop() == 0
