"""No form of a URL, of a name or of an answer leads a call to a closed address."""

import ipaddress
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from domain.refusal import Refused
from domain.target import HttpTarget, address_rules, parse_http_target
from tests.engines.name_server import NameServer
from tests.security.ssrf import calls
from tests.security.ssrf.forms import Form, forms

ROOT: Final = Path(__file__).parents[2]
RULES: Final = address_rules()
CLOSED, INSIDE, OPEN = forms("closed"), forms("inside"), forms("open")
WORLD: Final = """
ip link set lo up
ip route add local 0.0.0.0/0 dev lo
ip -6 route add local ::/0 dev lo
exec "$@"
"""
"""Every address there is belongs to the loopback of the namespace."""


def judged(form: Form) -> HttpTarget | tuple[Refused, ...]:
    return parse_http_target(form.url, "POST", {}, RULES)


def test_the_corpus_is_as_large_as_it_should_be() -> None:
    assert len({form.url for form in CLOSED}) == len(CLOSED) >= 400
    assert len({form.url for form in OPEN}) == len(OPEN) >= 200
    assert len(INSIDE) >= 100


def test_every_form_that_is_closed_is_refused_when_it_is_defined() -> None:
    passed = [form for form in CLOSED if isinstance(judged(form), HttpTarget)]
    assert passed == []


def test_every_refusal_names_the_field_and_what_would_be_right() -> None:
    for form in CLOSED:
        found = judged(form)
        assert not isinstance(found, HttpTarget)
        assert [(one.pointer, bool(one.detail)) for one in found] == [("/target/url", True)]


def test_every_form_that_is_open_is_accepted_and_so_is_every_name() -> None:
    refused = [form for form in (*OPEN, *INSIDE) if not isinstance(judged(form), HttpTarget)]
    assert refused == []


def test_what_is_accepted_is_kept_in_the_parts_that_are_sent() -> None:
    for form in OPEN:
        found = judged(form)
        assert isinstance(found, HttpTarget)
        assert found.url_typed == form.url
        assert found.host == found.host.lower()
        assert found.path[0] == "/"
        assert form.url.endswith(found.path.removeprefix("/"))


def test_every_reading_of_a_closed_form_is_stopped_before_a_socket_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[object] = []
    monkeypatch.setattr("infra.targets.exchange._Lent", lambda *place: made.append(place))
    with NameServer() as names:
        desk = calls.Desk(names, [])
        answers = desk.answers(calls.misread(desk))
        desk.deliverer.close()
    assert len(answers) >= 400
    assert {answer.error for answer in answers} == {"blocked_address", "dns"}
    assert made == []


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """What came of calling every form, in a network namespace of its own."""
    if subprocess.run(["unshare", "--net", "true"], check=False, capture_output=True).returncode:
        pytest.skip("no network namespace can be made here")
    done = subprocess.run(
        ["unshare", "--net", "bash", "-euc", WORLD, "bash", sys.executable, "-m", calls.__name__],
        check=False,
        capture_output=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr.decode()
    found: dict[str, Any] = json.loads(done.stdout)
    print({name: report | {"reached": len(report["reached"])} for name, report in found.items()})
    return found


@pytest.mark.parametrize("part", ["closed", "veto", "inside", "open"])
def test_no_connection_goes_to_a_closed_address(reports: Mapping[str, Any], part: str) -> None:
    report = reports[part]
    assert report["calls"] > 100
    # Judged by another list than ours, which a mistake in ours does not touch.
    closed = [a for a in report["reached"] if not ipaddress.ip_address(a).is_global]
    assert closed == []
    # Whatever the kernel has begun was seen: nothing went to another port.
    assert report["begun"] == len(report["reached"])


def test_what_is_closed_is_stopped_before_any_connection(reports: Mapping[str, Any]) -> None:
    assert reports["closed"]["begun"] == 0
    assert set(reports["closed"]["outcomes"]) == {"blocked_address", "dns"}


def test_the_socket_vetoes_what_the_first_check_would_have_let_pass(
    reports: Mapping[str, Any],
) -> None:
    assert reports["veto"]["outcomes"]["blocked_address"] >= 200


def test_names_that_lead_inside_are_stopped_whenever_they_do(reports: Mapping[str, Any]) -> None:
    outcomes = reports["inside"]["outcomes"]
    assert outcomes["blocked_address"] >= 300
    # Names that change are called while they lead outside; a redirect is an answer like another.
    assert {"200", "302"} <= set(outcomes)


def test_every_open_form_is_called(reports: Mapping[str, Any]) -> None:
    report = reports["open"]
    assert report["calls"] == len(OPEN)
    assert report["begun"] == len(OPEN)
