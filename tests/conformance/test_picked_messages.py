"""basic.consume of chosen messages: by id, by position, or so many that a selector selects."""

import pytest
from pamqp.commands import Basic

from tests.support.admin.api import Api
from tests.support.amqp091.peer import Connector, PeerChannel


def picked(channel: PeerChannel, queue: str, **arguments: object) -> list[bytes]:
    """The messages that a consumer gets before the broker cancels it; none of it is acknowledged."""
    asked = {"x-" + name.replace("_", "-"): value for name, value in arguments.items()}
    tag = channel.consume(queue, arguments=asked)  # type: ignore[arg-type]
    bodies: list[bytes] = []
    while True:
        frame = channel.peer.expect_any((Basic.Deliver, Basic.Cancel), channel.number)
        if isinstance(frame, Basic.Cancel):
            assert frame.consumer_tag == tag
            return bodies
        assert isinstance(frame, Basic.Deliver)
        bodies.append(channel.peer.expect_content(frame, channel.number).body)


def refusal(channel: PeerChannel, queue: str, **arguments: object) -> str:
    """Why such a consumer is refused with 406; the channel is closed then."""
    asked = {"x-" + name.replace("_", "-"): value for name, value in arguments.items()}
    return channel.refused(Basic.Consume(queue=queue, arguments=asked), 406)  # type: ignore[arg-type]


def fill(channel: PeerChannel, count: int = 6) -> str:
    """A queue of numbered messages with the header `odd`."""
    queue = channel.declare()
    for number in range(count):
        properties = Basic.Properties(headers={"odd": number % 2}, message_id=f"m{number}")
        channel.publish(b"%d" % number, queue, properties=properties)
    channel.round_trip()
    return queue


def test_the_third_message_is_delivered_and_the_consumer_cancelled(channel: PeerChannel) -> None:
    queue = fill(channel)
    channel.qos(1)
    assert picked(channel, queue, get_position=3) == [b"2"]
    assert picked(channel, queue, get_position=3) == [b"3"], "what somebody has is not counted"
    channel.nack(1)
    assert picked(channel, queue, get_position=3) == [b"2"]
    assert channel.counts(queue) == (4, 0)


def test_a_message_is_got_by_the_id_that_the_api_shows_or_by_its_own(channel: PeerChannel, api: Api) -> None:
    queue = fill(channel)
    ids = {each["payload"]: each["id"] for each in api.get("queues", "/", queue, "messages")["messages"]}
    assert picked(channel, queue, get_message_id=ids["4"], browse=True) == [b"4"]
    assert picked(channel, queue, get_message_id=ids["4"]) == [b"4"]
    assert picked(channel, queue, get_message_id="m1") == [b"1"]
    text = refusal(channel, queue, get_message_id=ids["4"])
    assert ids["4"] in text
    assert queue in text


def test_a_consumer_with_a_selector_and_a_count_ends_after_that_many_matches(
    channel: PeerChannel, connect: Connector
) -> None:
    queue = fill(channel, 9)
    channel.qos(1)
    other = connect().channel()
    asked = {"x-filter-jms-selector": "odd = 1", "x-get-count": 2}
    tag = channel.consume(queue, arguments=asked)  # type: ignore[arg-type]
    assert channel.delivery().body == b"1"
    channel.expect_silence()  # the window is full
    channel.ack(1)
    assert channel.delivery().body == b"3"
    assert channel.expect(Basic.Cancel).consumer_tag == tag
    assert picked(other, queue, filter_jms_selector="odd = 1", get_count=9) == [b"5", b"7"]
    assert "x-get-count '1'" in refusal(channel, queue, filter_jms_selector="odd = 1", get_count=1)
    assert picked(other, queue, get_count=2) == [b"0", b"2"]


def test_a_counted_consumer_that_waits_for_its_client_ends_when_nothing_is_left(
    channel: PeerChannel, connect: Connector
) -> None:
    queue = fill(channel, 2)
    channel.qos(1)
    tag = channel.consume(queue, arguments={"x-get-count": 5})
    assert channel.delivery().body == b"0"
    assert connect().channel().take(queue).body == b"1"
    channel.ack(1)
    assert channel.expect(Basic.Cancel).consumer_tag == tag
    assert channel.counts(queue) == (0, 0)


def test_a_deep_position_is_found_in_turns_and_what_is_behind_it_waits(channel: PeerChannel) -> None:
    queue = channel.declare()
    count = 12_000
    channel.peer.send(b"".join(channel.encode_publish(b"%d" % n, queue) for n in range(count)))
    channel.round_trip()
    command = Basic.Consume(queue=queue, arguments={"x-get-position": count})
    channel.write(command)
    channel.write(Basic.Get(queue=queue, no_ack=True))
    channel.expect(Basic.ConsumeOk)
    assert channel.delivery().body == b"%d" % (count - 1)
    channel.expect(Basic.Cancel)
    got = channel.peer.expect_content(channel.expect(Basic.GetOk), channel.number)
    assert got.body == b"0"
    assert "x-get-position" in refusal(channel, queue, get_position=count)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"x-get-position": 0}, "an integer, at least 1"),
        ({"x-get-count": "2"}, "an integer, at least 1"),
        ({"x-get-position": 1, "x-get-count": 2}, "does not go with"),
        ({"x-get-position": 1, "x-filter-jms-selector": "odd = 1"}, "does not go with"),
        ({"x-get-count": 1, "x-exclusive-consumer": True}, "does not go with"),
        ({"x-get-message-id": ""}, "x-get-message-id"),
    ],
)
def test_contradicting_arguments_are_refused(
    channel: PeerChannel, arguments: dict[str, object], why: str
) -> None:
    queue = fill(channel)
    assert why in channel.refused(Basic.Consume(queue=queue, arguments=arguments), 406)  # type: ignore[arg-type]


def test_strict_order_gives_nothing_out_past_its_first_message(
    channel: PeerChannel, connect: Connector
) -> None:
    queue = channel.declare(arguments={"x-strict-order": True})
    for number in range(3):
        channel.publish(b"%d" % number, queue)
    assert picked(channel, queue, get_position=1) == [b"0"]
    assert "no such message is ready" in refusal(connect().channel(), queue, get_position=2)
