"""The time limits of deliveries, and the release of deliveries that are not settled in time."""

from __future__ import annotations

from typing import Final

import structlog
from mypy_extensions import i64

from broker.core.counters import Counters
from broker.core.queues.lease import Lease, LeaseHolder
from broker.core.schedule import Schedule

SWEEP_MIN: Final = 16  # leases that are kept, used or unused
LOG_INTERVAL: Final = 60_000  # milliseconds between log lines about a channel

_log = structlog.get_logger("amqpd.channel")


class Leases(LeaseHolder):
    """The leases of the consumers of a channel or session, a Lease for each length.

    Deliveries are identified by numbers, which the subclass resolves.
    """

    def __init__(self, schedule: Schedule, counters: Counters) -> None:
        self._schedule = schedule
        self._counters = counters
        self._by_length: dict[int, Lease] = {}
        self._sweep_at: i64 = SWEEP_MIN
        self._unlogged: i64 = 0
        self._log_at: i64 = 0

    # -- implemented by the subclass, as is `is_unsettled`

    def used_leases(self) -> set[Lease | None]:
        """Return the leases that consumers have."""
        raise NotImplementedError

    def end(self, numbers: list[i64]) -> None:
        """Release these deliveries."""
        raise NotImplementedError

    def identify(self) -> tuple[str, str, i64]:
        """Return the peer, the user and the channel, for the log."""
        raise NotImplementedError

    # -- for consumers and the schedule

    def get_lease(self, milliseconds: i64) -> Lease:
        """Return the lease of this length."""
        length: int = milliseconds
        lease = self._by_length.get(length)
        if lease is None:
            if len(self._by_length) >= self._sweep_at:
                self._sweep()
            lease = Lease(self._schedule, self, milliseconds)
            self._by_length[length] = lease
        return lease

    def on_leases_ended(self, numbers: list[i64]) -> None:
        """Release deliveries."""
        self._counters.timed_out += len(numbers)
        self._log_late(numbers)
        self.end(numbers)

    def stop(self) -> None:
        """Stop all leases: every delivery has been released."""
        for lease in self._by_length.values():
            lease.stop()
        self._by_length.clear()

    def _sweep(self) -> None:
        """Forget leases without consumers and deliveries: the number of different lengths is unlimited."""
        used = self.used_leases()
        for length, lease in list(self._by_length.items()):
            if lease not in used and lease.is_idle():
                lease.stop()
                del self._by_length[length]
        self._sweep_at = 2 * len(self._by_length) + SWEEP_MIN

    def _log_late(self, numbers: list[i64]) -> None:
        """Log late deliveries, at most once in LOG_INTERVAL."""
        self._unlogged += len(numbers)
        now = self._schedule.now()
        if now < self._log_at:
            return
        peer, user, channel = self.identify()
        _log.warning(
            "deliveries were not settled in time",
            peer=peer,
            user=user,
            channel=int(channel),
            count=int(self._unlogged),
            latest_tag=numbers[-1],
        )
        self._unlogged = 0
        self._log_at = now + LOG_INTERVAL
