"""x-delivery-limit and quorum queues: messages beyond the limit, and the counts of the others."""

import pytest
from pamqp.commands import Basic, Queue
from pamqp.common import FieldTable

from tests.support.amqp091.frames import Message
from tests.support.amqp091.peer import Connector, PeerChannel
from tests.support.daemon.daemon import DaemonStarter

PERSISTENT = Basic.Properties(delivery_mode=2)


def counts(message: Message) -> tuple[object, object]:
    """The headers that say how often the message was given out and came back."""
    headers = message.properties.headers or {}
    return headers.get("x-acquired-count"), headers.get("x-delivery-count")


def delete(channel: PeerChannel, queue: str) -> None:
    """Delete a queue, which nobody owns."""
    channel.call(Queue.Delete(queue=queue), Queue.DeleteOk)


@pytest.fixture
def quorum(channel: PeerChannel, name: str) -> str:
    """The name of a quorum queue with a limit of 2."""
    return channel.declare(name, durable=True, arguments={"x-queue-type": "quorum", "x-delivery-limit": 2})


@pytest.mark.spec("rabbitmq-extensions", "x-delivery-limit")
def test_a_rejected_message_comes_back_as_often_as_the_limit_says(channel: PeerChannel, quorum: str) -> None:
    properties = Basic.Properties(delivery_mode=2, headers={"mine": 1, "x-delivery-count": 77})
    channel.publish(b"poison", quorum, properties=properties)
    channel.consume(quorum)
    seen = []
    for _ in range(3):
        message = channel.delivery()
        assert message.properties.headers is not None
        assert message.properties.headers["mine"] == 1
        seen.append((message.redelivered, *counts(message)))
        channel.reject(message.tag)
    assert seen[1:] == [(True, 1, 1), (True, 2, 2)]
    assert seen[0][0] is False
    channel.expect_silence()
    assert channel.counts(quorum) == (0, 1)
    delete(channel, quorum)


@pytest.mark.amqpd_only("RabbitMQ 4.3 does not count basic.nack, a lost channel and basic.recover")
@pytest.mark.spec("rabbitmq-extensions", "x-delivery-limit")
def test_every_way_back_counts(connect: Connector, channel: PeerChannel, name: str) -> None:
    channel.declare(name, durable=True, arguments={"x-delivery-limit": 4})
    channel.publish(b"x", name, properties=PERSISTENT)
    assert counts(channel.take(name)) == (None, None)
    channel.nack(0, multiple=True)
    assert counts(channel.take(name)) == (1, 1)
    channel.recover()
    other = connect().channel()
    assert counts(other.take(name)) == (2, 2)
    other.close()
    again = connect().channel()
    assert counts(again.take(name)) == (3, 3)
    again.peer.drop()
    while (message := channel.get(name, no_ack=False)) is None:
        pass  # the broker has not noticed the loss yet
    assert counts(message) == (4, 4)
    channel.nack(message.tag)
    assert channel.get(name) is None
    delete(channel, name)


@pytest.mark.amqpd_only("RabbitMQ does not implement basic.recover with requeue=false")
@pytest.mark.spec("amqp-0-9-1", "basic.recover")
def test_recovering_to_the_same_consumer_counts(channel: PeerChannel, quorum: str) -> None:
    channel.publish(b"x", quorum, properties=PERSISTENT)
    channel.qos(1)
    channel.consume(quorum)
    seen = [counts(channel.delivery())]
    for _ in range(2):
        channel.call(Basic.Recover(False), Basic.RecoverOk)
        seen.append(counts(channel.delivery()))
    assert seen == [(None, None), (1, 1), (2, 2)]
    channel.publish(b"next", quorum, properties=PERSISTENT)
    channel.call(Basic.Recover(False), Basic.RecoverOk)
    assert channel.delivery().body == b"next", "the window has room again"
    delete(channel, quorum)


@pytest.mark.amqpd_only("RabbitMQ's classic queues refuse the argument")
@pytest.mark.spec("rabbitmq-extensions", "x-delivery-limit")
def test_a_delivery_limit_of_zero_drops_the_message_at_its_first_return(
    channel: PeerChannel, name: str
) -> None:
    channel.declare(name, exclusive=True, arguments={"x-delivery-limit": 0})
    channel.publish(b"x", name)
    channel.nack(channel.take(name).tag)
    assert channel.get(name) is None


@pytest.mark.spec("amqp-0-9-1", "basic.reject")
def test_a_queue_that_does_not_count_changes_no_content(channel: PeerChannel, name: str) -> None:
    channel.declare(name, exclusive=True)
    channel.publish(b"x", name, properties=Basic.Properties(headers={"x-delivery-count": "mine"}))
    for _ in range(30):
        message = channel.take(name)
        assert message.properties.headers == {"x-delivery-count": "mine"}
        channel.reject(message.tag)
    assert channel.counts(name) == (1, 0)


@pytest.mark.spec("rabbitmq-extensions", "x-queue-type=quorum")
def test_quorum_queues_have_a_limit_of_20(channel: PeerChannel, name: str) -> None:
    channel.declare(name, durable=True, arguments={"x-queue-type": "quorum"})
    channel.publish(b"x", name, properties=PERSISTENT)
    for number in range(21):
        message = channel.take(name)
        assert counts(message) == ((number, number) if number else (None, None))
        channel.reject(message.tag)
    assert channel.get(name) is None
    delete(channel, name)


@pytest.mark.spec("rabbitmq-extensions", "x-queue-type=quorum")
def test_invalid_arguments_of_quorum_queues(connect: Connector, name: str) -> None:
    for flags, wrong in (
        ({"durable": False}, "non-durable"),
        ({"durable": True, "exclusive": True}, "exclusive-owner"),
        ({"durable": True, "auto_delete": True}, "auto-delete"),
    ):
        command = Queue.Declare(queue=name, arguments={"x-queue-type": "quorum"}, **flags)
        text = connect().channel().refused(command, 406)
        assert text == f"PRECONDITION_FAILED - invalid property '{wrong}' for queue '{name}' in vhost '/'"


@pytest.mark.spec("rabbitmq-extensions", "x-queue-type=quorum")
def test_quorum_queue_arguments_for_clusters_are_accepted(channel: PeerChannel, name: str) -> None:
    arguments: FieldTable = {
        "x-queue-type": "quorum",
        "x-quorum-initial-group-size": 3,
        "x-queue-leader-locator": "balanced",
        "x-max-in-memory-length": 0,
        "x-nobody-knows-this": True,
        "x-message-deduplication": True,
    }
    assert channel.declare(name, durable=True, arguments=arguments) == name
    assert channel.declare(name, durable=True, arguments=arguments) == name
    delete(channel, name)


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("x-delivery-limit", -2),
        ("x-delivery-limit", "many"),
        ("x-queue-leader-locator", "nearest"),
        ("x-delayed-retry-type", "sometimes"),
        ("x-delayed-retry-min", -1),
        ("x-member-placement-tag", ""),
        ("x-stream-filter-size-bytes", 15),
        ("x-queue-type", "heap"),
    ],
)
@pytest.mark.amqpd_only("which argument RabbitMQ checks depends on the queue's type, and its words differ")
@pytest.mark.spec("rabbitmq-extensions", "queue.declare#arguments")
def test_malformed_arguments_are_named(channel: PeerChannel, name: str, argument: str, value: object) -> None:
    arguments = {"x-queue-type": "quorum", argument: value}
    text = channel.refused(Queue.Declare(queue=name, durable=True, arguments=arguments), 406)  # type: ignore[arg-type]
    assert text.startswith(f"PRECONDITION_FAILED - invalid arg '{argument}' for queue '{name}' in vhost '/'")
    assert str(value) in text


@pytest.mark.spec("rabbitmq-extensions", "x-delivery-limit")
def test_counts_survive_a_crash(start_daemon: DaemonStarter, connect: Connector) -> None:
    """Unacknowledged deliveries at a crash count: three crashes use up a limit of 2."""
    arguments: FieldTable = {
        "x-queue-type": "quorum",
        "x-delivery-limit": 2,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "dead",
    }
    for crash in range(3):
        daemon = start_daemon()
        channel = connect(daemon.address).channel()
        channel.declare("q", durable=True, arguments=arguments)
        channel.declare("dead", durable=True)
        channel.declare("fence", durable=True)
        channel.confirm_select()
        if crash == 0:
            channel.publish(b"poison", "q", properties=PERSISTENT)
            channel.expect_confirms(1)
        assert counts(channel.take("q")) == ((crash, crash) if crash else (None, None))
        channel.publish(b"", "fence", properties=PERSISTENT)
        channel.expect_confirms(2 if crash == 0 else 1, first=2 if crash == 0 else 1)  # the count is on disk
        daemon.kill()
        channel.peer.drop()
    channel = connect(start_daemon().address).channel()
    assert channel.counts("q") == (0, 0)
    headers = channel.take("dead").properties.headers
    assert headers is not None
    assert headers["x-first-death-reason"] == "delivery_limit"
    assert channel.counts("fence") == (3, 0)


@pytest.mark.spec("rabbitmq-extensions", "x-delivery-limit")
def test_counts_survive_a_stop(start_daemon: DaemonStarter, connect: Connector) -> None:
    daemon = start_daemon()
    channel = connect(daemon.address).channel()
    channel.declare("q", durable=True, arguments={"x-delivery-limit": 2})
    channel.confirm_select()
    for body in (b"poison", b"fresh"):
        channel.publish(body, "q", properties=PERSISTENT)
    channel.expect_confirms(2)
    channel.nack(channel.take("q").tag)
    channel.take("q")
    daemon.terminate()
    channel.peer.expect_close(320)
    daemon.expect_exit(0)

    channel = connect(start_daemon().address).channel()
    first, second = channel.take("q"), channel.take("q")
    assert (first.body, first.redelivered, counts(first)) == (b"poison", True, (2, 2))
    assert (second.body, second.redelivered, counts(second)) == (b"fresh", False, (None, None))
    channel.nack(0, multiple=True)
    assert channel.counts("q") == (1, 0)
