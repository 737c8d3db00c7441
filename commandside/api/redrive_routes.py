"""The routes of dead letters that write: redrive one, redrive by filter."""

from typing import Any, Final

from litestar import post
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath
from litestar.response.base import ASGIResponse

from commandside.api import schema
from commandside.api.answers import answer
from commandside.api.requests import (
    JSON,
    HttpRequest,
    body_of,
    expect,
    idempotency_key,
    optional_object,
)
from commandside.commands.backfill import REASON_MAX
from commandside.commands.redrive import (
    PER_SECOND,
    PER_SECOND_MAX,
    REDRIVES,
    REDRIVES_MAX,
    BulkReply,
    ManyAsked,
    OneAsked,
    RedriveReply,
    Redrives,
)
from commandside.definitions.reading import read_object, strange
from domain.ids import JOB, parse
from domain.instant import LAST
from domain.problem import Reason, invalid
from domain.refusal import Refused, token
from domain.schedule.once import read_instant
from domain.tenant import JOBS_WRITE
from projections.dead_letters import DeadFilter

CAUSE_MAX: Final = 64
LABELS_MAX: Final = 10
_MANY: Final = frozenset(
    {"job_id", "labels", "cause", "since", "until", "limit", "per_second", "dry_run", "reason"}
)


def handlers(redrives: Redrives) -> list[HTTPRouteHandler]:
    """Return the handlers."""

    @post(
        "/v1/runs/{run_id:str}/redrive",
        status_code=200,
        opt=_opt(
            "Run a dead run again: current target, same body and key",
            schema.BECAUSE,
            RedriveReply,
            optional=True,
        ),
    )
    async def one(request: HttpRequest, run_id: FromPath[str]) -> ASGIResponse:
        key = idempotency_key(request)
        raw, body = await optional_object(request)
        wrong = strange(body, ("reason",))
        reason = _reason(body, wrong)
        if wrong:
            raise invalid(wrong)
        found = await redrives.one(OneAsked(request.user, run_id, reason, raw, key))
        return answer(found)

    @post(
        "/v1/dead-letters/redrive",
        status_code=200,
        opt=_opt("Run dead runs again, by a filter", schema.REDRIVE, BulkReply),
    )
    async def many(request: HttpRequest) -> ASGIResponse:
        expect(request, JSON)
        key = idempotency_key(request)
        raw = await body_of(request)
        found = await redrives.many(_many(request, read_object(raw), raw, key))
        return answer(found)

    return [one, many]


def _opt(summary: str, body: dict[str, Any], answer: type, **more: Any) -> dict[str, Any]:
    return {
        "scope": JOBS_WRITE,
        "query": {},
        "summary": summary,
        "media": JSON,
        "body": body,
        "answers": {200: answer},
        "keyed": True,
        **more,
    }


def _many(request: HttpRequest, body: dict[str, Any], raw: bytes, key: str) -> ManyAsked:
    wrong = strange(body, _MANY)
    job_id = body.get("job_id", "")
    job = parse(JOB, job_id) if isinstance(job_id, str) else None
    if "job_id" in body and job is None:
        wrong.append(Refused("/job_id", "the id of a job: jb_ and 32 hex digits"))
    cause = body.get("cause", "")
    if not isinstance(cause, str) or len(cause) > CAUSE_MAX or ("cause" in body and not cause):
        wrong.append(Refused("/cause", f"a text of 1 to {CAUSE_MAX} characters"))
    since = _instant(body, "since", 0, wrong)
    until = _instant(body, "until", LAST, wrong)
    if since > until:
        wrong.append(Refused("/since", "not later than until"))
    limit = _whole(body, "limit", (REDRIVES, REDRIVES_MAX), wrong)
    per_second = _whole(body, "per_second", (PER_SECOND, PER_SECOND_MAX), wrong)
    dry_run = body.get("dry_run", False)
    if not isinstance(dry_run, bool):
        wrong.append(Refused("/dry_run", "true or false"))
    reason = _reason(body, wrong)
    labels = _labels(body, wrong)
    if wrong:
        raise invalid(wrong)
    wanted = DeadFilter(job or b"", cause, since, until, labels)
    return ManyAsked(request.user, wanted, limit, per_second, dry_run, reason, raw, key)


def _reason(body: dict[str, Any], wrong: list[Reason]) -> str:
    reason = body.get("reason", "")
    if isinstance(reason, str) and len(reason) <= REASON_MAX:
        return reason
    wrong.append(Refused("/reason", f"a text of at most {REASON_MAX} characters"))
    return ""


def _labels(body: dict[str, Any], wrong: list[Reason]) -> tuple[tuple[str, str], ...]:
    given = body.get("labels", {})
    if not isinstance(given, dict) or len(given) > LABELS_MAX or ("labels" in body and not given):
        wrong.append(Refused("/labels", f"an object of 1 to {LABELS_MAX} names and values"))
        return ()
    for name, value in given.items():
        if not isinstance(value, str) or "\0" in name + value:
            wrong.append(Refused(f"/labels/{token(name[:64])}", "a text"))
            return ()
    return tuple(sorted(given.items()))


def _instant(body: dict[str, Any], name: str, usual: int, wrong: list[Reason]) -> int:
    if name not in body:
        return usual
    value = body[name]
    try:
        if not isinstance(value, str):
            raise ValueError("RFC 3339 with an offset, such as 2027-03-01T09:00:00Z")
        return read_instant(value)
    except ValueError as error:
        wrong.append(Refused(f"/{name}", str(error)))
        return usual


def _whole(body: dict[str, Any], name: str, bounds: tuple[int, int], wrong: list[Reason]) -> int:
    usual, most = bounds
    value = body.get(name, usual)
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most:
        return value
    wrong.append(Refused(f"/{name}", f"a whole number from 1 to {most}"))
    return usual
