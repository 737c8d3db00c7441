"""Load is sent as the contract writes jobs."""

import json

from bench.load import hourly, instant, one_time


def test_instants_are_in_utc_with_milliseconds() -> None:
    assert instant(1_767_225_600_007) == "2026-01-01T00:00:00.007Z"


def test_a_job_carries_its_id_and_its_due_instant_to_the_sink() -> None:
    job = json.loads(one_time("http://127.0.0.1:1", "j7", 1_767_225_600_007))
    assert job["run_at"] == "2026-01-01T00:00:00.007Z"
    assert job["target"]["url"] == "http://127.0.0.1:1/fire?id=j7&due=1767225600007"


def test_a_recurring_job_names_its_zone() -> None:
    job = json.loads(hourly("http://127.0.0.1:1", 61))
    assert (job["schedule"], job["timezone"]) == ("1 */1 * * *", "America/New_York")
