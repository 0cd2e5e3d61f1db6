"""Operators beside the clients of the world: they stop and start queues, and mark entries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.delivery.credit import Credit
from broker.core.entries.entry import QueueEntry
from broker.core.errors import NotFound
from broker.core.operators.operation import Operation
from broker.core.queues.consumer import QueueConsumer
from broker.core.queues.election import DEQUEUE, set_stopped
from tests.property.queue_items import OUT, READY
from tests.property.queue_model import Model
from tests.property.queue_probe import Probe, new_wire
from tests.property.queue_serving import EVERYBODY, IN_ORDER
from tests.support.core.queue_bench import number_of

if TYPE_CHECKING:
    from tests.property.queue_world import World


def switch(world: World, queue: int, off: bool) -> None:
    """Have a queue give nothing out, or start it again."""
    set_stopped(world.models[queue % len(world.models)].queue, [DEQUEUE] if off else [])


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


def begin(world: World, queue: int, first: int, count: int) -> None:
    """Mark up to `count` ready entries, from the `first` on."""
    if world.serving not in (EVERYBODY, IN_ORDER):
        return  # handing over waits for operators too, which the model does not know
    model = world.models[queue % len(world.models)]
    ready = [item for item in model.items if item.state == READY]
    operator = Operator(world, model)
    world.operators.append(operator)
    entries = {number_of(entry): entry for entry in model.queue.entries}
    model.rule.look()
    for item in ready[first % max(1, len(ready)) :][:count]:
        operator.remove(entries[item.number])
        item.state, item.owner, item.was_out = OUT, operator.holder, True
        model.rule.taken(operator.holder, item)


def end(world: World, which: int, done: bool) -> None:
    """Discard the marked entries of an operator, or return them."""
    if not world.operators:
        return
    operator = world.operators.pop(which % len(world.operators))
    entries = [entry for _, entry in operator.probe.held]
    operator.probe.held = []
    if done and not operator.queue.deleted:
        for entry in entries:
            operator.model.drop(world.items[number_of(entry)])
        operator.commit()
        return
    for item in [world.items[number_of(entry)] for entry in entries]:
        if item.is_late(world.clock.now) or item.outdated:
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
