"""Dead letters: messages that leave their queues through dead-letter exchanges.

[RabbitMQ dead letter exchanges]
"""

from __future__ import annotations

from collections import deque
from typing import Final, final

from mypy_extensions import i64

from broker.core.errors import StoreFailed
from broker.core.message import Address, Message, set_descent
from broker.core.message_view import MessageView
from broker.core.partitions.partitioned import spread
from broker.core.publishing.routed_message import RoutedMessage
from broker.core.queues.dead_letter_backlog import backlog_of, existing_backlog, first_of_lane
from broker.core.queues.death import (
    ARRIVES,
    CAUSES,
    CYCLE,
    FULL,
    NO_EXCHANGE,
    NO_PLACE,
    NO_ROUTE,
    Death,
    Notice,
)
from broker.core.queues.hooks import (
    MAXLEN,
    QUEUE_EXPIRED,
    REASONS,
    REJECTED,
    BacklogHook,
    LimitsHook,
)
from broker.core.queues.queue import Queue
from broker.core.queues.source import DEAD_LETTER_SOURCE
from broker.core.routing.graph import Exchange, Route
from broker.core.routing.routes import resolve_letter
from broker.core.routing.topology import Topology
from broker.core.schedule import LETTER

NO_VIEW: Final = MessageView()
_CAUSES: Final = (
    "rejected",
    "expired",
    "one too many",
    "returned too often",
    "in a queue that expires",
    "in a queue that is deleted",
)
REPORT_MS: Final = 1000  # the least time between two reports of failures,
WARNING_MS: Final = 60_000  # and between two warnings of one queue that letters are dropped, or wait


@final
class DeadLetters:
    """Routes the dead letters of one virtual host, one after the other.

    A dead letter may overflow the queue where it arrives, and so on from queue to queue. The deaths that
    follow wait in a list, so that no chain of queues exhausts the stack. The whole list is done before the
    first call of `add` returns.

    A letter is dropped if its exchange does not exist, or if it is routed to no queue, or to a full queue
    that accepts no more. The drop is counted and reported to `RoutingHost.warn`. If the message is
    dead-lettered at least once, it waits in its `DeadLetterBacklog` instead.

    A letter may fail, for example because the disk cannot read its content. The failure is counted and
    reported to `RoutingHost.trouble`. A failure affects no other message: neither later letters nor the
    message for which the failed one had to make room. Unless the message waits, it is in no queue any more.
    If the log has the message, the log keeps it, and a restart restores it at its place.

    `backlogs`: the backlogs with waiting messages.
    """

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._host = topology.host
        self.backlogs: dict[BacklogHook, None] = {}
        self._waiting: deque[Death] = deque()
        self._running = False
        self._unreported: i64 = 0  # failures since the last report
        self._silent_until: i64 = 0

    def add(self, death: Death) -> None:
        """Dead-letter a message."""
        self._waiting.append(death)
        self._run()

    def try_again(self, death: Death) -> bool:
        """Dead-letter a message that waits in its backlog; false if it still waits."""
        queue = death.queue
        message = death.message
        death.held = message if queue.logged and message.sequence != 0 else None
        death.holder = queue
        if self._is_blocked(death):
            return False
        try:
            chain = self.plan_chain(death, False)
        except Exception as error:
            if not death.is_unreadable:
                self._report_failure(death, error)
            death.is_unreadable = death.apart = True
            return False
        death.is_unreadable = False
        if failure_of(chain) != ARRIVES:
            _record_obstacle(death, chain)
            return False
        self._run_with(chain)
        return True

    def retry_backlogs(self) -> None:
        """Try waiting messages again: they may have a route now."""
        for backlog in self.backlogs:
            backlog.try_soon()

    def put_delayed(self, passage: RoutedMessage, held: Message | None, holder: Queue) -> None:
        """Put a delayed message into its queues, and settle `held`, its logged form in `holder`."""
        passage.remove_full_queues(False)
        self._check_rows(passage)
        self._append(passage, held, holder)
        self._host.counters.discarded[MAXLEN] += len(passage.full)
        passage.put(self._host)
        self._waiting.extend(passage.deaths)
        self._run()

    def _run(self) -> None:
        if self._running:
            return
        self._running = True
        try:
            while self._waiting:
                death = self._waiting.popleft()
                try:
                    self._send(death)
                except Exception as error:
                    self._handle_failure(death, error)
        finally:  # or no later message would ever be dead-lettered
            self._running = False

    def _run_with(self, chain: list[Death]) -> None:
        """Complete `chain`, then all deaths that follow from it."""
        running = self._running
        self._running = True
        try:
            self._complete(chain)
        finally:
            self._running = running
        self._run()

    def _handle_failure(self, death: Death, error: Exception) -> None:
        death.passage = None
        if death.sure and not death.queue.deleted:
            death.is_unreadable = True
            backlog_of(death.queue, self._host).add_unreadable(death)
        else:
            _record_death(death)
        self._report_failure(death, error)  # last: a report that fails must not lose the message

    def _report_failure(self, death: Death, error: Exception) -> None:
        host = self._host
        host.counters.dead_letters_failed += 1
        self._unreported += 1
        now = host.schedule.now()
        if now < self._silent_until:
            return
        self._silent_until = now + REPORT_MS
        host.trouble(
            f"dead letters failed: {int(self._unreported)}, the last one of queue '{death.queue.name}' "
            f"in vhost '{host.name}': {type(error).__name__}: {error}"
        )
        self._unreported = 0

    def add_refused(self, queue: Queue, message: Message) -> None:
        """Dead-letter a message that `queue` did not accept, and that the log does not know."""
        limits = queue.limits
        if limits is not None and limits.passes_on:
            self.add(Death(queue, limits, message, MAXLEN, None, queue))

    # ---- plans

    def plan_chain(self, death: Death, behind: bool) -> list[Death]:
        """Plan a death, and those of its letter in queues that refuse and dead-letter it.

        Room is reserved for all of them, until they are put or forgotten. `behind`: the letter must wait
        behind letters that wait for room.

        Raises:
            OSError, LogDamaged: the disk cannot read the message's content.
            StoreFailed: a stream would get the letter, and the log has stopped.
        """
        chain: list[Death] = []
        waiting = deque([death])
        try:
            while waiting:
                planned = waiting.popleft()
                chain.append(planned)
                self._plan(planned, behind)
                passage = passage_of(planned)
                if passage is not None:
                    self._check_rows(passage)
                    passage.reserve()
                    waiting += passage.deaths
        except Exception:
            cancel_plan(chain)
            raise
        return chain

    def _plan(self, death: Death, behind: bool) -> None:
        """Write the dead letter and route it: sets the `passage` of the death and its `failure`.

        Raises OSError or LogDamaged if the disk cannot read the message's content.
        """
        host = self._host
        limits = death.limits
        old = death.message
        death.passage = None
        death.planned = True
        death.full = []
        death.obstacle = ""
        exchange = _exchange(death, self._topology)
        if exchange is None:
            death.failure = NO_EXCHANGE
            return
        date = host.schedule.date()
        letter = host.write_letter(
            old,
            host.store,
            Notice(death.queue.name, REASONS[death.reason], date, limits.dead_letter_key is None, death.past),
        )
        route = _route(death, exchange)
        resolution = resolve_letter(
            self._topology, route, [route.address.routing_key, *letter.copies], letter.view
        )
        routed = list(resolution.queues)
        chooses = any(queue.partitions is not None for queue in routed)
        if chooses:
            routed = spread(routed, old, letter.view)
        queues = routed
        cycles = 0
        if death.reason != REJECTED:
            queues = [queue for queue in queues if not letter.ends_cycle(queue.name)]
            if death.reason >= QUEUE_EXPIRED and death.queue in queues:
                queues.remove(death.queue)
            cycles = len(routed) - len(queues)
        copy = Message(route.address, letter.content, old.size, old.persistent, old.priority)
        copy.date = date
        copy.died = True
        set_descent(copy, old)
        copy.body = old.body
        resolution.delay_message(copy, host.schedule)
        passage = RoutedMessage(copy, queues, resolution.keepers, DEAD_LETTER_SOURCE)
        passage.remove_full_queues(behind)
        death.passage = passage
        death.apart = route.by_message or chooses or bool(letter.copies) or cycles > 0
        death.full = passage.full
        death.failure = ARRIVES
        if passage.full:
            death.failure = FULL
        elif not passage.has_destination:
            death.failure = CYCLE if cycles > 0 else NO_ROUTE

    def _is_blocked(self, death: Death) -> bool:
        """Whether a letter that was planned before certainly cannot arrive now.

        Found without the letter itself.
        """
        if not death.planned or death.apart:
            return False
        exchange = _exchange(death, self._topology)
        death.full = []
        death.obstacle = ""
        if exchange is None:
            death.failure = NO_EXCHANGE
            return True
        route = _route(death, exchange)
        queues = resolve_letter(self._topology, route, [route.address.routing_key], NO_VIEW).queues
        if route.by_message:
            return False
        for queue in queues:
            limits = queue.limits
            if limits is not None and not limits.passes_on and limits.lacks_room(death.message):
                death.full.append(limits)
        death.failure = FULL if death.full else ARRIVES if queues else NO_ROUTE
        return death.failure != ARRIVES

    # ---- steps of a plan

    def put(self, death: Death) -> None:
        """Put a planned and appended dead letter into its queues."""
        counters = self._host.counters
        passage = passage_of(death)
        _record_death(death)
        if death.failure != ARRIVES:
            self._count_drop(death)
        if passage is None:
            return
        if passage.has_destination:
            counters.dead_lettered[death.reason] += 1
            if death.sure:
                counters.dead_lettered_surely[death.reason] += 1
        passage.put(self._host)

    def wait(self, death: Death, full: list[LimitsHook], is_logged: bool = False) -> None:
        """Add a death to its backlog, where it waits for a route, or for room in the queues of `full`.

        `is_logged`: the log has the record of the death.
        """
        backlog = backlog_of(death.queue, self._host)
        backlog.add(death, full, is_logged)
        if not death.planned:
            return  # behind waiting messages that have been reported
        waiting = len(backlog)
        self._warn(
            death,
            f"messages that wait to be dead-lettered: {waiting}; the last was {_CAUSES[death.reason]}, and ",
        )

    def _send(self, death: Death) -> None:
        host = self._host
        host.schedule.allowance.use(LETTER)
        if death.sure and has_waiting_predecessor(death):
            self.wait(death, [])
            return
        chain = self.plan_chain(death, death.sure)
        if death.sure and failure_of(chain) != ARRIVES and not death.queue.deleted:
            _record_obstacle(death, chain)
            self.wait(death, death.full)
            return
        self._complete(chain)

    def _complete(self, chain: list[Death]) -> None:
        """Append and put the letters of planned deaths."""
        for death in chain:
            passage = passage_of(death)
            if passage is not None:
                passage.unreserve()
                self._append(passage, death.held, death.holder)
            elif death.held is not None:
                self._host.store.append_settle(death.held, death.holder)
            self.put(death)

    def _check_rows(self, passage: RoutedMessage) -> None:
        """Raise StoreFailed if a stream would get the letter and the log accepts no appends."""
        store = self._host.store
        if store.failure and passage.streams:
            raise StoreFailed(store.refusal)  # the log keeps the message

    def _append(self, passage: RoutedMessage, held: Message | None, holder: Queue) -> None:
        """Append a letter for its queues, and for queues that refuse and dead-letter it.

        The first of these queues that stores the letter durably settles `held`, its logged form until now.
        """
        store = self._host.store
        logged = passage.logged
        if logged and held is not None:
            store.append_death(passage.message, logged, held, holder)
            held = None
        elif logged and not store.failure:
            store.append_message(passage.message, logged)
        if passage.streams:
            passage.append_rows()
            if held is not None:
                store.append_burial(held, holder)
                held = None
        passage.append_identity(self._host)
        for death in passage.deaths:
            death.held = held
            death.holder = holder
            held = None
        if held is not None:
            store.append_settle(held, holder)

    # ---- warnings

    def _count_drop(self, death: Death) -> None:
        counters = self._host.counters
        counters.letters_dropped[death.reason * len(CAUSES) + death.failure] += 1
        death.limits.drops += 1
        if self._warn(
            death,
            f"dead letters dropped: {int(death.limits.drops)}; the last was {_CAUSES[death.reason]}, and ",
        ):
            death.limits.drops = 0

    def _warn(self, death: Death, text: str) -> bool:
        """Warn at most once per queue and minute. Return whether a warning was written."""
        host = self._host
        limits = death.limits
        now = host.schedule.now()
        if now < limits.silent_until:
            return False
        limits.silent_until = now + WARNING_MS
        host.warn(f"queue '{death.queue.name}' in vhost '{host.name}': {text}{obstacle_of(death)}")
        return True


def has_waiting_predecessor(death: Death) -> bool:
    """Whether messages of the same queue and route wait to be dead-lettered."""
    backlog = existing_backlog(death.queue)
    return backlog is not None and backlog.must_wait(death)


def failure_of(chain: list[Death]) -> i64:
    """Return why one of these letters does not arrive, ARRIVES if all of them do."""
    for death in chain:
        if death.failure != ARRIVES:
            return death.failure
    return ARRIVES


def passage_of(death: Death) -> RoutedMessage | None:
    """Return the passage of a planned dead letter; None: not planned, or its exchange does not exist."""
    passage = death.passage
    assert passage is None or isinstance(passage, RoutedMessage), "passages are made here"
    return passage


def passages_of(deaths: list[Death]) -> list[RoutedMessage]:
    """Return the passages of the dead letters whose exchanges exist."""
    return [passage for death in deaths if (passage := passage_of(death)) is not None]


def full_queue_rules(chain: list[Death]) -> list[LimitsHook]:
    """Return the limits of the queues that have no room for one of these letters."""
    return [limits for death in chain for limits in death.full]


def cancel_plan(chain: list[Death]) -> None:
    """Cancel planned deaths, and release their reserved room."""
    for death in chain:
        passage = passage_of(death)
        if passage is not None:
            passage.unreserve()
            death.passage = None


def _record_obstacle(death: Death, chain: list[Death]) -> None:
    """Set `death` to the first obstacle of its chain, and release the reserved room."""
    failing = next(each for each in chain if each.failure != ARRIVES)
    death.failure = failing.failure
    death.full = full_queue_rules(chain)
    if failing is not death:
        death.obstacle = obstacle_of(failing)
    cancel_plan(chain)


def _exchange(death: Death, topology: Topology) -> Exchange | None:
    """Return the dead-letter exchange; None: the exchange does not exist, or the queue has none now."""
    limits = death.limits
    return topology.exchanges.get(limits.dead_letter_exchange) if limits.dead_letter_reasons else None


def _route(death: Death, exchange: Exchange) -> Route:
    """Return the route of the dead letter, without routing keys that its publisher has added."""
    limits = death.limits
    key = limits.dead_letter_key
    if key is None:
        key = death.message.address.routing_key
    route = limits.dead_letter_route
    if not isinstance(route, Route) or route.address.routing_key != key:
        route = Route(Address(exchange.name, key), exchange)
        limits.dead_letter_route = route  # for the next of the same queue and key
    return route


def obstacle_of(death: Death) -> str:
    """Return why a planned dead letter does not arrive."""
    if death.obstacle:
        return death.obstacle
    limits = death.limits
    exchange = f"exchange '{limits.dead_letter_exchange}'"
    if death.failure == NO_EXCHANGE:
        return f"{exchange} does not exist" if limits.dead_letter_reasons else "it has no exchange any more"
    if death.failure == FULL and death.full:
        return f"queue '{death.full[0].queue_name}' is full"
    if death.failure == FULL:
        return "a queue that it is passed on to is full"
    if death.failure == CYCLE:
        return f"{exchange} leads back to a queue where it died before"
    key = limits.dead_letter_key
    key = death.message.address.routing_key if key is None else key
    return f"{exchange} routes '{key}' to no queue"


def cause_of_wait(death: Death) -> str:
    """Return why the dead letter of a waiting message, or of the one before which it waits, has not arrived.

    Empty: not known yet.
    """
    first = first_of_lane(death)
    if first.is_unreadable:
        return "the disk does not give the message back"
    return obstacle_of(first) if first.planned and first.failure != ARRIVES else ""


def _record_death(death: Death) -> None:
    """Record the death in the journal, if the queue had the message."""
    journal = death.queue.journal
    if journal is not None and death.order != NO_PLACE:
        passage = passage_of(death)
        to = passage.queues[0] if passage is not None and passage.queues else None
        journal.died(death.message, death.uid, death.order, death.reason, to, death.by)
        death.order = NO_PLACE
