"""Signatures, secrets, time, and what a call says."""

import base64
import datetime as dt
import json
import subprocess
import sys
from pathlib import Path

import pytest
from standardwebhooks import Webhook

from tests.receiver.calls import (
    KEY,
    NOW_S,
    OTHER_KEY,
    OTHER_SECRET,
    PUBLIC,
    SECRET,
    Call,
    Clock,
    ed25519_signature,
)
from tocsin_receiver import Refused, Verifier
from tocsin_receiver.refused import Reason

KIT = Path(__file__).parents[2] / "clients" / "receiver"


def refusal(call: Call, verifier: Verifier, **headers: str) -> Refused:
    """Return the error of a call with some headers changed."""
    with pytest.raises(Refused) as caught:
        verifier.verify(call.headers() | headers, call.body)
    return caught.value


def test_what_a_call_says_is_read() -> None:
    call = Call(attempt=2, fence=9)
    headers = call.headers() | {
        "Tocsin-Possible-Duplicate": "true",
        "Tocsin-Completion-Token": "ct_secret",
    }
    got = Verifier(SECRET, clock=Clock()).verify(headers, call.body)
    assert (got.key, got.job_id, got.run_id) == (call.key, call.job, call.run)
    assert (got.attempt, got.fence, got.possible_duplicate) == (2, 9, True)
    assert got.scheduled_for == dt.datetime(2026, 9, 21, 14, 13, 0, 250_000, dt.UTC)
    assert got.sent_at == dt.datetime.fromtimestamp(NOW_S, dt.UTC)
    assert got.traceparent == f"00-{'0b' * 16}-{'0b' * 8}-01"
    assert (got.content_type, got.body) == ("application/json", call.body)
    assert got.completion_token == "ct_secret"
    assert "ct_secret" not in repr(got)


def test_names_of_headers_are_of_any_case_and_form() -> None:
    call, verifier = Call(), Verifier(SECRET, clock=Clock())
    plain = verifier.verify(call.headers(), call.body)
    for change in (str.lower, str.upper, str.title):
        changed = {change(name): value for name, value in call.headers().items()}
        assert verifier.verify(changed, call.body) == plain
    pairs = [(n.lower().encode(), v.encode()) for n, v in call.headers().items()]
    assert verifier.verify(pairs, call.body) == plain


def test_what_standardwebhooks_signs_is_verified() -> None:
    call = Call()
    when = dt.datetime.fromtimestamp(NOW_S, dt.UTC)
    theirs = Webhook(SECRET).sign(call.key, when, call.body.decode())
    verifier = Verifier(SECRET, clock=Clock())
    assert (
        verifier.verify(call.headers() | {"webhook-signature": theirs}, call.body).key == call.key
    )


def test_standardwebhooks_verifies_what_we_verify() -> None:
    call = Call(sent_s=int(dt.datetime.now(dt.UTC).timestamp()))
    assert Verifier(SECRET).verify(call.headers(), call.body).key == call.key
    assert Webhook(SECRET).verify(call.body, call.headers()) == json.loads(call.body)


@pytest.mark.parametrize(
    ("signers", "knows"),
    [
        ((KEY, OTHER_KEY), [SECRET]),
        ((KEY, OTHER_KEY), [OTHER_SECRET]),
        ((KEY,), [OTHER_SECRET, SECRET]),
        ((OTHER_KEY,), [OTHER_SECRET, SECRET, PUBLIC]),
    ],
)
def test_either_secret_will_do_during_a_rotation(
    signers: tuple[bytes, ...], knows: list[str]
) -> None:
    call = Call(keys=signers)
    assert Verifier(knows, clock=Clock()).verify(call.headers(), call.body).key == call.key


def test_a_public_key_verifies() -> None:
    call = Call()
    signature = ed25519_signature(call.key, NOW_S, call.body)
    verifier = Verifier(PUBLIC, clock=Clock())
    assert (
        verifier.verify(call.headers() | {"webhook-signature": signature}, call.body).key
        == call.key
    )
    mixed = f"{call.headers()['webhook-signature']} {signature}"
    assert verifier.verify(call.headers() | {"webhook-signature": mixed}, call.body).key == call.key


def test_a_signature_counts_for_its_own_scheme_only() -> None:
    call = Call()
    signature = ed25519_signature(call.key, NOW_S, call.body)
    symmetric = Verifier(SECRET, clock=Clock())
    public = Verifier(PUBLIC, clock=Clock())
    assert refusal(call, symmetric, **{"webhook-signature": signature}).reason == "forged"
    assert refusal(call, public).reason == "forged"
    renamed = signature.replace("v1a,", "v1,")
    assert refusal(call, public, **{"webhook-signature": renamed}).reason == "forged"


@pytest.mark.parametrize("secret", [OTHER_SECRET, PUBLIC])
def test_another_key_is_a_forgery(secret: str) -> None:
    assert refusal(Call(), Verifier(secret, clock=Clock())).reason == "forged"


@pytest.mark.parametrize(
    ("off_s", "reason"), [(300, None), (300.5, "too_old"), (-300, None), (-300.5, "too_new")]
)
def test_time_is_tolerated_by_five_minutes(off_s: float, reason: Reason | None) -> None:
    call, verifier = Call(), Verifier(SECRET, clock=Clock(NOW_S + off_s))
    if reason is None:
        assert verifier.verify(call.headers(), call.body).key == call.key
    else:
        assert refusal(call, verifier).reason == reason


def test_the_tolerance_can_be_set() -> None:
    verifier = Verifier(SECRET, tolerance_s=10, clock=Clock(NOW_S + 11))
    assert refusal(Call(), verifier).reason == "too_old"


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_an_unsigned_request_says_what_is_missing(name: str) -> None:
    refused = refusal(Call(), Verifier(SECRET, clock=Clock()), **{name: ""})
    assert (refused.reason, refused.status) == ("missing", 401)
    assert name in refused.detail


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("webhook-id", "a.b"),
        ("webhook-id", "a" * 256),
        ("webhook-timestamp", "1e9"),
        ("webhook-timestamp", "-1"),
        ("webhook-timestamp", "9" * 5_000),
        ("webhook-timestamp", "\u0661\u0662"),
        ("webhook-signature", " ".join(["v1,A"] * 17)),
        ("Idempotency-Key", "another"),
        ("Tocsin-Attempt", "one"),
        ("Tocsin-Fence", "9" * 19),
        ("Tocsin-Scheduled-For", "2026-02-30T00:00:00.000Z"),
        ("Tocsin-Scheduled-For", "2026-02-03 00:00"),
        ("Tocsin-Possible-Duplicate", "perhaps"),
        ("Tocsin-Completion-Token", "a b"),
        ("Tocsin-Run-Id", "rn 1"),
    ],
)
def test_what_is_malformed_is_named(name: str, value: str) -> None:
    refused = refusal(Call(), Verifier(SECRET, clock=Clock()), **{name: value})
    assert (refused.reason, refused.status) == ("malformed", 400)
    assert name.lower() in refused.detail


def test_a_header_that_came_twice_is_refused() -> None:
    call = Call()
    pairs = [*call.headers().items(), ("Webhook-Id", call.key)]
    with pytest.raises(Refused) as caught:
        Verifier(SECRET, clock=Clock()).verify(pairs, call.body)
    assert caught.value.reason == "repeated"


def test_the_border_of_id_and_time_cannot_be_moved() -> None:
    call = Call(body=b"%d.stolen" % NOW_S)
    moved = {"webhook-id": f"{call.key}.{NOW_S}", "Idempotency-Key": f"{call.key}.{NOW_S}"}
    with pytest.raises(Refused) as caught:
        Verifier(SECRET, clock=Clock()).verify(call.headers() | moved, b"stolen")
    assert caught.value.reason == "malformed"


def test_another_spelling_of_the_right_time_is_refused() -> None:
    verifier = Verifier(SECRET, clock=Clock())
    assert refusal(Call(), verifier, **{"webhook-timestamp": f"0{NOW_S}"}).reason == "forged"


def test_another_spelling_of_the_right_signature_is_refused() -> None:
    """Base64 has unused bits: 43 characters and '=' hold 32 bytes and 2 bits more."""
    call = Call()
    right = call.headers()["webhook-signature"]
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    other = right[:-2] + alphabet[alphabet.index(right[-2]) ^ 1] + "="
    assert base64.b64decode(other[3:]) == base64.b64decode(right[3:])
    verifier = Verifier(SECRET, clock=Clock())
    assert refusal(call, verifier, **{"webhook-signature": other}).reason == "forged"


@pytest.mark.parametrize(
    ("secret", "says"),
    [
        ("c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0", "whsec_"),
        ("whsec_not base64!", "base64"),
        ("whsec_é", "base64"),
        ("whsec_c2hvcnQ=", "24 to 64 bytes"),
        ("whpk_c2hvcnQ=", "32 bytes"),
        ("whsk_c2hvcnQ=", "whpk_"),
        ((), "at least one"),
    ],
)
def test_a_wrong_secret_is_refused_and_not_shown(secret: str, says: str) -> None:
    with pytest.raises(ValueError, match=says) as caught:
        Verifier(secret)
    assert "c2" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_without_cryptography_the_kit_works_and_says_what_public_keys_need() -> None:
    script = f"""
import sys
sys.path.insert(0, {str(KIT)!r})
sys.modules["cryptography"] = None
from tocsin_receiver import Verifier
Verifier({SECRET!r})
try:
    Verifier({PUBLIC!r})
except ImportError as error:
    print(error)
"""
    said = subprocess.run(
        (sys.executable, "-I", "-c", script), capture_output=True, text=True, check=True, timeout=60
    )
    assert "tocsin-receiver[ed25519]" in said.stdout
