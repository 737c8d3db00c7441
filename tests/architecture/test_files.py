"""What no file of the project may hold, and what its configuration must say."""

import re
from pathlib import Path

import pytest

from tests.architecture.project import ROOT, files

LOCK = Path("requirements.lock")

REGISTRIES = re.compile(
    "|".join(
        re.escape(name.replace(" ", ""))
        # Spaces keep this list from being a finding of its own.
        for name in (
            "pypi .org",
            "pythonhosted .org",
            "pypi .python",
            "repo1 .maven",
            "repo .maven",
            "maven .apache .org/maven2",
            "registry .npmjs",
            "crates .io",
            "proxy .golang",
            "deb .debian",
            "security .debian",
        )
    ),
    re.IGNORECASE,
)
"""Where packages come from is the machine's business, told to the clients, never to the project."""

MACHINE_PATHS = re.compile(r"/(?:work|tmp/brief|home/\w+|Users/\w+|root)/")

IGNORED_RULE = re.compile(r'^ +"[A-Z]+[0-9]*",(?P<comment>.*)$')
WORDS = re.compile(r"#.*[a-z]{2}")

SUPPRESSED = re.compile(r"#\s*(?:noqa|type:\s*ignore)\b")
EXPLAINED = re.compile(r"#\s*(?:noqa:[A-Z0-9, ]+|type:\s*ignore\[[a-z, -]+\]).*[a-z]{2}")

OWN = "tests/architecture/test_files.py"
"""This file, which holds what it looks for."""


def texts() -> dict[str, str]:
    """Return path and content of every text file of the project."""
    found: dict[str, str] = {}
    for path in files():
        data = (ROOT / path).read_bytes()
        if b"\0" not in data:
            found[str(path)] = data.decode("utf-8")
    return found


def test_the_lock_holds_no_address() -> None:
    lines = (ROOT / LOCK).read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if "://" in line or "index" in line or "--find" in line] == []


def test_the_lock_pins_every_package_to_one_version_with_hashes() -> None:
    text = (ROOT / LOCK).read_text(encoding="utf-8").replace("\\\n", " ")
    entries = [line for line in text.splitlines() if line.strip()]
    assert entries
    assert [line for line in entries if "==" not in line or "--hash=sha256:" not in line] == []


def test_no_file_names_a_package_registry() -> None:
    assert {path for path, text in texts().items() if REGISTRIES.search(text)} == set()


def test_a_registry_is_seen() -> None:
    assert REGISTRIES.search("see files." + "pythonhosted" + ".org")


def test_no_file_holds_a_path_of_somebodys_machine() -> None:
    assert {
        path: found.group()
        for path, text in texts().items()
        if path != OWN
        for found in [MACHINE_PATHS.search(text)]
        if found
    } == {}


def test_every_ignored_lint_rule_gives_its_reason() -> None:
    config = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert unreasoned(config) == []


@pytest.mark.parametrize(
    "line", ['    "ANN401",', '    "ANN401", #', '    "ANN401", # D1', '"infra/x.py" = ["D1"]']
)
def test_an_ignored_lint_rule_without_reason_is_seen(line: str) -> None:
    config = f"[tool.ruff.lint]\nignore = [\n{line}\n]\n[tool.ruff.lint.per-file-ignores]\n{line}\n"
    assert line in unreasoned(config)


def unreasoned(config: str) -> list[str]:
    """Return the ignored rules that have no words beside them, or above their folder's entry."""
    found: list[str] = []
    section, reason = "", False
    for line in config.splitlines():
        if line.startswith("["):
            section, reason = line, False
        elif line.startswith("#"):
            reason = bool(WORDS.search(line))
        elif line in {"]", ""}:
            reason = False
        elif section.startswith("[tool.ruff.lint.per-file-ignores]") and line.startswith('"'):
            if not (reason or line.endswith("[")):
                found.append(line)
        elif section.startswith("[tool.ruff.lint"):
            rule = IGNORED_RULE.match(line)
            if rule and not WORDS.search(rule.group("comment")):
                found.append(line)
    return found


def test_every_suppressed_finding_names_its_rule_and_gives_its_reason() -> None:
    silent = [
        f"{path}:{number}: {line.strip()}"
        for path, text in texts().items()
        if path.endswith(".py") and path != OWN
        for number, line in enumerate(text.splitlines(), start=1)
        if SUPPRESSED.search(line) and not EXPLAINED.search(line)
    ]
    assert silent == [], "say why, after the rule:\n" + "\n".join(silent)


@pytest.mark.parametrize(
    ("line", "fine"),
    [
        ("x = 1  # noqa", False),
        ("x = 1  # noqa: S603", False),
        ("x = 1  # noqa: S603, S607", False),
        ("x = 1  # noqa: S603, S607 - argv is ours", True),
        ("x = 1  # type: ignore[misc]", False),
        ("x = 1  # type: ignore[misc]  # no stubs", True),
        ("x = 1  # type: ignore  # no stubs", False),
    ],
)
def test_a_suppressed_finding_without_reason_is_seen(line: str, fine: bool) -> None:
    assert SUPPRESSED.search(line)
    assert bool(EXPLAINED.search(line)) is fine
