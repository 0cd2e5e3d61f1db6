"""The deliveries of a session that must be settled in time. [RabbitMQ consumer_timeout]"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from broker.adapters.leasing import Leases
from broker.core.arguments.queue import TIMEOUT
from broker.core.entries.entry import QueueEntry
from broker.core.queues import returns
from broker.core.queues.consumer import QueueConsumer
from broker.core.queues.lease import Lease, lease_milliseconds
from broker.core.queues.queue import Queue
from protocol.amqp10.outcomes import RELEASED_VALUE
from protocol.amqp10.outgoing import disposition

if TYPE_CHECKING:
    from broker.adapters.amqp10.session import Session10


@final
class SessionLeases(Leases):
    """Deliveries are known by their numbers."""

    def __init__(self, session: Session10) -> None:
        super().__init__(session.vhost.schedule, session.peer.server.counters)
        self._session = session

    def used(self) -> set[Lease | None]:
        """Those of its links (Leases)."""
        return {consumer.lease for target in self._session.targets for consumer in target.consumers}

    def is_unsettled(self, number: i64) -> bool:
        """Whether the delivery of this number is still to be settled (LeaseHolder)."""
        return self._session.unsettled.find(number) is not None

    def end(self, numbers: list[i64]) -> None:
        """Release deliveries, and say so: settling them after all does nothing (Leases)."""
        session = self._session
        unsettled = session.unsettled
        runs: dict[QueueConsumer, list[QueueEntry]] = {}
        for number in numbers:
            entry = unsettled.take(number)
            consumer = unsettled.holder
            if entry is None or consumer is None:
                continue
            runs.setdefault(consumer, []).append(entry)
            delivery_id = number - 1 & 0xFFFFFFFF
            session.peer.out.write(
                disposition(session.channel, False, delivery_id, delivery_id, True, RELEASED_VALUE)
            )
        returns.give_back(list(runs.items()), TIMEOUT, session, session.vhost)
        session.peer.end_turn()

    def whose(self) -> tuple[str, str, i64]:
        """Whose session it is (Leases)."""
        session = self._session
        return session.peer.peer, session.peer.user, session.channel


def lease_of(session: Session10, queue: Queue, asked: object) -> Lease | None:
    """Return what limits the time of a delivery of `queue` to a new link, None if nothing does.

    `asked`: the milliseconds that the link asks for, which have been checked; None: it does not.
    """
    milliseconds = lease_milliseconds(queue, asked, session.peer.server.consumer_timeout)
    if milliseconds == 0:
        return None
    if session.leases is None:
        session.leases = SessionLeases(session)
    return session.leases.lasting(milliseconds)
