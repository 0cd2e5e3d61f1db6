"""Transactions over AMQP 1.0, frame by frame."""

import pytest
from pamqp.commands import Basic
from pamqp.common import FieldTable

from protocol.amqp10.composing import encode_composite
from protocol.amqp10.composites import Accepted, Discharge, Modified, Released, Source
from protocol.amqp10.performatives import Disposition
from protocol.amqp10.types import Described, Symbol
from tests.support.amqp091.peer import PeerChannel
from tests.support.amqp10.contents import bare10
from tests.support.amqp10.controller import CONTROLLER, Controller, condition, within
from tests.support.amqp10.peer_session import Begins, PeerSession10
from tests.support.amqp10.reference_codec import described

pytestmark = pytest.mark.amqpd_only("RabbitMQ before version 4 has it in a plugin")


@pytest.mark.spec("amqp-1.0", "4.4.1")
def test_posted_messages_are_enqueued_at_the_commit(session: PeerSession10, node: str) -> None:
    controller = Controller(session)
    session.sends(node, 0)
    one, other = controller.declare(), controller.declare()
    session.transfer(0, bare10(body=b"\0Su\xa0\x03one"), 0, state=within(one))
    assert session.outcome(0) == within(one, Accepted())
    session.transfer(0, bare10(body=b"\0Su\xa0\x05other"), 1, state=within(other))
    assert session.outcome(1) == within(other, Accepted())
    session.receives(node, 1, 10)
    session.expect_silence()
    controller.roll_back(one)
    controller.commit(other)
    assert session.delivery(1).payload.endswith(b"other")
    session.expect_silence()


@pytest.mark.spec("amqp-1.0", "4.4.1")
def test_posted_messages_are_not_delivered_to_a_no_local_receiver(
    session: PeerSession10, begin: Begins, name: str
) -> None:
    other = begin()
    address = "/exchanges/amq.topic/" + name.rpartition(".")[2]
    no_local = {"local": Described(Symbol("apache.org:no-local-filter:list"), [])}
    session.receives(None, 1, 10, source=Source(address=address, filter=no_local))
    other.receives(address, 1, 10)
    other.expect_silence()
    controller = Controller(session)
    session.sends(address, 0)
    txn_id = controller.declare()
    session.transfer(0, bare10(), 0, state=within(txn_id))
    assert session.outcome(0) == within(txn_id, Accepted())
    controller.commit(txn_id)
    other.settle(other.delivery(1).id)
    session.expect_silence()


@pytest.mark.spec("amqp-1.0", "4.3")
def test_an_unknown_transaction_is_told(session: PeerSession10, node: str) -> None:
    controller = Controller(session)
    assert condition(controller.ask(Discharge(txn_id=b"none"))) == "amqp:transaction:unknown-id"
    session.sends(node, 0)
    session.transfer(0, None, 0, state=within(b"none"))
    session.expect_detach(0, "amqp:transaction:unknown-id")
    txn_id = controller.declare()
    controller.commit(txn_id)
    assert condition(controller.ask(Discharge(txn_id=txn_id))) == "amqp:transaction:unknown-id"


@pytest.mark.spec("amqp-1.0", "4.3")
def test_a_controller_without_rejected_loses_its_link(session: PeerSession10) -> None:
    controller = Controller(session, outcomes=(Symbol("amqp:accepted:list"), Symbol("amqp:declared:list")))
    session.transfer(CONTROLLER, described(0x77, encode_composite(Discharge(txn_id=b"none"))), 1)
    session.expect_detach(CONTROLLER, "amqp:transaction:unknown-id")
    assert controller.session is session


@pytest.mark.spec("amqp-1.0", "4.4.2")
def test_retired_messages_return_at_the_rollback(session: PeerSession10, node: str) -> None:
    controller = Controller(session)
    session.sends(node, 0)
    session.publish(0, 2)
    session.receives(node, 1, 2)
    first, second = session.delivery(1), session.delivery(1)
    txn_id = controller.declare()
    session.settle(first.id, state=within(txn_id, Accepted()))
    controller.roll_back(txn_id)
    session.allow(1, 1, count=2)
    again = session.delivery(1)
    assert again.payload.endswith(first.payload[-8:])
    txn_id = controller.declare()
    session.settle(second.id, state=within(txn_id, Accepted()))
    session.settle(again.id, state=within(txn_id, Accepted()))
    controller.commit(txn_id)
    session.allow(1, 1, count=3)
    session.expect_silence()


@pytest.mark.spec("amqp-1.0", "4.4.2")
def test_an_unsettled_delivery_stays_with_its_receiver_after_a_rollback(
    session: PeerSession10, node: str
) -> None:
    controller = Controller(session)
    session.sends(node, 0)
    session.publish(0, 1)
    session.receives(node, 1, 5)
    delivery = session.delivery(1)
    txn_id = controller.declare()
    session.settle(delivery.id, state=within(txn_id, Accepted()), settled=False)
    controller.roll_back(txn_id)
    session.settle(delivery.id, state=Released())
    assert session.delivery(1).id == delivery.id + 1


@pytest.mark.spec("amqp-1.0", "4.3")
def test_a_transaction_ends_with_its_controller(
    begin: Begins, session: PeerSession10, channel: PeerChannel, node: str
) -> None:
    controller = Controller(session)
    session.sends(node, 0)
    txn_id = controller.declare()
    session.transfer(0, None, 0, state=within(txn_id))
    assert session.outcome(0) == within(txn_id, Accepted())
    session.detach(CONTROLLER)
    again = Controller(session)
    assert condition(again.ask(Discharge(txn_id=txn_id))) == "amqp:transaction:unknown-id"
    other = begin()
    other.receives(node, 0, 1)
    other.expect_silence()


@pytest.mark.spec("amqp-1.0", "4.4.1")
def test_a_settled_message_that_goes_nowhere_dooms_its_transaction(
    session: PeerSession10, channel: PeerChannel
) -> None:
    controller = Controller(session)
    session.sends(None, 0)
    txn_id = controller.declare()
    session.transfer(0, bare10(to="/queues/nowhere"), 0, state=within(txn_id), settled=True)
    assert condition(controller.ask(Discharge(txn_id=txn_id))) == "amqp:transaction:rollback"


@pytest.mark.spec("amqp-1.0", "4.5.1")
def test_a_coordinator_does_not_guess(session: PeerSession10) -> None:
    Controller(session)
    session.transfer(CONTROLLER, described(0x77, b"\x41"), 1)
    session.expect_detach(CONTROLLER, "amqp:decode-error")


@pytest.mark.spec("amqp-1.0", "3.4.5")
@pytest.mark.parametrize("settled", [True, False])
def test_a_message_modified_as_undeliverable_here_in_a_transaction_goes_to_another_link(
    begin: Begins, session: PeerSession10, node: str, settled: bool
) -> None:
    controller = Controller(session)
    session.sends(node, 0)
    session.publish(0, 1)
    session.receives(node, 1, 10)
    delivery = session.delivery(1)
    not_here = Modified(delivery_failed=True, undeliverable_here=True)
    txn_id = controller.declare()
    session.settle(delivery.id, state=within(txn_id, not_here), settled=settled)
    controller.commit(txn_id)
    if not settled:
        disposition = session.expect(Disposition)
        assert (disposition.first, disposition.settled, isinstance(disposition.state, Modified)) == (
            delivery.id,
            True,
            True,
        )
    session.expect_silence()
    other = begin()
    other.receives(node, 0, 1)
    assert other.delivery().payload.endswith(delivery.payload[-8:])


@pytest.mark.spec("amqp-1.0", "3.4.5")
def test_a_rolled_back_undeliverable_here_returns_the_message_to_its_link(
    session: PeerSession10, node: str
) -> None:
    controller = Controller(session)
    session.sends(node, 0)
    session.publish(0, 1)
    session.receives(node, 1, 10)
    delivery = session.delivery(1)
    txn_id = controller.declare()
    session.settle(delivery.id, state=within(txn_id, Modified(undeliverable_here=True)))
    controller.roll_back(txn_id)
    assert session.delivery(1).payload.endswith(delivery.payload[-8:])


@pytest.mark.parametrize("groups", [False, True])
def test_a_single_transaction_takes_several_messages_in_strict_order(
    session: PeerSession10, begin: Begins, channel: PeerChannel, name: str, groups: bool
) -> None:
    arguments: FieldTable = {"x-strict-order": True}
    if groups:
        arguments["x-group-kind"] = "shared"
    channel.declare(name, arguments=arguments)
    for number in range(5):
        channel.publish(b"%d" % number, name, properties=Basic.Properties(headers={"x-group-id": "g"}))
    controller = Controller(session)
    session.receives(name, 1, 10)
    delivery = session.delivery(1)
    other = begin()
    other.receives(name, 1, 10)
    txn_id = controller.declare()
    for number in range(3):
        assert delivery.payload.endswith(b"%d" % number)
        session.settle(delivery.id, state=within(txn_id, Accepted()), settled=True)
        delivery = session.delivery(1)
    session.expect_silence()
    controller.commit(txn_id)
    other.expect_silence()
    txn_id = controller.declare()
    assert delivery.payload.endswith(b"3")
    session.settle(delivery.id, state=within(txn_id, Accepted()), settled=True)
    assert session.delivery(1).payload.endswith(b"4")
    controller.roll_back(txn_id)
    other.expect_silence()
    session.end()
    for number in (3, 4):
        delivery = other.delivery(1)
        assert delivery.payload.endswith(b"%d" % number)
        other.settle(delivery.id)
    assert channel.counts(name) == (0, 1)
