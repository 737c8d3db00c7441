"""A payload store that hangs takes no threads from what has nothing to do with it."""

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from commandside.commands import payloads
from commandside.commands.payloads import READERS, WRITERS, Payloads, ShownPayloads
from commandside.definitions.sealing import Body
from commandside.payload_port import PayloadObject
from domain.payload import UNAVAILABLE, ref_of
from infra.faults import NoFaults
from infra.memory.payloads import MemoryPayloadList

SEALED = b"sealed"
OBJECT = PayloadObject(b"t" * 16, b"j" * 16, ref_of(SEALED))
HANG_S = 20.0


class Hanging:
    """A store that answers nobody until it is let go."""

    def __init__(self) -> None:
        self.go = threading.Event()

    def put(self, objects: Sequence[tuple[PayloadObject, bytes]]) -> None:
        assert self.go.wait(HANG_S), f"nobody let {objects} go"

    def get(self, wanted: Sequence[PayloadObject]) -> list[bytes | None]:
        assert self.go.wait(HANG_S), f"nobody let {wanted} go"
        return [SEALED]

    def delete(self, objects: Sequence[PayloadObject]) -> None:
        raise AssertionError(objects)


async def asked_meanwhile(store: Hanging, tasks: Sequence[asyncio.Task[object]]) -> list[object]:
    """Ask for the one thread that others have while the store hangs; return what came of tasks."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    try:
        await asyncio.sleep(0)  # they begin
        assert await asyncio.wait_for(asyncio.to_thread(lambda: "answered"), HANG_S / 2)
        assert not any(task.done() for task in tasks)
    finally:
        store.go.set()
    return await asyncio.gather(*tasks, return_exceptions=True)


def test_jobs_that_are_shown_while_the_store_hangs_hold_up_only_each_other() -> None:
    async def play() -> list[object]:
        store = Hanging()
        shown = ShownPayloads(store)
        place = (OBJECT.tenant_id, OBJECT.job_id, OBJECT.ref)
        tasks = [asyncio.create_task(shown.fetch(*place)) for _ in range(2 * READERS)]
        return await asked_meanwhile(store, tasks)

    assert asyncio.run(play()) == [SEALED] * (2 * READERS)


def test_who_waits_too_long_to_see_a_body_sees_that_the_store_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(payloads, "TURN_S", 0.0)

    async def play() -> list[object]:
        store = Hanging()
        shown = ShownPayloads(store)
        place = (OBJECT.tenant_id, OBJECT.job_id, OBJECT.ref)
        begun = [asyncio.create_task(shown.fetch(*place)) for _ in range(READERS)]
        await asyncio.sleep(0)
        late = await shown.fetch(*place)
        store.go.set()
        return [late, *await asyncio.gather(*begun)]

    assert asyncio.run(play()) == [UNAVAILABLE] + [SEALED] * READERS


def test_bodies_that_are_written_while_the_store_hangs_hold_up_only_each_other() -> None:
    async def play() -> list[object]:
        store = Hanging()
        writer = Payloads(store, MemoryPayloadList(lambda: 1_000), NoFaults())
        bodies = [Body(OBJECT, SEALED, b"digest", b"sealed digest") for _ in range(2 * WRITERS)]
        tasks = [asyncio.create_task(writer.write((body,))) for body in bodies]
        return await asked_meanwhile(store, tasks)

    assert asyncio.run(play()) == [None] * (2 * WRITERS)
