"""The port through which the dispatcher calls targets."""

from collections.abc import Sequence
from typing import Final, Protocol, TypeVar

import msgspec

from domain.target import QueueTarget

UNSENDABLE: Final = "unsendable"
"""A header that would be two, or end the text: never sent, and no retry could mend it."""
MESSAGE_TOO_LARGE: Final = "message_too_large"
"""The broker takes no message of this size."""
ERRORS: Final = frozenset(
    {
        "bad_response",
        "blocked_address",
        "broker_down",
        "confirm_lost",
        "connect",
        "dns",
        MESSAGE_TOO_LARGE,
        "no_connection",
        "not_authorized",
        "refused",
        "reset",
        "response_too_large",
        "send_deadline",
        "throttled",
        "timeout",
        "tls",
        "tls_expired",
        "tls_untrusted",
        "tls_wrong_host",
        "unknown_exchange",
        "unknown_queue",
        "unknown_topic",
        "unroutable",
        UNSENDABLE,
    }
)
"""What can be said instead of a status, or beside it; docs/targets.md says what each means."""
DEAD_ERRORS: Final = frozenset({MESSAGE_TOO_LARGE, UNSENDABLE})
"""Nobody but the job's owner can mend these; all others may have passed at the next attempt."""
CONNECT_TIMEOUT_MS: Final = 5_000
"""Resolving, connecting and TLS together; what is longer is a failed attempt."""
RESPONSE_BYTES_MAX: Final = 65_536
"""Headers, informational answers and body together; what is longer is cut, and said."""
KEPT_BODY_BYTES: Final = 1024
KEPT_VALUE_CHARS: Final = 256
"""Of each header that is kept."""
KEPT_HEADERS: Final = frozenset(
    {
        "content-length",
        "content-type",
        "date",
        "retry-after",
        "server",
        "tocsin-completion",
        "x-request-id",
    }
)


class Call(msgspec.Struct, gc=False):
    """One attempt to call an HTTP target, ready to send.

    `token` is the caller's and comes back on the answer. `headers` are complete lines
    (`b"Name: value"`), `Content-Type` among them if there is a body; `Host`, `Content-Length` and
    `Accept-Encoding: identity` are the deliverer's. `timeout_ms` is one deadline for resolving,
    connecting, TLS and the response. `not_after_us` is in microseconds of the monotonic clock that
    the deliverer was made with: a call that has not been started by then is never started.
    `secrets` are the values of named secrets among them, which nobody keeps of the answer.
    """

    token: int
    tenant_id: bytes
    scheme: str
    host: str
    port: int
    path: str
    method: str
    headers: list[bytes]
    body: bytes
    timeout_ms: int
    not_after_us: int
    secrets: tuple[bytes, ...] = ()


class Message(msgspec.Struct, gc=False):
    """One attempt to send to a queue, ready to send: the counterpart of a `Call`.

    `key` is the idempotency key, `group` stands where the target names no key or group of its own.
    `headers` are the names, in lower case, and values that a call would carry, `content-type` among
    them if there is a body. `timeout_ms` is one deadline for connecting and the confirmation.
    """

    token: int
    tenant_id: bytes
    target: QueueTarget
    key: str
    group: str
    headers: list[tuple[str, bytes]]
    body: bytes
    timeout_ms: int
    not_after_us: int
    secrets: tuple[bytes, ...] = ()


AnyCall = Call | Message
C_contra = TypeVar("C_contra", contravariant=True)


class Answer(msgspec.Struct, gc=False):
    """What came of one call.

    `status` is 0 if no complete header block came, and for every message: one without an `error`
    was confirmed by its broker. `error` is empty or one of `ERRORS`; it can stand beside a status
    (the body was cut or too long: the status holds). `sent` is false only
    if no byte of the request can have reached the target. `headers` are those of `KEPT_HEADERS`,
    names in lower case; `body` is its first `KEPT_BODY_BYTES`.
    """

    token: int
    status: int
    error: str
    sent: bool
    elapsed_us: int
    headers: tuple[tuple[str, str], ...] = ()
    retry_after: str = ""
    body: bytes = b""


class Deliverer(Protocol[C_contra]):
    """Calls targets concurrently; neither `submit` nor `poll` ever blocks or raises on an answer.

    Every submitted call is answered exactly once, by `poll`, in any order.
    """

    @property
    def in_flight(self) -> int:
        """Calls submitted and not answered yet."""
        ...

    @property
    def room(self) -> int:
        """How many more calls `submit` takes now; more is a bug of the caller."""
        ...

    def submit(self, calls: Sequence[C_contra]) -> None:
        """Take calls; at most `room`."""
        ...

    def poll(self) -> list[Answer]:
        """Move everything on that can move, and return what ended."""
        ...

    def close(self) -> None:
        """Drop every call in flight, unanswered, and every connection."""
        ...
