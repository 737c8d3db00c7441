"""What every list of large payloads does; each adapter runs the suite."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from commandside.payload_port import AGAIN_MS, GRACE_MS, LOOKED_AT_MS, PayloadList, PayloadObject
from tests.contracts.payload_store import written

Found = TypeVar("Found")


def run(work: Coroutine[Any, Any, Found]) -> Found:
    return asyncio.run(work)


def some(count: int) -> list[PayloadObject]:
    return [written(100)[0] for _ in range(count)]


def taken(listed: PayloadList, limit: int = 10) -> list[PayloadObject]:
    return [one.object for one in run(listed.take(limit))]


class PayloadListContract(ABC):
    """A subclass says how a list is made, and lets time pass for it."""

    @pytest.fixture
    @abstractmethod
    def listed(self) -> PayloadList: ...

    @abstractmethod
    def now(self) -> int:
        """The instant by the list's clock, ms."""

    @abstractmethod
    def later(self, ms: int) -> None:
        """Let so much time pass for what was noted until now."""

    def test_a_noted_object_is_taken_after_its_grace_and_not_before(
        self, listed: PayloadList
    ) -> None:
        objects = some(3)
        before = self.now()
        assert before <= run(listed.note(objects)) <= self.now()
        self.later(GRACE_MS - 60_000)
        assert taken(listed) == []
        self.later(60_000)
        assert set(taken(listed)) == set(objects)

    def test_what_was_taken_is_taken_by_nobody_else_for_a_while(self, listed: PayloadList) -> None:
        objects = some(3)
        run(listed.note(objects))
        self.later(GRACE_MS)
        first = taken(listed, 2)
        second = taken(listed, 2)
        assert (len(first), len(second)) == (2, 1)
        assert set(first + second) == set(objects)
        assert taken(listed, 2) == []
        self.later(LOOKED_AT_MS)
        assert len(taken(listed)) == 3

    def test_what_is_named_is_taken_again_much_later(self, listed: PayloadList) -> None:
        (one, other) = objects = some(2)
        run(listed.note(objects))
        self.later(GRACE_MS)
        taken(listed)
        run(listed.named([one]))
        self.later(LOOKED_AT_MS)
        assert taken(listed) == [other]
        self.later(AGAIN_MS)
        assert set(taken(listed)) == {one, other}

    def test_what_was_forgotten_is_not_taken(self, listed: PayloadList) -> None:
        (one, other) = objects = some(2)
        run(listed.note(objects))
        run(listed.forget([one]))
        run(listed.forget([one]))
        self.later(GRACE_MS)
        assert taken(listed) == [other]

    def test_what_is_noted_again_begins_its_grace_again(self, listed: PayloadList) -> None:
        objects = some(1)
        run(listed.note(objects))
        self.later(GRACE_MS)
        run(listed.note(objects))
        assert taken(listed) == []

    def test_what_is_unnamed_is_taken_when_it_is_said_and_says_since_when(
        self, listed: PayloadList
    ) -> None:
        objects = some(2)
        run(listed.note(objects))
        self.later(GRACE_MS)
        assert [one.unnamed_since for one in run(listed.take(10))] == [0, 0]
        before = self.now()
        run(listed.unnamed(objects, AGAIN_MS * 3))
        after = self.now()
        self.later(AGAIN_MS * 3 - 60_000)
        assert taken(listed) == []
        self.later(60_000)
        found = run(listed.take(10))
        assert {one.object for one in found} == set(objects)
        assert all(before <= one.unnamed_since <= after for one in found)
        run(listed.unnamed(objects, AGAIN_MS))
        self.later(AGAIN_MS)
        assert run(listed.take(10)) == found
        run(listed.named(objects))
        self.later(AGAIN_MS)
        assert [one.unnamed_since for one in run(listed.take(10))] == [0, 0]
