"""Operations on messages that wait to be dead-lettered: seized, then taken away all at once or not at all."""

from broker.core.message import copy_of
from broker.core.publishing.dead_letters import waits_for
from broker.core.publishing.passage import REFUSED
from broker.core.queues.backlog import STALE_MIN, Backlog, existing_backlog
from broker.core.queues.queue import Queue
from tests.operating import SlowStore, Told
from tests.purging import purge
from tests.yard import Yard, numbers


def source(yard: Yard, count: int, durable: bool = False, **arguments: object) -> tuple[Queue, Backlog]:
    """A queue of which so many messages wait, for room in the queue `dead` which does not exist yet."""
    settings: dict[str, object] = {
        "dead_letter_exchange": "",
        "dead_letter_routing_key": "dead",
        "dead_letter_strategy": "at-least-once",
        "overflow": "reject-publish",
        "message_ttl": 10,
    }
    queue = yard.queue("q", durable, **settings | arguments)
    yard.publish(count=count, persistent=durable)
    yard.clock.advance(10)
    assert queue.dead == count
    backlog = existing_backlog(queue)
    assert backlog is not None
    return queue, backlog


def waiting(backlog: Backlog) -> list[int]:
    """The numbers of the messages that wait."""
    return [int(death.message.content or b"") for death in backlog.deaths()]


def test_what_waits_is_found_in_its_order_from_anywhere() -> None:
    yard = Yard()
    queue, backlog = source(yard, 5)
    deaths = backlog.after(0, 10)
    assert [int(death.message.content or b"") for death in deaths] == [1, 2, 3, 4, 5]
    assert backlog.after(deaths[1].number, 2) == deaths[2:4]
    assert backlog.after(deaths[4].number, 2) == []
    for death in deaths:
        assert backlog.find(death.message.sequence, death.arrival) is death
    assert backlog.find(0, 99) is None
    assert waits_for(deaths[0]) == waits_for(deaths[3]) == "exchange '' routes 'dead' to no queue"
    assert [death.deliveries for death in deaths] == [0] * 5
    purge(queue)
    assert backlog.after(0, 10) == []
    assert backlog.find(0, deaths[0].arrival) is None


def test_numbers_of_what_has_left_are_swept() -> None:
    yard = Yard()
    queue, backlog = source(yard, 3 * STALE_MIN)
    operation = Told(yard.vhost, queue)
    for death in backlog.after(0, 1000)[1:]:
        operation.remove_dead(death)
    operation.commit()
    assert waiting(backlog) == [1]
    assert len(backlog._numbers) <= STALE_MIN + 2


def test_what_is_seized_is_not_tried_and_is_back_in_its_place_after_an_abort() -> None:
    yard = Yard()
    queue, backlog = source(yard, 4)
    operation = Told(yard.vhost, queue)
    for death in backlog.after(0, 2):
        operation.remove_dead(death)
    dead = yard.queue("dead")
    yard.clock.advance(5000)
    assert (queue.dead, queue.messages, numbers(dead)) == (4, 4, []), "others wait behind it"
    operation.abort()
    yard.clock.advance(0)
    assert (queue.dead, numbers(dead), operation.end) == (0, [1, 2, 3, 4], "")


def test_what_is_taken_away_is_not_dead_lettered() -> None:
    yard = Yard()
    queue, backlog = source(yard, 4)
    operation = Told(yard.vhost, queue)
    for death in backlog.after(0, 4)[::2]:
        operation.remove_dead(death)
    operation.commit()
    assert operation.end == "committed"
    assert (queue.dead, queue.dead_bytes, waiting(backlog)) == (2, 2, [2, 4])
    dead = yard.queue("dead")
    yard.clock.advance(20)
    assert (queue.dead, numbers(dead), list(yard.vhost.dead_letters.backlogs)) == (0, [2, 4], [])


def test_nothing_is_taken_away_before_that_is_durable() -> None:
    store = SlowStore()
    yard = Yard(store)
    queue, backlog = source(yard, 3, durable=True)
    other = yard.queue("other", durable=True)
    operation = Told(yard.vhost, queue)
    first = backlog.after(0, 1)[0]
    operation.publish(yard.vhost.route("", "other"), copy_of(first.message, first.message.content or b""))
    operation.remove_dead(first)
    operation.commit()
    assert store.last_words == [first.message]
    assert (queue.dead, other.ready, operation.end) == (3, 0, "")
    store.waiting.pop().on_durable(1)
    assert (queue.dead, numbers(other), operation.end) == (2, [1], "committed")
    assert waiting(backlog) == [2, 3]


def test_when_the_log_fails_all_waits_as_before() -> None:
    store = SlowStore()
    yard = Yard(store)
    queue, backlog = source(yard, 3, durable=True)
    operation = Told(yard.vhost, queue)
    for death in backlog.after(0, 3):
        operation.remove_dead(death)
    operation.commit()
    store.waiting.pop().on_store_failed("full")
    assert operation.end == "full"
    assert waiting(backlog) == [1, 2, 3]
    assert queue.rules is not None
    assert (queue.rules.reserved, queue.rules.reserved_bytes) == (0, 0)
    dead = yard.queue("dead")
    yard.clock.advance(20)
    assert numbers(dead) == [1, 2, 3]


def test_a_purge_leaves_what_is_seized() -> None:
    yard = Yard()
    queue, backlog = source(yard, 4)
    operation = Told(yard.vhost, queue)
    operation.remove_dead(backlog.after(0, 2)[1])
    assert purge(queue) == 3
    assert waiting(backlog) == [2]
    operation.abort()
    assert purge(queue) == 1
    assert (queue.dead, backlog.is_empty()) == (0, True)


def test_a_deleted_queue_ends_what_is_seized() -> None:
    yard = Yard(store := SlowStore())
    queue, backlog = source(yard, 2, durable=True)
    committed, aborted = Told(yard.vhost, queue), Told(yard.vhost, queue)
    committed.remove_dead(backlog.after(0, 1)[0])
    aborted.remove_dead(backlog.after(0, 2)[1])
    committed.commit()
    yard.vhost.delete_queue("q", False, False)
    aborted.abort()
    store.waiting.pop().on_durable(1)
    yard.clock.advance(0)
    assert (committed.end, queue.dead, backlog.deaths()) == ("committed", 0, [])


def test_the_room_of_what_is_seized_is_free_as_that_of_what_is_marked() -> None:
    yard = Yard()
    queue, backlog = source(yard, 2, max_length=2)
    assert yard.publish() == REFUSED
    operation = Told(yard.vhost, queue)
    first = backlog.after(0, 1)[0]
    operation.publish(yard.vhost.route("", "q"), copy_of(first.message, b"7"))
    operation.remove_dead(first)
    operation.commit()
    assert (operation.end, numbers(queue), waiting(backlog)) == ("committed", [7], [2])
    assert yard.publish() == REFUSED


def test_the_next_one_is_tried_when_the_first_one_has_been_taken_away() -> None:
    """A waiting message may be smaller, and have room where the first one had none."""
    yard = Yard()
    dead = yard.queue("dead", max_length_bytes=5, overflow="reject-publish")
    yard.publish("dead", size=3)
    queue = yard.queue(
        "q",
        dead_letter_exchange="",
        dead_letter_routing_key="dead",
        dead_letter_strategy="at-least-once",
        overflow="reject-publish",
        message_ttl=10,
    )
    yard.publish(size=4)
    yard.publish(size=2)
    yard.clock.advance(10)
    assert (queue.dead, dead.ready) == (2, 1)
    backlog = existing_backlog(queue)
    assert backlog is not None
    operation = Told(yard.vhost, queue)
    operation.remove_dead(backlog.after(0, 1)[0])
    operation.commit()
    yard.clock.advance(0)
    assert (queue.dead, numbers(dead), dead.waiters) == (0, [1, 3], {})
