"""What can be typed. Everything else is a setting; the flags here are those that people type."""

import argparse
from pathlib import Path
from typing import Any, Final

from commandside.secret_port import SCHEMES
from domain.tenant import SCOPES

ROLES: Final = {
    "api": "serve commands",
    "query": "serve queries",
    "scheduler": "hand due work to the broker; runs the audit of its shards too",
    "dispatcher": "lease, call targets, report",
    "projector": "keep job board and run history up to the log, define callbacks",
    "auditor": "look after leases and hand-offs of all shards",
}
_KEPT: Final = argparse.SUPPRESS
"""Default of a flag of an action: what was typed before the action stays, unless typed again."""
VIEWS: Final = ("job_board", "run_history")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the whole console."""
    top = argparse.ArgumentParser(
        prog="tocsin", description="A distributed job scheduler: durable intentions fire on time."
    )
    top.add_argument("--version", action=_Version, help="say which version this is, and end")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _up(_command(commands, "up", "run everything on this machine, with embedded engines"))
    for role, says in ROLES.items():
        command = _command(commands, role, says)
        if role in {"api", "query"}:
            command.add_argument("--port", type=int, help="port of the listener; 0: chosen")
        if role == "projector":
            command.add_argument(
                "--rebuild",
                choices=VIEWS,
                help="build a view anew beside the live one, put it in its place, and end",
            )
        command.add_argument("--ops-port", type=int, help="port of /readyz and the like; 0: chosen")
    _command(commands, "migrate", "bring the schema of Postgres forward")
    _keys(_command(commands, "keys", "API keys; the master key; the end of a tenant's key"))
    _signing(_command(commands, "signing", "show and renew the keys that sign a tenant's calls"))
    zones = _command(commands, "zones", "change over to this node's time zone data")
    actions = zones.add_subparsers(dest="action", required=True, metavar="ACTION")
    diff = actions.add_parser("diff", help="list the occurrences that would move; changes nothing")
    _where(diff, _KEPT)
    diff.add_argument(
        "--old",
        type=Path,
        metavar="DIR",
        help="where the tzdata package of before is: compare the fires of the coming year, too",
    )
    apply = actions.add_parser("apply", help="plan those anew; nodes with other data stop planning")
    _where(apply, _KEPT)
    doctor = _command(commands, "doctor", "check engines and settings; say how to put them right")
    doctor.add_argument("--settings", action="store_true", help="list every setting and its value")
    commands.add_parser("schedule", help="say when a schedule fires, and why", add_help=False)
    commands.add_parser("bench", help="measure: rates, lateness, CPU per fire", add_help=False)
    return top


class _Version(argparse.Action):
    """Says the versions of the program and of what decides when and how a job fires."""

    def __init__(self, option_strings: list[str], dest: str, **named: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, **named)

    def __call__(self, parser: argparse.ArgumentParser, *_rest: object) -> None:
        from infra.versions import program_versions

        versions = program_versions()
        own = versions.pop("tocsin")
        rest = ", ".join(f"{name} {text}" for name, text in versions.items())
        print(f"tocsin {own} ({rest})")
        parser.exit()


def _command(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, says: str
) -> argparse.ArgumentParser:
    command = commands.add_parser(name, help=says, description=says)
    _where(command, None)
    return command


def _where(command: argparse.ArgumentParser, default: str | None) -> None:
    command.add_argument(
        "--config", type=Path, metavar="FILE", default=default, help="instead of tocsin.toml"
    )
    command.add_argument(
        "--data", metavar="DIR", default=default, help="folder of engines, keys and logs"
    )


def _up(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--port", type=int, help="port of commands and queries; 0: chosen, and that of --ops-port"
    )
    command.add_argument("--ops-port", type=int, help="port of /readyz and the like; 0: chosen")
    command.add_argument(
        "--allow-target",
        action="append",
        metavar="CIDR",
        help="addresses that jobs may call although they are private (repeatable)",
    )
    command.add_argument("--no-demo", action="store_true", help="no demo receiver and jobs")
    command.add_argument(
        "--ready-file",
        type=Path,
        metavar="FILE",
        help="written when everything serves: addresses, key, pids and versions as JSON",
    )


def _signing(command: argparse.ArgumentParser) -> None:
    actions = command.add_subparsers(dest="action", required=True, metavar="ACTION")
    shown = actions.add_parser("list", help="show the keys that sign, with what verifies them")
    rotate = actions.add_parser("rotate", help="make a new key; the one before signs for a while")
    for action in (shown, rotate):
        _where(action, _KEPT)
        action.add_argument("--tenant", required=True, metavar="NAME", help="name of the tenant")
    rotate.add_argument(
        "--scheme", choices=tuple(SCHEMES), default="v1", help="v1: HMAC-SHA256; v1a: Ed25519"
    )
    rotate.add_argument(
        "--overlap-h",
        type=float,
        default=24.0,
        metavar="HOURS",
        help="for how long the keys of this scheme before it sign too (default: %(default)s)",
    )


def _keys(command: argparse.ArgumentParser) -> None:
    actions = command.add_subparsers(dest="action", required=True, metavar="ACTION")
    create = actions.add_parser("create", help="make a key, and its tenant; shown this once")
    _where(create, _KEPT)
    create.add_argument("--tenant", required=True, metavar="NAME", help="name of the tenant")
    create.add_argument(
        "--scopes",
        default=",".join(SCOPES),
        metavar="LIST",
        help="what it may do, comma-separated (default: %(default)s)",
    )
    _where(actions.add_parser("list", help="list all keys; secrets are kept nowhere"), _KEPT)
    rotate = actions.add_parser(
        "rotate", help="change the master key: wrap all keys anew; may be cut off and repeated"
    )
    _where(rotate, _KEPT)
    erase = actions.add_parser(
        "erase", help="destroy a tenant's encryption key: its payloads are unreadable for ever"
    )
    _where(erase, _KEPT)
    erase.add_argument("--tenant", required=True, metavar="NAME", help="name of the tenant")
    erase.add_argument("--yes", action="store_true", help="needed: nothing brings the key back")
    revoke = actions.add_parser("revoke", help="end a key: it is refused everywhere within 5 s")
    _where(revoke, _KEPT)
    revoke.add_argument("kid", metavar="KID", help="id of the key: its third part, as listed")
