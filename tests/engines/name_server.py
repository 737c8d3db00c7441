"""An authoritative name server on loopback that says what it is told, over UDP and TCP."""

import itertools
import select
import socket
import struct
import threading
from collections.abc import Iterable
from types import TracebackType
from typing import Final, Self

import dns.exception
import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset
import msgspec

HOST: Final = "127.0.0.1"
PATIENCE_S: Final = 20.0
BINDS_MAX: Final = 20


class Says(msgspec.Struct, frozen=True):
    """One answer: lines of `owner ttl type value`, or a failure, or nothing at all.

    `truncated`: over UDP no lines come, but the wish to be asked over TCP.
    """

    lines: tuple[str, ...] = ()
    rcode: str = "NOERROR"
    silent: bool = False
    truncated: bool = False


UNKNOWN: Final = Says(rcode="NXDOMAIN")


class NameServer:
    """Answers names that it was told of, and NXDOMAIN for others; notes every question."""

    def __init__(self) -> None:
        """Take one port for both protocols, and begin."""
        self.asked: list[str] = []
        """`name TYPE`, with ` tcp` behind it where that was spoken."""
        self._told: dict[tuple[str, str], list[Says]] = {}
        self._udp, self._tcp = _bound()
        self.port: int = self._udp.getsockname()[1]
        self._wake, self._waker = socket.socketpair()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End."""
        self.close()

    def close(self) -> None:
        """Answer nobody any more."""
        self._waker.send(b"\0")
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        for one in (self._udp, self._tcp, self._wake, self._waker):
            one.close()

    # ---------------------------------------------------------------- what is said

    def tell(self, name: str, kind: str, *turns: Says) -> None:
        """Answer a question so; with more than one answer, in turns and from the first again."""
        self._told[(name, kind)] = list(turns)

    def address(self, name: str, *addresses: str, ttl: int = 60) -> None:
        """Let a name have these addresses, of both families."""
        for kind in ("A", "AAAA"):
            mine = [a for a in addresses if (":" in a) == (kind == "AAAA")]
            self.tell(name, kind, Says(tuple(f"{name} {ttl} {kind} {a}" for a in mine)))

    def flips(self, name: str, *addresses: str) -> None:
        """Let a name have each of these IPv4 addresses in turn, for no time at all."""
        self.tell(name, "A", *(Says((f"{name} 0 A {a}",)) for a in addresses))
        self.tell(name, "AAAA", Says())

    def alias(self, name: str, links: int, address: str) -> None:
        """Let a name lead to an address over so many aliases."""
        names = [name, *(f"c{n}.{name}" for n in range(1, links + 1))]
        steps = [f"{a} 60 CNAME {b}." for a, b in itertools.pairwise(names)]
        self.tell(name, "A", Says((*steps, f"{names[-1]} 60 A {address}")))
        self.tell(name, "AAAA", Says(tuple(steps)))

    def fails(self, name: str, rcode: str) -> None:
        """Answer every question for a name with this failure."""
        for kind in ("A", "AAAA"):
            self.tell(name, kind, Says(rcode=rcode))

    def silent(self, name: str) -> None:
        """Say nothing when asked for a name."""
        for kind in ("A", "AAAA"):
            self.tell(name, kind, Says(silent=True))

    def questions(self, name: str) -> list[str]:
        """Return what was asked of a name, in the order of arrival."""
        return [asked for asked in self.asked if asked.split(" ")[0] == name]

    # ---------------------------------------------------------------- the wire

    def _serve(self) -> None:
        while True:
            ready, _, _ = select.select([self._udp, self._tcp, self._wake], (), ())
            if self._wake in ready:
                return
            if self._udp in ready:
                data, peer = self._udp.recvfrom(65_535)
                reply = self._reply(data, tcp=False)
                if reply is not None:
                    self._udp.sendto(reply, peer)
            if self._tcp in ready:
                self._serve_tcp()

    def _serve_tcp(self) -> None:
        connection, _ = self._tcp.accept()
        with connection, connection.makefile("rb") as stream:
            connection.settimeout(PATIENCE_S)
            head = stream.read(2)
            if len(head) == 2:
                reply = self._reply(stream.read(struct.unpack(">H", head)[0]), tcp=True)
                if reply is not None:
                    connection.sendall(struct.pack(">H", len(reply)) + reply)

    def _reply(self, data: bytes, *, tcp: bool) -> bytes | None:
        try:
            query = dns.message.from_wire(data)
        except dns.exception.DNSException:
            return None
        name = query.question[0].name.to_text(omit_final_dot=True)
        kind = dns.rdatatype.to_text(query.question[0].rdtype)
        self.asked.append(f"{name} {kind}{' tcp' if tcp else ''}")
        says = self._next(name, kind)
        if says.silent:
            return None
        reply = dns.message.make_response(query)
        reply.flags |= dns.flags.RA | dns.flags.AA
        if says.truncated and not tcp:
            reply.flags |= dns.flags.TC
        else:
            reply.set_rcode(dns.rcode.from_text(says.rcode))
            reply.answer += _sets(says.lines)
        return reply.to_wire(max_size=65_535)

    def _next(self, name: str, kind: str) -> Says:
        turns = self._told.get((name, kind))
        if not turns:
            return UNKNOWN
        turns.append(turns.pop(0))
        return turns[-1]


def _sets(lines: Iterable[str]) -> list[dns.rrset.RRset]:
    found: list[dns.rrset.RRset] = []
    for line in lines:
        owner, ttl, kind, value = line.split()
        found.append(dns.rrset.from_text(owner + ".", int(ttl), "IN", kind, value))
    return found


def _bound() -> tuple[socket.socket, socket.socket]:
    """Return a socket of each protocol at one port, which another process may have of one."""
    for _ in range(BINDS_MAX):
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        udp.bind((HOST, 0))
        try:
            return udp, socket.create_server((HOST, udp.getsockname()[1]))
        except OSError:
            udp.close()
    raise AssertionError(f"no port is free of both protocols in {BINDS_MAX} tries")
