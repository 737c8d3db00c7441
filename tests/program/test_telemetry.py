import ast
import io
import json
import re
from collections.abc import Iterator

import httpx
import pytest

from infra.ops import OpsError, OpsServer
from infra.telemetry import TABLE, VIEWS_MAX, Telemetry
from tests.architecture.project import modules, tree

METHODS = {"alarm", "count", "gauge", "observe"}
ROLES_OWN = {"_count"}
"""Short for `telemetry.count` in roles; adapters mean other things by it."""
NAME = re.compile(r"[a-z]+(_[a-z]+)*")

SET_HERE = {
    "names_unlisted",
    "process_cpu_ms",
    "process_resident_bytes",
    "projection_lag_ms",
    "projection_parked_streams",
}
"""Figures that have a method, or that the process takes of itself."""


def used_names() -> Iterator[tuple[str, str]]:
    """Yield where and which literal name is counted, observed, set or alarmed."""
    for path in modules("commandside", "projections", "queryside", "infra"):
        methods = METHODS | (ROLES_OWN if path.parts[0] == "commandside" else set())
        for node in ast.walk(tree(path)):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            called = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            first = node.args[0]
            chosen = [first.body, first.orelse] if isinstance(first, ast.IfExp) else [first]
            words = [n.value for n in chosen if isinstance(n, ast.Constant)]
            for word in words if called in methods else ():
                if isinstance(word, str) and NAME.fullmatch(word):
                    yield str(path), word


def text_of(telemetry: Telemetry) -> str:
    return telemetry.exposition().decode()


def get(address: str) -> tuple[int, str]:
    answer = httpx.get(address, timeout=5)
    return answer.status_code, answer.text


def serving(readiness: dict[str, object] | Exception) -> OpsServer:
    def shown() -> dict[str, object]:
        if isinstance(readiness, Exception):
            raise readiness
        return readiness

    server = OpsServer("127.0.0.1", 0, Telemetry("tests", io.StringIO()), shown)
    server.start()
    return server


def test_every_name_that_is_counted_is_in_the_table() -> None:
    listed = {line.name for line in TABLE}
    assert {(path, name) for path, name in used_names() if name not in listed} == set()


def test_every_name_in_the_table_is_counted_somewhere() -> None:
    used = {name for _, name in used_names()} | SET_HERE
    assert {line.name for line in TABLE} - used == set()


def test_no_name_is_listed_twice() -> None:
    assert len({line.name for line in TABLE}) == len(TABLE)


def test_counters_add_up() -> None:
    telemetry = Telemetry("dispatcher", io.StringIO())
    telemetry.count("calls", 3)
    telemetry.count("calls")
    assert 'tocsin_calls_total{role="dispatcher"} 4.0' in text_of(telemetry)


def test_a_value_on_a_bound_falls_into_the_bucket_of_that_bound() -> None:
    telemetry = Telemetry("dispatcher", io.StringIO())
    telemetry.observe("lateness_ms", [5, 6, 10_000_000])
    text = text_of(telemetry)
    assert 'tocsin_lateness_ms_bucket{le="5",role="dispatcher"} 1.0' in text
    assert 'tocsin_lateness_ms_bucket{le="10",role="dispatcher"} 2.0' in text
    assert 'tocsin_lateness_ms_count{role="dispatcher"} 3.0' in text
    assert 'tocsin_lateness_ms_sum{role="dispatcher"} 1.0000011e+07' in text


def test_a_name_outside_the_table_is_counted_as_such_and_said_once() -> None:
    lines = io.StringIO()
    telemetry = Telemetry("dispatcher", lines)
    telemetry.count("sandwiches")
    telemetry.count("sandwiches")
    assert telemetry.figures("names_unlisted") == {"": 2}
    assert lines.getvalue().count("sandwiches") == 1


def test_an_alarm_is_counted_each_time_and_said_once_in_a_second() -> None:
    lines = io.StringIO()
    telemetry = Telemetry("dispatcher", lines)
    for _ in range(100):
        telemetry.alarm("leases_given_up", "a\nb")
    assert telemetry.figures("leases_given_up") == {"": 100}
    assert lines.getvalue() == "dispatcher: alarm leases_given_up: 'a\\nb'\n"


def test_views_share_one_label_once_there_are_too_many() -> None:
    telemetry = Telemetry("projector", io.StringIO())
    for number in range(VIEWS_MAX + 5):
        telemetry.lag(f"view{number}", number)
    figures = telemetry.figures("projection_lag_ms")
    assert len(figures) == VIEWS_MAX + 1
    assert figures["other"] == VIEWS_MAX + 4


def test_a_ready_process_answers_200_with_its_versions() -> None:
    server = serving({"ready": True, "role": "api"})
    status, body = get(f"{server.address}/readyz")
    server.close()
    assert status == 200
    assert json.loads(body)["role"] == "api"
    assert json.loads(body)["versions"]["zones"]


def test_a_process_that_is_not_ready_answers_503_and_is_alive() -> None:
    server = serving({"ready": False, "because": "no Postgres"})
    ready, alive = get(f"{server.address}/readyz"), get(f"{server.address}/healthz")
    server.close()
    assert ready[0] == 503
    assert json.loads(ready[1])["because"] == "no Postgres"
    assert alive[0] == 200


def test_a_readiness_that_fails_is_not_ready() -> None:
    server = serving(ValueError("broken"))
    status, body = get(f"{server.address}/readyz")
    server.close()
    assert (status, json.loads(body)["because"]) == (503, "ValueError: broken")


def test_readiness_shows_how_far_views_are_behind() -> None:
    telemetry = Telemetry("projector", io.StringIO())
    telemetry.lag("run_history", 7)
    server = OpsServer("127.0.0.1", 0, telemetry, lambda: {"ready": True})
    server.start()
    _, body = get(f"{server.address}/readyz")
    server.close()
    assert json.loads(body)["lag_ms"] == {"run_history": 7}


def test_metrics_are_shown_and_other_paths_are_not() -> None:
    server = serving({"ready": True})
    shown, missing = get(f"{server.address}/metrics"), get(f"{server.address}/jobs")
    server.close()
    assert "tocsin_build_info" in shown[1]
    assert missing[0] == 404


def test_a_taken_ops_port_is_named_with_its_setting() -> None:
    server = serving({"ready": True})
    telemetry = Telemetry("tests", io.StringIO())
    with pytest.raises(OpsError, match=rf"port {server.port} .* api\.ops_port"):
        OpsServer("127.0.0.1", server.port, telemetry, dict)
    server.close()
