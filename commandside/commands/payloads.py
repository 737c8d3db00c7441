"""Large payloads on their way into the store, before the decision that names them, and back.

Noted, written, named, in this order; each step is durable before the next one. Whoever stops in
between leaves an object that no event names, which is collected. A decision names an object only
within APPEND_WITHIN_MS of its noting, and nobody looks at one before GRACE_MS: what was collected
can never be named, however long a process sleeps.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

import msgspec

from commandside.command_port import CommandLog
from commandside.commands.begun import Begun
from commandside.definitions.sealing import Body, Unwritten
from commandside.fault_points import PAYLOAD_NOTED, PAYLOAD_WRITTEN
from commandside.payload_port import (
    APPEND_WITHIN_MS,
    INLINE_BYTES_MAX,
    PayloadList,
    PayloadObject,
    PayloadStore,
    StoreAway,
)
from commandside.ports import FaultPoint, Unavailable
from commandside.turns import in_turn
from domain.envelope import Decision
from domain.job import decide
from domain.job.events import JobSpec
from domain.payload import UNAVAILABLE, PayloadRef, judged

WRITERS: Final = 4
"""Groups of objects on their way at once."""
READERS: Final = 4
"""Objects that are read at once to be shown."""
TURN_S: Final = 3.0
"""Whoever has waited so long for the store is answered that it is away."""
AWAY: Final = (
    "payloads of this size cannot be stored now; smaller ones are taken, and this one again later"
)
_Outcome = TypeVar("_Outcome")


class Payloads:
    """Writes bodies; raises StoreAway, Unavailable."""

    def __init__(
        self,
        store: PayloadStore,
        written: PayloadList,
        faults: FaultPoint,
        *,
        inline_max: int = INLINE_BYTES_MAX,
    ) -> None:
        """`inline_max`: bytes of a body that are kept in its job's events."""
        self._store, self._list, self._faults = store, written, faults
        self.inline_max = inline_max
        self._turns = asyncio.Semaphore(WRITERS)
        # Of its own: a store that hangs must not keep what has nothing to do with it from threads.
        self._threads = ThreadPoolExecutor(WRITERS, thread_name_prefix="payloads written")

    async def write(self, bodies: Sequence[Body]) -> None:
        """Write bodies that are about to be named."""
        async with in_turn(self._turns, TURN_S, StoreAway(AWAY)):
            noted_at = await self._list.note([body.object for body in bodies])
            self._faults.hit(PAYLOAD_NOTED)
            objects = [(body.object, body.data) for body in bodies]
            try:
                await asyncio.get_running_loop().run_in_executor(
                    self._threads, self._store.put, objects
                )
            except StoreAway as error:
                raise StoreAway(AWAY) from error
            self._faults.hit(PAYLOAD_WRITTEN)
        for body in bodies:
            body.not_after = noted_at + APPEND_WITHIN_MS

    async def write_for(self, log: CommandLog, begun: Sequence[Begun]) -> None:
        """Write the bodies of definitions; where one cannot be written, that is the outcome.

        A job that is there already is not defined: its revision writes what it needs.
        """
        large = [one for one in begun if one.body is not None and one.decision is not None]
        if not large:
            return
        try:
            there = await asyncio.gather(*(_is_there(log, one) for one in large))
            new = [one for one, is_there in zip(large, there, strict=True) if not is_there]
            if new:
                await self.write([one.body for one in new if one.body is not None])
        except Unavailable as error:
            for one in large:
                one.outcome, one.decision = error, None
            return
        for one in new:
            assert one.body is not None
            assert one.decision is not None
            one.decision = msgspec.structs.replace(one.decision, not_after=one.body.not_after)


class ShownPayloads:
    """Reads bodies for those who look at jobs; a store that is slow keeps nobody else waiting."""

    def __init__(self, store: PayloadStore) -> None:
        self._store = store
        self._turns = asyncio.Semaphore(READERS)
        self._threads = ThreadPoolExecutor(READERS, thread_name_prefix="payloads shown")

    async def fetch(self, tenant_id: bytes, job_id: bytes, ref: PayloadRef) -> bytes | str:
        """Return a body as it is sealed, or a reason of `domain.payload`."""
        wanted = (PayloadObject(tenant_id, job_id, ref),)
        try:
            async with in_turn(self._turns, TURN_S, StoreAway(AWAY)):
                (found,) = await asyncio.get_running_loop().run_in_executor(
                    self._threads, self._store.get, wanted
                )
        except StoreAway:
            return UNAVAILABLE
        return judged(ref, found)


async def _is_there(log: CommandLog, one: Begun) -> bool:
    """Tell whether a definition names a job that exists; without a name, it makes a new one."""
    named = one.key or one.sent.idempotency_key
    return bool(named) and await log.standing(one.asked.job_id) is not None


class Writing:
    """The large body of one command on a job, written when the command turns out to need it."""

    def __init__(self, payloads: Payloads, body: Body | None = None) -> None:
        """`body`: one that is sealed already, written or not."""
        self._payloads = payloads
        self.body = body

    async def around(self, command: Callable[[], Awaitable[_Outcome]]) -> _Outcome:
        """Run a command, and again with its body written."""
        try:
            return await command()
        except Unwritten as needs:
            self.body = needs.body
            await self._payloads.write((needs.body,))
            return await command()

    def check(self, spec: JobSpec) -> None:
        """Raise Unwritten where a spec names a body of this command that is not written yet."""
        if spec.payload_ref is None:
            return
        if self.body is None:
            raise Unavailable("the job was cancelled while it was defined again")
        if not self.body.not_after:
            raise Unwritten(self.body)

    def named(self, outcome: decide.Outcome) -> decide.Outcome:
        """Return a decision that is committed only while its object is certain to be there."""
        if self.body is None or not self.body.not_after or not isinstance(outcome, Decision):
            return outcome
        return msgspec.structs.replace(outcome, not_after=self.body.not_after)
