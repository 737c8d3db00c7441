"""The routes of the query API. Each says what it takes and answers in its `opt`, as commands do."""

from typing import Any, Final

import msgspec
from litestar import Request, get
from litestar.datastructures import State
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath
from litestar.response.base import ASGIResponse

from domain.ids import job_id_of_key
from domain.tenant import JOBS_READ, RUNS_READ, Caller
from queryside.ports import PAGE_MAX, JobFilter
from queryside.queries import STATUSES, Queries, dead_filter, labels_of
from queryside.shown import DeadLetterPage, EventPage, JobPage, JobShown, RunPage, RunShown

HttpRequest = Request[Caller, Any, State]

_ENCODE: Final = msgspec.json.Encoder().encode
_JOB: Final = "/v1/jobs/{job_id:str}"
_TEXT: Final = {"type": "string"}
_PAGE: Final[dict[str, Any]] = {
    "limit": {"type": "integer", "minimum": 1, "maximum": PAGE_MAX},
    "cursor": {"type": "string", "description": "next_cursor or prev_cursor of a page"},
}
_POSITION: Final = {"type": "string", "description": "of a command; the list waits for it"}


def _opt(summary: str, answer: type, scope: str, query: dict[str, Any]) -> dict[str, Any]:
    return {"scope": scope, "query": query, "summary": summary, "answers": {200: answer}}


def job_handler(queries: Queries) -> HTTPRouteHandler:
    """Return the query of one job, which the command role answers too."""
    query = {
        "min_version": {"type": "integer", "minimum": 0},
        "as_of": {"type": "string", "description": "RFC 3339, past: the job as it stood"},
    }

    @get(_JOB, opt=_opt("A job as it stands", JobShown, JOBS_READ, query))
    async def job(request: HttpRequest, job_id: FromPath[str]) -> ASGIResponse:
        asked = request.query_params
        found = await queries.job(
            request.user,
            job_id,
            min_version=asked.get("min_version"),
            as_of=asked.get("as_of"),
        )
        return _answer(found, {"etag": f'"{found.version}"'})

    return job


def run_handler(queries: Queries) -> HTTPRouteHandler:
    """Return the query of one run, which is answered from the log too."""

    @get(
        "/v1/runs/{run_id:str}",
        opt=_opt("A run, with all its attempts", RunShown, RUNS_READ, {}),
    )
    async def run(request: HttpRequest, run_id: FromPath[str]) -> ASGIResponse:
        return _answer(await queries.run(request.user, run_id))

    return run


def handlers(queries: Queries) -> list[HTTPRouteHandler]:
    """Return the queries that are answered from views."""
    filters = {
        "status": {"type": "string", "enum": list(STATUSES)},
        "label": {"type": "array", "items": _TEXT, "description": "name:value; all must match"},
        "host": {"type": "string", "description": "of the target"},
        "name_prefix": _TEXT,
        "key": {"type": "string", "description": "as the job was defined with"},
    }
    paged = _PAGE | {"position": _POSITION}

    @get("/v1/jobs", opt=_opt("The tenant's jobs", JobPage, JOBS_READ, filters | paged))
    async def jobs(request: HttpRequest) -> ASGIResponse:
        asked = request.query_params
        wanted = JobFilter(
            asked.get("status", ""),
            asked.get("name_prefix", ""),
            asked.get("host", "").lower(),
            labels_of(asked.getall("label", [])),
            job_id_of_key(request.user.tenant_id, "key", asked["key"]) if "key" in asked else b"",
        )
        return _answer(
            await queries.jobs(
                request.user,
                wanted,
                limit=asked.get("limit"),
                cursor=asked.get("cursor"),
                position=asked.get("position"),
            )
        )

    @get(f"{_JOB}/runs", opt=_opt("The runs of a job", RunPage, RUNS_READ, paged))
    async def runs(request: HttpRequest, job_id: FromPath[str]) -> ASGIResponse:
        asked = request.query_params
        return _answer(
            await queries.runs(
                request.user,
                job_id,
                limit=asked.get("limit"),
                cursor=asked.get("cursor"),
                position=asked.get("position"),
            )
        )

    trail = _PAGE | {"run": {"type": "string", "description": "a run of the job"}}

    @get(f"{_JOB}/events", opt=_opt("The audit trail of a job", EventPage, JOBS_READ, trail))
    async def events(request: HttpRequest, job_id: FromPath[str]) -> ASGIResponse:
        asked = request.query_params
        return _answer(
            await queries.events(
                request.user,
                job_id,
                run=asked.get("run"),
                limit=asked.get("limit"),
                cursor=asked.get("cursor"),
            )
        )

    dead = {
        "job_id": _TEXT,
        "label": {"type": "array", "items": _TEXT, "description": "of the job; name:value"},
        "cause": {"type": "string", "description": "of the end: attempts, age, lost, status …"},
        "since": {"type": "string", "description": "RFC 3339: they ended then, or later"},
        "until": {"type": "string", "description": "RFC 3339: they ended then, or before"},
    }

    @get(
        "/v1/dead-letters",
        opt=_opt("The tenant's dead runs", DeadLetterPage, RUNS_READ, dead | paged),
    )
    async def dead_letters(request: HttpRequest) -> ASGIResponse:
        asked = request.query_params
        return _answer(
            await queries.dead_letters(
                request.user,
                dead_filter(asked, asked.getall("label", [])),
                limit=asked.get("limit"),
                cursor=asked.get("cursor"),
                position=asked.get("position"),
            )
        )

    return [jobs, runs, events, dead_letters]


def _answer(found: Any, headers: dict[str, str] | None = None) -> ASGIResponse:
    return ASGIResponse(body=_ENCODE(found), headers=headers or {}, media_type="application/json")
