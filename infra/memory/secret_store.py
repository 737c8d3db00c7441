"""The secrets of tenants in memory: for tests."""

from collections.abc import Callable, Sequence

from commandside.command_port import BodyDiffers
from commandside.secret_port import (
    LIVE_KEYS_MAX,
    SECRETS_MAX,
    Judged,
    NamedSecret,
    SigningKey,
    TooManyKeys,
)
from domain.instant import SECOND
from infra.ids import new_secret
from infra.secret_ring import OpenKey, Ring
from infra.signing import shown


class MemorySecretStore:
    """`commandside.secret_port.SecretStore`; every change is seen at once."""

    def __init__(self, now: Callable[[], int]) -> None:
        """`now`: ms."""
        self._now = now
        self._keys: dict[bytes, list[tuple[SigningKey, bytes]]] = {}
        self._commands: dict[tuple[bytes, str], tuple[bytes, SigningKey]] = {}
        self._named: dict[bytes, dict[str, tuple[NamedSecret, bytes]]] = {}
        self._versions: dict[tuple[bytes, str], int] = {}

    def sign(self, tenant_id: bytes, key: str, seconds: int, body: bytes) -> bytes:
        """Return the value of `webhook-signature`, empty without signing keys."""
        return self._ring(tenant_id).sign(key, seconds, body)

    def value(self, tenant_id: bytes, name: str, _seconds: int) -> bytes:
        """Return a secret by its name."""
        return self._ring(tenant_id).value(name)

    def _ring(self, tenant_id: bytes) -> Ring:
        keys = [
            OpenKey(key.key_id, key.scheme, plain, -(-key.expires_at // SECOND))
            for key, plain in self._keys.get(tenant_id, [])
        ]
        named = self._named.get(tenant_id, {})
        return Ring(keys, {name: value for name, (_, value) in named.items()})

    def _live(self, tenant_id: bytes) -> list[tuple[SigningKey, bytes]]:
        at = self._now()
        kept = self._keys.get(tenant_id, [])
        return [(key, p) for key, p in kept if not key.expires_at or key.expires_at > at]

    def signing_keys(self, tenant_id: bytes) -> list[SigningKey]:
        """Return the keys that sign, the newest first."""
        return [key for key, _ in reversed(self._live(tenant_id))]

    def add_signing_key(
        self, tenant_id: bytes, scheme: int, overlap_ms: int, command: str = ""
    ) -> tuple[SigningKey, bool] | BodyDiffers:
        """Make a key; those before it of its scheme sign for `overlap_ms` more."""
        said = b"%d %d" % (scheme, overlap_ms)
        before = self._commands.get((tenant_id, command)) if command else None
        if before is not None:
            return (before[1], False) if before[0] == said else BodyDiffers()
        if len(self._live(tenant_id)) >= LIVE_KEYS_MAX:
            raise TooManyKeys(f"{LIVE_KEYS_MAX} keys sign already: let one expire first")
        at, plain, kept = self._now(), new_secret(), self._keys.get(tenant_id, [])
        until = at + overlap_ms
        kept = [
            (
                SigningKey(key.key_id, key.scheme, key.text, key.created_at, until)
                if key.scheme == scheme and (not key.expires_at or key.expires_at > until)
                else key,
                value,
            )
            for key, value in kept
        ]
        made = SigningKey(len(kept) + 1, scheme, shown(scheme, plain), at)
        self._keys[tenant_id] = [*kept, (made, plain)]
        if command:
            self._commands[tenant_id, command] = said, made
        return made, True

    def judged(self, tenant_id: bytes, names: Sequence[str]) -> Judged:
        """Return which of these secrets are not there, and which are not `user:password`."""
        named = self._named.get(tenant_id, {})
        no_pairs = (name for name in names if name in named and b":" not in named[name][1])
        return Judged(frozenset(names) - named.keys(), frozenset(no_pairs))

    def secrets(self, tenant_id: bytes) -> list[NamedSecret]:
        """Return all secrets by name."""
        return [secret for _, (secret, _) in sorted(self._named.get(tenant_id, {}).items())]

    def put_secret(self, tenant_id: bytes, name: str, value: bytes) -> tuple[NamedSecret, bool]:
        """Set a secret; returns it and whether there was none."""
        named = self._named.setdefault(tenant_id, {})
        new = name not in named
        if new and len(named) >= SECRETS_MAX:
            raise TooManyKeys(f"{SECRETS_MAX} secrets are kept already: remove one first")
        version = self._versions.get((tenant_id, name), 0) + 1
        self._versions[tenant_id, name] = version
        named[name] = NamedSecret(name, version, self._now()), value
        return named[name][0], new

    def remove_secret(self, tenant_id: bytes, name: str) -> bool:
        """Forget a secret; False where there is none."""
        return self._named.get(tenant_id, {}).pop(name, None) is not None

    def close(self) -> None:
        """Nothing to close."""
