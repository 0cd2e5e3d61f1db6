"""The deliveries that receivers have not settled, and how these come back. [amqp-1.0 2.6.12]"""

from __future__ import annotations

from mypy_extensions import i64

from broker.adapters.amqp10.state import Session10State
from broker.adapters.amqp10.target import Target10
from broker.core.arguments.queue import CRASH
from broker.core.entries.entry import QueueEntry
from broker.core.queues.consumer import ConsumerTarget, QueueConsumer
from broker.core.schedule import ENTRIES


def by_target(session: Session10State) -> dict[ConsumerTarget, list[i64]]:
    """The numbers of all deliveries that are not settled, oldest first, by who has them."""
    unsettled = session.unsettled
    numbers = unsettled.up_to(0)
    session.vhost.schedule.allowance.use(len(numbers) // ENTRIES)
    found: dict[ConsumerTarget, list[i64]] = {}
    for number in numbers:
        unsettled.find(number)
        consumer = unsettled.holder
        if consumer is not None:
            found.setdefault(consumer.target, []).append(number)
    return found


def numbers_of(session: Session10State, target: ConsumerTarget) -> list[i64]:
    """The numbers of deliveries among which are all that `target` has and that are not settled."""
    if session.let_go_of is not None:
        return session.let_go_of.get(target, [])
    numbers = session.unsettled.up_to(0)
    session.vhost.schedule.allowance.use(len(numbers) // ENTRIES)
    return numbers


def held_by(session: Session10State, target: ConsumerTarget) -> dict[QueueConsumer, list[QueueEntry]]:
    """What a link's receiver has not settled, oldest first, which nobody can settle from now on."""
    unsettled = session.unsettled
    held: dict[QueueConsumer, list[QueueEntry]] = {}
    for number in numbers_of(session, target):
        entry = unsettled.find(number)
        consumer = unsettled.holder
        if entry is not None and consumer is not None and consumer.target is target:
            unsettled.take(number)
            held.setdefault(consumer, []).append(entry)
    return held


def abandoned(consumer: QueueConsumer) -> i64:
    """How deliveries come back whose receiver does not say how."""
    target = consumer.target
    return target.abandoned if isinstance(target, Target10) else CRASH
