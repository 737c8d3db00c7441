"""The store of large payloads on obstore: in a folder, and in S3 as moto's server speaks it."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import obstore
import pytest
from obstore.store import S3Store

from commandside.payload_port import PayloadObject, PayloadStore, StoreAway
from infra.objects.store import ObjectPayloadStore, path_of
from tests.contracts.payload_store import PayloadStoreContract, written
from tests.engines.proxy import TcpProxy

BUCKET = "payloads"


class TestFolder(PayloadStoreContract):
    """In a folder."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        return tmp_path / "of tenants" / "payloads"

    @pytest.fixture
    def store(self, folder: Path) -> Iterator[ObjectPayloadStore]:
        store = ObjectPayloadStore(folder.as_uri())
        self.here = folder
        yield store
        store.close()

    def damage(self, store: PayloadStore, wanted: PayloadObject, data: bytes) -> None:
        del store
        (self.here / path_of(wanted)).write_bytes(data)

    def cut_off(self, store: PayloadStore) -> None:
        """Put something in the way, as a disk that is broken."""
        del store
        shutil.rmtree(self.here)
        self.here.write_text("in the way")

    def test_a_folder_that_is_not_the_one_that_was_written_to_is_away(
        self, store: ObjectPayloadStore, folder: Path
    ) -> None:
        wanted, data = written(100)
        store.put([(wanted, data)])
        folder.rename(folder.with_name("elsewhere"))
        folder.mkdir()
        with pytest.raises(StoreAway, match="not the one that was written to"):
            store.get([wanted])
        with pytest.raises(StoreAway, match="not the one that was written to"):
            store.put([written(100)])
        assert list(folder.iterdir()) == []

    def test_a_read_only_process_finds_what_another_wrote(
        self, store: ObjectPayloadStore, folder: Path
    ) -> None:
        wanted, data = written(100)
        store.put([(wanted, data)])
        other = ObjectPayloadStore(folder.as_uri())
        assert other.get([wanted]) == [data]
        other.close()

    def test_nobody_else_can_read_the_folder(self, store: ObjectPayloadStore, folder: Path) -> None:
        store.put([written(100)])
        assert folder.stat().st_mode & 0o077 == 0


class TestS3(PayloadStoreContract):
    """In a bucket."""

    @pytest.fixture
    def proxy(self, moto_port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[TcpProxy]:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "test")
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        assert httpx.put(f"http://127.0.0.1:{moto_port}/{BUCKET}").status_code == 200
        with TcpProxy(moto_port) as proxy:
            yield proxy

    @pytest.fixture
    def store(
        self, proxy: TcpProxy, moto_port: int, request: pytest.FixtureRequest
    ) -> Iterator[ObjectPayloadStore]:
        self.between = proxy
        prefix = request.node.name.partition("[")[0]
        direct = f"http://127.0.0.1:{moto_port}"
        self.bucket = S3Store(
            BUCKET, prefix=prefix, endpoint=direct, client_options={"allow_http": True}
        )
        store = ObjectPayloadStore(f"s3://{BUCKET}/{prefix}", f"http://127.0.0.1:{proxy.port}")
        yield store
        store.close()

    def damage(self, store: PayloadStore, wanted: PayloadObject, data: bytes) -> None:
        del store
        obstore.put(self.bucket, path_of(wanted), data)

    def cut_off(self, store: PayloadStore) -> None:
        del store
        self.between.down()

    def test_a_bucket_that_does_not_exist_is_away(self, proxy: TcpProxy) -> None:
        store = ObjectPayloadStore("s3://nothing/here", f"http://127.0.0.1:{proxy.port}")
        with pytest.raises(StoreAway):
            store.get([written(100)[0]])
        with pytest.raises(StoreAway):
            store.put([written(100)])
        store.close()

    def test_another_prefix_is_away(self, store: ObjectPayloadStore, proxy: TcpProxy) -> None:
        wanted, data = written(100)
        store.put([(wanted, data)])
        other = ObjectPayloadStore(f"s3://{BUCKET}/none", f"http://127.0.0.1:{proxy.port}")
        with pytest.raises(StoreAway):
            other.get([wanted])
        other.close()


@pytest.mark.parametrize("url", ["az://container/path", "s3://"])
def test_a_store_that_cannot_be_opened_is_away_with_the_reason(url: str) -> None:
    store = ObjectPayloadStore(url)
    with pytest.raises(StoreAway, match=r"payloads\.store"):
        store.put([written(100)])
    store.close()
