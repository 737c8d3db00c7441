"""The only reader of the environment and of `tocsin.toml`: one frozen struct, decoded once.

A value comes from the command line, else from `TOCSIN_<SECTION>_<NAME>`, else from the file, else
from the default here. Every wrong value is named with what would be right. `docs/settings.md` is
generated from these structs.
"""

import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, get_args, get_type_hints

import msgspec
from msgspec import Meta

from domain.target import AddressRules, address_rules
from infra.allowed import refusals

PREFIX: Final = "TOCSIN_"
FILE_VARIABLE: Final = "TOCSIN_CONFIG"
FILE_NAME: Final = "tocsin.toml"
LIST_SEPARATOR: Final = ","

SECRETS: Final = frozenset({("keys", "master_key"), ("keys", "next_key")})
"""Settings, by section and name, whose values are shown to nobody."""

Port = Annotated[int, Meta(ge=0, le=65_535)]


class SettingsError(Exception):
    """A value cannot be used; the text names it, its source and what would be right."""


class _Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    pass


class Data(_Section, frozen=True):
    """Where an installation with embedded engines keeps its files."""

    dir: Annotated[str, Meta(min_length=1, description="folder of engines, keys and logs")] = (
        ".tocsin"
    )


class Postgres(_Section, frozen=True):
    """The truth: the cell's Postgres."""

    url: Annotated[str, Meta(description="libpq connection string; empty: embedded")] = ""
    shared_buffers_mb: Annotated[
        int, Meta(ge=16, le=65_536, description="memory of the embedded server, MB")
    ] = 256


class Kafka(_Section, frozen=True):
    """The hint: the broker of the due buckets."""

    bootstrap: Annotated[str, Meta(description="bootstrap servers; empty: embedded")] = ""
    port: Annotated[Port, Meta(description="port of the embedded broker; 0: chosen")] = 0
    prefix: Annotated[
        str, Meta(pattern=r"^[a-z0-9][a-z0-9._-]{0,40}$", description="start of topic names")
    ] = "tocsin"
    replication: Annotated[
        int, Meta(ge=1, le=9, description="replicas of topics that Tocsin creates")
    ] = 1
    session_timeout_ms: Annotated[
        int, Meta(ge=1_000, le=60_000, description="a silent dispatcher's partitions move after it")
    ] = 6_000
    memory_mb: Annotated[
        int, Meta(ge=64, le=65_536, description="embedded broker is recycled above this, MB")
    ] = 1_024


class Clickhouse(_Section, frozen=True):
    """The copy: the engine of the run history."""

    url: Annotated[str, Meta(description="http(s)://user:password@host:port; empty: embedded")] = ""
    port: Annotated[Port, Meta(description="port of the embedded engine; 0: chosen")] = 0
    database: Annotated[
        str, Meta(pattern=r"^[a-z][a-z0-9_]{0,40}$", description="database of the history")
    ] = "tocsin"


class Api(_Section, frozen=True):
    """The listeners."""

    host: Annotated[str, Meta(min_length=1, description="address of the public listener")] = (
        "127.0.0.1"
    )
    port: Annotated[Port, Meta(description="port of commands and queries; 0: chosen")] = 8_300
    with_queries: Annotated[
        bool, Meta(description="`tocsin api` also answers queries, on its own address")
    ] = False
    query_port: Annotated[Port, Meta(description="port of `tocsin query` alone; 0: chosen")] = 8_301
    ops_host: Annotated[str, Meta(min_length=1, description="address of the ops listener")] = (
        "127.0.0.1"
    )
    ops_port: Annotated[
        Port, Meta(description="/healthz, /readyz, /metrics of a role; 0: chosen")
    ] = 8_309


class Log(_Section, frozen=True):
    """Fixed at installation (shards, partitions), or a writer's own (stripes)."""

    shards: Annotated[int, Meta(ge=1, le=4_096, description="slices of jobs; fixed")] = 64
    partitions: Annotated[
        int,
        Meta(
            ge=0, le=1_024, description="broker partitions; fixed; 0: 16, or 4 where it is embedded"
        ),
    ] = 0
    stripes: Annotated[int, Meta(ge=1, le=64, description="writer connections per process")] = 2


class Schedules(_Section, frozen=True):
    """What definitions may ask for."""

    min_interval_s: Annotated[
        int, Meta(ge=1, le=3_600, description="least distance of two fires of a job, seconds")
    ] = 60


class Dispatch(_Section, frozen=True):
    """How a dispatcher works."""

    concurrency: Annotated[
        int,
        Meta(ge=1, le=20_000, description="calls in flight of one dispatcher; each needs a file"),
    ] = 256
    per_host: Annotated[
        int,
        Meta(ge=0, le=20_000, description="of these, to one host and port; 0: half of them"),
    ] = 0
    held_max: Annotated[
        int, Meta(ge=1_000, le=5_000_000, description="entries held until due; above: no fetching")
    ] = 200_000

    @property
    def host_share(self) -> int:
        """Calls that one target host may have in flight."""
        return self.per_host or max(1, self.concurrency // 2)

    @property
    def files(self) -> int:
        """Descriptors that a dispatcher may need: as many idle connections again, and its own."""
        return 4 * self.concurrency


class DeadLetters(_Section, frozen=True):
    """Runs that ended dead."""

    kept_days: Annotated[
        int, Meta(ge=1, le=3_650, description="listed, and can be redriven, for so long; days")
    ] = 30


class Targets(_Section, frozen=True):
    """Where fires may go. Private and loopback addresses are refused unless allowed here."""

    allow: Annotated[
        tuple[str, ...],
        Meta(description="address ranges that are allowed, for example 10.1.0.0/16"),
    ] = ()
    ports: Annotated[
        tuple[int, ...], Meta(description="ports beside 80, 443, 8080, 8443; each >= 1024")
    ] = ()
    closed_ports: Annotated[
        tuple[int, ...],
        Meta(description="ports never called on addresses that are not public; `up` adds its own"),
    ] = ()
    hosts: Annotated[
        tuple[str, ...],
        Meta(description="names that may lead into private networks: billing.corp, *.svc.corp"),
    ] = ()
    deny: Annotated[
        tuple[str, ...],
        Meta(description="address ranges never called: your own public ones, 203.0.113.0/28"),
    ] = ()
    http2_hosts: Annotated[
        tuple[str, ...],
        Meta(description="names that are offered HTTP/2, over TLS: api.example.com, *.run.app"),
    ] = ()
    connections_file: Annotated[
        str,
        Meta(description="file of the connections to brokers, see docs/targets.md; empty: none"),
    ] = ""

    @property
    def rules(self) -> AddressRules:
        """What is open to targets: for the API, which judges definitions, as for the calls."""
        return address_rules(self.allow, self.ports, self.closed_ports, self.hosts, self.deny)


class Payloads(_Section, frozen=True):
    """Where payloads are that are too large for the log."""

    store: Annotated[
        str,
        Meta(
            description="file:///folder, s3://bucket/prefix, gs://, az:// or abfss://; "
            "empty: `payloads` in data.dir, for one machine"
        ),
    ] = ""
    endpoint: Annotated[
        str, Meta(description="http(s):// address of a service that speaks S3; empty: Amazon's")
    ] = ""
    inline_max_bytes: Annotated[
        int, Meta(ge=0, le=1_048_576, description="larger payloads go to the store, bytes")
    ] = 16_384


class Keys(_Section, frozen=True):
    """Secrets at rest."""

    master_file: Annotated[
        str, Meta(description="32-byte master key, owner-only; empty: `master.key` in data.dir")
    ] = ""
    master_key: Annotated[
        str, Meta(description="instead of a file: the master key itself, as base64")
    ] = ""
    master_kms: Annotated[
        str, Meta(description="instead of a file: id, alias or ARN of a key in AWS KMS")
    ] = ""
    next_file: Annotated[
        str,
        Meta(
            description="of the master key that is changed over to, see docs/keys.md; also the"
            " next two; empty: the file of the current one with `.next` after it"
        ),
    ] = ""
    next_key: Annotated[str, Meta(description="itself, as base64")] = ""
    next_kms: Annotated[str, Meta(description="in AWS KMS")] = ""
    kms_region: Annotated[
        str, Meta(description="region of AWS KMS; empty: as an ARN or the machine says")
    ] = ""
    kms_endpoint: Annotated[
        str, Meta(description="address of AWS KMS, or of what speaks as it does; empty: AWS")
    ] = ""

    def __repr__(self) -> str:
        """Say nothing: it may come into the text of an error."""
        return "Keys(…)"


class Up(_Section, frozen=True):
    """What `tocsin up` does beside serving."""

    demo: Annotated[bool, Meta(description="define and show the demo jobs")] = True


class Fault(_Section, frozen=True):
    """For tests: kill the process at a named crash point."""

    point: Annotated[str, Meta(description="NAME or NAME:HIT; empty: none")] = ""
    role: Annotated[str, Meta(description="only in this role; empty: in every one")] = ""


class Settings(_Section, frozen=True):
    """All settings of one process."""

    data: Data = Data()
    postgres: Postgres = Postgres()
    kafka: Kafka = Kafka()
    clickhouse: Clickhouse = Clickhouse()
    api: Api = Api()
    log: Log = Log()
    schedules: Schedules = Schedules()
    dispatch: Dispatch = Dispatch()
    dead_letters: DeadLetters = DeadLetters()
    targets: Targets = Targets()
    payloads: Payloads = Payloads()
    keys: Keys = Keys()
    up: Up = Up()
    fault: Fault = Fault()

    @property
    def data_dir(self) -> Path:
        """The data folder."""
        return Path(self.data.dir).expanduser()

    @property
    def has_master_file(self) -> bool:
        """Whether the master key is in a file."""
        return not (self.keys.master_key or self.keys.master_kms)

    @property
    def has_next_master(self) -> bool:
        """Whether the settings name the master key that is changed over to."""
        return bool(self.keys.next_file or self.keys.next_key or self.keys.next_kms)

    @property
    def master_file(self) -> Path:
        """The master key's file."""
        return (
            Path(self.keys.master_file) if self.keys.master_file else self.data_dir / "master.key"
        )

    @property
    def payload_store(self) -> str:
        """The URL of the store of large payloads."""
        return self.payloads.store or (self.data_dir.absolute() / "payloads").as_uri()


class Field(msgspec.Struct, frozen=True):
    """One setting as the documentation shows it."""

    section: str
    name: str
    variable: str
    kind: str
    allowed: str
    default: str
    description: str


def load(
    overrides: Mapping[str, Mapping[str, Any]] | None = None,
    environment: Mapping[str, str] | None = None,
    file: Path | None = None,
) -> Settings:
    """Return the settings of this process; raises SettingsError for the first wrong value.

    `overrides` come from the command line: section → name → value.
    """
    source = os.environ if environment is None else environment
    path = file or Path(source.get(FILE_VARIABLE, FILE_NAME))
    raw = _from_file(path, required=file is not None or FILE_VARIABLE in source)
    origins = {(s, n): str(path) for s, names in raw.items() for n in names}
    for section, name, variable in _names():
        if variable in source:
            raw.setdefault(section, {})[name] = _from_text(section, name, source[variable])
            origins[section, name] = variable
    _refuse_unknown_variables(source)
    for section, values in (overrides or {}).items():
        for name, value in values.items():
            raw.setdefault(section, {})[name] = value
            origins[section, name] = "the command line"
    settings = _converted(raw, origins)
    for section, name, wrong in refusals(settings):
        origin = origins.get((section, name), "defaults")
        raise SettingsError(f"{section}.{name} (from {origin}) cannot be used: {wrong}")
    return settings


def exported(settings: Settings) -> dict[str, str]:
    """Return the variables from which `load` makes these settings again, in another process.

    They are complete: no `tocsin.toml` is read there.
    """
    variables = {FILE_VARIABLE: os.devnull}
    for section, name, variable in _names():
        value = getattr(getattr(settings, section), name)
        text = LIST_SEPARATOR.join(map(str, value)) if isinstance(value, tuple) else str(value)
        variables[variable] = text.lower() if isinstance(value, bool) else text
    return variables


def replaced(settings: Settings, section: str, **values: Any) -> Settings:
    """Return the settings with other values in one section; the values are ours, not a user's."""
    changed = msgspec.structs.replace(getattr(settings, section), **values)
    return msgspec.structs.replace(settings, **{section: changed})


def fields() -> Iterator[Field]:
    """Yield every setting, in order, for the documentation."""
    for section_field in msgspec.structs.fields(Settings):
        section = section_field.name
        kind = section_field.type
        hints = get_type_hints(kind, include_extras=True)
        for field in msgspec.structs.fields(kind):
            metas = [m for m in get_args(hints[field.name])[1:] if isinstance(m, Meta)]
            yield Field(
                section,
                field.name,
                _variable(section, field.name),
                _kind(hints[field.name]),
                _allowed(metas),
                _shown(field.default),
                next((m.description for m in metas if m.description), ""),
            )


def _variable(section: str, name: str) -> str:
    return f"{PREFIX}{section}_{name}".upper()


def _names() -> Iterator[tuple[str, str, str]]:
    for section_field in msgspec.structs.fields(Settings):
        for field in msgspec.structs.fields(section_field.type):
            yield section_field.name, field.name, _variable(section_field.name, field.name)


def _from_file(path: Path, *, required: bool) -> dict[str, dict[str, Any]]:
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        if required:
            raise SettingsError(f"the settings file {path} does not exist") from error
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"the settings file {path} cannot be read: {error}") from error
    for section, values in raw.items():
        if not isinstance(values, dict):
            raise SettingsError(f"{path}: {section} must be a section, written as [{section}]")
    return raw


def _from_text(section: str, name: str, text: str) -> object:
    default = getattr(getattr(Settings(), section), name)
    if isinstance(default, tuple):
        return [part.strip() for part in text.split(LIST_SEPARATOR) if part.strip()]
    if isinstance(default, bool):
        return {"true": True, "1": True, "false": False, "0": False}.get(text.lower(), text)
    return text


def _refuse_unknown_variables(source: Mapping[str, str]) -> None:
    known = {variable for _, _, variable in _names()} | {FILE_VARIABLE}
    unknown = sorted(v for v in source if v.startswith(PREFIX) and v not in known)
    if unknown:
        raise SettingsError(f"{unknown[0]} is not a setting; `tocsin doctor --settings` lists them")


def _converted(raw: dict[str, dict[str, Any]], origins: dict[tuple[str, str], str]) -> Settings:
    try:
        return msgspec.convert(raw, Settings, strict=False)
    except msgspec.ValidationError as error:
        text = str(error)
        place = text.rpartition("$.")[2].rstrip("`").split("[")[0] if "$." in text else ""
        section, _, name = place.partition(".")
        what = text.split(" - at ", maxsplit=1)[0]
        known = next((f for f in fields() if (f.section, f.name) == (section, name)), None)
        if known is None:
            raise SettingsError(f"{place or 'settings'}: {what}") from error
        value = raw.get(section, {}).get(name)
        allowed = f"{known.kind}{', ' if known.allowed else ''}{known.allowed}"
        raise SettingsError(
            f"{section}.{name} = {value!r} (from {origins.get((section, name), 'defaults')}) "
            f"cannot be used: it must be {allowed} ({known.description})"
        ) from error


def _kind(hint: object) -> str:
    inner = hint
    while hasattr(inner, "__metadata__"):
        inner = get_args(inner)[0]
    names = {int: "a whole number", str: "text", bool: "true or false"}
    return names.get(inner, "a list") if isinstance(inner, type) else "a list"


def _allowed(metas: list[Meta]) -> str:
    low = next((m.ge for m in metas if m.ge is not None), None)
    high = next((m.le for m in metas if m.le is not None), None)
    if low is not None and high is not None:
        return f"from {low} to {high}"
    pattern = next((m.pattern for m in metas if m.pattern), None)
    return f"matching {pattern}" if pattern else ""


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return LIST_SEPARATOR.join(map(str, value)) or "none"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) or "empty"
