"""One after the other, and nobody waits for ever."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


@asynccontextmanager
async def in_turn(
    turns: asyncio.Lock | asyncio.Semaphore, wait_s: float, refusal: Exception
) -> AsyncIterator[None]:
    """Hold a turn for the block; raises `refusal` where none has come within `wait_s`."""
    try:
        async with asyncio.timeout(wait_s):
            await turns.acquire()
    except TimeoutError:
        raise refusal from None
    try:
        yield
    finally:
        turns.release()
