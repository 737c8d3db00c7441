"""The spread of fires around their slot: a fixed offset for each job, drawn from its id.

A job's offset never changes, so its fires keep their distance, and every node computes the same
one without asking. It is capped at half-way to the next slot, so the order of slots is kept.
"""

from hashlib import blake2b

from domain.instant import LAST

_PERSON = b"tocsin jitter"
_DIGEST_BYTES = 8


def jitter_ms(job_id: bytes, max_ms: int) -> int:
    """Milliseconds in [0, max_ms] for this job, uniform over job ids; 0 if `max_ms` is 0."""
    if max_ms <= 0:
        return 0
    digest = blake2b(job_id, digest_size=_DIGEST_BYTES, person=_PERSON).digest()
    return int.from_bytes(digest, "big") * (max_ms + 1) >> (8 * _DIGEST_BYTES)


def due_at(nominal: int, next_slot: int | None, jitter: int) -> int:
    """When the slot `nominal` is due, in ms: never past half-way to the slot after it.

    Nor past the last instant that has a text.
    """
    if next_slot is not None:
        jitter = min(jitter, (next_slot - nominal) // 2)
    return min(nominal + jitter, LAST)
