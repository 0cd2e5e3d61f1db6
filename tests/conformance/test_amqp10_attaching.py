"""AMQP 1.0: links are attached, refused and detached. [amqp-1.0 2.6.3 to 2.6.6]"""

import pytest

from protocol.amqp10.composites import Modified, Released, Source, Target
from protocol.amqp10.performatives import Attach, Begin, Detach, End, Flow
from tests.support.amqp091.peer import PeerChannel
from tests.support.amqp10.contents import bare10
from tests.support.amqp10.peer_session import PeerSession10, receiver, sender

pytestmark = pytest.mark.amqpd_only("RabbitMQ before version 4 has it in a plugin")

OUTCOMES = ("amqp:accepted:list", "amqp:rejected:list", "amqp:released:list", "amqp:modified:list")
ODD_NAMES = ["", "a/b|c", "\0", "n\u00e4me \U0001f600", "x" * 512, "%2F\\\"'<>"]


def expect_refusal(session: PeerSession10, attach: Attach, condition: str, words: str = "") -> None:
    """The broker answers without a terminus of its own, and detaches."""
    session.write(attach)
    answer = session.expect(Attach)
    assert (answer.handle, answer.role) == (attach.handle, not attach.role)
    assert (answer.source if attach.role else answer.target) is None
    assert answer.initial_delivery_count == (0 if attach.role else None)
    session.expect_detach(attach.handle, condition, words)


@pytest.mark.spec("amqp-1.0", "2.6.3")
@pytest.mark.spec("amqp-1.0", "3.5.4")
def test_a_sender_is_attached_and_allowed_to_send(session: PeerSession10, node: str) -> None:
    answer, allowed = session.sends(f"/queues/{node}", 3)
    assert answer.name == "sends 3"
    assert isinstance(answer.target, Target)
    assert answer.target.address == f"/queues/{node}"
    assert answer.source is not None
    assert answer.max_message_size is not None
    assert answer.max_message_size >= 1048576
    assert (answer.snd_settle_mode, answer.rcv_settle_mode) == (2, 0)
    assert allowed.delivery_count == 0
    assert allowed.link_credit is not None
    assert allowed.link_credit > 0
    assert (allowed.drain, allowed.echo) == (False, False)


@pytest.mark.spec("amqp-1.0", "2.6.3")
@pytest.mark.spec("amqp-1.0", "3.5.3")
def test_a_receiver_is_attached_and_sent_nothing_before_it_wants_it(
    session: PeerSession10, channel: PeerChannel, node: str
) -> None:
    channel.publish(b"x", node)
    answer = session.receives(f"/queues/{node}", 7)
    assert (answer.name, answer.initial_delivery_count) == ("receives 7", 0)
    source = answer.source
    assert source is not None
    assert (source.address, source.distribution_mode, source.durable) == (f"/queues/{node}", "move", 0)
    assert source.outcomes == OUTCOMES
    assert source.default_outcome == Modified(delivery_failed=True)
    assert answer.target is not None
    session.expect_silence()


@pytest.mark.spec("amqp-1.0", "3.5.3")
def test_attach_confirms_the_requested_default_outcome(session: PeerSession10, node: str) -> None:
    answer = session.receives(None, source=Source(address=node, default_outcome=Released()))
    assert answer.source is not None
    assert answer.source.default_outcome == Released()


@pytest.mark.spec("amqp-1.0", "2.8.2")
@pytest.mark.parametrize(("asked", "given"), [(0, 0), (1, 1), (2, 0)], ids=["unsettled", "settled", "mixed"])
def test_how_deliveries_will_be_settled(session: PeerSession10, node: str, asked: int, given: int) -> None:
    assert session.receives(node, 0, snd_settle_mode=asked).snd_settle_mode == given
    answer, _ = session.sends(node, 1, snd_settle_mode=asked)
    assert answer.snd_settle_mode == asked


@pytest.mark.spec("amqp-1.0", "2.8.3")
@pytest.mark.parametrize("mode", [0, 1], ids=["first", "second"])
def test_settle_modes(session: PeerSession10, node: str, mode: int) -> None:
    assert session.receives(node, 0, rcv_settle_mode=mode).rcv_settle_mode == mode
    answer, _ = session.sends(node, 1, rcv_settle_mode=mode)
    assert answer.rcv_settle_mode == mode


@pytest.mark.spec("amqp-1.0", "2.7.3")
def test_a_peer_may_leave_its_own_terminus_out(session: PeerSession10, node: str) -> None:
    session.receives(node, 0, 1, target=None)
    session.sends(node, 1, source=None)
    session.publish(1, 1)
    assert session.delivery(0).payload


@pytest.mark.spec("amqp-1.0", "2.6.3")
@pytest.mark.parametrize("role", [False, True], ids=["sender", "receiver"])
@pytest.mark.parametrize("where", ["/queues/there-is-none", "there-is-none", "/exchanges/there-is-none/k"])
def test_attach_to_a_missing_node_is_refused_with_not_found(
    session: PeerSession10, role: bool, where: str
) -> None:
    attach = receiver(where, 5) if role else sender(where, 5)
    expect_refusal(session, attach, "amqp:not-found", "there-is-none")
    expect_refusal(session, attach, "amqp:not-found")  # the handle is free again
    session.end()


@pytest.mark.spec("amqp-1.0", "2.6.3")
@pytest.mark.parametrize("role", [False, True], ids=["sender", "receiver"])
@pytest.mark.parametrize("where", ["/queues/", "/queues/%", "/queues/%zz", "/queues/a/b", "/nowhere/q"])
def test_attach_to_an_invalid_address_is_refused(session: PeerSession10, role: bool, where: str) -> None:
    attach = receiver(where) if role else sender(where)
    expect_refusal(session, attach, "amqp:invalid-field")
    session.end()


@pytest.mark.spec("amqp-1.0", "2.6.3")
def test_a_sender_without_an_initial_delivery_count_is_refused(session: PeerSession10, node: str) -> None:
    expect_refusal(session, sender(node, initial_delivery_count=None), "amqp:invalid-field", "delivery-count")


@pytest.mark.spec("amqp-1.0", "3.5.3")
def test_an_unknown_distribution_mode_is_refused(session: PeerSession10, node: str) -> None:
    attach = receiver(node, source=Source(address=node, distribution_mode="both"))
    expect_refusal(session, attach, "amqp:invalid-field", "'both'")


@pytest.mark.spec("amqp-1.0", "2.7.3")
def test_a_queue_that_another_connection_has_for_itself(session: PeerSession10, channel: PeerChannel) -> None:
    locked = channel.declare(exclusive=True)
    expect_refusal(session, receiver(locked), "amqp:resource-locked", locked)


@pytest.mark.spec("amqp-1.0", "2.7.3")
@pytest.mark.parametrize("called", ODD_NAMES, ids=["none", "slash", "nul", "wide", "long", "quotes"])
def test_a_link_may_have_an_odd_name(session: PeerSession10, node: str, called: str) -> None:
    assert session.receives(node, 0, 1, name=called).name == called
    assert session.sends(node, 1, name=called)[0].name == called
    session.publish(1, 1)
    session.delivery(0)
    session.detach(0)


@pytest.mark.spec("amqp-1.0", "2.7.3")
def test_a_name_that_is_too_long(session: PeerSession10, node: str) -> None:
    expect_refusal(session, sender(node, name="x" * 513), "amqp:invalid-field", "513")


@pytest.mark.spec("amqp-1.0", "2.6.1")
@pytest.mark.spec("amqp-1.0", "2.8.1")
def test_links_of_one_name_in_opposite_directions(session: PeerSession10, node: str) -> None:
    session.receives(node, 0, 10, name="same")
    session.sends(node, 1, name="same")
    session.publish(1, 1, bare10(body=b"\0Su\xa0\x01x"))
    assert session.delivery(0).payload.endswith(b"\0Su\xa0\x01x")
    session.detach(1)
    session.settle(0)
    session.detach(0)


@pytest.mark.spec("amqp-1.0", "2.7.3")
@pytest.mark.parametrize("role", [False, True], ids=["sender", "receiver"])
def test_a_handle_that_is_in_use(session: PeerSession10, node: str, role: bool) -> None:
    session.sends(node, 0)
    session.write(receiver(node, 0) if role else sender(node, 0, name="another"))
    session.peer.expect_close("amqp:session:handle-in-use", "handle 0")


@pytest.mark.spec("amqp-1.0", "2.7.3")
def test_the_handle_of_a_link_that_the_broker_has_detached_is_free(session: PeerSession10, node: str) -> None:
    """RabbitMQ's Python client 2.0 does not answer the detach of a link that was refused."""
    for _ in range(2):
        session.write(sender("there-is-none"))
        session.expect(Attach)
        session.expect(Detach)
    session.sends(node)
    session.publish(0, 1)
    session.detach(0)


@pytest.mark.spec("amqp-1.0", "2.7.2")
def test_as_many_links_as_there_are_handles(session: PeerSession10, node: str) -> None:
    handles = range(256)
    session.peer.send(b"".join(session.encode(sender(node, handle)) for handle in handles))
    for handle in handles:
        assert session.expect(Attach).handle == handle
        assert session.expect(Flow).handle == handle
    for handle in handles:
        session.publish(handle, 1, first=handle)
    session.detach(255)
    session.sends(node, 255)
    session.write(sender(node, 256))
    session.peer.expect_close("amqp:connection:framing-error", "handle is 256")


@pytest.mark.spec("amqp-1.0", "2.7.2")
def test_the_peer_may_want_fewer_links(session: PeerSession10, node: str) -> None:
    session.peer.write(Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1, handle_max=3), 1)
    session.peer.expect(Begin, 1)
    session.peer.write(sender(node, 4), 1)
    session.peer.expect_close("amqp:connection:framing-error", "handle is 4")


@pytest.mark.spec("amqp-1.0", "2.6.6")
@pytest.mark.parametrize("closed", [True, False], ids=["closed", "detached"])
def test_a_detach_is_answered_in_kind(
    session: PeerSession10, channel: PeerChannel, node: str, closed: bool
) -> None:
    session.receives(node, 0, 5)
    session.sends(node, 1)
    session.publish(1, 1)
    session.delivery(0)
    session.detach(0, closed)
    session.detach(1, closed)
    assert channel.counts(node) == (1, 0)  # nothing stays with a closed receiver


@pytest.mark.spec("amqp-1.0", "2.6.5")
def test_frames_sent_before_the_peer_knows_of_a_detach_are_dropped(
    session: PeerSession10, channel: PeerChannel, node: str
) -> None:
    session.sends(node, 0)
    session.transfer(0, b"\0")  # no message
    for number in range(1, 20):
        session.transfer(0, None, number)
    session.flow(0, delivery_count=20)
    session.expect_detach(0, "amqp:decode-error")
    session.sends(node, 0)
    session.publish(0, 1, first=20)
    assert channel.counts(node)[0] == 1


@pytest.mark.spec("amqp-1.0", "2.6.5")
def test_no_more_is_dropped_than_was_allowed(session: PeerSession10, node: str) -> None:
    _, allowed = session.sends(node, 0)
    assert allowed.link_credit is not None
    session.transfer(0, b"\0")
    session.expect(Detach)
    one = session.encode_transfer(0, b"")
    session.peer.send(one * allowed.link_credit)
    while True:
        frame, _ = session.read()
        if not isinstance(frame, Flow):
            break
    assert isinstance(frame, End)
    assert frame.error is not None
    assert frame.error.condition == "amqp:session:errant-link"


@pytest.mark.spec("amqp-1.0", "2.6.12")
def test_attach_transfer_and_end_may_come_in_one_piece(
    session: PeerSession10, channel: PeerChannel, node: str
) -> None:
    expected = [
        session.encode(sender(node)),
        session.encode_transfer(0, settled=True),
        session.encode(Detach(handle=0, closed=True)),
        session.encode(End()),
    ]
    session.peer.send(b"".join(expected))
    session.expect(Attach)
    session.expect(Flow)
    assert session.expect(Detach).error is None
    session.expect(End)
    assert channel.counts(node)[0] == 1
