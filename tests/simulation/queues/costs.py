"""Costs of single operations beside many unacknowledged, skipped, parked or idle entries: F4, counted.

Steps are the interpreter's own, in the broker's code, and those from entry to entry; where that code is
compiled, which hides the former, the latter alone. They are the same in every run, which time never is.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import broker
from broker.core.entries.list import FifoEntryList, QueueEntryList
from broker.core.entries.priority import PriorityEntryList
from broker.core.queues.attach import get_one
from tests.simulation.queues.invariants import InvariantError
from tests.support.core.group_bench import GroupBench, NumberFilter
from tests.support.core.queue_bench import QueueBench
from tests.unit.core.queues.test_queue import CountingList

NAME = "F4"
MEANING = "what an operation costs does not grow with what it is not about"
FEW, MANY = 100, 3_000
GROWTH_MAX = 1.5  # heaps may be higher
BROKER = str(Path(broker.__file__).parent)


class Steps:
    """Counts while it is entered."""

    def __init__(self) -> None:
        self.count = 0
        self._lists: list[CountingList] = []
        self._before: Any = None

    def through(self, entries: QueueEntryList) -> QueueEntryList:
        """The same list, of which every step is counted."""
        counting = CountingList(entries)
        self._lists.append(counting)
        return counting

    def __enter__(self) -> Steps:
        self.count = -sum(entries.steps for entries in self._lists)
        self._before = sys.gettrace()
        sys.settrace(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)
        self.count += sum(entries.steps for entries in self._lists)

    def _called(self, frame: FrameType, _event: str, _arg: object) -> Any:
        if not frame.f_code.co_filename.startswith(BROKER):
            return None
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        return self._stepped

    def _stepped(self, _frame: FrameType, event: str, _arg: object) -> Any:
        self.count += event == "opcode"
        return self._stepped


Situation = Callable[[int, Steps], Iterator[None]]
"""Makes a crowd of that size, yields, and does what is to be counted."""


def returned_and_got_again(crowd: int, steps: Steps) -> Iterator[None]:
    """A single entry of many unacknowledged ones returns, and is delivered again."""
    bench = QueueBench(steps.through(FifoEntryList()))
    client = bench.client()
    bench.publish(crowd)
    bench.run(crowd)
    yield
    client.nack(crowd // 2)
    bench.run()
    assert client.numbers[crowd:] == [crowd // 2]


def returned_among_many(crowd: int, steps: Steps) -> Iterator[None]:
    """A single entry returns where many entries have returned."""
    bench = QueueBench(steps.through(FifoEntryList()))
    client = bench.client(crowd)
    bench.publish(crowd)
    bench.run(crowd)
    client.session.set_flow(False)
    client.nack(*range(2, crowd + 1))
    yield
    client.nack(1)
    assert bench.queue.ready == crowd


def got(crowd: int, steps: Steps) -> Iterator[None]:
    """A basic.get, behind many that are out."""
    bench = QueueBench(steps.through(FifoEntryList()))
    bench.client(crowd)
    bench.publish(crowd + 1)
    bench.run(crowd)
    yield
    assert get_one(bench.queue, bench.getter()) is not None


def settled_from_behind(crowd: int, steps: Steps) -> Iterator[None]:
    """The last of many unacknowledged entries is settled, and the next one is delivered."""
    bench = QueueBench(steps.through(FifoEntryList()))
    client = bench.client(crowd)
    bench.publish(crowd + 1)
    bench.run(crowd)
    yield
    client.ack(crowd)
    bench.run()
    assert client.numbers[-1] == crowd + 1


def arrived_above(crowd: int, steps: Steps) -> Iterator[None]:
    """A message of a higher priority than many which its consumer has passed by."""
    bench = QueueBench(steps.through(PriorityEntryList(2)))
    client = bench.client(entry_filter=NumberFilter(lambda number: number > crowd))
    bench.publish(crowd + 1)
    bench.run()
    yield
    bench.publish(priority=1)
    bench.run()
    assert client.numbers == [crowd + 1, crowd + 2]


def arrived_behind(crowd: int, steps: Steps) -> Iterator[None]:
    """A message behind many which its consumer has passed by."""
    bench = QueueBench(steps.through(FifoEntryList()))
    client = bench.client(entry_filter=NumberFilter(lambda number: number > crowd))
    bench.publish(crowd + 1)
    bench.run()
    yield
    bench.publish()
    bench.run()
    assert client.numbers == [crowd + 1, crowd + 2]


def settled_in_groups(crowd: int, steps: Steps) -> Iterator[None]:
    """Two consumers alternate with long runs of two groups."""
    bench = GroupBench(steps.through(FifoEntryList()), sticky=False)
    clients = [bench.client(1), bench.client(1)]
    bench.send(*["a"] * crowd, *["b"] * crowd)
    bench.run()
    yield
    for client in clients:
        client.ack()
        bench.run()
    assert sum(len(client.numbers) for client in clients) == 4


def arrived_for_one_of_many(crowd: int, steps: Steps) -> Iterator[None]:
    """A single message, and many idle consumers."""
    bench = QueueBench(steps.through(FifoEntryList()))
    clients = [bench.client() for _ in range(crowd)]
    yield
    bench.publish()
    bench.run()
    assert sum(len(client.numbers) for client in clients) == 1


def returned_beside_many(crowd: int, steps: Steps) -> Iterator[None]:
    """Some entries return where many consumers have full windows."""
    bench = QueueBench(steps.through(FifoEntryList()))
    client = bench.client()
    bench.publish(20)
    bench.run(20)
    for _ in range(crowd):
        bench.client(1)
    client.session.set_flow(False)
    bench.publish(crowd)
    bench.run(crowd)
    yield
    client.nack()
    assert bench.queue.ready == 20


def arrived_below_many_priorities(crowd: int, steps: Steps) -> Iterator[None]:
    """A message for a consumer of the lowest of many priorities: the others have all that they may."""
    bench = QueueBench(steps.through(FifoEntryList()))
    lowest = bench.client()
    for priority in range(1, crowd + 1):
        bench.client(1, priority=priority)
    bench.publish(crowd)
    bench.run()
    assert lowest.numbers == []
    yield
    bench.publish()
    bench.run()
    assert lowest.numbers == [crowd + 1]


def settled_among_many_priorities(crowd: int, steps: Steps) -> Iterator[None]:
    """A consumer in the middle of many priorities settles a message and gets the next."""
    bench = QueueBench(steps.through(FifoEntryList()))
    clients = [bench.client(1, priority=priority) for priority in range(crowd)]
    bench.publish(crowd + 1)
    bench.run()
    yield
    clients[crowd // 2].ack()
    bench.run()
    assert clients[crowd // 2].numbers[1:] == [crowd + 1]


SITUATIONS: tuple[Situation, ...] = (
    returned_and_got_again,
    returned_among_many,
    got,
    settled_from_behind,
    arrived_above,
    arrived_behind,
    settled_in_groups,
    arrived_for_one_of_many,
    returned_beside_many,
    arrived_below_many_priorities,
    settled_among_many_priorities,
)


def cost(situation: Situation, crowd: int) -> int:
    """Return the steps of an operation beside a crowd of this size."""
    steps = Steps()
    course = situation(crowd, steps)
    next(course)
    with steps:
        next(course, None)
    return steps.count


def check_cost(situation: Situation) -> None:
    """F4: as many steps beside many as beside few."""
    few, many = cost(situation, FEW), cost(situation, MANY)
    if many > GROWTH_MAX * few:
        text = f"{situation.__name__} takes {few} steps beside {FEW}, {many} beside {MANY}"
        raise InvariantError(NAME, f"{MEANING}: {text}")
