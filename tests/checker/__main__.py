"""python -m tests.checker FOLDER: 0 where nothing is wrong, 1 for a violation, 2 for bad files."""

import argparse
import sys
from pathlib import Path

import msgspec

from tests.checker.check import check
from tests.checker.inputs import FILES, read


def main(argv: list[str]) -> int:
    """Judge the files of a folder, and say what was found."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.checker", description="Judge what a run of Tocsin left behind."
    )
    parser.add_argument("folder", type=Path, help=f"holds {', '.join(FILES)} (.jsonl)")
    folder = parser.parse_args(argv).folder
    if not (folder / "events.jsonl").exists():
        print(f"{folder} has no events.jsonl, which holds the log", file=sys.stderr)
        return 2
    try:
        history = read(folder)
    except (ValueError, msgspec.DecodeError) as error:
        print(f"{folder}: {error}", file=sys.stderr)
        return 2
    report = check(history)
    print(report.text())
    return 1 if report.broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
