"""Every seed, and everything that fuzzing has found, is run again."""

from collections.abc import Iterator

import pytest

from tests.fuzz.entries import ENTRIES, close
from tests.fuzz.seeds import seeds


@pytest.fixture(autouse=True, scope="module")
def desk() -> Iterator[None]:
    yield
    close()


@pytest.mark.parametrize("entry", ENTRIES)
def test_every_seed_holds(entry: str) -> None:
    given = seeds(entry)
    assert len(given) >= 30
    for seed in given:
        try:
            ENTRIES[entry](seed)
        except AssertionError as error:
            raise AssertionError(f"{seed!r}: {error}") from error
