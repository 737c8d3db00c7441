"""Receives the calls of Tocsin in the service that it calls.

A call is verified (Standard Webhooks), read into a `Delivery`, and de-duplicated by its key in a
store of yours. Tocsin calls at least once; with this, the handler of a key runs again only after
it failed, or was cut off and its claim expired.
"""

from tocsin_receiver.answer import Answer
from tocsin_receiver.asgi import AsgiReceiver
from tocsin_receiver.delivery import Delivery
from tocsin_receiver.inbox import Inbox
from tocsin_receiver.memory_store import MemoryStore
from tocsin_receiver.postgres_store import PostgresStore, one_connection
from tocsin_receiver.receiver import Receiver
from tocsin_receiver.record import Busy, Claimed, Record, Repeat, Stale
from tocsin_receiver.redis_store import RedisStore
from tocsin_receiver.refused import Refused
from tocsin_receiver.store import Store, StoreBusy
from tocsin_receiver.verifier import Verifier
from tocsin_receiver.wsgi import WsgiReceiver

__all__ = [
    "Answer",
    "AsgiReceiver",
    "Busy",
    "Claimed",
    "Delivery",
    "Inbox",
    "MemoryStore",
    "PostgresStore",
    "Receiver",
    "Record",
    "RedisStore",
    "Refused",
    "Repeat",
    "Stale",
    "Store",
    "StoreBusy",
    "Verifier",
    "WsgiReceiver",
    "one_connection",
]
