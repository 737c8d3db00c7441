"""Signatures are those of Standard Webhooks, so that any of its libraries verifies them."""

import datetime as dt

import pytest
from standardwebhooks import Webhook

from infra.targets.sign import format_secret, parse_secret, signature, webhook_headers

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
MESSAGE = "msg_p5jXN8AQM9LWM0D4loKWxJek"
BODY = b'{"test": 2432232314}'


def test_the_published_vector_is_met() -> None:
    signed = signature([parse_secret(SECRET)], MESSAGE, 1614265330, BODY)
    assert signed == b"v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_during_a_rotation_either_secret_verifies() -> None:
    keys = [b"n" * 24, b"o" * 64]
    seconds = int(dt.datetime.now(dt.UTC).timestamp())
    headers = dict(
        line.decode().split(": ", 1) for line in webhook_headers(keys, MESSAGE, seconds, BODY)
    )
    for key in keys:
        assert Webhook(format_secret(key)).verify(BODY, headers) == {"test": 2432232314}


def test_a_tenant_without_secrets_gets_no_signature() -> None:
    lines = webhook_headers([], MESSAGE, 1, BODY)
    assert [line.split(b":")[0] for line in lines] == [b"webhook-id", b"webhook-timestamp"]


def test_a_secret_survives_its_text_form() -> None:
    assert parse_secret(format_secret(bytes(range(32)))) == bytes(range(32))


@pytest.mark.parametrize(
    "text", ["", "MfKQ9r8G", "whsec_", "whsec_!!!!", "whsec_" + "A" * 28, "whsec_" + "A" * 92]
)
def test_what_is_no_secret_is_refused_without_being_repeated(text: str) -> None:
    with pytest.raises(ValueError) as refused:
        parse_secret(text)
    assert not text or text == "whsec_" or text not in str(refused.value)
