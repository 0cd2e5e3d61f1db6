"""Journals of a broker with known faults, for any reader.

A broker of two queues and four consumers is played event by event. A fault changes the events of one message.
The events are then numbered and written as the broker writes them, in files of a few hundred events. In the
middle the broker crashes: there is a gap, and each queue says what it holds.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from protocol.journal import records as r
from protocol.journal.encoder import Encoder
from protocol.journal.names import LINK, QUEUE, ROUTE, SESSION, Name
from tests.support.journal.handmade_journal import NODE, STARTED, write_file

MESSAGES: Final = 120
CRASH_AFTER: Final = 60
LAG: Final = 6  # messages that are in the queues at any time
EVENTS_OF_FILE: Final = 100
FULL: Final = r.reason_number("full")
SHUTDOWN: Final = r.reason_number("shutdown")

QUEUES: Final = (Name(1, QUEUE, ("/", "one", "7")), Name(2, QUEUE, ("/", "two", "8")))
ROUTES: Final = (Name(3, ROUTE, ("", "one")), Name(4, ROUTE, ("", "two")))
PUBLISHER: Final = Name(5, SESSION, ("9.9.9.9:1 -> 5672", "1", "app", "9.9.9.9:1"))
FIRST: Final = Name(6, LINK, ("c1", "1.1.1.1:1 -> 5672", "1", "app", "1.1.1.1:1"))
OTHER_CONSUMER: Final = Name(7, LINK, ("c2", "1.1.1.1:1 -> 5672", "1", "app", "1.1.1.1:1"))
OTHER_CHANNEL: Final = Name(8, LINK, ("c1", "1.1.1.1:1 -> 5672", "2", "app", "1.1.1.1:1"))
OTHER_CONNECTION: Final = Name(9, LINK, ("c1", "2.2.2.2:2 -> 5672", "1", "app", "2.2.2.2:2"))
NAMES: Final = (*QUEUES, *ROUTES, PUBLISHER, FIRST, OTHER_CONSUMER, OTHER_CHANNEL, OTHER_CONNECTION)


class Event(NamedTuple):
    """An event. `missing`: seqs skipped before it; `excused`: how many of them a gap explains."""

    op: int
    queue: Name | None = None
    uid: int = 0
    actor: Name | None = None
    size: int = 0
    reason: int = 0
    missing: int = 0
    excused: int = 0


Life = list[Event]
Fault = Callable[[Life], Life]


def life(uid: int) -> Life:
    """A message comes, is delivered and acknowledged, as it should be."""
    queue = QUEUES[uid % 2]
    return [
        Event(r.ENQUEUE, queue, uid, PUBLISHER, 10),
        Event(r.DELIVER, queue, uid, FIRST, 10),
        Event(r.ACK, queue, uid, FIRST, 10),
    ]


def acked_by(actor: Name) -> Fault:
    """Let another consumer acknowledge."""
    return lambda events: [*events[:-1], events[-1]._replace(actor=actor)]


def to_two(events: Life) -> Life:
    """Deliver the message to a second consumer while the first consumer still owns it."""
    enqueue, deliver, ack = events
    return [enqueue, deliver, deliver._replace(actor=OTHER_CONSUMER), ack]


def to_two_and_back(events: Life) -> Life:
    """Deliver to a second consumer, and return the first delivery before the second acknowledges."""
    enqueue, deliver, ack = events
    second = deliver._replace(actor=OTHER_CONSUMER)
    back = deliver._replace(op=r.REQUEUE, reason=r.reason_number("nack"))
    return [enqueue, deliver, second, back, ack._replace(actor=OTHER_CONSUMER)]


def never_delivered(events: Life) -> Life:
    """The message is acknowledged, and nobody has had it."""
    return [event for event in events if event.op != r.DELIVER]


def returned_first(events: Life) -> Life:
    """The message is acknowledged after it was given back."""
    enqueue, deliver, ack = events
    return [enqueue, deliver, deliver._replace(op=r.REQUEUE, reason=r.reason_number("nack")), ack]


def of_another_queue(events: Life) -> Life:
    """Acknowledge for the other queue."""
    *others, ack = events
    (queue,) = (each for each in QUEUES if each is not ack.queue)
    return [*others, ack._replace(queue=queue)]


def never_enqueued(events: Life) -> Life:
    """The enqueue was never written."""
    return [event for event in events if event.op != r.ENQUEUE]


FAULTS: Final[dict[str, Fault]] = {
    "to two consumers": to_two,
    "to two consumers and back": to_two_and_back,
    "acked by another consumer": acked_by(OTHER_CONSUMER),
    "acked by another channel": acked_by(OTHER_CHANNEL),
    "acked by another connection": acked_by(OTHER_CONNECTION),
    "acked without a delivery": never_delivered,
    "acked after it came back": returned_first,
    "acked in another queue": of_another_queue,
    "never enqueued": never_enqueued,
}
"""The faults, by what they do to one message."""


def written(folder: Path, planted: dict[int, str], missing: int = 0, excused: int = 0) -> None:
    """Write a journal in which some messages, by their numbers from 1 on, have the fault of this name.

    `missing`: so many events are lost before the gap of the crash, which says that `excused` are.
    """
    events = [Event(r.DECLARE, queue, reason=FULL) for queue in QUEUES]
    waiting: list[Life] = []
    for uid in range(1, MESSAGES + 1):
        steps = life(uid)
        if uid in planted:
            steps = FAULTS[planted[uid]](steps)
        events += [event for event in steps if event.op == r.ENQUEUE]
        waiting.append([event for event in steps if event.op != r.ENQUEUE])
        if len(waiting) > LAG:
            events += waiting.pop(0)
        if uid == CRASH_AFTER:
            events += crashed([steps for steps in waiting if steps], missing, excused)
    for rest in waiting:
        events += rest
    events += [Event(r.CHECKPOINT, queue, reason=SHUTDOWN) for queue in QUEUES]  # both are empty
    _write(folder, events)


def crashed(waiting: list[Life], missing: int, excused: int) -> list[Event]:
    """The events of a restart after a crash."""
    events = [Event(r.GAP, missing=missing, excused=excused)]
    for queue in QUEUES:
        here = [steps for steps in waiting if steps[0].queue is queue]
        events += [Event(r.RECOVER, queue, steps[0].uid, size=10) for steps in here]
        events.append(Event(r.RECOVER, queue, size=len(here), reason=FULL))
    return events


def _write(folder: Path, events: list[Event]) -> None:
    for name in NAMES:
        name.file = 0  # no file of this journal has explained it
    encoder = Encoder(NODE, 1)
    time = STARTED
    for start in range(0, len(events), EVENTS_OF_FILE):
        header = encoder.header(time)
        data = b""
        for event in events[start : start + EVENTS_OF_FILE]:
            if event.missing:
                data += encoder.take()
                encoder.seq += event.missing
            time += 1000
            _record(encoder, time, event)
        write_file(folder, header + data + encoder.take())
        encoder.end_file()


def _record(encoder: Encoder, time: int, event: Event) -> None:
    is_gap, is_enqueue = event.op == r.GAP, event.op == r.ENQUEUE
    encoder.record(
        time,
        event.op,
        event.uid,
        event.uid or -1,
        encoder.seq - event.excused if is_gap else 0,
        event.queue,
        ROUTES[event.uid % 2] if is_enqueue else None,
        event.actor,
        event.excused if is_gap else event.size,
        r.PERSISTENT if is_enqueue else 0,
        event.reason,
        0,
        b"",
    )
