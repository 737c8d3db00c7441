"""Records in Redis or Valkey, through the client that the service has."""

from typing import Any, Final

from tocsin_receiver.record import Record

PREFIX: Final = "tocsin:"

_REPLACE: Final = """\
if redis.call('get', KEYS[1]) == ARGV[1] then
    redis.call('set', KEYS[1], ARGV[2], 'PX', ARGV[3])
    return 1
end
return 0"""


class RedisStore:
    """Keeps each record in one string that expires; the client is yours (`redis.Redis`).

    A key is one Redis key, so a cluster may hold it anywhere. Replication is asynchronous: a
    fail-over may forget what was written just before, and a handler may then run again.
    """

    blocks = True

    def __init__(self, client: Any, *, prefix: str = PREFIX) -> None:
        self._client = client
        self._prefix = prefix

    def load(self, key: str) -> Record | None:
        """Return the record of a key, or None."""
        text = self._client.get(self._prefix + key)
        if text is None:
            return None
        return Record.from_text(text.decode() if isinstance(text, bytes) else text)

    def swap(self, key: str, old: Record | None, new: Record, keep_ms: int) -> bool:
        """Put `new` in the place of `old` in one command."""
        name = self._prefix + key
        if old is None:
            return bool(self._client.set(name, new.to_text(), nx=True, px=keep_ms))
        found = self._client.eval(_REPLACE, 1, name, old.to_text(), new.to_text(), keep_ms)
        return bool(found)
