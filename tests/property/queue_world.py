"""Queues, clients and connections under random operations, beside a list model of what must happen.

`World` performs the operations of clients and operators and keeps the model. The checks at a delivery and at
rest are in `queue_clients`, those of the structure in `queue_checks`. Arguments that choose something are any
number: the choice is the number modulo the count of choices, so that shrinking works.
"""

from __future__ import annotations

import pytest

from broker.core.counters import Counters
from broker.core.delivery.credit import Credit
from broker.core.delivery.session import Session
from broker.core.entries.entry import QueueEntry
from broker.core.errors import AccessRefused, NotFound, QueueStopped, ResourceLocked
from broker.core.message import NEVER, Message
from broker.core.operators.operation import Operation
from broker.core.queues import purge as purges
from broker.core.queues.attach import attach, detach, get_one
from broker.core.queues.consumer import QueueConsumer
from broker.core.queues.immediate import enqueue_immediate
from broker.core.queues.limits import Limits
from broker.core.queues.queue import Queue, queue_of
from broker.core.queues.retry import Retry
from broker.core.queues.returns import release_entries
from broker.core.queues.stops import DEQUEUE, set_stopped
from tests.property.queue_clients import (
    Probe,
    check_delivery,
    check_rest,
    immediate_taker_exists,
    new_wire,
    pick,
)
from tests.property.queue_model import Model, Multiples, new_queue
from tests.property.queue_rules import EVERYBODY, IN_ORDER, ORDERS, OUT, READY, SOME, Item
from tests.support.core.hand_clock import HandClock
from tests.support.core.purge import purge
from tests.support.core.queue_bench import HandScheduler, MemoryStore, message, number_of
from tests.support.core.topology import new_vhost


class World:
    """`levels` of message priority, `queues`, how far one scan may go, who is served, and in which `order`.

    `filtering`: some consumers are to see only some messages. `rule`: one of RULES.
    `ttl`: milliseconds that a message may wait; NEVER: as its own expiration says; None: nothing expires.
    `retry`: milliseconds that a returned message waits at first; 0: nothing waits.
    """

    def __init__(
        self,
        levels: int = 1,
        queues: int = 1,
        scan_budget: int = 5000,
        serving: str = EVERYBODY,
        wires: int = 3,
        ttl: int | None = None,
        filtering: bool = False,
        rule: str = "",
        retry: int = 0,
        order: str = "",
    ) -> None:
        self.retry = retry
        self.order = ORDERS[order](levels)
        self.levels = levels
        self.filtering = filtering
        self.rule = rule
        self.scan_budget = scan_budget
        self.serving = serving
        self.scheduler = HandScheduler()
        self.clock = HandClock()
        self.ttl = ttl
        self.vhost = new_vhost(clock=self.clock)
        self.store = MemoryStore()
        self.counters = Counters()
        self.numbers = self.deliveries = 0
        self.items: dict[int, Item] = {}
        self.models = [self._new_queue(str(n)) for n in range(queues)]
        self.wires = [new_wire(self.scheduler) for _ in range(wires)]
        self.probes: list[Probe] = []
        self.operators: list[Operator] = []
        self.watches: list[PurgeWatch] = []

    # ---- publishing

    def publish(self, queue: int, size: int, priority: int, expiration: int = NEVER) -> None:
        model, item, published = self._new_message(queue, size, priority, expiration)
        model.add(item)
        model.queue.enqueue(published)

    def publish_immediate(self, queue: int, size: int, priority: int, expiration: int = NEVER) -> None:
        model, item, published = self._new_message(queue, size, priority, expiration)
        if self.order.replaced(model.items, item):
            assert not enqueue_immediate(model.queue, published), "an immediate message replaces nothing"
            return
        expected = immediate_taker_exists(model, item)
        model.add(item)
        taken = enqueue_immediate(model.queue, published)
        assert taken == expected, "immediate: delivered if and only if somebody can take it now"
        if not taken:
            model.drop(item)

    # ---- consumers

    def attach(
        self,
        wire: int,
        queues: int,
        priority: int,
        prefetch: int,
        prefetch_bytes: int,
        kind: int,
        shared: bool,
        lease: int = 0,
        divisor: int = 0,
    ) -> None:
        """`divisor`: of the numbers of the messages that it sees; 0: it has no filter. `kind`: mostly an
        ordinary consumer; 4 is to be elected, 5 browses, 6 is no-ack, 7 is exclusive.
        """
        kind %= 8
        no_ack = kind == 6
        session, session_credit = self.session(wire)
        credit = Credit() if no_ack else Credit(prefetch, prefetch_bytes)
        probe = Probe(self, session, credit, session_credit if shared and not no_ack else None)
        self.probes.append(probe)
        if kind not in (5, 6):
            probe.limit(lease)
        wanted = [self.models[queues % len(self.models)]]
        if queues >= len(self.models) and len(self.models) > 1:
            wanted.append(self.models[(queues + 1) % len(self.models)])
        sieve = Multiples(divisor) if divisor else None
        for model in wanted:
            consumer = QueueConsumer(probe, model.queue, kind != 5, priority, kind == 7, "", no_ack, sieve)
            consumer.candidate = kind == 4 and self.serving.startswith(SOME)
            refused = model.refuses(consumer)
            try:
                attach(model.queue, consumer)
                assert not refused
                model.attached(consumer)
            except AccessRefused:
                assert refused
            consumer.context.scan_budget = self.scan_budget

    def get(self, wire: int, queue: int, waits: bool = False) -> None:
        """Do basic.get; on an empty queue, a client that `waits` attaches a consumer with a credit of 1."""
        model = self.models[queue % len(self.models)]
        probe = Probe(self, self.session(wire)[0], Credit(1), None)
        self.probes.append(probe)
        model.requests.add(probe)
        getter = QueueConsumer(probe, model.queue)
        getter.getting = waits and self.serving != IN_ORDER
        if model.refuses_get():
            with pytest.raises((QueueStopped, ResourceLocked)):
                get_one(model.queue, getter)
            return
        entry = get_one(model.queue, getter)
        assert (entry is None) == (model.first_for(getter) is None)
        if entry is not None:
            self.delivered(probe, getter, entry)
        elif getter.getting:
            attach(model.queue, getter)

    def cancel(self, which: int) -> None:
        """Do basic.cancel: deliveries stay with the client."""
        probe = self._probe(which)
        if probe is not None:
            probe.close()
            for consumer in list(probe.consumers):
                detach(queue_of(consumer), consumer, [])

    def lose_connection(self, wire: int) -> None:
        lost = self.wires[wire % len(self.wires)]
        lost.connection.close_targets()
        for probe in [probe for probe in self.probes if probe.session.connection is lost.connection]:
            for consumer in list(probe.consumers):
                detach(queue_of(consumer), consumer, self._give_back(probe, consumer))
            for consumer in {consumer for consumer, _ in probe.held}:  # cancelled before, or basic.get
                release_entries(queue_of(consumer), self._give_back(probe, consumer), consumer)
            self.probes.remove(probe)
            probe.limit(0)
        self.wires[self.wires.index(lost)] = new_wire(self.scheduler)

    def block(self, wire: int, blocked: bool) -> None:
        self.wires[wire % len(self.wires)].connection.set_blocked(blocked)

    def flow(self, wire: int, active: bool) -> None:
        self.session(wire)[0].set_flow(active)

    def resize(self, which: int, shared: bool, count: int, size: int) -> None:
        """Do basic.qos, for a consumer or for its session."""
        probe = self._probe(which)
        if probe is not None and not any(consumer.no_ack for consumer in probe.consumers):
            credit = probe.session_credit if shared else probe.credit
            if credit is not None:
                credit.resize(count, size)

    # ---- settling

    def settle(self, which: int, first: int, count: int, discard: bool = False) -> None:
        for probe, consumer, entry in pick(self.probes, which, first, count):
            if consumer.acquires:
                self._item_gone(entry)
                (Queue.discard if discard else Queue.settle)(queue_of(consumer), entry)
            probe.restore_credit(entry.message.size)

    def release(self, which: int, first: int, count: int) -> None:
        picked = pick(self.probes, which, first, count)
        for consumer in {consumer: None for _, consumer, _ in picked}:
            entries = [entry for _, owner, entry in picked if owner is consumer]
            if consumer.acquires:
                self.items_back(entries)
                release_entries(queue_of(consumer), entries, consumer)
        for probe, _, entry in picked:
            probe.restore_credit(entry.message.size)

    def promise(self, which: int, first: int, count: int) -> None:
        """Settle up to `count` deliveries of a client in a committed transaction."""
        holders = [probe for probe in self.probes if probe.held]
        if holders:
            probe = holders[which % len(holders)]
            start = first % len(probe.held)
            for consumer, entry in probe.held[start : start + count]:
                discipline = queue_of(consumer).discipline
                if consumer.acquires and discipline is not None:
                    discipline.note_promise(entry, consumer)
                    self.model_of(queue_of(consumer)).rule.promised(self.items[number_of(entry)])

    def roll_back(self, wire: int) -> None:
        """The transaction of a session does not happen."""
        session = self.session(wire)[0]
        for probe in [probe for probe in self.probes if probe.session is session]:
            for consumer in {consumer: None for consumer, _ in probe.held if consumer.acquires}:
                entries = [entry for owner, entry in probe.held if owner is consumer]
                entries = [entry for entry in entries if self.items[number_of(entry)].promised]
                for entry in entries:
                    self.model_of(queue_of(consumer)).rule.withdrawn(self.items[number_of(entry)])
                discipline = queue_of(consumer).discipline
                if entries and discipline is not None:
                    discipline.note_withdrawal(entries)

    def purge(self, queue: int) -> None:
        model = self.models[queue % len(self.models)]
        if model.queue.manager.purges:
            return  # the get would have to wait
        there = [item for item in model.items if item.state != OUT]
        for item in there:
            model.drop(item)
        assert purge(model.queue) == len(there)

    def begin_purge(self, queue: int, most: int) -> None:
        """Begin to purge a queue, `most` entries in a turn, while clients go on."""
        model = self.models[queue % len(self.models)]
        if model.queue.manager.purges:
            return  # the model cannot know which purge has dropped which entry
        begun = purges.purge(model.queue, self.clock.schedule, most)
        self.watches.append(PurgeWatch(model, self.numbers, begun))
        self._follow_purges()

    def delete(self, queue: int) -> None:
        """Delete a queue and declare another in its place."""
        model = self.models[queue % len(self.models)]
        purges.dispose(model.queue, self.clock.schedule)
        for item in list(model.items):
            model.drop(item)
        self.models[self.models.index(model)] = self._new_queue(model.queue.name)

    # ---- operators

    def switch(self, queue: int, off: bool) -> None:
        """Stop the deliveries of a queue, or start them again."""
        set_stopped(self.models[queue % len(self.models)].queue, [DEQUEUE] if off else [])

    def begin_operation(self, queue: int, first: int, count: int) -> None:
        """Mark up to `count` ready entries, from the `first` on."""
        if self.serving not in (EVERYBODY, IN_ORDER):
            return  # handing over waits for operators too, which the model does not know
        model = self.models[queue % len(self.models)]
        ready = [item for item in model.items if item.state == READY]
        operator = Operator(self, model)
        self.operators.append(operator)
        entries = {number_of(entry): entry for entry in model.queue.entries}
        model.rule.look()
        for item in ready[first % max(1, len(ready)) :][:count]:
            operator.remove(entries[item.number])
            item.state, item.owner, item.was_out = OUT, operator.holder, True
            model.rule.taken(operator.holder, item)

    def end_operation(self, which: int, done: bool) -> None:
        """Discard the marked entries of an operator, or return them."""
        if not self.operators:
            return
        operator = self.operators.pop(which % len(self.operators))
        entries = [entry for _, entry in operator.probe.held]
        operator.probe.held = []
        if done and not operator.queue.deleted:
            for entry in entries:
                operator.model.drop(self.items[number_of(entry)])
            operator.commit()
            return
        for item in [self.items[number_of(entry)] for entry in entries]:
            if item.is_late(self.clock.now) or item.outdated:
                operator.model.drop(item)
            else:
                item.state, item.owner = READY, None
        operator.model.rule.look()
        if done:
            try:
                operator.commit()
            except NotFound:
                assert operator.queue.deleted
        operator.abort()

    # ---- time and turns

    def pass_time(self, milliseconds: int) -> None:
        """Whatever becomes due happens at its own time."""
        self.clock.advance(milliseconds)
        self._follow_purges()
        for model in self.models:
            model.expire(self.clock.now)

    def run_due(self) -> None:
        """Run everything that is due once."""
        self.clock.wakes.clear()
        self.clock.schedule.run()
        self._follow_purges()
        for model in self.models:
            model.expire(self.clock.now)

    def step(self, budget: int) -> None:
        self.scheduler.step(budget)

    def run(self, budget: int) -> None:
        """Run all turns; then everything that can be delivered must have been."""
        self.scheduler.run(budget, turns_max=20_000)
        check_rest(self.models)

    def delivered(self, probe: Probe, consumer: QueueConsumer, entry: QueueEntry) -> None:
        """`consumer` has just been given `entry`."""
        self.deliveries += 1
        model = self.model_of(queue_of(consumer))
        item = self.items[number_of(entry)]
        check_delivery(self.clock.now, model, probe, consumer, item, entry)
        probe.seen.add((consumer, item.number))
        if consumer.acquires:
            item.sends += 1
            item.state, item.owner, item.was_out = OUT, consumer, True
            model.rule.taken(consumer, item)
        if consumer.no_ack and consumer.acquires:
            model.drop(item)
        elif not consumer.no_ack:
            probe.hold(consumer, entry, self.deliveries)

    def model_of(self, queue: Queue) -> Model:
        return next(model for model in self.models if model.queue is queue)

    # ---- inside

    def _new_queue(self, name: str) -> Model:
        queue = new_queue(name, self.store, self.counters, self.order, self.rule, self.clock.schedule)
        queue.context.scan_budget = self.scan_budget
        if self.ttl is not None:
            queue.limits = Limits(queue, self.vhost)
            queue.limits.apply({} if self.ttl == NEVER else {"x-message-ttl": self.ttl})
        if self.retry:
            queue.retry = Retry(queue, self.vhost)
            queue.retry.apply({"x-retry-min": self.retry, "x-retry-max": 4 * self.retry})
        return Model(queue, self.order, self.serving, self.rule)

    def session(self, wire: int) -> tuple[Session, Credit]:
        sessions = self.wires[wire % len(self.wires)].sessions
        return sessions[wire // len(self.wires) % len(sessions)]

    def _new_message(
        self, queue: int, size: int, priority: int, expiration: int
    ) -> tuple[Model, Item, Message]:
        self.numbers += 1
        rank = self.order.rank(priority, self.numbers)
        item = self.items[self.numbers] = Item(rank, self.numbers, size, key=priority)
        published = message(item.number, size, priority)
        if self.ttl is not None:
            published.expiration = expiration
            waits = [time for time in (self.ttl, expiration) if time != NEVER]
            item.due = self.clock.now + min(waits) if waits else None
        return self.models[queue % len(self.models)], item, published

    def _follow_purges(self) -> None:
        """Check P1: a removed entry was purged or late; P2: a purge leaves only acquired entries."""
        for watch in list(self.watches):
            model, begun = watch.model, watch.purge
            if model in self.models:
                live = {number_of(entry) for entry in model.queue.entries}
                gone = [
                    item for item in model.items if item.number not in live and item.number <= watch.newest
                ]
                dropped = begun.dropped - watch.known
                sure = [item for item in gone if not item.is_late(self.clock.now)]
                assert len(sure) <= dropped <= len(gone), "P1: something else has gone"
                for item in gone:
                    assert item.state != OUT, "P1: somebody had it"
                    model.drop(item)
                for item in model.items if begun.over else ():
                    stays = item.number > watch.newest or item.was_out
                    assert stays, f"P2: {item.number} is left"
            watch.known = int(begun.dropped)
            if begun.over:
                self.watches.remove(watch)

    def _probe(self, which: int) -> Probe | None:
        return self.probes[which % len(self.probes)] if self.probes else None

    def _give_back(self, probe: Probe, consumer: QueueConsumer) -> list[QueueEntry]:
        entries = probe.give_back(consumer)
        if not consumer.acquires:
            return []
        self.items_back(entries)
        return entries

    def _item_gone(self, entry: QueueEntry) -> None:
        item = self.items[number_of(entry)]
        assert item.owner is not None
        self.model_of(queue_of(item.owner)).drop(item)

    def items_back(self, entries: list[QueueEntry]) -> None:
        for entry in entries:
            item = self.items[number_of(entry)]
            assert item.owner is not None
            self.model_of(queue_of(item.owner)).back(item, self.clock.now, self.retry)


class Operator(Operation):
    """An operation that is under way."""

    def __init__(self, world: World, model: Model) -> None:
        self.model = model
        self.probe = Probe(world, new_wire(world.scheduler).sessions[0][0], Credit(), None)
        super().__init__(
            world.vhost.publisher, model.queue, QueueConsumer(self.probe, model.queue, no_ack=True)
        )

    def remove(self, entry: QueueEntry) -> None:
        super().remove(entry)
        self.probe.held.append((self.holder, entry))

    def on_committed(self) -> None:
        """Do nothing: no client waits."""


class PurgeWatch:
    """A purge that goes on, and the count of its entries that have left the model.

    `newest`: the number of the last message published before the purge.
    """

    def __init__(self, model: Model, newest: int, purge: purges.Purge) -> None:
        self.model = model
        self.newest = newest
        self.purge = purge
        self.known = 0
