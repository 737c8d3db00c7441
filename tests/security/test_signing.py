"""Signatures are those of Standard Webhooks, so that any of its libraries verifies them."""

import base64
import datetime as dt

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from standardwebhooks import Webhook

from commandside.secret_port import V1, V1A
from infra.signing import format_secret, parse_secret, shown, signature, signer

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
MESSAGE = "msg_p5jXN8AQM9LWM0D4loKWxJek"
BODY = b'{"test": 2432232314}'


def test_the_published_vector_is_met() -> None:
    signed = signature([signer(V1, parse_secret(SECRET))], MESSAGE, 1614265330, BODY)
    assert signed == b"v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_during_a_rotation_either_secret_verifies() -> None:
    keys = [b"n" * 24, b"o" * 64]
    seconds = int(dt.datetime.now(dt.UTC).timestamp())
    signed = signature([signer(V1, key) for key in keys], MESSAGE, seconds, BODY)
    headers = {
        "webhook-id": MESSAGE,
        "webhook-timestamp": str(seconds),
        "webhook-signature": signed.decode(),
    }
    for key in keys:
        assert Webhook(format_secret(key)).verify(BODY, headers) == {"test": 2432232314}


def test_the_public_key_that_is_shown_verifies() -> None:
    key = bytes(range(32))
    scheme, _, signed = signature([signer(V1A, key)], MESSAGE, 7, BODY).partition(b",")
    public = base64.b64decode(shown(V1A, key).removeprefix("whpk_"))
    Ed25519PublicKey.from_public_bytes(public).verify(
        base64.b64decode(signed), b"%b.7.%b" % (MESSAGE.encode(), BODY)
    )
    assert scheme == b"v1a"


def test_a_shared_secret_is_shown_as_it_is_parsed() -> None:
    assert parse_secret(shown(V1, bytes(range(32)))) == bytes(range(32))


@pytest.mark.parametrize(
    "text", ["", "MfKQ9r8G", "whsec_", "whsec_!!!!", "whsec_" + "A" * 28, "whsec_" + "A" * 92]
)
def test_what_is_no_secret_is_refused_without_being_repeated(text: str) -> None:
    with pytest.raises(ValueError) as refused:
        parse_secret(text)
    assert not text or text == "whsec_" or text not in str(refused.value)
