"""The console: `tocsin COMMAND`. What is wrong is said in one line, never as a stack trace.

Each command imports what it needs when it is given, so that `tocsin --help` is quick and a role
does not carry the others.
"""

import os
import sys

from commandside.ports import Unavailable
from infra.cli.arguments import parser
from infra.cli.commands import run, run_bench
from infra.embedded.errors import EngineError
from infra.ops import OpsError
from infra.settings import SettingsError
from infra.up.running import NotRunning

WRONG_USE = 2
"""Exit status of argparse, and of a setting that cannot be used."""
INTERRUPTED = 130
SAID_PLAINLY = {"DurabilityError", "MasterKeyError", "MigrationError", "TenantError", "UpError"}
"""Errors whose text is for people, of modules that are imported only by the commands that raise."""


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    typed = sys.argv[1:] if argv is None else argv
    try:
        if typed[:1] == ["bench"]:  # it has a parser of its own, options and all
            return run_bench(typed[1:])
        return run(parser().parse_args(typed))
    except SettingsError as error:
        return _say(error, WRONG_USE)
    except (EngineError, NotRunning, OpsError, Unavailable) as error:
        return _say(error, 1)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has seen enough; the interpreter must not flush it once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if type(error).__name__ in SAID_PLAINLY:
            return _say(error, 1)
        raise


def _say(error: Exception, status: int) -> int:
    print(f"tocsin: {error}", file=sys.stderr)
    return status
