"""AMQP 1.0: a message that is undeliverable at every consumer is dead-lettered. [amqp-1.0 3.4.5]"""

from collections.abc import Callable, Iterator

import pytest
from pamqp.commands import Channel, Queue
from pamqp.common import FieldTable, FieldValue

from broker.core.queues.queue import FILTERS_MAX
from protocol.amqp10.annotations import decode_map
from protocol.amqp10.composites import Modified, Source
from protocol.amqp10.decoding import decode
from protocol.amqp10.performatives import Disposition, Transfer
from protocol.amqp10.sections import scan_preamble
from protocol.amqp10.types import Described, Symbol
from tests.support.admin.api import Api
from tests.support.amqp091.peer import Connector, PeerChannel
from tests.support.amqp10.contents import bare10, history_in
from tests.support.amqp10.controller import Controller, within
from tests.support.amqp10.peer_session import PeerSession10

pytestmark = [
    pytest.mark.amqpd_only("RabbitMQ before version 4 has it in a plugin"),
    pytest.mark.spec("amqp-1.0", "3.4.5"),
]

LETTERS = 8  # the handle of the link that receives dead letters
AWAY = Modified(
    delivery_failed=True, undeliverable_here=True, message_annotations={Symbol("x-opt-why"): "bad"}
)


def declare(channel: PeerChannel, queue: str, **arguments: FieldValue) -> str:
    """Declare a queue whose dead letters go to another queue, named after it."""
    letters: FieldTable = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{queue}.dead"}
    letters.update(arguments)
    channel.declare(f"{queue}.dead")
    channel.declare(queue, arguments=letters)
    return queue


@pytest.fixture
def source(connect: Connector, channel: PeerChannel, name: str) -> Iterator[str]:
    """A queue with dead letters."""
    yield declare(channel, name)
    deleting = connect().channel()
    for queue in (name, f"{name}.dead"):
        deleting.call(Queue.Delete(queue=queue), Queue.DeleteOk)


def selecting(address: str, selector: str) -> Source:
    """A source with a selector."""
    described = Described(Symbol("apache.org:selector-filter:string"), selector)
    return Source(address=address, filter={Symbol("selector"): described})


def expect_letter(session: PeerSession10, queue: str, count: int = 1) -> None:
    """Expect `count` dead letters with reason and annotations, and an empty queue."""
    session.receives(f"/queues/{queue}.dead", LETTERS, count)
    for _ in range(count):
        letter = session.delivery(LETTERS)
        (death,) = history_in(letter.payload)
        assert (death.queue, death.reason) == (queue, "rejected")
        layout = scan_preamble(letter.payload)
        keys, values = decode_map(letter.payload[layout.annotations : layout.annotations_end])
        assert decode(dict(zip(keys, values, strict=True))[b"x-opt-why"])[0] == "bad"
        session.settle(letter.id)
    session.detach(LETTERS)


@pytest.mark.parametrize("count", [1, 350])
def test_a_message_undeliverable_at_the_only_consumer_is_dead_lettered(
    session: PeerSession10, channel: PeerChannel, source: str, count: int
) -> None:
    session.sends(source, 0)
    session.publish(0, count)
    session.receives(source, 1, count)
    taken = [session.delivery(1) for _ in range(count)]
    session.settle(taken[0].id, taken[-1].id, AWAY)
    expect_letter(session, source, count)
    assert channel.counts(source) == (0, 1)


def test_an_undeliverable_message_goes_to_a_consumer_of_either_protocol(
    session: PeerSession10, channel: PeerChannel, source: str
) -> None:
    session.sends(source, 0)
    session.publish(0, 1)
    session.receives(source, 1, 1)
    first = session.delivery(1)
    channel.consume(source)
    session.settle(first.id, state=AWAY)
    assert channel.delivery().redelivered
    assert channel.counts(f"{source}.dead") == (0, 0)
    channel.peer.drop()


@pytest.mark.parametrize("matches", [True, False])
def test_an_undeliverable_message_that_matches_no_other_filter_is_dead_lettered(
    session: PeerSession10, source: str, matches: bool
) -> None:
    session.sends(source, 0)
    session.publish(0, 1, bare10({"n": 1}))
    session.receives(source, 1, 1)
    first = session.delivery(1)
    session.receives(None, 2, 1, source=selecting(source, "n = 1" if matches else "n = 2"))
    session.settle(first.id, state=AWAY)
    if matches:
        session.settle(session.delivery(2).id)
    else:
        expect_letter(session, source)


def test_a_message_undeliverable_at_all_consumers_is_dead_lettered(
    session: PeerSession10, source: str
) -> None:
    session.sends(source, 0)
    session.publish(0, 1)
    for handle in (1, 2, 3):
        session.receives(source, handle)
    for handle in (1, 2, 3):
        session.allow(handle, 1)
        session.settle(session.delivery(handle).id, state=AWAY)
    expect_letter(session, source)


def test_an_undeliverable_message_stays_if_rejected_messages_are_not_dead_lettered(
    session: PeerSession10, channel: PeerChannel, name: str
) -> None:
    queue = declare(channel, name, **{"x-dead-letter-reasons": "expired"})
    session.sends(queue, 0)
    session.publish(0, 1)
    session.receives(queue, 1, 2)
    session.settle(session.delivery(1).id, state=AWAY)
    session.expect_silence()
    assert channel.counts(queue) == (1, 1)
    session.receives(queue, 2, 1)
    session.settle(session.delivery(2).id)


@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("others", [True, False])
def test_a_transaction_sends_away_with_its_commit(
    session: PeerSession10, channel: PeerChannel, source: str, settled: bool, others: bool
) -> None:
    controller = Controller(session)
    session.sends(source, 0)
    session.publish(0, 1)
    session.receives(source, 1, 1)
    first = session.delivery(1)
    if others:
        session.receives(source, 2, 1)
    txn_id = controller.declare()
    session.settle(first.id, state=within(txn_id, AWAY), settled=settled)
    assert channel.counts(f"{source}.dead") == (0, 0)
    controller.commit(txn_id)
    if not settled:
        assert isinstance(session.expect(Disposition).state, Modified)
    if others:
        session.settle(session.delivery(2).id)
    else:
        expect_letter(session, source)


def test_a_rolled_back_transaction_leaves_the_message_deliverable_to_its_link(
    session: PeerSession10, channel: PeerChannel, source: str
) -> None:
    controller = Controller(session)
    session.sends(source, 0)
    session.publish(0, 1)
    session.receives(source, 1, 2)
    first = session.delivery(1)  # before any request, whose answer may come behind the delivery
    txn_id = controller.declare()
    session.settle(first.id, state=within(txn_id, AWAY))
    controller.roll_back(txn_id)
    again = session.delivery(1)
    layout = scan_preamble(again.payload)
    assert b"x-opt-why" not in decode_map(again.payload[layout.annotations : layout.annotations_end])[0]
    assert channel.counts(f"{source}.dead") == (0, 0)
    session.settle(again.id)


def leave_by_cancel(channel: PeerChannel, tag: str) -> None:
    """Cancel the consumer, and return its deliveries."""
    channel.cancel(tag)
    channel.recover_async()


def leave_with_channel(channel: PeerChannel, tag: str) -> None:
    """The consumer's channel is closed."""
    channel.close()


def leave_with_connection(channel: PeerChannel, tag: str) -> None:
    """The consumer's connection is lost."""
    channel.peer.drop()


@pytest.mark.parametrize("count", [1, 350])
@pytest.mark.parametrize("holding", [True, False])
@pytest.mark.parametrize(
    "leave", [leave_by_cancel, leave_with_channel, leave_with_connection], ids=lambda leave: leave.__name__
)
def test_an_undeliverable_message_is_dead_lettered_when_the_last_other_consumer_leaves(
    session: PeerSession10,
    connect: Connector,
    channel: PeerChannel,
    source: str,
    leave: Callable[[PeerChannel, str], None],
    holding: bool,
    count: int,
) -> None:
    other = connect().channel()
    if holding:  # all of it will be with the other one
        other.qos(count)
    else:  # this consumer's window is full, so that all messages are ready
        channel.publish(b"first", source)
        other.qos(1)
    tag = other.consume(source)
    if holding:
        other.call(Channel.Flow(active=False), Channel.FlowOk)
    else:
        other.delivery()
    session.sends(source, 0)
    session.publish(0, count)
    session.receives(source, 1, count)
    taken = [session.delivery(1) for _ in range(count)]
    session.settle(taken[0].id, taken[-1].id, AWAY)
    if holding:
        other.call(Channel.Flow(active=True), Channel.FlowOk)
        other.deliveries(count)
    assert channel.counts(f"{source}.dead") == (0, 0)
    leave(other, tag)
    expect_letter(session, source, count)


def test_a_consumer_of_amqp_1_0_may_be_the_last(session: PeerSession10, source: str) -> None:
    session.sends(source, 0)
    session.publish(0, 1, bare10({"n": 1}))
    for handle, selector in ((2, "n = 1"), (3, "n < 5"), (4, "n = 2")):
        session.receives(None, handle, 0, source=selecting(source, selector))
    session.receives(source, 1, 1)
    session.settle(session.delivery(1).id, state=AWAY)
    session.detach(2)
    session.receives(f"/queues/{source}.dead", LETTERS, 1)
    session.expect_silence()
    session.detach(LETTERS)
    session.detach(3)  # the one that is left does not see it
    expect_letter(session, source)


def test_an_undeliverable_message_stays_when_its_link_detaches_before_other_links(
    session: PeerSession10, channel: PeerChannel, source: str
) -> None:
    session.sends(source, 0)
    session.publish(0, 1)
    session.receives(source, 2)
    session.receives(source, 1, 1)
    session.settle(session.delivery(1).id, state=AWAY)
    session.detach(1)
    session.detach(2)
    channel.round_trip()
    assert channel.counts(f"{source}.dead") == (0, 0)
    assert channel.get(source) is not None


SINGLE_ACTIVE: FieldTable = {"x-single-active-consumer": True}
EXCLUSIVE = {Symbol("x-exclusive-consumer"): True}
SERVED_ALONE = pytest.mark.parametrize(
    ("arguments", "properties"),
    [(SINGLE_ACTIVE, None), ({}, EXCLUSIVE)],
    ids=["single active", "exclusive"],
)


@SERVED_ALONE
@pytest.mark.parametrize("others", [0, 1])
def test_a_single_active_consumer_stays_active(
    session: PeerSession10,
    channel: PeerChannel,
    api: Api,
    name: str,
    arguments: FieldTable,
    properties: dict[Symbol, object] | None,
    others: int,
) -> None:
    channel.declare(name, arguments=arguments)
    for handle in range(1, 2 + others):
        session.receives(name, handle, 100, properties=properties)
    session.sends(name, 0)
    session.transfer(0, bare10(), 0)
    session.transfer(0, bare10(), 1)
    first, _ = received(session, 1, 2)
    session.settle(first, state=AWAY)
    channel.round_trip()
    session.transfer(0, bare10(), 2)
    received(session, 1, 1)  # the link still has the second message
    consumers = api.get("queues", "/", name)["consumer_details"]
    shown = {consumer["consumer_tag"]: consumer["activity_status"] for consumer in consumers}
    assert shown.pop("receives 1") == "single_active"
    assert list(shown.values()) == ["waiting"] * others


def received(session: PeerSession10, handle: int, count: int) -> list[int]:
    """Return the numbers of the next deliveries, all of them to the same link, and skip other frames."""
    ids: list[int] = []
    while len(ids) < count:
        frame, _ = session.read()
        if isinstance(frame, Transfer):
            assert frame.handle == handle
            assert frame.delivery_id is not None
            ids.append(frame.delivery_id)
    return ids


def test_a_start_gate_stays_open(session: PeerSession10, channel: PeerChannel, name: str) -> None:
    channel.declare(name, arguments={"x-consumers-before-dispatch": 2})
    session.receives(name, 2)
    session.receives(name, 1, 100)
    session.detach(2)
    session.sends(name, 0)
    session.transfer(0, bare10(), 0)
    session.settle(received(session, 1, 1)[0], state=AWAY)
    channel.round_trip()
    session.transfer(0, bare10(), 1)
    received(session, 1, 1)


def test_the_first_in_strict_order_of_consumers_is_still_the_first(
    session: PeerSession10, channel: PeerChannel, name: str
) -> None:
    channel.declare(name, arguments={"x-dispatch": "strict"})
    session.receives(name, 1, 100)
    session.receives(name, 2, 100)
    session.sends(name, 0)
    session.transfer(0, bare10(), 0)
    session.settle(received(session, 1, 1)[0], state=AWAY)
    received(session, 2, 1)
    session.transfer(0, bare10(), 1)
    received(session, 1, 1)


def test_only_the_group_of_a_message_that_is_sent_away_moves(
    session: PeerSession10, channel: PeerChannel, name: str
) -> None:
    channel.declare(name, arguments={"x-group-key": "g"})
    session.receives(name, 1, 100)
    session.sends(name, 0)
    groups = [f"group {number}" for number in range(8)]
    for number, group in enumerate(["away", "away too", *groups]):
        session.transfer(0, bare10({"g": group}), number)
    first, second, *others = received(session, 1, 10)
    session.settle(others[0], others[-1])
    session.receives(name, 2, 100)
    for away in (first, second):  # the second time the link has a filter already
        session.settle(away, state=AWAY)
        received(session, 2, 1)
    for number, group in enumerate(groups, 10):
        session.transfer(0, bare10({"g": group}), number)
    received(session, 1, 8)


def test_more_links_than_a_queue_has_filters_may_send_messages_away(
    session: PeerSession10, channel: PeerChannel, name: str
) -> None:
    channel.declare(name)
    links = range(1, FILTERS_MAX + 3)
    for handle in links:
        session.receives(name, handle)
    session.sends(name, 0)
    for handle in links:
        session.transfer(0, bare10(), handle)
        session.allow(handle, 1)
        session.settle(received(session, handle, 1)[0], state=AWAY)
        channel.round_trip()
    assert channel.counts(name) == (len(links), len(links))


def test_an_undeliverable_message_stays_in_a_queue_without_dead_letters_when_other_links_detach(
    session: PeerSession10, channel: PeerChannel, name: str
) -> None:
    channel.declare(name)
    session.sends(name, 0)
    session.publish(0, 1)
    session.receives(name, 2)
    session.receives(name, 1, 1)
    session.settle(session.delivery(1).id, state=AWAY)
    session.detach(2)
    channel.round_trip()
    assert channel.get(name) is not None
