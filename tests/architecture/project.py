"""What the architecture tests look at: the project's files, as git would commit them."""

import ast
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("domain", "projections", "commandside", "queryside", "infra")


@cache
def files() -> tuple[Path, ...]:
    """Return every file that is in git or would be added, relative to the root, sorted."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=30,
    ).stdout.decode()
    paths = (Path(name) for name in listed.split("\0") if name)
    return tuple(sorted(path for path in paths if (ROOT / path).is_file()))


def modules(*tops: str) -> tuple[Path, ...]:
    """Return the Python files below the top-level folders `tops`, relative to the root."""
    return tuple(path for path in files() if path.suffix == ".py" and path.parts[0] in tops)


@cache
def tree(path: Path) -> ast.Module:
    """Return the syntax tree of the Python file `path`, relative to the root."""
    return ast.parse((ROOT / path).read_text(encoding="utf-8"), filename=str(path))


def imported(path: Path) -> set[str]:
    """Return the top-level names that the module imports, wherever the import stands."""
    names: set[str] = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.partition(".")[0])
    return names


def calls(module: ast.Module) -> list[tuple[int, str, ast.Call]]:
    """Return line, dotted name and node of each call whose function is a plain dotted name."""
    found: list[tuple[int, str, ast.Call]] = []
    for node in ast.walk(module):
        if isinstance(node, ast.Call):
            name = dotted(node.func)
            if name:
                found.append((node.lineno, name, node))
    return found


def dotted(node: ast.expr) -> str:
    """Return `a.b.c` for an attribute chain on a name, and nothing for any other expression."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        left = dotted(node.value)
        return f"{left}.{node.attr}" if left else ""
    return ""
