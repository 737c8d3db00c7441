"""The arithmetic by which a run is judged."""

import pytest

from bench import figures
from bench.program import whole


def test_quantiles_are_values_that_occurred() -> None:
    found = figures.quantiles([float(n) for n in range(1000)])
    assert found == {"p50": 500, "p90": 900, "p99": 990, "p999": 999, "max": 999}


def test_quantiles_do_not_need_order() -> None:
    assert figures.quantiles([3.0, 1.0, 2.0])["p50"] == 2.0


def test_of_nothing_there_is_no_quantile() -> None:
    assert set(figures.quantiles([]).values()) == {None}


def test_what_comes_twice_is_a_duplicate_and_not_late() -> None:
    found = figures.report([b"a", b"b", b"a"], [1000, 1000, 1000], [1001.0, 1002.0, 9000.0], 2)
    assert (found["count"], found["distinct"], found["duplicates"]) == (3, 2, 1)
    assert found["lateness_ms"]["max"] == 2.0
    assert found["drain_s"] == 0.002


def test_what_did_not_come_is_lost() -> None:
    assert figures.report([b"a"], [1000], [1001.0], 3)["lost"] == 2


def test_without_an_expectation_nothing_is_lost() -> None:
    assert figures.report([b"a"], [1000], [1001.0])["lost"] is None


def test_a_duplicate_does_not_make_up_for_a_lost_one() -> None:
    found = figures.report([b"a", b"a"], [1000, 1000], [1001.0, 1001.5], 2)
    assert (found["lost"], found["duplicates"]) == (1, 1)


@pytest.mark.parametrize(("at_ms", "early"), [(995.0, 0), (994.9, 1), (1000.0, 0)])
def test_early_is_more_than_the_clocks_grain(at_ms: float, early: int) -> None:
    assert figures.report([b"a"], [1000], [at_ms])["early"] == early


def test_a_fire_without_a_due_instant_counts_but_is_not_late() -> None:
    found = figures.report([b"a"], [0], [5000.0], 1)
    assert (found["lost"], found["lateness_ms"]["max"], found["drain_s"]) == (0, None, None)


def test_nothing_at_all_is_a_report_too() -> None:
    found = figures.report([], [], [], 4)
    assert (found["lost"], found["duplicates"], found["fires_per_s"]) == (4, 0, None)


def test_the_rate_counts_from_the_first_due_instant() -> None:
    found = figures.report([b"a", b"b"], [1000, 1000], [1500.0, 2000.0], 2)
    assert (found["fires_per_s"], found["drain_s"]) == (2.0, 1.0)


def test_cpu_per_fire_is_in_microseconds() -> None:
    assert figures.per_fire({"api": 2.0}, 10_000) == {"api": 200.0}


@pytest.mark.parametrize("name", ["lost", "early", "duplicates"])
def test_a_run_is_whole_only_if_every_fire_came_once_and_in_time(name: str) -> None:
    good = {"lost": 0, "early": 0, "duplicates": 0}
    assert whole(good)
    assert not whole(good | {name: 1})
    assert not whole({"parts": [good, good | {name: 1}]})
