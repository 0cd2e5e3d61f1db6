"""The bench over AMQP 1.0: deliveries in any pieces, settlement, credit and windows."""

import asyncio
import struct
from collections.abc import Iterator
from typing import cast

import pytest

from broker.bench.amqp10 import ID_MASK, Client10, Consumer10, Sender10, Transfers
from broker.bench.plan import AMQP_10, Address, Plan
from broker.bench.publisher import Publisher
from broker.bench.traffic import Traffic
from protocol.amqp10.composing import decode_composite, encode_composite
from protocol.amqp10.composites import Accepted, Released
from protocol.amqp10.frames import frame
from protocol.amqp10.performatives import Attach, Close, Disposition, Transfer
from protocol.amqp10.performatives import Flow as FlowFrame
from protocol.amqp10.types import Composite
from protocol.amqp10.windows import OutgoingWindow
from tests.unit.bench.test_consumer import Socket, feed

ADDRESS = Address("localhost", 5672, "guest", "guest", "/")


def deliveries(
    ids: list[int], sequences: list[int], size: int, handle: int = 0, frame_max: int = 131072
) -> bytes:
    """Transfers as the broker sends them."""
    transfers = Transfers(handle, Plan(ADDRESS, size=size, count=1, persistent=True), "", frame_max)
    out = bytearray()
    for delivery_id, sequence in zip(ids, sequences, strict=True):
        one = transfers.template.batch(1, 0, sequence, 1, 1)
        transfers.number(one, delivery_id)
        out += one
    return bytes(out)


def consumer_of(plan: Plan, queues: int = 1) -> tuple[Consumer10, Traffic, Socket]:
    flow = Traffic(plan)
    consumer = Consumer10(plan, flow, [f"q{number}" for number in range(queues)])
    socket = Socket()
    consumer.connection_made(cast("asyncio.BaseTransport", socket))
    consumer._replenish()
    return consumer, flow, socket


def performatives(written: bytes) -> Iterator[tuple[Composite, bytes]]:
    """Yield all written performatives with their payloads."""
    while written:
        size = int.from_bytes(written[:4], "big")
        performative, behind = decode_composite(written[8:size])
        yield performative, written[8 + behind : size]
        written = written[size:]


def settled(written: bytes) -> list[tuple[int, int | None]]:
    """The ranges of deliveries that were accepted."""
    found = []
    for one, _ in performatives(written):
        if isinstance(one, Disposition):
            assert one.role
            assert one.settled
            assert isinstance(one.state, Accepted)
            found.append((one.first, one.last))
    return found


def credits_in(written: bytes) -> list[tuple[int | None, int | None, int | None]]:
    """Handle, delivery-count and credit of each flow."""
    return [
        (one.handle, one.delivery_count, one.link_credit)
        for one, _ in performatives(written)
        if isinstance(one, FlowFrame)
    ]


@pytest.mark.parametrize("size", [16, 17, 23, 24, 25, 1024])
@pytest.mark.parametrize("step", [1, 7, 100, 1000, 10**9])
def test_every_delivery_is_counted_checked_and_settled(size: int, step: int) -> None:
    consumer, flow, socket = consumer_of(Plan(ADDRESS, AMQP_10, size=size, count=20))

    feed(consumer, deliveries(list(range(20)), list(range(20)), size), step)

    assert consumer.failure is None
    assert (flow.received, flow.receipt.count, flow.checker.lost([20])) == (20, 20, 0)
    receipts = consumer.receipts
    assert (flow.checker.reordered, receipts.damaged, receipts.misnumbered) == (0, 0, 0)
    assert settled(socket.written) == [(n, n) for n in range(20)]


@pytest.mark.parametrize("handle", [0, 1])
@pytest.mark.parametrize("step", [97, 10**9])
def test_delivery_ids_in_the_fewest_octets(handle: int, step: int) -> None:
    """Delivery-id 0 has no octet, and ids up to 255 have a single octet, as with RabbitMQ 4."""
    consumer, flow, socket = consumer_of(Plan(ADDRESS, AMQP_10, size=24, count=300), queues=2)
    template = Transfers(0, Plan(ADDRESS, size=24, count=1), "", 131072).template
    stream = b""
    for number in range(300):
        ((_, message),) = performatives(bytes(template.batch(1, 0, number, 1, 1)))
        head = Transfer(handle=handle, delivery_id=number, delivery_tag=b"t", settled=False)
        stream += frame(0, encode_composite(head) + message)

    feed(consumer, stream, step)

    assert consumer.failure is None
    receipts = consumer.receipts
    assert (flow.received, receipts.misnumbered, receipts.damaged, flow.checker.lost([300])) == (300, 0, 0, 0)
    assert settled(socket.written) == [(n, n) for n in range(300)]


def test_a_broker_that_numbers_wildly_takes_no_memory() -> None:
    consumer, _, socket = consumer_of(Plan(ADDRESS, AMQP_10, size=24, count=3))

    feed(consumer, deliveries([0, ID_MASK - 1, ID_MASK], [0, 1, 2], 24), 10**9)

    assert consumer.receipts.misnumbered == 1
    assert settled(socket.written) == [(0, ID_MASK)]


@pytest.mark.parametrize("step", [997, 10**9])
def test_deliveries_in_several_transfers(step: int) -> None:
    consumer, flow, _ = consumer_of(Plan(ADDRESS, AMQP_10, size=3000, count=3))

    feed(consumer, deliveries([0, 1, 2], [0, 1, 2], 3000, frame_max=512), step)

    assert (flow.received, flow.checker.lost([3]), consumer.receipts.damaged) == (3, 0, 0)


def test_settles_in_ranges_and_the_rest_at_the_end() -> None:
    consumer, _, socket = consumer_of(Plan(ADDRESS, AMQP_10, size=16, count=10, ack_every=4))

    feed(consumer, deliveries(list(range(10)), list(range(10)), 16), 10**9)
    assert settled(socket.written) == [(0, 3), (4, 7)]

    consumer.finish()
    assert settled(socket.written)[2:] == [(8, 9)]


def test_delivery_ids_wrap() -> None:
    consumer, flow, socket = consumer_of(Plan(ADDRESS, AMQP_10, size=16, count=4))
    consumer.receipts.following = consumer._settled = ID_MASK - 1

    feed(consumer, deliveries([ID_MASK - 1, ID_MASK, 0, 1], [0, 1, 2, 3], 16), 10**9)

    assert (flow.checker.lost([4]), consumer.receipts.misnumbered) == (0, 0)
    assert settled(socket.written) == [(n, n) for n in (ID_MASK - 1, ID_MASK, 0, 1)]


def test_credit_is_renewed_as_deliveries_are_settled_and_never_more_than_the_prefetch() -> None:
    consumer, _, socket = consumer_of(Plan(ADDRESS, AMQP_10, size=16, count=100, prefetch=10, ack_every=4))

    for first in range(0, 9, 3):
        ids = list(range(first, first + 3))
        feed(consumer, deliveries(ids, ids, 16), 10**9)

    # four of six are settled, and eight of nine: unsettled and allowed deliveries together are ten
    assert credits_in(socket.written) == [(0, 0, 10), (0, 6, 8), (0, 9, 9)]


def test_each_link_has_its_own_credit() -> None:
    consumer, flow, socket = consumer_of(
        Plan(ADDRESS, AMQP_10, size=64, count=100, prefetch=2, auto_ack=True), queues=3
    )

    feed(consumer, deliveries([0], [0], 64, handle=2) + deliveries([1, 2], [1, 2], 64, handle=1), 10**9)

    assert flow.received == 3
    assert credits_in(socket.written)[3:] == [(1, 2, 2), (2, 1, 2)]
    assert settled(socket.written) == []


@pytest.mark.parametrize(
    ("sequences", "lost", "duplicates", "reordered"),
    [([0, 1, 2, 4], 1, 0, 0), ([0, 1, 2, 2, 3, 4], 0, 1, 0), ([0, 1, 3, 2, 4], 0, 0, 1)],
)
@pytest.mark.parametrize("step", [1, 10**9])
def test_errors_are_detected(
    sequences: list[int], lost: int, duplicates: int, reordered: int, step: int
) -> None:
    consumer, flow, _ = consumer_of(Plan(ADDRESS, AMQP_10, size=64, count=5))

    feed(consumer, deliveries(list(range(len(sequences))), sequences, 64), step)

    checker = flow.checker
    assert (checker.lost([5]), checker.duplicates, checker.reordered) == (lost, duplicates, reordered)


def test_a_gap_in_the_delivery_ids_is_seen() -> None:
    consumer, _, _ = consumer_of(Plan(ADDRESS, AMQP_10, size=64, count=5))

    feed(consumer, deliveries([0, 1, 3, 4], [0, 1, 2, 3], 64), 10**9)

    assert consumer.receipts.misnumbered == 1


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("place", [-1, -8])
def test_a_body_that_is_not_what_was_published_is_damaged(which: int, place: int) -> None:
    consumer, flow, _ = consumer_of(Plan(ADDRESS, AMQP_10, size=64, count=3))
    ones = [bytearray(deliveries([n], [n], 64)) for n in range(3)]
    ones[which][place] ^= 1

    feed(consumer, b"".join(ones), 10**9)

    assert (consumer.receipts.damaged, flow.checker.lost([3]), flow.received) == (1, 1, 3)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x00\x00\x00\x10\x01\x00\x00\x00" + bytes(8), "body at 4"),
        (frame(0, b"\x00\x53\x14\xc0\x01\x00" + bytes(20)), "malformed"),
        (frame(0, encode_composite(Close())), "Close"),
        (deliveries([0], [0], 64, handle=7), "link 7"),
    ],
)
def test_malformed_input_ends_the_run_with_a_reason(data: bytes, reason: str) -> None:
    consumer, flow, socket = consumer_of(Plan(ADDRESS, AMQP_10, size=64, count=3))

    feed(consumer, data, 10**9)

    assert reason in str(consumer.failure)
    assert flow.settled.is_set()
    assert socket.closed


class Scripted(Sender10):
    """Attaches without an answer."""

    async def attach(self, attach: Attach) -> None:
        self.attached = attach


def publisher_of(plan: Plan, window: int) -> tuple[Publisher, Scripted, Socket]:
    flow = Traffic(plan)
    sender = Scripted(plan, flow, [(0, "q")], "topics" if plan.bindings else "")
    publisher = Publisher(plan, flow, [0], sender)
    socket = Socket()
    sender.connection_made(cast("asyncio.BaseTransport", socket))
    sender.frame_max = 512
    sender.window = OutgoingWindow(window)
    asyncio.run(sender.prepare())
    return publisher, sender, socket


def say(client: Client10, performative: Composite) -> None:
    feed(client, frame(0, encode_composite(performative)), 10**9)


def allow(sender: Sender10, window: int, credit: int) -> None:
    frame = FlowFrame(
        next_incoming_id=0,
        incoming_window=window,
        next_outgoing_id=0,
        outgoing_window=1,
        handle=0,
        delivery_count=0,
        link_credit=credit,
    )
    say(sender, frame)


@pytest.mark.parametrize(("window", "credit", "room"), [(10, 3, 3), (10, 100, 5), (10, 0, 0), (1, 100, 0)])
async def test_no_more_is_sent_than_credit_and_window_allow(window: int, credit: int, room: int) -> None:
    """A message of two frames takes two of the window."""
    plan = Plan(ADDRESS, AMQP_10, size=600, count=50, confirm=100)
    publisher, sender, socket = await asyncio.to_thread(publisher_of, plan, 100)
    allow(sender, window, credit)

    publisher.start()
    for _ in range(2):
        publisher.pump()

    sent = [one for one, _ in performatives(socket.written) if isinstance(one, Transfer)]
    assert [one.delivery_id for one in sent] == [n // 2 for n in range(2 * room)]
    assert [one.more for one in sent] == [True, False] * room
    assert [one.delivery_tag for one in sent] == [(n // 2).to_bytes(4, "big") for n in range(2 * room)]
    assert publisher.confirms.outstanding == room


async def test_nothing_is_sent_before_all_links_are_attached() -> None:
    plan = Plan(ADDRESS, AMQP_10, size=16, count=50, confirm=100)
    publisher, sender, socket = await asyncio.to_thread(publisher_of, plan, 100)
    allow(sender, 100, 100)
    await asyncio.sleep(0)
    publisher.pump()
    assert socket.written == b""
    publisher.start()
    assert socket.written != b""


async def test_outcomes_are_confirms() -> None:
    plan = Plan(ADDRESS, AMQP_10, size=16, count=50, confirm=100)
    publisher, sender, _ = await asyncio.to_thread(publisher_of, plan, 100)
    allow(sender, 100, 100)
    publisher.start()

    say(sender, Disposition(role=True, first=0, last=9, settled=True, state=Accepted()))
    say(sender, Disposition(role=True, first=20, last=21, settled=True, state=Released()))
    say(sender, Disposition(role=True, first=10, settled=True, state=Accepted()))
    assert (publisher.confirms.settled, publisher.confirms.nacked, publisher.confirms.wrong) == (13, 2, 0)

    say(sender, Disposition(role=True, first=20, settled=True, state=Accepted()))
    assert publisher.confirms.wrong == 1


@pytest.mark.parametrize(("confirm", "mode"), [(0, 1), (10, 0)])
def test_without_confirms_deliveries_are_settled_as_they_are_sent(confirm: int, mode: int) -> None:
    _, sender, socket = publisher_of(Plan(ADDRESS, AMQP_10, count=1, size=16, confirm=confirm), 100)

    sender.send(0, 1, 0, 1)

    (transfer,) = [one for one, _ in performatives(socket.written) if isinstance(one, Transfer)]
    assert transfer.settled is (confirm == 0)
    assert sender.attached.snd_settle_mode == mode


@pytest.mark.parametrize(("keys", "different"), [(1, 0), (7, 7), (0, 20)])
def test_messages_say_where_they_go_if_they_have_several_keys(keys: int, different: int) -> None:
    plan = Plan(ADDRESS, AMQP_10, size=16, count=20, bindings=5, keys=keys)
    _, sender, socket = publisher_of(plan, 100)

    sender.send(0, 20, 0, 1)

    found = set()
    for one, payload in performatives(socket.written):
        assert isinstance(one, Transfer)
        assert struct.unpack_from(">Q", payload, len(payload) - 16)[0] < 20
        if payload[2] == 0x73:
            found.add(decode_composite(payload)[0].to)  # type: ignore[attr-defined]
    assert found == {f"/exchanges/topics/q.eu.{number:09d}" for number in range(different)}
