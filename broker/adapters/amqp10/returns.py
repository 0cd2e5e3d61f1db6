"""Unsettled deliveries by their links, and their outcome when a link ends. [amqp-1.0 2.6.12]"""

from __future__ import annotations

from mypy_extensions import i64

from broker.adapters.amqp10.state import Session10State
from broker.adapters.amqp10.target import Target10
from broker.core.arguments.queue import CRASH
from broker.core.entries.entry import QueueEntry
from broker.core.queues.consumer import ConsumerTarget, QueueConsumer
from broker.core.schedule import ENTRIES


def by_target(session: Session10State) -> dict[ConsumerTarget, list[i64]]:
    """Return the numbers of all deliveries that are not settled, oldest first, by their targets."""
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
    """Return numbers of unsettled deliveries that include all of `target`."""
    if session.let_go_of is not None:
        return session.let_go_of.get(target, [])
    numbers = session.unsettled.up_to(0)
    session.vhost.schedule.allowance.use(len(numbers) // ENTRIES)
    return numbers


def held_by(session: Session10State, target: ConsumerTarget) -> dict[QueueConsumer, list[QueueEntry]]:
    """Remove a receiver's deliveries from `unsettled` and return them, oldest first."""
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
    """Return the outcome of a delivery to which its receiver has given none."""
    target = consumer.target
    return target.abandoned if isinstance(target, Target10) else CRASH
