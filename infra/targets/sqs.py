"""SQS queues as targets: one message for a fire, done when SQS has given it an id.

Requests block, so a bounded pool of threads makes them; what waits there past its send deadline is
not begun. The client's own retries are off: a second request of it would be a second message.

A message body of SQS is text, so a payload that is none is sent as base64 and says so; and it has
ten attributes at most, so ours that are seldom filtered by are packed into one, and the job's own
into another.
"""

import queue
import threading
from base64 import b64encode
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

import boto3
import msgspec
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    ReadTimeoutError,
)

from commandside.deliverer_port import MESSAGE_TOO_LARGE, UNSENDABLE, Message
from domain.target import SqsTarget
from infra.clock import mono_us
from infra.targets.connections import SqsConnection
from infra.targets.pending import Outcome, PendingDeliverer, Ticket

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_sqs.type_defs import MessageAttributeValueTypeDef

THREADS_MAX: Final = 16
"""A request takes some ms: this is some thousand messages a second."""
CONNECT_S: Final = 5
READ_S: Final = 10
"""SQS answers in ms; a thread is not held for longer, whatever the job's timeout."""
JOIN_S: Final = 1.0
URLS_MAX: Final = 4_096
DEDUPLICATION_MAX: Final = 128

ALONE: Final = frozenset(
    {
        "content-type",
        "idempotency-key",
        "traceparent",
        "webhook-id",
        "webhook-signature",
        "webhook-timestamp",
    }
)
"""Headers that are attributes of their own."""
OURS: Final = "tocsin-"
ENCODING: Final = "content-transfer-encoding"

_CODES: Final = {
    "AWS.SimpleQueueService.NonExistentQueue": "unknown_queue",
    "QueueDoesNotExist": "unknown_queue",
    "InvalidMessageContents": UNSENDABLE,
    "AccessDenied": "not_authorized",
    "AccessDeniedException": "not_authorized",
    "AuthFailure": "not_authorized",
    "ExpiredToken": "not_authorized",
    "ExpiredTokenException": "not_authorized",
    "InvalidClientTokenId": "not_authorized",
    "InvalidSecurity": "not_authorized",
    "SignatureDoesNotMatch": "not_authorized",
    "UnrecognizedClientException": "not_authorized",
    "OverLimit": "throttled",
    "RequestThrottled": "throttled",
    "Throttling": "throttled",
    "ThrottlingException": "throttled",
    "KmsThrottled": "throttled",
}


def text_of(body: bytes) -> str | None:
    """Return a body as the text that SQS takes, or None where it is none."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return text if all(map(_is_taken, set(text))) else None


def _is_taken(character: str) -> bool:
    return character in "\t\n\r" or (character >= " " and character not in "\ufffe\uffff")


def attributes_of(headers: Sequence[tuple[str, bytes]], *, encoded: bool) -> dict[str, str]:
    """Return the attributes of a message: nine at most."""
    found: dict[str, str] = {}
    ours: dict[str, str] = {}
    theirs: dict[str, str] = {}
    for name, raw in headers:
        value = raw.decode("latin-1")
        if name in ALONE:
            found[name] = value
        elif name.startswith(OURS):
            ours[name.removeprefix(OURS)] = value
        else:
            theirs[name] = value
    if encoded:
        found[ENCODING] = "base64"
    for name, packed in (("tocsin", ours), ("headers", theirs)):
        if packed:
            found[name] = msgspec.json.encode(packed).decode()
    return found


def _error_of(error: Exception) -> str:
    match error:
        case ClientError():
            said: dict[str, Any] = {**error.response.get("Error", {})}
            code, text = str(said.get("Code", "")), str(said.get("Message", ""))
            if code == "InvalidParameterValue" and "shorter" in text:
                return MESSAGE_TOO_LARGE
            return _CODES.get(code.rpartition("#")[2], "refused")
        case EndpointConnectionError() | ConnectTimeoutError():
            return "broker_down"
        case NoCredentialsError():
            return "not_authorized"
        case ReadTimeoutError():
            return "timeout"
        case ConnectionClosedError():
            return "confirm_lost"
        case _:
            # Whatever it was, it is not known that nothing was sent.
            return "confirm_lost"


class SqsDeliverer(PendingDeliverer):
    """Sends to queues of the operator's accounts, in threads that start when they are needed."""

    def __init__(
        self,
        connections: Mapping[str, SqsConnection],
        *,
        concurrency: int,
        monotonic_us: Callable[[], int] = mono_us,
    ) -> None:
        self._connections = connections
        super().__init__(concurrency, monotonic_us)
        self._threads_max = min(THREADS_MAX, concurrency)
        self._threads: list[threading.Thread] = []
        # Bounded by what `Pending` takes.
        self._work: queue.SimpleQueue[Ticket | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._clients: dict[str, SQSClient] = {}
        self._urls: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._closed = False

    def submit(self, calls: Sequence[Message]) -> None:
        """Take messages."""
        for ticket in self._take(calls):
            self._work.put(ticket)
            if len(self._threads) < min(self._threads_max, self.in_flight):
                self._hire()

    def close(self) -> None:
        """Drop every message on its way, unanswered; threads end with their request."""
        self._closed = True
        for _ in self._threads:
            self._work.put(None)
        for thread in self._threads:
            thread.join(JOIN_S / self._threads_max)
        self._pending.close()

    def _hire(self) -> None:
        thread = threading.Thread(target=self._toil, name="sqs", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _toil(self) -> None:
        while (ticket := self._work.get()) is not None and not self._closed:
            if not self._pending.may_start(ticket):
                self._pending.bring(Outcome(ticket, "send_deadline"))
                continue
            self._pending.bring(self._send(ticket))

    def _send(self, ticket: Ticket) -> Outcome:
        target = ticket.message.target
        assert isinstance(target, SqsTarget)
        try:
            client = self._client(target.connection)
            url = self._url(client, target)
            self._pending.started(ticket)
            answer = client.send_message(QueueUrl=url, **_message(ticket.message, target))
        except (BotoCoreError, ClientError) as error:
            said = _error_of(error)
            if said == "unknown_queue":
                with self._lock:
                    self._urls.pop((target.connection, target.queue), None)
            if said == "broker_down":
                ticket.started_us = 0
            if said == "confirm_lost" and not ticket.started_us:
                said = "broker_down"
            return Outcome(ticket, said)
        except Exception:  # noqa: BLE001 - a fault of the client: what it did is not known
            return Outcome(ticket, "confirm_lost" if ticket.started_us else "broker_down")
        return Outcome(ticket, "", (("message-id", answer["MessageId"]),))

    def _client(self, name: str) -> "SQSClient":
        with self._lock:
            client = self._clients.get(name)
            if client is None:
                client = self._clients[name] = _connect(self._connections[name], self._threads_max)
        return client

    def _url(self, client: "SQSClient", target: SqsTarget) -> str:
        place = (target.connection, target.queue)
        with self._lock:
            known = self._urls.get(place)
        if known is not None:
            return known
        account = self._connections[target.connection].account
        owner: dict[str, str] = {"QueueOwnerAWSAccountId": account} if account else {}
        url = client.get_queue_url(QueueName=target.queue, **owner)["QueueUrl"]
        with self._lock:
            self._urls[place] = url
            if len(self._urls) > URLS_MAX:
                self._urls.popitem(last=False)
        return url


def _connect(connection: SqsConnection, threads: int) -> "SQSClient":
    config = Config(
        connect_timeout=CONNECT_S,
        read_timeout=READ_S,
        retries={"total_max_attempts": 1},
        max_pool_connections=threads,
        tcp_keepalive=True,
        # None of the environment's.
        proxies={},
    )
    return boto3.session.Session().client(
        "sqs",
        region_name=connection.region,
        endpoint_url=connection.endpoint or None,
        aws_access_key_id=connection.access_key_id or None,
        aws_secret_access_key=connection.secret_access_key or None,
        config=config,
    )


def _message(message: Message, target: SqsTarget) -> dict[str, Any]:
    text = text_of(message.body)
    body = b64encode(message.body).decode() if text is None else text
    packed = attributes_of(message.headers, encoded=text is None)
    attributes: dict[str, MessageAttributeValueTypeDef] = {
        name: {"DataType": "String", "StringValue": value} for name, value in packed.items()
    }
    shown: dict[str, Any] = {"MessageBody": body, "MessageAttributes": attributes}
    if target.queue.endswith(".fifo"):
        key = message.key
        shown["MessageGroupId"] = target.group_id or message.group
        shown["MessageDeduplicationId"] = (
            key if len(key) <= DEDUPLICATION_MAX else sha256(key.encode()).hexdigest()
        )
    return shown
