"""Stretches hold exactly the instants that they were made of."""

from hypothesis import given
from hypothesis import strategies as st

from domain.stretch import count_after, instants, next_after, stretches

rising = st.lists(st.integers(0, 500), unique=True, max_size=40).map(sorted)


@given(rising, st.integers(-1, 501))
def test_stretches_are_their_instants(held: list[int], place: int) -> None:
    made = stretches(held)
    later = [instant for instant in held if instant > place]
    assert list(instants(made)) == held
    assert next_after(made, place) == (later[0] if later else None)
    assert count_after(made, place) == len(later)


def test_a_regular_schedule_is_one_stretch() -> None:
    assert len(stretches(range(0, 60_000_000, 60_000))) == 1
