"""The ports of secrets: what calls are signed with, and what targets name in their headers."""

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from commandside.command_port import BodyDiffers

V1, V1A = 1, 2
SCHEMES: Final = {"v1": V1, "v1a": V1A}
"""Of Standard Webhooks: HMAC-SHA256 with a shared secret, and Ed25519 with a public key."""
LIVE_KEYS_MAX: Final = 5
"""Keys of a tenant that sign at once: each is a signature in the header of every call."""
SECRETS_MAX: Final = 1_000
"""Named secrets of a tenant."""
FRESH_S: Final = 10
"""A change has reached every process within this."""


class SecretMissing(Exception):
    """A target names a secret that the tenant does not have, or has no longer."""


class TooManyKeys(Exception):
    """`LIVE_KEYS_MAX` keys sign already, or `SECRETS_MAX` secrets are kept."""


class SigningKey(msgspec.Struct, frozen=True):
    """A key that signs calls. `text` is what a receiver verifies with; `expires_at` 0 for never."""

    key_id: int
    scheme: int
    text: str
    created_at: int
    expires_at: int = 0


class NamedSecret(msgspec.Struct, frozen=True):
    """A secret as it is listed: its value is shown to nobody."""

    name: str
    version: int
    changed_at: int


class Judged(msgspec.Struct, frozen=True):
    """Of secrets that are named: which are not there, and which are not `user:password`."""

    missing: frozenset[str] = frozenset()
    no_pairs: frozenset[str] = frozenset()


class Secrets(Protocol):
    """What a call takes from the tenant's secrets: from memory, and no older than `FRESH_S`.

    Raises KeyGone where the tenant's key is destroyed, Unavailable where nothing can be read yet.
    """

    def sign(self, tenant_id: bytes, key: str, seconds: int, body: bytes) -> bytes:
        """Return the value of `webhook-signature`, empty for a tenant without signing keys.

        `seconds`: the attempt's instant by the database clock, which says which keys are in force.
        """
        ...

    def value(self, tenant_id: bytes, name: str, seconds: int) -> bytes:
        """Return a secret by its name; raises SecretMissing too."""
        ...


class SecretStore(Secrets, Protocol):
    """The secrets of tenants, kept and changed. Blocks; raises as `Secrets` does."""

    def signing_keys(self, tenant_id: bytes) -> list[SigningKey]:
        """Return the keys that sign, the newest first."""
        ...

    def add_signing_key(
        self, tenant_id: bytes, scheme: int, overlap_ms: int, command: str = ""
    ) -> tuple[SigningKey, bool] | BodyDiffers:
        """Make a key; those before it of its scheme sign for `overlap_ms` more.

        Returns it and whether it was made now: a repeated `command` finds the first one's. Raises
        TooManyKeys.
        """
        ...

    def judged(self, tenant_id: bytes, names: Sequence[str]) -> Judged:
        """Return what a definition may know of secrets; no value is opened for it."""
        ...

    def secrets(self, tenant_id: bytes) -> list[NamedSecret]:
        """Return all secrets by name."""
        ...

    def put_secret(self, tenant_id: bytes, name: str, value: bytes) -> tuple[NamedSecret, bool]:
        """Set a secret; returns it and whether there was none. Raises TooManyKeys."""
        ...

    def remove_secret(self, tenant_id: bytes, name: str) -> bool:
        """Forget a secret; False where there is none."""
        ...
