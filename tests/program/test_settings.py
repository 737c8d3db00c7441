import base64
from pathlib import Path

import msgspec
import pytest

from infra.settings import Settings, SettingsError, exported, load, replaced

MASTERS = ("master_key", "master_kms", "next_key", "next_kms")
"""One way to say what a master key is leaves no place for another."""
NOT_ANY = ("ports", "closed_ports", "hosts", "http2_hosts", "store", "endpoint", *MASTERS)
KEY = base64.b64encode(bytes(32)).decode()


def another(value: object) -> object:
    """Return an allowed value that is not this default."""
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case tuple():
            return ("10.1.0.0/16", "10.2.0.0/16")
        case _:
            return f"{value}x"


def test_exported_settings_are_read_back_as_they_were() -> None:
    settings = Settings()
    for section in msgspec.structs.fields(Settings):
        for field in msgspec.structs.fields(section.type):
            if field.name not in NOT_ANY:
                value = another(field.default)
                settings = replaced(settings, section.name, **{field.name: value})
    settings = replaced(settings, "targets", ports=(9_000, 9_001), closed_ports=(9_002, 1))
    settings = replaced(settings, "targets", hosts=("billing.corp", "*.svc.corp"))
    settings = replaced(settings, "payloads", store="s3://bucket/p", endpoint="http://minio:9000")
    settings = replaced(settings, "targets", http2_hosts=("api.example.com", "*.run.app"))
    assert load(environment=exported(settings)) == settings
    for names in ({"master_key": KEY, "next_kms": "alias/a"}, {"master_kms": "b", "next_key": KEY}):
        settings = replaced(Settings(), "keys", **names)
        assert load(environment=exported(settings)) == settings


def test_exported_settings_do_not_depend_on_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tocsin.toml").write_text("not toml at all", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert load(environment=exported(Settings())) == Settings()


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "tocsin.toml"
    file.write_text("[api]\nport = 1\nquery_port = 2\nops_port = 3\n", encoding="utf-8")
    environment = {"TOCSIN_API_QUERY_PORT": "20", "TOCSIN_API_OPS_PORT": "30"}
    api = load({"api": {"ops_port": 300}}, environment, file).api
    assert (api.port, api.query_port, api.ops_port) == (1, 20, 300)


def test_a_wrong_value_is_named_with_its_source_and_what_is_allowed() -> None:
    with pytest.raises(SettingsError) as error:
        load(environment={"TOCSIN_API_PORT": "70000"})
    assert "api.port = '70000' (from TOCSIN_API_PORT)" in str(error.value)
    assert "from 0 to 65535" in str(error.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [("hosts", "10.0.0.1"), ("hosts", "Billing.corp"), ("hosts", "a..b"), ("deny", "10.0.0.1/8")],
)
def test_a_rule_on_addresses_that_cannot_be_is_refused(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=f"targets.{name}"):
        load(environment={f"TOCSIN_TARGETS_{name.upper()}": value})


def test_a_variable_that_is_no_setting_is_refused() -> None:
    with pytest.raises(SettingsError, match="TOCSIN_API_PROT is not a setting"):
        load(environment={"TOCSIN_API_PROT": "1"})


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("TOCSIN_TARGETS_ALLOW", "10.0.0.0/8,10.0.0.0/40", "'10.0.0.0/40'"),
        ("TOCSIN_TARGETS_PORTS", "80", "from 1024 to 65535"),
        ("TOCSIN_FAULT_POINT", "after_lease:x", "NAME:HIT"),
        ("TOCSIN_UP_DEMO", "perhaps", "true or false"),
        ("TOCSIN_KEYS_MASTER_KEY", "aHVudGVyMg==", "32 bytes as base64"),
        ("TOCSIN_KEYS_NEXT_KEY", "hunter2", "32 bytes as base64"),
    ],
)
def test_what_no_type_can_say_is_refused_as_well(variable: str, value: str, says: str) -> None:
    with pytest.raises(SettingsError) as error:
        load(environment={variable: value})
    assert variable in str(error.value)
    assert says in str(error.value)
    assert "KEYS" not in variable or value not in str(error.value)


def test_a_master_key_is_in_one_place() -> None:
    places = {"TOCSIN_KEYS_MASTER_KEY": KEY, "TOCSIN_KEYS_MASTER_KMS": "alias/tocsin"}
    with pytest.raises(SettingsError, match=r"there is keys\.master_key already"):
        load(environment=places)
    assert not load(environment={"TOCSIN_KEYS_MASTER_KMS": "alias/tocsin"}).has_master_file
    assert KEY not in repr(load(environment={"TOCSIN_KEYS_MASTER_KEY": KEY}))


def test_the_least_distance_of_fires_is_the_operators() -> None:
    assert load({}, {}).schedules.min_interval_s == 60
    assert load({}, {"TOCSIN_SCHEDULES_MIN_INTERVAL_S": "1"}).schedules.min_interval_s == 1
    for wrong in ("0", "3601", "soon"):
        with pytest.raises(SettingsError, match=r"schedules\.min_interval_s"):
            load({}, {"TOCSIN_SCHEDULES_MIN_INTERVAL_S": wrong})
