"""F125: what targets get wrong about TLS; none of it is ever made good by asking for less."""

import ssl
import warnings
from pathlib import Path

import pytest

from commandside.deliverer_port import Answer
from tests.chaos.wire import wired
from tests.engines.authority import Authority
from tests.engines.name_server import NameServer
from tests.engines.sink import TargetServer

HOST = "hook.example.com"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def call(
    authority: Authority, names: NameServer, context: ssl.SSLContext, host: str = HOST
) -> tuple[Answer, TargetServer]:
    """Call a target that speaks TLS so; it must have come to a handshake."""
    with TargetServer(context) as sink, wired(sink, names, ca_file=authority.file) as wire:
        names.address(host, "127.0.0.1")
        answer = wire.secure(host)
    assert sink.handshakes == 1
    return answer, sink


def test_f125_a_certificate_of_an_authority_that_is_trusted_is_taken(
    authority: Authority, names: NameServer
) -> None:
    answer, sink = call(authority, names, authority.context([HOST]))
    assert (answer.status, answer.error) == (200, "")
    assert len(sink.requests) == 1


@pytest.mark.parametrize("days", [(-9, -1), (1, 9)], ids=["expired", "not valid yet"])
def test_f125_a_certificate_out_of_its_time_is_said(
    authority: Authority, names: NameServer, days: tuple[int, int]
) -> None:
    answer, sink = call(authority, names, authority.context([HOST], days=days))
    assert (answer.status, answer.error, answer.sent) == (0, "tls_expired", False)
    assert sink.requests == []


def test_f125_a_certificate_of_another_host_is_said(
    authority: Authority, names: NameServer
) -> None:
    answer, sink = call(authority, names, authority.context(["other.example.com"]))
    assert (answer.status, answer.error, answer.sent) == (0, "tls_wrong_host", False)
    assert sink.requests == []


def test_f125_a_certificate_that_vouches_for_itself_is_said(
    authority: Authority, names: NameServer
) -> None:
    answer, sink = call(authority, names, authority.context([HOST], itself=True))
    assert (answer.status, answer.error, answer.sent) == (0, "tls_untrusted", False)
    assert sink.requests == []


def test_f125_a_certificate_of_an_unknown_authority_is_said(
    authority: Authority, names: NameServer, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other")
    answer, sink = call(authority, names, other.context([HOST]))
    assert (answer.status, answer.error, answer.sent) == (0, "tls_untrusted", False)
    assert sink.requests == []


def test_f125_a_target_that_speaks_only_tls_1_0_is_not_spoken_to(
    authority: Authority, names: NameServer
) -> None:
    context = authority.context([HOST])
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1
    context.set_ciphers("ALL:@SECLEVEL=0")
    answer, sink = call(authority, names, context)
    assert (answer.status, answer.error, answer.sent) == (0, "tls", False)
    assert sink.requests == []


def test_f125_a_chain_of_a_hundred_kilobytes_is_not_read(
    authority: Authority, names: NameServer
) -> None:
    hosts = [HOST, *(f"{n:05}.{'x' * 50}.example.com" for n in range(1_600))]
    context = authority.context(hosts)
    answer, sink = call(authority, names, context)
    assert (answer.status, answer.error, answer.sent) == (0, "tls", False)
    assert sink.requests == []


def test_f125_a_handshake_that_stalls_ends_with_the_deadline(names: NameServer) -> None:
    # To a target that does not speak TLS, the first word of a handshake is an unfinished line.
    with TargetServer() as sink, wired(sink, names) as wire:
        names.address(HOST, "127.0.0.1")
        answer = wire.secure(HOST, timeout_ms=300)
        assert sink.connections == 1
    assert (answer.status, answer.error, answer.sent) == (0, "timeout", False)
    assert sink.requests == []


def test_f125_what_is_not_tls_is_never_spoken_to_in_the_clear(names: NameServer) -> None:
    with (
        TargetServer(greeting=b"HTTP/1.1 400 Speak plainly\r\n\r\n") as sink,
        wired(sink, names) as wire,
    ):
        names.address(HOST, "127.0.0.1")
        answer = wire.secure(HOST)
        assert sink.connections == 1
    assert (answer.status, answer.error, answer.sent) == (0, "tls", False)
    assert sink.requests == []
