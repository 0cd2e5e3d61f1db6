"""A transaction settles very many deliveries: its batch has all of it, in memory they leave bit by bit."""

import gc
from random import Random
from typing import Any

import pytest
from pamqp import base
from pamqp.commands import Basic, Tx
from pamqp.commands import Queue as Method

from broker.core.message import TELLS_CONSUMED, Message
from broker.core.queues.attach import attach
from broker.core.queues.consumer import QueueConsumer
from broker.core.queues.queue import Queue, queue_of
from broker.core.queues.returns import DEAR, FEW, SLICE
from broker.core.routing.graph import Route
from broker.core.transactions.transaction import DISCARD, RELEASE, SETTLE, Transaction
from broker.core.vhosts.vhost import VirtualHost
from broker.store.restore import close
from tests.bench.loop import Site
from tests.frames import method_bytes
from tests.office import Office
from tests.simulation.broker_life import Life
from tests.simulation.sim_disk import SimDisk
from tests.topology import Taker
from tests.wired import Wired
from tests.yard import delivered, numbers

MOST = int(SLICE)
MANY = 2 * MOST + 1
LETTERS: dict[str, Any] = {"dead_letter_exchange": "", "dead_letter_routing_key": "d"}


class Job(Transaction):
    """Notes how it ended."""

    ended = ""

    def committed(self) -> None:
        self.ended += "committed"

    def failed(self, reason: str) -> None:
        self.ended += reason


def job_of(consumer: QueueConsumer, outcomes: dict[int, int]) -> Job:
    """Deliveries of `consumer`, from such a one on, with such outcomes."""
    vhost = queue_of(consumer).host
    assert isinstance(vhost, VirtualHost)
    job = Job(vhost.publisher)
    outcome = SETTLE
    for number, entry in enumerate(consumer.queue.entries):
        outcome = outcomes.get(number, outcome)
        job.hold_settlement(number, entry, consumer, outcome)
    return job


def site() -> tuple[Site, Queue, Wired]:
    """A client with MANY deliveries that it has acknowledged in a transaction, and one message more."""
    site = Site()
    queue = site.declare("q")
    site.fill(site.open(), "q", MANY + 1)
    client = site.consumer("q", MANY)
    site.loop.run()
    site.ask(client, Tx.Select())
    site.ask(client, Basic.Ack(0, True))
    site.loop.run()
    client.frames()
    return site, queue, client


def names(frames: list[base.Frame]) -> list[str]:
    return [frame.name for frame in frames]


def test_they_leave_in_slices_and_the_answer_comes_last() -> None:
    place, queue, client = site()
    place.ask(client, Tx.Commit())
    seen = [int(queue.acked)]
    while "Tx.CommitOk" not in names(client.frames()):
        assert place.loop.step()
        if queue.acked != seen[-1]:
            seen.append(int(queue.acked))
    assert seen == [0, MOST, 2 * MOST, MANY]
    place.loop.run()
    assert (queue.ready, queue.unacked, place.broker.vhosts["/"].settlements) == (0, 1, [])


def test_what_else_it_does_is_done_in_its_order() -> None:
    yard, queue, client = delivered(MANY, MANY, **LETTERS)
    dead = yard.queue("d")
    job = job_of(
        client.consumer, {0: DISCARD, 2: SETTLE, MOST + 2: RELEASE, MOST + 4: SETTLE, MANY - 1: DISCARD}
    )
    job.commit()
    assert (numbers(dead), queue.acked, job.ended) == ([1, 2], 0, "")
    yard.clock.advance(0)
    assert (numbers(dead), queue.acked, job.ended) == ([1, 2, MANY], MANY - 5, "committed")
    assert numbers(queue) == [MOST + 3, MOST + 4]
    assert (queue.ready, queue.unacked, client.consumer.inflight, client.credit.used) == (2, 0, 0, 0)
    assert yard.vhost.settlements == []


@pytest.mark.parametrize("which", ["q", "d"])
def test_a_queue_is_deleted_meanwhile(which: str) -> None:
    yard, queue, client = delivered(MANY, MANY, **LETTERS)
    dead = yard.queue("d")
    job = job_of(client.consumer, {MANY - 2: DISCARD})
    job.commit()
    yard.vhost.declarations.delete_queue(which, False, False)
    assert queue.acked == (MANY - 2 if which == "q" else 0)
    yard.clock.advance(0)
    assert (queue.acked, job.ended, dead.ready) == (MANY - 2, "committed", 2 if which == "q" else 0)
    assert (client.credit.used, client.consumer.inflight) == (0, 0)


def test_who_committed_does_not_go_on_in_the_middle_of_a_deletion() -> None:
    place, queue, client = site()
    again = [
        Tx.Commit(),
        Method.Delete(queue="q"),
        Method.Declare(queue="q"),
        Method.Bind(queue="q", exchange="amq.fanout"),
    ]
    data = b"".join(method_bytes(command, 1) for command in again)
    place.loop.turn(lambda: client.connection.receive(data))
    assert queue.unacked == MANY
    other = place.open()
    place.ask(other, Method.Delete(queue="q"))
    place.loop.run()
    assert names(other.frames()) == ["Queue.DeleteOk"]
    assert names(client.frames())[-4:] == ["Tx.CommitOk", "Queue.DeleteOk", "Queue.DeclareOk", "Queue.BindOk"]
    vhost = place.broker.vhosts["/"]
    assert [each.destination for each in vhost.topology.exchanges["amq.fanout"].bindings()] == [
        vhost.topology.queues["q"]
    ]


def test_the_client_goes_meanwhile_and_nobody_else_gets_them() -> None:
    yard, queue, client = delivered(MANY, MANY)
    job_of(client.consumer, {}).commit()
    client.held = []
    other = yard.client(queue)
    client.vanish()
    yard.run()
    yard.clock.advance(0)
    yard.run()
    assert (other.numbers, queue.acked, numbers(queue)) == ([], MANY, [])


def held_by_log() -> tuple[SimDisk, Life, Job]:
    """A transaction that is on disk, and has turns to come."""
    disk = SimDisk(Random(1))
    life = Life(disk)
    life.declare("q")
    life.declare("other")
    for number in range(MANY):
        life.publish("q", b"%d" % number)
        for _ in range(2):
            life.publish("other", b"x" * 100)
    life.commit()
    consumer, entries = life.take("other")
    for entry in entries:
        queue_of(consumer).settle(entry)
    consumer, _ = life.take("q")
    job = job_of(consumer, {})
    job.commit()
    life.commit()
    assert (job.ended, int(consumer.queue.acked)) == ("", 0)
    return disk, life, job


def test_a_clean_stop_in_between() -> None:
    disk, life, job = held_by_log()
    close(life.broker, life.log)
    assert job.ended == "committed"
    assert Life(disk).held() == {"q": [], "other": []}


def test_the_log_is_copied_forward_in_between_and_the_broker_dies() -> None:
    disk, life, _ = held_by_log()
    for _ in range(300):
        life.publish("other", b"x" * 100)
        life.log.tick()
        life.commit()
    disk.crash()
    held = Life(disk).held()
    assert (held["q"], len(held["other"])) == ([], 300)


def large(life: Life, route: Route) -> Message:
    """A message with a body in pieces."""
    message = Message(route.address, b"head", 4, True, 0)
    message.body = life.log.new_body()
    message.body.pieces.append(Message(route.address, b"piece", 5, True, 0))
    return message


def test_its_virtual_host_is_deleted_in_between_and_the_broker_dies() -> None:
    """What the log was told once is not let go of again: others have messages in the same segments."""
    disk = SimDisk(Random(1))
    life = Life(disk)
    life.declare("kept")
    other = life.broker.declare_vhost("other")
    queue = other.declarations.declare_queue("q", True, None, False, {})
    route = other.publisher.route("", "q")
    count = int(FEW) + 10
    for number in range(count):
        other.publisher.publish(route, large(life, route))
        life.publish("kept", b"%d" % number)
    life.commit()
    taker = Taker()
    consumer = QueueConsumer(taker, queue)
    attach(queue, consumer)
    while queue.deliver_single_message(consumer):
        pass
    job = job_of(consumer, {})
    job.commit()
    life.commit()
    life.broker.delete_vhost("other")
    assert job.ended == ""
    life.clock.advance(1)
    assert job.ended == "committed"
    del taker, consumer, queue, job
    gc.collect()
    for _ in range(40):
        life.publish("kept", b"more" * 100)
        life.log.tick()
        life.commit()
    life.tidy()
    assert sum(int(segment.live) for segment in life.log.segments.all()) == count + 40
    disk.crash()
    assert len(Life(disk).held()["kept"]) == count + 40


def test_receipts_are_in_its_batch_and_come_as_they_leave() -> None:
    office = Office()
    most = int(SLICE // DEAR)
    count = 2 * most + 1
    for _ in range(count):
        office.send(TELLS_CONSUMED)
    client = office.client(office.q)
    office.run()
    office.slow.sync()
    client.held = []
    job = job_of(client.consumer, {})
    job.commit()
    written = len(office.slow.enqueued)
    office.slow.sync()
    assert office.q.acked == 0
    office.clock.schedule.run()
    assert office.q.acked == most
    for _ in range(10):
        office.clock.advance(1)
    assert (len(office.told()), job.ended) == (count, "committed")
    assert len(office.slow.enqueued) == written, "nothing was appended again"


def test_few_leave_at_once() -> None:
    few = MOST // int(DEAR)
    _, queue, client = delivered(few, few)
    job = job_of(client.consumer, {})
    job.commit()
    assert (queue.acked, job.ended, client.credit.used) == (few, "committed", 0)
