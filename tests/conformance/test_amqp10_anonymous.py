"""AMQP 1.0: links on which each message says where it goes. [anonymous terminus 1.0 2.2]"""

from typing import Final

import pytest

from protocol.amqp10.composites import Accepted, Discharge, Rejected, Source, TransactionalState
from protocol.amqp10.performatives import Detach
from protocol.amqp10.types import Symbol
from tests.support.amqp091.peer import PeerChannel
from tests.support.amqp091.topology_commands import bind_queue
from tests.support.amqp10.contents import bare10
from tests.support.amqp10.controller import CONTROLLER, Controller, condition, within
from tests.support.amqp10.peer import Meet
from tests.support.amqp10.peer_session import PeerSession10

pytestmark = pytest.mark.amqpd_only("RabbitMQ before version 4 has it in a plugin")

NOWHERE: Final = bare10(to="/queues/nowhere")
ONLY_ACCEPTED: Final = Source(outcomes=("amqp:accepted:list",))
TAG: Final = b"\x00tag"


def expect_tagged(state: object, why: str = "amqp:not-found") -> None:
    """Check that the delivery is rejected for this reason, and that the error has its tag."""
    assert isinstance(state, Rejected), state
    assert state.error is not None
    assert (state.error.condition, state.error.info) == (why, {"delivery-tag": TAG})


def expect_tagged_detach(session: PeerSession10, why: str = "amqp:not-found") -> None:
    """The link is detached for this reason, and the error names the delivery."""
    detach = session.expect(Detach)
    assert detach.error is not None
    assert (detach.closed, detach.error.condition, detach.error.info) == (True, why, {"delivery-tag": TAG})


@pytest.mark.spec("anonterm-1.0", "2.1")
def test_the_capability_is_offered(meet: Meet) -> None:
    assert "ANONYMOUS-RELAY" in meet().open().offered_capabilities


@pytest.mark.spec("anonterm-1.0", "2.2")
@pytest.mark.parametrize("settled", [False, True], ids=["unsettled", "settled"])
@pytest.mark.parametrize(
    "form", ["/queues/{}", "{}", "/exchanges/amq.direct/{}"], ids=["queue", "name", "exchange"]
)
def test_a_message_with_a_known_to_address_is_routed(
    session: PeerSession10, channel: PeerChannel, node: str, settled: bool, form: str
) -> None:
    bind_queue(channel, node, "amq.direct", node)
    session.sends(None)
    session.transfer(0, bare10(to=form.format(node)), 0, settled=settled)
    if not settled:
        assert session.outcome(0) == Accepted()
    session.detach()
    assert channel.counts(node)[0] == 1


@pytest.mark.spec("anonterm-1.0", "2.2.2")
def test_a_settled_message_to_nowhere_ends_the_link(session: PeerSession10) -> None:
    session.sends(None)
    session.transfer(0, NOWHERE, 0, delivery_tag=TAG, settled=True)
    expect_tagged_detach(session)


@pytest.mark.spec("anonterm-1.0", "2.2.2")
@pytest.mark.parametrize(
    "form",
    ["/queues/nowhere", "nowhere", "/exchanges/nowhere/k", "/exchanges/amq.direct/k"],
    ids=["queue", "name", "exchange", "key"],
)
def test_an_unsettled_message_to_nowhere_is_rejected(session: PeerSession10, node: str, form: str) -> None:
    session.sends(None)
    session.transfer(0, bare10(to=form), 0, delivery_tag=TAG)
    expect_tagged(session.outcome(0))
    session.transfer(0, bare10(to=node), 1)
    assert session.outcome(1) == Accepted()


@pytest.mark.spec("anonterm-1.0", "2.2.2")
@pytest.mark.parametrize(
    "to",
    [None, "", "/queues/", "/queues/%", "/elsewhere", "/management"],
    ids=["null", "none", "queue", "percent", "elsewhere", "management"],
)
def test_a_message_with_an_invalid_to_address_is_rejected(
    session: PeerSession10, node: str, to: str | None
) -> None:
    session.sends(None)
    session.transfer(0, bare10(to=to), 0, delivery_tag=TAG)
    expect_tagged(session.outcome(0), "amqp:invalid-field")
    session.publish(0, 1, bare10(to=node), first=1)


@pytest.mark.spec("anonterm-1.0", "2.2.2")
def test_a_sender_without_the_rejected_outcome_loses_the_link(session: PeerSession10) -> None:
    session.sends(None, source=ONLY_ACCEPTED)
    session.transfer(0, NOWHERE, 0, delivery_tag=TAG)
    expect_tagged_detach(session)


# ---- in transactions


@pytest.mark.spec("anonterm-1.0", "2.2.2")
@pytest.mark.parametrize("settled", [False, True], ids=["unsettled", "settled"])
def test_a_known_place_in_a_transaction(
    session: PeerSession10, channel: PeerChannel, node: str, settled: bool
) -> None:
    controller = Controller(session)
    session.sends(None)
    txn_id = controller.declare()
    session.transfer(0, bare10(to=node), 0, state=within(txn_id), settled=settled)
    if not settled:
        assert session.outcome(0) == within(txn_id, Accepted())
    controller.commit(txn_id)
    assert channel.counts(node)[0] == 1


@pytest.mark.spec("anonterm-1.0", "2.2.2")
def test_an_unsettled_message_to_nowhere_is_rejected_and_its_transaction_goes_on(
    session: PeerSession10, channel: PeerChannel, node: str
) -> None:
    controller = Controller(session)
    session.sends(None)
    txn_id = controller.declare()
    session.transfer(0, NOWHERE, 0, delivery_tag=TAG, state=within(txn_id))
    state = session.outcome(0)
    assert isinstance(state, TransactionalState)
    assert state.txn_id == txn_id
    expect_tagged(state.outcome)
    session.transfer(0, bare10(to=node), 1, state=within(txn_id))
    assert session.outcome(1) == within(txn_id, Accepted())
    controller.commit(txn_id)
    assert channel.counts(node)[0] == 1


@pytest.mark.spec("anonterm-1.0", "2.2.2")
def test_an_unroutable_message_detaches_a_sender_without_the_rejected_outcome(
    session: PeerSession10,
) -> None:
    controller = Controller(session)
    session.sends(None, source=ONLY_ACCEPTED)
    txn_id = controller.declare()
    session.transfer(0, NOWHERE, 0, delivery_tag=TAG, state=within(txn_id))
    expect_tagged_detach(session)
    controller.roll_back(txn_id)


@pytest.mark.spec("anonterm-1.0", "2.2.2")
def test_a_settled_message_to_nowhere_fails_the_transaction_and_not_the_link(
    session: PeerSession10, channel: PeerChannel, node: str
) -> None:
    controller = Controller(session)
    session.sends(None)
    txn_id = controller.declare()
    session.transfer(0, bare10(to=node), 0, state=within(txn_id), settled=True)
    session.transfer(0, NOWHERE, 1, state=within(txn_id), settled=True)
    assert condition(controller.ask(Discharge(txn_id=txn_id))) == "amqp:transaction:rollback"
    session.transfer(0, bare10(to=node), 2)
    assert session.outcome(2) == Accepted()
    assert channel.counts(node)[0] == 1


@pytest.mark.spec("anonterm-1.0", "2.2.2")
def test_a_controller_that_does_not_know_rejected_loses_its_link(session: PeerSession10) -> None:
    outcomes = (Symbol("amqp:accepted:list"), Symbol("amqp:declared:list"))
    controller = Controller(session, outcomes=outcomes)
    session.sends(None)
    txn_id = controller.declare()
    session.transfer(0, NOWHERE, 0, state=within(txn_id), settled=True)
    session.transfer(CONTROLLER, controller.message(Discharge(txn_id=txn_id)), 5000)
    session.expect_detach(CONTROLLER, "amqp:transaction:rollback")
    session.detach()
