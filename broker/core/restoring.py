"""Entries from before a restart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from broker.core.annotating import restore_annotations
from broker.core.dead_letter import marked_reason
from broker.core.dead_letter_backlog import backlog_of
from broker.core.delaying import delay
from broker.core.message import DELAYED, REMEMBERED, Message
from broker.core.rules import Rules

if TYPE_CHECKING:
    from broker.core.queue import Queue


def restore(
    queue: Queue, message: Message, redelivered: bool, delivery_count: i64 = 0, annotations: bytes = b""
) -> bool:
    """Link a recovered `message`, before there are consumers. Recovery calls this in the log's order.

    One that was held until its date is held again, and one that waited to be dead-lettered waits again. What
    is not a message but what the queue remembers of one is remembered again; false if the queue remembers
    nothing any more.
    What its time, which has gone on, and the queue's limits ask for is done when the broker runs.
    """
    if message.marks & REMEMBERED:
        if queue.memory is not None:
            queue.memory.restore(message)
        return queue.memory is not None
    topology = queue.topology
    if topology is None and queue.rules is not None and queue.rules.timetable is not None:
        queue.rules.timetable.add(message)  # it is an exchange's
        return True
    if topology is not None and message.marks & DELAYED != 0:
        delay(queue, topology, message)
        return True
    latest = queue.entries.latest
    if latest is not None:
        latest.set_aside(message)
    if topology is not None and marked_reason(delivery_count) >= 0:
        backlog_of(queue, topology).restore(queue.link(message), delivery_count, annotations)
        return True
    entry = queue.link(message)
    entry.redelivered = redelivered
    entry.delivery_count = delivery_count
    if annotations:
        restore_annotations(queue, entry, annotations)
    if message.expiration >= 0 and queue.rules is None and topology is not None:
        queue.rules = Rules(queue, topology)
    if queue.rules is not None:
        queue.rules.restored(entry)
    return True
