"""Import rules that import-linter cannot state; its own contracts stand in pyproject.toml."""

import ast
from pathlib import Path

from tests.architecture.project import PACKAGES, calls, dotted, imported, modules, tree

DOMAIN_MAY_IMPORT = {
    "__future__",
    "abc",
    "base64",
    "bisect",
    "calendar",
    "collections",
    "contextlib",
    "dataclasses",
    "datetime",
    "enum",
    "fractions",
    "functools",
    "hashlib",
    "heapq",
    "hmac",
    "ipaddress",
    "itertools",
    "json",
    "math",
    "operator",
    "re",
    "string",
    "struct",
    "types",
    "typing",
    "unicodedata",
    "urllib",
    "zlib",
    "zoneinfo",
    # Not of the standard library.
    "domain",
    "msgspec",
}
"""Everything here is a function of its arguments, or reads the pinned zone data."""

ONE_MODULE_EACH = {
    "croniter": Path("domain/schedule/cron.py"),
    "dateutil": Path("domain/schedule/rrule.py"),
    "importlib": Path("domain/schedule/zone.py"),
    "tzdata": Path("domain/schedule/zone.py"),
}
"""Zone rules are read from the pinned package, never from the machine."""

READ_AT_RUN_TIME = {"Struct", "Event", "Controller"}
"""Bases of classes whose annotations a library evaluates."""


def test_the_domain_imports_only_what_is_pure() -> None:
    foreign = {
        (str(path), name)
        for path in modules("domain")
        for name in imported(path) - DOMAIN_MAY_IMPORT
        if ONE_MODULE_EACH.get(name) != path
    }
    assert foreign == set()


def test_the_domain_never_asks_what_time_it_is() -> None:
    asking = ("now", "utcnow", "today")
    assert [
        (str(path), line, name)
        for path in modules("domain", "projections", "commandside", "queryside")
        for line, name, _ in calls(tree(path))
        if name.rpartition(".")[2] in asking and name.startswith(("datetime", "date."))
    ] == []


def test_nobody_imports_the_tests() -> None:
    assert [str(path) for path in modules(*PACKAGES) if "tests" in imported(path)] == []


def test_modules_whose_annotations_are_read_at_run_time_keep_them_as_objects() -> None:
    assert [
        (str(path), node.name)
        for path in modules(*PACKAGES)
        if "__future__" in imported(path)
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ClassDef)
        and any(dotted(base).rpartition(".")[2] in READ_AT_RUN_TIME for base in node.bases)
    ] == []
