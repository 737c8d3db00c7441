"""HTTP targets over libcurl's multi interface.

One thread owns everything: it submits, waits on `sockets` with its others, and polls. What
must hold, and by what:

- *Nothing is sent twice.* libcurl itself repeats a request on a new connection if a reused one
  turns out to be dead. Its pre-request callback runs before every request, so the second is
  refused there, and the attempt ends as `reset`.
- *Nothing is sent late.* A call whose send deadline has passed is not started, and one whose
  connecting took longer than the connect timeout after it is refused by the same callback.
- *Only checked peers.* Literals and all addresses of a name are judged before the call, the
  connection goes to checked addresses by number, and the socket callback judges each peer again.
- *No dead family.* Up to four addresses of a name are raced, of both families.
- *No waiting without end.* A call waits for its name as long as for a connection, and no longer:
  neither a silent name server nor a row of other names before it holds its place.
- *No shared connections.* Each tenant has a connection pool of its own (a libcurl share).
- *HTTP/2 by grant.* It is offered, over TLS, to the hosts that the operator names; no stream that
  was refused or cut is sent again by libcurl, as no request is.
- *Bounded answers.* Headers, 1xx blocks and body together are read up to 64 KiB.
"""

import resource
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Final

import pycurl

from commandside.deliverer_port import CONNECT_TIMEOUT_MS, UNSENDABLE, Answer, Call
from domain.target import is_host_of
from infra.targets.addresses import AddressBook, is_literal
from infra.targets.exchange import Exchange, header_block, kept_headers, set_method
from infra.targets.pool import IDLE_S_MAX, Pools
from infra.targets.resolver import Found, Resolver
from infra.targets.transfers import Transfers
from infra.waiting import wait

CONCURRENCY: Final = 128
WAIT_MS_MAX: Final = 1_000
BUFFER_BYTES: Final = 16_384
"""A call that hangs keeps a buffer for what it sent: 64 KiB by default, and no less than this."""
RACED_S: Final = 60
"""Raced addresses are in libcurl's cache of names. Others never: it is searched with every call."""
FILES_MAX: Final = 1 << 20
FILES_OF_OTHERS: Final = 64
"""Descriptors that no target gets: engines are connected to anew when they were away."""

_IDENTITY: Final = b"Accept-Encoding: identity"
# A name without a value keeps libcurl from sending a line of its own.
_NO_ACCEPT: Final = b"Accept:"
_NO_TYPE: Final = b"Content-Type:"
_NO_EXPECT: Final = b"Expect:"
EXPECTS_BYTES: Final = 1_000_000
"""From this size of a body on libcurl would ask first whether the target wants it (1 MiB)."""
_E_HTTP2_STREAM: Final = 92
"""`CURLE_HTTP2_STREAM`, for which pycurl has no name."""
_VERSIONS: Final = (pycurl.CURL_HTTP_VERSION_1_1, pycurl.CURL_HTTP_VERSION_2TLS)
_ERRORS: Final = {
    pycurl.E_COULDNT_RESOLVE_HOST: "dns",
    pycurl.E_COULDNT_CONNECT: "connect",
    pycurl.E_OPERATION_TIMEDOUT: "timeout",
    pycurl.E_SSL_CONNECT_ERROR: "tls",
    pycurl.E_SSL_CACERT_BADFILE: "tls",
    pycurl.E_SSL_CIPHER: "tls",
    pycurl.E_SSL_INVALIDCERTSTATUS: "tls",
    pycurl.E_SSL_ISSUER_ERROR: "tls",
    pycurl.E_USE_SSL_FAILED: "tls",
    pycurl.E_GOT_NOTHING: "reset",
    pycurl.E_SEND_ERROR: "reset",
    pycurl.E_RECV_ERROR: "reset",
    pycurl.E_PARTIAL_FILE: "reset",
    pycurl.E_HTTP2: "reset",
    _E_HTTP2_STREAM: "reset",
}

_CHAINS: Final = {0: "tls_wrong_host", 1: "tls_wrong_host", 9: "tls_expired", 10: "tls_expired"}
"""What OpenSSL says of a chain. Nothing, or nothing in particular: it holds, but for another host,
which libcurl sees by itself. 9 and 10: not valid yet, and not any more."""


def knows_http2() -> bool:
    """Tell whether the libcurl that is installed can speak HTTP/2 at all."""
    return bool(pycurl.version_info()[4] & pycurl.VERSION_HTTP2)


def speaks_http2(curl: pycurl.Curl) -> bool:
    """Tell whether a handle's last answer came by HTTP/2."""
    return bool(curl.getinfo(pycurl.INFO_HTTP_VERSION) == pycurl.CURL_HTTP_VERSION_2_0)


def find_ca_file() -> str | None:
    """Return the certificate bundle that the machine's OpenSSL would use."""
    return ssl.get_default_verify_paths().cafile


def _files_of_targets() -> int:
    """Return the descriptor from which on sockets are refused."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return FILES_MAX if allowed == resource.RLIM_INFINITY else allowed - FILES_OF_OTHERS


class CurlDeliverer:
    """Calls HTTP targets, at most `concurrency` at once.

    Besides the port: `sockets` and `timeout_ms` let the owner wait for sockets of libcurl, of the
    resolver and of its own in one place.
    """

    def __init__(  # noqa: PLR0913 - what is fixed for all calls
        self,
        book: AddressBook,
        resolver: Resolver,
        *,
        concurrency: int = CONCURRENCY,
        ca_file: str | None = None,
        http2_hosts: Sequence[str] = (),
        monotonic_us: Callable[[], int] = lambda: time.monotonic_ns() // 1000,
    ) -> None:
        self._book = book
        self._resolver = resolver
        self._concurrency = concurrency
        self._ca_file = ca_file or find_ca_file()
        self._http2_hosts = tuple(http2_hosts)
        self._monotonic_us = monotonic_us
        self._transfers = Transfers(concurrency)
        self._exchanges: dict[pycurl.Curl, Exchange] = {}
        self._free: list[Exchange] = []
        self._files = _files_of_targets()
        self._pools = Pools(concurrency, min(2 * concurrency, self._files - concurrency))
        self._resolving: dict[str, list[tuple[Call, int]]] = {}
        self._late_us = 0
        """When the first of those that wait for a name has waited too long."""
        self._done: list[Answer] = []
        self._in_flight = 0
        self._fresh = False
        """Something was submitted since libcurl has moved."""
        # What ended during `submit` must wake an owner that sleeps on sockets.
        self._always, waker = socket.socketpair()
        waker.close()

    @property
    def in_flight(self) -> int:
        """Calls submitted and not answered yet."""
        return self._in_flight

    @property
    def room(self) -> int:
        """How many more calls `submit` takes now."""
        return self._concurrency - self._in_flight

    def submit(self, calls: Sequence[Call]) -> None:
        """Take calls; the next `poll`, which `sockets` asks for at once, sends them."""
        assert len(calls) <= self.room, (len(calls), self.room)
        self._in_flight += len(calls)
        now_us = self._monotonic_us()
        for call in calls:
            if now_us > call.not_after_us:
                self._refuse(call, "send_deadline", 0)
            elif is_literal(call.host):
                if self._book.allowed(call.host, call.port):
                    self._start(call, (), now_us, now_us)
                else:
                    self._refuse(call, "blocked_address", 0)
            else:
                found = self._resolver.ask(call.host, call.tenant_id)
                if found is None:
                    self._hold(call, now_us)
                else:
                    self._start_named(call, found, now_us)
        self._fresh = self._fresh or bool(calls)

    def poll(self) -> list[Answer]:
        """Move everything on that can move, and return what ended."""
        if self._resolving:
            for name, found in self._resolver.collect():
                for call, submitted_us in self._resolving.pop(name, ()):
                    self._start_named(call, found, submitted_us)
            if self._resolving and self._monotonic_us() >= self._late_us:
                self._give_up()
        self._fresh = False
        ended = self._transfers.advance()
        now_us = self._monotonic_us()
        for curl, code in ended:
            self._end(self._exchanges[curl], code, now_us)
        self._pools.sweep(now_us, self._free)
        answers, self._done = self._done, []
        self._in_flight -= len(answers)
        return answers

    def sockets(self) -> tuple[list[int], list[int]]:
        """Return the descriptors to wait for: readable, and writable."""
        # A step of libcurl looks at every call in flight, so that one for all is cheaper than one
        # for each that was submitted.
        readable = [self._always.fileno()] if self._done or self._fresh else []
        writable: list[int] = []
        if self._transfers.active:
            readable.append(self._transfers.fileno())
        if self._resolving:
            readable.append(self._resolver.fileno())
        return readable, writable

    def awake(self) -> int:
        """Return a descriptor that is always readable: `poll` has something to do at once."""
        return self._always.fileno()

    def timeout_ms(self) -> int:
        """Return after how many milliseconds `poll` must be called even if nothing is ready."""
        if self._done or self._fresh:
            return 0
        rest, longest = self._transfers.timeout_ms(), WAIT_MS_MAX
        if self._resolving:
            left_us = self._late_us - self._monotonic_us()
            longest = min(longest, max(0, -(-left_us // 1000)))
        return longest if rest < 0 else min(rest, longest)

    def wait(self, timeout_ms: int) -> None:
        """Wait until `poll` may have something to do, for an owner that has no other sockets."""
        readable, writable = self.sockets()
        wait(readable, writable, min(timeout_ms, self.timeout_ms()) * 1_000)

    def close(self) -> None:
        """Drop every call in flight, unanswered, and every connection."""
        for exchange in self._exchanges.values():
            if exchange.call is not None:
                self._transfers.remove(exchange.curl)
            if exchange.pool is not None:
                exchange.curl.unsetopt(pycurl.SHARE)
            exchange.curl.close()
        self._transfers.close()
        self._pools.close()
        self._exchanges.clear()
        self._free.clear()
        self._resolver.close()
        self._always.close()

    def _refuse(self, call: Call, error: str, elapsed_us: int) -> None:
        self._done.append(Answer(call.token, 0, error, sent=False, elapsed_us=elapsed_us))

    def _hold(self, call: Call, now_us: int) -> None:
        late_us = now_us + _name_us(call)
        self._late_us = min(self._late_us, late_us) if self._resolving else late_us
        self._resolving.setdefault(call.host, []).append((call, now_us))

    def _give_up(self) -> None:
        """End the calls that have waited too long for their names, which others may wait for."""
        now_us = self._monotonic_us()
        held = list(self._resolving.items())
        self._resolving.clear()
        for name, waiting in held:
            for call, submitted_us in waiting:
                if now_us - submitted_us >= _name_us(call):
                    self._refuse(call, "timeout", now_us - submitted_us)
                else:
                    self._hold(call, submitted_us)
            if name not in self._resolving:
                self._resolver.forget(name)

    def _start_named(self, call: Call, found: Found, submitted_us: int) -> None:
        now_us = self._monotonic_us()
        if not found.addresses:
            self._refuse(call, "dns", now_us - submitted_us)
        elif not (addresses := self._book.choose(call.host, found.addresses, call.port, now_us)):
            self._refuse(call, "blocked_address", now_us - submitted_us)
        elif now_us - submitted_us >= _name_us(call):
            self._refuse(call, "timeout", now_us - submitted_us)
        else:
            self._start(call, addresses, submitted_us, now_us)

    def _start(
        self, call: Call, addresses: tuple[str, ...], submitted_us: int, now_us: int
    ) -> None:
        """Put the call on a handle, setting only what differs from its last use."""
        headers = _header_entries(call)
        if headers is None:
            self._refuse(call, UNSENDABLE, now_us - submitted_us)
            return
        exchange = self._free.pop() if self._free else self._make()
        exchange.begin(call, submitted_us)
        exchange.addresses = addresses
        curl = exchange.curl
        self._pools.join(exchange, call.tenant_id, now_us)
        host = f"[{call.host}]" if ":" in call.host else call.host
        url = f"{call.scheme}://{host}:{call.port}{call.path}"
        if url != exchange.url:
            exchange.url = url
            curl.setopt(pycurl.URL, url)
        granted = bool(self._http2_hosts) and is_host_of(call.host, self._http2_hosts)
        if granted != exchange.is_granted_2:
            exchange.is_granted_2 = granted
            curl.setopt(pycurl.HTTP_VERSION, _VERSIONS[granted])
        raced = len(addresses) > 1
        if raced != exchange.is_raced:
            exchange.is_raced = raced
            curl.setopt(pycurl.DNS_CACHE_TIMEOUT, RACED_S if raced else 0)
        # A call waits to see whether the connection in the making can be shared. Not where it is
        # raced: another call makes libcurl forget the addresses meanwhile.
        waits = granted and not raced
        if waits != exchange.is_waiting:
            exchange.is_waiting = waits
            curl.setopt(pycurl.PIPEWAIT, int(waits))
        place = ""
        if len(addresses) == 1:
            place = _bracketed(addresses[0])
        elif addresses:
            place = _place_of(addresses)
            # libcurl takes the list once, and forgets what came of it after a while.
            numbers = ",".join(map(_bracketed, addresses))
            curl.setopt(pycurl.RESOLVE, [f"+{place}:{call.port}:{numbers}"])
        connect_to = f"{call.host}:{call.port}:{place}:{call.port}" if place else ""
        if connect_to != exchange.connect_to:
            exchange.connect_to = connect_to
            curl.setopt(pycurl.CONNECT_TO, [connect_to] if connect_to else [])
        set_method(exchange, call)
        curl.setopt(pycurl.HTTPHEADER, headers)
        spent_ms = (now_us - submitted_us) // 1000
        timeouts = (call.timeout_ms - spent_ms, CONNECT_TIMEOUT_MS - spent_ms)
        if timeouts != exchange.timeouts:
            exchange.timeouts = timeouts
            curl.setopt(pycurl.TIMEOUT_MS, max(timeouts[0], 1))
            curl.setopt(pycurl.CONNECTTIMEOUT_MS, max(timeouts[1], 1))
        self._transfers.add(curl)

    def _make(self) -> Exchange:
        exchange = Exchange(self._book, self._monotonic_us, self._files)
        curl = exchange.curl
        for option, value in (
            (pycurl.NOSIGNAL, 1),
            (pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_1_1),
            (pycurl.FOLLOWLOCATION, 0),
            (pycurl.PATH_AS_IS, 1),
            (pycurl.NETRC, 0),
            (pycurl.SSL_VERIFYPEER, 1),
            (pycurl.SSL_VERIFYHOST, 2),
            (pycurl.SSLVERSION, pycurl.SSLVERSION_TLSv1_2),
            (pycurl.TCP_KEEPALIVE, 1),
            (pycurl.MAXAGE_CONN, IDLE_S_MAX),
            (pycurl.UPLOAD_BUFFERSIZE, BUFFER_BYTES),
            (pycurl.BUFFERSIZE, BUFFER_BYTES),
            (pycurl.DNS_CACHE_TIMEOUT, 0),
        ):
            curl.setopt(option, value)
        curl.setopt(pycurl.USERAGENT, "")
        # An empty proxy switches the proxy variables of the environment off.
        curl.setopt(pycurl.PROXY, "")
        curl.setopt(pycurl.PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS)
        if self._ca_file:
            curl.setopt(pycurl.CAINFO, self._ca_file)
        curl.setopt(pycurl.OPENSOCKETFUNCTION, exchange.on_socket)
        curl.setopt(pycurl.SOCKOPTFUNCTION, self._on_opened)
        curl.setopt(pycurl.PREREQFUNCTION, exchange.on_request)
        curl.setopt(pycurl.HEADERFUNCTION, exchange.on_header)
        curl.setopt(pycurl.WRITEFUNCTION, exchange.on_body)
        self._exchanges[curl] = exchange
        return exchange

    def _on_opened(self, descriptor: int, _purpose: int) -> int:
        self._transfers.opened(descriptor)
        return pycurl.SOCKOPT_OK

    def _learn(self, exchange: Exchange, call: Call, error: str, now_us: int) -> None:
        """Remember which addresses of a name did not answer, or not as soon as another."""
        if exchange.requests:
            won = exchange.curl.getinfo(pycurl.PRIMARY_IP)
        elif error in ("connect", "timeout"):
            won = ""
        else:
            return
        for address in exchange.tried:
            if address == won:
                break
            self._book.shun(address, call.port, now_us)

    def _end(self, exchange: Exchange, code: int, now_us: int) -> None:
        call, curl = exchange.call, exchange.curl
        assert call is not None
        self._transfers.remove(curl)
        error = exchange.veto or ("" if code == 0 else _error(curl, code))
        two = exchange.is_granted_2 and speaks_http2(curl)
        status, lines = header_block(exchange.head, two=two)
        if not status and not error:
            error = "bad_response"
        if exchange.tried:
            self._learn(exchange, call, error, now_us)
        headers, retry_after = kept_headers(lines)
        self._done.append(
            Answer(
                call.token,
                status,
                error,
                sent=bool(exchange.requests),
                elapsed_us=now_us - exchange.submitted_us,
                headers=headers,
                retry_after=retry_after,
                body=b"".join(exchange.body),
            )
        )
        exchange.begin(None, 0)
        self._pools.leave(exchange)
        self._free.append(exchange)


def _header_entries(call: Call) -> list[bytes] | None:
    """Return the header lines for libcurl, or None where one of them would be two.

    All lines are one entry: libcurl copies and searches per entry, which is a sixth of a request's
    cost. It sends an entry as it is, so a line break here would forge a header: definitions are
    refused for one, and what is in the log all the same is never sent.
    """
    lines = call.headers
    block = b"\r\n".join((*lines, _IDENTITY))
    if block.count(b"\n") != len(lines) or block.count(b"\r") != len(lines) or b"\0" in block:
        return None
    entries = [_NO_ACCEPT, block]
    # An entry that begins with the name has the same effect.
    if not block.startswith(_NO_TYPE):
        entries.append(_NO_TYPE)
    if len(call.body) >= EXPECTS_BYTES:
        entries.append(_NO_EXPECT)
    return entries


def _name_us(call: Call) -> int:
    """How long a call waits for the addresses of its name."""
    return min(CONNECT_TIMEOUT_MS, call.timeout_ms) * 1000


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def _place_of(addresses: tuple[str, ...]) -> str:
    """Return a name for what is raced: connections to other addresses are not taken for it.

    It ends so that no name server knows it, should it ever be asked.
    """
    numbers = "-".join(addresses).replace(":", ".").encode()
    return f"{blake2b(numbers, digest_size=12).hexdigest()}.invalid"


def _error(curl: pycurl.Curl, code: int) -> str:
    if code == pycurl.E_PEER_FAILED_VERIFICATION:
        found = curl.getinfo(pycurl.SSL_VERIFYRESULT)
        return _CHAINS.get(found, "tls_untrusted")
    return _ERRORS.get(code, "bad_response")
