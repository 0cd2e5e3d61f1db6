"""Deliveries that an earlier link of the same name received, and that its sender has not settled.

[amqp-1.0 2.6.13] The sender says with its attach which of them it knows, and is told what became of each.
What it settles, or does not know any more, is forgotten; what it resumes has the outcome that it had.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, final

from broker.adapters.amqp10.suspended import Expiry
from protocol.amqp10.conditions import ILLEGAL_STATE, PeerError
from protocol.amqp10.descriptors import TRANSACTIONAL_STATE

if TYPE_CHECKING:
    from broker.adapters.amqp10.incoming import IncomingLink

NOTHING_RECEIVED: Final = (
    b"\x00\x53\x23\xc0\x03\x02\x43\x44"  # received(0, 0): all of it has to be sent again
)
_TRANSACTIONAL: Final = bytes((0x00, 0x53, TRANSACTIONAL_STATE))


@final
class Remembered:
    """By their tags the outcomes, encoded, or NOTHING_RECEIVED of what has not come as a whole.

    `incomplete`: the sender does not know of all of them, or has not said all that it knows.
    """

    def __init__(self, outcomes: dict[bytes, bytes], incomplete: bool) -> None:
        self.outcomes = outcomes
        self.incomplete = incomplete

    def keep_known(self, tags: Mapping[bytes, object]) -> None:
        """The sender has said which deliveries it has: all others are settled."""
        self.outcomes = {tag: outcome for tag, outcome in self.outcomes.items() if tag in tags}

    def admit(self, tag: bytes) -> None:
        """A delivery that is new. Raises PeerError."""
        if self.incomplete:
            raise PeerError(
                ILLEGAL_STATE, "a new delivery on a link whose unsettled deliveries are not all known"
            )
        outcome = self.outcomes.get(tag)
        if outcome is not None and outcome != NOTHING_RECEIVED:
            text = f"a new delivery has the delivery-tag of one that is unsettled: {tag.hex()}"
            raise PeerError(ILLEGAL_STATE, text)
        self.outcomes.pop(tag, None)


def remember(link: IncomingLink, expiry: Expiry) -> None:
    """Have what a link has received, and its sender has not settled, wait for a link that resumes it.

    Of a transaction nothing is left when its session ends; and a receiver that settles first has nothing
    unsettled but what has not come as a whole.
    """
    session = link.session
    suspended = session.peer.server.link_names.suspend(session, link.name, True, expiry)
    if suspended is None:
        return
    received = suspended.received
    if link.remembered is not None:
        received.update(link.remembered.outcomes)
    if link.second:
        outcomes, suspended.batch = session.owed.answers.owed_to(link)
        outcomes.update(session.halves.told(link))
        for delivery_id, tag in link.tags.named():
            outcome = outcomes.get(delivery_id)
            if outcome is not None and not outcome.startswith(_TRANSACTIONAL):
                received[tag] = outcome
    if link.is_under_way():
        received[link.tag] = NOTHING_RECEIVED
    if received:
        suspended.wait(session)
    else:
        suspended.resumed()


def resume(link: IncomingLink) -> bool:
    """The sender resumes a delivery; whether it is one that has yet to come as a whole.

    Any other has its outcome, or is none of this side's business: what comes with it is dropped.
    """
    remembered = link.remembered
    if remembered is None or remembered.outcomes.get(link.tag) != NOTHING_RECEIVED:
        return False
    del remembered.outcomes[link.tag]
    return True


def conclude(link: IncomingLink, settled: bool) -> None:
    """Say once more what became of a delivery that has been resumed, unless the sender has settled it.

    Raises PeerError.
    """
    remembered = link.remembered
    outcome = None if remembered is None else remembered.outcomes.pop(link.tag, None)
    if outcome is not None and not settled:
        link.claim()
        link.owe(link.delivery_id, outcome, False)
