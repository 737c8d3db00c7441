"""Batches: NDJSON in, NDJSON out, line by line."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from commandside.commands import batch as batches
from commandside.commands.batch import Lines
from tests.api.world import JOB, Away, World

LINE = json.dumps(JOB).encode()


def test_each_line_has_an_answer_in_its_order(world: World) -> None:
    lines = b"".join(json.dumps(JOB | {"name": str(n)}).encode() + b"\n" for n in range(50))
    answers = world.batch(lines)
    assert [answer["line"] for answer in answers] == list(range(1, 51))
    assert {answer["code"] for answer in answers} == {201}
    names = {head.facts.job_id.hex(): head.facts.spec.name for head, _ in world.log.heads.values()}
    assert [names[answer["job"]["job_id"][3:]] for answer in answers] == [str(n) for n in range(50)]


def test_the_last_line_needs_no_line_feed_and_blank_lines_are_only_counted(world: World) -> None:
    answers = world.batch(b"\n\r\n" + LINE + b"\r\n  \n" + LINE)
    assert [answer["line"] for answer in answers] == [3, 5]


def test_an_empty_batch_has_no_answers(world: World) -> None:
    assert world.batch(b"") == []


def test_a_batch_repeated_under_its_key_is_the_same_jobs(world: World) -> None:
    first = world.batch(LINE + b"\n" + LINE, idempotency_key="k")
    again = world.batch(LINE + b"\n" + LINE, idempotency_key="k")
    assert [a["job"]["job_id"] for a in again] == [a["job"]["job_id"] for a in first]
    assert len(world.log.heads) == 2


def test_a_line_that_changed_under_a_key_is_refused_alone(world: World) -> None:
    world.batch(LINE + b"\n" + LINE, idempotency_key="k")
    other = json.dumps(JOB | {"name": "x"}).encode()
    answers = world.batch(LINE + b"\n" + other, idempotency_key="k")
    assert [answer["code"] for answer in answers] == [201, 422]


def test_lines_that_name_the_same_job_take_effect_in_their_order(world: World) -> None:
    plain, calls = world.commands.define, 0

    async def slow_at_first(decision: Any) -> Any:
        nonlocal calls
        calls += 1
        for _ in range(20 if calls == 1 else 0):
            await asyncio.sleep(0)
        return await plain(decision)

    world.commands.define = slow_at_first  # type: ignore[method-assign]  # the first is overtaken
    lines = [json.dumps(JOB | {"key": "one", "name": str(n)}).encode() for n in range(5)]
    answers = world.batch(b"\n".join(lines))
    assert [answer["code"] for answer in answers] == [201, 200, 200, 200, 200]
    assert [answer["job"]["version"] for answer in answers] == [1, 2, 3, 4, 5]
    (head, _) = next(iter(world.log.heads.values()))
    assert head.facts.spec.name == "4"


def test_lines_that_name_the_same_job_wait_for_the_group_before(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "GROUP_MAX", 2)
    plain, calls = world.commands.define, 0

    async def slow_at_first(decision: Any) -> Any:
        nonlocal calls
        calls += 1
        for _ in range(20 if calls == 1 else 0):
            await asyncio.sleep(0)
        return await plain(decision)

    world.commands.define = slow_at_first  # type: ignore[method-assign]  # the first is overtaken
    named = [json.dumps(JOB | {"key": "one", "name": str(n)}).encode() for n in range(2)]
    answers = world.batch(b"\n".join([named[0], LINE, named[1], LINE]))
    assert [answer["code"] for answer in answers] == [201, 201, 200, 201]
    assert answers[2]["job"]["version"] == 2


def test_lines_that_are_refused_as_they_are_read_keep_their_place(world: World) -> None:
    answers = world.batch(b"\n".join([b"{", LINE, b"[]", LINE, b"nothing"]))
    assert [answer["line"] for answer in answers] == [1, 2, 3, 4, 5]
    assert [answer["code"] for answer in answers] == [400, 201, 400, 201, 400]


def test_a_line_that_is_too_long_costs_its_neighbours_nothing(world: World) -> None:
    long = b'{"payload": "' + b"x" * 2_000_000 + b'"}'
    answers = world.batch(b"\n".join([LINE, long, LINE]))
    assert [answer["code"] for answer in answers] == [201, 413, 201]


def test_a_log_that_is_away_refuses_each_line_with_503(world: World) -> None:
    world.commands.define = Away().define  # type: ignore[assignment,method-assign]  # the database is away
    answers = world.batch(LINE + b"\n" + LINE)
    assert [answer["code"] for answer in answers] == [503, 503]
    assert answers[0]["problem"]["type"] == "/problems/unavailable"


def test_a_bug_in_one_line_is_reported_and_costs_its_neighbours_nothing(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    plain, calls = world.commands.define, 0

    async def broken(decision: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise KeyError("a bug")
        return await plain(decision)

    world.commands.define = broken  # type: ignore[method-assign]  # a bug of ours
    assert [answer["code"] for answer in world.batch(LINE + b"\n" + LINE)] == [500, 201]
    assert "a bug" in capsys.readouterr().err


def test_lines_are_cut_wherever_the_pieces_end() -> None:
    text = b"a\nbb\n\nccc"
    for size in range(1, len(text) + 1):
        lines = Lines()
        found = [
            line
            for start in range(0, len(text), size)
            for line in lines.push(text[start : start + size])
        ]
        found += lines.end()
        assert found == [(1, b"a"), (2, b"bb"), (4, b"ccc")]


async def talk(
    world: World, messages: AsyncIterator[dict[str, Any]], heard: asyncio.Event
) -> list[int]:
    """Send a batch as ASGI messages and return the numbers of the lines that were answered."""
    seen: list[int] = []

    async def receive() -> dict[str, Any]:
        return await anext(messages)

    async def send(message: dict[str, Any]) -> None:
        for line in message.get("body", b"").splitlines():
            seen.append(json.loads(line)["line"])
            heard.set()

    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "path": "/v1/jobs:batch",
        "raw_path": b"/v1/jobs:batch",
        "query_string": b"",
        "root_path": "",
        "scheme": "http",
        "headers": [
            (b"authorization", f"Bearer {world.key}".encode()),
            (b"content-type", b"application/x-ndjson"),
        ],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 2),
        "state": {},
    }
    await world.app(scope, receive, send)  # type: ignore[arg-type]  # plain dictionaries
    return seen


def test_answers_come_before_the_body_has_ended(world: World) -> None:
    async def conversation() -> list[int]:
        heard = asyncio.Event()

        async def body() -> AsyncIterator[dict[str, Any]]:
            yield {"type": "http.request", "body": LINE + b"\n", "more_body": True}
            async with asyncio.timeout(5):
                await heard.wait()
            yield {"type": "http.request", "body": LINE, "more_body": False}

        return await talk(world, body(), heard)

    assert asyncio.run(conversation()) == [1, 2]


def test_a_client_that_leaves_keeps_what_it_sent_and_leaves_no_task_behind(world: World) -> None:
    async def conversation() -> tuple[list[int], int]:
        async def body() -> AsyncIterator[dict[str, Any]]:
            yield {"type": "http.request", "body": LINE + b"\n" + LINE[:50], "more_body": True}
            yield {"type": "http.disconnect"}

        seen = await talk(world, body(), asyncio.Event())
        return seen, len(asyncio.all_tasks())

    assert asyncio.run(conversation()) == ([1, 0], 1)
    assert len(world.log.heads) == 1


def test_a_batch_holds_a_bounded_number_of_lines(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "LINES_MAX", 4)
    plain, inside, most = world.commands.define, 0, 0

    async def counted(decision: Any) -> Any:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0)
        inside -= 1
        return await plain(decision)

    world.commands.define = counted  # type: ignore[method-assign]  # watched
    assert len(world.batch((LINE + b"\n") * 40)) == 40
    assert most <= 4
