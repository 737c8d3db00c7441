"""Wraps a WSGI application: Flask, Django, Bottle, or a plain one."""

from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from io import BytesIO
from types import TracebackType
from typing import Any

from tocsin_receiver.answer import BODY_BYTES_MAX as ANSWER_BYTES_MAX
from tocsin_receiver.answer import Answer, made
from tocsin_receiver.asgi import DELIVERY
from tocsin_receiver.headers import environ_headers
from tocsin_receiver.receiver import BODY_BYTES_MAX, Receiver, guarded, refusal
from tocsin_receiver.refused import Refused

Environ = dict[str, Any]
StartResponse = Callable[..., Callable[[bytes], object]]
App = Callable[[Environ, StartResponse], Iterable[bytes]]
ExcInfo = (
    tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None] | None
)


class WsgiReceiver:
    """Lets verified first calls through to `app`, with `environ["tocsin.delivery"]`.

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

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Serve one request."""
        path = environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")
        if not guarded(path or "/", self._prefix):
            return self._app(environ, start_response)
        answer = self._answer(environ)
        start_response(_status_line(answer.status), answer.framed())
        return [answer.body]

    def _answer(self, environ: Environ) -> Answer:
        receiver = self._receiver
        try:
            body = _read(environ, self._body_bytes_max)
            delivery = receiver.verify(environ_headers(environ), body)
        except Refused as refused:
            return refusal(refused)
        begun = receiver.begin(delivery)
        if isinstance(begun, Answer):
            return begun
        inner = {
            **environ,
            DELIVERY: delivery,
            "CONTENT_LENGTH": str(len(body)),
            "wsgi.input": BytesIO(body),
        }
        # The body was read whole: how it came is not how it is given.
        inner.pop("HTTP_TRANSFER_ENCODING", None)
        try:
            answer = _run(self._app, inner)
        except Exception:
            receiver.fail(begun)
            raise
        return receiver.end(begun, answer)


def _run(app: App, environ: Environ) -> Answer:
    started: list[tuple[int, list[tuple[str, str]]]] = []
    collected = bytearray()

    def write(data: bytes) -> None:
        # Beyond what is sent nothing is held, however much an application streams.
        collected.extend(data[: ANSWER_BYTES_MAX - len(collected)])

    def start_response(
        status: str, headers: list[tuple[str, str]], _exc_info: ExcInfo = None
    ) -> Callable[[bytes], object]:
        started[:] = [(int(status[:3]), headers)]
        return write

    parts = app(environ, start_response)
    try:
        for part in parts:
            write(part)
    finally:
        close = getattr(parts, "close", None)
        if close is not None:
            close()
    if not started:
        raise RuntimeError("the application returned without calling start_response")
    status, headers = started[0]
    return made(status, headers, bytes(collected))


def _read(environ: Mapping[str, Any], bytes_max: int) -> bytes:
    stream = environ["wsgi.input"]
    length = environ.get("CONTENT_LENGTH") or ""
    if not length:
        # Only a server that ends the stream itself can be read to its end.
        body: bytes = stream.read(bytes_max + 1) if environ.get("wsgi.input_terminated") else b""
    elif not (length.isascii() and length.isdigit()) or len(length) > 18:  # noqa: PLR2004 - digits
        raise Refused("malformed", "content-length is not a number of bytes")
    else:
        body = stream.read(min(int(length), bytes_max + 1))
        if len(body) < min(int(length), bytes_max + 1):
            raise Refused("cut_off", "the request ended before its body did")
    if len(body) > bytes_max:
        raise Refused("too_large", f"the body has more than {bytes_max} bytes")
    return body


def _status_line(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"{status} Status"
