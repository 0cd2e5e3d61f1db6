"""Streams with RabbitMQ's Python client of AMQP 1.0, 1.x. Unmodified."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.interop.rabbitmq_connection import (
    COMPATIBLE,
    Taking,
    accept,
    bodies,
    client,
    environment_of,
    publish,
    queue_address,
    run,
)
from tests.support.daemon.daemon import Daemon


@pytest.fixture(scope="module")
def compatible(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A broker that calls itself RabbitMQ."""
    daemon = Daemon(tmp_path_factory.mktemp("streams"), environment=COMPATIBLE).wait_until_ready()
    yield daemon
    daemon.stop()


@pytest.fixture
def connection(compatible: Daemon) -> Iterator[Any]:
    """A connection."""
    environment = environment_of(compatible.address)
    connection = environment.connection()
    connection.dial()
    yield connection
    environment.close()


@pytest.fixture
def stream(connection: Any, name: str) -> Iterator[str]:
    """A stream with ten messages."""
    management = connection.management()
    management.declare_queue(client.StreamSpecification(name=name))
    publish(connection, queue_address(name), *[b"%d" % number for number in range(10)])
    yield name
    management.delete_queue(name)


def read(connection: Any, stream: str, count: int, options: Any) -> list[Any]:
    """The next messages of a stream."""
    handler = Taking((accept,) * count)
    consumer = connection.consumer(
        queue_address(stream),
        message_handler=handler,
        consumer_options=client.StreamConsumerOptions(**options),
    )
    run(connection, consumer)
    consumer.close()
    return handler.messages


def test_a_stream_has_the_declared_properties(connection: Any, stream: str) -> None:
    info = connection.management().queue_info(stream)
    assert info.queue_type == client.QueueType.stream
    assert info.message_count == 10


@pytest.mark.parametrize(("offset", "first"), [("first", 0), ("last", 9), (6, 6)])
def test_consumers_say_where_they_begin(connection: Any, stream: str, offset: str | int, first: int) -> None:
    named = offset if isinstance(offset, int) else client.OffsetSpecification[offset]
    messages = read(connection, stream, 10 - first, {"offset_specification": named})
    assert bodies(messages) == [b"%d" % number for number in range(first, 10)]
    assert [message.annotations["x-stream-offset"] for message in messages] == list(range(first, 10))


def test_consumers_filter(connection: Any, stream: str) -> None:
    publisher = connection.publisher(queue_address(stream))
    for value in ("apples", "pears", "apples"):
        message = client.Message(
            body=client.Converter.string_to_bytes(value), annotations={"x-stream-filter-value": value}
        )
        publisher.publish(message)
    publisher.close()
    options = {
        "offset_specification": client.OffsetSpecification.first,
        "filter_options": client.StreamFilterOptions(values=["apples"]),
    }
    messages = read(connection, stream, 2, options)
    assert [message.annotations["x-stream-offset"] for message in messages] == [10, 12]
