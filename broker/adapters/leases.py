"""The deliveries of a channel that must be settled in time, and what becomes of those that are not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import structlog
from mypy_extensions import i64

from broker.adapters.settling import requeue
from broker.core.lease import Lease, LeaseHolder
from broker.core.outcome import TIMEOUT
from protocol.errors import PRECONDITION_FAILED

if TYPE_CHECKING:
    from broker.adapters.channel091 import Channel

SWEEP_MIN: Final = 16  # so many leases are kept, used or not
TELL_INTERVAL: Final = 60_000  # milliseconds between lines of the log about one channel

_log = structlog.get_logger("amqpd.channel")


@final
class Leases(LeaseHolder):
    """One Lease for each length that the consumers of a channel have; deliveries are known by their tags."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._by_length: dict[int, Lease] = {}
        self._sweep_at: i64 = SWEEP_MIN
        self._untold: i64 = 0
        self._tell_at: i64 = 0

    def lasting(self, milliseconds: i64) -> Lease:
        """The lease of this length."""
        length: int = milliseconds
        lease = self._by_length.get(length)
        if lease is None:
            if len(self._by_length) >= self._sweep_at:
                self._sweep()
            lease = Lease(self._channel.virtual_host.schedule, self, milliseconds)
            self._by_length[length] = lease
        return lease

    def _sweep(self) -> None:
        """Forget the leases that no consumer and no delivery has: there is no end of different lengths."""
        targets = self._channel.targets.values()
        used = {consumer.lease for target in targets for consumer in target.consumers}
        for length, lease in list(self._by_length.items()):
            if lease not in used and lease.is_idle():
                lease.stop()
                del self._by_length[length]
        self._sweep_at = 2 * len(self._by_length) + SWEEP_MIN

    def is_unsettled(self, number: i64) -> bool:
        """Whether the delivery with this tag is still to be settled (LeaseHolder)."""
        channel = self._channel
        if channel.unacked.find(number) is not None:
            return True
        return channel.transaction is not None and number in channel.transaction.tags()

    def leases_ended(self, numbers: list[i64]) -> None:
        """Release deliveries; if the client settles them after all, that is no error (LeaseHolder).

        But what a transaction has settled cannot be taken out of it: it is rolled back with the channel.
        """
        channel = self._channel
        unacked = channel.unacked
        channel.server.counters.timed_out += len(numbers)
        self._tell(numbers)
        if channel.transaction is not None and not channel.transaction.tags().isdisjoint(numbers):
            text = f"transaction of {len(channel.transaction.tags())} settlements was not committed in time"
            channel.fail(PRECONDITION_FAILED, text, 0)
            channel.connection.answer()
            return
        unacked.forgive(numbers)
        requeue(channel, numbers, TIMEOUT)

    def _tell(self, numbers: list[i64]) -> None:
        """Log it, but not for each message."""
        channel = self._channel
        self._untold += len(numbers)
        now = channel.virtual_host.schedule.now()
        if now < self._tell_at:
            return
        _log.warning(
            "deliveries were not settled in time",
            peer=channel.connection.peer,
            user=channel.connection.user,
            channel=channel.number,
            count=int(self._untold),
            latest_tag=numbers[-1],
        )
        self._untold = 0
        self._tell_at = now + TELL_INTERVAL

    def stop(self) -> None:
        """The channel has let everything go."""
        for lease in self._by_length.values():
            lease.stop()
        self._by_length.clear()
