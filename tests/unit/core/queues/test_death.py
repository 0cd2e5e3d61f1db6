"""Dead letters that a queue makes: the reasons, and the last messages of an expired or deleted queue."""

from typing import Any

import pytest

from broker.core.arguments.queue import CRASH, DEATHS, DEATHS_WITH_QUEUE, NACK
from broker.core.errors import PreconditionFailed
from broker.core.message import NEVER, Message
from broker.core.policies.policy import Policy
from broker.core.queues.dead_letter_backlog import RETRY_MS, SOON_MS
from broker.core.queues.hooks import REASONS
from broker.core.queues.limits import LOOKS, SLICE
from broker.core.queues.queue import Queue
from broker.core.queues.returns import release_entries
from broker.core.vhosts.vhost import VirtualHost
from protocol.amqp091.properties import Properties
from tests.support.core.hand_clock import HandClock
from tests.support.core.purge import purge
from tests.support.core.queue_bench import Client, HandScheduler
from tests.support.core.timed_vhost import VhostBench, numbers
from tests.support.core.topology import RecordingStore, content_of, new_vhost

TOLD = ("x-delivery-count", "x-acquired-count", "x-expired-by", "x-expired-while", "x-first-death-reason")


class Ward:
    """A queue whose dead letters go to another queue."""

    def __init__(self, **arguments: Any) -> None:
        self.clock = HandClock()
        self.scheduler = HandScheduler()
        self.vhost: VirtualHost = new_vhost(clock=self.clock)
        self.dead = self.vhost.declarations.declare_queue("dead", False, None, False, {})
        held = {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}
        letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
        self.queue: Queue = self.vhost.declarations.declare_queue("q", False, None, False, held | letters)

    def publish(self, expiration: int = NEVER, **headers: object) -> None:
        route = self.vhost.publisher.route("", "q")
        new = Message(route.address, content_of(headers=headers), 0, False, 0)
        new.expiration = expiration
        self.vhost.publisher.publish_carefully(route, new)

    def client(self) -> Client:
        return Client(self.queue, self.scheduler)

    def headers(self) -> list[dict[str, object]]:
        """Return the tested headers of each dead letter, in order."""
        headers = [Properties(entry.message.content or b"").headers() for entry in self.dead.entries]
        return [{name: each[name] for name in TOLD if name in each} for each in headers]


def counts(returns: int, deliveries: int, reason: str = "delivery_limit") -> dict[str, object]:
    return {
        "x-delivery-count": returns,
        "x-acquired-count": deliveries,
        "x-first-death-reason": reason,
    }


def test_a_letter_tells_how_often_the_message_was_tried() -> None:
    ward = Ward(delivery_limit=2, delivery_count_on="crash")
    client = ward.client()
    ward.publish(**{"x-delivery-count": 77})
    for outcome in (NACK, CRASH, CRASH, NACK, CRASH):
        ward.scheduler.run()
        release_entries(client.queue, [client.held.pop()], client.consumer, outcome)
    assert ward.headers() == [counts(3, 5)]


def test_a_rejected_message_was_delivered_and_did_not_return() -> None:
    ward = Ward(delivery_limit=5)
    client = ward.client()
    ward.publish()
    ward.scheduler.run()
    client.queue.discard(client.held[0])
    assert ward.headers() == [counts(0, 1, "rejected")]


def test_a_queue_that_does_not_count_tells_nothing() -> None:
    ward = Ward()
    client = ward.client()
    ward.publish()
    ward.scheduler.run()
    client.queue.discard(client.held[0])
    assert ward.headers() == [{"x-first-death-reason": "rejected"}]


@pytest.mark.parametrize(
    ("ttl", "expiration", "by"),
    [(None, 20, "message"), (20, NEVER, "queue"), (20, 30, "queue"), (30, 20, "message"), (0, 5, "queue")],
)
def test_a_letter_tells_whose_time_was_over(ttl: int | None, expiration: int, by: str) -> None:
    ward = Ward() if ttl is None else Ward(message_ttl=ttl)
    ward.publish(expiration, **{"x-expired-by": "me", "x-expired-while": "asleep"})
    ward.clock.advance(20)
    expected = {"x-expired-by": by, "x-expired-while": "ready", "x-first-death-reason": "expired"}
    assert ward.headers() == [expected]


def test_a_letter_tells_that_it_expired_while_it_waited_to_be_tried_again() -> None:
    ward = Ward(retry_min=100, message_ttl=30)
    client = ward.client()
    ward.publish()
    ward.scheduler.run()
    release_entries(client.queue, list(client.held), client.consumer)
    ward.clock.advance(30)
    expired = {"x-expired-by": "queue", "x-expired-while": "held"}
    assert ward.headers() == [counts(1, 1, "expired") | expired]


def test_headers_of_an_earlier_death_are_not_repeated() -> None:
    ward = Ward(message_ttl=10)
    ward.vhost.declarations.declare_queue("last", False, None, False, {})
    ward.vhost.policies.set(
        Policy(
            "p", "^dead$", {"dead-letter-exchange": "", "dead-letter-routing-key": "last", "max-length": 1}
        )
    )
    ward.vhost.policies.apply_all()
    ward.publish()
    ward.clock.advance(10)
    ward.publish()
    ward.clock.advance(10)
    [entry] = ward.vhost.topology.queues["last"].entries
    headers = Properties(entry.message.content or b"").headers()
    assert [death["reason"] for death in headers["x-death"]] == ["maxlen", "expired"]  # type: ignore[attr-defined]
    assert "x-expired-by" not in headers


# --- deaths


def die(ward: Ward) -> None:
    """Let a message die for each reason."""
    client = ward.client()
    ward.publish()
    ward.scheduler.run()
    client.queue.discard(client.held.pop())
    ward.publish()
    ward.scheduler.run()
    release_entries(client.queue, [client.held.pop()], client.consumer)
    client.cancel()
    ward.publish(5)
    ward.clock.advance(5)
    ward.publish()
    ward.publish()
    purge(ward.queue)


@pytest.mark.parametrize(
    "reasons", ["rejected", "expired", "maxlen", "delivery_limit", "expired,maxlen", ",".join(DEATHS), None]
)
def test_only_the_deaths_that_were_chosen_make_letters(reasons: str | None) -> None:
    chosen = {} if reasons is None else {"dead_letter_reasons": reasons}
    ward = Ward(delivery_limit=0, max_length=1, **chosen)
    die(ward)
    wanted = list(DEATHS) if reasons is None else reasons.split(",")
    assert sorted(str(death_headers["x-first-death-reason"]) for death_headers in ward.headers()) == sorted(
        wanted
    )
    moved = dict(zip(REASONS, ward.vhost.counters.dead_lettered, strict=True))
    assert moved == {reason: int(reason in wanted) for reason in REASONS}
    assert [a + b for a, b in zip(moved.values(), ward.vhost.counters.discarded, strict=True)] == [
        int(reason in DEATHS) for reason in REASONS
    ]


def test_a_policy_chooses_too() -> None:
    ward = Ward(delivery_limit=0, max_length=1)
    ward.vhost.policies.set(Policy("p", "^q$", {"dead-letter-reasons": "maxlen"}))
    ward.vhost.policies.apply_all()
    die(ward)
    assert ward.headers() == [{"x-first-death-reason": "maxlen"}]


def test_arguments_and_letters_have_the_same_names_for_deaths() -> None:
    assert DEATHS + DEATHS_WITH_QUEUE == REASONS


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"x-dead-letter-reasons": "expired"}, "needs x-dead-letter-exchange"),
        ({"x-dead-letter-exchange": "", "x-dead-letter-reasons": "old"}, "'old'.*some of rejected, expired"),
        (
            {
                "x-dead-letter-exchange": "",
                "x-dead-letter-reasons": "expired",
                "x-overflow": "reject-publish-dlx",
            },
            "x-dead-letter-reasons.*does not go with x-overflow",
        ),
    ],
)
def test_choices_that_make_no_sense_are_refused(arguments: dict[str, object], why: str) -> None:
    with pytest.raises(PreconditionFailed, match=why):
        new_vhost().declarations.declare_queue("q", False, None, False, arguments)


ALL = "rejected,expired,maxlen,delivery_limit,queue_expired,queue_deleted"


def queue_exists(bench: VhostBench, name: str = "q") -> bool:
    return name in bench.vhost.topology.queues


def source(bench: VhostBench, durable: bool = False, **arguments: Any) -> Queue:
    """A queue whose messages go to the queue `dead`, whatever ends them."""
    return bench.queue(
        "q",
        durable,
        dead_letter_exchange="",
        dead_letter_routing_key="dead",
        dead_letter_reasons=ALL,
        **arguments,
    )


# ---- x-expires-if-empty


def test_expires_if_empty_deletes_a_queue_only_after_its_time_empty() -> None:
    bench = VhostBench()
    queue = bench.queue(expires=800, expires_if_empty=True)
    bench.publish()
    bench.clock.advance(10_000)
    assert queue_exists(bench)
    bench.vhost.declarations.purge_queue("q")
    bench.clock.advance(799)
    assert queue_exists(bench), "it has not been empty for so long"
    bench.clock.advance(800 // LOOKS + 2)
    assert not queue_exists(bench)
    assert queue.deleted


def test_an_expired_message_starts_the_time_of_expires_if_empty() -> None:
    bench = VhostBench()
    bench.queue(expires=100, expires_if_empty=True, message_ttl=1000)
    bench.publish()
    bench.clock.advance(1099)
    assert queue_exists(bench)
    bench.clock.advance(100 // LOOKS + 2)
    assert not queue_exists(bench)


def test_an_acquired_message_keeps_the_queue_from_expiring() -> None:
    bench = VhostBench()
    queue = bench.queue(expires=100, expires_if_empty=True)
    client = bench.client(queue)
    bench.publish()
    bench.run()
    client.cancel()
    bench.clock.advance(10_000)
    assert queue_exists(bench)
    client.ack(1)
    bench.clock.advance(100 + 100 // LOOKS + 2)
    assert not queue_exists(bench)


def test_expires_if_empty_deletes_an_empty_queue_and_may_be_set_by_policy() -> None:
    bench = VhostBench()
    bench.queue(expires=100, expires_if_empty=True)
    bench.clock.advance(100)
    assert not queue_exists(bench)
    bench.queue(expires=100)
    bench.vhost.policies.set(Policy("spare", "", {"expires-if-empty": True}))
    bench.vhost.policies.apply_all()
    bench.publish()
    bench.clock.advance(10_000)
    assert queue_exists(bench)


# ---- deaths with the queue


def test_by_default_messages_go_with_their_queue() -> None:
    bench = VhostBench()
    dead = bench.queue("dead")
    bench.queue(dead_letter_exchange="", dead_letter_routing_key="dead", expires=10)
    bench.publish()
    bench.clock.advance(10)
    assert not queue_exists(bench)
    assert numbers(dead) == []


@pytest.mark.parametrize("count", [1, 3 * SLICE])
def test_messages_of_an_expiring_queue_are_dead_lettered(count: int) -> None:
    bench = VhostBench()
    dead = bench.queue("dead")
    source(bench, expires=10)
    bench.publish(count=count)
    bench.clock.advance(10)
    assert not queue_exists(bench)
    assert numbers(dead) == list(range(1, count + 1))
    assert bench.died() == {"queue_expired": count}


@pytest.mark.parametrize("count", [2, 3 * SLICE])
def test_messages_of_a_deleted_queue_are_dead_lettered_with_and_without_consumers(count: int) -> None:
    store = RecordingStore()
    bench = VhostBench(store)
    dead = bench.queue("dead", durable=True)
    queue = source(bench, durable=True)
    client = bench.client(queue, 1)
    bench.publish(count=count, persistent=True)
    bench.run()
    assert client.numbers == [1]
    assert bench.vhost.declarations.delete_queue("q", False, False) == count - 1
    assert queue_exists(bench) is (count > SLICE)
    bench.clock.advance(10)
    assert not queue_exists(bench)
    assert numbers(dead) == list(range(1, count + 1))
    assert bench.died() == {"queue_deleted": count}
    assert store.forgotten == []
    client.ack(1)
    assert len(store.settled) == count


def test_a_policy_dead_letters_messages_of_deleted_queues() -> None:
    bench = VhostBench()
    dead = bench.queue("dead")
    definition: dict[str, object] = {
        "dead-letter-exchange": "",
        "dead-letter-routing-key": "dead",
        "dead-letter-reasons": ALL,
    }
    bench.vhost.policies.set(Policy("last", "^q$", definition))
    bench.vhost.policies.apply_all()
    bench.queue()
    bench.publish()
    bench.vhost.declarations.delete_queue("q", False, False)
    assert (queue_exists(bench), numbers(dead)) == (False, [1])


def test_an_expired_queue_with_at_least_once_dead_letters_is_deleted_after_the_last() -> None:
    bench = VhostBench()
    queue = source(bench, dead_letter_strategy="at-least-once", overflow="reject-publish", expires=10)
    bench.publish(count=2)
    bench.clock.advance(10 * RETRY_MS)
    assert queue_exists(bench)
    assert (queue.depth, queue.dead) == (0, 2)
    dead = bench.queue("dead")
    bench.clock.advance(SOON_MS)
    assert not queue_exists(bench)
    assert numbers(dead) == [1, 2]


def test_a_deletion_that_waits_is_undone_by_a_declaration() -> None:
    bench = VhostBench()
    arguments: dict[str, Any] = {"dead_letter_strategy": "at-least-once", "overflow": "reject-publish"}
    queue = source(bench, **arguments)
    bench.publish()
    bench.vhost.declarations.delete_queue("q", False, False)
    assert (queue_exists(bench), queue.dead) == (True, 1)
    assert source(bench, **arguments) is queue
    bench.queue("dead")
    bench.clock.advance(RETRY_MS)
    assert (queue_exists(bench), queue.dead) == (True, 0)
    bench.vhost.declarations.delete_queue("q", False, False)
    assert not queue_exists(bench)


def test_a_consumer_that_comes_keeps_a_queue_that_expires_but_not_one_that_is_deleted() -> None:
    for deletes in (False, True):
        bench = VhostBench()
        dead = bench.queue("dead")
        queue = source(bench, expires=10)
        bench.publish(count=3 * SLICE)
        if deletes:
            bench.vhost.declarations.delete_queue("q", False, False)
        else:
            bench.clock.now += 10
            bench.clock.schedule.run()
        assert len(numbers(dead)) == SLICE
        client = bench.client(queue, 1)
        bench.run()
        bench.clock.advance(100)
        assert queue_exists(bench) is not deletes
        assert client.numbers == [SLICE + 1]


def test_a_letter_does_not_come_back_into_the_queue_that_goes() -> None:
    bench = VhostBench()
    bench.queue("q", dead_letter_exchange="", dead_letter_routing_key="q", dead_letter_reasons=ALL)
    bench.publish()
    bench.vhost.declarations.delete_queue("q", False, False)
    assert not queue_exists(bench)
    assert bench.dropped() == {"queue_deleted, cycle": 1}


def test_auto_delete_and_exclusive_queues_leave_their_messages_too() -> None:
    bench = VhostBench()
    dead = bench.queue("dead")
    held: dict[str, object] = {
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "dead",
        "x-dead-letter-reasons": ALL,
    }
    owner = object()
    bench.vhost.declarations.declare_queue("mine", False, owner, False, held)
    queue = bench.vhost.declarations.declare_queue("q", False, None, True, held)
    bench.publish("mine")
    bench.publish("q")
    bench.vhost.declarations.delete_exclusive_queues(owner)
    assert numbers(dead) == [1]
    client = bench.client(queue, 1)
    client.cancel()
    bench.vhost.declarations.delete_if_unused(queue)
    assert numbers(dead) == [1, 2]
    assert list(bench.vhost.topology.queues) == ["dead"]
