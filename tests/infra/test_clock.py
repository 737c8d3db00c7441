"""The estimate of the database clock."""

from infra.clock import DatabaseClock


class Mono:
    """A monotonic clock that tests move."""

    def __init__(self) -> None:
        self.us = 1_000_000

    def __call__(self) -> int:
        return self.us


def heard(clock: DatabaseClock, mono: Mono, at: int, *, trip_ms: int = 2) -> None:
    clock.heard(at, mono.us - trip_ms * 1_000, mono.us)


def test_the_estimate_is_the_answer_and_half_its_trip_carried_on_by_the_monotonic_clock() -> None:
    mono = Mono()
    clock = DatabaseClock(mono)
    heard(clock, mono, 50_000, trip_ms=20)
    mono.us += 300_000
    assert clock.now() == 50_310


def test_a_clock_that_was_never_told_is_not_trusted() -> None:
    assert not DatabaseClock(Mono()).trusted


def test_a_slow_answer_changes_nothing_while_a_good_one_is_fresh() -> None:
    mono = Mono()
    clock = DatabaseClock(mono)
    heard(clock, mono, 50_000)
    heard(clock, mono, 90_000, trip_ms=400)
    assert clock.now() == 50_001
    mono.us += 11_000_000
    heard(clock, mono, 61_000, trip_ms=400)
    assert clock.now() == 61_200
    assert clock.trusted


def test_after_a_jump_nothing_is_trusted_until_two_answers_agree() -> None:
    """CLK-01: nobody decides by a clock that has jumped, and a good one is believed at once."""
    mono = Mono()
    clock = DatabaseClock(mono)
    trusted = []
    for at in (50_000, 81_000, 82_000):
        heard(clock, mono, at)
        trusted.append(clock.trusted)
        mono.us += 1_000_000
    assert trusted == [True, False, True]
    assert clock.now() == 83_001
