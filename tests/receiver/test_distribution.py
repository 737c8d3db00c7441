"""The kit is a distribution of its own: small, typed, and without what it does not need."""

import ast
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.architecture.project import PACKAGES, ROOT, imported, modules

KIT = Path("clients/receiver")
PACKAGE = KIT / "tocsin_receiver"
OPTIONAL = {PACKAGE / "keys.py": {"cryptography"}}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kit, built."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)),
        cwd=ROOT / KIT,
        check=True,
        capture_output=True,
        timeout=120,
    )
    (found,) = folder.glob("tocsin_receiver-*.whl")
    return found


def test_it_requires_nothing(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = (name for name in names if name.endswith("/METADATA"))
        lines = archive.read(metadata).decode().splitlines()
    required = [line for line in lines if line.startswith("Requires-Dist")]
    assert all("extra == 'ed25519'" in line for line in required), required
    assert "Requires-Python: >=3.10" in lines
    assert "tocsin_receiver/py.typed" in names
    assert {name.split("/")[0].split("-")[0] for name in names} == {"tocsin_receiver"}


def test_it_works_beside_the_standard_library_alone(wheel: Path) -> None:
    # -S: no packages of this environment.
    script = f"""
import sys
sys.path.insert(0, {str(wheel)!r})
import tocsin_receiver as kit
kit.Receiver("whsec_" + "A" * 32, kit.MemoryStore())
print(kit.__file__)
"""
    said = subprocess.run(
        (sys.executable, "-I", "-S", "-c", script),
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert said.stdout.startswith(str(wheel))


def test_it_imports_the_standard_library_and_what_is_optional() -> None:
    foreign = {
        (str(path), name)
        for path in modules("clients")
        if path.is_relative_to(PACKAGE)
        for name in imported(path) - {"tocsin_receiver"} - OPTIONAL.get(path, set())
        if name not in sys.stdlib_module_names
    }
    assert foreign == set()


def test_it_is_written_in_the_oldest_python_that_it_names() -> None:
    for path in modules("clients"):
        ast.parse((ROOT / path).read_text(encoding="utf-8"), feature_version=(3, 10))


def test_it_knows_nothing_of_tocsin_and_tocsin_nothing_of_it() -> None:
    inside = {name for path in modules("clients") for name in imported(path)}
    assert inside & {*PACKAGES, "tests"} == set()
    outside = {name for path in modules(*PACKAGES) for name in imported(path)}
    assert "tocsin_receiver" not in outside
