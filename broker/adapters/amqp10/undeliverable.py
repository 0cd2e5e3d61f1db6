"""Deliveries that a receiver sends away as undeliverable here, with `modified`. [amqp-1.0 3.4.5]

Such a message goes back to its queue for other consumers. If no other consumer could take the message, and
the queue dead-letters what is rejected, the message is dead-lettered, with the annotations that the receiver
has added; also later, when the last other consumer leaves (broker.core.queues.undeliverable).
[RabbitMQ rabbit_amqp_session: modified with undeliverable-here discards]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from broker.adapters.amqp10.reach import exclude
from broker.adapters.amqp10.target import Target10
from broker.core.entries.entry import QueueEntry
from broker.core.queues import returns
from broker.core.queues.consumer import QueueConsumer
from broker.core.queues.death import REJECTED
from broker.core.queues.returns import DEAR, Addition, Later, Run, are_few, discard_all
from broker.core.queues.undeliverable import Reach

if TYPE_CHECKING:
    from broker.adapters.amqp10.session import Session10


def may_die(consumer: QueueConsumer) -> bool:
    """Whether the queue of a link's consumer dead-letters what no other consumer could take."""
    rules = consumer.queue.rules
    if rules is None or not rules.moves(REJECTED):
        return False
    return consumer.acquires and isinstance(consumer.target, Target10)


def send_away(session: Session10, runs: list[Run], outcome: i64, addition: Addition | None) -> None:
    """Give deliveries to other consumers of their queues, or dead-letter them.

    `outcome`: how they go back, as NACK. `addition`: what is added to their messages.
    """
    dying = [run for run in runs if may_die(run[0])]
    back = [run for run in runs if not may_die(run[0])]
    for consumer, entries in back:
        _keep_away(consumer, entries)
    if back:
        returns.give_back(back, outcome, session, session.vhost, addition)
    if not dying:
        return
    later = SentAway(dying, session, outcome, addition)
    if are_few(dying):
        later.take_all()
    else:
        later.begin()


def _keep_away(consumer: QueueConsumer, entries: list[QueueEntry]) -> None:
    """Have none of `entries` be delivered again to the link that had them."""
    target = consumer.target
    if consumer.acquires and isinstance(target, Target10):
        exclude(consumer, entries, target.link.full_name())


@final
class SentAway(Later):
    """Deliveries that are undeliverable to their link, and perhaps to everybody."""

    def __init__(self, runs: list[Run], session: Session10, outcome: i64, addition: Addition | None) -> None:
        super().__init__(runs, session, session.vhost)
        self._virtual_host = session.vhost
        self._outcome = outcome
        self._addition = addition

    def take_all(self) -> None:
        """Have all of them leave in this turn."""
        runs = self.rest()
        while runs:
            consumer, entries = runs.pop()
            entries.reverse()
            self.take(entries, consumer)

    def take(self, entries: list[QueueEntry], consumer: QueueConsumer) -> None:
        """Dead-letter the entries that no other consumer could take, and give back the rest (Later)."""
        others = Reach(consumer.queue, consumer.target)
        back: list[QueueEntry] = []
        dead: list[QueueEntry] = []
        for entry in entries:
            if entry.is_with(consumer):
                (back if others.could_take(entry) else dead).append(entry)
        if back:
            _keep_away(consumer, back)
            returns.give_back(
                [(consumer, back)], self._outcome, self.session, self._virtual_host, self._addition
            )
        if dead:
            if self._addition is not None:
                self._addition.add(dead, consumer)
            discard_all(consumer.queue, dead, consumer)

    def cost(self, entry: QueueEntry, consumer: QueueConsumer) -> i64:
        """Return the cost of a dead letter (Later)."""
        return DEAR if self._addition is None else DEAR + self._addition.cost
