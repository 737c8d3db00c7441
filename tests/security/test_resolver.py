"""Names are looked up by our own stub, within bounds, and no tenant waits for another's names."""

import contextlib
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset
import pytest

from infra.targets.resolver import ADDRESSES_MAX, THREADS_OF_A_TENANT, Found, ThreadedResolver

PATIENCE_S: Final = 20.0
Zone = Callable[[str, str], list[str] | None]
"""(name, record type) → lines of the answer; none: there is no such name."""

A: Final = b"a" * 16
B: Final = b"b" * 16


class NameServer:
    """A name server on loopback; names that begin with `silent` get no answer."""

    def __init__(self, zone: Zone) -> None:
        self.asked: list[str] = []
        self._zone = zone
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
            last.sendto(b"end", ("127.0.0.1", self.port))
        self._thread.join(PATIENCE_S)
        self._socket.close()

    def _serve(self) -> None:
        while True:
            data, peer = self._socket.recvfrom(4096)
            if data == b"end":
                return
            query = dns.message.from_wire(data)
            name = query.question[0].name.to_text(omit_final_dot=True)
            kind = dns.rdatatype.to_text(query.question[0].rdtype)
            self.asked.append(f"{name} {kind}")
            if name.startswith("silent"):
                continue
            reply = dns.message.make_response(query)
            reply.flags |= dns.flags.RA
            lines = self._zone(name, kind)
            if lines is None:
                reply.set_rcode(dns.rcode.NXDOMAIN)
            for line in lines or ():
                owner, ttl, record, value = line.split()
                reply.answer.append(dns.rrset.from_text(owner + ".", int(ttl), "IN", record, value))
            self._socket.sendto(reply.to_wire(), peer)


def zone(name: str, kind: str) -> list[str] | None:
    if name == "hook.example.com":
        value = "192.0.2.7" if kind == "A" else "2001:db8::7"
        return [f"{name} 60 {kind} {value}"]
    if name == "moving.example.com":
        return [f"{name} 5 A 192.0.2.8"] if kind == "A" else [f"{name} 25 AAAA 2001:db8::8"]
    if name == "many.example.com" and kind == "A":
        return [f"{name} 60 A 192.0.2.{n}" for n in range(ADDRESSES_MAX + 1)]
    if name == "chain.example.com" and kind == "A":
        links = [f"c{n}.example.com" for n in range(12)]
        aliases = zip([name, *links], links, strict=False)
        return [*(f"{a} 60 CNAME {b}." for a, b in aliases), f"{links[-1]} 60 A 192.0.2.1"]
    if name.endswith(".example.com") and not name.startswith("no"):
        return []
    return None


@pytest.fixture
def server() -> Iterator[NameServer]:
    with contextlib.closing(NameServer(zone)) as made:
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
    dead = [f"silent{n}.example.com" for n in range(4 * THREADS_OF_A_TENANT)]
    for name in dead:
        resolver.ask(name, A)
    resolver.ask("hook.example.com", B)
    ended: list[str] = []
    until = time.monotonic() + PATIENCE_S
    while "hook.example.com" not in ended and time.monotonic() < until:
        select.select([resolver], (), (), 1.0)
        ended += [name for name, _ in resolver.collect()]
    assert ended[0] == "hook.example.com"


def test_the_operating_system_is_not_asked(
    resolver: ThreadedResolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("asked the operating system")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    resolver.ask("hook.example.com", A)
    assert wait_for(resolver, "hook.example.com").addresses
