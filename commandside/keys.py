"""Who asks: a bearer key is looked up, compared, and remembered for a moment."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from commandside.ports import Keys
from domain.tenant import ApiKey, Caller, KeyRecord, admit, parse_key

REMEMBERED_MS: Final = 3_000
"""A revoked key is refused everywhere within 5 s; this leaves room for the look-up."""
REMEMBERED_MAX: Final = 10_000
_SCHEME: Final = "bearer "
_NO_KEY: Final = ApiKey("none", "0" * 16, bytes(32))


class KeyRing:
    """Keys as they were found in the last REMEMBERED_MS, unknown ones too."""

    def __init__(self, keys: Keys, pepper: bytes, now: Callable[[], int]) -> None:
        """`now` is ms of the database clock as estimated; `pepper` never leaves the process."""
        self._keys = keys
        self._pepper = pepper
        self._now = now
        self._found: OrderedDict[str, tuple[int, KeyRecord | None]] = OrderedDict()

    async def caller(self, authorization: str) -> Caller | None:
        """Return who an `Authorization` header stands for; raises Unavailable.

        Whatever is wrong with it, the answer is None, after the same comparison.
        """
        bearer = authorization[: len(_SCHEME)].lower() == _SCHEME
        key = parse_key(authorization[len(_SCHEME) :].strip(" ")) if bearer else None
        at = self._now()
        if key is None:
            return admit(_NO_KEY, None, self._pepper, at)
        return admit(key, await self._record(key.kid, at), self._pepper, at)

    async def _record(self, kid: str, at: int) -> KeyRecord | None:
        found = self._found.get(kid)
        # A clock that was set back must not make an entry live on.
        if found is not None and found[0] - REMEMBERED_MS <= at < found[0]:
            return found[1]
        record = await self._keys.find(kid)
        self._found[kid] = (at + REMEMBERED_MS, record)
        self._found.move_to_end(kid)
        if len(self._found) > REMEMBERED_MAX:
            self._found.popitem(last=False)
        return record
