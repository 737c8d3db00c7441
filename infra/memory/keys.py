"""API keys in memory."""

from domain.tenant import KeyRecord


class MemoryKeys:
    """`commandside.ports.Keys`."""

    def __init__(self) -> None:
        self._records: dict[str, KeyRecord] = {}

    def add(self, record: KeyRecord) -> None:
        """Store a key, or what has become of it."""
        self._records[record.kid] = record

    async def find(self, kid: str) -> KeyRecord | None:
        """Return the key as it is stored."""
        return self._records.get(kid)
