"""The one source of randomness: ids, nonces and secrets come from the operating system."""

import secrets


def new_id() -> bytes:
    """Return 16 random bytes."""
    return secrets.token_bytes(16)


def new_nonce() -> bytes:
    """Return 8 random bytes: which process, after an unknown commit, a lease belongs to."""
    return secrets.token_bytes(8)


def new_secret() -> bytes:
    """Return 32 random bytes."""
    return secrets.token_bytes(32)
