"""Consumers of the same value of an indexed header share a posting list, and others are not woken."""

import pytest

from broker.adapters.formats.either import SelectorFilter
from broker.core.entries.entry import EntryFilter, QueueEntry
from broker.core.errors import PreconditionFailed
from broker.core.message import Address, Message
from broker.core.queues.attach import attach, detach
from broker.core.queues.consumer import QueueConsumer
from broker.core.queues.queue import FILTERS_MAX, Queue
from broker.core.selector.selector import Selector
from broker.core.vhosts.definitions import restore_message
from tests.support.core.queue_bench import Client, HandScheduler
from tests.support.core.topology import content_of, new_vhost


class Counting(EntryFilter):
    """A filter that counts the calls of all filters."""

    asked = 0

    def __init__(self, queue: Queue, text: str) -> None:
        selector = Selector(text)
        super().__init__(selector.canonical)
        self.demands = selector.demands
        self.inner = SelectorFilter(selector, queue.store)

    def passes(self, entry: QueueEntry) -> bool:
        Counting.asked += 1
        return self.inner.passes(entry)


class IndexBench:
    """A queue with an index, and clients with selectors."""

    def __init__(self, index: str = "kind, correlation_id") -> None:
        self.vhost = new_vhost()
        self.queue = self.vhost.declarations.declare_queue("q", False, None, False, {"x-index": index})
        self.scheduler = HandScheduler()
        self.numbers: dict[Message, int] = {}
        Counting.asked = 0

    def message(self, headers: dict[str, object], correlation_id: str | None = None) -> Message:
        content = content_of(headers=headers, correlation_id=correlation_id)
        message = Message(Address("", "q"), content, 1, False, 0)
        self.numbers[message] = len(self.numbers) + 1
        return message

    def publish(self, **headers: object) -> None:
        self.queue.enqueue(self.message(headers))

    def client(self, text: str, prefetch: int = 0, acquires: bool = True, priority: int = 0) -> Client:
        client = Client(self.queue, self.scheduler, prefetch, acquires=acquires, priority=priority)
        detach(self.queue, client.consumer, [])
        sieve = Counting(self.queue, text) if text else None
        client.consumer = QueueConsumer(client, self.queue, acquires, priority, entry_filter=sieve)
        attach(self.queue, client.consumer)
        return client

    def got(self, client: Client) -> list[int]:
        self.scheduler.run()
        return [self.numbers[entry.message] for entry in client.deliveries]


def test_a_backlog_is_not_walked_over() -> None:
    bench = IndexBench()
    for number in range(3000):
        bench.publish(kind=f"k{number % 1000}", n=number)
    client = bench.client("kind = 'k7' AND n > 10", prefetch=1)
    assert bench.got(client) == [1008]
    client.ack()
    assert bench.got(client) == [1008, 2008]
    assert Counting.asked <= 6


def test_consumers_of_other_values_are_not_woken() -> None:
    bench = IndexBench()
    clients = [bench.client(f"kind = 'k{number}'") for number in range(10 * FILTERS_MAX)]
    other = bench.client("n = 1")
    Counting.asked = 0
    bench.publish(kind="k5")
    bench.publish(kind="k600", n=1)
    bench.publish(n=1)
    assert Counting.asked <= 6
    assert [bench.got(clients[5]), bench.got(clients[600]) + bench.got(other)] == [[1], [2, 3]]
    assert sum(client.notified for client in clients) <= 2


def test_too_many_selectors_with_one_value() -> None:
    bench = IndexBench()
    clients = [bench.client(f"kind = 'k' AND n = {number}") for number in range(FILTERS_MAX)]
    with pytest.raises(PreconditionFailed, match="64 different"):
        bench.client("kind = 'k' AND n = -1")
    clients[0].cancel()
    bench.client("kind = 'k' AND n = -1")


def test_a_returned_entry_is_found_again_in_its_order() -> None:
    bench = IndexBench()
    for number in range(6):
        bench.publish(kind="a" if number % 2 else "b")
    first = bench.client("kind = 'a'")
    assert bench.got(first) == [2, 4, 6]
    second = bench.client("kind = 'a' AND TRUE")
    plain = bench.client("", priority=-1)
    first.close()
    first.nack()
    assert bench.got(second) == [2, 4, 6]
    assert bench.got(plain) == [1, 3, 5]


def test_posting_lists_go_when_nobody_needs_them() -> None:
    bench = IndexBench()
    bench.publish(kind="a")
    client = bench.client("kind = 'b'")
    browser = bench.client("kind = 'a'", acquires=False)
    index = bench.queue.index
    assert index is not None
    assert list(index.posting_lists[0]) == ["a", "b"]
    plain = bench.client("")
    assert (bench.got(plain), bench.got(browser)) == ([1], [1])
    plain.ack()
    client.cancel()
    assert list(index.posting_lists[0]) == ["a"]
    browser.cancel()
    assert index.posting_lists == [{}, {}]
    assert bench.queue.alike


@pytest.mark.parametrize(
    ("value", "selector", "seen"),
    [
        ("x", "kind = 'x'", True),
        (5, "kind = 5", True),
        (5.0, "5 = kind", True),
        (5, "kind = '5'", False),
        (True, "kind = 1", False),
        (float("nan"), "kind = 1", False),
        ([1], "kind = 1", False),
    ],
)
def test_values(value: object, selector: str, seen: bool) -> None:
    bench = IndexBench()
    bench.publish(kind=value)
    assert bench.got(bench.client(selector)) == ([1] if seen else [])


def test_a_property_is_looked_up_like_a_header() -> None:
    bench = IndexBench()
    for name in ("a", "b"):
        bench.queue.enqueue(bench.message({}, name))
    assert bench.got(bench.client("correlation_id = 'b'")) == [2]


def test_entries_from_before_a_restart_are_indexed() -> None:
    bench = IndexBench()
    restore_message(bench.queue, bench.message({"kind": "a"}), False)
    restore_message(bench.queue, bench.message({"kind": "b"}), True)
    assert bench.got(bench.client("kind = 'b'")) == [2]
    assert Counting.asked <= 2


def test_a_deleted_queue_lets_go_of_its_posting_lists() -> None:
    bench = IndexBench()
    for _ in range(20):
        bench.publish(kind="a")
    bench.got(bench.client("kind = 'a'", prefetch=3))
    index = bench.queue.index
    assert index is not None
    bench.vhost.declarations.delete_queue("q", False, False)
    postings = index.posting_lists[0]["a"]
    assert (postings.first, postings.last) == (None, None)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"x-index": ""}, "1 to 16 different names of headers"),
        ({"x-index": "a,,b"}, "1 to 16 different names of headers"),
        ({"x-index": "a, a"}, "1 to 16 different names of headers"),
        ({"x-index": ",".join(f"h{n}" for n in range(17))}, "1 to 16 different names of headers"),
        ({"x-index": 5}, "a string"),
        ({"x-index": "a", "x-max-priority": 3}, "cannot be with"),
    ],
)
def test_arguments_that_cannot_be(arguments: dict[str, object], why: str) -> None:
    with pytest.raises(PreconditionFailed, match=why):
        new_vhost().declarations.declare_queue("q", False, None, False, arguments)


def test_another_index_is_another_queue() -> None:
    bench = IndexBench("a")
    with pytest.raises(PreconditionFailed, match="inequivalent arg 'x-index'"):
        bench.vhost.declarations.declare_queue("q", False, None, False, {"x-index": "b"})
