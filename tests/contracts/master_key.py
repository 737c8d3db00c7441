"""What every master key does; each adapter runs the suite."""

from abc import ABC, abstractmethod

import pytest

from infra.keys.port import KEY_BYTES, MasterKey, MasterKeyError, WrongMaster

KEY = bytes(range(KEY_BYTES))
CONTEXT = b"tenant and number"
REFUSED = (WrongMaster, MasterKeyError)
"""A service may say of a key that is not the right one that it may not be used."""


class MasterKeyContract(ABC):
    """A subclass says how master keys are opened: the same one, or one that is new."""

    @abstractmethod
    def opened(self) -> MasterKey:
        """Return the same key each time, as another process would open it."""

    @abstractmethod
    def other(self) -> MasterKey:
        """Return a key that has wrapped nothing."""

    def test_what_was_wrapped_is_unwrapped_by_another_process(self) -> None:
        wrapped = self.opened().wrap(KEY, CONTEXT)
        assert KEY not in wrapped
        assert self.opened().unwrap(wrapped, CONTEXT) == KEY

    def test_its_name_is_the_same_everywhere_and_no_other_ones(self) -> None:
        assert self.opened().name == self.opened().name
        assert self.opened().name != self.other().name

    def test_nothing_is_wrapped_twice_alike(self) -> None:
        master = self.opened()
        assert master.wrap(KEY, CONTEXT) != master.wrap(KEY, CONTEXT)

    def test_another_key_opens_nothing(self) -> None:
        wrapped = self.opened().wrap(KEY, CONTEXT)
        with pytest.raises(REFUSED):
            self.other().unwrap(wrapped, CONTEXT)

    def test_it_opens_in_no_other_context(self) -> None:
        master = self.opened()
        wrapped = master.wrap(KEY, CONTEXT)
        with pytest.raises(REFUSED):
            master.unwrap(wrapped, b"another tenant")

    @pytest.mark.parametrize("place", [0, 20, -1])
    def test_what_was_altered_is_not_opened(self, place: int) -> None:
        master = self.opened()
        wrapped = bytearray(master.wrap(KEY, CONTEXT))
        wrapped[place] ^= 1
        with pytest.raises(REFUSED):
            master.unwrap(bytes(wrapped), CONTEXT)

    @pytest.mark.parametrize("wrapped", [b"", b"short", bytes(60)])
    def test_what_was_never_wrapped_is_not_opened(self, wrapped: bytes) -> None:
        with pytest.raises(REFUSED):
            self.opened().unwrap(wrapped or b"\x00", CONTEXT)
