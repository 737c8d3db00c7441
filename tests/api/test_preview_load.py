"""`POST /v1/preview` says what the tenant's jobs ask for, second by second, with the new one."""

from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from commandside.commands.load import READ_MAX, STEPS_MAX, Load, Loads, New
from commandside.demand import Demanded, Group, Limits
from domain.instant import DAY, SECOND, rfc3339
from domain.job import decide
from domain.job.state import JobState
from domain.schedule.schedule import Cron, Every, parse_every
from domain.slots import Slots, slots_of, spread_of
from infra.memory.demand import MemoryDemand
from tests.api.test_preview import DAILY, preview
from tests.api.world import JOB, World
from tests.contracts import jobs

NOW = 1_764_460_800_000
TENANT = b"t" * 16


def define(world: World, schedule: str, count: int = 1, **more: Any) -> None:
    for _ in range(count):
        body = {"schedule": schedule, "timezone": "UTC", "target": JOB["target"], "jitter_s": 0}
        world.define({"type": "recurring"} | body | more)


def test_the_worst_second_is_told_without_and_with_the_job(world: World) -> None:
    define(world, "0 12 * * *", 3)
    define(world, "0 13 * * *", 2)
    load = preview(world, schedule="0 12 * * *", timezone="UTC")["load"]
    assert load["worst_without"] == {"at": "2025-11-30T12:00:00.000Z", "fires": 3.0}
    assert load["worst_with"] == {"at": "2025-11-30T12:00:00.000Z", "fires": 4.0}
    assert (load["from"], load["to"]) == ("2025-11-30T00:00:00.000Z", "2025-12-01T00:00:00.000Z")
    assert (load["exact"], load["left_out"], load["spread"]) == (True, 0, "own")
    assert len(load["by_hour"]) == 24
    assert load["by_hour"][12] == {"at": "2025-11-30T12:00:00.000Z", "without": 3.0, "with": 4.0}
    assert load["average_per_s_without"] == round(5 / 86_400, 6)


def test_seconds_are_listed_where_they_are_asked_for(world: World) -> None:
    define(world, "0 12 * * *")
    load = preview(world, schedule="0 13 * * *", timezone="UTC", load="seconds")["load"]
    assert load["seconds"] == [
        {"at": "2025-11-30T12:00:00.000Z", "without": 1.0, "with": 1.0},
        {"at": "2025-11-30T13:00:00.000Z", "without": 0.0, "with": 1.0},
    ]
    assert "seconds" not in preview(world)["load"]
    assert preview(world, load="none")["load"] is None


def test_other_tenants_and_paused_jobs_do_not_count(world: World) -> None:
    body = JOB | {"schedule": "0 12 * * *", "timezone": "UTC", "jitter_s": 0}
    world.send("POST", "/v1/jobs", body, key=world.other_key)
    paused = world.define(body)
    world.send("POST", f"/v1/jobs/{paused['job_id']}/pause", {})
    assert preview(world)["load"]["worst_without"] is None


def test_a_job_that_is_defined_again_is_not_counted_twice(world: World) -> None:
    define(world, "0 12 * * *", key="noon")
    load = preview(world, schedule="0 13 * * *", timezone="UTC", key="noon", load="seconds")["load"]
    assert [(second["at"][11:16], second["with"]) for second in load["seconds"]] == [("13:00", 1.0)]


def test_a_job_without_a_name_is_spread_evenly(world: World) -> None:
    load = preview(world, schedule="0 12 * * *", timezone="UTC", jitter_s=9.999, load="seconds")[
        "load"
    ]
    assert [second["with"] for second in load["seconds"]] == [0.1] * 10


def test_one_time_jobs_count_where_they_are_due(world: World) -> None:
    once = {"type": "one_time", "run_at": "2025-11-30T06:00:00Z", "target": JOB["target"]}
    world.define(once)
    world.define(once | {"run_at": "2025-12-02T06:00:00Z"})
    load = preview(world)["load"]
    assert load["worst_without"] == {"at": "2025-11-30T06:00:00.000Z", "fires": 1.0}


def test_runs_that_a_job_may_still_have_are_its_last(world: World) -> None:
    define(world, "0 * * * *", max_runs=3)
    load = preview(world, max_runs=1, schedule="30 * * * *", load="seconds")["load"]
    assert sum(second["without"] for second in load["seconds"]) == 3
    assert sum(second["with"] for second in load["seconds"]) == 4


@pytest.mark.parametrize("load", ["all", 5, None])
def test_another_word_is_refused(world: World, load: object) -> None:
    found = world.send("POST", "/v1/preview", DAILY | {"load": load})
    assert found.status_code == 422
    assert found.json()["errors"][0]["pointer"] == "/load"


class _Given:
    """A demand that is what it was given."""

    def __init__(self, demanded: Demanded) -> None:
        self.demanded = demanded
        self.asked = 0

    def of_tenant(self, tenant_id: bytes, since: int, until: int) -> Demanded:
        self.asked += 1
        return self.demanded


def _job(number: int, schedule: Cron | Every, jitter_ms: int) -> JobState:
    import msgspec

    spec = msgspec.structs.replace(jobs.spec(schedule), jitter_ms=jitter_ms)
    new = decide.NewJob(number.to_bytes(16, "big"), TENANT, spec)
    decision = decide.define(new, None, decide.By(NOW))
    state = decision.slices[0].after  # type: ignore[union-attr]  # a new job can be defined
    assert isinstance(state, JobState)
    return state


def _every(text: str, anchor: str | None = None) -> Every:
    found = parse_every(text, anchor, "UTC", min_interval_s=1)
    assert isinstance(found, Every)
    return found


def _fires(job: JobState, since: int) -> Iterator[int]:
    """Every due instant of the day, one by one: the oracle."""
    slots = Slots(job.facts.job_id, job.facts.spec)
    nominal = slots.plan.next_after(since - 2 * 3_600_000)
    while nominal is not None and nominal < since + DAY:
        due = slots.due(nominal)
        if since <= due < since + DAY:
            yield due // SECOND
        nominal = slots.plan.next_after(nominal)


NOTHING = New(slots_of(jobs.spec(_every("P1Y", "2030-01-01T00:00:00Z"))), 0, spread_ms=0)


@pytest.mark.parametrize("seed", range(6))
def test_the_load_is_what_each_job_does_by_itself(seed: int) -> None:
    random = Random(seed)
    texts = ["PT1M", "PT90S", "PT1H", "PT7H", "PT30S", "PT24H"]
    anchors = [None, "2025-01-01T00:00:00.250Z", "2025-01-01T00:00:30Z"]
    schedules = [_every(random.choice(texts), random.choice(anchors)) for _ in range(8)]
    states = [
        _job(number, random.choice(schedules), random.choice((0, 700, 5_000, 3_600_000)))
        for number in range(40)
    ]
    since = NOW + random.randrange(DAY // SECOND) * SECOND
    expected = Counter(second for job in states for second in _fires(job, since))
    load = Loads(_Given(Demanded(states, [], [])), lambda: since).load(
        TENANT, NOTHING, seconds=True
    )
    assert load.worst_without is not None
    assert load.worst_without.fires == max(expected.values()), f"seed {seed}"
    assert sum(hour.without for hour in load.by_hour) == expected.total()
    shown = {second.at: second.without for second in load.seconds or []}
    assert len(shown) == min(5_000, len(expected))
    told = {rfc3339(second * SECOND): fires for second, fires in expected.items()}
    assert shown.items() <= told.items()
    assert load.exact


def test_many_jobs_are_expected_evenly_within_their_jitter() -> None:
    group = Group(_job(1, _every("P1D", "2025-01-01T12:00:00Z"), 9_999), 1_000)
    given = _Given(Demanded([], [group], [], left_out=7))
    loads = Loads(given, lambda: NOW)
    load = loads.load(TENANT, NOTHING, seconds=True)
    assert [second.without for second in load.seconds or []] == [100.0] * 10
    assert (load.exact, load.spread, load.left_out) == (False, "expected", 7)
    loads.load(TENANT, NOTHING, seconds=True)
    assert given.asked == 1, "what is costly to read is kept for some seconds"


def test_what_is_too_much_work_is_left_out_and_told() -> None:
    per_second = [
        Group(_job(number, _every("PT1S", f"2025-01-01T00:00:{number:02d}Z"), 0), 10 - number)
        for number in range(9)
    ]
    load = Loads(_Given(Demanded([], per_second, [])), lambda: NOW).load(
        TENANT, NOTHING, seconds=False
    )
    counted = STEPS_MAX // 86_400
    assert load.left_out == sum(10 - number for number in range(counted, 9))
    assert load.worst_without is not None
    assert load.worst_without.fires == sum(10 - number for number in range(counted))


def test_schedules_are_not_worked_out_without_end_to_be_left_out() -> None:
    per_second = [
        Group(_job(number, _every("PT1S", f"2025-01-01T00:00:{number:02d}Z"), 0), 100 - number)
        for number in range(40)
    ]
    daily = Group(_job(99, _every("P1D", "2025-01-01T12:00:00Z"), 0), 1)
    answers = []
    for given in ([*per_second[:10], daily], [*per_second, daily]):
        load = Loads(_Given(Demanded([], given, [])), lambda: NOW).load(
            TENANT, NOTHING, seconds=False
        )
        answers.append(load.left_out)
    counted, read = STEPS_MAX // 86_400, 11
    assert read == READ_MAX // 90_000, "slots of a day and of the hours around it"
    left_out = sum(100 - number for number in range(counted, 10))
    assert answers[0] == left_out, "what takes little fits beside what takes too much"
    left_out = sum(100 - number for number in range(counted, 40)) + 1
    assert answers[1] == left_out, "so much is left out that the rest is not looked at"


def test_the_bounds_of_the_memory_demand_are_the_ports(world: World) -> None:
    define(world, "0 12 * * *", 4)
    few = MemoryDemand(world.log, Limits(jobs=2))
    load: Load = Loads(few, lambda: NOW).load(TENANT, NOTHING, seconds=False)
    assert (load.spread, load.exact) == ("expected", False)
    assert load.worst_without is not None
    assert load.worst_without.fires == 4
    assert spread_of(b"x" * 16, jobs.spec(_every("P1D"))) == 0


def test_a_fixed_delay_is_told_as_what_follows_its_schedule_is(world: World) -> None:
    body = {"type": "recurring", "every": "PT1H", "from": "completion", "target": JOB["target"]}
    world.define(body)
    found = world.send("POST", "/v1/preview", DAILY)
    assert found.status_code == 200, found.text
    assert world.send("POST", "/v1/preview", body).status_code == 200
