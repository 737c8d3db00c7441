"""The routes of the command API. Each says what it takes and answers in its `opt`.

`opt["scope"]` is what a key must allow, `opt["query"]` the parameters that exist; the composition
refuses every other and builds the OpenAPI page from the rest. A `hot` route is answered without the
framework's router.
"""

from typing import Any, Final

import msgspec
from litestar import delete, patch, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath
from litestar.response.base import ASGIResponse
from litestar.types import Receive, Scope, Send

from commandside.api import schema
from commandside.api.answers import answer
from commandside.api.requests import (
    JSON,
    NDJSON,
    PATCH,
    HttpRequest,
    asked,
    body_of,
    expect,
    idempotency_key,
    optional_object,
    pieces,
)
from commandside.commands import backfill as past
from commandside.commands.asked import Done, Sent
from commandside.commands.batch import Batch, LineReply, Report
from commandside.commands.jobs import Jobs
from commandside.commands.preview import Preview, Previews
from commandside.commands.replies import JobReply
from commandside.definitions.given import with_values
from commandside.definitions.reading import read_job, read_object, unknown
from domain.job.resume import CATCH_UPS, USUAL
from domain.problem import invalid
from domain.refusal import Refused, token
from domain.schedule.once import read_instant
from domain.tenant import JOBS_READ, JOBS_WRITE

_ENCODE: Final = msgspec.json.Encoder().encode
_JOB: Final = "/v1/jobs/{job_id:str}"


def _opt(summary: str, media: tuple[str, ...], body: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "scope": JOBS_WRITE,
        "query": {},
        "summary": summary,
        "media": media,
        "body": body,
        "answers": {200: JobReply},
        **more,
    }


def handlers(jobs: Jobs, previews: Previews, report: Report) -> list[HTTPRouteHandler]:
    """Return the handlers; `report` takes exceptions that are bugs."""
    return [*_definitions(jobs, report), *_commands(jobs), _preview(previews)]


def _preview(previews: Previews) -> HTTPRouteHandler:
    @post(
        "/v1/preview",
        status_code=200,
        opt=_opt(
            "Say what a definition would do; nothing is stored",
            JSON,
            schema.PREVIEW,
            scope=JOBS_READ,
            answers={200: Preview},
            spoken=True,
        ),
    )
    async def preview(request: HttpRequest) -> ASGIResponse:
        expect(request, JSON)
        body, payload = read_job(await body_of(request))
        accepts = request.headers.get("accept-language", "")
        found = await previews.preview(request.user, body, payload, accepts)
        return answer(found)

    return preview


def _definitions(jobs: Jobs, report: Report) -> list[HTTPRouteHandler]:
    @post(
        "/v1/jobs",
        opt=_opt(
            "Define a job",
            JSON,
            schema.DEFINE,
            answers={201: JobReply, 200: JobReply},
            keyed=True,
            hot=True,
        ),
    )
    async def define(request: HttpRequest) -> ASGIResponse:
        expect(request, JSON)
        key = idempotency_key(request)
        raw = await body_of(request)
        return _answer(await jobs.define(request.user, Sent(*read_job(raw), raw, key)))

    @post(
        "/v1/jobs:batch",
        opt=_opt(
            "Define many jobs, one a line; the answer has a line for each",
            NDJSON,
            schema.DEFINE,
            answers={200: LineReply},
            keyed=True,
            lines=True,
            hot=True,
        ),
    )
    async def batch(request: HttpRequest) -> ASGIResponse:
        expect(request, NDJSON)
        return _Lines(Batch(jobs, request.user, idempotency_key(request), report), request)

    @patch(_JOB, opt=_opt("Change a job", PATCH, schema.PATCH, versioned=True))
    async def revise(request: HttpRequest, job_id: FromPath[str]) -> ASGIResponse:
        expect(request, PATCH)
        raw = await body_of(request)
        command = asked(request, job_id, "revise", raw, keyed=False)
        body, payload = read_job(raw)
        return _answer(await jobs.revise(command, body, payload))

    return [define, batch, revise]


def _commands(jobs: Jobs) -> list[HTTPRouteHandler]:
    because = {"optional": True, "versioned": True}

    @delete(
        _JOB,
        status_code=200,
        opt=_opt("Cancel a job for ever", JSON, schema.BECAUSE, **because),
    )
    async def cancel(request: HttpRequest, job_id: FromPath[str]) -> ASGIResponse:
        raw, fields = await _because(request, "reason")
        command = asked(request, job_id, "cancel", raw, keyed=False)
        return _answer(await jobs.cancel(command, fields.get("reason", "")))

    @post(
        f"{_JOB}/pause",
        status_code=200,
        opt=_opt("Pause a job", JSON, schema.PAUSE, keyed=True, **because),
    )
    async def pause(request: HttpRequest, job_id: FromPath[str]) -> ASGIResponse:
        raw, fields = await _because(request, "reason", "until")
        command = asked(request, job_id, "pause", raw, keyed=True)
        until = 0
        if "until" in fields:
            try:
                until = read_instant(fields["until"])
            except ValueError as error:
                wrong = (Refused("/until", str(error)),)
                raise invalid(with_values(wrong, fields)) from error
        return _answer(await jobs.pause(command, fields.get("reason", ""), until))

    @post(
        f"{_JOB}/resume",
        status_code=200,
        opt=_opt("Resume a paused job", JSON, schema.RESUME, keyed=True, **because),
    )
    async def resume(request: HttpRequest, job_id: FromPath[str]) -> ASGIResponse:
        raw, fields = await _because(request, "reason", "catch_up")
        command = asked(request, job_id, "resume", raw, keyed=True)
        catch_up = fields.get("catch_up", USUAL)
        if "catch_up" in fields and catch_up not in CATCH_UPS:
            wrong = (Refused("/catch_up", f"one of {', '.join(CATCH_UPS)}"),)
            raise invalid(with_values(wrong, fields))
        return _answer(await jobs.resume(command, fields.get("reason", ""), catch_up))

    @post(
        f"{_JOB}/trigger",
        status_code=200,
        opt=_opt("Run a job now, beside its schedule", JSON, schema.TRIGGER, keyed=True, **because),
    )
    async def trigger(request: HttpRequest, job_id: FromPath[str]) -> ASGIResponse:
        raw, fields = await _because(request, "reason", "overlap")
        command = asked(request, job_id, "trigger", raw, keyed=True)
        overlap = fields.get("overlap", "skip")
        if overlap not in ("skip", "allow"):
            raise invalid(with_values((Refused("/overlap", "skip or allow"),), fields))
        allow = overlap == "allow"
        return _answer(await jobs.trigger(command, fields.get("reason", ""), allow_overlap=allow))

    return [cancel, pause, resume, trigger, _backfill(jobs)]


def _backfill(jobs: Jobs) -> HTTPRouteHandler:
    @post(
        f"{_JOB}/backfill",
        status_code=200,
        opt=_opt(
            "Run past slots that were missed, with the schedule in force then",
            JSON,
            schema.BACKFILL,
            keyed=True,
            versioned=True,
        ),
    )
    async def backfill(request: HttpRequest, job_id: FromPath[str]) -> ASGIResponse:
        expect(request, JSON)
        raw = await body_of(request)
        command = asked(request, job_id, "backfill", raw, keyed=True)
        wish, reason, dry_run = past.read(read_object(raw))
        return _answer(await jobs.backfill(command, reason, wish, dry_run=dry_run))

    return backfill


async def _because(request: HttpRequest, *fields: str) -> tuple[bytes, dict[str, str]]:
    """Return the body of a command, which may be absent, and its fields: short texts."""
    raw, body = await optional_object(request)
    wrong = []
    for name, value in body.items():
        pointer = "/" + token(name[:64])
        if name not in fields:
            wrong.append(Refused(pointer, unknown(fields)))
        elif not isinstance(value, str) or len(value) > past.REASON_MAX:
            wrong.append(Refused(pointer, f"a text of at most {past.REASON_MAX} characters"))
    if wrong:
        raise invalid(with_values(wrong, body))
    # A blank body is no body: it is the same command.
    return raw if raw.strip() else b"", body


def _answer(done: Done) -> ASGIResponse:
    reply = done.reply
    headers = [(b"etag", b'"%d"' % reply.version)]
    if done.created:
        headers.append((b"location", b"/v1/jobs/" + reply.job_id.encode()))
    return _Ready(201 if done.created else 200, headers, _ENCODE(reply))


class _Ready(ASGIResponse):
    """An answer that is bytes already: the framework's own copies and guesses what is known."""

    __slots__ = ("_answer",)

    def __init__(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        # Not the framework's: it would make a default answer first, for a fiftieth of a request.
        length = (b"content-length", b"%d" % len(body))
        self._answer = status, [(b"content-type", b"application/json"), length, *headers], body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - as ASGI calls it
        """Send the answer."""
        status, headers, body = self._answer
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": False})


class _Lines(ASGIResponse):
    """Answers while it reads: the framework's own stream would read the body to find its end."""

    def __init__(self, batch: Batch, request: HttpRequest) -> None:
        super().__init__(media_type=NDJSON[0])
        self._batch = batch
        self._request = request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - as ASGI calls it
        """Stream the answers."""
        headers = [(b"content-type", NDJSON[0].encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        async for chunk in self._batch.replies(pieces(self._request)):
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
