"""Names are looked up by our own stub, within bounds, and no tenant waits for another's names."""

import contextlib
import select
import socket
import time
from collections.abc import Iterator
from typing import Final

import pytest

from infra.targets.resolver import ADDRESSES_MAX, THREADS_OF_A_TENANT, Found, ThreadedResolver
from tests.engines.name_server import NameServer, Says

PATIENCE_S: Final = 20.0
DEAD: Final = tuple(f"silent{n}.example.com" for n in range(4 * THREADS_OF_A_TENANT))

A: Final = b"a" * 16
B: Final = b"b" * 16


def told(server: NameServer) -> None:
    hook, moving = "hook.example.com", "moving.example.com"
    server.address(hook, "192.0.2.7", "2001:db8::7")
    server.tell(moving, "A", Says((f"{moving} 5 A 192.0.2.8",)))
    server.tell(moving, "AAAA", Says((f"{moving} 25 AAAA 2001:db8::8",)))
    server.address("nothing.example.com")
    server.address("many.example.com", *(f"192.0.2.{n}" for n in range(ADDRESSES_MAX + 1)))
    server.alias("chain.example.com", 12, "192.0.2.1")
    for name in ("silent.example.com", *DEAD):
        server.silent(name)


@pytest.fixture
def server() -> Iterator[NameServer]:
    with NameServer() as made:
        told(made)
        yield made


@pytest.fixture
def resolver(server: NameServer) -> Iterator[ThreadedResolver]:
    with contextlib.closing(ThreadedResolver(("127.0.0.1",), server.port)) as made:
        yield made


def wait_for(resolver: ThreadedResolver, name: str) -> Found:
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        select.select([resolver], (), (), 1.0)
        for found_name, found in resolver.collect():
            if found_name == name:
                return found
    pytest.fail(f"no answer for {name}")


def test_both_families_are_asked(resolver: ThreadedResolver) -> None:
    assert resolver.ask("hook.example.com", A) is None
    found = wait_for(resolver, "hook.example.com")
    assert found.addresses == ("192.0.2.7", "2001:db8::7")


def test_a_name_is_known_for_as_long_as_all_its_addresses_hold(resolver: ThreadedResolver) -> None:
    assert resolver.ask("moving.example.com", A) is None
    assert wait_for(resolver, "moving.example.com").ttl_s == 5


def test_what_is_known_is_not_asked_again(server: NameServer, resolver: ThreadedResolver) -> None:
    resolver.ask("hook.example.com", A)
    found = wait_for(resolver, "hook.example.com")
    assert resolver.ask("hook.example.com", B) == found
    assert len(server.asked) == 2


def test_an_answer_is_forgotten_within_half_a_minute_whatever_its_owner_says(
    server: NameServer,
) -> None:
    now_s = 1000.0
    aging = ThreadedResolver(("127.0.0.1",), server.port, lambda: now_s)
    with contextlib.closing(aging):
        aging.ask("hook.example.com", A)
        wait_for(aging, "hook.example.com")
        now_s += 31
        assert aging.ask("hook.example.com", A) is None
        wait_for(aging, "hook.example.com")


@pytest.mark.parametrize(
    "name", ["no.example.com", "nothing.example.com", "many.example.com", "chain.example.com"]
)
def test_no_name_no_address_too_many_addresses_or_aliases_find_nothing(
    resolver: ThreadedResolver, name: str
) -> None:
    resolver.ask(name, A)
    assert wait_for(resolver, name).addresses == ()


def test_a_name_server_that_is_silent_is_given_up(resolver: ThreadedResolver) -> None:
    resolver.ask("silent.example.com", A)
    assert wait_for(resolver, "silent.example.com").addresses == ()


def test_one_tenants_dead_names_do_not_hold_up_another_tenant(resolver: ThreadedResolver) -> None:
    for name in DEAD:
        resolver.ask(name, A)
    resolver.ask("hook.example.com", B)
    ended: list[str] = []
    until = time.monotonic() + PATIENCE_S
    while "hook.example.com" not in ended and time.monotonic() < until:
        select.select([resolver], (), (), 1.0)
        ended += [name for name, _ in resolver.collect()]
    assert ended[0] == "hook.example.com"


def test_a_name_that_stands_in_another_tenants_row_is_looked_up_in_the_first_turn(
    resolver: ThreadedResolver,
) -> None:
    for name in (*DEAD, "hook.example.com"):
        resolver.ask(name, A)
    resolver.ask("hook.example.com", B)
    ended: list[str] = []
    until = time.monotonic() + PATIENCE_S
    while "hook.example.com" not in ended and time.monotonic() < until:
        select.select([resolver], (), (), 1.0)
        ended += [name for name, _ in resolver.collect()]
    assert ended[0] == "hook.example.com"


def test_a_name_that_nobody_waits_for_any_more_is_not_looked_up(
    server: NameServer, resolver: ThreadedResolver
) -> None:
    for name in DEAD:
        resolver.ask(name, A)
    resolver.ask("moving.example.com", A)
    resolver.forget("moving.example.com")
    resolver.ask("hook.example.com", A)
    wait_for(resolver, "hook.example.com")
    assert server.questions("moving.example.com") == []


def test_the_operating_system_is_not_asked(
    resolver: ThreadedResolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("asked the operating system")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    resolver.ask("hook.example.com", A)
    assert wait_for(resolver, "hook.example.com").addresses
