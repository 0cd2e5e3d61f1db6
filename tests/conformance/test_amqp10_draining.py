"""AMQP 1.0: receivers that have their credit used up. [amqp-1.0 2.6.7]"""

from collections.abc import Iterator

import pytest
from pamqp.commands import Queue

from protocol.amqp10.composites import Source, Target
from protocol.amqp10.performatives import Attach, Begin, Flow, Transfer
from tests.support.amqp091.peer import PeerChannel
from tests.support.amqp10.peer import Meet, Peer10

pytestmark = [
    pytest.mark.amqpd_only("RabbitMQ before version 4 has it in a plugin"),
    pytest.mark.spec("amqp-1.0", "2.6.7"),
]

FRAME_MAX = 4096


class Receiver:
    """A receiver whose every flow a test requests."""

    def __init__(self, peer: Peer10, queue: str) -> None:
        self.peer = peer
        peer.write(Begin(next_outgoing_id=0, incoming_window=1000, outgoing_window=1000))
        peer.expect(Begin)
        attach = Attach(name="in", handle=0, role=True, source=Source(address=f"/queues/{queue}"))
        attach.target = Target()
        peer.write(attach)
        peer.expect(Attach)

    def flow(
        self, count: int, credit: int, window: int = 1000, received: int = 0, drain: bool = True
    ) -> None:
        """Allow `credit` deliveries after the first `count` ones, and `window` transfers after `received`."""
        self.peer.write(
            Flow(
                next_incoming_id=received,
                incoming_window=window,
                next_outgoing_id=0,
                outgoing_window=1000,
                handle=0,
                delivery_count=count,
                link_credit=credit,
                drain=drain,
            )
        )

    def expect_transfers(self, count: int) -> list[Transfer]:
        """So many transfers, and no other frame between them."""
        return [self.peer.expect(Transfer) for _ in range(count)]

    def expect_drained(self, count: int) -> None:
        """The broker says that the credit is used up; it has counted `count` deliveries."""
        flow = self.peer.expect(Flow)
        assert (flow.handle, flow.delivery_count, flow.link_credit, flow.drain) == (0, count, 0, True)

    def expect_silence(self) -> None:
        """Check that nothing arrives before the answer to an echo flow."""
        self.peer.write(
            Flow(next_incoming_id=0, incoming_window=1000, next_outgoing_id=0, outgoing_window=0, echo=True)
        )
        assert self.peer.expect(Flow).handle is None


@pytest.fixture
def queue(channel: PeerChannel, name: str) -> Iterator[str]:
    """A queue."""
    channel.declare(name, durable=True)
    yield name
    channel.call(Queue.Delete(queue=name), Queue.DeleteOk)


def receiver_of(meet: Meet, queue: str) -> Receiver:
    """A receiver on a connection of its own."""
    peer = meet()
    peer.open(max_frame_size=FRAME_MAX)
    return Receiver(peer, queue)


def fill(channel: PeerChannel, queue: str, bodies: list[bytes]) -> None:
    """Publish messages, and see them in the queue."""
    channel.confirm_select()
    for body in bodies:
        channel.publish(body, queue)
    channel.expect_confirms(len(bodies))


def test_a_drain_of_an_empty_queue_uses_up_the_credit(meet: Meet, queue: str) -> None:
    receiver = receiver_of(meet, queue)
    receiver.flow(0, 10)
    receiver.expect_drained(10)
    receiver.expect_silence()


@pytest.mark.parametrize("credit", [2, 3, 4])
def test_the_end_is_said_once_after_the_last_delivery(
    meet: Meet, channel: PeerChannel, queue: str, credit: int
) -> None:
    fill(channel, queue, [b"1", b"2", b"3"])
    receiver = receiver_of(meet, queue)
    receiver.flow(0, credit)
    receiver.expect_transfers(min(credit, 3))
    receiver.expect_drained(credit)
    receiver.expect_silence()


def test_no_credit_is_used_up_at_once(meet: Meet, channel: PeerChannel, queue: str) -> None:
    fill(channel, queue, [b"1"])
    receiver = receiver_of(meet, queue)
    receiver.flow(0, 0)
    receiver.expect_drained(0)
    receiver.expect_silence()


@pytest.mark.parametrize("credit", [1, 2])
def test_the_end_waits_for_the_last_part(meet: Meet, channel: PeerChannel, queue: str, credit: int) -> None:
    fill(channel, queue, [bytes(10 * FRAME_MAX)])
    receiver = receiver_of(meet, queue)
    receiver.flow(0, credit, window=4)
    assert receiver.expect_transfers(4)[-1].more
    receiver.flow(0, credit, window=100, received=4)
    while receiver.peer.expect(Transfer).more:
        pass
    receiver.expect_drained(credit)
    receiver.expect_silence()


def test_a_receiver_that_no_longer_drains_gets_no_flow(meet: Meet, channel: PeerChannel, queue: str) -> None:
    fill(channel, queue, [b"1"])
    receiver = receiver_of(meet, queue)
    receiver.flow(0, 1, drain=False)
    receiver.expect_transfers(1)
    receiver.expect_silence()
