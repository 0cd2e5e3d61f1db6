"""AMQP 1.0: a broker that runs short of something shuts the windows of who publishes. [amqp-1.0 2.5.6]"""

import pytest
from pamqp.commands import Queue

from protocol.amqp10.composites import Source, Target
from protocol.amqp10.performatives import Attach, Disposition, Flow
from tests.support.amqp091.peer import Connector, PeerChannel
from tests.support.amqp10.peer import Meet, Peer10
from tests.support.amqp10.peer_session import PeerSession10, sender
from tests.support.daemon.daemon import Daemon, DaemonStarter

pytestmark = pytest.mark.amqpd_only("RabbitMQ before version 4 has it in a plugin")

BODY = b"x" * 65536


class Hoard:
    """A broker with little memory, which is filled up and set free again."""

    def __init__(self, daemon: Daemon, channel: PeerChannel) -> None:
        self.daemon = daemon
        self._channel = channel
        channel.declare("hoard")
        channel.declare("q")

    def fill(self) -> None:
        """Have memory run short."""
        while self.daemon.metric("amqpd_low_on_memory") == 0:
            for _ in range(8):  # no more than sockets hold when nothing is read any more
                self._channel.publish(BODY, "hoard")

    def free(self, connect: Connector) -> None:
        """Have enough of it."""
        connect(self.daemon.address).channel().call(Queue.Purge(queue="hoard"), Queue.PurgeOk)


@pytest.fixture
def hoard(start_daemon: DaemonStarter, connect: Connector) -> Hoard:
    daemon = start_daemon("--memory-max", "140MiB")
    return Hoard(daemon, connect(daemon.address).channel())


def opened(meet: Meet, hoard: Hoard) -> Peer10:
    peer = meet(hoard.daemon.address)
    peer.open()
    return peer


@pytest.mark.spec("amqp-1.0", "2.5.6")
def test_a_publisher_is_stopped_and_a_consumer_continues(
    hoard: Hoard, connect: Connector, meet: Meet
) -> None:
    peer = opened(meet, hoard)
    publisher, consumer = PeerSession10(peer), PeerSession10(opened(meet, hoard))
    window = publisher.begun.incoming_window
    publisher.sends("q")
    consumer.receives("q", 0, 10)
    hoard.fill()
    shut = publisher.expect(Flow)
    assert (shut.handle, shut.incoming_window, shut.next_incoming_id) == (None, 0, 0)
    publisher.flow(echo=True)  # nothing that it asks for changes that
    assert publisher.expect(Flow).incoming_window == 0
    publisher.flow(0, delivery_count=0, echo=True)
    assert publisher.expect(Flow).incoming_window == 0
    for number in range(3):  # these transfers were on their way
        publisher.transfer(0, None, number)
        publisher.outcome(number)
        assert consumer.delivery().id == number
    consumer.settle(0, 2)
    assert hoard.daemon.metric("amqpd_publishers_held") >= 1
    hoard.free(connect)
    again = publisher.expect(Flow)
    assert (again.handle, again.incoming_window, again.next_incoming_id) == (None, window, 3)
    publisher.publish(0, 1, first=3)
    consumer.delivery()
    consumer.settle(3)
    consumer.expect_silence()


@pytest.mark.spec("amqp-1.0", "2.5.6")
def test_transfers_beyond_the_window_before_the_alarm_end_the_session(hoard: Hoard, meet: Meet) -> None:
    publisher = PeerSession10(opened(meet, hoard))
    publisher.sends("q")
    hoard.fill()
    assert publisher.expect(Flow).incoming_window == 0
    window = publisher.begun.incoming_window
    frames = b"".join(
        publisher.encode_transfer(0, None, number, settled=True) for number in range(window + 1)
    )
    publisher.peer.send(frames)
    publisher.expect_end("amqp:session:window-violation", f"transfer {window}")


@pytest.mark.spec("amqp-1.0", "2.6.7")
def test_a_sender_attached_during_the_alarm_gets_credit_after_it(
    hoard: Hoard, connect: Connector, meet: Meet
) -> None:
    hoard.fill()
    publisher = PeerSession10(opened(meet, hoard))
    publisher.write(sender("q"))
    publisher.expect(Attach)
    assert publisher.expect(Flow).incoming_window == 0
    hoard.free(connect)
    assert publisher.expect(Flow).incoming_window == publisher.begun.incoming_window
    allowed = publisher.expect(Flow)
    assert allowed.handle == 0
    assert allowed.link_credit is not None
    assert allowed.link_credit > 0
    publisher.publish(0, 1)


@pytest.mark.spec("amqp-1.0", "2.5.6")
def test_unsettled_deliveries_are_settled_during_the_alarm(hoard: Hoard, meet: Meet) -> None:
    publisher = PeerSession10(opened(meet, hoard))
    publisher.sends("q", 0, rcv_settle_mode=1)
    publisher.transfer(0)
    publisher.outcome(0, settled=False)
    hoard.fill()
    assert publisher.expect(Flow).incoming_window == 0
    publisher.write(Disposition(role=False, first=0, settled=True))
    publisher.detach(0)
    publisher.end()


@pytest.mark.spec("amqp-1.0", "2.8.15")
def test_declaring_is_refused_during_the_alarm_and_existing_nodes_are_found(
    hoard: Hoard, connect: Connector, meet: Meet
) -> None:
    client = PeerSession10(opened(meet, hoard))
    hoard.fill()
    words = "nothing new can be declared while the broker is low on memory"
    for handle, source in ((5, Source(dynamic=True)), (6, Source(address="/exchanges/amq.fanout"))):
        client.write(Attach(name=f"{handle}", handle=handle, role=True, source=source, target=Target()))
        client.expect(Attach)
        client.expect_detach(handle, "amqp:resource-limit-exceeded", words)
    client.receives("q", 7)
    hoard.free(connect)
    while hoard.daemon.metric("amqpd_low_on_memory"):
        pass  # each look asks the daemon
    client.receives("/exchanges/amq.fanout", 8)
