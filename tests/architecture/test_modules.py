"""Sizes and names of modules."""

import sys
from importlib.metadata import packages_distributions

from tests.architecture.project import PACKAGES, ROOT, files, modules

MAX_LINES = 500
"""About 300 is right; past 500 a module has two subjects."""

SAYS_NOTHING = {"base", "common", "core", "helper", "helpers", "manager", "misc", "util", "utils"}


def test_no_module_is_longer_than_its_subject() -> None:
    lengths = {
        str(path): len((ROOT / path).read_text(encoding="utf-8").splitlines())
        for path in modules(*PACKAGES, "tests", "bench", "clients")
    }
    assert {path: lines for path, lines in lengths.items() if lines > MAX_LINES} == {}


def test_every_module_is_named_after_its_subject() -> None:
    everywhere = modules(*PACKAGES, "tests", "bench", "clients")
    unnamed = [path for path in everywhere if path.stem in SAYS_NOTHING]
    unnamed += [path for path in files() if SAYS_NOTHING & set(path.parts[:-1])]
    assert unnamed == []


def test_no_folder_or_module_is_named_after_a_stdlib_module() -> None:
    shadowing = {
        str(path)
        for path in modules(*PACKAGES, "clients")
        for part in (*path.parts[:-1], path.stem)
        if part in sys.stdlib_module_names and part != "__init__"
    }
    assert shadowing == set()


def test_the_five_import_names_belong_to_our_distribution_only() -> None:
    owners = packages_distributions()
    assert {name: set(owners.get(name, ["tocsin"])) for name in PACKAGES} == {
        name: {"tocsin"} for name in PACKAGES
    }


def test_each_import_name_is_our_folder() -> None:
    found = {name: getattr(__import__(name), "__file__", None) for name in PACKAGES}
    assert found == {name: str(ROOT / name / "__init__.py") for name in PACKAGES}


def test_every_package_says_why_it_exists() -> None:
    folders = {path.parent for path in modules(*PACKAGES)}
    silent = [
        str(folder)
        for folder in sorted(folders)
        if not (ROOT / folder / "__init__.py").is_file()
        or not (ROOT / folder / "__init__.py").read_text(encoding="utf-8").startswith('"""')
    ]
    assert silent == []
