"""pika's consumers with selectors, and its browsers. Unmodified."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.interop.pika_connection import Dial
from tests.support.daemon.daemon import PATIENCE_S

pytestmark = pytest.mark.amqpd_only("RabbitMQ's queues have neither selectors nor browsers")

SELECTOR = "x-filter-jms-selector"


@pytest.fixture
def channel(pika_dial: Dial, name: str) -> Iterator[BlockingChannel]:
    """A channel with confirms, and the queue `name`."""
    channel = pika_dial().channel()
    channel.confirm_delivery()
    channel.queue_declare(name)
    yield channel
    pika_dial().channel().queue_delete(name)


def publish(channel: BlockingChannel, queue: str, *numbers: int) -> None:
    """Messages with their number as body and header, sent so many seconds after 1,000,000."""
    for number in numbers:
        properties = pika.BasicProperties(
            headers={"n": number, "kind": "even" if number % 2 == 0 else "odd"}, timestamp=1_000_000 + number
        )
        channel.basic_publish("", queue, b"%d" % number, properties)


class Listener:
    """A consumer on a connection of its own, and its received numbers; a callback for pika."""

    def __init__(self, pika_dial: Dial, queue: str, **arguments: object) -> None:
        self.channel = pika_dial().channel()
        self.received: list[int] = []
        self.cancelled: list[str] = []
        self.channel.basic_qos(prefetch_count=1)
        self.channel.add_on_cancel_callback(lambda frame: self.cancelled.append(frame.method.consumer_tag))
        named = {"x-" + name.replace("_", "-"): value for name, value in arguments.items()}
        self.tag = self.channel.basic_consume(queue, self, arguments=named)

    def __call__(self, channel: BlockingChannel, method: Any, properties: Any, body: bytes) -> None:
        self.received.append(int(body))
        channel.basic_ack(method.delivery_tag)

    def listen(self, count: int) -> list[int]:
        """Return the received numbers: at least `count`, and further messages that come soon after."""
        connection = self.channel.connection
        while len(self.received) < count:
            before = len(self.received)
            connection.process_data_events(time_limit=PATIENCE_S)
            assert len(self.received) > before, f"nothing more came after {self.received}"
        before = -1
        while before < len(self.received):
            before = len(self.received)
            connection.process_data_events(time_limit=0.3)
        return self.received


def select(selector: str) -> dict[str, str]:
    return {"filter_jms_selector": selector}


def test_each_consumer_gets_the_messages_that_its_selector_matches(
    pika_dial: Dial, channel: BlockingChannel, name: str
) -> None:
    publish(channel, name, *range(1, 9))
    assert Listener(pika_dial, name, **select("kind = 'even' AND n > 2")).listen(3) == [4, 6, 8]
    assert Listener(pika_dial, name, **select(" ")).listen(5) == [1, 2, 3, 5, 7]


def test_messages_go_to_consumers_with_a_matching_selector(
    pika_dial: Dial, channel: BlockingChannel, name: str
) -> None:
    even, odd = [Listener(pika_dial, name, **select(f"kind = '{kind}'")) for kind in ("even", "odd")]
    publish(channel, name, *range(20))
    assert (even.listen(10), odd.listen(10)) == (list(range(0, 20, 2)), list(range(1, 20, 2)))


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({SELECTOR: "n = = 1"}, "position 5: expected a value or a condition, found '='"),
        ({SELECTOR: 5}, "'5' of type 'signedint' is not a string"),
        ({"x-browse": "sometimes"}, "is neither a boolean nor 'snapshot'"),
        ({"x-browse": True, "x-browse-from": "middle"}, "is not one of first, last, next, a number"),
        ({"x-browse": True, "x-browse-from": -1}, "is not one of first, last, next, a number"),
        ({"x-browse-from": "last"}, "needs x-browse"),
        ({"x-browse": "snapshot", "x-browse-from": "next"}, "leaves nothing to see"),
    ],
)
def test_arguments_that_cannot_be(
    channel: BlockingChannel, name: str, arguments: dict[str, object], why: str
) -> None:
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
        channel.basic_consume(name, lambda *_: None, arguments=arguments)
    assert refused.value.reply_code == 406
    assert why in refused.value.reply_text
    assert f"for queue '{name}' in vhost" in refused.value.reply_text


@pytest.mark.parametrize(
    ("beginning", "seen"),
    [
        ("first", [1, 2, 3, 4, 5]),
        ("last", [5]),
        (0, [1, 2, 3, 4, 5]),
        (3, [4, 5]),
        (9, []),
        (datetime.fromtimestamp(1_000_003, UTC), [3, 4, 5]),
        (datetime.fromtimestamp(2_000_000, UTC), []),
    ],
)
def test_where_a_browser_begins(
    pika_dial: Dial, channel: BlockingChannel, name: str, beginning: object, seen: list[int]
) -> None:
    publish(channel, name, *range(1, 6))
    browser = Listener(pika_dial, name, browse="snapshot", browse_from=beginning)
    assert browser.listen(len(seen)) == seen
    assert channel.queue_declare(name, passive=True).method.message_count == 5


def test_a_browser_gets_later_messages(pika_dial: Dial, channel: BlockingChannel, name: str) -> None:
    publish(channel, name, 1, 2)
    first, last, following = [
        Listener(pika_dial, name, browse="true", browse_from=beginning)
        for beginning in ("first", "last", "next")
    ]
    publish(channel, name, 3, 4)
    assert (first.listen(4), last.listen(3), following.listen(2)) == ([1, 2, 3, 4], [2, 3, 4], [3, 4])
    assert not first.cancelled


def test_a_snapshot_browser_is_cancelled_at_its_end(
    pika_dial: Dial, channel: BlockingChannel, name: str
) -> None:
    publish(channel, name, *range(1, 7))
    browser = Listener(pika_dial, name, browse="snapshot", **select("kind = 'odd'"))
    publish(channel, name, 7, 9)
    assert browser.listen(3) == [1, 3, 5]
    if not browser.cancelled:
        browser.channel.connection.process_data_events(time_limit=PATIENCE_S)
    assert browser.cancelled == [browser.tag]
    assert channel.queue_declare(name, passive=True).method.consumer_count == 0
    got = channel.basic_get(name, auto_ack=True)
    assert (got[0].redelivered, got[2]) == (False, b"1"), "as if nobody had looked"


def test_more_consumers_than_selectors_are_allowed_with_an_index(pika_dial: Dial, name: str) -> None:
    """Each consumer waits for the answer with its correlation id, and a further one for the rest."""
    queue = f"{name}-indexed"
    channel = pika_dial().channel()
    channel.queue_declare(queue, arguments={"x-index": "correlation_id,kind"})
    waiting = pika_dial().channel()
    found: dict[str, list[str]] = {}
    for number in range(100):
        asked = f"id-{number}"
        found[asked] = []

        def on_message(
            _: Any, __: Any, properties: pika.BasicProperties, ___: bytes, into: list[str] = found[asked]
        ) -> None:
            into.append(str(properties.correlation_id))

        arguments = {SELECTOR: f"correlation_id = '{asked}'"}
        waiting.basic_consume(queue, on_message, auto_ack=True, arguments=arguments)
    for number in reversed(range(200)):
        channel.basic_publish("", queue, b"", pika.BasicProperties(correlation_id=f"id-{number % 150}"))
    came = 0
    while came < 150:  # ids of 100 are waited for, and those of 50 twice
        waiting.connection.process_data_events(time_limit=PATIENCE_S)
        before, came = came, sum(map(len, found.values()))
        assert came > before, f"nothing more came after {came}"
    assert all(set(ids) == {asked} for asked, ids in found.items())
    assert channel.queue_declare(queue, passive=True).method.message_count == 50
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
        channel.queue_declare(queue, arguments={"x-index": "kind"})
    assert refused.value.reply_code == 406
    pika_dial().channel().queue_delete(queue)
