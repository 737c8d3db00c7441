"""AMQP 0-9-1 exchanges as targets: one message for a fire, done when the broker has confirmed it.

One thread with an event loop owns all connections. What must hold, and by what:

- *Confirmed and routed*: publisher confirms, and the mandatory flag: a message that no queue takes
  comes back, and is a failure.
- *One tenant's mistake is not another's*: a broker answers an unknown exchange by closing the
  channel with everything that waits on it, so each exchange has a channel of its own.
- *Nothing waits for ever*: each send is one task under the deadline of its message; connecting is
  shared by those that wait for it.
"""

import asyncio
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractConnection
from aio_pika.abc import AbstractExchange as Exchange
from aiormq.exceptions import (
    AuthenticationError,
    ChannelAccessRefused,
    ChannelNotFoundEntity,
    ConnectionNotAllowed,
    DeliveryError,
    ProbableAuthenticationError,
    PublishError,
)

from commandside.deliverer_port import CONNECT_TIMEOUT_MS, Message
from domain.target import AmqpTarget
from infra.clock import mono_us
from infra.targets.connections import AmqpConnection
from infra.targets.pending import Outcome, PendingDeliverer, Ticket

HEARTBEAT_S: Final = 10
"""A broker that is gone without a word is noticed after two of them."""
CHANNELS_MAX: Final = 64
"""Channels that are kept open while nothing waits on them; brokers allow some thousand."""
JOIN_S: Final = 2.0

_REFUSED_LOGIN: Final = (AuthenticationError, ProbableAuthenticationError, ConnectionNotAllowed)


class _Unreachable(Exception):
    """There is no connection; `error` is what the port calls it."""

    def __init__(self, error: str) -> None:
        super().__init__(error)
        self.error = error


class _Connection(aio_pika.Connection):
    """A connection that its link closes, and nobody else.

    The client's own would close itself when it is collected, in whatever thread that is.
    """

    def __del__(self) -> None:
        """Do nothing."""


class _Lane:
    """The channel of one exchange, and how many messages wait on it."""

    __slots__ = ("opened", "waiting")

    def __init__(self, opened: "asyncio.Task[tuple[AbstractChannel, Exchange]]") -> None:
        self.opened = opened
        self.waiting = 0

    @property
    def is_usable(self) -> bool:
        """It is open, or will be."""
        if not self.opened.done():
            return True
        failed = self.opened.cancelled() or self.opened.exception() is not None
        return not failed and not self.opened.result()[0].is_closed


class _Link:
    """One connection of the operator's, made when it is needed and made anew when it has ended."""

    def __init__(self, connection: AmqpConnection) -> None:
        self._told = connection
        self._connected: asyncio.Task[AbstractConnection] | None = None
        self._lanes: dict[str, _Lane] = {}
        self.away = False
        """The last attempt to connect has failed."""

    async def lane(self, exchange: str) -> _Lane:
        """Return the channel of an exchange; raises _Unreachable, and what opening a channel does.

        The caller counts itself in `waiting`.
        """
        connection = await self._connection()
        found = self._lanes.get(exchange)
        if found is None or not found.is_usable:
            self._tidy()
            opening = connection.channel(publisher_confirms=True, on_return_raises=True)
            opened = asyncio.ensure_future(_opened(opening, exchange))
            found = self._lanes[exchange] = _Lane(opened)
        return found

    async def close(self) -> None:
        """End the connection."""
        task = self._connected
        if task is not None and task.done() and not task.cancelled() and task.exception() is None:
            await task.result().close()

    async def _connection(self) -> AbstractConnection:
        task = self._connected
        if task is None or (task.done() and _is_over(task)):
            self._lanes.clear()
            if task is not None and not task.cancelled() and task.exception() is None:
                asyncio.ensure_future(task.result().close()).add_done_callback(_forget)
            task = self._connected = asyncio.ensure_future(self._connect())
        # Whoever gives up waiting leaves it to the others.
        return await asyncio.shield(task)

    async def _connect(self) -> AbstractConnection:
        told = self._told
        host, port = told.address
        context = ssl.create_default_context(cafile=told.ca_file or None) if told.tls else None
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_MS / 1_000):
                connection = await aio_pika.connect(
                    host=host,
                    port=port,
                    login=told.username,
                    password=told.password,
                    virtualhost=told.vhost,
                    ssl=told.tls,
                    ssl_context=context,
                    heartbeat=HEARTBEAT_S,
                    client_properties={"product": "Tocsin"},
                    connection_class=_Connection,
                )
        except _REFUSED_LOGIN as error:
            raise _Unreachable("not_authorized") from error
        except Exception as error:
            self.away = True
            raise _Unreachable("broker_down") from error
        self.away = False
        return connection

    def _tidy(self) -> None:
        if len(self._lanes) < CHANNELS_MAX:
            return
        for exchange, lane in list(self._lanes.items()):
            if not lane.waiting:
                del self._lanes[exchange]
                if lane.opened.done() and lane.is_usable:
                    closing = asyncio.ensure_future(lane.opened.result()[0].close())
                    closing.add_done_callback(_forget)


def _is_over(task: "asyncio.Task[AbstractConnection]") -> bool:
    if task.cancelled() or task.exception() is not None:
        return True
    # `is_closed` is about our own closing only.
    return not task.result().connected.is_set()


def _forget(task: "asyncio.Task[None]") -> None:
    """Take the error of a channel that did not close well: nothing waits on it."""
    if not task.cancelled():
        task.exception()


async def _opened(channel: AbstractChannel, exchange: str) -> tuple[AbstractChannel, Exchange]:
    """Return the open channel with its exchange; raises ChannelNotFoundEntity.

    It is asked for before anything is sent: the client would go on sending on a channel that the
    broker has just closed, for which the broker ends the whole connection.
    """
    await channel.initialize()
    if not exchange:
        return channel, channel.default_exchange
    return channel, await channel.get_exchange(exchange, ensure=True)


class AmqpDeliverer(PendingDeliverer):
    """Sends to exchanges of the operator's brokers."""

    def __init__(
        self,
        connections: Mapping[str, AmqpConnection],
        *,
        concurrency: int,
        monotonic_us: Callable[[], int] = mono_us,
    ) -> None:
        super().__init__(concurrency, monotonic_us)
        self._links = {name: _Link(connection) for name, connection in connections.items()}
        self._loop = asyncio.SelectorEventLoop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread: threading.Thread | None = None

    def submit(self, calls: Sequence[Message]) -> None:
        """Take messages."""
        taken = self._take(calls)
        if taken:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="amqp", daemon=True)
                self._thread.start()
            self._loop.call_soon_threadsafe(self._begin, taken)

    def close(self) -> None:
        """Drop every message on its way, unanswered, and every connection."""
        self._pending.close()
        thread, self._thread = self._thread, None
        if thread is not None:
            asyncio.run_coroutine_threadsafe(self._end(), self._loop)
            thread.join(JOIN_S)
        elif not self._loop.is_running():
            self._loop.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.close()

    async def _end(self) -> None:
        """Part from brokers that answer, and leave those that do not."""
        closing = [asyncio.ensure_future(link.close()) for link in self._links.values()]
        await asyncio.wait(closing, timeout=JOIN_S / 4)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others, timeout=JOIN_S / 4)
        transports = vars(self._loop)["_transports"]  # the client keeps them to itself
        for transport in list(transports.values()):
            transport.abort()
        # What an abort schedules is run before the loop ends.
        await asyncio.sleep(0)
        self._loop.call_soon(self._loop.stop)

    def _begin(self, tickets: Sequence[Ticket]) -> None:
        for ticket in tickets:
            task = self._loop.create_task(self._deliver(ticket))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _deliver(self, ticket: Ticket) -> None:
        error = "confirm_lost"
        try:
            async with asyncio.timeout(self._pending.remaining_s(ticket)):
                error = await self._send(ticket)
        except TimeoutError:
            error = "timeout"
        except _Unreachable as away:
            error = away.error
        except ChannelNotFoundEntity:
            error = "unknown_exchange"
        except ChannelAccessRefused:
            error = "not_authorized"
        except PublishError:
            error = "unroutable"
        except DeliveryError:
            # The broker could not take it, as when a queue is full.
            error = "refused"
        except Exception:  # noqa: BLE001 - the connection or its channel has ended, in one of many ways
            error = "confirm_lost" if ticket.started_us else "broker_down"
        finally:
            # Also where it was cancelled: a ticket is brought once, whatever happens.
            self._pending.bring(Outcome(ticket, error))

    async def _send(self, ticket: Ticket) -> str:
        message, target = ticket.message, ticket.message.target
        assert isinstance(target, AmqpTarget)
        if not self._pending.may_start(ticket):
            return "send_deadline"
        link = self._links[target.connection]
        ticket.link = link
        lane = await link.lane(target.exchange)
        lane.waiting += 1
        try:
            _, exchange = await asyncio.shield(lane.opened)
            self._pending.started(ticket)
            await exchange.publish(_as_sent(message), target.routing_key, mandatory=True)
        finally:
            lane.waiting -= 1
        return ""


def _as_sent(message: Message) -> aio_pika.Message:
    headers = {name: value.decode("latin-1") for name, value in message.headers}
    return aio_pika.Message(
        message.body,
        headers={**headers},
        content_type=headers.get("content-type"),
        delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
        message_id=message.key,
    )
