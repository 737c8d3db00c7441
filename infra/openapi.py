"""The OpenAPI 3.1 page, built from what the routes say of themselves and answer."""

import re
from collections.abc import Iterable
from importlib.metadata import version
from typing import Any, Final

import msgspec
from litestar.handlers import HTTPRouteHandler

from commandside.api.completion_routes import BY_RUN, SHOWN_AS
from domain.problem import TABLE

_PARAMETER: Final = re.compile(r"\{(\w+)(?::\w+)?\}")
_COMPONENT: Final = "#/components/schemas/{name}"
_REF: Final = {"$ref": _COMPONENT.format(name="Problem")}

PROBLEM: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "type": {"type": "string", "description": "/problems/ and a stable code"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "pointer": {"type": "string", "description": "JSON pointer into the body"},
                    "parameter": {"type": "string"},
                    "header": {"type": "string"},
                    "detail": {"type": "string", "description": "what would be right"},
                    "value": {
                        "type": "string",
                        "description": "what was given, as JSON, cut; never of what may be secret",
                    },
                },
                "required": ["detail"],
                "additionalProperties": False,
            },
        },
        "request_id": {"type": "string"},
    },
    "required": ["type", "title", "status", "detail", "errors"],
    "additionalProperties": False,
}
_ALWAYS: Final = (400, 401, 403, 406, 422, 503)
_ON_A_JOB: Final = (404, 409)
_WITH_A_BODY: Final = (408, 413, 415)


def document(routes: Iterable[HTTPRouteHandler]) -> dict[str, Any]:
    """Return the page as JSON values."""
    routes = list(routes)
    structs = {struct for route in routes for struct in route.opt["answers"].values()}
    ordered = sorted(structs, key=lambda struct: struct.__name__)
    _, components = msgspec.json.schema_components(ordered, ref_template=_COMPONENT)
    paths: dict[str, Any] = {}
    for route in routes:
        (typed,) = route.paths
        path = _PARAMETER.sub(r"{\1}", typed)
        for method in sorted(route.http_methods):
            if method != "HEAD":
                paths.setdefault(path, {})[method.lower()] = _operation(route, path)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Tocsin", "version": version("tocsin"), "description": _ABOUT},
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": {**dict(components), "Problem": PROBLEM},
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer"},
                "run": {"type": "apiKey", "in": "header", "name": SHOWN_AS},
            },
        },
        "security": [{"key": []}],
    }


def _titles() -> dict[int, str]:
    found: dict[int, list[str]] = {}
    for kind in TABLE.values():
        found.setdefault(kind.status, []).append(kind.title)
    return {status: "; ".join(dict.fromkeys(titles)) for status, titles in found.items()}


_TITLES: Final = _titles()
_ABOUT: Final = "A distributed job scheduler. Errors are problem details (RFC 9457)."


def _operation(route: HTTPRouteHandler, path: str) -> dict[str, Any]:
    opt = route.opt
    shown: dict[str, Any] = {
        "operationId": route.handler_name.rpartition(".")[2],
        "summary": opt["summary"],
        "description": _needs(opt["scope"]),
        "parameters": [*_parameters(path, opt)],
        "responses": _responses(opt, path),
    }
    if opt["scope"] == BY_RUN:
        shown["security"] = [{"run": []}]
    if "body" in opt:
        content = {media: {"schema": _body(media, opt["body"])} for media in opt["media"]}
        shown["requestBody"] = {"content": content, "required": not opt.get("optional", False)}
    return shown


def _body(media: str, schema: dict[str, Any]) -> dict[str, Any]:
    """What a media type looks like: what is no JSON is its text."""
    return {"type": "string"} if media.startswith("text/") else schema


def _needs(scope: str) -> str:
    if scope == BY_RUN:
        return f"Needs the {SHOWN_AS} that the attempt's call brought, and no key."
    return f"Needs a key that allows {scope}."


def _parameters(path: str, opt: dict[str, Any]) -> Iterable[dict[str, Any]]:
    for name in _PARAMETER.findall(path):
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
    for name, schema in opt["query"].items():
        yield {"name": name, "in": "query", "schema": schema}
    if opt.get("keyed"):
        yield _header("Idempotency-Key", "the same key and body: the same answer, one effect")
    if opt.get("spoken"):
        yield _header("Accept-Language", "languages for what is told in words")
    if opt.get("versioned"):
        yield _header("If-Match", "the ETag that it must have")


def _header(name: str, says: str) -> dict[str, Any]:
    return {"name": name, "in": "header", "description": says, "schema": {"type": "string"}}


def _responses(opt: dict[str, Any], path: str) -> dict[str, Any]:
    media = "application/x-ndjson" if opt.get("lines") else "application/json"
    found: dict[str, Any] = {}
    for status, struct in opt["answers"].items():
        ref = {"$ref": _COMPONENT.format(name=struct.__name__)}
        found[str(status)] = {"description": "done", "content": {media: {"schema": ref}}}
    codes = [*_ALWAYS, 500]
    codes += (410,) if opt.get("gone") else ()
    codes += _ON_A_JOB if "{" in path else ()
    codes += _WITH_A_BODY if "body" in opt else ()
    codes += (409,) if opt.get("keyed") or "position" in opt["query"] else ()
    codes += (412,) if opt.get("versioned") else ()
    for code in sorted(set(codes)):
        found[str(code)] = {
            "description": _TITLES[code],
            "content": {"application/problem+json": {"schema": _REF}},
        }
    return found
