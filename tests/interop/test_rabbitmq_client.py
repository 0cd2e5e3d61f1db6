"""RabbitMQ's Python client of AMQP 1.0, 1.x, which is built on proton. Unmodified.

It manages over the node `/management`, and talks to no broker that does not call itself RabbitMQ.
"""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from tests.interop.rabbitmq_connection import (
    COMPATIBLE,
    RELEASED,
    SendException,
    Taking,
    accept,
    bodies,
    client,
    discard,
    environment_of,
    exchange_address,
    publish,
    queue_address,
    requeue,
    run,
    settling,
    take,
)
from tests.support.daemon.daemon import Daemon


@pytest.fixture(scope="module")
def compatible(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A broker that calls itself RabbitMQ."""
    daemon = Daemon(tmp_path_factory.mktemp("compatible"), environment=COMPATIBLE).wait_until_ready()
    yield daemon
    daemon.stop()


@pytest.fixture
def environment(compatible: Daemon) -> Iterator[Any]:
    """Opens connections."""
    opened = environment_of(compatible.address)
    yield opened
    opened.close()


@pytest.fixture
def connection(environment: Any) -> Any:
    """A connection."""
    connection = environment.connection()
    connection.dial()
    return connection


@pytest.fixture
def management(connection: Any) -> Any:
    """The management object, which declares and deletes."""
    return connection.management()


@pytest.fixture
def queue(management: Any, name: str) -> Iterator[str]:
    """A queue whose dead letters go to another queue, named after it."""
    letters = {"dead_letter_exchange": "", "dead_letter_routing_key": f"{name}.dead"}
    management.declare_queue(client.QuorumQueueSpecification(name=f"{name}.dead"))
    management.declare_queue(client.QuorumQueueSpecification(name=name, **letters))
    yield name
    management.delete_queue(name)
    management.delete_queue(f"{name}.dead")


def test_a_queue_is_as_it_was_declared(management: Any, queue: str) -> None:
    info = management.queue_info(queue)
    assert (info.name, info.is_durable, info.is_auto_delete, info.is_exclusive) == (queue, True, False, False)
    assert info.queue_type == client.QueueType.quorum
    assert info.arguments["x-dead-letter-routing-key"] == f"{queue}.dead"
    assert (info.message_count, info.consumer_count) == (0, 0)


SPECIFICATIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "limited": {"max_len": 10, "max_len_bytes": 1000, "overflow_behaviour": "reject-publish"},
    "passing": {"message_ttl": timedelta(seconds=5), "auto_expires": timedelta(minutes=1)},
    "exclusive": {"is_exclusive": True, "is_durable": False, "is_auto_delete": True},
    "with priorities": {"max_priority": 5, "single_active_consumer": True},
}


@pytest.mark.parametrize("specification", SPECIFICATIONS.values(), ids=list(SPECIFICATIONS))
def test_classic_queues_of_all_kinds(management: Any, name: str, specification: dict[str, Any]) -> None:
    for _ in range(2):  # the second time it is there
        management.declare_queue(client.ClassicQueueSpecification(name=name, **specification))
    info = management.queue_info(name)
    assert info.queue_type == client.QueueType.classic
    assert info.is_exclusive == specification.get("is_exclusive", False)
    assert info.arguments.get("x-max-length") == specification.get("max_len")
    management.delete_queue(name)
    with pytest.raises(client.ValidationCodeException, match="404"):
        management.queue_info(name)


def test_messages_published_to_an_exchange_are_consumed_from_a_queue(
    connection: Any, management: Any, queue: str, name: str
) -> None:
    exchange = client.ExchangeSpecification(name=name, exchange_type=client.ExchangeType.topic)
    management.declare_exchange(exchange)
    binding = client.ExchangeToQueueBindingSpecification(name, queue, binding_key="news.*")
    path = management.bind(binding)
    accepted = [client.OutcomeState.ACCEPTED] * 2
    assert publish(connection, exchange_address(name, "news.uk"), b"one", b"two") == accepted
    assert management.queue_info(queue).message_count == 2
    taken = take(connection, queue_address(queue), accept, accept)
    assert bodies(taken) == [b"one", b"two"]
    assert taken[0].annotations["x-routing-key"] == "news.uk"
    management.unbind(path)
    with pytest.raises(SendException, match=RELEASED):
        publish(connection, exchange_address(name, "news.uk"), b"nobody's")
    management.delete_exchange(name)


def test_exchanges_are_bound_to_exchanges(connection: Any, management: Any, queue: str, name: str) -> None:
    inner, outer = f"{name}.inner", f"{name}.outer"
    for exchange, kind in ((inner, client.ExchangeType.fanout), (outer, client.ExchangeType.direct)):
        management.declare_exchange(client.ExchangeSpecification(name=exchange, exchange_type=kind))
    between = client.ExchangeToExchangeBindingSpecification(outer, inner, binding_key="k/%")
    management.bind(between)
    management.bind(client.ExchangeToQueueBindingSpecification(inner, queue))
    publish(connection, exchange_address(outer, "k/%"), b"through both")
    assert bodies(take(connection, queue_address(queue), accept)) == [b"through both"]
    management.unbind(between)  # says that the destination is a queue
    with pytest.raises(SendException, match=RELEASED):
        publish(connection, exchange_address(outer, "k/%"), b"nobody's")
    management.delete_exchange(inner)
    management.delete_exchange(outer)


def test_a_publisher_to_anywhere(connection: Any, queue: str) -> None:
    publisher = connection.publisher()
    to = client.AddressHelper.message_to_address_helper
    here, nowhere = (to(client.Message(body=b"x"), queue_address(node)) for node in (queue, "nowhere"))
    assert publisher.publish(here).remote_state == client.OutcomeState.ACCEPTED
    with pytest.raises(client.AmqpMessageRejectedException, match="no queue 'nowhere'"):
        publisher.publish(nowhere)
    publisher.close()


def test_accept_discard_and_requeue_settle_as_documented(
    connection: Any, management: Any, queue: str
) -> None:
    publish(connection, queue_address(queue), b"good", b"bad")
    first = take(connection, queue_address(queue), requeue)
    again = take(connection, queue_address(queue), accept, discard)
    assert bodies(first + again) == [b"good", b"good", b"bad"]
    assert [message.first_acquirer for message in (first[0], again[0])] == [True, False]
    assert management.queue_info(queue).message_count == 0
    (letter,) = take(connection, queue_address(f"{queue}.dead"), accept)
    assert bodies([letter]) == [b"bad"]


def test_messages_discarded_with_annotations_are_dead_lettered_with_them(
    connection: Any, management: Any, queue: str
) -> None:
    publish(connection, queue_address(queue), b"bad")

    def discard_for_a_reason(context: Any, event: Any) -> None:
        settling.discard_with_annotations(context, event, {client.symbol("x-opt-why"): "spoilt"})

    take(connection, queue_address(queue), discard_for_a_reason)
    (letter,) = take(connection, queue_address(f"{queue}.dead"), accept)
    assert bodies([letter]) == [b"bad"]
    assert letter.annotations["x-opt-why"] == "spoilt"
    assert management.queue_info(queue).message_count == 0


def test_pre_settled_messages_leave_the_queue(connection: Any, management: Any, queue: str) -> None:
    publish(connection, queue_address(queue), *[b"x"] * 3)
    options = client.ConsumerOptions(client.ConsumerSettleStrategy.PreSettled)

    def nothing(context: Any, event: Any) -> None:
        assert event.delivery.settled

    take(connection, queue_address(queue), nothing, nothing, nothing, options=options)
    assert management.queue_info(queue).message_count == 0


def test_a_queue_is_purged(connection: Any, management: Any, queue: str) -> None:
    publish(connection, queue_address(queue), *[b"x"] * 5)
    assert management.purge_queue(queue) == 5
    assert management.purge_queue(queue) == 0


def test_a_full_queue_rejects(connection: Any, management: Any, name: str) -> None:
    full = {"max_len": 1, "overflow_behaviour": "reject-publish"}
    management.declare_queue(client.ClassicQueueSpecification(name=name, **full))
    with pytest.raises(client.AmqpMessageRejectedException, match="full"):
        publish(connection, queue_address(name), b"one", b"two")
    management.delete_queue(name)


def test_requests_are_answered_directly(environment: Any, connection: Any, queue: str) -> None:
    direct = client.ConsumerOptions(client.ConsumerSettleStrategy.DirectReplyTo)
    asking = environment.connection()
    asking.dial()
    handler = Taking((lambda context, event: None,))
    consumer = asking.consumer(message_handler=handler, consumer_options=direct)
    assert consumer.address.startswith("/queues/amq.rabbitmq.reply-to.")
    request = client.Message(body=b"question", reply_to=consumer.address, correlation_id="7")
    publisher = connection.publisher(queue_address(queue))
    publisher.publish(request)
    publisher.close()  # or it would hear of the end of the queue
    (question,) = take(connection, queue_address(queue), accept)
    answer = client.Message(body=b"answer", correlation_id=question.correlation_id)
    connection.publisher().publish(client.AddressHelper.message_to_address_helper(answer, question.reply_to))
    run(asking, consumer)
    assert (bodies(handler.messages), handler.messages[0].correlation_id) == ([b"answer"], "7")


def test_a_different_declaration_is_a_conflict(management: Any, queue: str) -> None:
    with pytest.raises(client.ValidationCodeException, match="ErrPreconditionFailed"):
        management.declare_queue(client.QuorumQueueSpecification(name=queue, max_len=5))
    fanout = client.ExchangeSpecification(name="amq.topic", exchange_type=client.ExchangeType.fanout)
    with pytest.raises(client.ValidationCodeException, match="ErrPreconditionFailed"):
        management.declare_exchange(fanout)
    assert management.queue_info(queue).arguments.get("x-max-length") is None


REFUSED: dict[str, tuple[Callable[[Any], None], str]] = {
    "binding what is not there": (
        lambda management: management.bind(
            client.ExchangeToQueueBindingSpecification("amq.topic", "nowhere", "k")
        ),
        "400",
    ),
    "purging what is not there": (lambda management: management.purge_queue("nowhere"), "404"),
    "a name that is reserved": (
        lambda management: management.declare_queue(client.ClassicQueueSpecification(name="amq.mine")),
        "403",
    ),
    "an exchange of a type that there is not": (
        lambda management: management.declare_exchange(
            client.ExchangeCustomSpecification(name="strange", exchange_type="x-strange")
        ),
        "400",
    ),
    "an argument that means nothing": (
        lambda management: management.declare_queue(
            client.ClassicQueueSpecification(name="strange", overflow_behaviour="explode")
        ),
        "400",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_an_impossible_request_is_refused_and_the_client_continues(
    management: Any, queue: str, what: str
) -> None:
    ask, code = REFUSED[what]
    with pytest.raises(client.ValidationCodeException, match=code):
        ask(management)
    assert management.queue_info(queue).name == queue


def test_deleting_a_missing_queue_or_exchange_is_no_error(management: Any, name: str) -> None:
    management.delete_queue(name)
    management.delete_exchange(name)


def test_the_client_refuses_a_broker_of_another_name(daemon: Daemon) -> None:
    environment = environment_of(daemon.address)
    with pytest.raises(client.ValidationCodeException, match="non-RabbitMQ"):
        environment.connection().dial()
    environment.close()
