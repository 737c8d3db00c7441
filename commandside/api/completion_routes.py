"""The routes of handlers: they show the token of one attempt instead of an API key."""

from typing import Any, Final

from litestar import post
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath
from litestar.response.base import ASGIResponse

from commandside.api import schema
from commandside.api.answers import answer
from commandside.api.requests import JSON, HttpRequest, optional_object
from commandside.commands.backfill import REASON_MAX
from commandside.commands.completions import Attempt, Completions, RunReply
from commandside.definitions.reading import member, strange
from domain.problem import Problem, invalid
from domain.refusal import Refused
from domain.run.accepted import Progress

SHOWN_AS: Final = "Tocsin-Completion-Token"
"""The header, as the call brought it."""
BY_RUN: Final = "run token"
"""Scope of routes that need the token of their run, and no key."""

_RUN: Final = "/v1/runs/{run_id:str}"


def _opt(summary: str, body: dict[str, Any]) -> dict[str, Any]:
    return {
        "scope": BY_RUN,
        "query": {},
        "summary": summary,
        "media": JSON,
        "body": body,
        "optional": True,
        "answers": {200: RunReply},
    }


def handlers(completions: Completions) -> list[HTTPRouteHandler]:
    """Return the handlers."""

    @post(
        f"{_RUN}/heartbeat",
        status_code=200,
        opt=_opt("Say that an accepted attempt goes on", schema.HEARTBEAT) | {"gone": True},
    )
    async def heartbeat(request: HttpRequest, run_id: FromPath[str]) -> ASGIResponse:
        attempt = _attempt(completions, request, run_id)
        _, body = await _body(request, "progress", "note")
        return answer(await completions.heartbeat(attempt, _progress(body)))

    @post(
        f"{_RUN}/complete",
        status_code=200,
        opt=_opt("End an accepted attempt as done", schema.COMPLETE),
    )
    async def complete(request: HttpRequest, run_id: FromPath[str]) -> ASGIResponse:
        attempt = _attempt(completions, request, run_id)
        raw, body = await _body(request, "result")
        result = member(raw, "result") if "result" in body else b""
        return answer(await completions.complete(attempt, result))

    @post(
        f"{_RUN}/fail",
        status_code=200,
        opt=_opt("Give an accepted attempt up", schema.FAIL),
    )
    async def fail(request: HttpRequest, run_id: FromPath[str]) -> ASGIResponse:
        attempt = _attempt(completions, request, run_id)
        _, body = await _body(request, "reason", "retry")
        reason, retry = body.get("reason", ""), body.get("retry", True)
        wrong = _text("/reason", reason, REASON_MAX)
        if not isinstance(retry, bool):
            wrong.append(Refused("/retry", "true or false"))
        if wrong:
            raise invalid(wrong)
        return answer(await completions.fail(attempt, reason, retry=retry))

    return [heartbeat, complete, fail]


def _attempt(completions: Completions, request: HttpRequest, run_id: str) -> Attempt:
    """Return the attempt whose token is shown; judged before the body is read."""
    given = request.headers.getall(SHOWN_AS.lower(), [])
    if len(given) != 1:
        reason = Refused(f"@{SHOWN_AS}", "the one that the call of this attempt brought")
        raise Problem("bad_request", f"send {SHOWN_AS}, once", (reason,))
    return completions.attempt(run_id, given[0])


async def _body(request: HttpRequest, *fields: str) -> tuple[bytes, dict[str, Any]]:
    """Return a body that may be absent, as bytes and as an object of these fields."""
    raw, body = await optional_object(request)
    wrong = strange(body, fields)
    if wrong:
        raise invalid(wrong)
    return raw, body


def _progress(body: dict[str, Any]) -> Progress | None:
    percent, note = body.get("progress"), body.get("note", "")
    wrong = _text("/note", note, schema.NOTE_MAX)
    if "progress" in body and not _is_percent(percent):
        wrong.append(Refused("/progress", "a whole number from 0 to 100"))
    elif "note" in body and "progress" not in body:
        wrong.append(Refused("/progress", "required beside a note"))
    if wrong:
        raise invalid(wrong)
    return None if percent is None else Progress(percent, note)


def _is_percent(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int):
        return False
    return 0 <= value <= 100  # noqa: PLR2004 - a percentage


def _text(pointer: str, value: object, most: int) -> list[Refused]:
    if isinstance(value, str) and len(value) <= most:
        return []
    return [Refused(pointer, f"a text of at most {most} characters")]
