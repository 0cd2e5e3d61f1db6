"""A dispatcher: a consumer inside the broker that calls an application with the messages of its queue.

[Bernstein & Newcomer 4.5, Dispatcher]

The queue knows a dispatcher as a consumer like any other: exclusive consumers, priorities, groups and strict
order hold for it. Like every consumer it pulls in its turns. It wants messages while its trigger grants some
and its load control allows a call. Each call ends with one answer, which settles all messages of the call.

A `Caller` makes the calls, outside of this package. The dispatcher itself watches the time of each call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from mypy_extensions import i64

from broker.adapters.formats.either import Conversions, SelectorFilter
from broker.core.arguments.queue import CRASH, NACK, RELEASED, TIMEOUT, is_non_destructive
from broker.core.broker import Broker
from broker.core.delivery.credit import Credit
from broker.core.delivery.session import Connection, PullingTarget, Scheduler, Session
from broker.core.entries.entry import EntryGroup, QueueEntry
from broker.core.errors import BrokerError
from broker.core.ports import MessageStore
from broker.core.queues.attach import attach, detach
from broker.core.queues.consumer import REMOVED, QueueConsumer
from broker.core.queues.consumers import stop_waiting
from broker.core.queues.hooks import REJECTED, ReadyWatcher
from broker.core.queues.queue import Queue, queue_of
from broker.core.queues.returns import discard_all, release_entries, restore_credit, settle_all
from broker.core.schedule import Schedule, TimedTask
from broker.core.selector.selector import Selector
from broker.dispatch.answers import (
    ACKNOWLEDGED,
    BUSY,
    FAILED,
    RESULTS,
    TIMED_OUT,
    UNREACHED,
    Answer,
    hide_secrets,
)
from broker.dispatch.definition import (
    DEAD_LETTER,
    OTHER_ANSWER,
    RETRY,
    TIMEOUT_ANSWER,
    TOO_LARGE_ANSWER,
    Definition,
    Reference,
    TargetForbidden,
)
from broker.dispatch.group_order import GroupOrder
from broker.dispatch.load import CLOSED, Load
from broker.dispatch.payload import (
    CommandInput,
    HttpRequest,
    PayloadError,
    SecretError,
    Secrets,
    make_input,
    make_request,
    read_delivered,
)
from broker.dispatch.triggers import NO_TIME, trigger_of
from config.targets import AllowList

PARKED_MAX: Final = 256  # messages that wait with the dispatcher for the order of their groups
SECOND: Final = 1000  # how often to look for an absent queue, and for awaited messages that have left
TEXT_MAX: Final = 500  # characters of an answer that a log line and the API show

# outcomes of messages
RETRIED: Final = "retried"
REJECTED_MESSAGES: Final = "rejected"
DEAD_LETTERED: Final = "dead-lettered"
OUTCOMES: Final = (ACKNOWLEDGED, RETRIED, REJECTED_MESSAGES, DEAD_LETTERED)

# states of a dispatcher
RUNNING: Final = "running"
PAUSED: Final = "paused"
WAITING: Final = "waiting"  # the circuit breaker is open, or the target wants no calls for a while
FORBIDDEN: Final = "forbidden"  # the broker must not, or cannot, call the target
NO_QUEUE: Final = "no-queue"  # the queue does not exist, or refuses the consumer


@dataclass(slots=True)
class Totals:
    """The counts of a dispatcher since the start of the broker."""

    calls: dict[str, int] = field(default_factory=lambda: dict.fromkeys(RESULTS, 0))
    messages: dict[str, int] = field(default_factory=lambda: dict.fromkeys(OUTCOMES, 0))
    milliseconds: int = 0  # the sum of the durations of all ended calls
    breaker_opened: int = 0


@dataclass(slots=True)
class Progress:
    """The work of a dispatcher that outlives a pause and a change of its definition.

    `current`: the Dispatcher by the present definition. `earlier`: the number of calls in progress by earlier
    definitions. `order`: the order of the groups of `queue`; None: it has no groups.
    """

    totals: Totals = field(default_factory=Totals)
    current: Dispatcher | None = None
    earlier: int = 0
    queue: Queue | None = None
    order: GroupOrder | None = None

    def order_of(self, queue: Queue) -> GroupOrder:
        """Return the order of the groups of `queue`, which has been kept if the queue is still the same."""
        if self.queue is not queue or self.order is None:
            self.queue, self.order = queue, GroupOrder()
        return self.order


class Call(TimedTask):
    """A call in progress: its messages, and the task that ends it when it takes too long."""

    def __init__(self, dispatcher: Dispatcher, consumer: QueueConsumer, began: int, probe: bool) -> None:
        super().__init__()
        self.dispatcher = dispatcher
        self.consumer = consumer
        self.definition = dispatcher.definition
        self.entries: list[QueueEntry] = []
        self.size = 0  # bytes of the bodies
        self.groups: dict[EntryGroup, None] = {}
        self.began = began
        self.probe = probe
        self.ended = False
        self.request: HttpRequest | None = None  # set for a call by HTTP
        self.input: CommandInput | None = None  # set for a command
        self.task: object | None = None  # set and used by the caller only
        self.secrets: list[bytes] = []  # the secrets that the call has read

    def add(self, entry: QueueEntry) -> None:
        """Add a message to the call, which has not begun."""
        self.entries.append(entry)
        self.size += int(entry.message.size)
        if entry.group is not None:
            self.groups[entry.group] = None

    def read_secret(self, reference: Reference) -> bytes:
        """Return a secret, which is hidden in what the target answers. Raises SecretError."""
        secret = self.dispatcher.read_secret(reference)
        self.secrets.append(secret)
        return secret

    def end(self, answer: Answer) -> None:
        """End the call with its answer; ignored if the call has ended. The caller calls this."""
        self.dispatcher.end_call(self, answer)

    def do_due_work(self) -> None:
        """End the call, which has taken too long."""
        limit = self.definition.timeout_ms
        self.dispatcher.end_call(self, Answer(TIMED_OUT, TIMEOUT_ANSWER, f"no answer within {limit} ms"))


class Caller(Protocol):
    """Makes the calls of all dispatchers."""

    def begin(self, call: Call) -> None:
        """Begin a call. Its `end` is called later, and never before this returns."""

    def cancel(self, call: Call) -> None:
        """Break off a call that has ended for the dispatcher: close its connection, or kill its command."""


Report = Callable[..., object]
"""Logs a line: the event, and named values."""


class Services:
    """The parts of the daemon that the dispatchers of one broker use.

    `allowed`: the targets that may be called. `names`: the unique names of the log and of this start of the
    broker. `log` logs a warning about a failed call; it may leave lines out.
    """

    def __init__(
        self,
        broker: Broker,
        allowed: AllowList,
        scheduler: Scheduler,
        conversions: Conversions,
        caller: Caller,
        secrets: Secrets,
        names: tuple[str, str],
        log: Report,
    ) -> None:
        self.broker = broker
        self.allowed = allowed
        self.scheduler = scheduler
        self.conversions = conversions
        self.caller = caller
        self.secrets = secrets
        self.names = names
        self.log = log

    @property
    def store(self) -> MessageStore:
        """The store of the broker."""
        return self.broker.store

    @property
    def schedule(self) -> Schedule:
        """The schedule of the broker."""
        return self.broker.schedule


class DispatchTarget(PullingTarget):
    """The target of a dispatcher's consumer: its deliveries become calls."""

    def __init__(self, dispatcher: Dispatcher, session: Session) -> None:
        self.dispatcher = dispatcher  # first: the base class checks at once whether the target wants work
        super().__init__(session, Credit())

    def is_sized(self) -> bool:
        """Whether the size of a message decides if it fits: into a batch, unless a call has one message."""
        return self.dispatcher.definition.batch > 1

    def fits(self, size: i64) -> bool:
        """Whether a message of `size` bytes fits into the open call, or begins a call."""
        return self.dispatcher.fits(int(size))

    def wants_work(self) -> bool:
        """Whether the dispatcher takes another message now."""
        return not self.closed and self.dispatcher.wants_message()

    def deliver(self, consumer: QueueConsumer, entry: QueueEntry) -> None:
        """Take an acquired message for a call."""
        self.dispatcher.take(entry)
        self.update()

    def process_pending(self, quota: i64) -> i64:
        """Take messages, and begin the calls that are complete."""
        count = super().process_pending(quota)
        self.dispatcher.finish_turn(self.again)
        return count

    def on_no_messages(self, consumer: QueueConsumer) -> None:
        """Note that no message is ready."""
        self.dispatcher.found_nothing = True

    def on_consumer_cancelled(self, consumer: QueueConsumer) -> None:
        """Note that the queue was deleted."""
        self.dispatcher.on_queue_deleted()


class Watcher(ReadyWatcher):
    """Looks at a queue in a later turn, after messages have become ready while the dispatcher took none."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    def on_ready(self) -> None:
        """Note that a message is ready."""
        self._dispatcher.on_ready()

    def on_return(self, back: list[QueueEntry]) -> None:
        """Note that messages are ready again."""
        self._dispatcher.on_return(back)


class Alarm(TimedTask):
    """The timed task of a dispatcher, for everything that time changes."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        super().__init__()
        self._dispatcher = dispatcher

    def do_due_work(self) -> None:
        """Do what is due."""
        self._dispatcher.on_alarm()


class Dispatcher:
    """A dispatcher at work, from `start` to `retire`.

    A dispatcher whose queue does not exist, or refuses the consumer, tries again every second. A changed
    definition makes another Dispatcher with the same `progress`; the calls of this one then end by the old
    definition, and until then they count for the new one.
    """

    def __init__(self, definition: Definition, services: Services, progress: Progress) -> None:
        self.definition = definition
        self.totals = progress.totals
        self._progress = progress
        progress.current = self
        self.queue: Queue | None = None
        self.consumer: QueueConsumer | None = None
        self.calls: dict[Call, None] = {}
        self.found_nothing = False
        self.last_failure = ""
        self.last_failure_date = 0
        self.hindrance = ""  # why the dispatcher does not work: the state is FORBIDDEN or NO_QUEUE
        self._forbidden = False
        self._retired = False
        self._services = services
        self._schedule = services.schedule
        self._load = Load(definition, self._now())
        self._load.concurrency.earlier = progress.earlier
        self._sweep_time = NO_TIME  # when to look for messages that have left the queue
        self._trigger = trigger_of(definition.trigger, services.schedule)
        self._order: GroupOrder | None = None
        self._open: Call | None = None  # a call that gets more messages
        self._complete: list[Call] = []  # calls to begin at the end of the turn
        self._alarm = Alarm(self)
        self._watcher = Watcher(self)
        self._connection = Connection(services.scheduler)
        self._connection.name = definition.where
        self._session = Session(self._connection)
        self._target = DispatchTarget(self, self._session)

    # ---- life

    def start(self, objection: str = "") -> None:
        """Begin to serve the queue, unless the definition is paused.

        `objection`: why the target must not, or cannot, be called; then the dispatcher does nothing.
        """
        if objection:
            self.hindrance, self._forbidden = objection, True
        if objection or self.definition.paused:
            self._set_alarm()
            return
        self._trigger.start()
        self._attach()
        self.update()

    def retire(self, outcome: int = RELEASED) -> None:
        """Take no more messages, and release those that are in no call. Calls in progress go on."""
        if self._retired:
            return
        self._retired = True
        self._schedule.cancel(self._alarm)
        self._detach(outcome)
        self._target.close()
        self._progress.earlier += len(self.calls)
        if self._progress.current is self:
            self._progress.current = None

    def abort(self) -> None:
        """Retire, break off the calls in progress and requeue their messages: the broker stops."""
        self.retire(CRASH)
        for call in list(self.calls):
            self._close(call)
            self._services.caller.cancel(call)
            self._release(call, CRASH)

    def _attach(self) -> None:
        """Attach the consumer to the queue, if the queue exists and allows it."""
        definition, vhosts = self.definition, self._services.broker.vhosts
        vhost = vhosts.get(definition.vhost)
        queue = None if vhost is None else vhost.topology.queues.get(definition.queue)
        if vhost is None or queue is None:
            self.hindrance = f"there is no queue '{definition.queue}' in vhost '{definition.vhost}'"
            return
        self.hindrance = objection_to(queue)
        if self.hindrance:
            return
        sieve = None
        if definition.selector:
            sieve = SelectorFilter(Selector(definition.selector), queue.store, vhost.trouble)
        tag = f"dispatcher {definition.name}"
        consumer = QueueConsumer(
            self._target, queue, priority=definition.priority, tag=tag, entry_filter=sieve
        )
        self.queue, self.consumer = queue, consumer
        self._order = self._progress.order_of(queue) if queue.discipline is not None else None
        if self._order is not None:
            self._order.begin(consumer)
        try:
            attach(queue, consumer)
        except BrokerError as error:
            self.queue = self.consumer = self._order = None
            self.hindrance = error.text
            return
        if self._trigger.watches or self._trigger.counts or self._order is not None:
            queue.watch_ready(self._watcher)

    def _detach(self, outcome: int) -> None:
        queue, consumer = self.queue, self.consumer
        if queue is None or consumer is None:
            return
        held: list[QueueEntry] = []
        for call in [*self._complete, *([] if self._open is None else [self._open])]:
            held += call.entries
            self._load.note_unused(call.probe)
            self._end_groups(call, call.entries)
        self._open = None
        self._complete.clear()
        if self._order is not None:
            held += self._order.unpark()
        queue.stop_watching_ready(self._watcher)
        self._trigger.note_empty()
        held.sort()
        if consumer.state != REMOVED:
            detach(queue, consumer, held, outcome)
        restore_credit(held, consumer)
        self.queue = None

    def on_queue_deleted(self) -> None:
        """Wait for a queue of the same name; the messages have been deleted with the queue."""
        queue = self.queue
        if queue is not None:
            self._detach(RELEASED)
            self.hindrance = f"queue '{queue.name}' in vhost '{queue.vhost}' was deleted"
            self._set_alarm()

    # ---- the state, as operators see it

    @property
    def state(self) -> str:
        """The state: RUNNING, PAUSED, WAITING, FORBIDDEN or NO_QUEUE."""
        if self.definition.paused:
            return PAUSED
        if self._forbidden:
            return FORBIDDEN
        if self.queue is None:
            return NO_QUEUE
        return WAITING if self.is_waiting else RUNNING

    @property
    def is_waiting(self) -> bool:
        """Whether the circuit breaker or the target stops all calls for a while."""
        now = self._now()
        return self._load.breaker.state(now) != CLOSED or self._load.held_until > now

    @property
    def calls_in_progress(self) -> int:
        """The number of calls in progress, those by earlier definitions included."""
        return len(self.calls) + self._load.concurrency.earlier

    @property
    def messages_max(self) -> int:
        """The most messages that calls in progress have."""
        return self._load.concurrency.limit * self.definition.batch

    @property
    def parked(self) -> int:
        """The messages that wait with the dispatcher for the order of their groups."""
        return 0 if self._order is None else self._order.parked

    def status(self) -> dict[str, Any]:
        """Return the state and the counts as JSON. Waits are in milliseconds from now."""
        now, load = self._now(), self._load
        return {
            "state": self.state,
            "reason": self.hindrance,
            "calls": self.calls_in_progress,
            "calls_max": load.concurrency.limit,
            "messages_waiting_for_order": self.parked,
            "breaker": load.breaker.state(now),
            "wait_ms": max(load.next_time(now) - now, 0),
            "total_calls": dict(self.totals.calls),
            "total_messages": dict(self.totals.messages),
            "breaker_opened": self.totals.breaker_opened,
            "last_failure": self.last_failure,
            "last_failure_time": self.last_failure_date,
        }

    # ---- messages become calls

    def wants_message(self) -> bool:
        """Whether the dispatcher takes another message now."""
        queue = self.queue
        if queue is None or not self._trigger.may_take(int(queue.ready)):
            return False
        order = self._order
        if order is not None and order.parked >= PARKED_MAX and not order.awaits_ready():
            return False
        return self._open is not None or self._load.may_begin(self._now())

    def fits(self, size: int) -> bool:
        """Whether a message with a body of `size` bytes fits into the open call, or begins a call."""
        return self._open is None or self._open.size + size <= self.definition.size_max

    def take(self, entry: QueueEntry) -> None:
        """Take an acquired message: for the open call, for a new one, or for later in the order of groups."""
        self._trigger.note_taken(entry)
        order = self._order
        group = entry.group
        call = self._open
        if order is not None and group is not None:
            if call is None:
                call = self._new_call()
            if not order.claim(entry, call):
                if not call.entries:
                    self._load.note_unused(call.probe)
                    self._open = None
                return
        elif call is None:
            call = self._new_call()
        call.add(entry)
        if len(call.entries) >= self.definition.batch:
            self._open = None
            self._complete.append(call)

    def finish_turn(self, again: bool) -> None:
        """Begin the calls of a turn; an open call waits if more messages are about to come."""
        if self.found_nothing:
            self.found_nothing = False
            self._note_empty()
        if not again and self._open is not None:
            self._complete.append(self._open)
            self._open = None
        self._begin_calls()
        if not again:
            self.update()
            self._continue_waiting()

    def _continue_waiting(self) -> None:
        """Look again at a message that did not fit into the last call."""
        queue, consumer = self.queue, self.consumer
        if queue is not None and consumer is not None and consumer in queue.waiting:
            stop_waiting(queue, consumer)

    def on_ready(self) -> None:
        """Look in a later turn whether the dispatcher takes a message now."""
        if self._trigger.watches or self._order is not None:
            self._look_soon()

    def on_return(self, back: list[QueueEntry]) -> None:
        """Note which messages are ready again, and look in a later turn whether the dispatcher takes one."""
        self._trigger.note_ready(back)
        if self._order is not None:
            self._order.note_ready(back)
        self._look_soon()

    def _look_soon(self) -> None:
        if not self._target.desired and not self._retired:
            self._schedule.set(self._alarm, self._schedule.now())

    def _new_call(self) -> Call:
        now, consumer = self._now(), self.consumer
        assert consumer is not None, "messages come from a consumer"
        call = self._open = Call(self, consumer, now, self._load.note_call(now))
        return call

    def _begin_calls(self) -> None:
        complete, self._complete = self._complete, []
        for call in complete:
            self.calls[call] = None
            call.began = self._now()
            try:
                self._fill(call)
            except PayloadError as error:
                status = TOO_LARGE_ANSWER if error.too_large else OTHER_ANSWER
                self._fail_soon(call, Answer(FAILED, status, str(error)))
            except (SecretError, TargetForbidden) as error:
                self._fail_soon(call, Answer(UNREACHED, OTHER_ANSWER, str(error)))
            except Exception as error:  # the disk or a broken content must not stop the dispatcher
                self._fail_soon(call, Answer(FAILED, OTHER_ANSWER, f"{type(error).__name__}: {error}"))
            else:
                self._schedule.set(call, self._schedule.after(self.definition.timeout_ms))
                self._services.caller.begin(call)

    def _fill(self, call: Call) -> None:
        """Make the contents of a call.

        Raises TargetForbidden, PayloadError, SecretError, and the errors of the disk.
        """
        queue, definition, services = queue_of(call.consumer), self.definition, self._services
        definition.require_allowed(services.allowed)
        most = definition.size_max  # the sum was checked when the messages were taken
        messages = [
            read_delivered(queue, entry, services.conversions, services.store, most, services.names)
            for entry in call.entries
        ]
        if definition.url is None:
            call.input = make_input(definition, messages)
        else:
            seconds = int(self._schedule.date()) // 1000
            call.request = make_request(definition, messages, call.read_secret, seconds)

    def read_secret(self, reference: Reference) -> bytes:
        """Return a secret. Raises SecretError."""
        return self._services.secrets(reference)

    def _fail_soon(self, call: Call, answer: Answer) -> None:
        """End a call that cannot be made, in a turn of its own."""
        Failure(call, answer, self._schedule)

    # ---- calls end

    def end_call(self, call: Call, answer: Answer) -> None:
        """Settle the messages of a call by its answer; ignored if the call has ended."""
        if call.ended:
            return
        self._close(call)
        if answer.result == TIMED_OUT:
            self._services.caller.cancel(call)
        now = self._now()
        totals, load = self.totals, self._load
        totals.calls[answer.result] += 1
        totals.milliseconds += now - call.began
        if answer.result == ACKNOWLEDGED:
            load.note_success(call.began, now)
            totals.messages[ACKNOWLEDGED] += len(call.entries)
            self._settle(call)
        else:
            self._note_failure(call, answer)
            self._end_failed(call, answer, now)
        self.update()

    def _close(self, call: Call) -> None:
        call.ended = True
        self._schedule.cancel(call)
        if call in self.calls:
            del self.calls[call]
            if self._retired:
                self._progress.earlier -= 1
                current = self._progress.current
                if current is not None:
                    current.note_earlier(self._progress.earlier)

    def _end_failed(self, call: Call, answer: Answer, now: int) -> None:
        """Do with the messages of a failed call what the rules say."""
        entries, load, totals = call.entries, self._load, self.totals
        rule = self.definition.rule_for(answer.status)
        if answer.result in (BUSY, UNREACHED):
            rule = RETRY
        limits = queue_of(call.consumer).limits
        moves = limits is not None and limits.moves(REJECTED)
        if rule == DEAD_LETTER and not moves:
            rule = RETRY  # without a dead-letter exchange the message would be lost
        if rule != RETRY:
            load.note_success(call.began, now)
            totals.messages[DEAD_LETTERED if moves else REJECTED_MESSAGES] += len(entries)
            self._discard(call)
            return
        opened = load.breaker.opened
        if answer.result == BUSY:
            load.note_busy(call.began, now, call.probe, answer.wait_ms)
        else:
            load.note_failure(call.began, now, call.probe)
        if load.breaker.opened != opened:
            totals.breaker_opened += 1
            self._services.log(
                "dispatcher waits: too many calls have failed",
                dispatcher=self.definition.name,
                vhost=self.definition.vhost,
                wait_ms=load.breaker.until - now,
                reason=self.last_failure,
            )
        totals.messages[RETRIED] += len(entries)
        outcome = NACK
        if answer.result in (BUSY, UNREACHED):
            outcome = RELEASED  # the application has not tried
        elif answer.result == TIMED_OUT:
            outcome = TIMEOUT
        self._release(call, outcome)
        self._note_returned(call)
        self._end_groups(call, entries)

    def _settle(self, call: Call) -> None:
        settle_all(call.entries, call.consumer)
        self._end_groups(call, [])

    def _discard(self, call: Call) -> None:
        """Reject the messages: the queue dead-letters or drops them."""
        restore_credit(call.entries, call.consumer)
        discard_all(queue_of(call.consumer), list(call.entries), call.consumer)
        self._end_groups(call, [])

    def _release(self, call: Call, outcome: int) -> None:
        release_entries(queue_of(call.consumer), list(call.entries), call.consumer, outcome)
        restore_credit(call.entries, call.consumer)

    def _note_returned(self, call: Call) -> None:
        """Let the trigger of the present definition grant the messages again."""
        current = self._progress.current
        if current is not None and current.queue is call.consumer.queue:
            current.note_returned(call.entries)

    def note_returned(self, entries: list[QueueEntry]) -> None:
        """Note that messages of a call, by this definition or an earlier one, return for a retry."""
        self._trigger.note_returned(entries)

    def note_earlier(self, calls: int) -> None:
        """Note how many calls by earlier definitions are still in progress."""
        self._load.concurrency.earlier = calls

    def _end_groups(self, call: Call, returned: list[QueueEntry]) -> None:
        if self._order is not None and call.groups:
            self._order.end(call, call.groups, returned)

    def _note_failure(self, call: Call, answer: Answer) -> None:
        """Keep the failure for the API, and log it."""
        definition = self.definition
        status = f"{answer.status}: " if answer.status not in ("", OTHER_ANSWER, TIMEOUT_ANSWER) else ""
        text = hide_secrets(answer.text, call.secrets, definition.url)
        self.last_failure = (status + text)[:TEXT_MAX]
        self.last_failure_date = int(self._schedule.date())
        self._services.log(
            "call of a dispatcher failed",
            dispatcher=definition.name,
            vhost=definition.vhost,
            target=definition.target,
            result=answer.result,
            reason=self.last_failure,
        )

    # ---- changes with time

    def on_alarm(self) -> None:
        """Do what is due: look for the queue, ring the trigger, continue after a wait."""
        if self._retired:
            return
        if self.queue is None and not self._forbidden and not self.definition.paused:
            self._attach()
        if self.queue is not None:
            self._trigger.ring(int(self.queue.ready))
        if self._sweep_time != NO_TIME and self._now() >= self._sweep_time:
            self._sweep_time = NO_TIME
            self._trigger.sweep()
            if self._progress.order is not None:
                self._progress.order.sweep()
        self.update()

    def update(self) -> None:
        """Begin calls of parked messages that may go now, and want more messages or not."""
        if self._retired:
            current = self._progress.current
            if current is not None:
                current.update()
            return
        order = self._order
        while order is not None and order.has_free() and self._load.may_begin(self._now()):
            self._begin_parked(order)
        if self.queue is not None and self.queue.ready == 0:
            self._note_empty()
        self._target.update()
        self._set_alarm()

    def _begin_parked(self, order: GroupOrder) -> None:
        """Begin a call with parked messages of one group."""
        open_call, self._open = self._open, None
        call = self._new_call()
        self._open = open_call
        for entry in order.take_free(call, self.definition.batch, self.definition.size_max):
            call.add(entry)
        if not call.entries:
            self._load.note_unused(call.probe)
            return
        self._complete.append(call)
        self._begin_calls()

    def _note_empty(self) -> None:
        """Note for the trigger that nothing of what it granted is left, if that is so.

        Ready messages that the dispatcher does not get may wait for the end of its calls, or for a retry.
        """
        queue = self.queue
        in_calls = bool(self.calls or self._complete or self._open or self.parked)
        if queue is not None and (queue.ready == 0 or (not in_calls and queue.held == 0)):
            self._trigger.note_empty()

    def _set_alarm(self) -> None:
        """Set the alarm for the next event."""
        now = self._now()
        times = []
        if self.queue is None:
            if not self._forbidden and not self.definition.paused:
                times.append(now + SECOND)
        else:
            times += [self._trigger.next_time(), self._load.next_time(now)]
        order = self._progress.order
        if self._sweep_time == NO_TIME and (
            self._trigger.awaits_some() or (order is not None and order.awaits_some())
        ):
            self._sweep_time = now + SECOND
        times.append(self._sweep_time)
        due = min([time for time in times if time > 0], default=0)
        if due:
            self._schedule.set(self._alarm, due)
        else:
            self._schedule.cancel(self._alarm)

    def _now(self) -> int:
        return int(self._schedule.now())


class Failure(TimedTask):
    """The task that ends a call that could not be made, in a turn of its own."""

    def __init__(self, call: Call, answer: Answer, schedule: Schedule) -> None:
        super().__init__()
        self._call = call
        self._answer = answer
        schedule.set(self, schedule.now())

    def do_due_work(self) -> None:
        """End the call."""
        self._call.end(self._answer)


def objection_to(queue: Queue) -> str:
    """Return why no dispatcher can serve `queue`; "" if one can."""
    where = f"queue '{queue.name}' in vhost '{queue.vhost}'"
    if is_non_destructive(queue.arguments):
        return f"{where} keeps its messages: a dispatcher needs a queue from which messages are removed"
    if queue.exclusive_owner is not None:
        return f"{where} belongs to a single connection: a dispatcher needs a shared queue"
    if queue.partitions is not None:
        names = ", ".join(member.name for member in queue.partitions.member_queues())
        return f"{where} is partitioned: set a dispatcher for each of its members, {names}"
    if queue.remote is not None:
        return f"{where} is remote: a dispatcher needs a queue of its own broker"
    return ""
