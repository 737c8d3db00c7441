"""The faults that a scenario can name: each does it, puts it on record, and mends it.

Each returns when the system is whole again, and raises Unreached where what it wanted to hit was
never there: a scenario that did not reach its fault has shown nothing.
"""

import os
import random
import signal
from collections.abc import Callable
from typing import Final

import psycopg

from commandside import fault_points
from infra.embedded.broker import EmbeddedBroker
from infra.embedded.errors import EngineError
from infra.embedded.processes import wait_until
from tests.chaos.rig import Rig
from tests.chaos.scenario import Inject

DIES_S: Final = 60.0
UP_S: Final = 60.0
STARTS_MAX: Final = 20


class Unreached(Exception):
    """The fault did not happen, and why."""


Do = Callable[[Rig, Inject, str, random.Random], None]


def kill(rig: Rig, inject: Inject, name: str, _random: random.Random) -> None:
    """SIGKILL a role, and start it again after `seconds`."""
    for _ in range(inject.times):
        with rig.fault(inject.role, name):
            rig.runs[inject.role].kill()
            rig.rest(inject.seconds)
            _again(rig, inject.role)
        rig.rest(inject.every)


def die(rig: Rig, inject: Inject, name: str, random_: random.Random) -> None:
    """Arm a role to kill itself at a named point, and start it again when it has."""
    if inject.point not in fault_points.ROLES[inject.role]:
        raise Unreached(f"{inject.role} has no point {inject.point!r}")
    with rig.fault(inject.role, name, inject.point):
        rig.runs[inject.role].kill()
        armed = rig.start(inject.role, f"{inject.point}:{random_.randint(1, 3)}")
        if not armed.died(DIES_S):
            raise Unreached(f"{inject.role} never came to {inject.point}: {armed.text}")
        rig.rest(inject.seconds)
        _again(rig, inject.role)


def stop(rig: Rig, inject: Inject, name: str, _random: random.Random) -> None:
    """SIGSTOP a role for `seconds`, and let it go on."""
    for _ in range(inject.times):
        with rig.fault(inject.role, name):
            rig.stop_process(rig.runs[inject.role].pid, inject.seconds)
        rig.rest(inject.every)
    if not rig.runs[inject.role].running:
        _again(rig, inject.role)


def terminate(rig: Rig, inject: Inject, name: str, _random: random.Random) -> None:
    """SIGTERM a role under load: it drains, and is started again."""
    for _ in range(inject.times):
        with rig.fault(inject.role, name):
            status = rig.runs[inject.role].stop()
            if status != 0:
                raise AssertionError(f"{inject.role} ended with {status} instead of draining")
            _again(rig, inject.role)
        rig.rest(inject.every)


def crash_postgres(rig: Rig, inject: Inject, name: str, _random: random.Random) -> None:
    """`pg_ctl stop -m immediate` and a start: recovery from the write-ahead log."""
    for _ in range(inject.times):
        with rig.fault("postgres", name, "immediate"):
            rig.postgres.stop_immediately()
            rig.rest(inject.seconds)
            rig.postgres.start()
        rig.rest(inject.every)


def kill_postgres(rig: Rig, inject: Inject, name: str, _random: random.Random) -> None:
    """Kill -9 of the postmaster; its children may live for seconds, so a start is tried again."""
    for _ in range(inject.times):
        with rig.fault("postgres", name, "kill -9"):
            rig.postgres.kill()
            rig.rest(inject.seconds)
            for left in reversed(range(STARTS_MAX)):
                try:
                    rig.postgres.start()
                    break
                except EngineError:
                    if not left:
                        raise
                    rig.rest(0.5)
        rig.rest(inject.every)


def terminate_backends(rig: Rig, inject: Inject, name: str, _random: random.Random) -> None:
    """End every connection of ours to Postgres, `times` over."""
    cut = 0
    with rig.fault("postgres", name, "pg_terminate_backend"):
        for _ in range(inject.times):
            with psycopg.connect(rig.postgres.conninfo, autocommit=True) as connection:
                cut += connection.execute(
                    "select count(pg_terminate_backend(pid)) from pg_stat_activity"
                    " where pid <> pg_backend_pid() and backend_type = 'client backend'"
                ).fetchall()[0][0]
            rig.rest(inject.every)
    if not cut:
        raise Unreached("there was no connection to end")


def kill_backend(rig: Rig, inject: Inject, name: str, random_: random.Random) -> None:
    """Kill -9 of one backend, at which Postgres restarts itself whole."""
    with rig.fault("postgres", name, "one backend"):
        with psycopg.connect(rig.postgres.conninfo, autocommit=True) as connection:
            found = connection.execute(
                "select pid from pg_stat_activity where pid <> pg_backend_pid()"
                " and backend_type = 'client backend'"
            ).fetchall()
        if not found:
            raise Unreached("there was no backend to kill")
        os.kill(random_.choice(found)[0], signal.SIGKILL)
        rig.rest(inject.seconds)


def wipe_broker(rig: Rig, inject: Inject, name: str, _random: random.Random) -> None:
    """Replace the broker by an empty one at the same address."""
    for _ in range(inject.times):
        with rig.fault("broker", name, "wiped"):
            if isinstance(rig.broker, EmbeddedBroker):
                rig.broker.recycle()
            else:
                rig.broker.kill()
                rig.broker.wipe()
                rig.broker.start()
        rig.rest(inject.every)


def kill_broker(rig: Rig, inject: Inject, name: str, _random: random.Random) -> None:
    """Kill -9 of Apache Kafka, which keeps its data."""
    if isinstance(rig.broker, EmbeddedBroker):
        raise Unreached("the embedded broker keeps nothing: wipe it")
    with rig.fault("broker", name, "kill -9"):
        rig.broker.kill()
        rig.rest(inject.seconds)
        rig.broker.start()


def stop_broker(rig: Rig, inject: Inject, name: str, _random: random.Random) -> None:
    """SIGSTOP of the broker: connections are up, and nobody answers."""
    with rig.fault("broker", name, "stopped"):
        rig.stop_process(rig.broker.pid, inject.seconds)


def stop_history(rig: Rig, inject: Inject, name: str, _random: random.Random) -> None:
    """ClickHouse ends, and comes back: no fire may notice."""
    with rig.fault("clickhouse", name):
        rig.history.kill()
        rig.rest(inject.seconds)
        rig.history.start()


def silence_targets(rig: Rig, inject: Inject, name: str, _random: random.Random) -> None:
    """Targets accept, and say nothing."""
    with rig.fault("target", name, "silent"):
        rig.targets.while_in("silent", lambda: rig.rest(inject.seconds))


def fail_targets(rig: Rig, inject: Inject, name: str, _random: random.Random) -> None:
    """Targets answer 503."""
    with rig.fault("target", name, "503"):
        rig.targets.while_in("failing", lambda: rig.rest(inject.seconds))


def nothing(_rig: Rig, _inject: Inject, _name: str, _random: random.Random) -> None:
    """Do nothing: fair weather, to which everything else is compared."""


DO: Final[dict[str, Do]] = {
    do.__name__: do
    for do in (
        crash_postgres,
        die,
        fail_targets,
        kill,
        kill_backend,
        kill_broker,
        kill_postgres,
        nothing,
        silence_targets,
        stop,
        stop_broker,
        stop_history,
        terminate,
        terminate_backends,
        wipe_broker,
    )
}
"""By the word of a scenario."""


def _again(rig: Rig, role: str) -> None:
    run = rig.start(role)
    if not wait_until(run.ready, UP_S):
        raise AssertionError(f"{role} did not come back: {run.text}")
