"""Who publishes to one queue or exchange hears when it is gone, and of all that is gone in slices."""

from typing import Final

import pytest

from broker.core.queues.queue import Queue
from broker.core.routing.graph import Exchange
from broker.core.vhosts.deletion import SLICE, Dependent
from broker.core.vhosts.vhost import VirtualHost
from tests.clock import HandClock
from tests.topology import RecordingStore, add_exchange, new_broker

MANY: Final = 3 * int(SLICE) + 1


class Sender(Dependent):
    """Notes that it was told, and what it then leaves."""

    def __init__(self, vhost: VirtualHost, node: Queue | Exchange, told: list["Sender"]) -> None:
        super().__init__(node)
        self.others: list[Sender] = []
        self._vhost = vhost
        self._told = told
        vhost.dependents.add(self)

    def node_deleted(self) -> None:
        """It leaves, as all do, and takes others along (Dependent)."""
        self._told.append(self)
        for sender in [self, *self.others]:
            self._vhost.dependents.remove(sender)


class Land:
    """A virtual host with a queue, an exchange and whoever is told."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.broker = new_broker(RecordingStore(), self.clock)
        self.vhost = self.broker.declare_vhost("v")
        self.queue = self.vhost.declarations.declare_queue("q", False, None, False, {})
        add_exchange(self.vhost, "x")
        self.exchange = self.vhost.topology.exchanges["x"]
        self.told: list[Sender] = []

    def senders(self, node: Queue | Exchange, count: int) -> list[Sender]:
        """So many that depend on a node."""
        return [Sender(self.vhost, node, self.told) for _ in range(count)]

    def slices(self) -> list[int]:
        """How many are told in each of the turns to come."""
        found: list[int] = []
        while self.vhost.dependents.due:
            before = len(self.told)
            self.clock.schedule.run()
            found.append(len(self.told) - before)
        return found


@pytest.fixture
def land() -> Land:
    return Land()


def test_they_hear_in_slices_and_never_from_inside_the_deletion(land: Land) -> None:
    senders = land.senders(land.queue, MANY)
    land.vhost.declarations.delete_queue("q", False, False, None)
    assert land.told == []
    assert land.slices() == [SLICE, SLICE, SLICE, 1]
    assert set(land.told) == set(senders)
    assert len(land.told) == MANY


def test_only_those_of_what_is_deleted_hear_of_it(land: Land) -> None:
    other = land.vhost.declarations.declare_queue("other", False, None, False, {})
    land.senders(other, 2)
    ours = land.senders(land.exchange, 2)
    land.vhost.declarations.delete_queue("q", False, False, None)
    assert land.slices() == []  # nobody is asked
    land.vhost.declarations.delete_exchange("x", False)
    land.slices()
    assert set(land.told) == set(ours)


def test_who_leaves_before_its_turn_is_not_told(land: Land) -> None:
    senders = land.senders(land.queue, MANY)
    land.vhost.declarations.delete_queue("q", False, False, None)
    land.clock.schedule.run()
    for sender in senders:
        land.vhost.dependents.remove(sender)
    land.slices()
    assert len(land.told) == SLICE


def test_who_is_told_may_take_others_along(land: Land) -> None:
    first, last = land.senders(land.queue, 2)
    first.others, last.others = [last], [first]
    land.vhost.declarations.delete_queue("q", False, False, None)
    land.slices()
    assert len(land.told) == 1


def test_another_queue_of_the_name_is_another_node(land: Land) -> None:
    old = land.senders(land.queue, 1)
    land.vhost.declarations.delete_queue("q", False, False, None)
    new = land.senders(land.vhost.declarations.declare_queue("q", False, None, False, {}), 1)
    land.slices()
    assert land.told == old
    land.vhost.declarations.delete_queue("q", False, False, None)
    land.slices()
    assert land.told == old + new


@pytest.mark.parametrize("kind", ["queue", "exchange"])
def test_a_virtual_host_that_is_deleted(land: Land, kind: str) -> None:
    nodes: list[Queue | Exchange] = []
    name = "q" if kind == "queue" else "x"
    for number in range(MANY):
        land.vhost.declarations.declare_queue(f"q{number}", False, None, False, {})
        add_exchange(land.vhost, f"x{number}")
        nodes.append(
            (land.vhost.topology.queues if kind == "queue" else land.vhost.topology.exchanges)[
                f"{name}{number}"
            ]
        )
    senders = [sender for node in nodes for sender in land.senders(node, 1)]
    land.broker.delete_vhost("v")
    assert land.told == []
    told = []
    while len(land.told) < MANY:
        before = len(land.told)
        land.clock.schedule.run()
        told.append(len(land.told) - before)
    assert max(told) <= SLICE
    assert set(land.told) == set(senders)
