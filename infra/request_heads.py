"""Bounds on the head of a request, which the server itself lets grow, and last, without end."""

import asyncio
from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_BYTES_MAX: Final = 64 * 1024
"""Read of a head beyond the chunk that it begins in; then the answer is 431."""
HEAD_S: Final = 10
"""A head, or the silence before the first one, that lasts from one look to the next is closed."""


class BoundedHeads(HttpToolsProtocol):
    """Closes connections that keep a head open: anybody can send one, before any key is seen."""

    _in_head = True
    _heads = 0
    _head_bytes = 0
    _looked_at = -1
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn
        """Begin to look at this connection every HEAD_S."""
        super().connection_made(transport)
        self._timer = self.loop.call_later(HEAD_S, self.look)

    def connection_lost(self, exc: Exception | None) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def look(self) -> None:
        """Close the connection if the head that was open at the last look still is."""
        if self.transport.is_closing():
            return
        if self._in_head and self._looked_at == self._heads:
            self.transport.close()
            return
        self._looked_at = self._heads
        self._timer = self.loop.call_later(HEAD_S, self.look)

    def on_message_begin(self) -> None:
        """Begin to count."""
        self._in_head, self._head_bytes = True, 0
        self._heads += 1
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Stop counting: bodies have bounds of their own."""
        self._in_head = False
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        """Read on; refuse a head that was open before `data`, still is, and is too long."""
        head = self._heads
        super().data_received(data)
        if self._in_head and self._heads == head and not self.transport.is_closing():
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX:
                self.transport.write(
                    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
                    b"content-length: 0\r\nconnection: close\r\n\r\n"
                )
                self.transport.close()
