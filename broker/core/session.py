"""A session of a connection (0-9-1: a channel), as far as dispatch is concerned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64, mypyc_attr

from broker.core.suspending import close_together, update_together

if TYPE_CHECKING:
    from broker.core.connection import Connection
    from broker.core.consumer_target import ConsumerTarget


@mypyc_attr(allow_interpreted_subclasses=True)
class Session:
    """The consumer targets of one session and which of them have work, in the order in which they asked.

    `number`: its channel. `name`: what the journal calls it, once it has been asked.
    `flow`: the peer lets the broker deliver [AMQP 0-9-1 channel.flow]. `pending`: it waits in its connection.
    """

    def __init__(self, connection: Connection, number: i64 = 0) -> None:
        self.connection = connection
        self.number = number
        self.name: object | None = None
        self.flow: bool = True
        self.targets: dict[ConsumerTarget, None] = {}
        self.first_pending: ConsumerTarget | None = None
        self.last_pending: ConsumerTarget | None = None
        self.pending: bool = False
        self.next_pending: Session | None = None
        connection.sessions[self] = None

    def notify_work(self, target: ConsumerTarget) -> None:
        """`target`, which is not pending, has work."""
        self._append(target)
        if not self.pending:
            self.connection.notify_work(self)

    def process_pending(self, quota: i64) -> i64:
        """Give one target its turn of up to `quota` messages, and put it to the back if it has more to do.

        Returns how many messages were delivered. `first_pending` tells whether there is more to do.
        """
        target = self.first_pending
        if target is None:
            return 0
        self.first_pending = target.next_pending
        if self.first_pending is None:
            self.last_pending = None
        target.next_pending = None
        target.pending = False
        delivered = target.process_pending(quota)
        if target.again and not target.pending:
            self._append(target)
        return delivered

    def set_flow(self, active: bool) -> None:
        """The peer stops (False) or restarts deliveries."""
        if active != self.flow:
            self.flow = active
            self.update()

    def update(self) -> None:
        """Recompute whether the targets want work: the connection or the flow has changed."""
        update_together(list(self.targets))

    def close_targets(self) -> None:
        """The session ends: close every target, so that none of them catches what another one gives back.

        Call this first, then remove the consumers, then release what else the session holds.
        """
        close_together(list(self.targets))
        self.connection.sessions.pop(self, None)

    def _append(self, target: ConsumerTarget) -> None:
        target.pending = True
        if self.last_pending is None:
            self.first_pending = target
        else:
            self.last_pending.next_pending = target
        self.last_pending = target
