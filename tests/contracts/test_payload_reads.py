"""Reads of large payloads in memory, and in threads."""

import select
from collections.abc import Iterator

import pytest

from commandside.payload_port import PayloadRead, PayloadReads
from infra.memory.payloads import MemoryPayloadReads, MemoryPayloadStore
from infra.objects.reads import ThreadedPayloadReads
from tests.contracts.payload_reads import PayloadReadsContract

WAIT_S = 30.0


class TestMemoryPayloadReads(PayloadReadsContract):
    """In memory."""

    @pytest.fixture
    def reads(self, store: MemoryPayloadStore) -> MemoryPayloadReads:
        return MemoryPayloadReads(store)

    def poll(self, reads: PayloadReads) -> list[PayloadRead]:
        return reads.poll()


class TestThreadedPayloadReads(PayloadReadsContract):
    """In threads."""

    @pytest.fixture
    def reads(self, store: MemoryPayloadStore) -> Iterator[ThreadedPayloadReads]:
        reads = ThreadedPayloadReads(store)
        yield reads
        reads.close()

    def poll(self, reads: PayloadReads) -> list[PayloadRead]:
        assert isinstance(reads, ThreadedPayloadReads)
        readable, _, _ = select.select([reads.fileno()], [], [], WAIT_S)
        assert readable, "no read ends"
        return reads.poll()
