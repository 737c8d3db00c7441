"""Verifies that a request comes from who has the secret, is fresh, and is as it was sent."""

import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from tocsin_receiver.delivery import Delivery, message_id, read_delivery
from tocsin_receiver.headers import Headers, known_headers
from tocsin_receiver.keys import parse_keys
from tocsin_receiver.refused import Refused

TOLERANCE_S: Final = 300.0
"""What Standard Webhooks says: room for clocks that differ, and not for much of a replay."""

SIGNATURES_MAX: Final = 16
"""Each costs a comparison with each key; a rotation has two."""

# Eleven digits reach the year 5138, and are within what a datetime can say.
_SECONDS: Final = re.compile(r"[0-9]{1,11}")

Clock = Callable[[], float]
"""Returns seconds since the epoch, as `time.time` does."""


class Verifier:
    """Verifies Standard Webhooks signatures (`v1`, `v1a`); several secrets are a rotation."""

    def __init__(
        self,
        secrets: str | Iterable[str],
        *,
        tolerance_s: float = TOLERANCE_S,
        clock: Clock = time.time,
    ) -> None:
        """Raise ValueError for a wrong secret, ImportError where `whpk_` lacks its package."""
        self._keys = parse_keys(secrets)
        self._tolerance_s = tolerance_s
        self._clock = clock

    def verify(self, headers: Headers, body: bytes) -> Delivery:
        """Return what a request says; raise Refused, and nothing else, whatever it holds."""
        known = known_headers(headers)
        for name in ("webhook-id", "webhook-timestamp", "webhook-signature"):
            if not known.get(name):
                raise Refused("missing", f"{name} is missing: the request is not signed")
        key = message_id(known)
        sent = known["webhook-timestamp"]
        if not _SECONDS.fullmatch(sent):
            raise Refused("malformed", "webhook-timestamp is not whole seconds since the epoch")
        self._check_signature(known, f"{key}.{sent}.".encode("ascii") + body)
        self._check_age(int(sent))
        return read_delivery(known, key, int(sent), body)

    def _check_age(self, sent_s: int) -> None:
        age_s = self._clock() - sent_s
        if age_s > self._tolerance_s:
            raise Refused(
                "too_old",
                f"sent {age_s:.0f} s ago by our clock: at most {self._tolerance_s:g} s are taken",
            )
        if age_s < -self._tolerance_s:
            raise Refused(
                "too_new",
                f"sent {-age_s:.0f} s from now by our clock: at most"
                f" {self._tolerance_s:g} s are taken",
            )

    def _check_signature(self, headers: Mapping[str, str], signed: bytes) -> None:
        parts = headers["webhook-signature"].split(" ", SIGNATURES_MAX)
        if len(parts) > SIGNATURES_MAX:
            raise Refused("malformed", f"webhook-signature holds more than {SIGNATURES_MAX}")
        right = False
        for part in parts:
            scheme, _, signature = part.partition(",")
            for key in self._keys:
                if key.scheme == scheme:
                    right |= key.verifies(signed, signature)
        if not right:
            raise Refused(
                "forged", "no signature matches: is the secret the tenant's, and the body as sent?"
            )
