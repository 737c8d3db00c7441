"""H of a receiver on a real socket (tests/end_to_end/receiver.py)."""

from hashlib import sha256

from tests.checker.inputs import Hit
from tests.end_to_end.receiver import Receiver


def hits(receiver: Receiver, tenant: bytes = b"") -> list[Hit]:
    """Return what came, and what was answered; the address of each request is its path."""
    found = []
    for got, status, answered_us in receiver.answers:
        headers = dict(got.headers)
        found.append(
            Hit(
                got.at_ms * 1_000,
                bytes.fromhex(headers["tocsin-run-id"].removeprefix("rn_")),
                int(headers["tocsin-attempt"]),
                int(headers["tocsin-fence"]),
                headers["idempotency-key"],
                got.path,
                sha256(got.body).digest(),
                status,
                answered_us,
                headers["webhook-id"],
                tenant,
                tuple(headers.items()),
                "tocsin-possible-duplicate" in headers,
            )
        )
    return found
