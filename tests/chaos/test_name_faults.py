"""What name servers do to calls: each ends in time, nobody waits for another's names."""

import time
from collections.abc import Iterator

import msgspec
import pytest

from infra.targets.resolver import ADDRESSES_MAX, ALIASES_MAX, LOOKUP_S
from tests.chaos.wire import Wire, wired
from tests.engines.name_server import NameServer, Says
from tests.engines.sink import TargetServer

HOOK = "hook.example.com"
METADATA = "169.254.169.254"


@pytest.fixture
def strict(sink: TargetServer, names: NameServer) -> Iterator[Wire]:
    """A deliverer to which 127.0.0.1 is as public as an address of the tests can be."""
    with wired(sink, names, allow=("127.0.0.1/32",)) as found:
        yield found


@pytest.mark.parametrize("rcode", ["NXDOMAIN", "SERVFAIL", "REFUSED", "NOTIMP", "FORMERR"])
def test_f123_a_failure_of_the_name_server_is_a_failed_lookup(wire: Wire, rcode: str) -> None:
    wire.names.fails(HOOK, rcode)
    answer = wire.hit(host=HOOK)
    assert (answer.status, answer.error, answer.sent) == (0, "dns", False)
    assert answer.elapsed_us < (LOOKUP_S + 1) * 1_000_000
    assert wire.names.questions(HOOK)
    assert wire.sink.connections == 0


def test_f123_a_silent_name_server_is_given_up_within_its_bound(wire: Wire) -> None:
    wire.names.silent(HOOK)
    answer = wire.hit(host=HOOK)
    assert (answer.error, answer.sent) == ("dns", False)
    assert wire.names.questions(HOOK)


def test_f123_a_silent_name_server_does_not_outlast_the_deadline_of_a_call(wire: Wire) -> None:
    wire.names.silent(HOOK)
    answer = wire.hit(host=HOOK, timeout_ms=200)
    assert (answer.error, answer.sent) == ("timeout", False)
    assert wire.names.questions(HOOK)


def test_f123_the_dead_names_of_one_tenant_hold_up_no_other(wire: Wire) -> None:
    wire.names.address(HOOK, "127.0.0.1")
    dead = []
    for number in range(40):
        wire.names.silent(f"dead{number}.example.com")
        dead.append(wire.call(host=f"dead{number}.example.com", timeout_ms=1_500))
    other = msgspec.structs.replace(wire.call(host=HOOK), tenant_id=b"o" * 16)
    order = list(wire.answers(*dead, other).items())
    token, answer = order[0]
    assert (token, answer.status) == (other.token, 200)
    assert {answer.error for _, answer in order[1:]} <= {"timeout", "dns"}
    assert wire.names.questions("dead0.example.com")
    # None of them has waited for all the others: two a second are given up.
    assert len(order) == 41


def test_f123_truncated_answers_are_asked_for_over_tcp(wire: Wire) -> None:
    wire.names.tell(HOOK, "A", Says((f"{HOOK} 60 A 127.0.0.1",), truncated=True))
    wire.names.tell(HOOK, "AAAA", Says())
    assert wire.hit(host=HOOK).status == 200
    assert f"{HOOK} A tcp" in wire.names.asked


def test_f124_a_name_with_more_addresses_than_the_bound_is_not_called(wire: Wire) -> None:
    wire.names.address(HOOK, *(f"127.0.0.{n}" for n in range(1, 51)))
    assert wire.hit(host=HOOK).error == "dns"
    assert wire.names.questions(HOOK)
    wire.names.address("few.example.com", *(f"127.0.0.{n}" for n in range(1, ADDRESSES_MAX + 1)))
    assert wire.hit(host="few.example.com").status == 200
    assert wire.sink.connections >= 1


def test_f124_a_chain_of_aliases_longer_than_the_bound_is_not_followed(wire: Wire) -> None:
    wire.names.alias("long.example.com", 20, "127.0.0.1")
    assert wire.hit(host="long.example.com").error == "dns"
    assert wire.names.questions("long.example.com")
    assert wire.sink.connections == 0
    wire.names.alias("short.example.com", ALIASES_MAX, "127.0.0.1")
    assert wire.hit(host="short.example.com").status == 200


def test_f124_an_alias_that_leads_to_itself_finds_nothing(wire: Wire) -> None:
    loop = (f"{HOOK} 60 CNAME b.example.com.", f"b.example.com 60 CNAME {HOOK}.")
    for kind in ("A", "AAAA"):
        wire.names.tell(HOOK, kind, Says(loop))
    assert wire.hit(host=HOOK).error == "dns"
    assert wire.names.questions(HOOK)


def test_f124_a_name_that_turns_private_while_it_is_called_is_not_called_there(
    strict: Wire,
) -> None:
    strict.names.flips(HOOK, "127.0.0.1", "127.0.0.2")
    asked = 0
    outcomes = []
    until = time.monotonic() + 20
    # No answer outlives its second in the cache: the name is asked for again, and flips.
    while asked < 4 and time.monotonic() < until:
        answer = strict.hit(host=HOOK)
        outcomes.append(answer.error or answer.status)
        asked = strict.names.questions(HOOK).count(f"{HOOK} A")
    assert asked >= 4
    assert set(outcomes) == {200, "blocked_address"}
    assert set(strict.sink.called) == {"127.0.0.1"}


@pytest.mark.parametrize(
    "address", [METADATA, "127.0.0.2", "10.0.0.1", "::1", "::ffff:127.0.0.1", "fd00:ec2::254"]
)
@pytest.mark.parametrize("first", [True, False])
def test_f124_a_name_of_public_and_private_addresses_is_not_called_at_all(
    strict: Wire, address: str, first: bool
) -> None:
    both = (address, "127.0.0.1") if first else ("127.0.0.1", address)
    strict.names.address(HOOK, *both)
    assert strict.hit(host=HOOK).error == "blocked_address"
    assert strict.names.questions(HOOK) == [f"{HOOK} A", f"{HOOK} AAAA"]
    assert strict.sink.connections == 0
