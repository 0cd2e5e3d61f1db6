"""The deliveries of a channel that must be settled in time. [RabbitMQ consumer_timeout]"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from broker.adapters.leasing import Leases
from broker.adapters.settling import requeue
from broker.core.arguments.queue import TIMEOUT
from broker.core.queues.lease import Lease
from protocol.errors import PRECONDITION_FAILED

if TYPE_CHECKING:
    from broker.adapters.channel091 import Channel


@final
class ChannelLeases(Leases):
    """Deliveries are known by their tags."""

    def __init__(self, channel: Channel) -> None:
        super().__init__(channel.virtual_host.schedule, channel.server.counters)
        self._channel = channel

    def used(self) -> set[Lease | None]:
        """Those of its consumers (Leases)."""
        targets = self._channel.targets.values()
        return {consumer.lease for target in targets for consumer in target.consumers}

    def is_unsettled(self, number: i64) -> bool:
        """Whether the delivery with this tag is still to be settled (LeaseHolder)."""
        channel = self._channel
        if channel.unacked.find(number) is not None:
            return True
        return channel.transaction is not None and number in channel.transaction.tags()

    def end(self, numbers: list[i64]) -> None:
        """Release deliveries; if the client settles them after all, that is no error (Leases).

        But what a transaction has settled cannot be taken out of it: it is rolled back with the channel.
        """
        channel = self._channel
        if channel.transaction is not None and not channel.transaction.tags().isdisjoint(numbers):
            text = f"transaction of {len(channel.transaction.tags())} settlements was not committed in time"
            channel.fail(PRECONDITION_FAILED, text, 0)
            channel.connection.answer()
            return
        channel.unacked.forgive(numbers)
        requeue(channel, numbers, TIMEOUT)

    def whose(self) -> tuple[str, str, i64]:
        """Whose channel it is (Leases)."""
        channel = self._channel
        return channel.connection.peer, channel.connection.user, channel.number
