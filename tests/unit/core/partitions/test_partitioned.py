"""Partitioned queues: the member of a message, and the order of each key over changes of the mapping."""

import gc
from random import Random

import pytest

from broker.adapters.formats.amqp091 import View091
from broker.core.errors import PreconditionFailed, QueueStopped
from broker.core.message import DELAYED, NEVER, Message
from broker.core.message_view import MessageView
from broker.core.partitions.mapping import key_of, slot_of_key
from broker.core.partitions.partitioned import LOOK_MS, get_next, totals_of
from broker.core.partitions.runs import TAKING_MS, RunPage
from broker.core.ports import MessageStore
from broker.core.publishing.publisher import REFUSED, ROUTED, UNROUTED
from broker.core.queues.attach import attach
from broker.core.queues.consumer import QueueConsumer
from broker.core.queues.purge import purge
from broker.core.vhosts.alteration import alter_queue, stop_queue
from broker.core.vhosts.members import change_mapping
from protocol.amqp091.properties import Properties
from tests.support.core.partitioned_vhost import FRONT, KEY, PartitionedBench
from tests.support.core.topology import KeepingTarget, content_of, new_broker


def test_each_key_has_one_member() -> None:
    bench = PartitionedBench()
    for number in range(300):
        bench.publish(f"k{number % 30}")
    assert bench.outcome is ROUTED
    assert sum(bench.queue(name).ready for name in "abc") == 300
    assert all(bench.queue(name).ready > 0 for name in "abc")
    assert bench.front.depth == 0
    for name in "abc":
        for entry in bench.queue(name).entries:
            assert bench.member_of(bench.view(entry.message).headers()[KEY]) == name


def test_shares_follow_the_weights() -> None:
    bench = PartitionedBench({"to": "a", "weight": 3}, "b")
    owners = [bench.member_of(f"k{number}") for number in range(2000)]
    assert 0.70 < owners.count("a") / 2000 < 0.80


def test_a_change_moves_only_the_share_of_its_member() -> None:
    bench = PartitionedBench("a", "b")
    before = {f"k{number}": bench.member_of(f"k{number}") for number in range(500)}
    bench.change("b", "c", "a")
    moved = {key: bench.member_of(key) for key in before if bench.member_of(key) != before[key]}
    assert set(moved.values()) == {"c"}
    assert 100 < len(moved) < 230


@pytest.mark.parametrize(("one", "other"), [(5, "5"), (None, ""), (None, None), (True, True)])
def test_equal_keys_have_equal_places(one: object, other: object) -> None:
    bench = PartitionedBench()
    places = [bench.partitions.place_of(_message(bench, key)) for key in (one, other)]
    assert places[0].slot == places[1].slot


def test_the_key_is_the_same_in_every_view() -> None:
    bench = PartitionedBench()
    for value in ("k", "\u00fc", bytearray(b"\xff"), 7, True, None, ["k"]):
        message = _message(bench, value)
        views = bench.view(message), View091(Properties(message.content or b""))
        places = [bench.partitions.mapping.find_place(view) for view in views for _ in range(2)]
        places += [bench.partitions.place_of(message) for _ in range(3)]
        assert len({place.slot for place in places}) == 1, value


def test_a_string_in_a_header_is_a_key_without_a_view() -> None:
    bench = PartitionedBench()
    make_view = bench.vhost.views
    viewed: list[Message] = []

    def count_view(message: Message, store: MessageStore) -> MessageView:
        viewed.append(message)
        return make_view(message, store)

    bench.vhost.views = count_view
    for number in range(100):
        bench.publish(f"k{number % 10}")
    assert len(viewed) == 1, "the view of the first message shows the format of all messages"
    for key in (7, None):
        bench.publish(key)
    assert len(viewed) == 3
    bench.publish("k0")
    assert len(viewed) == 3


def test_octets_are_the_key_of_the_same_string() -> None:
    assert key_of(b"k") == key_of(bytearray(b"k")) == "k"
    assert key_of(b"\xff") != key_of("?")


def _message(bench: PartitionedBench, key: object) -> Message:
    headers = {} if key is None else {KEY: key}
    address = bench.vhost.publisher.route("", FRONT).address
    return Message(address, content_of(headers=headers), 0, False, 0)


def test_a_message_without_the_key_has_the_empty_key() -> None:
    bench = PartitionedBench()
    for _ in range(5):
        bench.publish(None)
        bench.publish("")
    assert sorted(bench.queue(name).ready for name in "abc") == [0, 0, 10]


def test_a_property_may_be_the_key() -> None:
    for by in ("property:message-id", "property:message_id"):
        bench = PartitionedBench(by=by)
        for number in range(60):
            bench.send({}, message_id=f"m{number % 6}")
        assert sum(bench.queue(name).ready for name in "abc") == 60
        assert sum(bench.queue(name).ready > 0 for name in "abc") > 1


def test_selectors_choose_the_first_member_that_accepts() -> None:
    bench = PartitionedBench(
        {"to": "a", "selector": "size > 10"}, {"to": "b", "selector": "size > 5"}, by="selector"
    )
    assert [bench.send({"size": size}) for size in (20, 7, 1)] == [ROUTED, ROUTED, UNROUTED]
    assert [bench.queue(name).ready for name in "abc"] == [1, 1, 0]
    bench.change({"to": "a", "selector": "size > 10"}, "c")
    assert [bench.send({"size": size}) for size in (20, 7, 1)] == [ROUTED] * 3
    assert [bench.queue(name).ready + bench.queue(name).held for name in "abc"] == [2, 1, 2]


def test_a_message_that_does_not_decode_has_the_empty_key() -> None:
    bench = PartitionedBench()
    route = bench.vhost.publisher.route("", FRONT)
    bench.vhost.publisher.publish(route, Message(route.address, b"\x02\x00", 0, False, 0))
    bench.publish(None)
    assert sorted(bench.queue(name).ready for name in "abc") == [0, 0, 2]


def test_a_message_goes_once_into_a_member_that_is_bound_too() -> None:
    bench = PartitionedBench("a")
    for name in ("a", FRONT):
        bench.vhost.declarations.bind_queue(name, "amq.fanout", "", {})
    bench.publish("k", "amq.fanout")
    assert bench.queue("a").ready == 1


# ---- order over changes


def test_new_messages_of_a_moved_key_wait_for_the_old_ones() -> None:
    bench = PartitionedBench("a")
    taker = bench.consume()
    old = [bench.publish("k") for _ in range(2)]
    other = bench.publish("other")
    bench.change("b")
    new = [bench.publish("k") for _ in range(2)]
    assert bench.numbers("a") == [*old, other]
    assert bench.numbers("b") == new
    assert (bench.queue("b").ready, bench.queue("b").held) == (0, 2)
    assert taker.pull() == [*old, other]
    assert taker.pull() == []
    taker.settle(old[0])
    assert taker.pull() == []
    taker.settle(old[1])
    assert taker.pull() == new
    assert (bench.queue("b").held, bench.partitions.runs.waiting) == (0, 0)


def test_a_key_without_messages_moves_at_once() -> None:
    bench = PartitionedBench("a")
    taker = bench.consume()
    bench.publish("busy")
    bench.change("b")
    new = bench.publish("idle")
    assert bench.queue("b").ready == 1
    assert new in taker.pull()


def test_a_key_that_moves_back_waits_for_both() -> None:
    bench = PartitionedBench("a")
    taker = bench.consume()
    numbers = []
    for name in "abacb":
        bench.change(name)
        numbers.append(bench.publish("k"))
    got = []
    while pulled := taker.pull():
        assert len(pulled) == 1
        got += pulled
        taker.settle()
    assert got == numbers


def test_a_released_message_is_settled_before_the_next_member_delivers() -> None:
    bench = PartitionedBench("a")
    taker = bench.consume()
    old = bench.publish("k")
    assert taker.pull() == [old]
    bench.change("b")
    new = bench.publish("k")
    taker.release()
    assert taker.pull() == [old]
    taker.settle()
    assert taker.pull() == [new]


def test_a_key_moves_after_its_last_message_in_whatever_order_the_messages_leave() -> None:
    bench = PartitionedBench("a")
    taker = bench.consume()
    old = [bench.publish(f"k{number % 5}") for number in range(400)]
    assert taker.pull() == old
    bench.change("b")
    new = [bench.publish(f"k{number}") for number in range(5)]
    leaving = list(old)
    Random(1).shuffle(leaving)
    released: list[int] = []
    while leaving:
        number = leaving.pop()
        taker.settle(number)
        free = {(left - 1) % 5 for left in leaving}
        released += taker.pull()
        assert sorted(released) == [each for each in new if (each - 1) % 5 not in free]
    assert sorted(released) == new
    taker.settle()
    assert bench.partitions.runs.slots() == []


def test_entries_that_have_left_take_no_memory() -> None:
    bench = PartitionedBench("a")
    taker = bench.consume(no_ack=True)
    before = _count_pages()
    for _ in range(10):
        for number in range(100):
            bench.publish(f"k{number}")
        assert _count_pages() <= before + 3
        assert len(taker.pull()) == 100
    assert _count_pages() <= before + 1


def _count_pages() -> int:
    return sum(isinstance(each, RunPage) for each in gc.get_objects())


def test_keys_of_one_slot_share_their_order_with_messages_to_the_member_itself() -> None:
    bench = PartitionedBench("a")
    slots: dict[int, str] = {}
    one = other = ""
    for number in range(10_000):
        other = f"k{number}"
        one = slots.setdefault(slot_of_key(other), other)
        if one != other:
            break
    bench.change("a", "b")
    taker = bench.consume()
    numbers = [bench.publish(one, to="a"), bench.publish(other, to="a")]
    numbers += [bench.publish(other, to="b"), bench.publish(one, to="a")]
    assert taker.pull() == numbers[:2]
    taker.settle()
    assert taker.pull() == [numbers[2]]
    taker.settle()
    assert taker.pull() == [numbers[3]]


def test_expired_purged_and_dead_lettered_messages_do_not_block_a_key() -> None:
    for how in ("expire", "purge", "reject", "delete"):
        bench = PartitionedBench("a")
        taker = bench.consume()
        bench.publish("k", expiration=100 if how == "expire" else -1)
        if how == "reject":
            taker.pull()
        bench.change("b")
        new = bench.publish("k")
        if how == "expire":
            bench.clock.advance(101)
        elif how == "purge":
            purge(bench.queue("a"), bench.clock.schedule)
        elif how == "reject":
            taker.discard()
        else:
            bench.vhost.declarations.delete_queue("a", False, False)
        assert taker.pull() == [new], how


def test_a_waiting_message_may_expire() -> None:
    bench = PartitionedBench("a")
    taker = bench.consume()
    old = bench.publish("k")
    bench.change("b")
    bench.publish("k", expiration=100)
    later = bench.publish("k")
    bench.clock.advance(101)
    assert bench.queue("b").held == 1
    assert taker.pull() == [old]
    taker.settle()
    assert taker.pull() == [later]


def test_a_message_that_may_not_wait_waits_for_others_of_its_key() -> None:
    bench = PartitionedBench("a")
    taker = bench.consume()
    old = bench.publish("k")
    assert taker.pull() == [old]
    bench.change("b")
    new = [bench.publish("k", expiration=expiration) for expiration in (NEVER, 0, NEVER)]
    bench.clock.advance(1000)
    assert bench.queue("b").held == 3
    taker.settle()
    assert taker.pull() == new
    bench.clock.advance(TAKING_MS)
    taker.release()
    assert taker.pull() == [new[0], new[2]], "returned, it has expired"


def test_a_message_that_may_not_wait_expires_without_a_consumer_after_its_release() -> None:
    bench = PartitionedBench("a")
    bench.publish("k")
    bench.change("b")
    bench.publish("k", expiration=0)
    new = bench.publish("k")
    purge(bench.queue("a"), bench.clock.schedule)
    bench.clock.advance(TAKING_MS - 1)
    assert bench.queue("b").ready == 2
    bench.clock.advance(1)
    assert bench.numbers("b") == [new]


def test_waiting_messages_become_ready_once() -> None:
    bench = PartitionedBench("a")
    counters = bench.queue("a").counters
    bench.publish("k")
    bench.change("b")
    bench.publish("k")
    purge(bench.queue("a"), bench.clock.schedule)
    bench.run()
    assert (bench.queue("b").ready, counters.made_ready) == (1, 2)


def test_waiting_messages_take_room() -> None:
    bench = PartitionedBench("a")
    full = bench.declare("full", **{"x-max-length": 2, "x-overflow": "reject-publish"})
    taker = bench.consume()
    bench.publish("k")
    bench.change("full")
    for _ in range(2):
        bench.publish("k")
    bench.publish("k")
    assert bench.outcome is REFUSED
    taker.pull()
    taker.settle()
    bench.run()
    assert full.ready == 2


def test_many_waiting_messages_are_released_in_slices_and_in_order() -> None:
    bench = PartitionedBench("a")
    bench.publish("k")
    bench.change("b")
    numbers = [bench.publish("k") for _ in range(1200)]
    purge(bench.queue("a"), bench.clock.schedule)
    bench.clock.schedule.run()
    assert 0 < bench.queue("b").held < 1200
    numbers.append(bench.publish("k"))  # is not before those that still wait
    taker = bench.consume()
    got = taker.pull()
    assert got == numbers


def test_pinned_values_keep_their_order() -> None:
    bench = PartitionedBench("a")
    taker = bench.consume()
    numbers = [bench.publish("k")]
    for pins in ({"k": "b"}, {}, {"k": "c"}, {"k": "b"}, {}):
        bench.change("a", "b", "c", **pins)
        if pins:
            assert bench.member_of("k") == pins["k"]
        numbers.append(bench.publish("k"))
    got = []
    while pulled := taker.pull():
        assert len(pulled) == 1, pulled
        got += pulled
        taker.settle()
    assert got == numbers


def test_changed_selectors_keep_the_order_of_each_message() -> None:
    bench = PartitionedBench({"to": "a", "selector": "n > 0"}, "b", by="selector")
    taker = bench.consume()
    bench.send({"n": 5}, correlation_id="1")
    bench.change({"to": "c", "selector": "n > 3"}, {"to": "a", "selector": "n > 0"}, "b")
    bench.send({"n": 5}, correlation_id="2")
    assert taker.pull() == [1]
    taker.settle()
    assert taker.pull() == [2]


def test_a_selector_that_moves_keeps_the_order_of_its_messages_only() -> None:
    one, two = {"to": "a", "selector": "n = 1"}, {"to": "b", "selector": "n = 2"}
    bench = PartitionedBench(one, two, by="selector")
    taker = bench.consume()
    bench.send({"n": 1}, correlation_id="1")
    bench.change(one | {"to": "c"}, two)
    bench.send({"n": 1}, correlation_id="2")
    bench.send({"n": 2}, correlation_id="3")
    assert sorted(taker.pull()) == [1, 3]
    taker.settle(1)
    assert taker.pull() == [2]


def test_a_value_pinned_to_a_deleted_member_keeps_its_order() -> None:
    bench = PartitionedBench()
    key = bench.key_for("c")
    bench.change("a", "b", "c", **{key: "a"})
    taker = bench.consume()
    old = bench.publish(key)
    bench.change("a", "b", "c", **{key: "b"})
    bench.publish(key)
    bench.vhost.declarations.force_delete(bench.queue("b"))
    new = bench.publish(key)
    assert bench.numbers("c") == [new]
    assert taker.pull() == [old]
    taker.settle()
    assert taker.pull() == [new]


def test_messages_of_a_deleted_members_selector_keep_their_order() -> None:
    special, rest = {"to": "b", "selector": "n > 3"}, {"to": "c", "selector": "n > 0"}
    bench = PartitionedBench(special | {"to": "a"}, rest, by="selector")
    taker = bench.consume()
    bench.send({"n": 5}, correlation_id="1")
    bench.change(special, rest)
    bench.vhost.declarations.force_delete(bench.queue("b"))
    bench.send({"n": 5}, correlation_id="2")
    assert bench.numbers("c") == [2]
    assert taker.pull() == [1]
    taker.settle()
    assert taker.pull() == [2]


# ---- members that leave


def test_a_removed_member_is_consumed_until_it_is_empty() -> None:
    bench = PartitionedBench("a", "b")
    taker = bench.consume()
    number = bench.publish(bench.key_for("a"))
    bench.change("b")
    bench.clock.advance(3 * LOOK_MS)
    assert [queue.name for queue in bench.partitions.member_queues()] == ["b", "a"]
    assert taker.pull() == [number]
    bench.clock.advance(LOOK_MS)
    assert len(bench.partitions.leaving) == 1
    taker.settle()
    bench.clock.advance(LOOK_MS)
    assert [queue.name for queue in bench.partitions.member_queues()] == ["b"]
    assert bench.queue("a").member is None
    assert bench.queue("a").consumer_count == 0
    assert [part.queue.name for part in taker.consumer.parts] == ["b"]
    bench.vhost.declarations.delete_queue("a", False, False)


def test_a_leaving_member_may_come_back() -> None:
    bench = PartitionedBench("a", "b")
    bench.publish(bench.key_for("a"))
    bench.change("b")
    bench.change("b", "a")
    bench.clock.advance(2 * LOOK_MS)
    assert (len(bench.partitions.members), bench.partitions.leaving) == (2, [])


def test_a_member_with_a_delayed_message_does_not_leave() -> None:
    bench = PartitionedBench("a")
    bench.publish("k")
    route = bench.vhost.publisher.route("", FRONT)
    message = Message(route.address, content_of(headers={KEY: "k"}, correlation_id="2"), 0, False, 0)
    message.marks |= DELAYED
    message.date = bench.clock.date() + 10 * LOOK_MS
    bench.vhost.publisher.publish_carefully(route, message)
    taker = bench.consume()
    taker.pull()
    taker.settle()
    bench.change("b")
    bench.clock.advance(5 * LOOK_MS)
    assert len(bench.partitions.leaving) == 1
    bench.clock.advance(5 * LOOK_MS)
    assert len(taker.pull()) == 1
    taker.settle()
    bench.clock.advance(LOOK_MS)
    assert bench.partitions.leaving == []


# ---- the queue and its members as objects


def test_the_counts_of_all_members_are_one_number() -> None:
    bench = PartitionedBench("a", "b")
    for number in range(20):
        bench.publish(f"k{number}")
    taker = bench.consume()
    taker.pull()
    totals = totals_of(bench.front)
    assert (totals.ready, totals.unacked, totals.published, totals.delivered) == (0, 20, 20, 20)
    taker.settle()
    bench.change("b")
    bench.clock.advance(LOOK_MS)
    totals = totals_of(bench.front)
    assert (totals.unacked, totals.published, totals.delivered, totals.acked) == (0, 20, 20, 20)


def test_the_counters_begin_with_the_membership() -> None:
    bench = PartitionedBench("a")
    bench.publish(to="b")
    bench.change("a", "b")
    totals = totals_of(bench.front)
    assert (totals.published, totals.ready) == (0, 1)


def test_a_purge_purges_all_members() -> None:
    bench = PartitionedBench("a", "b")
    for number in range(20):
        bench.publish(f"k{number}")
    assert purge(bench.front, bench.clock.schedule).dropped == 20
    assert totals_of(bench.front).ready == 0


def test_the_deletion_of_the_queue_leaves_the_members_with_their_messages() -> None:
    bench = PartitionedBench("a")
    taker = bench.consume()
    bench.publish("k")
    bench.change("b")
    bench.publish("k")
    with pytest.raises(PreconditionFailed, match="not empty"):
        bench.vhost.declarations.delete_queue(FRONT, False, True)
    with pytest.raises(PreconditionFailed, match="in use"):
        bench.vhost.declarations.delete_queue(FRONT, True, False)
    bench.vhost.declarations.delete_queue(FRONT, False, False)
    assert (taker.target.cancelled, taker.target.consumers) == (1, [])
    assert [(bench.queue(name).ready, bench.queue(name).member) for name in "ab"] == [(1, None)] * 2


def test_a_member_cannot_be_deleted() -> None:
    bench = PartitionedBench()
    with pytest.raises(
        PreconditionFailed, match="queue 'a' in vhost '/' is a member of partitioned queue 'front'"
    ):
        bench.vhost.declarations.delete_queue("a", False, False)


def test_a_member_that_expires_leaves_the_mapping() -> None:
    bench = PartitionedBench("a", "b", durable=True)
    bench.vhost.declarations.force_delete(bench.queue("a"))
    assert bench.front.arguments["x-partition-members"] == ["b"]
    assert [change["name"] for change in bench.store.changes[-2:]] == ["a", FRONT]
    for number in range(10):
        bench.publish(f"k{number}")
    assert bench.queue("b").ready == 10


def test_a_queue_without_members_is_the_same_after_a_restart() -> None:
    bench = PartitionedBench("a", "b", durable=True)
    bench.change("a", "b", k="a", m="b")
    for name in "ab":
        bench.vhost.declarations.force_delete(bench.queue(name))
    bench.publish("k")
    assert bench.outcome is UNROUTED
    restarted = bench.restart()
    for each in (bench, restarted):
        assert each.front.arguments["x-partition-members"] == []
        assert each.front.arguments["x-partition-pins"] == {}
        assert [warning for warning in each.warned if "queue 'front' in vhost '/' has no members" in warning]
        each.declare("a")
        each.publish("k")
        assert each.outcome is UNROUTED, "another queue of the same name is no member"
        each.change("a")
        each.publish("k")
        assert each.queue("a").ready == 1


def test_a_renamed_member_stays_a_member() -> None:
    bench = PartitionedBench("a", {"to": "b", "weight": 2})
    bench.change("a", {"to": "b", "weight": 2}, k="b")
    alter_queue(bench.vhost.topology, bench.queue("b"), "e", {}, False)
    assert bench.front.arguments["x-partition-members"] == ["a", {"to": "e", "weight": 2}]
    assert bench.member_of("k") == "e"
    assert {bench.member_of(f"k{number}") for number in range(50)} == {"a", "e"}


def test_a_renamed_member_gets_other_keys_in_order() -> None:
    bench = PartitionedBench("a", "b")
    before = [key for key in (f"k{number}" for number in range(50)) if bench.member_of(key) == "b"]
    old = {key: bench.publish(key) for key in before}
    alter_queue(bench.vhost.topology, bench.queue("b"), "e", bench.queue("b").arguments, False)
    moved = [key for key in before if bench.member_of(key) == "a"]
    assert 0 < len(moved) < len(before)
    new = bench.publish(moved[0])
    taker = bench.consume()
    assert taker.pull() == list(old.values())
    taker.settle(old[moved[0]])
    assert taker.pull() == [new]


def test_the_limit_of_a_member_that_drops_its_head_ignores_waiting_messages() -> None:
    bench = PartitionedBench("a")
    queue = bench.declare("full", **{"x-max-length": 2})
    bench.publish("k")
    bench.change("full")
    waiting = [bench.publish("k") for _ in range(4)]
    assert (queue.held, queue.ready) == (4, 0)
    purge(bench.queue("a"), bench.clock.schedule)
    bench.run()
    assert bench.numbers("full") == waiting[2:]


def test_a_redeclaration_need_not_know_the_members() -> None:
    bench = PartitionedBench("a")
    bench.change("b")
    arguments = {"x-queue-kind": "partitioned", "x-partition-by": KEY, "x-partition-members": ["a"]}
    assert bench.declare(FRONT, **arguments) is bench.front
    assert bench.front.arguments["x-partition-members"] == ["b"]
    with pytest.raises(PreconditionFailed, match="inequivalent arg 'x-partition-by'"):
        bench.declare(FRONT, **(arguments | {"x-partition-by": "other"}))


def test_a_stopped_member_refuses_its_keys_and_the_queue_itself_cannot_be_stopped() -> None:
    bench = PartitionedBench("a", "b")
    with pytest.raises(PreconditionFailed, match="partitioned: stop or start its members"):
        stop_queue(bench.vhost.topology, bench.front, ["enqueue"])
    stop_queue(bench.vhost.topology, bench.queue("a"), ["enqueue"])
    bench.publish(bench.key_for("b"))
    with pytest.raises(QueueStopped, match="queue 'a'"):
        bench.publish(bench.key_for("a"))


def test_dead_letters_may_come_back_through_the_partitioned_queue() -> None:
    bench = PartitionedBench("a")
    dying = bench.declare("dying", **{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": FRONT})
    bench.change("dying", "a", k="dying", m="a")
    taker = bench.consume()
    number = bench.publish("k")
    assert taker.pull() == [number]
    taker.discard()
    assert taker.pull() == [number], "rejected: the letter goes to the member of its key again"
    taker.settle()
    bench.publish("k", expiration=5)
    bench.clock.advance(6)
    assert (dying.depth, bench.queue("a").depth) == (0, 0), "expired twice in one queue: a cycle"


REFUSED_ARGUMENTS = [
    ({"x-partition-members": ["none"]}, "queue 'none' cannot be a member of queue 'p'.*it does not exist"),
    ({"x-partition-members": []}, "is not a list of 1 to 256 names or tables"),
    ({"x-partition-members": ["a", "a"]}, "names 'a' twice"),
    (
        {"x-partition-members": ["amqp://ann:pw@b"]},
        "'amqp://b\\?queue=p' cannot be a member of queue 'p'.*is not durable",
    ),
    ({"x-partition-members": [{"weight": 1}]}, "member 1 in .* has no name of a queue as 'to'"),
    ({"x-partition-members": [{"to": "a", "wait": 1}]}, "has the unknown field 'wait'"),
    ({"x-partition-members": [{"to": "a", "weight": 0}]}, "has '0' as 'weight', expected an integer from 1"),
    (
        {"x-partition-members": [{"to": "a", "selector": "a = 1"}]},
        "which goes only with x-partition-by 'selector'",
    ),
    (
        {"x-partition-members": [{"to": "a", "selector": "a ="}], "x-partition-by": "selector"},
        "member 1 in 'x-partition-members' of queue 'p' in vhost '/': ",
    ),
    (
        {"x-partition-members": [{"to": "a", "weight": 2}], "x-partition-by": "selector"},
        "has a 'weight', which does not go with x-partition-by 'selector'",
    ),
    ({"x-partition-by": "property:colour"}, "names no property"),
    ({"x-partition-by": ""}, "is not a string of 1 to 255 bytes"),
    ({"x-partition-pins": {"k": "b"}}, "pins 'k' to 'b', which is no member"),
    ({"x-partition-pins": {"k": "a"}, "x-partition-by": "selector"}, "does not go with x-partition-by"),
    ({"x-partitions": 3}, "needs x-queue-type 'stream'"),
    ({"x-queue-type": "stream", "x-partitions": 3}, "does not go with x-queue-type 'stream'"),
    ({"x-max-length": 5}, "does not go with x-queue-kind 'partitioned': it belongs to the members"),
    ({"x-max-priority": 5}, "cannot be with x-queue-kind 'partitioned'"),
    ({"x-partition-members": ["stream"]}, "it is a stream"),
    ({"x-partition-members": ["browsed"]}, "it keeps its messages"),
    ({"x-partition-members": ["mine"]}, "it is exclusive"),
    ({"x-partition-members": ["auto"]}, "it is deleted with its last consumer"),
    ({"x-partition-members": ["other"]}, "it is partitioned itself"),
    ({"x-partition-members": ["taken"]}, "it is a member of queue 'other' already"),
    ({"x-partition-members": ["strict"]}, "has x-strict-order and is of the kind 'priority'"),
]


@pytest.mark.parametrize(("arguments", "why"), REFUSED_ARGUMENTS, ids=lambda value: str(value)[:40])
def test_a_wrong_declaration_is_refused(arguments: dict[str, object], why: str) -> None:
    bench = PartitionedBench("d")
    declarations = bench.vhost.declarations
    declarations.declare_queue("mine", False, object(), False, {})
    declarations.declare_queue("auto", False, None, True, {})
    declarations.declare_queue("stream", True, None, False, {"x-queue-type": "stream"})
    bench.declare("browsed", **{"x-non-destructive": True})
    bench.declare("strict", **{"x-max-priority": 2, "x-strict-order": True})
    bench.declare("taken")
    given = {"x-queue-kind": "partitioned", "x-partition-by": KEY, "x-partition-members": ["a"]}
    bench.declare("other", **(given | {"x-partition-members": ["taken"]}))
    with pytest.raises(PreconditionFailed, match=why) as refused:
        bench.declare("p", **(given | arguments))
    assert "pw" not in refused.value.text
    assert "p" not in bench.vhost.topology.queues


def test_a_durable_queue_has_durable_members() -> None:
    bench = PartitionedBench()
    given: dict[str, object] = {
        "x-queue-kind": "partitioned",
        "x-partition-by": KEY,
        "x-partition-members": ["d"],
    }
    with pytest.raises(PreconditionFailed, match="it is not durable"):
        bench.vhost.declarations.declare_queue("p", True, None, False, given)


def test_a_refused_change_changes_nothing() -> None:
    bench = PartitionedBench("a", durable=True)
    before = dict(bench.front.arguments)
    for members in (["a", "none"], [], ["a", {"to": "b", "weight": -1}]):
        with pytest.raises(PreconditionFailed):
            bench.change(*members)
    assert (bench.front.arguments, len(bench.partitions.members)) == (before, 1)


def test_a_virtual_host_is_deleted_with_its_partitioned_queue() -> None:
    bench = PartitionedBench("a", durable=True)
    broker = new_broker(bench.store, bench.clock)
    vhost = broker.declare_vhost("v")
    for name in ("m1", "m2"):
        vhost.declarations.declare_queue(name, True, None, False, {})
    given: dict[str, object] = {"x-partition-by": KEY, "x-partition-members": ["m1"]}
    front = vhost.declarations.declare_queue("p", True, None, False, given)
    taker = KeepingTarget()
    attach(front, QueueConsumer(taker, front))
    route = vhost.publisher.route("", "p")
    for member in ("m1", "m2"):
        change_mapping(vhost.topology, front, [member], {})
        for _ in range(3):
            content = content_of(headers={KEY: "k"})
            vhost.publisher.publish(route, Message(route.address, content, 0, True, 0))
    assert vhost.topology.queues["m2"].held == 3
    broker.delete_vhost("v")
    bench.clock.advance(10 * LOOK_MS)
    assert bench.store.kinds()[-1] == "vhost.delete", "nothing declares it again"
    assert (taker.cancelled, taker.consumers, len(bench.store.forgotten)) == (1, [], 6)


def test_a_get_is_a_use_of_the_partitioned_queue() -> None:
    bench = PartitionedBench("a", expires=100)
    for _ in range(5):
        bench.clock.advance(60)
        assert get_next(bench.front, KeepingTarget()) is None
    assert FRONT in bench.vhost.topology.queues
    bench.clock.advance(101)
    assert FRONT not in bench.vhost.topology.queues
    assert bench.queue("a").member is None
