"""Where a consumer's messages go: the broker's side of one client subscription.

[Qpid: AbstractConsumerTarget]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64, mypyc_attr

from broker.core.consumer import NON_ACQUIRING, NOTIFIED, QueueConsumer
from broker.core.context import SCAN_BUDGET, QueueContext
from broker.core.credit import Credit
from broker.core.entry import QueueEntry

if TYPE_CHECKING:
    from broker.core.session import Session


EFFORT_MAX: Final[i64] = SCAN_BUDGET  # what looking for messages may cost before others have their turn


@mypyc_attr(allow_interpreted_subclasses=True)
class ConsumerTarget:
    """One consumer tag or link.

    It pulls from the queues of its `consumers`, usually one, when it has its turn.

    `credit` is its own window; `session_credit`, if any, one that it shares with the session's other targets.
    Both are charged for every delivery, and whoever handles the client's answer calls `restore_credit`. Where
    no answer comes (0-9-1 no-ack, browsing) the window is unlimited and there is no shared one.
    `desired`: work is wanted: there is credit, the flow is on, the transport takes data, and it is not
    closed.
    `again`: after `process_pending`, whether it has more to do.

    A subclass implements `deliver`, and the other call-outs where it needs them. They must not call back into
    the queue, except that `deliver` may restore credit as its last act, and that `shown_all` removes the
    consumer.
    """

    def __init__(self, session: Session, credit: Credit, session_credit: Credit | None = None) -> None:
        self.session = session
        self.credit = credit
        self.session_credit = session_credit
        self.consumers: list[QueueConsumer] = []
        self.closed: bool = False
        self.desired: bool = False
        self.again: bool = False
        self.pending: bool = False
        self.next_pending: ConsumerTarget | None = None
        self.turn: i64 = 0
        session.targets[self] = None
        credit.targets[self] = None
        if session_credit is not None:
            session_credit.targets[self] = None
        self.desired = self.wants_work()

    # ---- what a subclass implements

    def deliver(self, consumer: QueueConsumer, entry: QueueEntry) -> None:
        """Send `entry.message` to the client.

        The entry is ACQUIRED by `consumer` (AVAILABLE if it browses).
        """
        raise NotImplementedError

    def no_messages_available(self, consumer: QueueConsumer) -> None:
        """`consumer` asked for an entry and there is none for it now, though it has credit."""

    def acquisition_removed(self, entry: QueueEntry) -> None:
        """A deleted queue has taken back what was with this target: settling or releasing it does nothing.

        The client does not know, and its credit is restored when it has settled that.
        """

    def consumer_cancelled(self, consumer: QueueConsumer) -> None:
        """The queue is gone, and `consumer` with it."""

    def shown_all(self, consumer: QueueConsumer) -> None:
        """`consumer`, a browser, has been sent all that it was to see: remove it from its queue."""

    def activity_changed(self, consumer: QueueConsumer, active: bool, why: str) -> None:
        """`consumer`, which acquires, is served from now on, or no longer; `why` is ATTACHED, ELECTED, ..."""

    # ---- credit and interest

    def fits(self, size: i64) -> bool:
        """Whether both windows have room for a message of `size` bytes."""
        if not self.credit.fits(size):
            return False
        shared = self.session_credit
        return shared is None or shared.fits(size)

    def use_credit(self, size: i64) -> None:
        """A message of `size` bytes is being sent."""
        self.credit.use(size)
        shared = self.session_credit
        if shared is not None:
            shared.use_for(self, size)

    def restore_credit(self, size: i64) -> None:
        """A message of `size` bytes has been settled, released or discarded."""
        self.credit.restore(size)
        shared = self.session_credit
        if shared is not None:
            shared.restore(size)

    def restore_all(self, count: i64, size: i64) -> None:
        """So many messages, with `size` bytes together, have been settled, released or discarded."""
        self.credit.restore_all(count, size)
        shared = self.session_credit
        if shared is not None:
            shared.restore_all(count, size)

    def update(self) -> None:
        """Recompute `desired`, and tell the queues if it has changed."""
        desired = self.wants_work()
        if desired != self.desired:
            self.desired = desired
            if len(self.consumers) == 1:
                consumer = self.consumers[0]
                consumer.queue.set_notify_work_desired(consumer, desired)
                return
            for consumer in list(self.consumers):
                consumer.queue.set_notify_work_desired(consumer, desired)

    def close(self) -> None:
        """Want nothing any more; afterwards remove the consumers from their queues."""
        self.closed = True
        self.update()
        self.session.targets.pop(self, None)
        self.credit.targets.pop(self, None)
        if self.session_credit is not None:
            self.session_credit.targets.pop(self, None)

    def wants_work(self) -> bool:
        """Whether it is open, and credit, flow and transport let it have something."""
        session = self.session
        if self.closed or not session.flow or session.connection.blocked or not self.credit.has():
            return False
        shared = self.session_credit
        return shared is None or shared.has()

    # ---- turns

    def notify_work(self) -> None:
        """A queue of the target may have work: ask the connection for a turn."""
        if not self.pending:
            self.session.connection.notify_work(self)

    def process_pending(self, quota: i64) -> i64:
        """The turn: deliver one message, or up to `quota` while nobody else waits. Returns how many.

        With several queues, they take turns by message. While other consumers of the queue are NOTIFIED too,
        the connection gives way: a burst is shared by message, however small it is.
        """
        self.again = False
        if len(self.consumers) == 1:
            consumer = self.consumers[0]
            context = consumer.context
            if consumer.state == NON_ACQUIRING and consumer.queue.manager.acquiring != 0:
                count = self._browse(consumer, quota)
            else:
                count = self._pull(consumer, quota)
            self._charge(context)
            return count
        for _ in range(len(self.consumers)):
            if not self.consumers:
                break
            consumer = self.consumers[self.turn % len(self.consumers)]
            self.turn += 1
            context = consumer.context
            context.effort = 0
            delivered = consumer.queue.deliver_single_message(consumer)
            if self._charge(context):
                self.again = True  # others may not have been asked
                return 1 if delivered else 0
            if delivered:
                self.again = True
                manager = consumer.queue.manager
                if manager.notified > 1:
                    self.session.connection.gives_way = True
                if consumer.state == NON_ACQUIRING and manager.acquiring != 0:
                    self.session.connection.wait_for_sockets()
                return 1
            if self._has_more(consumer):
                self.again = True
        return 0

    def _pull(self, consumer: QueueConsumer, quota: i64) -> i64:
        connection = self.session.connection
        queue = consumer.queue
        consumers = queue.manager
        context = consumer.context
        context.effort = 0
        delivered: i64 = 0
        while queue.deliver_single_message(consumer):
            delivered += 1
            if consumers.notified > 1 or context.effort >= EFFORT_MAX:
                connection.gives_way = True
                self.again = consumer.state >= NOTIFIED
                return delivered
            if delivered >= quota or connection.full or connection.first_pending is not None:
                self.again = consumer.state >= NOTIFIED
                return delivered
        self.again = self._has_more(consumer)
        return delivered

    def _browse(self, consumer: QueueConsumer, quota: i64) -> i64:
        """The turn of a browser of a queue that has consumers."""
        browsers = consumer.queue.browsers
        assert browsers is not None, "who has a browser has this"
        share = browsers.share(consumer.queue, consumer.context)
        if share >= quota:
            return self._pull(consumer, quota)
        delivered = self._pull(consumer, share)
        if self.again:
            self.session.connection.wait_for_sockets()
        return delivered

    def _charge(self, context: QueueContext) -> bool:
        """Count what look-ups have cost; true if others are to have their turn therefore."""
        connection = self.session.connection
        connection.effort += context.effort
        if connection.effort < EFFORT_MAX:
            return False
        connection.spent = True
        return True

    def _has_more(self, consumer: QueueConsumer) -> bool:
        """Whether a pull that delivered nothing only ran out of its scan budget."""
        return consumer.state == NOTIFIED or (consumer.state == NON_ACQUIRING and consumer.context.more)
