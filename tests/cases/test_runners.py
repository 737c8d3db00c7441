"""Every line of `cases.jsonl` has a test that runs it, and no test names a line that is not there.

A line is run by a table that a test takes whole, or by a test whose docstring names its id.
"""

import ast
import json
import re
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Final

from tests.api.test_cases import ASKED
from tests.domain.schedule.test_cases import CRON_CASES, MENTIONED
from tests.domain.test_retry import WISHES
from tests.simulation import test_case_scenarios, test_more_case_scenarios

TESTS: Final = Path(__file__).parents[1]
LINES: Final = (Path(__file__).parent / "cases.jsonl").read_text("utf-8").splitlines()
IDS: Final = [json.loads(line)["id"] for line in LINES]
WAITING: Final = {
    "PAG-03": "retention: nothing deletes history yet, so no anchor of a page is ever gone",
}
"""Lines that nothing runs yet, and what they wait for."""
_ID: Final = re.compile(
    rf"\b(?:{'|'.join(sorted({i.partition('-')[0] for i in IDS}))})-[0-9]{{2}}\b"
)


def tables() -> dict[str, list[str]]:
    """Return the ids of each table that a test takes whole."""
    cases = {
        "tests/domain/schedule/test_cases.py": [*CRON_CASES, *MENTIONED],
        "tests/api/test_cases.py": ASKED,
        "tests/domain/test_retry.py": WISHES,
    }
    return {path: [case["id"] for case in found] for path, found in cases.items()} | {
        "tests/simulation/test_case_scenarios.py": list(test_case_scenarios.SCENARIOS),
        "tests/simulation/test_more_case_scenarios.py": list(test_more_case_scenarios.SCENARIOS),
    }


def named() -> dict[str, list[str]]:
    """Return the tests whose docstring names an id, by that id."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(TESTS.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                for name in _ID.findall(ast.get_docstring(node) or ""):
                    found[name].append(f"{path.relative_to(TESTS.parent)}::{node.name}")
    return found


@cache
def runners() -> dict[str, list[str]]:
    """Return what runs each line."""
    found = named()
    for path, ids in tables().items():
        for name in ids:
            found[name].append(path)
    return found


def test_every_line_has_a_test_that_runs_it_or_says_what_it_waits_for() -> None:
    assert [name for name in IDS if name not in runners() and name not in WAITING] == []


def test_no_test_names_a_line_that_is_not_there() -> None:
    strange = {name: where for name, where in runners().items() if name not in IDS}
    assert strange == {}


def test_what_is_said_to_wait_is_a_line_that_nothing_runs() -> None:
    assert set(WAITING) <= set(IDS) - set(runners())


def test_each_line_has_an_id_of_its_own() -> None:
    assert len(set(IDS)) == len(IDS) == 174
