"""The routes of a tenant's default callbacks."""

from typing import Any, Final

from litestar import delete, get, put
from litestar.handlers import HTTPRouteHandler
from litestar.response.base import ASGIResponse

from commandside.api import schema
from commandside.api.answers import answer
from commandside.api.requests import JSON, HttpRequest, body_of, expect, if_match
from commandside.commands.callbacks import CallbacksGone, CallbacksShown, TenantCallbacks
from commandside.definitions.reading import read_object
from domain.tenant import JOBS_READ, JOBS_WRITE

_PATH: Final = "/v1/callbacks"


def _opt(summary: str, scope: str, answers: dict[int, Any], **more: Any) -> dict[str, Any]:
    return {"scope": scope, "query": {}, "summary": summary, "answers": answers, **more}


def handlers(callbacks: TenantCallbacks) -> list[HTTPRouteHandler]:
    """Return the handlers."""

    @put(
        _PATH,
        opt=_opt(
            "Say who is told how occurrences end, of jobs that do not say it themselves",
            JOBS_WRITE,
            {200: CallbacksShown, 201: CallbacksShown},
            media=JSON,
            body=schema.CALLBACKS,
            versioned=True,
        ),
    )
    async def put_callbacks(request: HttpRequest) -> ASGIResponse:
        expect(request, JSON)
        body = read_object(await body_of(request))
        shown, created = await callbacks.put(request.user, body, if_match(request))
        return _answer(shown, 201 if created else 200)

    @get(_PATH, opt=_opt("Show the default callbacks", JOBS_READ, {200: CallbacksShown}))
    async def get_callbacks(request: HttpRequest) -> ASGIResponse:
        return _answer(await callbacks.show(request.user))

    @delete(
        _PATH,
        status_code=200,
        opt=_opt("Tell nobody by default", JOBS_WRITE, {200: CallbacksGone}, versioned=True),
    )
    async def delete_callbacks(request: HttpRequest) -> ASGIResponse:
        return answer(await callbacks.remove(request.user, if_match(request)))

    return [put_callbacks, get_callbacks, delete_callbacks]


def _answer(shown: CallbacksShown, status: int = 200) -> ASGIResponse:
    headers = {"etag": f'"{shown.version}"'}
    if status == 201:  # noqa: PLR2004 - created
        headers["location"] = _PATH
    return answer(shown, status, headers)
