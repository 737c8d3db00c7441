"""The spread of fires around their slot: a fixed offset for each job, drawn from its id or chosen.

A job's offset never changes, so its fires keep their distance, and every node computes the same
one without asking. It is capped at half-way to the next slot, so the order of slots is kept.
"""

from collections.abc import Mapping
from hashlib import blake2b

from domain.instant import LAST, SECOND

_PERSON = b"tocsin jitter"
_DIGEST_BYTES = 8


def jitter_ms(job_id: bytes, max_ms: int) -> int:
    """Milliseconds in [0, max_ms] for this job, uniform over job ids; 0 if `max_ms` is 0."""
    if max_ms <= 0:
        return 0
    digest = blake2b(job_id, digest_size=_DIGEST_BYTES, person=_PERSON).digest()
    return int.from_bytes(digest, "big") * (max_ms + 1) >> (8 * _DIGEST_BYTES)


def emptiest(job_id: bytes, load: Mapping[int, int], nominal: int, most_ms: int) -> int:
    """Milliseconds in [0, most_ms] from a slot to the second with the least load.

    `load` is fires by second since the epoch. Of seconds that are alike the job's id draws one.
    """
    first, last = nominal // SECOND, (nominal + most_ms) // SECOND
    least = min(load.get(second, 0) for second in range(first, last + 1))
    alike = [second for second in range(first, last + 1) if load.get(second, 0) == least]
    second = alike[jitter_ms(job_id, len(alike) - 1)]
    return max(0, second * SECOND - nominal)


def due_at(nominal: int, next_slot: int | None, jitter: int) -> int:
    """When the slot `nominal` is due, in ms: never past half-way to the slot after it.

    Nor past the last instant that has a text.
    """
    if next_slot is not None:
        jitter = min(jitter, (next_slot - nominal) // 2)
    return min(nominal + jitter, LAST)
