"""The library's own published recorder tests, and ours, on real Postgres."""

import itertools
from collections.abc import Iterator
from uuid import UUID, uuid5

import pytest
from eventsourcing.persistence import ApplicationRecorder, IntegrityError, StoredEvent
from eventsourcing.tests.persistence import (
    ApplicationRecorderTestCase,
    NonInterleavingNotificationIDsBaseCase,
)

from infra.postgres.recorder import ShardRecorder, datastore

_NAMESPACE = UUID(int=7)
_numbers = itertools.count()


def _id() -> UUID:
    return uuid5(_NAMESPACE, str(next(_numbers)))


class _OnPostgres:
    @pytest.fixture(autouse=True)
    def _database(self, log_database: str) -> Iterator[None]:
        self.store = datastore(log_database)
        yield
        self.store.close()

    def new_originator_id(self) -> UUID:
        return _id()

    def create_recorder(self) -> ApplicationRecorder:
        return ShardRecorder(self.store)


class TestPublishedApplicationRecorder(_OnPostgres, ApplicationRecorderTestCase):
    """With one shard the library's contract holds as it stands."""


class TestPublishedOrderOfNotifications(_OnPostgres, NonInterleavingNotificationIDsBaseCase):
    """No batch of one writer is interleaved with another's."""


del ApplicationRecorderTestCase, NonInterleavingNotificationIDsBaseCase


@pytest.fixture
def recorders(log_database: str) -> Iterator[list[ShardRecorder]]:
    store = datastore(log_database)
    yield [ShardRecorder(store, shards=4, shard=shard) for shard in range(4)]
    store.close()


def test_each_shard_has_its_own_feed_in_commit_order(recorders: list[ShardRecorder]) -> None:
    streams = [UUID(int=shard << 96) for shard in range(4)]
    for version in (1, 2):
        for stream in streams:
            recorders[0].insert_events([StoredEvent(stream, version, "t", b"")])
    for shard, recorder in enumerate(recorders):
        feed = recorder.select_notifications(None, 10)
        assert [(n.originator_id, n.originator_version) for n in feed] == [
            (streams[shard], 1),
            (streams[shard], 2),
        ]


def test_a_version_that_exists_rolls_back_the_whole_batch(recorders: list[ShardRecorder]) -> None:
    stream = _id()
    recorders[0].insert_events([StoredEvent(stream, 1, "t", b"first")])
    with pytest.raises(IntegrityError):
        recorders[0].insert_events(
            [StoredEvent(_id(), 1, "t", b""), StoredEvent(stream, 1, "t", b"")]
        )
    assert [e.state for e in recorders[0].select_events(stream)] == [b"first"]
    assert sum(len(r.select_notifications(None, 10)) for r in recorders) == 1
