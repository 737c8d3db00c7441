"""Small parts of `up`."""

import io
import os
import socket
import stat
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from infra.embedded.errors import EngineError
from infra.embedded.processes import start_ticks
from infra.lifecycle import Stop
from infra.listening import free_port, shown_host
from infra.settings import Settings, load, replaced
from infra.up import running
from infra.up.backoff import FIRST_US, MAX_US, STEADY_US, Backoff
from infra.up.console import Console
from infra.up.demo import fire_line
from infra.up.engines import HISTORY_KEY, Engines
from infra.up.exposition import merged
from infra.up.running import CLICKHOUSE, KAFKA, POSTGRES, NotRunning, Running, attached
from infra.up.supervisor import Supervisor


def here(**changes: int) -> Running:
    pid = os.getpid()
    ticks = start_ticks(pid) or 0
    pid, ticks = changes.get("pid", pid), changes.get("ticks", ticks)
    return Running(pid, ticks, "http://ops", "host=pg", "kafka:1", "http://ch")


def test_pauses_double_up_to_a_bound() -> None:
    backoff = Backoff()
    pauses = [backoff.pause_us(0) for _ in range(20)]
    assert pauses[:3] == [FIRST_US, 2 * FIRST_US, 4 * FIRST_US]
    assert pauses[-1] == MAX_US


def test_what_ran_long_enough_pauses_shortly_again() -> None:
    backoff = Backoff()
    for _ in range(5):
        backoff.pause_us(0)
    assert backoff.pause_us(STEADY_US) == FIRST_US


def test_a_family_of_several_processes_has_one_head() -> None:
    first = b'# HELP a says a\n# TYPE a counter\na{role="x"} 1\n# HELP b B\n# TYPE b gauge\nb 2\n'
    second = b'# HELP a says a\n# TYPE a counter\na{role="y"} 3\n'
    assert merged([first, b"", second]) == (
        b'# HELP a says a\n# TYPE a counter\na{role="x"} 1\na{role="y"} 3\n'
        b"# HELP b B\n# TYPE b gauge\nb 2\n"
    )


def test_a_chosen_port_is_free_and_a_taken_one_is_refused() -> None:
    with socket.create_server(("127.0.0.1", free_port("127.0.0.1", 0, "api.port"))) as holder:
        port = holder.getsockname()[1]
        with pytest.raises(EngineError, match=rf"port {port} .* is taken: set api.port"):
            free_port("127.0.0.1", port, "api.port")


def test_an_address_that_is_nobodys_here_is_named_with_its_setting() -> None:
    with pytest.raises(EngineError, match=r"192\.0\.2\.1 cannot be used.*api\.port"):
        free_port("192.0.2.1", 18_001, "api.port")


@pytest.mark.parametrize(
    ("host", "shown"),
    [("", "127.0.0.1"), ("::", "[::1]"), ("::1", "[::1]"), ("10.0.0.1", "10.0.0.1")],
)
def test_a_listener_on_all_addresses_is_shown_by_one_that_works(host: str, shown: str) -> None:
    assert shown_host(host) == shown


def test_commands_find_the_engines_of_a_running_up(tmp_path: Path) -> None:
    settings = replaced(Settings(), "data", dir=str(tmp_path))
    running.write(tmp_path, here())
    found = attached(settings, POSTGRES, KAFKA, CLICKHOUSE)
    assert found.postgres.url == "host=pg"
    assert found.kafka.bootstrap == "kafka:1"
    assert found.clickhouse.url == "http://ch"


def test_an_address_that_is_set_is_kept(tmp_path: Path) -> None:
    settings = replaced(Settings(), "data", dir=str(tmp_path))
    settings = replaced(settings, "postgres", url="host=mine")
    running.write(tmp_path, here())
    assert attached(settings, POSTGRES).postgres.url == "host=mine"


@pytest.mark.parametrize("changes", [{"pid": 1 << 30}, {"ticks": 1}])
def test_an_up_that_has_ended_is_not_taken_for_a_running_one(
    tmp_path: Path, changes: dict[str, int]
) -> None:
    settings = replaced(Settings(), "data", dir=str(tmp_path))
    running.write(tmp_path, here(**changes))
    with pytest.raises(NotRunning, match=r"postgres\.url, kafka\.bootstrap"):
        attached(settings, POSTGRES, KAFKA)


def test_what_is_needed_is_asked_for_and_nothing_else(tmp_path: Path) -> None:
    settings = replaced(Settings(), "data", dir=str(tmp_path))
    settings = replaced(settings, "postgres", url="host=mine")
    assert attached(settings, POSTGRES) == settings


def test_where_the_engines_are_is_for_the_owner_only(tmp_path: Path) -> None:
    running.write(tmp_path, here())
    assert stat.S_IMODE((tmp_path / running.FILE).stat().st_mode) == 0o600


def test_what_the_embedded_engines_hold_is_for_the_owner_only(tmp_path: Path) -> None:
    settings = replaced(Settings(), "data", dir=str(tmp_path / "data"))
    engines = Engines(replaced(settings, "api", port=0, ops_port=0), lambda _: None)
    password = (tmp_path / "data" / HISTORY_KEY).read_text()
    mode = stat.S_IMODE((tmp_path / "data" / HISTORY_KEY).stat().st_mode)
    assert (len(password), mode) == (64, 0o600)
    address = urlsplit(engines.settings.clickhouse.url)
    assert (address.username, address.password) == ("default", password)
    assert "/postgres/run" in engines.settings.postgres.url or "tocsin-" in (
        engines.settings.postgres.url
    )


def test_no_role_calls_the_listeners_of_its_own_up(tmp_path: Path) -> None:
    settings = replaced(Settings(), "data", dir=str(tmp_path))
    settings = replaced(settings, "api", port=0, ops_port=0)
    settings = replaced(settings, "targets", closed_ports=(9_000,))
    with Stop() as stop:
        supervisor = Supervisor(settings, stop, lambda _: None)
        with closing(supervisor.ops):
            own = {9_000, supervisor.ops.port}
            own |= set(supervisor.engines.ports())
            own |= {process.options.ops_port for process in supervisor.roles.processes}
            assert len(own) == 8
            for process in supervisor.roles.processes:
                told = load(environment=process.options.environment)
                assert set(told.targets.closed_ports) == own


def test_a_fire_shows_lateness_status_and_key() -> None:
    headers = {
        "Tocsin-Scheduled-For": "2026-03-14T09:00:00.000Z",
        "Idempotency-Key": "job-1",
        "Tocsin-Attempt": "1",
    }
    due = 1_773_478_800_000
    assert fire_line(due + 7, headers, 204) == (
        "fire  due 2026-03-14T09:00:00.000Z  late    7 ms  status 204  key job-1"
    )
    assert "attempt 2" in fire_line(due, headers | {"Tocsin-Attempt": "2"}, 204)


def test_a_call_that_is_no_fire_is_shown_as_such() -> None:
    assert "not from Tocsin" in fire_line(0, {}, 204)


def test_a_console_whose_reader_has_gone_is_silent() -> None:
    out = io.StringIO()
    console = Console(out)
    out.close()
    console.say("anybody?")
