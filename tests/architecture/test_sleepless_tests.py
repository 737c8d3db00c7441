"""Tests wait for signals or run in virtual time; they never sleep."""

import ast

import pytest

from tests.architecture.project import calls, modules, tree

SLEEPS = {"anyio.sleep", "asyncio.sleep", "sleep", "time.sleep"}


def sleeps(module: ast.Module) -> list[int]:
    """Return the lines that sleep; `asyncio.sleep(0)` only lets others run and is none."""
    return [
        line
        for line, name, call in calls(module)
        if name in SLEEPS and not (name == "asyncio.sleep" and yields_only(call))
    ]


def yields_only(call: ast.Call) -> bool:
    """Tell whether the call's delay is a literal zero."""
    delay = call.args[0] if call.args else None
    return isinstance(delay, ast.Constant) and delay.value == 0


def test_no_test_sleeps() -> None:
    asleep = {str(path): sleeps(tree(path)) for path in modules("tests")}
    assert {path: lines for path, lines in asleep.items() if lines} == {}


@pytest.mark.parametrize(
    "line", ["time.sleep(1)", "time.sleep(0)", "asyncio.sleep(0.1)", "asyncio.sleep(delay)"]
)
def test_a_sleep_is_seen(line: str) -> None:
    assert sleeps(ast.parse(line)) == [1]


def test_letting_others_run_is_no_sleep() -> None:
    assert sleeps(ast.parse("asyncio.sleep(0)")) == []
