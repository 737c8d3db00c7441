"""The console: `tocsin COMMAND`. What is wrong is said in one line, never as a stack trace.

Each command imports what it needs when it is given, so that `tocsin --help` is quick and a role
does not carry the others.
"""

import os
import sys
from collections.abc import Callable
from typing import Final

WRONG_USE: Final = 2
"""Exit status of argparse, and of a setting that cannot be used."""
INTERRUPTED: Final = 130
SAID_PLAINLY: Final = {
    "DurabilityError": 1,
    "EngineError": 1,
    "MasterKeyError": 1,
    "MigrationError": 1,
    "NotRunning": 1,
    "OpsError": 1,
    "SettingsError": WRONG_USE,
    "TenantError": 1,
    "Unavailable": 1,
    "UpError": 1,
}
"""Errors whose text is for people, with the exit status; known by name, since naming them
otherwise would import what raises them."""


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    typed = sys.argv[1:] if argv is None else argv
    try:
        return _command(typed)(typed)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has seen enough; the interpreter must not flush it once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        for kind in type(error).__mro__:
            if kind.__name__ in SAID_PLAINLY:
                print(f"tocsin: {error}", file=sys.stderr)
                return SAID_PLAINLY[kind.__name__]
        raise


def _command(typed: list[str]) -> Callable[[list[str]], int]:
    """Return what runs the words; two commands have a parser of their own, options and all."""
    match typed[:1]:
        case ["bench"]:
            from infra.cli.commands import run_bench

            return lambda words: run_bench(words[1:])
        case ["schedule"]:
            from infra.cli.schedule import main as run_schedule

            return lambda words: run_schedule(words[1:])
        case _:
            from infra.cli.arguments import parser
            from infra.cli.commands import run

            return lambda words: run(parser().parse_args(words))
