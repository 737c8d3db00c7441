"""What every store of secrets does; each adapter runs the suite."""

from abc import ABC, abstractmethod

import pytest

from commandside.command_port import BodyDiffers
from commandside.secret_port import (
    FRESH_S,
    LIVE_KEYS_MAX,
    V1,
    V1A,
    Judged,
    SecretMissing,
    SecretStore,
    SigningKey,
    TooManyKeys,
)

HOUR_MS = 3_600_000
BODY = b"{}"


class SecretStoreContract(ABC):
    """A subclass says how stores are made. `now_s` is the store's clock in seconds."""

    tenant: bytes
    other: bytes

    @abstractmethod
    def now_s(self) -> int: ...

    def made(self, store: SecretStore, scheme: int = V1, overlap_ms: int = HOUR_MS) -> SigningKey:
        outcome = store.add_signing_key(self.tenant, scheme, overlap_ms)
        assert not isinstance(outcome, BodyDiffers)
        return outcome[0]

    def signed(self, store: SecretStore, seconds: int) -> list[bytes]:
        found = store.sign(self.tenant, "key-1", seconds, BODY).split()
        return [one.partition(b",")[0] for one in found]

    def test_what_is_missing_is_told_by_name(self, store: SecretStore) -> None:
        store.put_secret(self.tenant, "crm", b"x")
        store.put_secret(self.tenant, "gone", b"x")
        store.remove_secret(self.tenant, "gone")
        store.put_secret(self.other, "theirs", b"x")
        asked = ["crm", "gone", "theirs", "never"]
        judged = store.judged(self.tenant, asked)
        assert judged.missing == {"gone", "theirs", "never"}
        assert judged.no_pairs == {"crm"}

    def test_a_secret_that_is_a_user_and_a_password_is_told_from_others(
        self, store: SecretStore
    ) -> None:
        store.put_secret(self.tenant, "crm", b"token")
        store.put_secret(self.tenant, "db", b"user:password")
        assert store.judged(self.tenant, ["crm", "db"]).no_pairs == {"crm"}
        store.put_secret(self.tenant, "crm", b"user:password")
        store.put_secret(self.tenant, "db", b"token")
        assert store.judged(self.tenant, ["crm", "db"]) == Judged(frozenset(), frozenset({"db"}))

    def test_without_a_key_nothing_is_signed(self, store: SecretStore) -> None:
        assert store.sign(self.tenant, "key-1", self.now_s(), BODY) == b""
        assert store.signing_keys(self.tenant) == []

    def test_a_new_key_signs_at_once_where_it_was_made(self, store: SecretStore) -> None:
        now = self.now_s()
        assert self.signed(store, now) == []
        key = self.made(store)
        assert key.text.startswith("whsec_")
        assert self.signed(store, now) == [b"v1"]
        assert store.signing_keys(self.tenant) == [key]
        assert store.sign(self.other, "key-1", now, BODY) == b""

    def test_during_a_rotation_both_sign_and_then_the_new_one_alone(
        self, store: SecretStore
    ) -> None:
        old, new = self.made(store), self.made(store)
        keys = store.signing_keys(self.tenant)
        assert [key.key_id for key in keys] == [new.key_id, old.key_id]
        assert keys[0].expires_at == 0
        assert keys[1].expires_at == keys[0].created_at + HOUR_MS
        now = self.now_s()
        assert self.signed(store, now) == [b"v1", b"v1"]
        assert self.signed(store, now + 2 * HOUR_MS // 1000) == [b"v1"]

    def test_the_schemes_sign_beside_each_other(self, store: SecretStore) -> None:
        self.made(store)
        public = self.made(store, V1A)
        assert public.text.startswith("whpk_")
        assert self.signed(store, self.now_s()) == [b"v1a", b"v1"]
        assert [key.expires_at for key in store.signing_keys(self.tenant)] == [0, 0]

    def test_an_overlap_of_nothing_ends_the_old_key(self, store: SecretStore) -> None:
        self.made(store)
        self.made(store, overlap_ms=0)
        assert len(store.signing_keys(self.tenant)) == 1

    def test_a_shorter_overlap_shortens_an_earlier_one_and_a_longer_does_not(
        self, store: SecretStore
    ) -> None:
        first = self.made(store)
        self.made(store, overlap_ms=HOUR_MS)
        self.made(store, overlap_ms=2 * HOUR_MS)
        until = {key.key_id: key.expires_at for key in store.signing_keys(self.tenant)}
        assert until[first.key_id] < store.signing_keys(self.tenant)[0].created_at + 2 * HOUR_MS
        self.made(store, overlap_ms=1_000)
        newest = store.signing_keys(self.tenant)[0]
        assert all(
            key.expires_at <= newest.created_at + 1_000
            for key in store.signing_keys(self.tenant)[1:]
        )

    def test_no_more_keys_than_a_header_bears_sign_at_once(self, store: SecretStore) -> None:
        for _ in range(LIVE_KEYS_MAX):
            self.made(store)
        with pytest.raises(TooManyKeys):
            self.made(store)
        assert len(store.signing_keys(self.tenant)) == LIVE_KEYS_MAX

    def test_a_repeated_command_finds_its_key(self, store: SecretStore) -> None:
        first = store.add_signing_key(self.tenant, V1, 0, "again")
        assert not isinstance(first, BodyDiffers)
        repeated = store.add_signing_key(self.tenant, V1, 0, "again")
        assert repeated == (first[0], False)
        assert isinstance(store.add_signing_key(self.tenant, V1A, 0, "again"), BodyDiffers)
        assert len(store.signing_keys(self.tenant)) == 1

    def test_a_secret_is_found_by_its_name_and_by_its_tenant_alone(
        self, store: SecretStore
    ) -> None:
        kept, new = store.put_secret(self.tenant, "crm", b"one")
        assert (kept.name, kept.version, new) == ("crm", 1, True)
        assert store.value(self.tenant, "crm", self.now_s()) == b"one"
        assert [secret.name for secret in store.secrets(self.tenant)] == ["crm"]
        with pytest.raises(SecretMissing):
            store.value(self.other, "crm", self.now_s())

    def test_a_secret_that_is_set_again_has_its_new_value_and_version(
        self, store: SecretStore
    ) -> None:
        store.put_secret(self.tenant, "crm", b"one")
        assert store.value(self.tenant, "crm", self.now_s()) == b"one"
        kept, new = store.put_secret(self.tenant, "crm", b"two")
        assert (kept.version, new) == (2, False)
        assert store.value(self.tenant, "crm", self.now_s()) == b"two"

    def test_a_secret_that_is_removed_is_missing_and_its_version_is_not_used_again(
        self, store: SecretStore
    ) -> None:
        store.put_secret(self.tenant, "crm", b"one")
        assert store.remove_secret(self.tenant, "crm")
        assert not store.remove_secret(self.tenant, "crm")
        with pytest.raises(SecretMissing, match="crm"):
            store.value(self.tenant, "crm", self.now_s())
        assert store.secrets(self.tenant) == []
        assert store.put_secret(self.tenant, "crm", b"two")[0].version == 2

    def test_what_another_process_changed_is_in_force_within_the_time_said(
        self, store: SecretStore, elsewhere: SecretStore
    ) -> None:
        now = self.now_s()
        store.put_secret(self.tenant, "crm", b"one")
        assert elsewhere.value(self.tenant, "crm", now) == b"one"
        assert self.signed(elsewhere, now) == []
        self.made(store)
        store.put_secret(self.tenant, "crm", b"two")
        assert elsewhere.value(self.tenant, "crm", now + FRESH_S) == b"two"
        assert self.signed(elsewhere, now + FRESH_S) == [b"v1"]
