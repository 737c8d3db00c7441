"""A refusal says what was given, but never what may be secret."""

from typing import Any

import pytest

from tests.api.world import JOB, World

TARGET = JOB["target"]


def given(answer: Any) -> list[tuple[str, str | None]]:
    assert answer.status_code == 422, answer.text
    return [(error["pointer"], error.get("value")) for error in answer.json()["errors"]]


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"overlap": "queue"}, [("/overlap", '"queue"')]),
        ({"jitter_s": -1}, [("/jitter_s", "-1")]),
        ({"jitter_s": "5"}, [("/jitter_s", '"5"')]),
        ({"timeout_s": None}, [("/timeout_s", "null")]),
        ({"exact": 1}, [("/exact", "1")]),
        ({"retry": {"max_attempts": 5000}}, [("/retry/max_attempts", "5000")]),
        ({"retry": {"max_attempts": 10**29}}, [("/retry/max_attempts", f"1{'0' * 29}")]),
        ({"retry": []}, [("/retry", None)]),
        ({"labels": {"a/b~": 7}}, [("/labels/a~1b~0", "7")]),
        ({"exclude": ["ok", "not ok"]}, [("/exclude/1", '"not ok"')]),
        ({"schedule": "x" * 100}, [("/schedule", '"' + "x" * 40 + '…"')]),
        ({"misfre": "all"}, [("/misfre", None)]),
        ({"target": TARGET | {"method": "BREW"}}, [("/target/method", '"BREW"')]),
    ],
)
def test_each_refusal_has_the_value_that_it_is_about(
    world: World, fields: dict[str, Any], found: list[tuple[str, str | None]]
) -> None:
    answer = given(world.send("POST", "/v1/jobs", JOB | fields))
    assert [(pointer, _plain(value)) for pointer, value in answer] == found


def _plain(value: str | None) -> str | None:
    return value.replace("\\u2026", "…") if value else value


@pytest.mark.parametrize(
    "fields",
    [
        {"target": TARGET | {"headers": {"Authorization": "Bearer hush\r\n"}}},
        {"target": TARGET | {"headers": {"X-A": {"secret": "hush", "scheme": 5}}}},
        {"target": TARGET | {"url": "https://me:hush@hooks.example.com/a"}},
        {"target": TARGET | {"url": "ftp://hooks.example.com/a?t=hush"}},
        {"target": TARGET | {"token": "hush"}},
        {"target": TARGET | {"credentials": "me:hush"}},
        {"target": TARGET | {"credentials": {"secret": "hush\n"}}},
        {"authorization": "Bearer hush"},
        {"payload_base64": "hush!", "payload": ...},
    ],
)
def test_what_may_be_secret_is_not_repeated(world: World, fields: dict[str, Any]) -> None:
    body = {name: value for name, value in (JOB | fields).items() if value is not ...}
    answer = world.send("POST", "/v1/jobs", body)
    assert answer.status_code == 422
    assert "hush" not in answer.text


def test_commands_previews_and_calendars_say_it_too(world: World) -> None:
    path = f"/v1/jobs/{world.define()['job_id']}"
    for method, where, body, found in (
        ("PATCH", path, {"misfire": "never"}, ("/misfire", '"never"')),
        ("POST", f"{path}/resume", {"catch_up": "some"}, ("/catch_up", '"some"')),
        ("POST", f"{path}/trigger", {"overlap": "queue"}, ("/overlap", '"queue"')),
        ("POST", f"{path}/pause", {"until": "noon"}, ("/until", '"noon"')),
        ("POST", f"{path}/pause", {"reason": 5}, ("/reason", "5")),
        ("POST", f"{path}/backfill", {"from": "noon", "to": "x"}, ("/from", '"noon"')),
        ("POST", "/v1/preview", JOB | {"count": 0}, ("/count", "0")),
        ("PUT", "/v1/calendars/a", {"dates": ["2026-02-30"]}, ("/dates/0", '"2026-02-30"')),
    ):
        assert given(world.send(method, where, body))[0] == found
