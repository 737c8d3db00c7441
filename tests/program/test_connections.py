"""The operator's file of connections: read, judged, and shown without its secrets."""

from pathlib import Path

import pytest

from infra import doctor
from infra.settings import Settings, SettingsError, replaced
from infra.targets.connections import load_connections

TENANT = "tn_" + "0f" * 16
GOOD = f"""
[kafka.main]
brokers = "kafka-1:9093"
tenants = ["*"]
prefixes = ["{{tenant}}."]
username = "tocsin"
password = "s3cr3t-k"
tls = true

[amqp.rabbit]
host = "rabbit"
tenants = ["{TENANT}"]
password = "s3cr3t-a"

[sqs.eu]
region = "eu-west-1"
tenants = ["{TENANT}"]
access_key_id = "AK"
secret_access_key = "s3cr3t-s"
"""


def told(folder: Path, text: str, mode: int = 0o600) -> Settings:
    file = folder / "connections.toml"
    file.write_text(text, encoding="utf-8")
    file.chmod(mode)
    return replaced(Settings(), "targets", connections_file=str(file))


def test_without_a_file_there_are_no_connections() -> None:
    assert load_connections(Settings()).all() == []


def test_grants_say_who_may_send_where(tmp_path: Path) -> None:
    grants = load_connections(told(tmp_path, GOOD)).grants("tocsin")
    tenant, other = bytes([0x0F]) * 16, bytes(16)
    kafka, rabbit = grants["kafka", "main"], grants["amqp", "rabbit"]
    assert kafka.opens(tenant, f"{TENANT}.orders")
    assert not kafka.opens(other, f"{TENANT}.orders")
    assert not kafka.opens(tenant, "orders")
    assert rabbit.opens(tenant, "anything")
    assert not rabbit.admits(other)


def test_no_tenant_is_given_our_own_topics(tmp_path: Path) -> None:
    text = '[kafka.main]\nbrokers = "k:9092"\ntenants = ["*"]\n'
    grant = load_connections(told(tmp_path, text)).grants("tocsin")["kafka", "main"]
    assert grant.opens(bytes(16), "orders")
    assert not grant.opens(bytes(16), "tocsin.due.standard.now")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("kafka = 1", "kafka"),
        ('[kafka.main]\nbrokers = "k"', "tenants"),
        ('[kafka.main]\nbrokers = "k"\ntenants = []', "tenants"),
        ('[kafka.main]\nbrokers = "k"\ntenants = ["acme"]', "'acme'"),
        ('[kafka.main]\nbrokers = "k"\ntenants = ["*"]\nprefixes = [""]', "prefixes"),
        ('[kafka.main]\nbrokers = "k"\ntenants = ["*"]\ntopics = ["a"]', "topics"),
        ('[kafka.Main]\nbrokers = "k"\ntenants = ["*"]', "Main"),
        ('[kafka.main]\nbrokers = "k"\ntenants = ["*"]\nmechanism = "GSSAPI"', "mechanism"),
        ('[nats.main]\ntenants = ["*"]', "nats"),
        ("[kafka", "cannot be read"),
    ],
)
def test_a_wrong_file_is_refused_with_its_reason(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(SettingsError, match=says) as error:
        load_connections(told(tmp_path, text))
    assert "connections.toml" in str(error.value)


def test_a_file_that_is_not_there_is_refused() -> None:
    settings = replaced(Settings(), "targets", connections_file="/nowhere/connections.toml")
    with pytest.raises(SettingsError, match="/nowhere"):
        load_connections(settings)


def test_a_file_with_secrets_is_its_owners_alone(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="chmod 600"):
        load_connections(told(tmp_path, GOOD, 0o640))
    load_connections(told(tmp_path, '[kafka.a]\nbrokers = "k"\ntenants = ["*"]', 0o644))


def test_the_doctor_shows_connections_without_their_secrets(tmp_path: Path) -> None:
    settings = replaced(told(tmp_path, GOOD), "data", dir=str(tmp_path / "data"))
    found = [finding for finding in doctor.findings(settings) if finding.about == "targets"]
    text = "\n".join(finding.text for finding in found)
    assert "kafka connection 'main' to kafka-1:9093, for every tenant: names that begin" in text
    assert "amqp connection 'rabbit' to rabbit:5672, for 1 tenant(s): every name" in text
    assert "sqs connection 'eu' to eu-west-1" in text
    assert "s3cr3t" not in repr(found)
    assert all(finding.how != doctor.WRONG for finding in found)


def test_the_doctor_says_where_the_library_cannot_speak_http2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "knows_http2", lambda: False)
    settings = replaced(Settings(), "data", dir=str(tmp_path / "data"))
    settings = replaced(settings, "targets", http2_hosts=("api.example.com",))
    (found,) = [f for f in doctor.findings(settings) if "HTTP/2" in f.text]
    assert found.how == doctor.WRONG
    assert "api.example.com" in found.text


def test_the_doctor_shows_every_rule_on_addresses(tmp_path: Path) -> None:
    settings = replaced(Settings(), "data", dir=str(tmp_path / "data"))
    settings = replaced(
        settings,
        "targets",
        allow=("10.1.0.0/16",),
        ports=(9_000,),
        closed_ports=(5_432,),
        hosts=("billing.corp", "*.svc.corp"),
        deny=("93.184.216.0/24",),
        http2_hosts=("api.example.com",),
    )
    found = {f.text: f.how for f in doctor.findings(settings) if f.about == "targets"}
    wanted = {
        "private addresses that every tenant may call: 10.1.0.0/16": doctor.NOTE,
        "names that may lead into private networks: billing.corp, *.svc.corp": doctor.NOTE,
        "names that are offered HTTP/2: api.example.com": doctor.OK,
        "addresses that nobody may call: 93.184.216.0/24": doctor.OK,
        "ports of public addresses open beside 80, 443, 8080, 8443: 9000": doctor.NOTE,
        "ports closed on addresses that are not public: 5432": doctor.OK,
    }
    assert {text: found[text] for text in wanted} == wanted
