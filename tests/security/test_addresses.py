"""Our own engines are not called by jobs, whatever the operator opened."""

import pytest

from domain.target import HttpTarget, address_allowed, address_rules, parse_http_target

ENGINE = 18_123
RULES = address_rules(("127.0.0.0/8", "10.0.0.0/8"), (), (ENGINE, 8080))


@pytest.mark.parametrize("address", ["127.0.0.1", "127.9.9.9", "10.1.2.3"])
def test_a_closed_port_is_closed_in_an_opened_range(address: str) -> None:
    assert not address_allowed(address, ENGINE, RULES)
    assert address_allowed(address, ENGINE + 1, RULES)


def test_a_port_of_a_public_address_is_somebody_elses() -> None:
    assert address_allowed("93.184.216.34", 8080, RULES)


def test_a_job_that_would_call_an_engine_is_refused_at_its_definition() -> None:
    def defined(port: int) -> object:
        return parse_http_target(f"http://127.0.0.1:{port}/?query=x", "POST", {}, RULES)

    assert isinstance(defined(ENGINE + 1), HttpTarget)
    assert "not open" in str(defined(ENGINE))


HOSTS = address_rules(hosts=("billing.corp", "*.svc.corp", "intranet"), closed_ports=(ENGINE,))


def at(url: str) -> object:
    return parse_http_target(url, "POST", {}, HOSTS)


@pytest.mark.parametrize(
    "url",
    [
        "http://billing.corp:9000/",
        "https://a.svc.corp:22/",
        "http://a.b.svc.corp/",
        "http://INTRANET:81/x",
    ],
)
def test_a_name_that_the_operator_opened_is_open_at_every_port(url: str) -> None:
    assert isinstance(at(url), HttpTarget)


@pytest.mark.parametrize(
    "url",
    [
        "http://other.corp:9000/",
        "http://svc.corp:9000/",
        "http://xbilling.corp:9000/",
        "http://billing.corp.example.com:9000/",
        "http://extranet/",
    ],
)
def test_other_names_are_not(url: str) -> None:
    assert not isinstance(at(url), HttpTarget)


@pytest.mark.parametrize(
    "address", ["10.1.2.3", "172.16.9.9", "192.168.1.1", "100.64.1.1", "fd12::7"]
)
def test_an_opened_name_may_lead_into_a_private_network(address: str) -> None:
    assert not address_allowed(address, 9000, HOSTS)
    assert address_allowed(address, 9000, HOSTS, open_host=True)
    assert not address_allowed(address, ENGINE, HOSTS, open_host=True)


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "169.254.169.254", "0.1.2.3", "168.63.129.16", "192.0.0.192", "224.0.0.1"),
        *("100.100.100.200", "fd00:ec2::254", "fd20:ce::254", "::1", "fe80::1", "::ffff:10.0.0.1"),
    ],
)
def test_an_opened_name_leads_to_no_loopback_and_no_metadata(address: str) -> None:
    assert not address_allowed(address, 80, HOSTS, open_host=True)


def test_a_denied_range_is_closed_whatever_is_opened() -> None:
    rules = address_rules(
        ("10.0.0.0/8",), hosts=("billing.corp",), denied=("10.9.0.0/16", "93.184.216.34")
    )
    assert address_allowed("10.8.0.1", 80, rules)
    for address in ("10.9.0.1", "93.184.216.34"):
        assert not address_allowed(address, 80, rules, open_host=True)
    assert "not open" in str(parse_http_target("http://93.184.216.34/", "POST", {}, rules))
