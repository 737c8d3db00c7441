"""Who asks: a bearer key is looked up, compared, and remembered for a moment."""

from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b
from typing import Final

from commandside.command_port import Keys
from domain.tenant import ApiKey, Caller, KeyRecord, Shown, admit, parse_key, shown

REMEMBERED_MS: Final = 3_000
"""A revoked key is refused everywhere within 5 s; this leaves room for the look-up."""
REMEMBERED_MAX: Final = 10_000
MARK_BYTES: Final = 32
_SCHEME: Final = "bearer "
_NO_KEY: Final = ApiKey("none", "0" * 16, bytes(32))


class KeyRing:
    """Keys as they were found in the last REMEMBERED_MS, unknown ones too.

    Of a key that was right, the hash that is compared is remembered under another one, which is
    quicker to make; whether it is still right is asked each time.
    """

    def __init__(self, keys: Keys, pepper: bytes, now: Callable[[], int]) -> None:
        """`now` is ms of the database clock as estimated; `pepper` never leaves the process."""
        self._keys = keys
        self._pepper = pepper
        self._now = now
        self._found: OrderedDict[str, tuple[int, KeyRecord | None]] = OrderedDict()
        self._right: OrderedDict[bytes, Shown] = OrderedDict()

    async def caller(self, authorization: str) -> Caller | None:
        """Return who an `Authorization` header stands for; raises Unavailable.

        Whatever is wrong with it, the answer is None, after the same comparison.
        """
        at = self._now()
        mark = blake2b(authorization.encode(), key=self._pepper, digest_size=MARK_BYTES).digest()
        remembered = self._right.get(mark)
        if remembered is not None:
            return admit(remembered, await self._record(remembered.kid, at), at)
        bearer = authorization[: len(_SCHEME)].lower() == _SCHEME
        key = parse_key(authorization[len(_SCHEME) :].strip(" ")) if bearer else None
        if key is None:
            return admit(shown(_NO_KEY, self._pepper), None, at)
        tried = shown(key, self._pepper)
        caller = admit(tried, await self._record(key.kid, at), at)
        if caller is not None:
            self._right[mark] = tried
            if len(self._right) > REMEMBERED_MAX:
                self._right.popitem(last=False)
        return caller

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
