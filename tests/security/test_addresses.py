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
