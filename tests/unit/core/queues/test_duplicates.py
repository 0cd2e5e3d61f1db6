"""Deduplication: by the ids of messages, and by the sequences of producers."""

import pytest

from broker.core.errors import PreconditionFailed, StoreFailed
from broker.core.message import NEVER, REMEMBERED, Message
from broker.core.message_view import MessageView
from broker.core.publishing.publisher import DUPLICATE, NO_CONSUMER, REFUSED, ROUTED
from broker.core.queues.duplicates import SLICE, memory_of, new_mark
from broker.core.vhosts.definitions import restore_message
from tests.support.core.duplicate_vhost import DuplicateBench, contents_of
from tests.support.core.policies import set_policy
from tests.support.core.purge import purge
from tests.support.core.topology import RecordingStore


def test_an_id_is_taken_once_within_the_window() -> None:
    bench = DuplicateBench()
    queue = bench.queue(dedup_window=1000)
    assert [bench.say(text) for text in ("a", "b", "a")] == [ROUTED, ROUTED, DUPLICATE]
    bench.clock.advance(999)
    assert bench.say("a") == DUPLICATE, "a duplicate does not make the window longer"
    bench.clock.advance(1)
    assert bench.say("a") is ROUTED
    assert contents_of(queue) == ["a", "b", "a"]
    memory = memory_of(queue)
    assert memory is not None
    assert (memory.duplicates, bench.counters.duplicate) == (2, 2)


def test_a_message_without_id_is_never_a_duplicate() -> None:
    bench = DuplicateBench()
    queue = bench.queue(dedup_window=1000, dedup_producers=5)
    assert [bench.say("") for _ in range(3)] == [ROUTED, ROUTED, ROUTED]
    memory = memory_of(queue)
    assert memory is not None
    assert len(memory) == 0


def test_beyond_the_limit_the_oldest_id_is_forgotten() -> None:
    bench = DuplicateBench()
    bench.queue(dedup_window=1000, dedup_limit=2)
    assert [bench.say(text) for text in ("a", "b", "c", "b", "a", "c", "b")] == [
        ROUTED,
        ROUTED,
        ROUTED,
        DUPLICATE,
        ROUTED,
        DUPLICATE,
        ROUTED,
    ]


def test_a_producer_is_heard_once_up_to_each_number() -> None:
    bench = DuplicateBench()
    queue = bench.queue(dedup_producers=2)
    text = ["/p/1", "/p/3", "/p/2", "/p/3", "/q/1", "/p/4", "/r/0", "/q/1", "/p/4"]
    taken = [bench.say(each) for each in text]
    # when r comes, q has not been heard of for longest; when q comes again, p has
    assert taken == [ROUTED, ROUTED, DUPLICATE, DUPLICATE, ROUTED, ROUTED, ROUTED, ROUTED, ROUTED]
    assert len(contents_of(queue)) == 7


def test_a_message_whose_predecessor_is_missing_is_refused() -> None:
    bench = DuplicateBench()
    queue = bench.queue(dedup_producers=2)
    assert bench.say("/@a/5>4") is REFUSED, "the origin is not known"
    assert bench.say("/@a/5") is ROUTED
    assert bench.say("/@a/5>4") is DUPLICATE
    assert bench.say("/@a/9>7") is REFUSED
    assert bench.say("/@a/7>5") is ROUTED, "positions may leave numbers out"
    assert bench.say("/@a/9>7") is ROUTED
    assert bench.say("/a/6") is ROUTED, "a producer is not an origin"
    assert contents_of(queue) == ["/@a/5", "/@a/7>5", "/@a/9>7", "/a/6"]


def test_the_origin_of_a_message_counts_only_from_a_source_that_forwards_exactly_once() -> None:
    bench = DuplicateBench()
    queue = bench.queue(dedup_producers=2)
    assert bench.say("/@a/5") is ROUTED
    for text in ("/@a/5", "/@a/5", "/@a/9>7"):
        assert bench.say(text, names_origins=False) is ROUTED
    assert bench.say("/@a/5") is DUPLICATE
    assert contents_of(queue) == ["/@a/5", "/@a/5", "/@a/5", "/@a/9>7"]


def test_a_queue_that_remembers_no_producers_has_no_gaps() -> None:
    bench = DuplicateBench()
    bench.queue(dedup_window=1000)
    assert bench.say("id/@a/5>4") is ROUTED


def test_producers_are_forgotten_while_ids_are_over_too() -> None:
    bench = DuplicateBench()
    queue = bench.queue(dedup_window=500, dedup_producers=1)
    bench.say("one/p/1")
    bench.clock.advance(500)
    bench.say("/q/1")
    memory = memory_of(queue)
    assert memory is not None
    assert list(memory.producers) == ["q"]


def test_a_transaction_that_is_refused_has_no_producer_forgotten() -> None:
    bench = DuplicateBench()
    queue = bench.queue(dedup_producers=2)
    bench.say("/p/1")
    bench.say("/q/1")
    memory = memory_of(queue)
    assert memory is not None
    memory.reserve_sequence("r", 1)
    assert memory.knows_sequence("r", 1)
    memory.unreserve_sequence("r", 1)
    assert not memory.knows_sequence("r", 0)
    assert bench.say("/q/2") is ROUTED
    assert bench.say("/p/1") == DUPLICATE


def test_recovered_records_beyond_the_limits_are_forgotten() -> None:
    bench = DuplicateBench()
    queue = bench.queue(dedup_window=1000, dedup_limit=1, dedup_producers=1)
    memory = memory_of(queue)
    assert memory is not None
    for name in ("p", "q", "r"):
        memory.restore(new_mark(name, NEVER, True, bench.clock.date()))
        memory.restore(new_mark(name, 1, True, bench.clock.date()))
    bench.clock.advance(0)
    assert (list(memory.ids), list(memory.producers)) == (["r"], ["r"])


def test_message_id_or_producer_number_alone_makes_a_duplicate() -> None:
    bench = DuplicateBench()
    bench.queue(dedup_window=1000, dedup_producers=2)
    assert [bench.say(text) for text in ("a/p/1", "a/p/2", "b/p/1", "b/p/2")] == [
        ROUTED,
        DUPLICATE,
        DUPLICATE,
        ROUTED,
    ]


@pytest.mark.parametrize(
    ("identity", "header"),
    [("/p/x", "x-sequence"), ("/p/-1", "x-sequence"), ("/" + "p" * 256 + "/1", "x-producer")],
)
def test_numbers_that_cannot_be_are_refused(identity: str, header: str) -> None:
    bench = DuplicateBench()
    queue = bench.queue(dedup_producers=2)
    with pytest.raises(PreconditionFailed, match=f"invalid header '{header}'"):
        bench.say(identity)
    assert contents_of(queue) == []


def test_an_id_that_is_no_text_is_refused() -> None:
    bench = DuplicateBench()
    bench.queue(dedup_window=1000)
    message = bench.message("x")
    route = bench.vhost.publisher.route("", "q")
    bench.vhost.views = lambda message, store: Odd()
    with pytest.raises(PreconditionFailed, match=r"invalid message-id '.udc80'"):
        bench.vhost.publisher.publish(route, message)


class Odd(MessageView):
    """A view of a message whose id is no UTF-8."""

    def property(self, name: str) -> object | None:
        return "\udc80"


def test_a_duplicate_is_routed_only_to_queues_without_the_message() -> None:
    bench = DuplicateBench()
    first, second = bench.queue("q", dedup_window=1000), bench.queue("r", dedup_window=1000)
    plain = bench.queue("s")
    for name in ("q", "r"):
        bench.vhost.declarations.bind_queue(name, "amq.fanout", "", {})
    assert bench.say("a") is ROUTED
    assert bench.say("a", exchange="amq.fanout") is ROUTED
    assert bench.say("a", exchange="amq.fanout") == DUPLICATE
    bench.vhost.declarations.bind_queue("s", "amq.fanout", "", {})
    assert bench.say("a", exchange="amq.fanout") is ROUTED
    assert [contents_of(queue) for queue in (first, second, plain)] == [["a"], ["a"], ["a"]]


def test_refused_messages_are_not_recorded() -> None:
    bench = DuplicateBench()
    queue = bench.queue(dedup_window=1000, max_length=1, overflow="reject-publish")
    assert [bench.say("a"), bench.say("b"), bench.say("b"), bench.say("a")] == [
        ROUTED,
        REFUSED,
        REFUSED,
        DUPLICATE,
    ]
    purge(queue)
    assert [bench.say("b"), bench.say("a")] == [ROUTED, DUPLICATE], "to purge is not to forget"


def test_undelivered_immediate_messages_are_not_recorded() -> None:
    bench = DuplicateBench(RecordingStore())
    queue = bench.queue(durable=True, dedup_window=1000, dedup_producers=3)
    assert bench.say("a/p/1", immediate=True, persistent=True) == NO_CONSUMER
    client = bench.client(queue)
    assert bench.say("a/p/1", immediate=True, persistent=True) is ROUTED
    assert bench.say("a/p/1", immediate=True, persistent=True) == DUPLICATE
    assert len(client.deliveries) == 1


def test_dead_letters_are_not_asked() -> None:
    bench = DuplicateBench()
    target = bench.queue("dead", dedup_window=1000)
    source = bench.queue("q", dead_letter_exchange="", dead_letter_routing_key="dead")
    assert bench.say("a", key="dead") is ROUTED
    for _ in range(2):
        bench.say("a")
        client = bench.client(source)
        bench.run()
        source.discard(client.deliveries.pop())
        client.cancel()
    assert contents_of(target) == ["a"] * 3


def test_a_deleted_queue_forgets() -> None:
    bench = DuplicateBench(RecordingStore())
    for _ in range(2):
        bench.queue(durable=True, dedup_window=1000, dedup_producers=3)
        assert bench.say("a/p/1", persistent=True) is ROUTED
        bench.vhost.declarations.delete_queue("q", False, False)
    assert isinstance(bench.store, RecordingStore)
    assert len(bench.store.forgotten) == 6


def test_arguments() -> None:
    bench = DuplicateBench()
    with pytest.raises(PreconditionFailed, match=r"invalid arg 'x-dedup-limit'.*needs x-dedup-window"):
        bench.queue(dedup_limit=5)
    with pytest.raises(PreconditionFailed, match="invalid arg 'x-dedup-window'"):
        bench.queue(dedup_window=0)
    bench.queue(dedup_window=5)
    with pytest.raises(PreconditionFailed, match="inequivalent arg 'x-dedup-window'"):
        bench.queue(dedup_window=6)


def restored(bench: DuplicateBench, *text: tuple[str, int]) -> list[Message]:
    """Recover a queue's records: sequences of producers, or message ids with NEVER."""
    queue = bench.queue(durable=True, dedup_window=5000, dedup_producers=3)
    found = []
    for number, (key, sequence) in enumerate(text, 1):
        mark = new_mark(key, sequence, True, bench.clock.schedule.date() + number)
        mark.sequence = number
        restore_message(queue, mark, False)
        found.append(mark)
    return found


def test_after_a_restart_the_log_lets_go_of_what_was_said_again() -> None:
    store = RecordingStore()
    bench = DuplicateBench(store)
    found = restored(bench, ("a", NEVER), ("b", NEVER), ("p", 1), ("a", NEVER), ("p", 3), ("p", 2))
    assert store.settled == [], "the log takes no appends yet"
    bench.clock.advance(1)
    assert {id(mark) for mark, _ in store.settled} == {id(found[number]) for number in (0, 2, 5)}
    assert [bench.say(text) for text in ("a", "b", "/p/3")] == [DUPLICATE] * 3
    bench.clock.advance(7000)
    assert len(store.settled) == 5, "all but how far the producer has come"


def test_deleting_a_queue_forgets_its_restored_duplicate_marks() -> None:
    store = RecordingStore()
    bench = DuplicateBench(store)
    found = restored(bench, ("a", NEVER), ("a", NEVER))
    bench.vhost.declarations.delete_queue("q", False, False)
    bench.clock.advance(1)
    assert {id(mark) for mark in store.forgotten} == {id(mark) for mark in found}


def marks(store: RecordingStore) -> list[str]:
    """Return the keys of the appended records that are not settled."""
    settled = {id(message) for message, _ in store.settled}
    appended = [message for message, _ in store.enqueued if message.marks & REMEMBERED]
    return [mark.address.routing_key for mark in appended if id(mark) not in settled]


def test_duplicate_marks_are_logged_and_settled() -> None:
    store = RecordingStore()
    bench = DuplicateBench(store)
    bench.queue(durable=True, dedup_window=5000, dedup_limit=3, dedup_producers=1)
    bench.say("a")
    assert store.enqueued == [], "what is not persistent is not remembered for long"
    for number in range(5):
        bench.say(f"b{number}/p/{number}", persistent=True)
        store.durable = store.batch
        store.batch += 1
    assert marks(store) == ["b2", "b3", "p", "b4", "p"], "the last but one stays until the last is durable"
    bench.say("c/other/7", persistent=True)
    assert marks(store) == ["b3", "b4", "c", "other"]
    bench.clock.advance(7000)
    assert marks(store) == ["other"]


def test_messages_that_did_not_reach_the_disk_are_not_recorded() -> None:
    store = RecordingStore()
    bench = DuplicateBench(store)
    bench.queue(durable=True, dedup_window=5000, dedup_producers=1)
    bench.say("a/p/1", persistent=True)
    store.durable = store.batch
    store.batch += 1
    bench.say("b/p/2", persistent=True)
    for message, _ in store.enqueued[3:]:
        message.sequence = 0  # as a full disk has it
    assert bench.say("a/p/1", persistent=True) == DUPLICATE
    assert bench.say("b/p/2", persistent=True) is ROUTED
    store.failure = "the disk is full"
    with pytest.raises(StoreFailed):
        bench.say("a/p/1", persistent=True)


def test_a_policy_makes_a_queue_remember_and_forget() -> None:
    bench = DuplicateBench(RecordingStore())
    queue = bench.queue(durable=True)
    bench.say("a", persistent=True)
    set_policy(bench.vhost, "p", "q", dedup_window=10_000_000)
    assert [bench.say("a", persistent=True), bench.say("a", persistent=True)] == [ROUTED, DUPLICATE]
    for number in range(2 * SLICE):
        bench.say(f"x{number}", persistent=True)
    bench.vhost.policies.delete("p", False)
    bench.clock.advance(10)
    assert queue.memory is None
    assert isinstance(bench.store, RecordingStore)
    assert marks(bench.store) == []
    assert bench.say("a") is ROUTED
