"""Whatever a request holds, the kit refuses it with its own error; one bit decides."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.receiver.calls import NOW_S, PUBLIC, SECRET, Call, Clock, ed25519_signature
from tocsin_receiver import Refused, Verifier
from tocsin_receiver.headers import KNOWN, environ_headers

BOTH = Verifier([SECRET, PUBLIC], clock=Clock())
CALL = Call()
SIGNATURES = {
    "v1": CALL.headers()["webhook-signature"],
    "v1a": ed25519_signature(CALL.key, NOW_S, CALL.body),
}

names = st.sampled_from(sorted(KNOWN)) | st.text(max_size=30)
values = st.text(max_size=60) | st.sampled_from(
    [*CALL.headers().values(), *SIGNATURES.values(), "v1,", "v1a,", "v1," + "A" * 44, "9" * 400]
)
texts = st.tuples(names, values)
raw = st.tuples(st.binary(max_size=30), st.binary(max_size=80))
named_raw = st.tuples(st.sampled_from([n.encode() for n in sorted(KNOWN)]), st.binary(max_size=80))


@given(st.lists(texts | raw | named_raw, max_size=20), st.binary(max_size=200))
def test_arbitrary_headers_and_bodies_are_refused_by_our_error_alone(
    headers: list[tuple[str | bytes, str | bytes]], body: bytes
) -> None:
    with pytest.raises(Refused) as caught:
        BOTH.verify(headers, body)
    assert 400 <= caught.value.status < 500


@given(st.dictionaries(st.sampled_from(sorted(CALL.headers())), values), st.booleans())
def test_a_signed_call_with_any_other_values_is_read_or_refused(
    changed: dict[str, str], drop: bool
) -> None:
    headers = {n: v for n, v in CALL.headers().items() if not (drop and n in changed)}
    try:
        delivery = BOTH.verify(headers if drop else headers | changed, CALL.body)
    except Refused:
        return
    assert (delivery.key, delivery.body) == (CALL.key, CALL.body)


@given(st.dictionaries(st.text(max_size=20) | st.just("HTTP_WEBHOOK_ID"), st.text(max_size=30)))
def test_any_wsgi_environment_is_read(environ: dict[str, str]) -> None:
    with pytest.raises(Refused):
        BOTH.verify(environ_headers(environ), b"")


def flipped(text: bytes, bit: int) -> bytes:
    """Return the bytes with one bit turned over."""
    found = bytearray(text)
    found[bit // 8 % len(found)] ^= 1 << bit % 8
    return bytes(found)


@pytest.mark.parametrize("scheme", SIGNATURES)
@given(bit=st.integers(0, 4_000))
def test_a_flipped_bit_of_the_body_is_refused(scheme: str, bit: int) -> None:
    headers = CALL.headers() | {"webhook-signature": SIGNATURES[scheme]}
    assert BOTH.verify(headers, CALL.body).key == CALL.key
    with pytest.raises(Refused):
        BOTH.verify(headers, flipped(CALL.body, bit))


@pytest.mark.parametrize("scheme", SIGNATURES)
@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_every_flipped_bit_of_what_is_signed_by_is_refused(scheme: str, name: str) -> None:
    headers = CALL.headers() | {"webhook-signature": SIGNATURES[scheme]}
    # Alone, it is the signature that refuses, and not that the two keys differ.
    del headers["Idempotency-Key"]
    pairs = {n.lower().encode(): v.encode() for n, v in headers.items()}
    right = pairs[name.encode()]
    for bit in range(8 * len(right)):
        with pytest.raises(Refused):
            BOTH.verify([*(pairs | {name.encode(): flipped(right, bit)}).items()], CALL.body)
