"""What each command does with its words and the settings."""

import argparse
from collections.abc import Callable
from typing import Any, Final

from domain.instant import HOUR
from domain.tenant import SCOPES
from infra.cli.arguments import ROLES
from infra.settings import Settings, SettingsError, load
from infra.up.running import CLICKHOUSE, KAFKA, POSTGRES, attached

OVERLAP_H_MAX: Final = 720


def run(words: argparse.Namespace) -> int:
    """Run the command that was typed; returns the exit status."""
    settings = load(_overrides(words), file=words.config)
    if getattr(words, "rebuild", None):
        return _rebuild(words.rebuild, settings)
    if words.command in ROLES:
        return _role(words.command, settings)
    return _COMMANDS[words.command](words, settings)


def _overrides(words: argparse.Namespace) -> dict[str, dict[str, Any]]:
    given: dict[str, dict[str, Any]] = {}

    def take(section: str, name: str, value: object) -> None:
        if value is not None:
            given.setdefault(section, {})[name] = value

    take("data", "dir", words.data)
    port = getattr(words, "port", None)
    take("api", "query_port" if words.command == "query" else "port", port)
    take("api", "ops_port", getattr(words, "ops_port", None))
    if words.command == "up":
        take("targets", "allow", words.allow_target)
        take("up", "demo", False if words.no_demo else None)
        if port == 0 and words.ops_port is None:
            take("api", "ops_port", 0)
    return given


def _role(role: str, settings: Settings) -> int:
    settings = attached(settings, *_needs(role, settings))
    from infra import bootstrap

    return bootstrap.run(role, settings)


def _needs(role: str, settings: Settings) -> tuple[tuple[str, str], ...]:
    match role:
        case "api":
            return (POSTGRES, CLICKHOUSE) if settings.api.with_queries else (POSTGRES,)
        case "query" | "projector":
            return (POSTGRES, CLICKHOUSE)
        case _:
            return (POSTGRES, KAFKA)


def _rebuild(view: str, settings: Settings) -> int:
    from infra.rebuild import rebuild
    from infra.telemetry import Telemetry

    reached = rebuild(view, attached(settings, POSTGRES, CLICKHOUSE), Telemetry("projector"))
    print(f"{view} is built anew, up to position {reached} of the log")
    return 0


def _up(words: argparse.Namespace, settings: Settings) -> int:
    from infra.up.program import up

    return up(settings, words.ready_file)


def _migrate(_words: argparse.Namespace, settings: Settings) -> int:
    from infra.up.schema import bring_forward

    applied = bring_forward(attached(settings, POSTGRES))
    print("\n".join(f"applied {name}" for name in applied) or "nothing to do")
    return 0


def _keys(words: argparse.Namespace, settings: Settings) -> int:
    from infra.up.schema import create_key, erase_tenant, list_keys, revoke_key

    settings = attached(settings, POSTGRES)
    if words.action == "rotate":
        from infra.keys.rotation import rotate_master

        rotate_master(settings, print)
        return 0
    if words.action == "erase":
        if not words.yes:
            raise SettingsError("what was sealed is unreadable for ever then: say --yes")
        destroyed = erase_tenant(settings, words.tenant)
        print("its key is destroyed" if destroyed else "its key was destroyed before")
        return 0
    if words.action == "list":
        print("\n".join(list_keys(settings)) or "there are none")
        return 0
    if words.action == "revoke":
        revoke_key(settings, words.kid)
        print(f"{words.kid} is revoked")
        return 0
    scopes = tuple(word.strip() for word in words.scopes.split(",") if word.strip())
    unknown = [word for word in scopes if word not in SCOPES]
    if unknown or not scopes:
        raise SettingsError(
            f"--scopes {words.scopes!r} cannot be used: choose from {', '.join(SCOPES)}"
        )
    print(create_key(settings, words.tenant, scopes))
    return 0


def _signing(words: argparse.Namespace, settings: Settings) -> int:
    from infra.up.schema import list_signing_keys, rotate_signing_key

    settings = attached(settings, POSTGRES)
    if words.action == "list":
        print("\n".join(list_signing_keys(settings, words.tenant)) or "there are none")
        return 0
    if not 0 <= words.overlap_h <= OVERLAP_H_MAX:
        raise SettingsError(f"--overlap-h {words.overlap_h:g}: 0 to {OVERLAP_H_MAX} hours")
    overlap_ms = round(words.overlap_h * HOUR)
    print(rotate_signing_key(settings, words.tenant, words.scheme, overlap_ms))
    return 0


def _zones(words: argparse.Namespace, settings: Settings) -> int:
    from infra import zones

    settings = attached(settings, POSTGRES)

    def say(line: str) -> None:
        print(line, flush=True)

    if words.action == "apply":
        zones.apply(settings, say)
        return 0
    try:
        zones.diff(settings, say, words.old)
    except ValueError as error:
        raise SettingsError(f"--old: {error}") from error
    return 0


def _doctor(words: argparse.Namespace, settings: Settings) -> int:
    from infra import doctor

    return doctor.list_settings(settings) if words.settings else doctor.examine(settings)


def run_bench(words: list[str]) -> int:
    """Measure; it comes with the project's folder, not with an installed package."""
    try:
        from bench.program import main
    except ModuleNotFoundError as error:
        if error.name not in {"bench", "bench.program"}:
            raise
        raise SettingsError("bench is run from a clone of the project: make bench") from error

    return main(words)


_COMMANDS: Final[dict[str, Callable[[argparse.Namespace, Settings], int]]] = {
    "up": _up,
    "migrate": _migrate,
    "keys": _keys,
    "signing": _signing,
    "doctor": _doctor,
    "zones": _zones,
}
