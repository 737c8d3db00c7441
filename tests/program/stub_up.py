"""`tocsin up` whose roles do nothing: `python -m tests.program.stub_up WORDS…`."""

import sys
from pathlib import Path

from infra.cli import main
from infra.settings import Settings
from infra.up import program

STUB = Path(__file__).with_name("stub_role.py")


def argv(role: str) -> tuple[str, ...]:
    return (sys.executable, str(STUB), role)


def up_with_stubs(settings: Settings, ready_file: Path | None = None) -> int:
    return whole_up(settings, ready_file, argv)


if __name__ == "__main__":
    whole_up = program.up
    setattr(program, "up", up_with_stubs)  # noqa: B010 - the roles alone are stubs
    sys.exit(main(["up", *sys.argv[1:]]))
