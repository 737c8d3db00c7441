"""The workload that measures requests: that each client makes them, not how fast."""

import pytest

from bench import deliver, slow


def test_every_client_is_measured_in_the_same_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliver, "REQUESTS", dict.fromkeys(deliver.CLIENTS, 20))
    found = deliver.measure(4, 1)
    assert set(found["cpu_us_per_request"]) == {"tocsin", "aiohttp", "httpx"}
    assert all(us > 0 for us in found["cpu_us_per_request"].values())


def test_calls_that_hang_are_held_at_once_and_answered_in_the_end() -> None:
    found = slow.measure(30)
    assert found["answered"] == 30
    assert 0 < found["memory_mb"] < slow.LIMIT_MB
