"""The dispatcher's process."""

from contextlib import ExitStack, closing
from secrets import token_bytes

from commandside.firing.dispatcher import Dispatcher
from commandside.firing.flights import DispatcherPorts
from domain.opaque import COMPLETION, Seal
from infra import lifecycle
from infra.objects.reads import ThreadedPayloadReads
from infra.objects.store import ObjectPayloadStore
from infra.postgres.fire_log import PostgresFireLog
from infra.postgres.secret_store import PostgresSecretStore
from infra.roles.process import Process, loop
from infra.targets.addresses import AddressBook
from infra.targets.connections import load_connections
from infra.targets.curl import CurlDeliverer
from infra.targets.queues import queue_deliverers
from infra.targets.resolver import ThreadedResolver
from infra.targets.routing import RoutingDeliverer
from infra.vault import TenantVault


def run(process: Process) -> int:
    """Take, lease, call and report until told to stop."""
    settings, keys = process.settings, process.keys
    with ExitStack() as stack:
        log = stack.enter_context(
            closing(
                PostgresFireLog(
                    process.conninfo,
                    stripes=settings.log.stripes,
                    shards=process.shards,
                )
            )
        )
        targets = settings.targets
        concurrency = settings.dispatch.concurrency
        lifecycle.allow_files(settings.dispatch.files)
        connections = load_connections(settings)
        deliverer = stack.enter_context(
            closing(
                RoutingDeliverer(
                    CurlDeliverer(
                        AddressBook(targets.rules),
                        ThreadedResolver(),
                        concurrency=concurrency,
                        http2_hosts=targets.http2_hosts,
                    ),
                    queue_deliverers(connections, concurrency=concurrency),
                    connections.grants(settings.kafka.prefix),
                    concurrency=concurrency,
                )
            )
        )
        vault = stack.enter_context(closing(TenantVault(process.conninfo, keys.wrapping)))
        secrets = stack.enter_context(
            closing(PostgresSecretStore(process.conninfo, keys.wrapping, vault))
        )
        store = stack.enter_context(
            closing(ObjectPayloadStore(settings.payload_store, settings.payloads.endpoint))
        )
        payloads = stack.enter_context(closing(ThreadedPayloadReads(store)))
        queue = stack.enter_context(closing(process.queue(consumes=True)))
        ports = DispatcherPorts(
            log,
            deliverer,
            vault,
            secrets,
            payloads,
            process.faults,
            process.telemetry,
            token_bytes,
            Seal(keys.root, COMPLETION),
        )
        dispatch = settings.dispatch
        dispatcher = Dispatcher(
            ports, queue, heap_max=dispatch.held_max, host_share=dispatch.host_share
        )

        def sockets() -> lifecycle.Sockets:
            readable, writable = deliverer.sockets()
            readable.append(payloads.fileno())
            for descriptor, writes in log.sockets():
                readable.append(descriptor)
                if writes:
                    writable.append(descriptor)
            return readable, writable

        def readiness() -> dict[str, object]:
            trouble = log.trouble()
            if trouble:
                return {"ready": False, "because": trouble[0]}
            return {}

        process.more = readiness
        return loop(process, dispatcher, sockets)
