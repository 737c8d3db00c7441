"""The deliverers of the queues that an operator has connected; no other client is even imported."""

from domain.target import AMQP, KAFKA, SQS
from infra.targets.connections import Connections
from infra.targets.routing import QueueDeliverer


def queue_deliverers(connections: Connections, *, concurrency: int) -> dict[str, QueueDeliverer]:
    """Return a deliverer for each kind that has a connection."""
    found: dict[str, QueueDeliverer] = {}
    if connections.kafka:
        from infra.targets.kafka import KafkaDeliverer

        found[KAFKA] = KafkaDeliverer(connections.kafka, concurrency=concurrency)
    if connections.amqp:
        from infra.targets.amqp import AmqpDeliverer

        found[AMQP] = AmqpDeliverer(connections.amqp, concurrency=concurrency)
    if connections.sqs:
        from infra.targets.sqs import SqsDeliverer

        found[SQS] = SqsDeliverer(connections.sqs, concurrency=concurrency)
    return found
