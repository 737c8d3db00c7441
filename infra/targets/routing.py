"""Every call to the deliverer of its kind; a tenant that may not use a connection, to none.

Who may use it was judged when the job was defined, and is judged again here: the operator may have
changed it since.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from commandside.deliverer_port import Answer, AnyCall, Call, Deliverer, Message
from domain.queue_target import Grants, judge
from domain.target import QUEUE_KINDS
from infra.targets.curl import CurlDeliverer


class QueueDeliverer(Deliverer[Message], Protocol):
    """A deliverer for one kind of queue, that wakes its owner by a descriptor."""

    def timeout_ms(self) -> int | None:
        """Return after how many ms `poll` must be called even if nothing is readable."""

    def fileno(self) -> int:
        """Return the descriptor that is readable when `poll` has something to do."""


class RoutingDeliverer:
    """Calls over HTTP and messages to queues, at most `concurrency` of them together.

    Each deliverer behind it must take as many by itself.
    """

    def __init__(
        self,
        http: CurlDeliverer,
        queues: Mapping[str, QueueDeliverer],
        grants: Grants,
        *,
        concurrency: int,
    ) -> None:
        self._http = http
        self._queues = queues
        self._all = tuple(queues.values())
        self._grants = grants
        self._concurrency = concurrency
        self._refused: list[Answer] = []

    @property
    def in_flight(self) -> int:
        """Calls and messages submitted and not answered yet."""
        queued = sum(queue.in_flight for queue in self._all) if self._all else 0
        return self._http.in_flight + queued + len(self._refused)

    @property
    def room(self) -> int:
        """How many more `submit` takes now."""
        return self._concurrency - self.in_flight

    def submit(self, calls: Sequence[AnyCall]) -> None:
        """Take calls and messages; at most `room`."""
        assert len(calls) <= self.room, (len(calls), self.room)
        http = [call for call in calls if type(call) is Call]
        if http:
            self._http.submit(http)
        if len(http) == len(calls):
            return
        queued: dict[str, list[Message]] = {}
        for call in calls:
            if isinstance(call, Message):
                error = self._closed(call)
                if error:
                    self._refused.append(Answer(call.token, 0, error, sent=False, elapsed_us=0))
                else:
                    queued.setdefault(QUEUE_KINDS[type(call.target)], []).append(call)
        for kind, messages in queued.items():
            self._queues[kind].submit(messages)

    def poll(self) -> list[Answer]:
        """Move everything on that can move, and return what ended."""
        answers = self._http.poll()
        for queue in self._all:
            answers += queue.poll()
        if self._refused:
            answers += self._refused
            self._refused = []
        return answers

    def sockets(self) -> tuple[list[int], list[int]]:
        """Return the descriptors to wait for: readable, and writable."""
        readable, writable = self._http.sockets()
        readable += [queue.fileno() for queue in self._all if queue.in_flight]
        if self._refused:
            readable.append(self._http.awake())
        return readable, writable

    def close(self) -> None:
        """Drop everything in flight, unanswered, and every connection."""
        for queue in self._all:
            queue.close()
        self._http.close()

    def _closed(self, message: Message) -> str:
        target = message.target
        grant = self._grants.get((QUEUE_KINDS[type(target)], target.connection))
        if grant is None or not grant.admits(message.tenant_id):
            return "no_connection"
        return "" if judge(target, message.tenant_id, self._grants) is None else "not_authorized"
