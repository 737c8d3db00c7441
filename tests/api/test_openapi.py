"""The OpenAPI page is true: what is answered is what it says, and what it says is there."""

import re
from typing import Any

import pytest

from commandside.definitions.definition import FIELDS, NOT_YET
from domain.problem import TABLE
from domain.run.decide import Result
from domain.run.events import FAILED, OK
from tests.api.test_queries import fire
from tests.api.world import JOB, World

KINDS: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


class Page:
    """The page of a running application, with a judge of values."""

    def __init__(self, world: World) -> None:
        self.page: dict[str, Any] = world.send("GET", "/openapi.json", key="").json()

    def operation(self, method: str, path: str) -> dict[str, Any]:
        """Return what the page says of a request."""
        for shape, methods in self.page["paths"].items():
            pattern = re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(shape))
            if re.fullmatch(pattern, path) and method.lower() in methods:
                found: dict[str, Any] = methods[method.lower()]
                return found
        raise AssertionError(f"{method} {path} is not on the page")

    def wrong(self, value: Any, schema: dict[str, Any], at: str = "") -> list[str]:
        """Return where a value is not what a schema says."""
        if "$ref" in schema:
            name = schema["$ref"].rpartition("/")[2]
            return self.wrong(value, self.page["components"]["schemas"][name], at)
        if "anyOf" in schema:
            found = [self.wrong(value, choice, at) for choice in schema["anyOf"]]
            return [] if [] in found else found[0]
        if "enum" in schema and value not in schema["enum"]:
            return [f"{at}: {value!r} is none of {schema['enum']}"]
        kind = schema.get("type")
        is_bool = isinstance(value, bool) and kind != "boolean"
        if kind is not None and (not isinstance(value, KINDS[kind]) or is_bool):
            return [f"{at}: {value!r} is no {kind}"]
        if isinstance(value, list):
            items = schema.get("items", {})
            return [e for n, item in enumerate(value) for e in self.wrong(item, items, f"{at}/{n}")]
        if isinstance(value, dict):
            return self._wrong_members(value, schema, at)
        return []

    def _wrong_members(self, value: dict[str, Any], schema: dict[str, Any], at: str) -> list[str]:
        known = schema.get("properties", {})
        found = [
            f"{at}/{name} is missing" for name in schema.get("required", ()) if name not in value
        ]
        for name, item in value.items():
            if name in known:
                found += self.wrong(item, known[name], f"{at}/{name}")
            elif known:
                found.append(f"{at}/{name} is not on the page")
        return found


REQUESTS: list[tuple[str, str, dict[str, Any] | None]] = [
    ("POST", "/v1/jobs", JOB),
    ("POST", "/v1/jobs", {"type": "x"}),
    ("POST", "/v1/jobs:batch", JOB),
    ("POST", "/v1/preview", JOB),
    ("POST", "/v1/preview", {"type": "x"}),
    ("GET", "/v1/jobs", None),
    ("GET", "/v1/jobs?limit=0", None),
    ("GET", "/v1/jobs/{job}", None),
    ("GET", "/v1/jobs/{job}?as_of=2025-11-30T00:00:01Z", None),
    ("GET", "/v1/jobs/{job}?min_version=99", None),
    ("GET", "/v1/jobs/jb_0", None),
    ("GET", "/v1/jobs/{job}/runs", None),
    ("GET", "/v1/jobs/{job}/events", None),
    ("GET", "/v1/dead-letters", None),
    ("GET", "/v1/dead-letters?since=x", None),
    ("POST", "/v1/dead-letters/redrive", {"dry_run": True}),
    ("POST", "/v1/dead-letters/redrive", {"limit": 0}),
    ("POST", "/v1/runs/{dead}/redrive", {"reason": "up again"}),
    ("POST", "/v1/runs/{dead}/redrive", None),
    ("POST", "/v1/runs/rn_0/redrive", None),
    ("PATCH", "/v1/jobs/{job}", {"name": "x"}),
    ("POST", "/v1/jobs/{job}/trigger", {"reason": "now"}),
    ("POST", "/v1/jobs/{job}/pause", None),
    ("POST", "/v1/jobs/{job}/trigger", None),
    ("POST", "/v1/jobs/{job}/resume", None),
    ("DELETE", "/v1/jobs/{job}", None),
    ("PATCH", "/v1/jobs/{job}", {"name": "y"}),
]


def test_every_answer_is_what_the_page_says(world: World) -> None:
    page = Page(world)
    job = world.define(JOB | {"key": "k", "labels": {"a": "b"}})["job_id"]
    world.clock.advance_ms(3_606_000)
    fire(world, Result(OK, "ok", 200))
    world.clock.advance_ms(3_600_000)
    fire(world, Result(FAILED, "dead", 400))
    world.project()
    dead = world.send("GET", "/v1/dead-letters").json()["items"][0]["run_id"]
    for method, typed, body in REQUESTS:
        world.project()
        path = typed.replace("{job}", job).replace("{dead}", dead)
        lines = path.endswith(":batch")
        media = {"content_type": "application/x-ndjson"} if lines else {}
        found = world.send(method, path, body, **media)
        said = page.operation(method, path.partition("?")[0])["responses"][str(found.status_code)]
        (kind, content), *_ = said["content"].items()
        assert found.headers["content-type"] == kind
        assert page.wrong(found.json(), content["schema"]) == [], (method, path, found.text)


@pytest.mark.parametrize(
    ("value", "count"),
    [({"type": "a", "title": "b", "status": 1, "detail": "c", "errors": []}, 0), ({}, 5)],
)
def test_the_judge_of_the_page_sees_what_is_wrong(
    world: World, value: dict[str, Any], count: int
) -> None:
    assert len(Page(world).wrong(value, {"$ref": "#/components/schemas/Problem"})) == count


def test_every_field_of_a_definition_is_on_the_page(world: World) -> None:
    said = Page(world).operation("POST", "/v1/jobs")["requestBody"]["content"]
    shape = said["application/json"]["schema"]
    assert set(shape["properties"]) == FIELDS
    assert not FIELDS & NOT_YET


def test_every_parameter_on_the_page_is_taken(world: World) -> None:
    job = world.define()["job_id"]
    page = Page(world)
    for path, methods in page.page["paths"].items():
        for parameter in methods.get("get", {}).get("parameters", ()):
            if parameter["in"] == "query":
                url = f"{path.replace('{job_id}', job)}?{parameter['name']}=%00"
                found = world.send("GET", url).json()
                assert "unknown parameter" not in str(found), url


def test_every_reference_on_the_page_leads_somewhere(world: World) -> None:
    page = Page(world).page
    names = set(re.findall(r"#/components/schemas/(\w+)", str(page)))
    assert names <= set(page["components"]["schemas"])
    assert page["openapi"] == "3.1.0"


def test_a_body_that_is_no_json_is_a_text_on_the_page(world: World) -> None:
    page = Page(world)
    content = page.operation("PUT", "/v1/calendars/x")["requestBody"]["content"]
    assert content["text/calendar"]["schema"] == {"type": "string"}
    assert content["application/json"]["schema"]["type"] == "object"


def test_a_status_on_the_page_has_the_titles_of_all_problems_that_have_it(world: World) -> None:
    page = Page(world)
    for path, methods in page.page["paths"].items():
        for method, operation in methods.items():
            for status, said in operation["responses"].items():
                if "application/problem+json" in said["content"]:
                    titles = {kind.title for kind in TABLE.values() if str(kind.status) == status}
                    assert set(said["description"].split("; ")) == titles, (method, path)
