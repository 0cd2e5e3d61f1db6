"""Connections, sessions and consumer targets: a connection delivers messages to its targets in turns.

[Qpid: AbstractConsumerTarget]
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from broker.core.delivery.credit import Credit, close_together, update_together
from broker.core.entries.cursor import SCAN_BUDGET, Cursor
from broker.core.queues.consumer import (
    INTERESTED,
    NON_ACQUIRING,
    NOTIFIED,
    ConsumerTarget,
    QueueConsumer,
    TargetSession,
)
from broker.core.queues.consumers import all_levels
from broker.core.queues.queue import Queue, queue_of


@mypyc_attr(allow_interpreted_subclasses=True)
class Scheduler:
    """The event loop's scheduler: calls `connection.pump` once, later, for each call of `schedule`."""

    def schedule(self, connection: Connection) -> None:
        """Arrange one call of `connection.pump`, never from inside this call.

        Connections run in the order of their requests. A connection that is `in_round` runs first.
        """
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class Connection:
    """The sessions of one peer, and the targets that have work. The adapters' connections extend this class.

    `name`: the endpoints of its socket. `address`: the peer's endpoint; "" if no client has the connection.
    `user`: the user who has logged in. `label`: the journal's name for the connection.
    `scheduled`: a turn has been requested. `blocked`: the transport accepts no more, so nothing is delivered.
    `full`: this turn has delivered enough, whatever its budget. The code that flushes the output clears the
    flag.
    `shares_turn`: consumers of other connections want the next message of the same queue too. The turn ends
    as soon as each waiting target has had one message. So consumers get equal shares, on one connection or on
    several.
    `in_round`: the turn ended earlier, so the connection's next turn precedes the turns of other connections.
    `spent`: looking for messages has used up this turn, which ends at once.
    `patient`: the next turn comes after the sockets have been served.
    `unwritten`: the output of the last turn waits for the next turn, at most until `write_output` is called.
    `early`: this turn runs within the turn of another connection. The requested turn runs too.
    `effort`: the cost of looking for messages in this turn; see Cursor.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.name = ""
        self.address = ""
        self.user = ""
        self.label: object | None = None
        self.scheduled: bool = False
        self.blocked: bool = False
        self.full: bool = False
        self.shares_turn: bool = False
        self.in_round: bool = False
        self.spent: bool = False
        self.patient: bool = False
        self.unwritten: bool = False
        self.early: bool = False
        self.effort: i64 = 0
        self.sessions: dict[Session, None] = {}
        self.first_pending: PullingTarget | None = None
        self.last_pending: PullingTarget | None = None
        self._round_end: PullingTarget | None = None  # the last target of this round

    def notify_work(self, target: PullingTarget) -> None:
        """Append `target`, which is not pending, to the targets that wait for a turn."""
        self._append(target)
        self.schedule()

    def schedule(self) -> None:
        """Request a turn, unless one has been requested or the transport is blocked."""
        if not self.scheduled and not self.blocked:
            self.scheduled = True
            self.scheduler.schedule(self)

    def wait_for_sockets(self) -> None:
        """End the turn after a browser's share; the next turn comes after the sockets have been served."""
        self.shares_turn = True
        self.patient = True

    def pump(self, budget: i64) -> None:
        """Run one turn: deliver up to `budget` messages to the targets that have work, round-robin.

        Requests another turn if work is left. Extensions flush their output afterwards.
        """
        left = budget
        if not self.in_round:
            self.shares_turn = False
            self._round_end = self.last_pending
        self.in_round = False
        self.spent = False
        self.patient = False
        self.effort = 0
        unfinished = False
        try:
            while left > 0 and not self.spent and not self.blocked and not self.full:
                target = self.first_pending
                if target is None:
                    break
                unfinished = False
                ends_round = target is self._round_end
                self.first_pending = target.next_pending
                if self.first_pending is None:
                    self.last_pending = None
                target.next_pending = None
                target.pending = False
                delivered = target.process_pending(left)
                left -= delivered if delivered > 0 else 1  # a turn without a message is a step all the same
                if target.again and not target.pending:
                    self._append(target)
                if not ends_round:
                    unfinished = True
                elif self.shares_turn:
                    break
                else:
                    self._round_end = self.last_pending
        finally:  # also after an exception: a connection marked as scheduled for ever would never run again
            self.scheduled = self.early
            if self.first_pending is not None:
                self.in_round = unfinished and self.shares_turn and not self.spent and not self.patient
                self.schedule()

    def write_output(self) -> None:
        """Write the output that earlier turns have left: no more turns are run for now.

        Extensions that leave output override this method.
        """
        self.unwritten = False

    def forget_targets(self) -> None:
        """Forget the targets, all of which are closed: the connection has ended."""
        self.first_pending = None
        self.last_pending = None
        self._round_end = None

    def pump_early(self, budget: i64) -> None:
        """Run the requested turn now, if there is one: a request must not overtake its deliveries."""
        if self.scheduled:
            self.early = True
            try:
                self.pump(budget)
            finally:
                self.early = False

    def set_blocked(self, blocked: bool) -> None:
        """Set whether the transport is full (True) or accepts data again (False)."""
        if blocked == self.blocked:
            return
        self.blocked = blocked
        update_together(self._targets())
        if not blocked and self.first_pending is not None:
            self.schedule()

    def close_targets(self) -> None:
        """Close the targets of all sessions before the first one releases an entry: the connection ends."""
        close_together(self._targets())
        for session in list(self.sessions):
            session.close_targets()

    def _targets(self) -> list[ConsumerTarget]:
        return [target for session in self.sessions for target in session.targets]

    def _append(self, target: PullingTarget) -> None:
        target.pending = True
        if self.last_pending is None:
            self.first_pending = target
        else:
            self.last_pending.next_pending = target
        self.last_pending = target


@mypyc_attr(allow_interpreted_subclasses=True)
class Session(TargetSession):
    """The consumer targets of one session.

    `number`: the session's channel. `name`: the journal's name for the session, once the journal needs one.
    `flow`: the peer lets the broker deliver [AMQP 0-9-1 channel.flow].
    """

    def __init__(self, connection: Connection, number: i64 = 0) -> None:
        super().__init__()
        self.connection = connection
        self.number = number
        self.name: object | None = None
        self.flow: bool = True
        connection.sessions[self] = None

    def set_flow(self, active: bool) -> None:
        """Stop (False) or restart deliveries as the peer requests."""
        if active != self.flow:
            self.flow = active
            self.update()

    def update(self) -> None:
        """Recompute whether the targets want work, after a change of the connection or the flow."""
        update_together(list(self.targets))

    def close_targets(self) -> None:
        """Close every target of the session, so that none acquires an entry that another one releases.

        Call this first, then remove the consumers, then release the session's other entries.
        """
        close_together(list(self.targets))
        self.connection.sessions.pop(self, None)


EFFORT_MAX: Final[i64] = SCAN_BUDGET  # the cost of looking for messages that ends a turn


@mypyc_attr(allow_interpreted_subclasses=True)
class PullingTarget(ConsumerTarget):
    """A consumer tag (0-9-1) or a link (1.0) that pulls from the queues of its `consumers` in its turns.

    `credit` is the target's own window. `session_credit`, if any, is shared with the session's other targets.
    Both are charged for every delivery. The code that handles the client's answer calls `restore_credit`.
    Without such answers (0-9-1 no-ack, browsing) the window is unlimited and no window is shared.
    `again`: after `process_pending`, whether the target has more to do.

    A subclass implements `deliver`, and the other call-outs where it needs them.
    """

    def __init__(self, session: Session, credit: Credit, session_credit: Credit | None = None) -> None:
        super().__init__(session)
        self.session = session
        self.credit = credit
        self.session_credit = session_credit
        self.again: bool = False
        self.pending: bool = False
        self.next_pending: PullingTarget | None = None
        self.turn: i64 = 0
        session.targets[self] = None
        credit.targets[self] = None
        if session_credit is not None:
            session_credit.targets[self] = None
        self.sized = self.is_sized()
        self.desired = self.wants_work()

    def is_sized(self) -> bool:
        """Whether there is a window of bytes, or one that other targets share."""
        return self.session_credit is not None or self.credit.bytes_max != 0

    # ---- credit and interest

    def fits(self, size: i64) -> bool:
        """Whether both windows have room for a message of `size` bytes."""
        if not self.credit.fits(size):
            return False
        shared = self.session_credit
        return shared is None or shared.fits(size)

    def use_credit(self, size: i64) -> None:
        """Charge both windows for a message of `size` bytes that is being sent."""
        self.credit.use(size)
        shared = self.session_credit
        if shared is not None:
            shared.use_for(self, size)

    def restore_credit(self, size: i64) -> None:
        """Restore the credit of a message of `size` bytes that was settled, released or discarded."""
        self.credit.restore(size)
        shared = self.session_credit
        if shared is not None:
            shared.restore(size)

    def restore_all(self, count: i64, size: i64) -> None:
        """Restore the credit of `count` settled, released or discarded messages of `size` bytes together."""
        self.credit.restore_all(count, size)
        shared = self.session_credit
        if shared is not None:
            shared.restore_all(count, size)

    def credit_left(self) -> i64:
        """Return how many more messages the smaller window takes, at most ROOM_MAX."""
        room = self.credit.room()
        shared = self.session_credit
        return room if shared is None else min(room, shared.room())

    def update(self) -> None:
        """Recompute `desired`, and inform the queues if it has changed."""
        desired = self.wants_work()
        if desired != self.desired:
            self.desired = desired
            if len(self.consumers) == 1:
                consumer = self.consumers[0]
                queue_of(consumer).set_notify_work_desired(consumer, desired)
                return
            for consumer in list(self.consumers):
                queue_of(consumer).set_notify_work_desired(consumer, desired)

    def close(self) -> None:
        """Stop wanting work. The caller removes the consumers from their queues afterwards."""
        self.closed = True
        self.update()
        self.session.targets.pop(self, None)
        self.credit.targets.pop(self, None)
        if self.session_credit is not None:
            self.session_credit.targets.pop(self, None)

    def wants_work(self) -> bool:
        """Whether the target is open, and credit, flow and transport allow a delivery."""
        session = self.session
        if self.closed or not session.flow or session.connection.blocked or not self.credit.has():
            return False
        shared = self.session_credit
        return shared is None or shared.has()

    # ---- turns

    def notify_work(self) -> None:
        """Request a turn from the connection: a queue of the target may have work."""
        if not self.pending:
            self.session.connection.notify_work(self)

    def flush_soon(self) -> None:
        """Ask the connection for a turn."""
        self.session.connection.schedule()

    def process_pending(self, quota: i64) -> i64:
        """Run the target's turn: deliver one message, or up to `quota` while no other target waits.

        Returns the number of deliveries. With several queues, the target serves them round-robin by message,
        and passes queues without messages.
        While other consumers of the queue are NOTIFIED too, the connection sets `shares_turn`: all of them
        share even a small burst by message.
        """
        self.again = False
        if len(self.consumers) == 1:
            consumer = self.consumers[0]
            context = consumer.context
            if consumer.state == NON_ACQUIRING and queue_of(consumer).manager.acquiring != 0:
                count = self._browse(consumer, quota)
            else:
                count = self._pull(consumer, quota)
            self._charge(context)
            return count
        return self._pull_from_all(quota)

    def _pull_from_all(self, quota: i64) -> i64:
        """Pull from all consumers, one message of each in order."""
        connection = self.session.connection
        delivered: i64 = 0
        missed: i64 = 0  # consumers in a row that got nothing
        while missed < len(self.consumers):
            consumer = self.consumers[self.turn % len(self.consumers)]
            self.turn += 1
            state = consumer.state
            if state <= INTERESTED and (state != INTERESTED or consumer.queue.ready == 0):
                missed += 1
                continue
            context = consumer.context
            context.effort = 0
            queue = queue_of(consumer)
            if queue.deliver_single_message(consumer):
                delivered += 1
                missed = 0
                manager = queue.manager
                if manager.notified > 1:
                    connection.shares_turn = True
                browses = consumer.state == NON_ACQUIRING and manager.acquiring != 0
                if browses:
                    connection.wait_for_sockets()
                ends = browses or manager.notified > 1 or delivered >= quota
                if self._charge(context) or ends or connection.full or connection.first_pending is not None:
                    self.again = True  # the target's other queues may not have been looked at
                    return delivered
            else:
                missed += 1
                if self._has_more(consumer):
                    self.again = True
                if self._charge(context):
                    self.again = True
                    return delivered
        return delivered

    def _pull(self, consumer: QueueConsumer, quota: i64) -> i64:
        connection = self.session.connection
        queue = queue_of(consumer)
        consumers = queue.manager
        context = consumer.context
        context.effort = 0
        delivered: i64 = 0
        while queue.deliver_single_message(consumer):
            delivered += 1
            if consumers.notified > 1 or context.effort >= EFFORT_MAX:
                connection.shares_turn = True
                self.again = consumer.state >= NOTIFIED
                return delivered
            if delivered >= quota or connection.full or connection.first_pending is not None:
                self.again = consumer.state >= NOTIFIED
                return delivered
        self.again = self._has_more(consumer)
        return delivered

    def _browse(self, consumer: QueueConsumer, quota: i64) -> i64:
        """Run the turn of a browser of a queue that has acquiring consumers."""
        browsers = consumer.queue.browsers
        assert browsers is not None, "a queue with a browser has `browsers`"
        share = browsers.share(consumer.context, consumer.queue.delivered)
        if share >= quota:
            return self._pull(consumer, quota)
        delivered = self._pull(consumer, share)
        if self.again:
            self.session.connection.wait_for_sockets()
        return delivered

    def _charge(self, context: Cursor) -> bool:
        """Charge the turn for look-ups; true if the turn must end so that others are served."""
        connection = self.session.connection
        connection.effort += context.effort
        if connection.effort < EFFORT_MAX:
            return False
        connection.spent = True
        return True

    def _has_more(self, consumer: QueueConsumer) -> bool:
        """Whether a pull that delivered nothing only ran out of its scan budget."""
        return consumer.state == NOTIFIED or (consumer.state == NON_ACQUIRING and consumer.context.more)


EARLY_MAX: Final[i64] = 1024  # messages that consumers get before one request


def serve_notified(queue: Queue) -> i64:
    """Deliver to the notified consumers before a request takes or counts messages.

    A queue that delivered each message on arrival would have delivered these already. At most EARLY_MAX
    messages are delivered, so that the request does not wait long. Returns their number.
    """
    served: i64 = 0
    while queue.manager.notified > 0 and queue.ready > 0 and served < EARLY_MAX:
        before = queue.ready
        connections: dict[Connection, None] = {}
        for level in all_levels(queue):
            for consumer in level.notified:
                target = consumer.target
                assert isinstance(target, PullingTarget), "the target of a NOTIFIED consumer pulls"
                connections[target.session.connection] = None
        for connection in connections:
            connection.pump_early(EARLY_MAX - served)
        delivered: i64 = before - queue.ready
        if delivered <= 0:
            break
        served += delivered
    return served


@final
class NoTurns(Scheduler):
    """A scheduler for connections that never deliver, so no turn is needed."""

    def schedule(self, connection: Connection) -> None:
        """Ignored."""
