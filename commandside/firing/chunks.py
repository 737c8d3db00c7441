"""Chunks of due rows: what is in one, and when a row is shown and shown again.

Scheduler, auditor, writers, brokers and every due index go by these.
"""

from typing import Final

from domain.instant import MINUTE, SECOND

FORMAT: Final = 1
"""Of chunks and canaries; another one is of a later version and is passed over."""
CHUNK_ENTRIES: Final = 1_000
"""Entries of one message: 60 kB, far under every broker's limit."""
HORIZON_MS: Final = 60 * SECOND
"""How far ahead rows are handed off."""
REHAND_AFTER_MS: Final = 5 * SECOND
"""Past its instant by so much, a row that nobody leased is handed off again."""
REHAND_SPACING_MAX_MS: Final = 5 * MINUTE
"""The distance doubles with every hand-off of the same version, up to this."""
QUEUED_MS_MAX: Final = 2 * MINUTE
"""What was handed off longer ago counts as lost, whatever the broker's offsets say."""
