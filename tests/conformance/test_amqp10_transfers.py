"""AMQP 1.0: deliveries to the broker, in a single transfer or many. [amqp-1.0 2.6.12, 2.6.14, 2.7.5]"""

import pytest
from pamqp.common import FieldTable

from protocol.amqp10.composites import Accepted, Rejected, Released, Source
from protocol.amqp10.performatives import Detach, Disposition, Flow, Transfer
from tests.support.amqp091.peer import PeerChannel
from tests.support.amqp10.contents import bare10
from tests.support.amqp10.peer import Meet
from tests.support.amqp10.peer_session import PeerSession10
from tests.support.daemon.daemon import DaemonStarter

pytestmark = pytest.mark.amqpd_only("RabbitMQ before version 4 has it in a plugin")

BODY = bytes(range(200))
MESSAGE = bare10(body=b"\0Su\xa0\xc8" + BODY)
PARTS = [MESSAGE[at : at + 10] for at in range(0, len(MESSAGE), 10)]


def arrived(session: PeerSession10, node: str, handle: int = 9) -> list[bytes]:
    """Return all messages in the queue."""
    session.receives(node, handle)
    session.allow(handle, 100, drain=True)
    found = []
    while True:
        frame, payload = session.read()
        if isinstance(frame, Flow):
            assert frame.drain
            break
        assert isinstance(frame, Transfer)
        found.append(payload)
    session.detach(handle)
    return found


@pytest.mark.spec("amqp-1.0", "2.6.12")
@pytest.mark.spec("amqp-1.0", "3.4.2")
@pytest.mark.spec("amqp-1.0", "2.6.11")
def test_an_unsettled_delivery_is_accepted(session: PeerSession10, node: str) -> None:
    session.sends(node)
    session.transfer(0, MESSAGE, 5, settled=False)
    assert session.outcome(5) == Accepted()
    (found,) = arrived(session, node)
    assert found.endswith(MESSAGE)


@pytest.mark.spec("amqp-1.0", "2.6.12")
def test_a_settled_delivery_has_no_disposition(session: PeerSession10, node: str) -> None:
    session.sends(node)
    session.transfer(0, MESSAGE, 5, settled=True)
    session.expect_silence()
    assert len(arrived(session, node)) == 1


@pytest.mark.spec("amqp-1.0", "2.6.12")
def test_a_durable_message_is_accepted_when_it_is_on_disk(session: PeerSession10, durable_queue: str) -> None:
    session.sends(durable_queue)
    frames = b"".join(session.encode_transfer(0, b"\0Sp\xc0\x02\x01\x41" + MESSAGE, at) for at in range(100))
    session.peer.send(frames)
    done = 0
    while done < 100:
        found, _ = session.read()
        if isinstance(found, Disposition):
            assert (found.first, found.state, found.settled) == (done, Accepted(), True)
            assert found.last is not None
            done = found.last + 1
    assert len(arrived(session, durable_queue)) == 100


@pytest.mark.spec("amqp-1.0", "2.7.5")
@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"delivery_id": None, "delivery_tag": b"t"}, "no delivery-id"),
        ({"delivery_tag": None}, "no delivery-tag"),
        ({"delivery_tag": b"t" * 33}, "delivery-tag of 33 bytes"),
        ({"rcv_settle_mode": 1}, "rcv-settle-mode"),
    ],
    ids=["no id", "no tag", "long tag", "second"],
)
def test_a_first_transfer_that_cannot_be(
    session: PeerSession10, node: str, fields: dict[str, object], words: str
) -> None:
    session.sends(node)
    session.transfer(0, **{"delivery_id": 0, **fields})  # type: ignore[arg-type]
    session.expect_detach(0, "amqp:invalid-field", words)
    assert arrived(session, node) == []


@pytest.mark.spec("amqp-1.0", "2.7.5")
def test_a_transfer_without_a_handle(session: PeerSession10) -> None:
    session.peer.send(bytes.fromhex("0000001002000000 005314c00301 40 40".replace(" ", "")))
    session.peer.expect_close("amqp:decode-error")


@pytest.mark.spec("amqp-1.0", "2.6.14")
@pytest.mark.parametrize("says", [True, False], ids=["says all again", "says nothing again"])
def test_a_message_in_many_transfers(session: PeerSession10, node: str, says: bool) -> None:
    session.sends(node)
    session.transfer(0, PARTS[0], 3, more=True)
    for part in PARTS[1:-1]:
        if says:
            session.transfer(0, part, 3, more=True, message_format=0)
        else:
            session.transfer(0, part, None, more=True)
    session.transfer(0, PARTS[-1], None)
    assert session.outcome(3) == Accepted()
    (found,) = arrived(session, node)
    assert found.endswith(MESSAGE)


@pytest.mark.spec("amqp-1.0", "2.6.14")
def test_transfers_may_have_no_payload(session: PeerSession10, node: str) -> None:
    session.sends(node)
    for part in (b"", MESSAGE[:7], b"", b"", MESSAGE[7:]):
        session.transfer(0, part, 3, more=True)
    session.transfer(0, b"", None)
    assert session.outcome(3) == Accepted()
    (found,) = arrived(session, node)
    assert found.endswith(MESSAGE)


@pytest.mark.spec("amqp-1.0", "2.6.14")
def test_deliveries_of_two_links_are_interleaved(session: PeerSession10, node: str) -> None:
    session.sends(node, 0)
    session.sends(node, 1)
    other = MESSAGE[:-1] + b"!"
    for part in PARTS[:-1]:
        session.transfer(0, part, 0, more=True)
        session.transfer(1, part, 1, more=True)
    session.transfer(1, PARTS[-1][:-1] + b"!", 1)
    assert session.outcome(1) == Accepted()
    session.transfer(0, PARTS[-1], 0)
    assert session.outcome(0) == Accepted()
    first, second = arrived(session, node)
    assert first.endswith(other)
    assert second.endswith(MESSAGE)


@pytest.mark.spec("amqp-1.0", "2.6.14")
def test_interleaved_deliveries_of_one_link_detach_it(session: PeerSession10, node: str) -> None:
    session.sends(node)
    session.transfer(0, PARTS[0], 0, more=True)
    session.transfer(0, PARTS[0], 1, more=True)
    session.expect_detach(0, "amqp:invalid-field", "delivery 1 before the end of delivery 0")
    assert arrived(session, node) == []


@pytest.mark.spec("amqp-1.0", "2.7.5")
@pytest.mark.parametrize(
    ("fields", "words"),
    [({"delivery_tag": b"other"}, "delivery-tag"), ({"message_format": 1}, "message-format")],
    ids=["tag", "format"],
)
def test_fields_that_a_delivery_may_not_change(
    session: PeerSession10, node: str, fields: dict[str, object], words: str
) -> None:
    session.sends(node)
    session.transfer(0, PARTS[0], 0, more=True)
    session.transfer(0, PARTS[1], 0, **fields)
    session.expect_detach(0, "amqp:invalid-field", words)


@pytest.mark.spec("amqp-1.0", "2.6.14")
@pytest.mark.parametrize("parts", [0, 1, 5])
def test_a_delivery_that_is_taken_back(session: PeerSession10, node: str, parts: int) -> None:
    session.sends(node)
    for part in PARTS[:parts]:
        session.transfer(0, part, 0, more=True)
    session.transfer(0, PARTS[parts], 0, aborted=True)
    session.expect_silence()
    session.transfer(0, MESSAGE, 1)
    assert session.outcome(1) == Accepted()
    assert len(arrived(session, node)) == 1
    session.flow(0, delivery_count=2, echo=True)
    assert session.expect(Flow).delivery_count == 2  # the one that was aborted counts


@pytest.mark.spec("amqp-1.0", "2.7.5")
@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_delivery_is_settled_if_any_transfer_is_settled(session: PeerSession10, node: str, at: int) -> None:
    session.sends(node)
    for number, part in enumerate((MESSAGE[:5], MESSAGE[5:9], MESSAGE[9:])):
        session.transfer(0, part, 0, more=number < 2, settled=number == at or None)
    session.expect_silence()
    assert len(arrived(session, node)) == 1


@pytest.mark.spec("amqp-1.0", "2.8.2")
@pytest.mark.parametrize("mode", [0, 1], ids=["unsettled", "settled"])
def test_a_transfer_against_the_settle_mode_of_its_link_detaches_it(
    session: PeerSession10, node: str, mode: int
) -> None:
    session.sends(node, snd_settle_mode=mode)
    session.transfer(0, MESSAGE, 0, settled=mode == 0)
    session.expect_detach(0, "amqp:invalid-field", "settled")
    assert arrived(session, node) == []


@pytest.mark.spec("amqp-1.0", "2.7.3")
def test_a_message_that_is_too_large(start_daemon: DaemonStarter, meet: Meet) -> None:
    peer = meet(start_daemon("--message-size-max", "1MiB").address)
    peer.open()
    session = PeerSession10(peer)
    answer, _ = session.sends("/exchanges/amq.fanout")
    session.sends("/exchanges/amq.fanout", 1)
    assert answer.max_message_size == 1048576
    session.transfer(0, b"\0Su\xb0\x00\x20\x00\x00", 0, more=True)
    for _ in range(11):
        session.transfer(0, bytes(100_000), 0, more=True)
    for _ in range(2000):  # on its way, and no delivery of its own
        session.transfer(0, b"", None, more=True)
    session.transfer(0, b"", None)
    while True:
        frame, _ = session.read()
        if isinstance(frame, Detach):
            break
        assert isinstance(frame, Flow)
    assert frame.error is not None
    assert frame.error.condition == "amqp:link:message-size-exceeded"
    session.write(Detach(handle=0, closed=True))
    session.transfer(1, MESSAGE, 1)
    while not isinstance(frame, Disposition):
        frame, _ = session.read()
        assert isinstance(frame, Flow | Disposition)
    assert (frame.first, frame.state) == (1, Released())


@pytest.mark.spec("amqp-1.0", "2.6.12")
def test_no_route(session: PeerSession10) -> None:
    session.sends("/exchanges/amq.direct/nowhere")
    session.transfer(0, MESSAGE, 0)
    assert session.outcome(0) == Released()
    session.transfer(0, MESSAGE, 1, settled=True)
    session.expect_silence()
    session.sends("/exchanges/amq.direct/nowhere", 1, source=Source(outcomes=("amqp:accepted:list",)))
    session.transfer(1, MESSAGE, 2)
    session.expect_detach(1, "amqp:not-found")


@pytest.mark.spec("amqp-1.0", "3.4.3")
def test_a_queue_that_is_full(session: PeerSession10, channel: PeerChannel) -> None:
    arguments: FieldTable = {"x-max-length": 1, "x-overflow": "reject-publish"}
    queue = channel.declare(auto_delete=True, arguments=arguments)
    session.sends(queue)
    session.publish(0, 1)
    session.transfer(0, MESSAGE, 1)
    state = session.outcome(1)
    assert isinstance(state, Rejected)
    assert state.error is not None
    assert state.error.condition == "amqp:resource-limit-exceeded"
    session.transfer(0, MESSAGE, 2, settled=True)
    session.expect_silence()
    assert channel.counts(queue)[0] == 1
