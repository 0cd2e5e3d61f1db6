"""Dead letter exchanges: destinations and headers. [RabbitMQ dead letter exchanges]"""

from datetime import UTC, datetime, timedelta

import pytest
from pamqp.commands import Basic, Queue, Tx
from pamqp.common import FieldTable

from tests.support.amqp091.frames import Message
from tests.support.amqp091.peer import Connector, PeerChannel
from tests.support.daemon.daemon import DaemonStarter

pytestmark = pytest.mark.spec("rabbitmq-extensions", "dead letter exchanges")


def dead_lettering(channel: PeerChannel, to: str, **arguments: object) -> str:
    """A queue whose dead letters go to the queue `to`."""
    held: FieldTable = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": to}
    for name, value in arguments.items():
        held[f"x-{name.replace('_', '-')}"] = value  # type: ignore[assignment]
    return channel.declare(exclusive=True, arguments=held)


def headers_of(message: Message) -> dict[str, object]:
    headers = message.properties.headers
    assert headers is not None
    return dict(headers)


def arrived(channel: PeerChannel, queue: str) -> Message:
    """The next message of a queue, whenever it comes."""
    channel.consume(queue, "arrivals", no_ack=True)
    message = channel.delivery()
    channel.cancel("arrivals")
    return message


def test_a_rejected_message_tells_its_story(channel: PeerChannel) -> None:
    dead = channel.declare(exclusive=True)
    queue = dead_lettering(channel, dead)
    properties = Basic.Properties(
        headers={"n": 5, "x-death": "of a publisher", "x-first-death-queue": "lie"},
        message_id="id",
        expiration="3600000",
        delivery_mode=2,
        priority=3,
    )
    channel.publish(b"body", queue, properties=properties)
    channel.reject(channel.take(queue).tag, requeue=False)
    message = channel.take(dead)
    assert message.body == b"body"
    assert isinstance(message.method, Basic.GetOk)
    assert (message.method.exchange, message.method.routing_key) == ("", dead)
    assert not message.redelivered
    assert message.properties.message_id == "id"
    assert message.properties.expiration is None
    assert (message.properties.delivery_mode, message.properties.priority) == (2, 3)
    headers = headers_of(message)
    death = headers.pop("x-death")
    assert isinstance(death, list)
    time = death[0].pop("time")
    assert abs(datetime.now(tz=UTC) - time) < timedelta(seconds=60)
    assert death == [
        {
            "original-expiration": "3600000",
            "count": 1,
            "reason": "rejected",
            "queue": queue,
            "exchange": "",
            "routing-keys": [queue],
        }
    ]
    assert headers == {
        "n": 5,
        "x-first-death-reason": "rejected",
        "x-first-death-queue": queue,
        "x-first-death-exchange": "",
        "x-last-death-reason": "rejected",
        "x-last-death-queue": queue,
        "x-last-death-exchange": "",
    }


def test_deaths_add_up_and_the_latest_is_the_first(channel: PeerChannel) -> None:
    dead = channel.declare(exclusive=True)
    second = dead_lettering(channel, dead)
    first = dead_lettering(channel, second, max_length=0)
    channel.publish(b"x", first)
    channel.reject(channel.take(second).tag, requeue=False)
    headers = headers_of(channel.take(dead))
    deaths = headers["x-death"]
    assert isinstance(deaths, list)
    death_rows = [
        (death["queue"], death["reason"], death["count"], death["routing-keys"]) for death in deaths
    ]
    assert death_rows == [(second, "rejected", 1, [second]), (first, "maxlen", 1, [first])]
    assert (headers["x-first-death-queue"], headers["x-last-death-queue"]) == (first, second)


def test_a_circle_with_a_rejection_goes_on_and_counts(channel: PeerChannel, name: str) -> None:
    other = channel.declare(
        exclusive=True,
        arguments={
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": f"{name}.work",
            "x-message-ttl": 1,
        },
    )
    work = channel.declare(
        f"{name}.work",
        exclusive=True,
        arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": other},
    )
    channel.publish(b"x", work)
    channel.consume(work, "worker")
    for turn in range(3):
        message = channel.delivery()
        if turn:
            deaths = headers_of(message)["x-death"]
            assert isinstance(deaths, list)
            assert [(death["queue"], death["reason"], death["count"]) for death in deaths] == [
                (other, "expired", turn),
                (work, "rejected", turn),
            ]
        channel.reject(message.tag, requeue=False)


def test_a_circle_without_a_rejection_ends(channel: PeerChannel, name: str) -> None:
    queue = channel.declare(
        name,
        exclusive=True,
        arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": name, "x-max-length": 0},
    )
    channel.publish(b"x", queue)
    channel.round_trip()
    assert channel.get(queue) is None


def test_an_expired_message_arrives(channel: PeerChannel) -> None:
    dead = channel.declare(exclusive=True)
    queue = dead_lettering(channel, dead, message_ttl=20)
    channel.publish(b"x", queue)
    headers = headers_of(arrived(channel, dead))
    assert headers["x-last-death-reason"] == "expired"
    deaths = headers["x-death"]
    assert isinstance(deaths, list)
    assert "original-expiration" not in deaths[0]
    assert channel.counts(queue) == (0, 0)


def test_messages_expire_behind_messages_with_a_longer_ttl(channel: PeerChannel) -> None:
    dead = channel.declare(exclusive=True)
    queue = dead_lettering(channel, dead)
    for body, expiration in ((b"long", "3600000"), (b"40", "40"), (b"20", "20"), (b"never", None)):
        channel.publish(body, queue, properties=Basic.Properties(expiration=expiration))
    channel.consume(dead, no_ack=True)
    assert [message.body for message in channel.deliveries(2)] == [b"20", b"40"]
    assert channel.counts(queue) == (2, 0)


def test_further_routing_keys_are_told_and_used_unless_the_queue_has_a_key(
    channel: PeerChannel, name: str
) -> None:
    main, copy, blind, dead = (f"{name}.{part}" for part in ("main", "copy", "blind", "dead"))
    arguments: FieldTable = {"x-dead-letter-exchange": "amq.direct", "x-max-length": 0}
    channel.declare(main, exclusive=True, arguments=arguments)
    channel.declare(dead, exclusive=True)
    for key in (copy, blind):
        channel.call(Queue.Bind(queue=dead, exchange="amq.direct", routing_key=key), Queue.BindOk)
    headers: FieldTable = {"CC": [copy], "BCC": [blind]}
    channel.publish(b"x", main, properties=Basic.Properties(headers=headers))
    message = channel.take(dead)
    found = headers_of(message)
    deaths = found["x-death"]
    assert isinstance(deaths, list)
    assert deaths[0]["routing-keys"] == [main, copy], "nobody learns of BCC"
    assert found["CC"] == [copy]
    keyed = dead_lettering(channel, dead, max_length=0)
    channel.publish(b"y", keyed, properties=Basic.Properties(headers={"CC": ["nowhere"]}))
    found = headers_of(channel.take(dead))
    assert "CC" not in found
    deaths = found["x-death"]
    assert isinstance(deaths, list)
    assert deaths[0]["routing-keys"] == [keyed, "nowhere"]


def test_a_missing_dead_letter_exchange_is_no_error(channel: PeerChannel) -> None:
    queue = channel.declare(
        exclusive=True, arguments={"x-dead-letter-exchange": "not there", "x-max-length": 0}
    )
    channel.confirm_select()
    channel.publish(b"x", queue)
    channel.expect_confirms(1)


def test_reject_publish_dlx_nacks_and_dead_letters(channel: PeerChannel) -> None:
    dead = channel.declare(exclusive=True)
    queue = dead_lettering(channel, dead, max_length=1, overflow="reject-publish-dlx")
    channel.confirm_select()
    channel.publish(b"kept", queue)
    channel.expect_confirms(1)
    channel.publish(b"refused", queue)
    assert channel.expect(Basic.Nack).delivery_tag == 2
    message = channel.take(dead)
    assert message.body == b"refused"
    assert headers_of(message)["x-last-death-reason"] == "maxlen"
    assert channel.take(queue).body == b"kept"


def test_messages_rejected_in_a_transaction_are_dead_lettered_at_the_commit(channel: PeerChannel) -> None:
    dead = channel.declare(exclusive=True)
    queue = dead_lettering(channel, dead)
    for body in (b"1", b"2", b"3"):
        channel.publish(body, queue)
    channel.call(Tx.Select(), Tx.SelectOk)
    first = channel.take(queue).tag
    channel.reject(first, requeue=False)
    channel.call(Tx.Rollback(), Tx.RollbackOk)
    assert channel.counts(dead) == (0, 0)
    channel.nack(channel.take(queue).tag, multiple=True, requeue=False)
    channel.publish(b"4", dead)
    assert channel.counts(dead) == (0, 0)
    channel.call(Tx.Commit(), Tx.CommitOk)
    assert (channel.counts(queue), channel.counts(dead)) == ((1, 0), (3, 0))
    published, *letters = [channel.take(dead) for _ in range(3)]
    assert published.body == b"4"
    assert [letter.body for letter in letters] == [b"1", b"2"]
    for letter in letters:
        death = headers_of(letter)["x-death"]
        assert isinstance(death, list)
        assert [(d["queue"], d["reason"], d["count"]) for d in death] == [(queue, "rejected", 1)]


@pytest.mark.parametrize("body", [b"bad", b"large " * 600_000], ids=["small", "large"])
def test_messages_rejected_in_a_transaction_are_dead_letters_after_a_crash(
    start_daemon: DaemonStarter, connect: Connector, body: bytes
) -> None:
    persistent = Basic.Properties(delivery_mode=2)
    daemon = start_daemon()
    channel = connect(daemon.address).channel()
    arguments: FieldTable = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    channel.declare("work", durable=True, arguments=arguments)
    channel.declare("dead", durable=True)
    channel.call(Tx.Select(), Tx.SelectOk)
    channel.publish(body, "work", properties=persistent)
    channel.call(Tx.Commit(), Tx.CommitOk)
    channel.reject(channel.take("work").tag, requeue=False)
    channel.publish(b"report", "dead", properties=persistent)
    channel.call(Tx.Commit(), Tx.CommitOk)
    daemon.kill()
    channel.peer.drop()
    channel = connect(start_daemon().address).channel()
    assert channel.counts("work") == (0, 0)
    report, letter = channel.take("dead"), channel.take("dead")
    assert report.body == b"report"
    assert letter.body == body
    assert headers_of(letter)["x-first-death-queue"] == "work"
