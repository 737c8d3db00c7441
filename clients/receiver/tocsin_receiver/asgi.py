"""Wraps an ASGI application: FastAPI, Starlette, Litestar, Django, Quart, or a plain one."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, TypeVar

from tocsin_receiver.answer import BODY_BYTES_MAX as ANSWER_BYTES_MAX
from tocsin_receiver.answer import Answer, made
from tocsin_receiver.receiver import BODY_BYTES_MAX, Receiver, guarded, refusal
from tocsin_receiver.record import Claimed
from tocsin_receiver.refused import Refused

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

DELIVERY: Final = "tocsin.delivery"
"""Where the scope (or the WSGI environment) has the verified delivery."""

T = TypeVar("T")


class AsgiReceiver:
    """Lets verified first calls through to `app`, with `scope["tocsin.delivery"]`.

    The rest is answered here. Paths outside `prefix` pass untouched, and have no delivery.
    """

    def __init__(
        self,
        app: App,
        receiver: Receiver,
        *,
        prefix: str = "/",
        body_bytes_max: int = BODY_BYTES_MAX,
    ) -> None:
        self._app = app
        self._receiver = receiver
        self._prefix = prefix
        self._body_bytes_max = body_bytes_max

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or pass on what is none."""
        if scope["type"] != "http" or not guarded(scope["path"], self._prefix):
            await self._app(scope, receive, send)
            return
        try:
            body = await _read(receive, self._body_bytes_max)
            delivery = self._receiver.verify(scope["headers"], body)
        except Refused as refused:
            await _send_answer(send, refusal(refused))
            return
        begun = await self._call(self._receiver.begin, delivery)
        if isinstance(begun, Answer):
            await _send_answer(send, begun)
            return
        await self._run({**scope, DELIVERY: delivery, "extensions": {}}, begun, body, receive, send)

    async def _run(
        self, scope: Scope, claimed: Claimed, body: bytes, receive: Receive, send: Send
    ) -> None:
        exchange = _Exchange(body, receive)
        ended = False

        async def collect(message: Message) -> None:
            nonlocal ended
            # What comes after the answer (background tasks of a framework) does not hold it up.
            if exchange.take(message) and not ended:
                ended = True
                answer = await self._call(self._receiver.end, claimed, exchange.answer())
                await _send_answer(send, answer)

        try:
            await self._app(scope, exchange.receive, collect)
        except Exception:
            if not ended:
                await self._call(self._receiver.fail, claimed)
            raise
        if not ended:
            await self._call(self._receiver.fail, claimed)
            raise RuntimeError("the application returned without a whole answer")

    async def _call(self, function: Callable[..., T], *arguments: Any) -> T:
        if self._receiver.blocks:
            return await asyncio.to_thread(function, *arguments)
        return function(*arguments)


class _Exchange:
    """Gives an application the body that was read, and takes its answer."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive
        self._status = 0
        self._headers: list[tuple[str, str]] = []
        self._answer = bytearray()

    async def receive(self) -> Message:
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}

    def take(self, message: Message) -> bool:
        """Take a message; True when the answer is whole."""
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self._headers = [
                (name.decode("latin-1"), value.decode("latin-1"))
                for name, value in message.get("headers", ())
            ]
        elif message["type"] == "http.response.body":
            # Beyond what is sent nothing is held, however much an application streams.
            room = ANSWER_BYTES_MAX - len(self._answer)
            self._answer += message.get("body", b"")[:room]
            return not message.get("more_body", False)
        return False

    def answer(self) -> Answer:
        return made(self._status, self._headers, bytes(self._answer))


async def _read(receive: Receive, bytes_max: int) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refused("cut_off", "the request ended before its body did")
        body += message.get("body", b"")
        if len(body) > bytes_max:
            raise Refused("too_large", f"the body has more than {bytes_max} bytes")
        if not message.get("more_body", False):
            return bytes(body)


async def _send_answer(send: Send, answer: Answer) -> None:
    headers = [(n.encode("latin-1"), v.encode("latin-1")) for n, v in answer.framed()]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})
