"""AMQP 1.0: links that come back while other things are under way. [amqp-1.0 2.6.13]"""

import pytest

from protocol.amqp10.composites import Accepted
from tests.controller10 import Controller, within
from tests.peer_channel import PeerChannel
from tests.peer_session10 import PeerSession10
from tests.unsettled10 import receives, resumed, suspend

pytestmark = pytest.mark.amqpd_only("no other broker resumes links")


@pytest.mark.spec("amqp-1.0", "4.4.2")
@pytest.mark.parametrize("elsewhere", [False, True], ids=["same session", "another session"])
def test_what_was_retired_before_goes_back_if_that_is_rolled_back(
    session: PeerSession10, channel: PeerChannel, node: str, elsewhere: bool
) -> None:
    """It was the earlier link's, and the one that resumes the others does not know it."""
    for number in range(3):
        channel.publish(b"%d" % number, node)
    controller = Controller(session)
    receives(session, node, credit=3)
    deliveries = [session.delivery() for _ in range(3)]
    txn_id = controller.declare()
    session.settle(deliveries[0].id, state=within(txn_id, Accepted()), settled=False)
    suspend(session)
    again = PeerSession10(session.peer, 1) if elsewhere else session
    tags = [delivery.tag for delivery in deliveries[1:]]
    receives(again, node, dict.fromkeys(tags), credit=2)
    last = [resumed(again, tag) for tag in tags]
    controller.roll_back(txn_id)
    assert channel.counts(node)[0] == 1
    again.settle(last[0].id, last[1].id)
    again.detach()
    assert channel.take(node).body == b"0"
    assert channel.counts(node)[0] == 0
