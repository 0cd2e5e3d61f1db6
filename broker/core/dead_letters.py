"""The way of dead letters, from the queues that they have left to others. [RabbitMQ dead letter exchanges]"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from broker.core.allowance import LETTER
from broker.core.dead_letter import MAXLEN, NO_PLACE, REASONS, REJECTED, Death
from broker.core.errors import StoreFailed
from broker.core.journal import DEAD_LETTERED, DELAYED, descends
from broker.core.letter import Notice
from broker.core.message import Address, Message
from broker.core.passage import Passage
from broker.core.queue import Queue
from broker.core.route import Route

if TYPE_CHECKING:
    from broker.core.topology import Topology

REPORT_MS: Final = 1000  # so often at most it is told that dead letters fail


@final
class DeadLetters:
    """Sends the dead letters of one virtual host on their way, one after the other.

    What arrives may be one too many where it arrives, and so on from queue to queue: such deaths wait in a
    list, so that no row of queues reaches the end of the stack. All of them are done before `add` returns to
    whoever called it first.

    One that fails, because the disk does not give its content back, say, is counted and told to
    `Topology.trouble`, and concerns nobody else: neither those that follow nor the message for which it had
    to make room. It is in no queue any more; the log, if it has it, goes on holding it, so that it is where
    it was after a restart.
    """

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._waiting: deque[Death] = deque()
        self._running = False
        self._untold: i64 = 0  # of those that failed
        self._silent_until: i64 = 0

    def add(self, death: Death) -> None:
        """Dead-letter a message."""
        self._waiting.append(death)
        self._run()

    def pass_on(self, passage: Passage, held: Message | None, holder: Queue) -> None:
        """Put a message where it goes that the log, if it has it, has as `held` of `holder` until now."""
        passage.leave_out_full()
        self._append(passage, held, holder)
        passage.put(self._topology, DELAYED)
        self._run()

    def _run(self) -> None:
        if self._running:
            return
        self._running = True
        while self._waiting:
            death = self._waiting.popleft()
            try:
                self._send(death)
            except Exception as error:
                self._failed(death, error)
        self._running = False

    def _failed(self, death: Death, error: Exception) -> None:
        topology = self._topology
        topology.counters.dead_letters_failed += 1
        death.passage = None
        _note(death)
        self._untold += 1
        now = topology.schedule.now()
        if now < self._silent_until:
            return
        self._silent_until = now + REPORT_MS
        topology.trouble(
            f"dead letters failed: {int(self._untold)}, the last one of queue '{death.queue.name}' in vhost "
            f"'{topology.name}': {type(error).__name__}: {error}"
        )
        self._untold = 0

    def add_refused(self, queue: Queue, message: Message) -> None:
        """Dead-letter a message that `queue` did not take, and of which the log does not know."""
        rules = queue.rules
        if rules is not None and rules.passes_on:
            self.add(Death(queue, rules, message, MAXLEN, None, queue))

    def plan(self, death: Death) -> None:
        """Find out what the dead letter says and where it goes: the `passage` of the death.

        Raises OSError or LogDamaged if the disk does not give the message's content back.
        """
        topology = self._topology
        rules = death.rules
        old = death.message
        exchange = topology.exchanges.get(rules.dead_letter_exchange)
        if exchange is None:  # [RabbitMQ: dropped]
            return
        key = rules.dead_letter_key
        date = topology.schedule.date()
        letter = topology.write_letter(
            old,
            topology.store,
            Notice(death.queue.name, REASONS[death.reason], date, key is None, death.past),
        )
        route = rules.dead_letter_route
        if key is None:
            key = old.address.routing_key
        if route is None or route.address.routing_key != key:
            route = Route(Address(exchange.name, key), exchange)
            rules.dead_letter_route = route  # for the next of the same queue and key
        found = topology.destinations(route, [key, *letter.copies], letter.view)
        queues = list(found.queues)
        if death.reason != REJECTED:
            queues = [queue for queue in queues if not letter.ends_cycle(queue.name)]
        copy = Message(route.address, letter.content, old.size, old.persistent, old.priority)
        copy.date = date
        copy.died = True
        descends(copy, old)
        copy.body = old.body
        found.delay_message(copy, topology.schedule)
        passage = Passage(copy, queues, found.keepers)
        passage.leave_out_full()
        death.passage = passage

    def put(self, death: Death) -> None:
        """Put a dead letter where it goes: it is planned, and appended."""
        counters = self._topology.counters
        passage = death.passage
        _note(death)
        if passage is None:
            counters.discarded[death.reason] += 1
        else:
            counters.dead_lettered[death.reason] += 1
            passage.put(self._topology, DEAD_LETTERED)

    def _send(self, death: Death) -> None:
        self._topology.schedule.allowance.use(LETTER)
        self.plan(death)
        passage = death.passage
        if passage is not None:
            self._append(passage, death.held, death.holder)
        elif death.held is not None:
            self._topology.store.append_settle(death.held, death.holder)
        self.put(death)

    def _append(self, passage: Passage, held: Message | None, holder: Queue) -> None:
        """Append what is on its way, and have those who refuse it send it on.

        Whoever has it durably lets go of what the log has held until now; if nobody has, the next in the row.
        """
        store = self._topology.store
        logged = passage.logged
        rows = bool(passage.streams)
        if rows and store.failure:
            raise StoreFailed(store.refusal)  # the log goes on holding it
        if logged and held is not None:
            store.append_death(passage.message, logged, held, holder)
            held = None
        elif logged and not store.failure:
            store.append_message(passage.message, logged)
        if rows:
            passage.append_rows()
            if held is not None:
                store.append_burial(held, holder)
                held = None
        passage.append_identity(self._topology)
        for death in passage.deaths:
            death.held = held
            death.holder = holder
            held = None
            self._waiting.append(death)
        if held is not None:
            store.append_settle(held, holder)


def _note(death: Death) -> None:
    """Have the journal know of it, if the queue had the message."""
    journal = death.queue.journal
    if journal is not None and death.order != NO_PLACE:
        passage = death.passage
        to = passage.queues[0] if passage is not None and passage.queues else None
        journal.died(death.message, death.uid, death.order, death.reason, to)
        death.order = NO_PLACE
