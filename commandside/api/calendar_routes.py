"""The routes of calendars."""

from typing import Any, Final

import msgspec
from litestar import delete, get, put
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath
from litestar.response.base import ASGIResponse

from commandside.api import schema
from commandside.api.answers import answer
from commandside.api.requests import JSON, HttpRequest, body_of, expect, if_match
from commandside.commands.calendars import (
    LIST_MAX,
    CalendarGone,
    CalendarPage,
    CalendarPut,
    CalendarShown,
    TenantCalendars,
)
from commandside.definitions.calendar_body import NAME
from commandside.definitions.reading import read_object
from domain.problem import invalid
from domain.refusal import Refused
from domain.tenant import JOBS_READ, JOBS_WRITE

_ALL: Final = "/v1/calendars"
_ONE: Final = "/v1/calendars/{name:str}"
CALENDAR_MEDIA: Final = (*JSON, "text/calendar")
VERSION_MAX: Final = 2**31 - 1
_LIMIT: Final = {"type": "integer", "minimum": 1, "maximum": LIST_MAX, "default": LIST_MAX}
_CURSOR: Final = {"type": "string", "description": "next_cursor of the page before"}
_VERSION: Final = {"type": "integer", "minimum": 1, "description": "an older one; default current"}


def _opt(summary: str, scope: str, answers: dict[int, Any], **more: Any) -> dict[str, Any]:
    return {"scope": scope, "query": {}, "summary": summary, "answers": answers, **more}


def handlers(calendars: TenantCalendars) -> list[HTTPRouteHandler]:
    """Return the handlers."""

    @put(
        _ONE,
        opt=_opt(
            "Make a calendar, or its next version; its jobs follow at once",
            JOBS_WRITE,
            {200: CalendarPut, 201: CalendarPut},
            media=CALENDAR_MEDIA,
            body=schema.CALENDAR,
            versioned=True,
        ),
    )
    async def put_calendar(request: HttpRequest, name: FromPath[str]) -> ASGIResponse:
        expect(request, CALENDAR_MEDIA)
        raw = await body_of(request)
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        body = {"ics": _text(raw)} if kind == "text/calendar" else read_object(raw)
        done, created = await calendars.put(request.user, name, body, if_match(request))
        return _answer(done, 201 if created else 200, done.version, name if created else "")

    @get(
        _ALL,
        opt=_opt(
            "List calendars",
            JOBS_READ,
            {200: CalendarPage},
            query={"limit": _LIMIT, "cursor": _CURSOR},
        ),
    )
    async def list_calendars(request: HttpRequest) -> ASGIResponse:
        limit = _number(request, "limit", LIST_MAX, LIST_MAX)
        after = request.query_params.get("cursor", "")
        if after and not NAME.fullmatch(after):
            raise invalid((Refused("?cursor", "next_cursor of the page before"),))
        return _answer(await calendars.page(request.user, after, limit))

    @get(
        _ONE,
        opt=_opt("Show a calendar", JOBS_READ, {200: CalendarShown}, query={"version": _VERSION}),
    )
    async def get_calendar(request: HttpRequest, name: FromPath[str]) -> ASGIResponse:
        version = _number(request, "version", 0, VERSION_MAX)
        shown = await calendars.show(request.user, name, version)
        return _answer(shown, 200, shown.version)

    @delete(
        _ONE,
        status_code=200,
        opt=_opt(
            "Delete a calendar that no job uses", JOBS_WRITE, {200: CalendarGone}, versioned=True
        ),
    )
    async def delete_calendar(request: HttpRequest, name: FromPath[str]) -> ASGIResponse:
        return _answer(await calendars.remove(request.user, name, if_match(request)))

    return [put_calendar, list_calendars, get_calendar, delete_calendar]


def _number(request: HttpRequest, name: str, default: int, most: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    if text.isascii() and text.isdecimal() and len(text) < len(str(10 * most)):
        number = int(text)
        if 1 <= number <= most:
            return number
    raise invalid((Refused(f"?{name}", f"a whole number from 1 to {most}"),))


def _text(raw: bytes) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        detail = f"byte {error.start} is not UTF-8"
        raise invalid((Refused("", detail),)) from None


def _answer(
    shown: msgspec.Struct, status: int = 200, version: int = 0, at: str = ""
) -> ASGIResponse:
    headers = {"etag": f'"{version}"'} if version else {}
    if at:
        headers["location"] = f"{_ALL}/{at}"
    return answer(shown, status, headers)
