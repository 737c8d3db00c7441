"""The operator's connections to brokers: who may use each, for what, and the credentials.

They are in a file of their own, because they hold secrets: `targets.connections_file` names it.

    [kafka.main]
    brokers = "kafka-1:9093,kafka-2:9093"
    tenants = ["*"]
    prefixes = ["{tenant}."]
"""

import stat
import tomllib
from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from domain import ids
from domain.queue_target import CONNECTION_NAME, EVERYONE, Grant
from domain.target import AMQP, KAFKA, SQS
from infra.settings import Settings, SettingsError

OWN_TOPICS: Final = ".due."
"""What follows the prefix in the names of our own topics, to which no tenant may send."""


class _Connection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    tenants: Annotated[tuple[str, ...], Meta(min_length=1)]
    prefixes: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """Where it leads, without secrets."""
        raise NotImplementedError

    @property
    def secret(self) -> str:
        """What nobody else may read; empty for none."""
        raise NotImplementedError


class KafkaConnection(_Connection, frozen=True, tag=False):
    """A cluster; with a user SASL is spoken, with `tls` encrypted."""

    brokers: Annotated[str, Meta(min_length=1)]
    tls: bool = False
    ca_file: str = ""
    username: str = ""
    password: str = ""
    mechanism: Annotated[str, Meta(pattern=r"^(PLAIN|SCRAM-SHA-256|SCRAM-SHA-512)$")] = (
        "SCRAM-SHA-512"
    )

    @property
    def place(self) -> str:
        """The brokers."""
        return self.brokers

    @property
    def secret(self) -> str:
        """The password."""
        return self.password


class AmqpConnection(_Connection, frozen=True, tag=False):
    """A broker of AMQP 0-9-1, such as RabbitMQ, and one virtual host of it."""

    host: Annotated[str, Meta(min_length=1)]
    port: Annotated[int, Meta(ge=0, le=65_535)] = 0
    vhost: str = "/"
    username: str = "guest"
    password: str = ""
    tls: bool = False
    ca_file: str = ""

    @property
    def address(self) -> tuple[str, int]:
        """Host and port, the usual one where none is said."""
        return self.host, self.port or (5671 if self.tls else 5672)

    @property
    def place(self) -> str:
        """Host, port and virtual host."""
        host, port = self.address
        return f"{host}:{port}" + ("" if self.vhost == "/" else f"/{self.vhost}")

    @property
    def secret(self) -> str:
        """The password."""
        return self.password


class SqsConnection(_Connection, frozen=True, tag=False):
    """An account's queues in a region; without keys, the machine's own role is used."""

    region: Annotated[str, Meta(min_length=1)]
    endpoint: str = ""
    account: Annotated[str, Meta(pattern=r"^([0-9]{12})?$")] = ""
    access_key_id: str = ""
    secret_access_key: str = ""

    @property
    def place(self) -> str:
        """The endpoint or the region."""
        return self.endpoint or self.region

    @property
    def secret(self) -> str:
        """The secret key."""
        return self.secret_access_key


AnyConnection = KafkaConnection | AmqpConnection | SqsConnection


class Connections(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All connections of an installation, by kind and name."""

    kafka: dict[str, KafkaConnection] = {}
    amqp: dict[str, AmqpConnection] = {}
    sqs: dict[str, SqsConnection] = {}

    def all(self) -> list[tuple[str, str, AnyConnection]]:
        """Return kind, name and connection of each."""
        kinds: dict[str, dict[str, AnyConnection]] = {
            KAFKA: {**self.kafka},
            AMQP: {**self.amqp},
            SQS: {**self.sqs},
        }
        return [(kind, name, one) for kind, named in kinds.items() for name, one in named.items()]

    def grants(self, own_prefix: str) -> dict[tuple[str, str], Grant]:
        """Return who may send where; `own_prefix` begins the names of our own topics."""
        closed = (own_prefix + OWN_TOPICS,)
        return {
            (kind, name): _grant(one, closed if kind == KAFKA else ())
            for kind, name, one in self.all()
        }


def _grant(one: AnyConnection, closed: tuple[str, ...]) -> Grant:
    parsed = [ids.parse(ids.TENANT, text) for text in one.tenants if text != EVERYONE]
    known = frozenset(tenant for tenant in parsed if tenant is not None)
    return Grant(known, EVERYONE in one.tenants, one.prefixes, closed)


def load_connections(settings: Settings) -> Connections:
    """Read the operator's connections; raises SettingsError with what would be right."""
    if not settings.targets.connections_file:
        return Connections()
    path = Path(settings.targets.connections_file).expanduser()
    try:
        text = path.read_text(encoding="utf-8")
        found = msgspec.convert(tomllib.loads(text), Connections)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"targets.connections_file {path} cannot be read: {error}") from error
    except msgspec.ValidationError as error:
        # It names the place and the type, never the value, which may be a secret.
        raise SettingsError(f"targets.connections_file {path}: {error}") from error
    for kind, name, one in found.all():
        wrong = _wrong(name, one)
        if wrong:
            raise SettingsError(f"targets.connections_file {path}: {kind}.{name}: {wrong}")
    secret = any(one.secret for _, _, one in found.all())
    if secret and stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise SettingsError(
            f"targets.connections_file {path} holds secrets and is readable by others: chmod 600"
        )
    return found


def _wrong(name: str, one: AnyConnection) -> str:
    if not CONNECTION_NAME.fullmatch(name):
        return "a name has 1 to 40 of a-z, 0-9, '_', '-', a letter or digit first"
    for text in one.tenants:
        if text != EVERYONE and ids.parse(ids.TENANT, text) is None:
            return f"tenants: {text!r} is neither {EVERYONE!r} nor the id of a tenant (tn_…)"
    if "" in one.prefixes:
        return "prefixes: an empty one opens everything; leave prefixes out to say so"
    return ""
