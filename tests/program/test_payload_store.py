"""The settings of the store of large payloads, and what the doctor says of it."""

from pathlib import Path
from typing import Any

import pytest

from infra import doctor
from infra.objects.check import machines_at
from infra.postgres.connection import connect
from infra.settings import Settings, SettingsError, load, replaced


def told(**values: Any) -> Settings:
    return load({"payloads": values}, {})


def found(settings: Settings) -> list[doctor.Finding]:
    return [finding for finding in doctor.findings(settings) if finding.about == "payloads"]


def test_without_a_store_it_is_a_folder_of_the_data(tmp_path: Path) -> None:
    settings = replaced(Settings(), "data", dir=str(tmp_path / "of mine"))
    assert settings.payload_store == f"file://{tmp_path}/of%20mine/payloads"
    assert Settings().payload_store.startswith("file:///")


@pytest.mark.parametrize(
    "values",
    [
        {"store": "file:///srv/payloads"},
        {"store": "s3://bucket/some/prefix"},
        {"store": "s3://bucket", "endpoint": "http://minio:9000"},
        {"store": "gs://bucket"},
        {"store": "abfss://container@account.dfs.core.windows.net/prefix"},
    ],
)
def test_stores_that_may_be_set(values: dict[str, str]) -> None:
    assert told(**values).payload_store == values["store"]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"store": "/srv/payloads"}, "payloads.store .*begins with one of file, s3"),
        ({"store": "ftp://host/x"}, "payloads.store .*begins with one of file, s3"),
        ({"store": "memory:///"}, "payloads.store .*begins with one of file, s3"),
        ({"store": "file://srv/payloads"}, "payloads.store .*absolute path"),
        ({"store": "s3://"}, "payloads.store .*name of a bucket"),
        ({"endpoint": "http://minio:9000"}, "payloads.endpoint .*only with"),
        ({"store": "gs://b", "endpoint": "http://m"}, "payloads.endpoint .*only with"),
        ({"store": "s3://b", "endpoint": "minio:9000"}, "payloads.endpoint .*http://"),
        ({"inline_max_bytes": 2_000_000}, "payloads.inline_max_bytes .*0 to 1048576"),
    ],
)
def test_stores_that_may_not_be_set_are_named_with_what_is_right(
    values: dict[str, Any], said: str
) -> None:
    with pytest.raises(SettingsError, match=said):
        told(**values)


def test_the_doctor_writes_reads_and_deletes(tmp_path: Path) -> None:
    store = tmp_path / "payloads"
    (first,) = found(told(store=store.as_uri()))
    assert (first.how, "does not exist yet" in first.text) == (doctor.OK, True)
    store.mkdir()
    (tried,) = found(told(store=store.as_uri()))
    assert (tried.how, tried.text) == (
        doctor.OK,
        f"{store.as_uri()}: written, read and deleted",
    )
    # All that is left is the mark by which the store is known.
    assert [path.name for path in store.rglob("*") if path.is_file()] == ["tocsin-payloads"]


def test_the_doctor_says_of_a_store_that_cannot_be_used_what_to_do(tmp_path: Path) -> None:
    store = tmp_path / "payloads"
    store.write_text("a file")
    (one,) = found(told(store=store.as_uri()))
    assert one.how == doctor.WRONG
    assert "payloads.store" in one.text
    assert "correct payloads.store" in one.remedy


def test_the_doctor_warns_of_a_folder_where_roles_have_their_own_engines(
    log_database: str, tmp_path: Path
) -> None:
    settings = replaced(Settings(), "data", dir=str(tmp_path))
    settings = replaced(settings, "postgres", url=log_database)
    *_, warned = found(settings)
    assert warned.how == doctor.NOTE
    assert "set payloads.store to a bucket" in warned.remedy
    said = replaced(settings, "payloads", store=(tmp_path / "shared").as_uri())
    assert all(finding.how == doctor.OK for finding in found(said))


def test_the_doctor_finds_a_folder_wrong_where_several_machines_are_connected(
    log_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert machines_at(log_database) == 0
    with connect(log_database, name="api"), connect(log_database, name="dispatcher"):
        assert machines_at(log_database) == 1
    monkeypatch.setattr("infra.doctor.machines_at", lambda _: 2)
    settings = replaced(Settings(), "data", dir=str(tmp_path))
    *_, warned = found(replaced(settings, "postgres", url=log_database))
    assert warned.how == doctor.WRONG
    assert "2 machines" in warned.text
