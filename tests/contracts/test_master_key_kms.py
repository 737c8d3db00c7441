"""A master key in AWS KMS keeps the contract, against moto's server behind a proxy that fails."""

from collections.abc import Iterator
from typing import Any

import boto3
import pytest

from commandside.ports import Unavailable
from infra.keys.kms import KmsMaster
from infra.keys.port import MasterKeyError
from tests.contracts.master_key import CONTEXT, KEY, MasterKeyContract
from tests.engines.proxy import TcpProxy

REGION = "eu-west-1"


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AK")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "SK")


class TestKmsMaster(MasterKeyContract):
    @pytest.fixture(autouse=True)
    def _service(self, moto_port: int, _credentials: None) -> Iterator[None]:
        self.proxy = TcpProxy(moto_port)
        self.endpoint = f"http://127.0.0.1:{self.proxy.port}"
        self.client: Any = boto3.session.Session().client(
            "kms", region_name=REGION, endpoint_url=f"http://127.0.0.1:{moto_port}"
        )
        self.key = self.new_key()
        yield
        self.proxy.down()

    def new_key(self) -> str:
        return str(self.client.create_key()["KeyMetadata"]["Arn"])

    def named(self, key: str) -> KmsMaster:
        return KmsMaster(key, region=REGION, endpoint=self.endpoint)

    def opened(self) -> KmsMaster:
        return self.named(self.key)

    def other(self) -> KmsMaster:
        return self.named(self.new_key())

    def test_an_id_an_alias_and_an_arn_are_the_same_key(self) -> None:
        alias = f"alias/{self.key.rpartition('/')[2]}"
        self.client.create_alias(AliasName=alias, TargetKeyId=self.key)
        names = {self.named(key).name for key in (self.key, self.key.rpartition("/")[2], alias)}
        assert names == {f"kms:{self.key}"}

    def test_the_region_of_an_arn_is_enough(self) -> None:
        assert KmsMaster(self.key, endpoint=self.endpoint).name == f"kms:{self.key}"

    def test_an_alias_that_names_another_key_now_has_another_name(self) -> None:
        alias = f"alias/moved-{self.key.rpartition('/')[2]}"
        self.client.create_alias(AliasName=alias, TargetKeyId=self.key)
        before = self.named(alias)
        wrapped = before.wrap(KEY, CONTEXT)
        self.client.update_alias(AliasName=alias, TargetKeyId=self.new_key())
        assert self.named(alias).name != before.name
        assert before.unwrap(wrapped, CONTEXT) == KEY, "it goes on with the key that it found"

    def test_a_key_that_is_not_there_is_refused_in_words(self) -> None:
        with pytest.raises(MasterKeyError, match="NotFoundException"):
            self.named("00000000-0000-0000-0000-000000000000")

    def test_a_service_that_cannot_be_reached_is_unavailable(self) -> None:
        master = self.opened()
        wrapped = master.wrap(KEY, CONTEXT)
        self.proxy.down()
        with pytest.raises(Unavailable, match="KMS"):
            master.unwrap(wrapped, CONTEXT)
