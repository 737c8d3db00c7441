"""The supervisor with real engines; its roles are stubs that only say that they are ready."""

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from infra.cli import main
from infra.embedded.processes import wait_until
from infra.up.supervisor import DRAIN_TIMEOUT_S, KEY_FILE
from tests.program.started import START_S, Up, all_gone, kill

QUIET = ("--port", "0", "--no-demo")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One data folder, so that only the first test pays for making engines' files."""
    return tmp_path_factory.mktemp("up")


@pytest.fixture(scope="module")
def kept(folder: Path) -> Iterator[Up]:
    """One `up`, started when the first test needs it, ended after the last."""
    kept = Up(folder, *QUIET)
    yield kept
    kept.close()


@pytest.fixture
def up(kept: Up) -> Up:
    """A running `up` that is ready; a test may end it in any way."""
    if not kept.running:
        kept.start()
    assert wait_until(lambda: bool(kept.readiness()["ready"]), START_S)
    return kept


def test_the_ready_file_says_where_everything_is(up: Up) -> None:
    ready = up.ready
    assert ready["api"] == ready["query"]
    assert ready["api"].startswith("http://127.0.0.1:")
    assert ready["api_key"].startswith("sk_")
    roles = {"up", "api", "scheduler", "dispatcher", "projector", "postgres", "broker", "history"}
    assert set(ready["pids"]) == roles
    assert all(ready["pids"].values())
    assert {"tocsin", "postgres", "broker", "history", "zones"} <= set(ready["versions"])
    assert up.ready_file.stat().st_mode & 0o077 == 0


def test_readiness_names_every_part_and_every_engine(up: Up) -> None:
    shown = up.readiness()
    assert shown["ready"] is True
    assert set(shown["parts"]) == {"api", "scheduler", "dispatcher", "projector"}
    assert shown["engines"] == {"postgres": True, "broker": True, "history": True}


def test_the_history_is_not_for_other_users_of_the_machine(up: Up) -> None:
    told = urlsplit(up.ready["clickhouse"])
    address = f"http://{told.hostname}:{told.port}/?query=select+1"
    assert httpx.get(address, timeout=5).status_code == 403
    assert told.password
    assert httpx.get(address, auth=("default", told.password), timeout=5).text == "1\n"


def test_the_figures_of_all_roles_are_one_valid_exposition(up: Up) -> None:
    text = httpx.get(f"{up.ready['ops']}/metrics", timeout=5).text
    families = list(text_string_to_metric_families(text))
    names = [family.name for family in families]
    assert len(set(names)) == len(names)
    calls = next(family for family in families if family.name == "tocsin_calls")
    roles = [sample.labels["role"] for sample in calls.samples]
    assert roles == ["up", "api", "scheduler", "dispatcher", "projector"]


def test_doctor_finds_nothing_wrong_with_a_running_up(
    up: Up, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(up.folder)
    assert main(["doctor", "--data", str(up.folder / "data")]) == 0, capsys.readouterr().out
    out = capsys.readouterr().out
    assert f"process {up.pids['up']}" in out
    for part in ("postgres", "kafka", "clickhouse", "api", "scheduler", "dispatcher", "projector"):
        assert f"ok    {part}" in out


def test_a_second_up_on_the_same_folder_is_refused_and_told_who_has_it(up: Up) -> None:
    # Another place for its ready file: this one's stays as it is.
    second = Up(up.folder, *QUIET)
    second.out, second.ready_file = up.folder / "second.txt", up.folder / "second.json"
    second.begin()
    assert second.ended() == 1
    assert f"in use by process {up.pids['up']}" in second.text
    assert "Traceback" not in second.text
    assert up.readiness()["ready"] is True


def test_a_role_that_was_killed_is_started_again_and_it_is_said(up: Up) -> None:
    before = up.pids
    kill(before["dispatcher"])
    assert up.says("dispatcher was ended by SIGKILL")
    assert wait_until(lambda: up.pids["dispatcher"] not in {0, before["dispatcher"]}, START_S)
    assert {n for n, pid in up.pids.items() if pid != before[n]} == {"dispatcher"}
    assert wait_until(lambda: bool(up.readiness()["ready"]), START_S)


@pytest.mark.parametrize("engine", ["broker", "postgres", "history"])
def test_an_engine_that_was_killed_is_started_again_at_the_same_address(
    up: Up, engine: str
) -> None:
    before = up.ready
    kill(before["pids"][engine])
    assert wait_until(lambda: up.pids[engine] not in {0, before["pids"][engine]}, START_S), up.text
    assert up.says(f"{engine} runs again")
    assert [up.ready[name] for name in ("postgres", "kafka", "clickhouse")] == [
        before[name] for name in ("postgres", "kafka", "clickhouse")
    ]


def test_sigterm_ends_every_process_and_takes_the_ready_file_away(up: Up) -> None:
    pids = up.pids
    up.signal(signal.SIGTERM)
    assert up.ended() == 0, up.text
    assert all_gone(pids)
    assert not up.ready_file.exists()
    assert "Traceback" not in up.text


def test_ctrl_c_is_an_end_like_any_other(up: Up) -> None:
    pids = up.pids
    up.signal(signal.SIGINT)
    assert up.ended() == 0, up.text
    assert all_gone(pids)


def test_a_second_signal_hurries_a_role_that_does_not_end(up: Up) -> None:
    pids = up.pids
    (up.folder / "deaf").touch()
    said = up.text.count("tocsin: stopping")
    up.signal(signal.SIGINT)
    # Its own answer, not that to an earlier test: signals that wait together become one.
    assert wait_until(lambda: up.text.count("tocsin: stopping") > said, START_S)
    up.signal(signal.SIGINT)
    # Within a bound that is shorter than the patience with a role that drains.
    assert up.ended(DRAIN_TIMEOUT_S - 10.0) == 0, up.text
    (up.folder / "deaf").unlink()
    assert "was killed before it had drained" in up.text
    assert all_gone(pids)


def test_when_up_alone_is_killed_nothing_is_left(up: Up) -> None:
    pids = up.pids
    kill(pids["up"])
    up.ended()
    assert all_gone(pids)


def test_after_the_whole_tree_was_killed_the_next_start_goes_on(up: Up) -> None:
    pids, key = up.pids, up.ready["api_key"]
    for pid in pids.values():
        os.kill(pid, signal.SIGSTOP)  # so that none of them notices the others' end
    for pid in pids.values():
        kill(pid)
    up.ended()
    up.start()
    assert up.ready["api_key"] == key
    assert up.readiness()["ready"] is True
    assert set(pids.values()).isdisjoint(up.pids.values())


def test_a_key_that_the_database_does_not_know_is_made_anew(up: Up) -> None:
    path = up.folder / "data" / KEY_FILE
    up.close()
    path.write_text("sk_live_0000000000000000_00_00000000", encoding="ascii")
    up.start()
    assert up.ready["api_key"] != "sk_live_0000000000000000_00_00000000"
    assert path.read_text(encoding="ascii").strip() == up.ready["api_key"]


def test_an_engine_that_has_an_address_is_not_started(database: str, tmp_path: Path) -> None:
    up = Up(tmp_path, *QUIET)
    with up.environment_of(TOCSIN_POSTGRES_URL=database):
        up.start()
    ready = up.ready
    up.close()
    assert ready["postgres"] == database
    assert "postgres" not in ready["pids"]
    assert not (tmp_path / "data" / "postgres").exists()


@pytest.mark.parametrize(
    ("words", "setting"),
    [(("--port",), "api.port"), (("--port", "0", "--ops-port"), "api.ops_port")],
)
def test_a_taken_port_is_one_line_that_names_it_and_its_setting(
    tmp_path: Path, words: tuple[str, ...], setting: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        up = Up(tmp_path, "--no-demo", *words, str(port)).begin()
        assert up.ended() == 1
    errors = [line for line in up.text.splitlines() if line.startswith("tocsin: port")]
    assert errors == [
        f"tocsin: port {port} on 127.0.0.1 is taken: set {setting} to another, or 0 for any"
    ]
    assert "Traceback" not in up.text


def test_an_armed_crash_point_is_for_the_first_process_of_its_role(up: Up) -> None:
    up.close()
    armed = {"TOCSIN_FAULT_POINT": "after_lease", "TOCSIN_FAULT_ROLE": "dispatcher"}
    with up.environment_of(**armed):
        up.start()
    parts = up.readiness()["parts"]
    assert {name: part["fault"] for name, part in parts.items() if part["fault"]} == {
        "dispatcher": "after_lease"
    }
    kill(up.pids["dispatcher"])
    assert wait_until(lambda: up.readiness()["parts"]["dispatcher"].get("fault") == "", START_S)
