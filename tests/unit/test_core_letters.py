"""What dead letters tell of a message's time in its queue, and which deaths a queue makes letters of."""

from typing import Any

import pytest

from broker.core.arguments.queue import CRASH, DEATHS, DEATHS_WITH_QUEUE, NACK
from broker.core.errors import PreconditionFailed
from broker.core.message import NEVER, Message
from broker.core.policies.policy import Policy
from broker.core.queues.hooks import REASONS
from broker.core.queues.queue import Queue
from broker.core.queues.returns import release_entries
from broker.core.vhosts.vhost import VirtualHost
from protocol.amqp091.properties import Properties
from tests.clock import HandClock
from tests.dispatch import Client, HandScheduler
from tests.purging import purge
from tests.topology import content_of, new_vhost

TOLD = ("x-delivery-count", "x-acquired-count", "x-expired-by", "x-expired-while", "x-first-death-reason")


class Ward:
    """A queue whose dead letters go to another one."""

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

    def told(self) -> list[dict[str, object]]:
        """What each letter tells, in order, of what this is about."""
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
    assert ward.told() == [counts(3, 5)]


def test_what_was_refused_was_delivered_but_did_not_come_back() -> None:
    ward = Ward(delivery_limit=5)
    client = ward.client()
    ward.publish()
    ward.scheduler.run()
    client.queue.discard(client.held[0])
    assert ward.told() == [counts(0, 1, "rejected")]


def test_a_queue_that_does_not_count_tells_nothing() -> None:
    ward = Ward()
    client = ward.client()
    ward.publish()
    ward.scheduler.run()
    client.queue.discard(client.held[0])
    assert ward.told() == [{"x-first-death-reason": "rejected"}]


@pytest.mark.parametrize(
    ("ttl", "expiration", "by"),
    [(None, 20, "message"), (20, NEVER, "queue"), (20, 30, "queue"), (30, 20, "message"), (0, 5, "queue")],
)
def test_a_letter_tells_whose_time_was_over(ttl: int | None, expiration: int, by: str) -> None:
    ward = Ward() if ttl is None else Ward(message_ttl=ttl)
    ward.publish(expiration, **{"x-expired-by": "me", "x-expired-while": "asleep"})
    ward.clock.advance(20)
    expected = {"x-expired-by": by, "x-expired-while": "ready", "x-first-death-reason": "expired"}
    assert ward.told() == [expected]


def test_a_letter_tells_that_it_expired_while_it_waited_to_be_tried_again() -> None:
    ward = Ward(retry_min=100, message_ttl=30)
    client = ward.client()
    ward.publish()
    ward.scheduler.run()
    release_entries(client.queue, list(client.held), client.consumer)
    ward.clock.advance(30)
    expired = {"x-expired-by": "queue", "x-expired-while": "held"}
    assert ward.told() == [counts(1, 1, "expired") | expired]


def test_what_an_earlier_death_told_is_not_told_again() -> None:
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


# --- which deaths


def die(ward: Ward) -> None:
    """One message of each kind of death."""
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
    assert sorted(str(told["x-first-death-reason"]) for told in ward.told()) == sorted(wanted)
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
    assert ward.told() == [{"x-first-death-reason": "maxlen"}]


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
