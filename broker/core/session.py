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
    """The consumer targets of one session.

    `number`: its channel. `name`: what the journal calls it, once it has been asked.
    `flow`: the peer lets the broker deliver [AMQP 0-9-1 channel.flow].
    """

    def __init__(self, connection: Connection, number: i64 = 0) -> None:
        self.connection = connection
        self.number = number
        self.name: object | None = None
        self.flow: bool = True
        self.targets: dict[ConsumerTarget, None] = {}
        connection.sessions[self] = None

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
