"""Every fault of targets and networks has a test, which docs/faults.md names."""

import ast
import re

from tests.architecture.project import ROOT, modules, tree

PAGE = "docs/faults.md"
RANGES = (range(65, 84), range(120, 128))
ROW = re.compile(r"^\| (F[0-9]+) \| .+ \| `(tests/[\w/]+\.py)::(\w+)` \|$", re.MULTILINE)
NAMED = re.compile(r"test_f([0-9]+)_")


def rows() -> list[tuple[str, str, str]]:
    """Return fault, file and test of each row."""
    return ROW.findall((ROOT / PAGE).read_text(encoding="utf-8"))


def of_the_suite() -> dict[tuple[str, str], str]:
    """Return the docstring of each test, by file and name."""
    return {
        (str(path), node.name): ast.get_docstring(node) or ""
        for path in modules("tests")
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def test_every_fault_has_a_row() -> None:
    wanted = {f"F{number}" for numbers in RANGES for number in numbers}
    assert wanted - {fault for fault, _, _ in rows()} == set()


def test_every_line_of_the_table_is_a_row() -> None:
    lines = (ROOT / PAGE).read_text(encoding="utf-8").splitlines()
    assert len([line for line in lines if line.startswith("| F")]) == len(rows())


def test_every_row_leads_to_a_test_that_names_its_fault() -> None:
    found = of_the_suite()
    wrong = [
        (fault, file, name)
        for fault, file, name in rows()
        if (file, name) not in found
        or not (
            name.startswith(f"test_{fault.lower()}_")
            or re.search(rf"\b{fault}\b", found[file, name])
        )
    ]
    assert wrong == []


def test_no_test_names_a_fault_without_a_row() -> None:
    listed = {fault for fault, _, _ in rows()}
    named = {f"F{found[1]}" for _, name in of_the_suite() if (found := NAMED.match(name))}
    assert named - listed == set()
