"""The pair of links to the node of management."""

import pytest

from tests.support.adapters.management_client import request
from tests.support.amqp10.management_links import pair
from tests.support.amqp10.peer import Meet
from tests.support.amqp10.peer_session import PeerSession10

pytestmark = pytest.mark.amqpd_only("RabbitMQ before version 4 has it in a plugin")


@pytest.mark.spec("linkpair-1.0", "2")
@pytest.mark.parametrize("responses_first", [True, False])
def test_management_requests_are_answered_on_the_paired_link(
    session: PeerSession10, responses_first: bool, name: str
) -> None:
    pair(session, responses_first)
    queue = f"/queues/{name}"
    asked = [request("PUT", queue, {"durable": False}), request("GET", queue), request("DELETE", queue)]
    for number, each in enumerate(asked):
        session.transfer(0, each, number, settled=True)
    for status in (b"201", b"200", b"200"):
        response = session.delivery(1)
        assert response.settled
        assert status in response.payload


@pytest.mark.spec("amqp-1.0", "2.6.7")
def test_responses_wait_for_credit(session: PeerSession10) -> None:
    pair(session, responses_first=True, credit=0)
    for number in range(3):
        session.transfer(0, request("GET", "/queues/none"), number, settled=True)
    session.expect_silence()
    session.allow(1, 2)
    assert b"404" in session.delivery(1).payload
    assert b"404" in session.delivery(1).payload
    session.expect_silence()
    session.allow(1, 1, count=2)
    assert b"404" in session.delivery(1).payload


@pytest.mark.spec("amqp-1.0", "2.6.14")
def test_a_response_that_is_longer_than_a_frame(meet: Meet, name: str) -> None:
    peer = meet()
    peer.open(max_frame_size=512)
    session = PeerSession10(peer)
    pair(session, responses_first=False)
    queue = f"/queues/{name}"
    arguments = {f"x-own-{number}": "a" * 40 for number in range(40)}
    session.transfer(0, request("PUT", queue, {"durable": False, "arguments": arguments}), 0, settled=True)
    assert b"201" in session.delivery(1).payload
    session.transfer(0, request("GET", queue), 1, settled=True)
    shown = session.delivery(1)
    assert shown.frames > 2
    assert b"x-own-39" in shown.payload
    session.transfer(0, request("DELETE", queue), 2, settled=True)
    assert b"200" in session.delivery(1).payload
