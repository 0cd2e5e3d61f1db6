"""The way of dead letters, from the queues that they have left to others. [RabbitMQ dead letter exchanges]"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, final

from broker.core.dead_letter import MAXLEN, REASONS, REJECTED, Death
from broker.core.keeper import Keeper
from broker.core.letter import Notice
from broker.core.message import Address, Message
from broker.core.passage import Passage
from broker.core.queue import Queue
from broker.core.route import Route

if TYPE_CHECKING:
    from broker.core.topology import Topology


@final
class DeadLetters:
    """Sends the dead letters of one virtual host on their way, one after the other.

    What arrives may be one too many where it arrives, and so on from queue to queue: such deaths wait in a
    list, so that no row of queues reaches the end of the stack. All of them are done before `add` returns to
    whoever called it first.
    """

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._waiting: deque[Death] = deque()
        self._running = False

    def add(self, death: Death) -> None:
        """Dead-letter a message.

        Raises OSError or LogDamaged if the disk does not give its content back. Then it is in no queue any
        more, and the log goes on holding it.
        """
        self._waiting.append(death)
        self._run()

    def pass_on(
        self,
        message: Message,
        queues: list[Queue],
        keepers: list[Keeper],
        held: Message | None,
        holder: Queue,
    ) -> None:
        """Put a message where it goes that the log, if it has it, has as `held` of `holder` until now."""
        passage = Passage(message, queues, keepers)
        passage.leave_out_full()
        self._append(passage, held, holder)
        passage.put(self._topology)
        self._run()

    def _run(self) -> None:
        if self._running:
            return
        self._running = True
        failure: Exception | None = None
        while self._waiting:
            try:
                self._send(self._waiting.popleft())
            except Exception as error:
                failure = error
        self._running = False
        if failure is not None:
            raise failure

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
            old, topology.store, Notice(death.queue.name, REASONS[death.reason], date, key is None)
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
        copy.body = old.body
        found.delay_message(copy, topology.schedule)
        passage = Passage(copy, queues, found.keepers)
        passage.leave_out_full()
        death.passage = passage

    def put(self, death: Death) -> None:
        """Put a dead letter where it goes: it is planned, and appended."""
        counters = self._topology.counters
        passage = death.passage
        if passage is None:
            counters.discarded[death.reason] += 1
        else:
            counters.dead_lettered[death.reason] += 1
            passage.put(self._topology)

    def _send(self, death: Death) -> None:
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
        if logged and held is not None:
            store.append_death(passage.message, logged, held, holder)
            held = None
        elif logged and not store.failure:
            store.append_message(passage.message, logged)
        for death in passage.deaths:
            death.held = held
            death.holder = holder
            held = None
            self._waiting.append(death)
        if held is not None:
            store.append_settle(held, holder)
