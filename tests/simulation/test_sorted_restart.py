"""Sorted queues after a restart, when nothing of their messages is in memory."""

import random

import pytest

from broker.core.queues.death import bare_letter
from tests.simulation.queues.life import Life, message_of
from tests.simulation.queues.notes import Note
from tests.simulation.sim_disk import SimDisk
from tests.support.core.hand_clock import HandClock


@pytest.mark.parametrize("clean", [True, False])
def test_the_order_is_that_of_the_header(clean: bool) -> None:
    disk = SimDisk(random.Random(1))
    life = Life(disk, HandClock(), bare_letter)
    arguments: dict[str, object] = {"x-queue-kind": "sorted", "x-sort-key": "kind"}
    life.vhost.declarations.declare_queue("sorted", True, None, False, arguments)
    route = life.vhost.publisher.route("", "sorted")
    for number, kind in enumerate([3, 1, 2, 1]):
        life.vhost.publisher.publish(route, message_of(Note(number, 1, persistent=True, kind=kind), route))
    life.sync()
    if clean:
        life.close()
    disk.kill()
    again = Life(disk, HandClock(), bare_letter)
    queue = again.vhost.topology.queues["sorted"]
    assert [again.number(entry.message) for entry in queue.entries] == [1, 3, 2, 0]
