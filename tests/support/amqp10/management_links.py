"""The pair of links of AMQP 1.0 to the node of management."""

from typing import Final

from protocol.amqp10.composites import Source, Target
from protocol.amqp10.performatives import Attach, Flow
from protocol.amqp10.types import Symbol
from tests.support.amqp10.peer_session import PeerSession10

PAIRED: Final[dict[str, object]] = {Symbol("paired"): True}


def pair(
    session: PeerSession10,
    responses_first: bool = True,
    credit: int = 10,
    handles: tuple[int, int] = (0, 1),
) -> None:
    """Attach both links, with these handles, and allow so many responses."""
    node = "/management"
    requests = Attach(
        name="pair",
        handle=handles[0],
        role=False,
        snd_settle_mode=1,
        source=Source(address=node),
        target=Target(address=node),
        initial_delivery_count=0,
        properties=PAIRED,
    )
    responses = Attach(
        name="pair",
        handle=handles[1],
        role=True,
        snd_settle_mode=1,
        source=Source(address=node),
        target=Target(address=node),
        properties=PAIRED,
    )
    for attach in (responses, requests) if responses_first else (requests, responses):
        session.write(attach)
        answer = session.expect(Attach)
        assert (answer.handle, answer.role) == (attach.handle, not attach.role)
        assert answer.properties == PAIRED
        if attach is requests:
            assert session.expect(Flow).link_credit == 100
    session.allow(handles[1], credit)
