"""The fixtures of embedded engines give what their names say."""

import psycopg
from confluent_kafka.admin import AdminClient

from infra.embedded.broker import EmbeddedBroker

TIMEOUT_S = 10.0


def test_each_test_has_an_empty_database(database: str) -> None:
    with psycopg.connect(database) as connection:
        tables = connection.execute(
            "select count(*) from pg_tables where schemaname = 'public'"
        ).fetchone()
    assert tables == (0,)


def test_the_embedded_broker_answers(embedded_broker: EmbeddedBroker) -> None:
    admin = AdminClient({"bootstrap.servers": embedded_broker.address})
    assert len(admin.list_topics(timeout=TIMEOUT_S).brokers) == 1
