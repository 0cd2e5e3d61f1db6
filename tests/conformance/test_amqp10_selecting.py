"""Filters of sources of AMQP 1.0, and messages that a link does not get."""

import pytest

from protocol.amqp10.composites import Accepted, Modified, Source, Target
from protocol.amqp10.performatives import Attach
from protocol.amqp10.types import Described, Symbol
from tests.support.admin.api import Api
from tests.support.amqp10.contents import bare10
from tests.support.amqp10.peer_session import PeerSession10

pytestmark = pytest.mark.amqpd_only("RabbitMQ before version 4 has it in a plugin")

SELECTOR = Symbol("apache.org:selector-filter:string")


def selecting(session: PeerSession10, node: str, handle: int, text: object, **fields: object) -> Attach:
    """Attach a receiver with a selector and an unknown filter."""
    given: dict[str, object] = {
        "select": Described(SELECTOR, text),
        "unknown": Described(Symbol("example:unknown"), "x"),
    }
    source = Source(address=node, filter={Symbol(name): value for name, value in given.items()})
    session.write(
        Attach(name=f"selects {handle}", handle=handle, role=True, source=source, target=Target(), **fields)  # type: ignore[arg-type]
    )
    return session.expect(Attach)


@pytest.mark.spec("amqp-1.0", "3.5.1")
@pytest.mark.spec("amqp-1.0", "3.5.8")
def test_the_filters_in_force_are_in_the_answer(session: PeerSession10, node: str) -> None:
    session.sends(node)
    for number in range(4):
        session.transfer(0, bare10({"n": number}), number)
        assert session.outcome(number) == Accepted()
    answer = selecting(session, node, 1, "n > 1")
    assert answer.source is not None
    assert answer.source.filter is not None
    assert set(answer.source.filter) == {"select"}
    session.allow(1, 10)
    first, second = session.delivery(1), session.delivery(1)
    session.settle(first.id, second.id)
    session.expect_silence()


@pytest.mark.spec("amqp-1.0", "3.5.1")
def test_a_filter_that_does_not_parse_is_refused(session: PeerSession10, node: str) -> None:
    assert selecting(session, node, 1, "n > > 1").source is None
    detach = session.expect_detach(1, "amqp:invalid-field", "position")
    assert detach.error is not None
    assert detach.error.info == {"field": "filter"}


@pytest.mark.spec("amqp-1.0", "3.4.5")
@pytest.mark.parametrize("failed", [True, False])
def test_an_undeliverable_here_message_is_delivered_to_another_link(
    session: PeerSession10, node: str, failed: bool
) -> None:
    session.sends(node)
    session.publish(0, 2)
    session.receives(node, 1, 1)
    away = session.delivery(1)
    session.settle(away.id, state=Modified(delivery_failed=failed, undeliverable_here=True))
    session.allow(1, 10, count=1)
    session.settle(session.delivery(1).id)
    session.expect_silence()
    session.receives(node, 2, 1)
    again = session.delivery(2)
    assert again.payload.endswith(away.payload[-4:])
    session.settle(again.id)


@pytest.mark.spec("amqp-1.0", "3.4.5")
def test_many_undeliverable_here_messages_are_delivered_to_another_link(
    session: PeerSession10, node: str
) -> None:
    session.sends(node)
    session.publish(0, 3)
    session.receives(node, 1, 3)
    taken = [session.delivery(1) for _ in range(3)]
    for away in taken:
        session.settle(away.id, state=Modified(undeliverable_here=True))
    session.allow(1, 10, count=3)
    session.expect_silence()
    session.receives(node, 2, 10)
    again = [session.delivery(2) for _ in range(3)]
    assert [delivery.payload[-4:] for delivery in again] == [delivery.payload[-4:] for delivery in taken]
    session.settle(again[0].id, again[-1].id)


@pytest.mark.spec("amqp-1.0", "2.7.3")
def test_a_message_beyond_the_max_message_size_of_a_link_is_left_to_other_links(
    session: PeerSession10, node: str
) -> None:
    session.sends(node)
    session.transfer(0, bare10(body=b"\0Su\xb0\0\0\x10\0" + bytes(4096)), 0)
    assert session.outcome(0) == Accepted()
    session.publish(0, 1, first=1)
    session.write(
        Attach(
            name="small",
            handle=1,
            role=True,
            source=Source(address=node),
            target=Target(),
            max_message_size=2048,
        )
    )
    session.expect(Attach)
    session.allow(1, 10)
    assert len(session.delivery(1).payload) < 1000
    session.expect_silence()
    session.receives(node, 2, 10)
    assert len(session.delivery(2).payload) > 4096


@pytest.mark.spec("amqp-1.0", "2.5")
def test_sessions_and_links_are_shown(session: PeerSession10, node: str, api: Api) -> None:
    session.sends(node)
    session.receives(node, 1, 7)
    shown = [
        each
        for connection in api.get("connections")
        if connection["protocol"] == "AMQP 1-0"
        for each in api.get("connections", connection["name"], "sessions")
    ]
    links = [link for each in shown for link in each["outgoing_links"] if link["queue_name"] == node]
    assert [(link["handle"], link["credit"], link["send_settled"]) for link in links] == [(1, 7, False)]
    links = [link for each in shown for link in each["incoming_links"] if link["target_routing_key"] == node]
    assert [(link["handle"], link["credit"]) for link in links] == [(0, 1000)]
