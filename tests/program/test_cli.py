import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from domain.tenant import parse_key
from infra.cli import main
from infra.cli.arguments import ROLES, VIEWS
from infra.embedded.postgres import EmbeddedPostgres
from infra.rebuild import VIEWS as REBUILT
from infra.settings import fields
from tests.program.started import ROOT

TIMEOUT_S = 60.0


class Done(NamedTuple):
    """What a command left behind."""

    status: int
    out: str
    err: str


Tocsin = Callable[..., Done]


@pytest.fixture
def tocsin(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Tocsin:
    """Run a command in this process, where nothing but these settings is set."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str, **environment: str) -> Done:
        with monkeypatch.context() as inside:
            for name in [name for name in os.environ if name.startswith("TOCSIN_")]:
                inside.delenv(name)
            for name, value in environment.items():
                inside.setenv(name, value)
            try:
                status = main(list(words))
            except SystemExit as leave:
                status = int(leave.code or 0)
        return Done(status, *capsys.readouterr())

    return run


@pytest.fixture(scope="module")
def settings_of(
    postgres: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """An installation of its own on the Postgres of the session."""
    folder = tmp_path_factory.mktemp("installation")
    return {"TOCSIN_POSTGRES_URL": postgres.conninfo, "TOCSIN_DATA_DIR": str(folder)}


def test_help_names_every_command() -> None:
    command = (sys.executable, "-m", "infra.cli", "--help")
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=True
    )
    text = done.stdout
    names = (*ROLES, "up", "migrate", "keys", "doctor", "bench")
    assert [name for name in names if f" {name} " not in text.replace("\n", " ")] == []


@pytest.mark.parametrize("role", ROLES)
def test_a_role_without_engines_says_what_to_set(tocsin: Tocsin, role: str, tmp_path: Path) -> None:
    done = tocsin(role, "--data", str(tmp_path))
    assert done.status == 1
    assert done.err.startswith("tocsin: no address is set for postgres.url")
    assert done.err.count("\n") == 1


def test_a_wrong_setting_is_one_line_and_exit_status_2(tocsin: Tocsin, tmp_path: Path) -> None:
    done = tocsin("api", "--data", str(tmp_path), TOCSIN_API_PORT="many")
    assert done.status == 2
    assert done.err.startswith("tocsin: api.port = 'many' (from TOCSIN_API_PORT)")
    assert done.err.count("\n") == 1


def test_a_settings_file_that_is_not_there_is_said(tocsin: Tocsin, tmp_path: Path) -> None:
    done = tocsin("doctor", "--config", str(tmp_path / "none.toml"))
    assert done.status == 2
    assert "does not exist" in done.err


def test_a_second_migrate_finds_nothing_to_do(tocsin: Tocsin, settings_of: dict[str, str]) -> None:
    first, second = (tocsin("migrate", **settings_of) for _ in range(2))
    assert (first.status, second.status) == (0, 0), first.err
    assert second.out == "nothing to do\n"


def test_a_key_is_printed_once_and_can_be_read(tocsin: Tocsin, settings_of: dict[str, str]) -> None:
    tocsin("migrate", **settings_of)
    done = tocsin("keys", "create", "--tenant", "acme", **settings_of)
    assert done.status == 0, done.err
    assert parse_key(done.out.strip()) is not None
    assert done.out.count("\n") == 1


def test_a_tenants_calls_are_signed_from_the_first_and_the_key_can_be_renewed(
    tocsin: Tocsin, settings_of: dict[str, str]
) -> None:
    tocsin("migrate", **settings_of)
    tocsin("keys", "create", "--tenant", "signer", **settings_of)
    (first,) = tocsin("signing", "list", "--tenant", "signer", **settings_of).out.splitlines()
    assert "  v1  whsec_" in first
    made = tocsin("signing", "rotate", "--tenant", "signer", "--overlap-h", "1", **settings_of)
    assert made.out.startswith("whsec_")
    new, old = tocsin("signing", "list", "--tenant", "signer", **settings_of).out.splitlines()
    assert made.out.strip() in new
    assert "  until 2" in old
    absent = tocsin("signing", "list", "--tenant", "nobody", **settings_of)
    assert (absent.status, "no tenant 'nobody'" in absent.err) == (1, True)


def test_a_key_is_listed_and_revoked_by_its_id(tocsin: Tocsin, settings_of: dict[str, str]) -> None:
    tocsin("migrate", **settings_of)
    made = parse_key(tocsin("keys", "create", "--tenant", "acme", **settings_of).out.strip())
    assert made is not None
    (line,) = [
        line
        for line in tocsin("keys", "list", **settings_of).out.splitlines()
        if line.startswith(made.kid)
    ]
    assert "  acme  " in line
    assert "  valid  " in line
    assert made.secret.hex() not in line
    assert tocsin("keys", "revoke", made.kid, **settings_of).status == 0
    after = tocsin("keys", "list", **settings_of).out
    assert any(line.startswith(made.kid) and "  revoked 2" in line for line in after.splitlines())


def test_a_key_that_is_not_there_cannot_be_revoked(
    tocsin: Tocsin, settings_of: dict[str, str]
) -> None:
    tocsin("migrate", **settings_of)
    done = tocsin("keys", "revoke", "0" * 16, **settings_of)
    assert done.status == 1
    assert "tocsin keys list" in done.err


@pytest.mark.parametrize("words", [("--data", "{}", "create"), ("create", "--data", "{}")])
def test_the_folder_can_be_named_before_and_after_the_action(
    tocsin: Tocsin, settings_of: dict[str, str], words: tuple[str, ...]
) -> None:
    tocsin("migrate", **settings_of)
    folder = settings_of["TOCSIN_DATA_DIR"]
    url = {"TOCSIN_POSTGRES_URL": settings_of["TOCSIN_POSTGRES_URL"]}
    done = tocsin("keys", *(word.format(folder) for word in words), "--tenant", "acme", **url)
    assert done.status == 0, done.err


def test_a_scope_that_does_not_exist_is_refused_with_those_that_do(
    tocsin: Tocsin,
    settings_of: dict[str, str],
) -> None:
    done = tocsin("keys", "create", "--tenant", "acme", "--scopes", "jobs:eat", **settings_of)
    assert done.status == 2
    assert "jobs:read" in done.err


def test_doctor_says_that_nothing_runs_and_what_would_be_started(
    tocsin: Tocsin, tmp_path: Path
) -> None:
    done = tocsin(
        "doctor", "--data", str(tmp_path / "new"), TOCSIN_API_PORT="0", TOCSIN_API_OPS_PORT="0"
    )
    assert done.status == 1, done.out
    assert "these are not set: postgres.url, kafka.bootstrap, clickhouse.url" in done.out
    assert "start `tocsin up`" in done.out
    assert "1 to put right" in done.out


def test_the_version_is_said_in_one_line(tocsin: Tocsin) -> None:
    done = tocsin("--version")
    assert done.status == 0
    assert re.fullmatch(r"tocsin \d+\.\d+\S* \(python .*, zones .*\)\n", done.out), done.out


def test_doctor_says_of_an_engine_that_is_away_what_to_do(tocsin: Tocsin, tmp_path: Path) -> None:
    done = tocsin(
        "doctor",
        "--data",
        str(tmp_path),
        TOCSIN_POSTGRES_URL="host=127.0.0.1 port=1 password=hush",
        TOCSIN_CLICKHOUSE_URL="http://someone:hush@127.0.0.1:1",
        TOCSIN_KAFKA_BOOTSTRAP="127.0.0.1:1",
    )
    assert done.status == 1
    for setting in ("postgres.url", "clickhouse.url", "kafka.bootstrap"):
        assert f"correct {setting}" in done.out
    assert "hush" not in done.out + done.err


def test_doctor_says_of_an_old_schema_that_it_has_to_be_migrated(
    tocsin: Tocsin, database: str, tmp_path: Path
) -> None:
    done = tocsin("doctor", "--data", str(tmp_path), TOCSIN_POSTGRES_URL=database)
    assert done.status == 1
    assert "tocsin migrate" in done.out


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://db.example/t?password=hush&user=me", "t?password=***&user=me"),
        ("postgresql://me:hush@db.example/t", "me:***@db.example/t"),
        ("host=db.example sslpassword=hush", "sslpassword=***"),
        ("password hush", "= '***'"),
    ],
)
def test_doctor_shows_no_password_however_it_is_given(tocsin: Tocsin, url: str, shown: str) -> None:
    done = tocsin("doctor", "--settings", TOCSIN_POSTGRES_URL=url)
    assert done.status == 0
    assert "hush" not in done.out + done.err
    assert shown in done.out


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("postgres.url", {"TOCSIN_POSTGRES_URL": "password hush"}),
        ("clickhouse.url", {"TOCSIN_CLICKHOUSE_URL": "http://me:hu/hush@127.0.0.1:1"}),
    ],
)
def test_an_address_that_cannot_be_read_is_one_line_without_its_password(
    tocsin: Tocsin, settings_of: dict[str, str], setting: str, told: dict[str, str]
) -> None:
    tocsin("migrate", **settings_of)
    tocsin("keys", "create", "--tenant", "acme", **settings_of)
    addresses = {"TOCSIN_CLICKHOUSE_URL": "http://127.0.0.1:1", "TOCSIN_API_OPS_PORT": "0"}
    done = tocsin("projector", **settings_of | addresses | told)
    assert done.status == 1
    assert f"{setting} cannot be read" in done.err
    assert done.err.count("\n") == 1
    assert "hush" not in done.err


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_can_be_built_anew_by_name(tocsin: Tocsin, view: str, tmp_path: Path) -> None:
    assert set(REBUILT) == set(VIEWS)
    done = tocsin("projector", "--rebuild", view, "--data", str(tmp_path))
    assert done.err.startswith("tocsin: no address is set for postgres.url")


def test_the_board_is_built_anew_from_the_command_line(
    tocsin: Tocsin, settings_of: dict[str, str]
) -> None:
    tocsin("migrate", **settings_of)
    away = {"TOCSIN_CLICKHOUSE_URL": "http://127.0.0.1:1"}
    done = tocsin("projector", "--rebuild", "job_board", **settings_of | away)
    assert (done.status, done.out) == (0, "job_board is built anew, up to position 0 of the log\n")


def test_doctor_lists_every_setting_without_secrets(tocsin: Tocsin) -> None:
    done = tocsin(
        "doctor", "--settings", TOCSIN_POSTGRES_URL="postgresql://me:hush@db.example:5432/t"
    )
    assert done.status == 0
    assert "hush" not in done.out
    assert "postgresql://me:***@db.example:5432/t" in done.out
    assert [f.variable for f in fields() if f.variable not in done.out] == []
