"""basic.get in the world, which may wait: then a consumer with a credit of 1."""

import pytest

from broker.core.delivery.credit import Credit
from broker.core.errors import QueueStopped, ResourceLocked
from broker.core.queues.attach import attach, get_one
from broker.core.queues.consumer import QueueConsumer
from tests.property.queue_probe import Probe
from tests.property.queue_serving import IN_ORDER
from tests.property.queue_world import World


def get(world: World, wire: int, queue: int, waits: bool = False) -> None:
    """Take the first message; if there is none and it `waits`, be served in turn, and again when settled."""
    model = world.models[queue % len(world.models)]
    probe = Probe(world, world.session(wire)[0], Credit(1), None)
    world.probes.append(probe)
    model.requests.add(probe)
    getter = QueueConsumer(probe, model.queue)
    getter.getting = waits and world.serving != IN_ORDER
    if model.refuses_get():
        with pytest.raises((QueueStopped, ResourceLocked)):
            get_one(model.queue, getter)
        return
    entry = get_one(model.queue, getter)
    assert (entry is None) == (model.first_for(getter) is None)
    if entry is not None:
        world.delivered(probe, getter, entry)
    elif getter.getting:
        attach(model.queue, getter)
