"""Messages in queues that the log knows and in others, while memory keeps no content that is on disk."""

import random
from collections.abc import Callable

import pytest

from broker.core.message import Message
from broker.core.publishing.publisher import Outcome
from broker.core.queues.attach import detach
from broker.core.queues.queue import Queue
from broker.core.queues.returns import release_entries
from broker.core.transactions.transaction import HeldPublish, Transaction
from tests.simulation.broker_life import Life
from tests.simulation.sim_disk import SimDisk
from tests.support.store.hand_log import content_of

CONTENT = content_of(1, 600)


class UnconfirmedPublish(HeldPublish):
    """A publish whose sender asks nothing."""

    def report_outcome(self, outcome: Outcome) -> None:
        pass


class Commit(Transaction):
    """A commit whose outcome nobody waits for."""

    def on_committed(self) -> None:
        pass


def fan_out(life: Life) -> None:
    """Published to both at once."""
    publish(life)


def transact(life: Life) -> None:
    """Published to both by a transaction."""
    route = life.vhost.publisher.route("amq.fanout", "k")
    commit = Commit(life.vhost.publisher)
    commit.publishes.append(UnconfirmedPublish(route, new_message(life), [], False))
    commit.commit()


def die(life: Life) -> None:
    """Dead-lettered to both."""
    life.declare("dying", message_ttl=0, dead_letter_exchange="amq.fanout")
    publish(life, "", "dying")


def expire(life: Life) -> None:
    """Published with an expiration, which no route knows beforehand."""
    message = new_message(life)
    message.expiration = 1000
    life.vhost.publisher.publish_carefully(life.vhost.publisher.route("amq.fanout", "k"), message)


def replay(life: Life) -> None:
    """Out of a history, along a binding to an exchange that leads to both."""
    life.vhost.declarations.declare_exchange("recent", "x-recent-history", True, False, False, {})
    publish_by_message(life, "recent")
    life.vhost.declarations.bind_exchange("amq.fanout", "recent", "", {})
    life.vhost.declarations.delete_exchange("recent", False)  # the history itself would keep the segment


def new_message(life: Life) -> Message:
    return Message(life.vhost.publisher.route("amq.fanout", "k").address, CONTENT, len(CONTENT), True, 0)


def publish(life: Life, exchange: str = "amq.fanout", key: str = "k") -> None:
    life.vhost.publisher.publish(life.vhost.publisher.route(exchange, key), new_message(life))


def publish_by_message(life: Life, exchange: str) -> None:
    message = new_message(life)
    route = life.vhost.publisher.route(exchange, "k")
    life.vhost.publisher.publish_by_message(route, message, ["k"], life.vhost.views(message, life.log))


def both(life: Life) -> tuple[Queue, Queue]:
    """Return a durable queue and a transient queue, bound to the same exchange."""
    life.declare("kept")
    life.vhost.declarations.declare_queue("fleeting", False, None, False, {})
    life.vhost.declarations.bind_queue("fleeting", "amq.fanout", "", {})
    life.vhost.declarations.bind_queue("kept", "amq.fanout", "", {})
    return life.vhost.topology.queues["kept"], life.vhost.topology.queues["fleeting"]


def let_go(life: Life, queue: Queue) -> None:
    """Settle a queue's messages, and fill segments until their content is no longer on disk."""
    consumer, entries = life.take(queue.name)
    for entry in entries:
        queue.settle(entry)
    detach(queue, consumer, [])
    segments = {segment.number for segment in life.log.segments.all()}
    life.declare("filler")
    for _ in range(20):
        life.publish("filler", content_of(9, 3000))
        filler, more = life.take("filler")
        for entry in more:
            life.vhost.topology.queues["filler"].settle(entry)
        detach(life.vhost.topology.queues["filler"], filler, [])
        life.tidy()
        if not segments & {segment.number for segment in life.log.segments.all()}:
            return
    raise AssertionError("the segments do not go")


@pytest.mark.parametrize("arrive", [fan_out, transact, die, expire, replay])
def test_a_queue_that_is_not_logged_has_its_messages_when_the_log_has_let_go_of_them(
    arrive: Callable[[Life], None],
) -> None:
    life = Life(SimDisk(random.Random(1)), memory_budget=0)
    kept, fleeting = both(life)
    arrive(life)
    life.commit()
    life.tidy()
    (entry,) = kept.entries
    assert entry.message.content is None, "it is on disk only"
    (entry,) = fleeting.entries
    assert entry.message.date == next(iter(kept.entries)).message.date
    let_go(life, kept)
    assert life.held()["fleeting"] == [CONTENT]
    _, (entry,) = life.take("fleeting")
    assert entry.message.content == CONTENT


@pytest.mark.parametrize("immediate", [False, True])
def test_a_delivered_message_keeps_its_content_while_memory_keeps_none(immediate: bool) -> None:
    life = Life(SimDisk(random.Random(1)), memory_budget=0)
    kept, fleeting = both(life)
    consumer, taken = life.take("fleeting")
    other, others = life.take("kept")
    life.vhost.publisher.publish(
        life.vhost.publisher.route("amq.fanout", "k"), new_message(life), immediate=immediate
    )
    while fleeting.deliver_single_message(consumer) or kept.deliver_single_message(other):
        pass
    life.commit()
    life.tidy()
    release_entries(kept, others, other)
    detach(kept, other, [])
    let_go(life, kept)
    release_entries(fleeting, taken, consumer)
    assert life.held()["fleeting"] == [CONTENT]


def test_a_history_that_is_not_logged_has_its_messages_too() -> None:
    life = Life(SimDisk(random.Random(1)), memory_budget=0)
    kept, _ = both(life)
    life.vhost.declarations.declare_exchange("recent", "x-recent-history", False, False, False, {})
    life.vhost.declarations.bind_exchange("amq.fanout", "recent", "", {})
    publish_by_message(life, "recent")
    life.commit()
    life.tidy()
    let_go(life, kept)
    life.vhost.declarations.declare_queue("late", False, None, False, {})
    life.vhost.declarations.bind_queue("late", "recent", "", {})
    assert life.held()["late"] == [CONTENT]


def test_a_message_logged_for_all_queues_or_for_none_is_a_single_message() -> None:
    life = Life(SimDisk(random.Random(1)), memory_budget=0)
    _, fleeting = both(life)
    life.vhost.declarations.declare_queue("other", False, None, False, {})
    life.vhost.declarations.bind_queue("other", "amq.direct", "k", {})
    life.vhost.declarations.bind_queue("fleeting", "amq.direct", "k", {})
    assert not life.vhost.publisher.route("amq.direct", "k").careful
    assert life.vhost.publisher.route("amq.fanout", "k").careful
    publish(life, "amq.direct")
    assert (
        next(iter(fleeting.entries)).message
        is next(iter(life.vhost.topology.queues["other"].entries)).message
    )
