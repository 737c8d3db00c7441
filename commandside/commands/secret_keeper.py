"""The store of secrets for the event loop, which must not wait for a database that is away."""

import asyncio
from collections.abc import Callable, Collection
from typing import Final, TypeVar

from commandside.ports import Unavailable
from commandside.secret_port import Judged, SecretStore, TooManyKeys
from commandside.turns import in_turn
from domain.problem import Problem

TURN_S: Final = 3.0
"""Whoever has waited so long for the store is answered that it is away."""
Found = TypeVar("Found")


class SecretKeeper:
    """The store, off the event loop: it blocks, and is one caller's at a time."""

    def __init__(self, store: SecretStore) -> None:
        self.store = store
        self._turn = asyncio.Lock()

    async def ask(self, question: Callable[..., Found], *words: object) -> Found:
        """Ask a question of the store; raises Problem, Unavailable."""
        crowded = Unavailable("too many wait for the store of secrets")
        async with in_turn(self._turn, TURN_S, crowded):
            try:
                return await asyncio.to_thread(question, *words)
            except TooManyKeys as error:
                raise Problem("too_many", str(error)) from error

    async def judged(self, tenant_id: bytes, names: Collection[str]) -> Judged:
        """Return what a definition may know of these secrets; raises Unavailable."""
        if not names:
            return Judged()
        return await self.ask(self.store.judged, tenant_id, sorted(names))
