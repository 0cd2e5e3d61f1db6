"""Delayed messages, which wait for their date before they are put into queues."""

from __future__ import annotations

from datetime import datetime
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from broker.core.arguments.rule import MILLISECONDS_MAX
from broker.core.errors import PreconditionFailed
from broker.core.message import BY_CLOCK, DELAYED, NOT_BY_CLOCK, NOT_DELAYED, Message, copy_of
from broker.core.message_view import MessageView, milliseconds
from broker.core.queues.limits import Limits
from broker.core.queues.queue import Queue
from broker.core.queues.source import BROKER, Source
from broker.core.routing.graph import Exchange, Keeper
from broker.core.routing.kinds import DELAY, delay_of
from broker.core.routing.virtual_host import RoutingHost
from broker.core.schedule import RETRY_MS, HeldMessage, Schedule, Timetable
from broker.core.values import show, type_name

DELIVERY_TIME: Final = "x-delivery-time"


def mark_delay(message: Message, view: MessageView, schedule: Schedule) -> None:
    """Mark a message that its headers delay, so that its queues delay it.

    Raises the errors of `due_date`.
    """
    date = due_date(view, schedule)
    if date != 0:
        message.date = date
        message.marks |= DELAYED if DELIVERY_TIME in view.headers() else DELAYED | BY_CLOCK


def due_date(view: MessageView, schedule: Schedule) -> i64:
    """Return the date, in ms since 1970, from which a message may be delivered; 0: at once.

    The header `x-delivery-time` counts, and without it `x-delay`.

    Raises:
        PreconditionFailed: `x-delivery-time` is no time, or too far away.
    """
    headers = view.headers()
    if DELIVERY_TIME not in headers:
        delay = delay_of(view)
        return schedule.date_after(delay) if delay > 0 else 0
    now = schedule.date()
    value = headers[DELIVERY_TIME]
    if isinstance(value, datetime):
        date = milliseconds(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        date = value
    else:
        raise _invalid(value, "is neither a timestamp nor milliseconds since 1970")
    if date > now + MILLISECONDS_MAX:
        raise _invalid(value, "is more than ten years away")
    return date if date > now else 0


def _invalid(value: object, why: str) -> PreconditionFailed:
    return PreconditionFailed(
        f"invalid message: header '{DELIVERY_TIME}' '{show(value)}' of type '{type_name(value)}' {why}"
    )


UNSYNCED_MAX: Final = 8 * 1024 * 1024  # while more bytes wait for the disk, no message is released
UNSYNCED_WAIT_MS: Final = 5
UNREADABLE_WAIT_MS: Final = 60_000


@mypyc_attr(allow_interpreted_subclasses=True)
class DelayedMessages(Timetable):
    """The messages that `queue` delays until their date, when a copy is sent on.

    To the log the copy is a new message, dated now, appended in one step with the end of the held one. So
    after a restart the copy is behind the messages that came before that date, as it was before. A delay in
    its headers is negated, as with RabbitMQ: consumers see the delay, and no exchange delays the message
    again.
    """

    def __init__(self, queue: Queue, host: RoutingHost) -> None:
        super().__init__(host.schedule)
        self.queue = queue
        self.host = host

    def send(self, copy: Message, keys: list[str], held: Message) -> bool:
        """Send `copy` on, instead of `held`; false if it cannot be accepted now."""
        raise NotImplementedError

    def is_refused(self, message: Message) -> bool:
        """Whether `message` certainly cannot be accepted now; found without its content."""
        return False

    def release(self, message: Message) -> i64:
        """Send a message that is due."""
        host = self.host
        store = host.store
        if store.failure and message.persistent:
            return RETRY_MS
        if store.unsynced_bytes > UNSYNCED_MAX:
            return UNSYNCED_WAIT_MS
        try:
            if self.is_refused(message):
                return self._postpone(message, RETRY_MS)
            view = host.views(message, store)
            content = message.content
            if delay_of(view) > 0:
                content = view.released_content(DELAY)
            elif content is None:
                content = store.load(message)
        except Exception:  # the disk cannot read it, or not now
            return self._postpone(message, UNREADABLE_WAIT_MS)
        keys = [message.address.routing_key, *view.further_keys()]
        copy = _copy(message, content)
        copy.date = host.schedule.date()
        if not self.send(copy, keys, message):
            return self._postpone(message, RETRY_MS)
        return 0

    def _postpone(self, message: Message, wait: i64) -> i64:
        """Delay a message for longer, so that other messages need not wait for it."""
        self.hold(message, self.host.schedule.date_after(wait), self.waits_by_clock(message))
        return 0


@final
class QueueDelays(DelayedMessages):
    """Messages that were published to `queue` itself with a delay, and are put into it when they are due."""

    def is_refused(self, message: Message) -> bool:
        """Whether the queue is full and refuses the message."""
        limits = self.queue.limits
        return limits is not None and limits.refuses(message) and not limits.passes_on

    def send(self, copy: Message, keys: list[str], held: Message) -> bool:
        """Put the message into the queue."""
        logged = held if held.sequence != 0 else None
        self.host.put_delayed(copy, self.queue, logged)
        return True

    def drop(self, held: HeldMessage) -> None:
        """Cancel a message, which is never put into the queue. The cancellation is logged."""
        message = held.message
        if message is None:
            return
        self.cancel(held)
        if self.queue.logged and message.sequence != 0:
            self.host.store.append_settle(message, self.queue)

    def move(self, held: HeldMessage, date: i64) -> HeldMessage | None:
        """Set another date for a message. The result is None if the message does not wait any more.

        To the log the message is new, in one step with the end of the old one.

        Raises:
            StoreFailed: the message is logged, and the log has stopped.
            OSError, LogDamaged: the content cannot be read.
        """
        message = held.message
        if message is None:
            return None
        if self.queue.logged and message.sequence != 0:
            store = self.host.store
            store.require()
            content = message.content
            moved = copy_of(message, store.load(message) if content is None else content)
            moved.date = date
            moved.marks = moved.marks & NOT_BY_CLOCK
            store.append_death(moved, [self.queue], message, self.queue)
            message = moved
        self.cancel(held)
        return self.hold(message, date, False)


def delay(queue: Queue, host: RoutingHost, message: Message, source: Source = BROKER) -> None:
    """Delay a message in `queue` until its date; the message was appended before if need be.

    A stream gets the message at once, because its rows cannot be changed later.
    """
    if queue.stream is not None:
        queue.enqueue(message, source)
        return
    delays_of(queue, host).add(message)


def delays_of(queue: Queue, host: RoutingHost) -> QueueDelays:
    """Return the delayed messages of `queue`, made when they are needed."""
    if queue.limits is None:
        queue.limits = Limits(queue, host)
    delays = queue.limits.timetable
    if delays is None:
        delays = QueueDelays(queue, host)
        queue.limits.timetable = delays
    assert isinstance(delays, QueueDelays), "a queue of clients"
    return delays


def count_delayed(queue: Queue) -> int:
    """Return how many messages `queue` delays until their date."""
    timetable = None if queue.limits is None else queue.limits.timetable
    return 0 if timetable is None else len(timetable)


def _copy(message: Message, content: bytes) -> Message:
    copy = copy_of(message, content)
    copy.marks = copy.marks & NOT_DELAYED
    return copy


@final
class Delays(Keeper):
    """The messages that a delayed exchange delays, each until its `date`."""

    def __init__(self, exchange: Exchange, queue: Queue, host: RoutingHost) -> None:
        super().__init__(queue, 1)
        self._timetable = _ExchangeDelays(exchange, queue, host)
        queue.limits = limits = Limits(queue, host)
        limits.timetable = self._timetable

    def __len__(self) -> int:
        return len(self._timetable)

    def add(self, message: Message) -> None:
        """Delay a message."""
        self._timetable.add(message)


@final
class _ExchangeDelays(DelayedMessages):
    """The messages that a delayed exchange delays, and routes when they are due."""

    def __init__(self, exchange: Exchange, queue: Queue, host: RoutingHost) -> None:
        super().__init__(queue, host)
        self._exchange = exchange

    def waits_by_clock(self, message: Message) -> bool:
        """True, because a delayed exchange knows no times of day."""
        return True

    def send(self, copy: Message, keys: list[str], held: Message) -> bool:
        """Route the message as the bindings are now."""
        return self.host.send_delayed(copy, self._exchange, keys, held, self.queue)
