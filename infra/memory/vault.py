"""A vault that hides nothing: sealed bytes are a mark, the owner, the bytes. For tests."""

from typing import Final

from commandside.ports import KeyGone, Unavailable

MARK: Final = b"\x00plain:"


class MemoryVault:
    """`commandside.ports.Vault`: bound to tenant and job like the real one, but not secret."""

    def __init__(self) -> None:
        self.away = False
        """Nothing can be opened while this is set."""
        self._destroyed: set[bytes] = set()

    def destroy(self, tenant_id: bytes) -> None:
        """Make everything that was sealed for a tenant unreadable."""
        self._destroyed.add(tenant_id)

    def seal(self, tenant_id: bytes, job_id: bytes, plain: bytes) -> bytes:
        """Return the bytes with their owner; raises KeyGone."""
        if tenant_id in self._destroyed:
            raise KeyGone("the tenant has no key")
        return b"".join((MARK, tenant_id, job_id, plain))

    def open(self, tenant_id: bytes, job_id: bytes, sealed: bytes) -> bytes:
        """Return the plain bytes; raises KeyGone, Unavailable."""
        if self.away:
            raise Unavailable("the keys cannot be read")
        head = MARK + tenant_id + job_id
        if tenant_id in self._destroyed or not sealed.startswith(head):
            raise KeyGone("the bytes are not ciphertext of this tenant and job")
        return sealed[len(head) :]

    def knows(self, tenant_id: bytes) -> bool:  # noqa: ARG002 - nothing is waited for, for anybody
        """Tell that nothing is waited for."""
        return True

    def fetch(self, tenant_id: bytes) -> None:
        """Nothing to wait for."""
