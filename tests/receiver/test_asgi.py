"""The ASGI wrapper: what reaches the application, what is answered without it, what is kept."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.receiver.calls import SECRET, Call, Clock
from tocsin_receiver import Answer, AsgiReceiver, MemoryStore, Receiver, RedisStore
from tocsin_receiver.answer import BODY_BYTES_MAX
from tocsin_receiver.asgi import App, Message, Receive, Scope, Send, _Exchange

CHUNK = 7


async def serve(app: App, call: Call, path: str = "/", **headers: str) -> Answer:
    """Send a call, its body in chunks, and return the answer."""
    whole = [call.body[at : at + CHUNK] for at in range(0, len(call.body), CHUNK)] or [b""]
    messages: list[Message] = [
        {"type": "http.request", "body": part, "more_body": True} for part in whole
    ]
    messages += [{"type": "http.request", "body": b""}, {"type": "http.disconnect"}]
    sent: list[Message] = []

    async def receive() -> Message:
        return messages.pop(0)

    async def send(message: Message) -> None:
        sent.append(message)

    pairs = [(n.lower().encode(), v.encode()) for n, v in (call.headers() | headers).items()]
    await app({"type": "http", "path": path, "headers": pairs}, receive, send)
    start, body = sent
    lines = tuple((n.decode(), v.decode()) for n, v in start["headers"])
    return Answer(start["status"], lines, body["body"])


class Handler:
    """An application that counts, and answers what it is told."""

    def __init__(self, *messages: Message) -> None:
        self.bodies: list[bytes] = []
        self.scopes: list[Scope] = []
        self.messages = messages or answered(200, b"done")
        self.before: Callable[[], Coroutine[Any, Any, None]] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scopes.append(scope)
        message = await receive()
        self.bodies.append(message["body"])
        assert not message["more_body"]
        if self.before is not None:
            await self.before()
        for said in self.messages:
            await send(said)


def answered(status: int, body: bytes, *headers: tuple[bytes, bytes]) -> tuple[Message, ...]:
    """Return the messages of an answer."""
    return (
        {"type": "http.response.start", "status": status, "headers": list(headers)},
        {"type": "http.response.body", "body": body},
    )


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def receiver(clock: Clock) -> Receiver:
    return Receiver(SECRET, MemoryStore(clock=clock), clock=clock)


def title(answer: Answer) -> str:
    """Return what a problem is called."""
    assert ("content-type", "application/problem+json") in answer.headers
    said: str = json.loads(answer.body)["title"]
    return said


def test_a_verified_call_reaches_the_application_whole(receiver: Receiver) -> None:
    handler = Handler(*answered(201, b"made", (b"Content-Type", b"text/plain")))
    answer = asyncio.run(serve(AsgiReceiver(handler, receiver), Call()))
    headers = (("content-type", "text/plain"), ("content-length", "4"))
    assert answer == Answer(201, headers, b"made")
    assert handler.bodies == [Call().body]
    assert handler.scopes[0]["tocsin.delivery"] == Call().delivery()


def test_a_repeated_call_is_answered_as_the_first_without_the_application(
    receiver: Receiver,
) -> None:
    handler = Handler(*answered(201, b"made", (b"content-type", b"text/plain"), (b"date", b"now")))
    app = AsgiReceiver(handler, receiver)
    first = asyncio.run(serve(app, Call()))
    again = asyncio.run(serve(app, Call(attempt=2, fence=4)))
    assert (again.status, again.body) == (first.status, first.body) == (201, b"made")
    assert again.headers == (
        ("content-type", "text/plain"),
        ("tocsin-repeated", "true"),
        ("content-length", "4"),
    )
    assert len(handler.bodies) == 1


@pytest.mark.parametrize("path", ["/tocsin", "/tocsin/", "/tocsin/a/b"])
def test_a_guarded_path_lets_no_unsigned_call_through(receiver: Receiver, path: str) -> None:
    handler = Handler()
    app = AsgiReceiver(handler, receiver, prefix="/tocsin")
    answer = asyncio.run(serve(app, Call(), path, **{"webhook-signature": "v1,AAAA"}))
    assert (answer.status, title(answer)) == (401, "forged")
    assert handler.bodies == []


@pytest.mark.parametrize("path", ["/", "/tocsinx", "/other/tocsin"])
def test_other_paths_pass_untouched_and_have_no_delivery(receiver: Receiver, path: str) -> None:
    handler = Handler()

    async def whole(scope: Scope, receive: Receive, send: Send) -> None:
        assert "tocsin.delivery" not in scope
        body = b""
        while (message := await receive())["body"]:
            body += message["body"]
        handler.bodies.append(body)
        for message in answered(200, b""):
            await send(message)

    app = AsgiReceiver(whole, receiver, prefix="/tocsin")
    answer = asyncio.run(serve(app, Call(), path, **{"webhook-signature": "v1,AAAA"}))
    assert (answer.status, handler.bodies) == (200, [Call().body])


def test_what_is_no_request_passes(receiver: Receiver) -> None:
    seen: list[str] = []

    async def app(scope: Scope, _receive: Receive, _send: Send) -> None:
        seen.append(scope["type"])

    async def nothing(*_: Any) -> Any:
        raise AssertionError

    asyncio.run(AsgiReceiver(app, receiver)({"type": "lifespan"}, nothing, nothing))
    assert seen == ["lifespan"]


def test_a_call_while_the_first_is_handled_is_told_when_to_come_again(
    receiver: Receiver,
) -> None:
    handler = Handler()
    app = AsgiReceiver(handler, receiver)

    async def both() -> tuple[Answer, Answer]:
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def wait() -> None:
            begun.set()
            await go_on.wait()

        handler.before = wait
        first = asyncio.create_task(serve(app, Call()))
        await begun.wait()
        second = await serve(app, Call(attempt=2, fence=4))
        go_on.set()
        return await first, second

    first, second = asyncio.run(both())
    assert (first.status, second.status, title(second)) == (200, 409, "in_progress")
    assert dict(second.headers)["retry-after"] == "120"
    assert len(handler.bodies) == 1


def test_a_lower_fence_is_refused(receiver: Receiver) -> None:
    handler = Handler()
    app = AsgiReceiver(handler, receiver)
    asyncio.run(serve(app, Call(fence=7)))
    answer = asyncio.run(serve(app, Call(fence=6)))
    assert (answer.status, title(answer)) == (409, "stale_fence")
    assert len(handler.bodies) == 1


def test_a_handler_that_raises_is_run_again(receiver: Receiver) -> None:
    handler = Handler()

    async def fail() -> None:
        raise OSError("no disk")

    handler.before = fail
    app = AsgiReceiver(handler, receiver)
    with pytest.raises(OSError, match="no disk"):
        asyncio.run(serve(app, Call()))
    handler.before = None
    assert asyncio.run(serve(app, Call(attempt=2, fence=4))).status == 200
    assert len(handler.bodies) == 2


def test_an_application_that_says_nothing_is_run_again(receiver: Receiver) -> None:
    handler = Handler({"type": "http.response.start", "status": 200, "headers": []})
    app = AsgiReceiver(handler, receiver)
    with pytest.raises(RuntimeError, match="whole answer"):
        asyncio.run(serve(app, Call()))
    handler.messages = answered(200, b"")
    assert asyncio.run(serve(app, Call(attempt=2, fence=4))).status == 200


def test_an_answer_that_is_no_success_is_sent_and_not_kept(receiver: Receiver) -> None:
    handler = Handler(*answered(500, b"oops", (b"retry-after", b"9")))
    app = AsgiReceiver(handler, receiver)
    answer = asyncio.run(serve(app, Call()))
    assert (answer.status, dict(answer.headers)["retry-after"]) == (500, "9")
    handler.messages = answered(204, b"")
    answer = asyncio.run(serve(app, Call(attempt=2, fence=4)))
    assert (answer.status, answer.headers) == (204, ())


def test_a_handler_slower_than_its_claim_is_superseded(receiver: Receiver, clock: Clock) -> None:
    handler = Handler()
    app = AsgiReceiver(handler, receiver)

    async def both() -> tuple[Answer, Answer]:
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def wait() -> None:
            handler.before = None
            begun.set()
            await go_on.wait()

        handler.before = wait
        first = asyncio.create_task(serve(app, Call()))
        await begun.wait()
        clock.at_s += 120
        second = await serve(app, Call(attempt=2, fence=4))
        go_on.set()
        return await first, second

    first, second = asyncio.run(both())
    assert (first.status, title(first), second.status) == (409, "superseded", 200)


def test_work_after_the_answer_does_not_undo_it(receiver: Receiver) -> None:
    handler = Handler()

    async def with_background(scope: Scope, receive: Receive, send: Send) -> None:
        await handler(scope, receive, send)
        raise OSError("mail server is down")

    app = AsgiReceiver(with_background, receiver)
    with pytest.raises(OSError, match="mail"):
        asyncio.run(serve(app, Call()))
    answer = asyncio.run(serve(app, Call(attempt=2, fence=4)))
    assert dict(answer.headers)["tocsin-repeated"] == "true"


def test_an_endless_answer_is_cut_where_tocsin_stops_reading(receiver: Receiver) -> None:
    part = {"type": "http.response.body", "body": bytes(50_000), "more_body": True}
    start, end = answered(200, b"end", (b"content-length", b"9999999"))
    app = AsgiReceiver(Handler(start, *[part] * 100, end), receiver)
    for attempt in (1, 2):
        answer = asyncio.run(serve(app, Call(attempt=attempt)))
        assert len(answer.body) == BODY_BYTES_MAX
        assert dict(answer.headers)["content-length"] == str(BODY_BYTES_MAX)


def test_of_an_endless_answer_no_more_is_held_than_is_sent() -> None:
    async def nothing() -> Message:
        raise AssertionError

    exchange = _Exchange(b"", nothing)
    for _ in range(100):
        exchange.take({"type": "http.response.body", "body": bytes(50_000), "more_body": True})
    assert len(exchange._answer) == BODY_BYTES_MAX


def test_a_body_over_the_limit_is_refused_before_it_is_read_whole(receiver: Receiver) -> None:
    app = AsgiReceiver(Handler(), receiver, body_bytes_max=18)
    answer = asyncio.run(serve(app, Call()))
    assert (answer.status, title(answer)) == (413, "too_large")
    assert asyncio.run(serve(app, Call(body=b"x" * 18))).status == 200


def test_a_request_that_ends_before_its_body_is_refused(receiver: Receiver) -> None:
    sent: list[Message] = []
    messages: list[Message] = [
        {"type": "http.request", "body": b"{", "more_body": True},
        {"type": "http.disconnect"},
    ]

    async def receive() -> Message:
        return messages.pop(0)

    async def send(message: Message) -> None:
        sent.append(message)

    app = AsgiReceiver(Handler(), receiver)
    asyncio.run(app({"type": "http", "path": "/", "headers": []}, receive, send))
    assert sent[0]["status"] == 400


def test_a_store_without_room_says_when_to_come_again(clock: Clock) -> None:
    receiver = Receiver(SECRET, MemoryStore(keys_max=1, clock=clock), clock=clock)
    receiver.begin(Call(slot="1").delivery())
    answer = asyncio.run(serve(AsgiReceiver(Handler(), receiver), Call()))
    assert (answer.status, title(answer)) == (503, "store_busy")
    assert dict(answer.headers)["retry-after"] == "5"


def test_an_error_of_the_store_goes_through_and_the_handler_does_not_run(clock: Clock) -> None:
    class Gone:
        """A client whose server is not there."""

        def set(self, *_: Any, **__: Any) -> None:
            raise ConnectionError("store is gone")

    handler = Handler()
    app = AsgiReceiver(handler, Receiver(SECRET, RedisStore(Gone()), clock=clock))
    with pytest.raises(ConnectionError, match="store is gone"):
        asyncio.run(serve(app, Call()))
    assert handler.bodies == []


def test_without_a_framework_a_function_is_enough(receiver: Receiver) -> None:
    call, ran = Call(), []

    def handler(delivery: Any) -> Answer:
        ran.append(delivery.key)
        return Answer(200, (), b"done")

    assert receiver.handle(call.headers(), call.body, handler).body == b"done"
    assert receiver.handle(call.headers(), call.body, handler).body == b"done"
    assert receiver.handle({}, call.body, handler).status == 401
    assert ran == [call.key]

    def failing(_delivery: Any) -> Answer:
        raise OSError("no disk")

    other = Call(slot="1")
    with pytest.raises(OSError, match="no disk"):
        receiver.handle(other.headers(), other.body, failing)
    assert receiver.handle(other.headers(), other.body, handler).status == 200
