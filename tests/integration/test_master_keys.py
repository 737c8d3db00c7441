"""Master keys on a real Postgres: who opens what, a change of the master key, the end of a key."""

import base64
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import boto3
import psycopg
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from commandside.ports import KeyGone, Unavailable
from domain.tenant import parse_key, secret_hash
from infra.clock import mono_us
from infra.ids import new_secret
from infra.keys import masters as masters_module
from infra.keys import rotation
from infra.keys.local import LocalMaster, from_file, wrap
from infra.keys.masters import Masters, following_file, masters_of, one_master
from infra.keys.port import MasterKey, MasterKeyError
from infra.keys.rotation import rotate, rotate_master
from infra.keys.wrapping import Unlocked, tenant_context, unlock
from infra.postgres.secret_store import PostgresSecretStore
from infra.postgres.tenants import TenantError, Tenants
from infra.settings import Settings, replaced
from infra.vault import FRESH_US, TenantVault, pepper

OLD, NEW = bytes(range(32)), bytes(range(1, 33))
JOB = b"j" * 16


def both() -> Masters:
    """The keys of a process that has the old one and the next one."""
    return Masters(lambda: (LocalMaster(OLD), LocalMaster(NEW)))


@pytest.fixture
def keys(log_database: str) -> Unlocked:
    return unlock(log_database, one_master(OLD))


@pytest.fixture
def tenants(log_database: str, keys: Unlocked) -> Iterator[Tenants]:
    with closing(Tenants(log_database, keys)) as found:
        yield found


def vault_of(stack: ExitStack, conninfo: str, keys: Unlocked) -> TenantVault:
    return stack.enter_context(closing(TenantVault(conninfo, keys.wrapping)))


def wrapping_of(conninfo: str) -> list[tuple[int, str]]:
    """Return the wrapping keys there are: number and master key."""
    with psycopg.connect(conninfo) as connection:
        query = "select number, master from wrapping_keys order by number"
        return connection.execute(query).fetchall()


def under(conninfo: str) -> list[int]:
    """Return under which wrapping key each tenant's key is."""
    with psycopg.connect(conninfo) as connection:
        rows = connection.execute("select wrapping_key from tenant_keys order by tenant_id")
        return [number for (number,) in rows]


# ------------------------------------------------------------------ who opens what


def test_a_master_key_that_the_keys_are_not_under_is_refused_in_words(log_database: str) -> None:
    first = unlock(log_database, one_master(OLD))
    assert unlock(log_database, one_master(OLD)).root == first.root
    with pytest.raises(MasterKeyError, match=r"keys\.master_file"):
        unlock(log_database, one_master(NEW))


def test_the_root_secret_is_no_function_of_the_master_key(
    databases: Any, log_database: str
) -> None:
    other = databases.fresh()
    try:
        roots = {unlock(conninfo, one_master(OLD)).root for conninfo in (log_database, other)}
    finally:
        databases.drop(other)
    assert len(roots) == 2
    assert OLD not in roots


def test_processes_that_start_at_once_make_one_wrapping_key(log_database: str) -> None:
    gate = threading.Barrier(4)
    found: list[bytes] = []

    def start() -> None:
        gate.wait()
        found.append(unlock(log_database, one_master(OLD)).root)

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(set(found)) == 1
    assert len(wrapping_of(log_database)) == 1


def test_what_was_under_the_master_key_itself_goes_on_to_be_read(log_database: str) -> None:
    """An installation of before: tenants' keys under the master key, API keys peppered with it."""
    tenant, key, secret = b"t" * 16, new_secret(), new_secret()
    with psycopg.connect(log_database) as connection:
        connection.execute(
            "insert into tenants (tenant_id, name, created_at) values (%s, 'acme', 1)",
            (tenant.hex(),),
        )
        wrapped = wrap(AESGCM(OLD), key, tenant_context(tenant, 1))
        connection.execute(
            "insert into tenant_keys (tenant_id, key_id, wrapped, created_at)"
            " values (%s, 1, %s, 1)",
            (tenant.hex(), wrapped),
        )
        connection.execute(
            "insert into api_keys (kid, tenant_id, secret_hash, scopes, name, created_at)"
            " values ('k', %s, %s, '{}', '', 1)",
            (tenant.hex(), secret_hash(pepper(OLD), secret)),
        )
    with pytest.raises(MasterKeyError, match=r"keys\.master_file"):
        unlock(log_database, one_master(NEW))
    opened = unlock(log_database, one_master(OLD))
    assert pepper(opened.root) == pepper(OLD), "API keys of before are still known"
    nonce = bytes(12)
    sealed = b"\x01\x00\x01" + nonce + AESGCM(key).encrypt(nonce, b"plain", tenant + JOB)
    with closing(TenantVault(log_database, opened.wrapping)) as vault:
        assert vault.open(tenant, JOB, sealed) == b"plain"
    assert under(log_database) == [1]


def test_a_wrapped_key_that_was_put_elsewhere_opens_nothing(
    tenants: Tenants, log_database: str, keys: Unlocked
) -> None:
    first, second = tenants.ensure("first"), tenants.ensure("second")
    with psycopg.connect(log_database) as connection:
        connection.execute(
            "update tenant_keys set wrapped = (select wrapped from tenant_keys"
            " where tenant_id = %s) where tenant_id = %s",
            (first.hex(), second.hex()),
        )
    with ExitStack() as stack, pytest.raises(KeyGone):
        vault_of(stack, log_database, keys).seal(second, JOB, b"plain")


# ------------------------------------------------------------------ another master key


def test_after_a_rotation_the_new_key_opens_all_and_the_old_one_nothing(
    tenants: Tenants, log_database: str, keys: Unlocked
) -> None:
    names = [f"tenant {n}" for n in range(250)]
    made = [tenants.ensure(name) for name in names]
    api_key = parse_key(tenants.create_key("tenant 7"))
    assert api_key is not None
    with ExitStack() as stack:
        vault = vault_of(stack, log_database, keys)
        sealed = [vault.seal(tenant, JOB, b"plain") for tenant in made]
        secrets = stack.enter_context(closing(PostgresSecretStore(log_database, keys.wrapping)))
        secrets.put_secret(made[3], "crm", b"open sesame")

        assert rotate(log_database, unlock(log_database, both()), LocalMaster(NEW)) == len(made)

        assert wrapping_of(log_database) == [(2, LocalMaster(NEW).name)]
        assert set(under(log_database)) == {2}
        with pytest.raises(MasterKeyError, match=LocalMaster(NEW).name):
            unlock(log_database, one_master(OLD))
        opened = unlock(log_database, one_master(NEW))
        assert opened.root == keys.root
        after = vault_of(stack, log_database, opened)
        for tenant, each in zip(made, sealed, strict=True):
            assert after.open(tenant, JOB, each) == b"plain"
        store = stack.enter_context(closing(PostgresSecretStore(log_database, opened.wrapping)))
        assert store.value(made[3], "crm", 1) == b"open sesame"
        query = "select secret_hash from api_keys where kid = %s"
        with psycopg.connect(log_database) as connection:
            row = connection.execute(query, (api_key.kid,)).fetchone()
        assert row is not None
        assert row[0] == secret_hash(pepper(opened.root), api_key.secret)


def test_a_rotation_that_was_cut_off_is_gone_on_with_and_both_keys_are_read_meanwhile(
    tenants: Tenants, log_database: str, keys: Unlocked, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [tenants.ensure(f"tenant {n}") for n in range(30)]
    with ExitStack() as stack:
        vault = vault_of(stack, log_database, keys)
        sealed = [vault.seal(tenant, JOB, b"plain") for tenant in made]
        wrapping = type(keys.wrapping)
        wrapped: list[bytes] = []
        before = wrapping.wrap

        def cut_off(self: Any, connection: Any, number: int, key: bytes, context: bytes) -> bytes:
            if number == 2 and len(context) == 18:
                if len(wrapped) == 12:
                    raise Unavailable("killed")
                wrapped.append(context)
            return before(self, connection, number, key, context)

        monkeypatch.setattr(rotation, "BATCH", 10)
        monkeypatch.setattr(wrapping, "wrap", cut_off)
        with pytest.raises(Unavailable, match="killed"):
            rotate(log_database, unlock(log_database, both()), LocalMaster(NEW))
        monkeypatch.undo()

        assert sorted(under(log_database)) == [1] * 20 + [2] * 10
        assert [number for number, _ in wrapping_of(log_database)] == [1, 2]
        for alone in (OLD, NEW):
            with pytest.raises(MasterKeyError):
                unlock(log_database, one_master(alone))
        opened = unlock(log_database, both())
        meanwhile = vault_of(stack, log_database, opened)
        for tenant, each in zip(made, sealed, strict=True):
            assert meanwhile.open(tenant, JOB, each) == b"plain"
        with closing(Tenants(log_database, opened)) as others:
            others.ensure("made meanwhile")
        assert sorted(under(log_database)) == [1] * 20 + [2] * 11

        assert rotate(log_database, unlock(log_database, both()), LocalMaster(NEW)) == 20
        assert wrapping_of(log_database) == [(2, LocalMaster(NEW).name)]
        after = vault_of(stack, log_database, unlock(log_database, one_master(NEW)))
        for tenant, each in zip(made, sealed, strict=True):
            assert after.open(tenant, JOB, each) == b"plain"
        assert rotate(log_database, unlock(log_database, both()), LocalMaster(NEW)) == 0
        assert wrapping_of(log_database) == [(2, LocalMaster(NEW).name)], "nothing was to do"


def test_a_tenant_made_in_the_last_moment_is_not_left_under_the_old_key(
    tenants: Tenants, log_database: str, keys: Unlocked, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenants.ensure("first")
    wrap_all = rotation._wrap_all
    made: list[bytes] = []

    def and_one_more(connection: Any, wrapping: Any, newest: int) -> int:
        done = wrap_all(connection, wrapping, newest)
        if not made:
            # As by a process that had read which key is in force before there was a newer one.
            monkeypatch.setattr(type(keys.wrapping), "newest", lambda *_: 1)
            made.append(tenants.ensure("late"))
        return done

    monkeypatch.setattr(rotation, "_wrap_all", and_one_more)
    assert rotate(log_database, unlock(log_database, both()), LocalMaster(NEW)) == 2
    assert under(log_database) == [2, 2]
    with pytest.raises(Unavailable, match="being changed"):
        tenants.ensure("later still")


def test_running_processes_find_the_next_key_in_its_file_and_go_on(
    log_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(masters_module, "READ_AGAIN_US", 0)
    settings = replaced(Settings(), "data", dir=str(tmp_path))
    settings = replaced(settings, "postgres", url=log_database)
    running = unlock(log_database, masters_of(settings, create=True))
    old = settings.master_file.read_bytes()
    said: list[str] = []
    with ExitStack() as stack:
        tenants = stack.enter_context(closing(Tenants(log_database, running)))
        seen, unseen = tenants.ensure("seen"), tenants.ensure("unseen")
        vault = vault_of(stack, log_database, running)
        sealed = vault.seal(seen, JOB, b"plain")

        def meanwhile(tenant: bytes) -> Callable[..., int]:
            wrap_all = rotation._wrap_all

            def wrapped(*asked: Any) -> int:
                done = wrap_all(*asked)
                assert vault.open(tenant, JOB, vault.seal(tenant, JOB, b"now")) == b"now"
                return done

            return wrapped

        monkeypatch.setattr(rotation, "_wrap_all", meanwhile(unseen))
        rotate_master(settings, said.append)
        assert vault.open(seen, JOB, sealed) == b"plain"
        third = tenants.ensure("third")
        assert vault.open(third, JOB, vault.seal(third, JOB, b"new")) == b"new"

    (was,) = tmp_path.glob("master.key.was-*")
    assert was.read_bytes() == old
    assert settings.master_file.read_bytes() != old
    assert not following_file(settings).exists()
    assert settings.master_file.stat().st_mode & 0o777 == 0o600
    assert any(str(was) in line for line in said)
    assert not any(old.hex() in line for line in said)
    assert unlock(log_database, masters_of(settings)).root == running.root
    with pytest.raises(MasterKeyError):
        unlock(log_database, Masters(lambda: (from_file(was),)))


def test_a_rotation_cut_off_before_its_file_took_its_place_is_ended_by_the_next(
    log_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = replaced(Settings(), "data", dir=str(tmp_path))
    settings = replaced(settings, "postgres", url=log_database)
    root = unlock(log_database, masters_of(settings, create=True)).root

    def killed(_settings: Settings) -> str:
        raise Unavailable("killed")

    with monkeypatch.context() as patched:
        patched.setattr(rotation, "_take_place", killed)
        with pytest.raises(Unavailable, match="killed"):
            rotate_master(settings, lambda _: None)
    new = following_file(settings).read_bytes()
    assert unlock(log_database, masters_of(settings)).root == root, "processes start meanwhile"
    rotate_master(settings, lambda _: None)
    assert settings.master_file.read_bytes() == new
    assert [number for number, _ in wrapping_of(log_database)] == [2]
    assert unlock(log_database, masters_of(settings)).root == root


def test_two_rotations_at_once_are_one(log_database: str, tmp_path: Path) -> None:
    settings = replaced(Settings(), "data", dir=str(tmp_path))
    settings = replaced(settings, "postgres", url=log_database)
    unlock(log_database, masters_of(settings, create=True))
    with rotation._alone(log_database), pytest.raises(MasterKeyError, match="under way"):
        rotate_master(settings, lambda _: None)


def test_from_a_file_to_a_text_of_the_environment_to_kms_and_anew_there(
    log_database: str, tmp_path: Path, moto_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AK")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "SK")
    endpoint = f"http://127.0.0.1:{moto_port}"
    client: Any = boto3.session.Session().client(
        "kms", region_name="eu-west-1", endpoint_url=endpoint
    )
    arn = client.create_key()["KeyMetadata"]["Arn"]
    text = base64.b64encode(NEW).decode()
    settings = replaced(Settings(), "data", dir=str(tmp_path))
    settings = replaced(settings, "postgres", url=log_database)
    opened = unlock(log_database, masters_of(settings, create=True))
    with closing(Tenants(log_database, opened)) as tenants:
        tenant = tenants.ensure("acme")
    with closing(TenantVault(log_database, opened.wrapping)) as vault:
        sealed = vault.seal(tenant, JOB, b"plain")
    said: list[str] = []

    def opens(with_settings: Settings) -> None:
        found = unlock(log_database, masters_of(with_settings))
        assert found.root == opened.root
        with closing(TenantVault(log_database, found.wrapping)) as vault:
            assert vault.open(tenant, JOB, sealed) == b"plain"

    rotate_master(replaced(settings, "keys", next_key=text), said.append)
    assert text not in "\n".join(said)
    with pytest.raises(MasterKeyError):
        opens(settings)
    in_environment = replaced(settings, "keys", master_key=text)
    opens(in_environment)
    moving = replaced(in_environment, "keys", next_kms=arn, kms_endpoint=endpoint)
    rotate_master(moving, said.append)
    opens(moving)
    with pytest.raises(MasterKeyError):
        opens(in_environment)
    in_kms = replaced(settings, "keys", master_kms=arn, kms_endpoint=endpoint)
    opens(in_kms)
    assert wrapping_of(log_database) == [(3, f"kms:{arn}")]
    rotate_master(in_kms, said.append)
    opens(in_kms)
    assert wrapping_of(log_database) == [(4, f"kms:{arn}")], "another wrapping key under the same"


def test_kms_is_asked_when_a_process_starts_and_never_for_a_tenant(
    log_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    class Counting(LocalMaster):
        def unwrap(self, wrapped: bytes, context: bytes) -> bytes:
            asked.append("unwrap")
            return super().unwrap(wrapped, context)

    master: MasterKey = Counting(OLD)
    opened = unlock(log_database, Masters(lambda: (master,)))
    assert len(asked) == 1
    with ExitStack() as stack:
        tenants = stack.enter_context(closing(Tenants(log_database, opened)))
        vault = vault_of(stack, log_database, opened)
        for n in range(5):
            tenant = tenants.ensure(f"tenant {n}")
            assert vault.open(tenant, JOB, vault.seal(tenant, JOB, b"x")) == b"x"
    assert len(asked) == 1


# ------------------------------------------------------------------ the end of a tenant's key


def test_an_erased_tenants_data_are_unreadable_everywhere_and_others_are_not(
    tenants: Tenants, log_database: str, keys: Unlocked, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, kept = tenants.ensure("gone"), tenants.ensure("kept")
    with ExitStack() as stack:
        vault = vault_of(stack, log_database, keys)
        sealed = {tenant: vault.seal(tenant, JOB, b"plain") for tenant in (gone, kept)}
        store = stack.enter_context(closing(PostgresSecretStore(log_database, keys.wrapping)))
        for tenant in (gone, kept):
            store.put_secret(tenant, "crm", b"open sesame")
            assert store.value(tenant, "crm", 100) == b"open sesame"
        assert tenants.erase("gone") == 1
        assert tenants.erase("gone") == 0

        later = mono_us() + FRESH_US
        monkeypatch.setattr("infra.vault.mono_us", lambda: later)
        assert not vault.knows(kept)
        vault.fetch(kept)
        assert vault.knows(kept)
        for opener in (vault, vault_of(stack, log_database, keys)):
            with pytest.raises(KeyGone):
                opener.open(gone, JOB, sealed[gone])
            with pytest.raises(KeyGone):
                opener.seal(gone, JOB, b"more")
            assert opener.open(kept, JOB, sealed[kept]) == b"plain"
        with pytest.raises(KeyGone):
            store.value(gone, "crm", 200)
        with pytest.raises(KeyGone):
            store.sign(gone, "key-1", 200, b"")
        assert store.value(kept, "crm", 200) == b"open sesame"
    with pytest.raises(TenantError, match="erased"):
        tenants.ensure("gone")
    with pytest.raises(TenantError, match="no tenant"):
        tenants.erase("never")


def test_a_dispatchers_vault_learns_of_a_destroyed_key_with_its_secrets(
    tenants: Tenants, log_database: str, keys: Unlocked
) -> None:
    gone, kept = tenants.ensure("gone"), tenants.ensure("kept")
    with ExitStack() as stack:
        vault = vault_of(stack, log_database, keys)
        store = stack.enter_context(
            closing(PostgresSecretStore(log_database, keys.wrapping, vault))
        )
        sealed = {tenant: vault.seal(tenant, JOB, b"plain") for tenant in (gone, kept)}
        for tenant in (gone, kept):
            assert store.sign(tenant, "key-1", 100, b"")
        tenants.erase("gone")
        assert vault.open(gone, JOB, sealed[gone]) == b"plain", "for ten seconds at most"
        assert store.sign(kept, "key-1", 110, b"")
        with pytest.raises(KeyGone):
            vault.open(gone, JOB, sealed[gone])
        with pytest.raises(KeyGone):
            store.sign(gone, "key-1", 110, b"")
        assert vault.open(kept, JOB, sealed[kept]) == b"plain"


def test_a_vault_is_asked_again_after_ten_seconds_and_serves_on_while_postgres_is_away(
    tenants: Tenants, log_database: str, keys: Unlocked, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenant = tenants.ensure("acme")
    with closing(TenantVault(log_database, keys.wrapping)) as vault:
        now = mono_us()
        monkeypatch.setattr("infra.vault.mono_us", lambda: now)
        assert not vault.knows(tenant)
        vault.fetch(tenant)
        assert vault.knows(tenant)
        now += FRESH_US
        assert not vault.knows(tenant)

        def away(*_: object, **__: object) -> None:
            raise psycopg.OperationalError("away")

        vault.close()
        monkeypatch.setattr(psycopg, "connect", away)
        vault.fetch(tenant)
        assert vault.knows(tenant)
        assert vault.open(tenant, JOB, vault.seal(tenant, JOB, b"x")) == b"x"
        with pytest.raises(Unavailable):
            vault.fetch(b"n" * 16)
