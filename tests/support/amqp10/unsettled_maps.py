"""Links that come back, and their maps of unsettled deliveries. [amqp-1.0 2.6.13, 2.7.3]"""

from collections.abc import Mapping
from typing import Any, Final

from protocol.amqp10.composing import compose, decompose
from protocol.amqp10.composites import DeliveryState, Source
from protocol.amqp10.performatives import Attach, Transfer
from protocol.amqp10.types import Composite
from tests.support.amqp10.peer_session import Delivery, PeerSession10

MINUTE: Final = 60


def unsettled(states: Mapping[bytes, DeliveryState | None]) -> dict[bytes, object]:
    """The map of an attach."""
    return {tag: None if state is None else decompose(state) for tag, state in states.items()}


def unsettled_map_of(answer: Attach) -> dict[bytes, Composite | None] | None:
    """The map in an attach of the broker's."""
    found = answer.unsettled
    return None if found is None else {tag: None if it is None else compose(it) for tag, it in found.items()}


def attach_receiver(
    session: PeerSession10,
    queue: str,
    states: Mapping[bytes, DeliveryState | None] | None = None,
    credit: int = 0,
    timeout: int = MINUTE,
    **fields: Any,
) -> Attach:
    """Attach a receiver whose source is kept for a minute, with the unsettled map of an earlier link."""
    source = Source(address=f"/queues/{queue}", timeout=timeout)
    return session.receives(
        None,
        credit=credit,
        source=source,
        unsettled=None if states is None else unsettled(states),
        **fields,
    )


def suspend(session: PeerSession10) -> None:
    """Detach the link, which may come back."""
    session.detach(closed=False)


def expect_resumed(session: PeerSession10, tag: bytes) -> Delivery:
    """The next delivery, which has been sent before."""
    delivery = session.delivery()
    assert (delivery.tag, delivery.transfer.resume, delivery.settled) == (tag, True, False)
    return delivery


def expect_concluded(session: PeerSession10, tag: bytes, state: Composite) -> None:
    """Expect the settlement of a delivery whose state this side has sent."""
    frame, payload = session.read()
    assert isinstance(frame, Transfer)
    assert (frame.delivery_tag, frame.resume, frame.settled, frame.more) == (tag, True, True, False)
    assert (frame.state, payload) == (state, b"")
