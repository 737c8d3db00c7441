"""The WSGI wrapper, under the standard library's validator of the interface."""

import json
from collections.abc import Iterable, Iterator
from io import BytesIO
from typing import Any
from wsgiref.util import setup_testing_defaults
from wsgiref.validate import validator

import pytest

from tests.receiver.calls import SECRET, Call, Clock
from tocsin_receiver import Answer, MemoryStore, Receiver, WsgiReceiver
from tocsin_receiver.answer import BODY_BYTES_MAX
from tocsin_receiver.wsgi import App, Environ, StartResponse


def environ_of(call: Call, path: str = "/", **changed: str) -> Environ:
    """Return the environment of a call, as a server makes it."""
    environ: Environ = {
        "REQUEST_METHOD": "POST",
        "SCRIPT_NAME": "",
        "PATH_INFO": path,
        "QUERY_STRING": "",
        "CONTENT_LENGTH": str(len(call.body)),
        "wsgi.input": BytesIO(call.body),
    }
    for name, value in call.headers().items():
        variable = name.upper().replace("-", "_")
        environ[variable if variable == "CONTENT_TYPE" else f"HTTP_{variable}"] = value
    environ.update(changed)
    setup_testing_defaults(environ)
    return environ


def serve(app: App, environ: Environ, *, validated: bool = True) -> Answer:
    """Return the answer to a request; both sides are held to the interface."""
    started: list[tuple[str, list[tuple[str, str]]]] = []

    def start_response(status: str, headers: list[tuple[str, str]], *_: Any) -> Any:
        started.append((status, headers))
        return lambda _data: None

    parts: Iterable[bytes] = (validator(app) if validated else app)(environ, start_response)
    body = b"".join(parts)
    close = getattr(parts, "close", None)
    if close is not None:
        close()
    ((status, headers),) = started
    return Answer(int(status[:3]), tuple((n.lower(), v) for n, v in headers), body)


class Handler:
    """An application that counts, and answers what it is told."""

    def __init__(self, status: str = "200 OK", body: Iterable[bytes] = (b"do", b"ne")) -> None:
        self.status, self.body = status, body
        self.bodies: list[bytes] = []
        self.environs: list[Environ] = []
        self.error: Exception | None = None
        self.closed = 0

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterator[bytes]:
        self.environs.append(environ)
        self.bodies.append(environ["wsgi.input"].read())
        start_response(self.status, [("Content-Type", "text/plain"), ("Set-Cookie", "a=b")])
        try:
            if self.error is not None:
                raise self.error
            yield from self.body
        finally:
            self.closed += 1


@pytest.fixture
def receiver() -> Receiver:
    clock = Clock()
    return Receiver(SECRET, MemoryStore(clock=clock), clock=clock)


def title(answer: Answer) -> str:
    """Return what a problem is called."""
    said: str = json.loads(answer.body)["title"]
    return said


def test_a_verified_call_reaches_the_application_whole(receiver: Receiver) -> None:
    handler = Handler()
    answer = serve(WsgiReceiver(handler, receiver), environ_of(Call()))
    assert (answer.status, answer.body) == (200, b"done")
    assert dict(answer.headers)["content-length"] == "4"
    assert dict(answer.headers)["set-cookie"] == "a=b"
    assert (handler.bodies, handler.closed) == ([Call().body], 1)
    assert handler.environs[0]["tocsin.delivery"] == Call().delivery()


def test_an_inner_application_is_served_by_the_interface(receiver: Receiver) -> None:
    def plain(_environ: Environ, start_response: StartResponse) -> list[bytes]:
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [b"x"]

    inner = validator(plain)
    answer = serve(WsgiReceiver(inner, receiver), environ_of(Call()))
    assert (answer.status, answer.body) == (200, b"x")


def test_a_repeated_call_is_answered_as_the_first_without_the_application(
    receiver: Receiver,
) -> None:
    handler = Handler()
    app = WsgiReceiver(handler, receiver)
    serve(app, environ_of(Call()))
    again = serve(app, environ_of(Call(attempt=2, fence=4)))
    assert (again.status, again.body) == (200, b"done")
    assert dict(again.headers).keys() == {"content-type", "content-length", "tocsin-repeated"}
    assert len(handler.bodies) == 1


def test_a_forged_call_and_a_lower_fence_do_not_reach_it(receiver: Receiver) -> None:
    handler = Handler()
    app = WsgiReceiver(handler, receiver, prefix="/tocsin")
    forged = serve(app, environ_of(Call(), "/tocsin/a", HTTP_WEBHOOK_SIGNATURE="v1,AAAA"))
    assert (forged.status, title(forged), handler.bodies) == (401, "forged", [])
    serve(app, environ_of(Call(fence=7), "/tocsin"))
    stale = serve(app, environ_of(Call(fence=6), "/tocsin"))
    assert (stale.status, title(stale), len(handler.bodies)) == (409, "stale_fence", 1)


def test_other_paths_pass_untouched_and_have_no_delivery(receiver: Receiver) -> None:
    handler = Handler()
    app = WsgiReceiver(handler, receiver, prefix="/tocsin")
    environ = environ_of(Call(), "/other", HTTP_WEBHOOK_SIGNATURE="")
    environ["wsgi.input"] = BytesIO(b"theirs")
    assert serve(app, environ, validated=False).status == 200
    assert handler.bodies == [b"theirs"]
    assert "tocsin.delivery" not in handler.environs[0]


def test_a_handler_that_raises_or_fails_is_run_again(receiver: Receiver) -> None:
    handler = Handler()
    handler.error = OSError("no disk")
    app = WsgiReceiver(handler, receiver)
    with pytest.raises(OSError, match="no disk"):
        serve(app, environ_of(Call()), validated=False)
    handler.error, handler.status = None, "503 Busy"
    assert serve(app, environ_of(Call(attempt=2, fence=4))).status == 503
    handler.status = "200 OK"
    assert serve(app, environ_of(Call(attempt=3, fence=5))).status == 200
    assert (len(handler.bodies), handler.closed) == (3, 3)


def test_an_application_that_never_starts_is_run_again(receiver: Receiver) -> None:
    app = WsgiReceiver(lambda *_: [], receiver)
    with pytest.raises(RuntimeError, match="start_response"):
        serve(app, environ_of(Call()), validated=False)
    assert serve(WsgiReceiver(Handler(), receiver), environ_of(Call(attempt=2))).status == 200


def test_what_is_written_is_part_of_the_answer(receiver: Receiver) -> None:
    def old_style(_environ: Environ, start_response: StartResponse) -> list[bytes]:
        start_response("200 OK", [("Content-Type", "text/plain")])(b"written, ")
        return [b"returned"]

    answer = serve(WsgiReceiver(old_style, receiver), environ_of(Call()))
    assert answer.body == b"written, returned"


def test_an_answer_is_cut_where_tocsin_stops_reading(receiver: Receiver) -> None:
    app = WsgiReceiver(Handler(body=[bytes(50_000)] * 100), receiver)
    for attempt in (1, 2):
        assert len(serve(app, environ_of(Call(attempt=attempt))).body) == BODY_BYTES_MAX


@pytest.mark.parametrize(
    ("length", "status", "reason"),
    [
        ("-1", 400, "malformed"),
        ("1e3", 400, "malformed"),
        ("9" * 5_000, 400, "malformed"),
        ("\u0661", 400, "malformed"),
        ("19", 400, "cut_off"),
        ("100", 413, "too_large"),
        ("17", 401, "forged"),
        ("", 401, "forged"),
    ],
)
def test_a_length_that_is_not_the_bodys_is_refused(
    receiver: Receiver, length: str, status: int, reason: str
) -> None:
    call = Call(body=b"x" * 18 if length != "100" else b"x" * 100)
    app = WsgiReceiver(Handler(), receiver, body_bytes_max=50)
    answer = serve(app, environ_of(call, CONTENT_LENGTH=length), validated=False)
    assert (answer.status, title(answer)) == (status, reason)


def test_a_chunked_body_is_read_where_the_server_ends_it(receiver: Receiver) -> None:
    handler = Handler()
    environ = environ_of(Call(), CONTENT_LENGTH="", HTTP_TRANSFER_ENCODING="chunked")
    environ["wsgi.input_terminated"] = True
    assert serve(WsgiReceiver(handler, receiver), environ, validated=False).status == 200
    assert handler.environs[0]["CONTENT_LENGTH"] == str(len(Call().body))
    assert "HTTP_TRANSFER_ENCODING" not in handler.environs[0]
