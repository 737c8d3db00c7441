"""The public listener: one Litestar application of the command routes, the query routes, or both.

What every request goes through is here, once: a request id on every answer, the bearer key and its
scope, parameters that do not exist, media types, and every error as problem details (RFC 9457).
"""

import asyncio
import sys
import traceback
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

import msgspec
from litestar import Litestar, Request, Response, get
from litestar.datastructures import State
from litestar.enums import ScopeType
from litestar.exceptions import HTTPException
from litestar.handlers import HTTPRouteHandler
from litestar.response.base import ASGIResponse
from litestar.types import ASGIApp, Message, Receive, Scope, Send

import commandside.api.calendar_routes
import commandside.api.callback_routes
import commandside.api.completion_routes
import commandside.api.redrive_routes
import commandside.api.routes
import queryside.api.routes
from commandside.api.completion_routes import BY_RUN
from commandside.api.secret_routes import secret_handlers
from commandside.calendar_port import Calendars
from commandside.callback_port import CallbackDefaults
from commandside.command_port import CommandLog, Keys
from commandside.commands.calendars import TenantCalendars
from commandside.commands.callbacks import TenantCallbacks
from commandside.commands.collector import Collector
from commandside.commands.completions import Completions
from commandside.commands.jobs import Jobs
from commandside.commands.keys import KeyRing
from commandside.commands.load import Loads
from commandside.commands.payloads import Payloads, ShownPayloads
from commandside.commands.preview import Previews
from commandside.commands.redrive import Redrives
from commandside.commands.secret_keeper import TURN_S, SecretKeeper
from commandside.definitions.definition import Bounds, Definitions
from commandside.demand import Demand
from commandside.payload_port import (
    INLINE_BYTES_MAX,
    PayloadList,
    PayloadStore,
    StoreAway,
)
from commandside.ports import FaultPoint, KeyGone, NewId, Resting, Vault
from commandside.secret_port import SecretStore
from commandside.turns import in_turn
from domain.job.redrive import KEPT_MS
from domain.opaque import COMPLETION, POSITION, Seal
from domain.ports import Unavailable
from domain.problem import PARAMETER, Problem, invalid
from domain.refusal import Refused
from domain.schedule import zone
from domain.tenant import Caller
from infra.faults import NoFaults
from infra.ics import read_ics
from infra.languages.descriptor import CronTeller
from infra.openapi import document
from infra.vault import pepper
from queryside.queries import Queries, Views

CURSOR: Final = "cursor"
REQUEST_ID: Final = b"x-request-id"

_ENCODE: Final = msgspec.json.Encoder().encode
_JSON: Final = "application/problem+json"
_CODES: Final = {404: "no_route", 405: "method", 413: "too_large"}
_SAID: Final = {
    "no_route": "/openapi.json lists the paths that there are",
    "method": "/openapi.json lists the methods of each path; Allow names those of this one",
}
"""What is said instead of the name of a status."""
_OPEN: Final = "open"
"""Scope of the one route that needs no key."""


class WebPorts(msgspec.Struct, frozen=True):
    """What the public listener needs.

    `secret`: the installation's, of which pepper and seals are derived. `views`: None in a process
    that answers no lists. `now`: ms of the database clock as estimated. `dead_kept_ms`: for so long
    after its end a dead run can be redriven.
    """

    log: CommandLog
    keys: Keys
    vault: Vault
    secrets: SecretStore
    views: Views | None
    demand: Demand
    secret: bytes
    now: Callable[[], int]
    new_id: NewId
    calendars: Calendars
    callbacks: CallbackDefaults
    objects: PayloadStore
    written: PayloadList
    bounds: Bounds = Bounds()
    dead_kept_ms: int = KEPT_MS
    inline_bytes_max: int = INLINE_BYTES_MAX
    faults: FaultPoint = NoFaults()


Hook = Callable[[], Coroutine[Any, Any, None]]


def build_app(
    ports: WebPorts,
    *,
    command: bool,
    query: bool,
    on_startup: Sequence[Hook] = (),
    on_shutdown: Sequence[Hook] = (),
) -> ASGIApp:
    """Return the application; the hooks run in its event loop, first and last."""
    routes: list[HTTPRouteHandler] = []
    positions = Seal(ports.secret, POSITION)
    queries = Queries(
        ports.log,
        ports.views if query else None,
        _revealer(ports.vault),
        ShownPayloads(ports.objects).fetch,
        now=ports.now,
        cursors=Seal(ports.secret, CURSOR),
        positions=positions,
        kept_ms=ports.dead_kept_ms,
    )
    routes.append(queryside.api.routes.job_handler(queries))
    routes.append(queryside.api.routes.run_handler(queries))
    if query:
        routes += queryside.api.routes.handlers(queries)
    if command:
        definitions = Definitions(ports.bounds)
        calendars = tenant_calendars(ports)
        secrets = SecretKeeper(ports.secrets)
        jobs = Jobs(
            ports.log,
            ports.vault,
            secrets,
            definitions,
            calendars,
            Payloads(ports.objects, ports.written, ports.faults, inline_max=ports.inline_bytes_max),
            now=ports.now,
            new_id=ports.new_id,
            positions=positions,
            zone_data=zone.VERSION,
        )
        previews = Previews(
            definitions, calendars, CronTeller(), Loads(ports.demand, ports.now), ports.now
        )
        routes += commandside.api.routes.handlers(jobs, previews, _report)
        routes += secret_handlers(secrets)
        routes += commandside.api.calendar_routes.handlers(calendars)
        callbacks = TenantCallbacks(ports.callbacks, ports.vault, secrets, ports.bounds)
        routes += commandside.api.callback_routes.handlers(callbacks)
        redrives = Redrives(
            ports.log,
            ports.views.letters if ports.views else None,
            now=ports.now,
            positions=positions,
            kept_ms=ports.dead_kept_ms,
        )
        routes += commandside.api.redrive_routes.handlers(redrives)
        completions = Completions(ports.log, Seal(ports.secret, COMPLETION))
        routes += commandside.api.completion_routes.handlers(completions)
    page = _ENCODE(document(routes))

    @get("/openapi.json", opt={"scope": _OPEN, "query": {}})
    async def openapi() -> Response[bytes]:
        return Response(page, media_type="application/json")

    door = _Door(KeyRing(ports.keys, pepper(ports.secret), ports.now), ports.vault)
    app = Litestar(
        [*routes, openapi],
        # Not a guard: those get a copy of the route, which costs a tenth of a request.
        before_request=door.admit,
        exception_handlers={Exception: _problem},
        openapi_config=None,
        logging_config=None,
        on_startup=list(on_startup),
        on_shutdown=list(on_shutdown),
        # Bodies are bounded where they are read, batches line by line.
        request_max_body_size=None,
    )
    return _numbered(_shortened(app, routes, door), ports.new_id)


def tenant_calendars(ports: WebPorts) -> TenantCalendars:
    """Return what clients do with calendars."""
    return TenantCalendars(ports.calendars, ports.log, read_ics, ports.now)


def collector(ports: WebPorts) -> Collector:
    """Return what deletes large payloads."""
    return Collector(
        ports.log,
        ports.objects,
        ports.written,
        ports.faults,
        now=ports.now,
        redrivable_ms=ports.dead_kept_ms,
    )


class _Door:
    """Lets in who has a key with the route's scope, and asks for nothing that does not exist."""

    def __init__(self, ring: KeyRing, vault: Vault) -> None:
        self._ring = ring
        self._vault = vault
        self._turn = asyncio.Lock()

    async def admit(self, connection: Request[Any, Any, Any]) -> None:
        """Raise Problem, or set who asks."""
        route = connection.route_handler
        scope = route.opt.get("scope")
        if scope not in (_OPEN, BY_RUN):
            caller = connection.scope["user"] = await self._caller(connection, scope)
            if not self._vault.knows(caller.tenant_id):
                await self._fetch(caller.tenant_id)
        _check_accept(connection.headers.get("accept"))
        known = route.opt["query"]
        if not connection.scope["query_string"]:
            return
        asked = connection.query_params
        wrong = [
            Refused(PARAMETER + name[:64], "unknown parameter")
            for name in asked
            if name not in known
        ]
        wrong += [
            Refused(PARAMETER + name, "given more than once")
            for name in known
            if name in asked and known[name].get("type") != "array" and len(asked.getall(name)) > 1
        ]
        if wrong:
            raise invalid(wrong)

    async def _fetch(self, tenant_id: bytes) -> None:
        """Let a tenant's keys be read, one tenant's at a time, and not in the event loop."""
        crowded = Unavailable("too many wait for the keys of their tenants")
        async with in_turn(self._turn, TURN_S, crowded):
            if not self._vault.knows(tenant_id):
                await asyncio.to_thread(self._vault.fetch, tenant_id)

    async def _caller(self, connection: Request[Any, Any, Any], scope: str | None) -> Caller:
        given = connection.headers.getall("authorization", [])
        caller = await self._ring.caller(given[0] if len(given) == 1 else "")
        if caller is None:
            raise Problem("unauthorized", "send Authorization: Bearer and a key that is valid")
        if scope not in caller.scopes:
            raise Problem("forbidden", f"this key does not allow {scope}")
        return caller


def _check_accept(accept: str | None) -> None:
    """Refuse who takes no JSON; quality values decide nothing, as there is one answer."""
    if accept is None or accept == "*/*":
        return
    kinds = {part.partition(";")[0].strip().lower() for part in accept.split(",")}
    if not any(
        kind in ("*/*", "application/*", "") or "json" in kind or "ndjson" in kind for kind in kinds
    ):
        reason = Refused("@Accept", "application/json")
        raise Problem("not_acceptable", "answers are JSON", (reason,))


def _revealer(vault: Vault) -> Callable[[bytes, bytes, bytes], bytes | None]:
    def reveal(tenant_id: bytes, job_id: bytes, sealed: bytes) -> bytes | None:
        try:
            return vault.open(tenant_id, job_id, sealed)
        except KeyGone:
            return None

    return reveal


def _problem(request: Request[Any, Any, State], error: Exception) -> Response[bytes]:
    """Answer any error as problem details."""
    problem = _as_problem(error)
    headers = problem.headers
    if problem.code == "method" and isinstance(error, HTTPException):
        headers |= {name.lower(): value for name, value in (error.headers or {}).items()}
    body = _said(problem, request.scope)
    return Response(body, status_code=problem.status, headers=headers, media_type=_JSON)


def _said(problem: Problem, scope: Scope) -> bytes:
    return _ENCODE(problem.body(scope["state"].get("request_id", "")))


def _as_problem(error: Exception) -> Problem:
    if isinstance(error, Problem):
        return error
    if isinstance(error, Resting | StoreAway):
        return Problem("unavailable", str(error))
    if isinstance(error, Unavailable):
        return Problem("unavailable", "an engine cannot be reached; try again")
    if isinstance(error, HTTPException) and error.status_code < 500:  # noqa: PLR2004 - a client's
        code = _CODES.get(error.status_code, "bad_request")
        detail = _SAID.get(code, str(error.detail)) or "the request cannot be read"
        return Problem(code, detail)
    _report(error)
    return Problem("internal", "this is our fault; the request id finds it in our log")


def _report(error: BaseException) -> None:
    """Show a bug to who runs the process."""
    traceback.print_exception(error, file=sys.stderr)


def _shortened(app: ASGIApp, routes: Sequence[HTTPRouteHandler], door: _Door) -> ASGIApp:
    """Answer the routes that are `opt["hot"]` without the framework's router, a tenth of a request.

    Their paths have no parameters, and their handlers take the request alone; they stay routes of
    `app` too, which answers other methods and describes them.
    """
    hot = {path: route for route in routes if route.opt.get("hot") for path in route.paths}

    async def shortened(scope: Scope, receive: Receive, send: Send) -> None:
        hit = scope["type"] == ScopeType.HTTP and scope["method"] == "POST"
        route = hot.get(scope["path"]) if hit else None
        if route is None:
            await app(scope, receive, send)
            return
        scope["route_handler"] = route
        request: Request[Any, Any, State] = Request(scope, receive, send)
        try:
            await door.admit(request)
            answer: ASGIApp = await route.fn(request)
        except Exception as error:  # noqa: BLE001 - every error is answered
            problem = _as_problem(error)
            answer = ASGIResponse(
                body=_said(problem, scope),
                status_code=problem.status,
                headers=problem.headers,
                media_type=_JSON,
            )
        await answer(scope, receive, send)

    return shortened


def _numbered(app: ASGIApp, new_id: NewId) -> ASGIApp:
    """Put a request id on every answer, whoever gives it."""

    async def numbered(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:
            await app(scope, receive, send)
            return
        number = new_id(8).hex()
        scope.setdefault("state", {})["request_id"] = number
        mark = ((REQUEST_ID, number.encode()), (b"cache-control", b"no-store"))

        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *mark]
            await send(message)

        await app(scope, receive, marked)

    return numbered
