"""The store in Redis, on a real Redis and a real Valkey."""

from collections.abc import Iterator

import pytest
import redis

from tests.conftest import engine_missing
from tests.engines import redis_servers
from tests.receiver.store_contract import FIRST, KEEP_MS, StoreContract
from tocsin_receiver import RedisStore


@pytest.fixture(scope="module", params=["redis", "valkey"])
def port(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a server of either kind."""
    try:
        redis_servers.server(request.param)
    except redis_servers.RedisMissing as missing:
        engine_missing(str(missing))
    with redis_servers.start(request.param, tmp_path_factory.mktemp(request.param)) as found:
        yield found


@pytest.fixture(params=[False, True])
def client(request: pytest.FixtureRequest, port: int) -> Iterator[redis.Redis]:
    """A client of an empty server, which decodes answers or does not."""
    with redis.Redis("127.0.0.1", port, decode_responses=request.param) as found:
        found.flushall()
        yield found


class TestRedisStore(StoreContract):
    @pytest.fixture
    def store(self, client: redis.Redis) -> RedisStore:
        return RedisStore(client)

    def test_keys_are_below_the_prefix_and_expire(self, client: redis.Redis) -> None:
        store = RedisStore(client, prefix="mine:")
        assert store.swap("k", None, FIRST, KEEP_MS)
        assert client.exists("mine:k") == client.dbsize() == 1
        assert 0 < int(client.pttl("mine:k")) <= KEEP_MS
        assert store.swap("k", FIRST, FIRST, 2 * KEEP_MS)
        assert KEEP_MS < int(client.pttl("mine:k")) <= 2 * KEEP_MS

    def test_another_programs_value_is_no_record(self, client: redis.Redis) -> None:
        client.set("tocsin:k", '{"theirs":1}')
        with pytest.raises(ValueError, match="not a record"):
            RedisStore(client).load("k")
