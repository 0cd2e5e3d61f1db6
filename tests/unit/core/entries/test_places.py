"""The places and ids of a queue's entries, compared with counting."""

from random import Random

import pytest

from broker.core.entries.entry import AVAILABLE, QueueEntry
from broker.core.entries.places import BLOCK, IDLE_MIN, NO_NUMBER, Sums
from broker.core.operators.operation import mark, unmark
from broker.core.queues.queue import Queue, drop
from broker.core.queues.search import IdSearch, PlaceSearch, is_message_id, message_id
from broker.core.queues.state import places_of
from tests.property.queue_rules import ORDERS
from tests.support.core.queue_bench import QueueBench
from tests.support.effort import cases, lines_executed


def test_sums_are_those_of_the_numbers_before() -> None:
    sums = Sums()
    numbers: list[int] = []
    random = Random(1)
    for _ in range(40):
        numbers.append(random.randrange(3))
        sums.append(numbers[-1])
        index = random.randrange(len(numbers))
        numbers[index] += 2
        sums.add(index, 2)
        for at in range(len(numbers) + 1):
            assert sums.before(at) == sum(numbers[:at])
        for count in range(sum(numbers) + 2):
            first = next((at for at in range(len(numbers)) if sum(numbers[: at + 1]) > count), len(numbers))
            assert sums.holding(count) == first


def check(queue: Queue, random: Random) -> None:
    """Check that the places equal counting, up to the last counted entry."""
    places = places_of(queue)
    places.extend(random.randrange(4))
    everything = list(queue.entries)
    counted = everything[: int(places.count(False))]
    assert places.end is (counted[-1] if counted else queue.entries.head)
    ready = [entry for entry in counted if entry.state == AVAILABLE]
    assert places.count(True) == len(ready)
    for entries, only_ready in ((counted, False), (ready, True)):
        assert [places.nth(at, only_ready) for at in range(len(entries) + 1)] == [*entries, None]
        assert [places.place(entry, only_ready) for entry in entries] == list(range(len(entries)))
    for number, entry in enumerate(everything):
        placeholder = queue.entries.placeholder(queue.entries.mark(entry))
        assert places.reaches(placeholder) == (number + 1 < len(counted) or len(counted) == len(everything))
        if number < len(counted):
            found = places.find(NO_NUMBER, queue.entries.arrival(entry))
            assert found is entry
            assert places.last_up_to(placeholder) is entry


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("seed", range(cases(100)))
def test_places_equal_the_counted_positions(order: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.core.entries.places.BLOCK", 3)
    random = Random(seed)
    bench = QueueBench(ORDERS[order](3).entries())
    queue = bench.queue
    taker = bench.getter()
    taken: list[QueueEntry] = []
    client = bench.client(2)
    for _ in range(60):
        entries = list(queue.entries)
        ready = [entry for entry in entries if entry.state == AVAILABLE]
        act = random.randrange(8)
        if act < 4:
            bench.publish(random.randrange(1, 4), priority=random.randrange(4))
        elif act == 4 and ready:
            taken.append(random.choice(ready))
            mark(queue, taken[-1], taker)
        elif act == 5 and taken:
            unmark(queue, [taken.pop(random.randrange(len(taken)))], taker)
        elif act == 6 and ready:
            drop(queue, random.choice(ready))
        elif client.held:
            client.ack() if random.random() < 0.6 else client.nack()
        if random.random() < 0.5:
            bench.run()
        check(queue, random)


def test_a_question_about_a_long_queue_looks_at_few_entries() -> None:
    """Entries that are counted once are not counted again, and the steps grow as a logarithm does."""
    bench = QueueBench()
    bench.publish(100 * BLOCK)
    places = places_of(bench.queue)
    while places.extend(10_000):
        pass
    near = lines_executed(lambda: places.nth(5, True))
    far = lines_executed(lambda: places.nth(99 * BLOCK + 5, True))
    assert far < near + 200
    search = IdSearch(bench.queue, f"mem-{99 * BLOCK + 6}")
    assert lines_executed(lambda: search.step(1)) < 20 * BLOCK
    assert search.entry is places.nth(99 * BLOCK + 5, True)


def test_unused_places_are_dropped() -> None:
    bench = QueueBench()
    bench.client(no_ack=True)
    places = places_of(bench.queue)
    places.extend(1)
    places.idle = IDLE_MIN - 4
    bench.publish(1)
    bench.run()
    assert bench.queue.places is places
    bench.publish(3)
    bench.run()
    assert bench.queue.places is None


def test_a_search_goes_on_in_steps_and_sees_what_changes_between_them() -> None:
    bench = QueueBench()
    bench.publish(20)
    search = PlaceSearch(bench.queue, 10)
    assert not search.step(4)
    drop(bench.queue, next(iter(bench.queue.entries)))
    assert not search.step(4)
    assert search.step(4)
    assert search.entry is not None
    assert message_id(bench.queue, search.entry) == "mem-12"
    beyond = PlaceSearch(bench.queue, 19)
    assert beyond.step(100)
    assert beyond.entry is None
    missing = IdSearch(bench.queue, "log-7")
    while not missing.step(5):
        pass
    assert missing.entry is None


def test_strings_in_the_form_of_an_id() -> None:
    for text in ("log-1", "mem-12"):
        assert is_message_id(text)
    for text in ("log-", "log-0", "log-x", "mem-1.5", "id-1", "", "log-" + "9" * 25, "mem-\u00b2"):
        assert not is_message_id(text)
