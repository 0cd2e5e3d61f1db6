"""Transactions: very many settlements, dead letters, policies, and queues with limits."""

import gc
import struct
from random import Random
from typing import Any

import pytest
from pamqp import base
from pamqp.commands import Basic, Channel, Confirm, Connection, Tx
from pamqp.commands import Queue as Method

from broker.core.message import NOWHERE, TELLS_CONSUMED, Message
from broker.core.publishing.publisher import Outcome
from broker.core.queues.attach import attach
from broker.core.queues.consumer import QueueConsumer
from broker.core.queues.hooks import MAXLEN, REJECTED
from broker.core.queues.queue import Queue, queue_of
from broker.core.queues.returns import DEAR, FEW, SLICE
from broker.core.routing.graph import Route
from broker.core.transactions.transaction import DISCARD, RELEASE, SETTLE, HeldPublish, Transaction
from broker.core.vhosts.vhost import VirtualHost
from broker.store.restore import close
from tests.bench.loop import LoopBench
from tests.simulation.broker_life import Life
from tests.simulation.sim_disk import SimDisk
from tests.support.adapters.connection_without_socket import BrokerBench, Client091
from tests.support.amqp091.frames import HEADER, frame_bytes, method_bytes
from tests.support.core.policies import set_policy
from tests.support.core.receipt_vhost import ReceiptBench
from tests.support.core.timed_vhost import delivered_bench, dropped, numbers
from tests.support.core.topology import KeepingTarget

MOST = int(SLICE)
MANY = 2 * MOST + 1
LETTERS: dict[str, Any] = {"dead_letter_exchange": "", "dead_letter_routing_key": "d"}


class Job(Transaction):
    """Notes how it ended."""

    ended = ""

    def on_committed(self) -> None:
        self.ended += "committed"

    def on_commit_failed(self, reason: str) -> None:
        self.ended += reason


def job_of(consumer: QueueConsumer, outcomes: dict[int, int]) -> Job:
    """Return a transaction that settles deliveries of `consumer` with these outcomes."""
    vhost = queue_of(consumer).host
    assert isinstance(vhost, VirtualHost)
    job = Job(vhost.publisher)
    outcome = SETTLE
    for number, entry in enumerate(consumer.queue.entries):
        outcome = outcomes.get(number, outcome)
        job.hold_settlement(number, entry, consumer, outcome)
    return job


def acknowledged_bench() -> tuple[LoopBench, Queue, Client091]:
    """A client with MANY acknowledged deliveries in a transaction, and a further message."""
    bench = LoopBench()
    queue = bench.declare("q")
    bench.fill(bench.open(), "q", MANY + 1)
    client = bench.consumer("q", MANY)
    bench.loop.run()
    bench.ask(client, Tx.Select())
    bench.ask(client, Basic.Ack(0, True))
    bench.loop.run()
    client.frames()
    return bench, queue, client


def names(frames: list[base.Frame]) -> list[str]:
    return [frame.name for frame in frames]


def test_settled_entries_leave_in_slices_and_the_answer_comes_last() -> None:
    bench, queue, client = acknowledged_bench()
    bench.ask(client, Tx.Commit())
    seen = [int(queue.acked)]
    while "Tx.CommitOk" not in names(client.frames()):
        assert bench.loop.step()
        if queue.acked != seen[-1]:
            seen.append(int(queue.acked))
    assert seen == [0, MOST, 2 * MOST, MANY]
    bench.loop.run()
    assert (queue.ready, queue.unacked, bench.broker.vhosts["/"].settlements) == (0, 1, [])


def test_a_long_transaction_settles_in_order() -> None:
    bench, queue, client = delivered_bench(MANY, MANY, **LETTERS)
    dead = bench.queue("d")
    job = job_of(
        client.consumer, {0: DISCARD, 2: SETTLE, MOST + 2: RELEASE, MOST + 4: SETTLE, MANY - 1: DISCARD}
    )
    job.commit()
    assert (numbers(dead), queue.acked, job.ended) == ([1, 2], 0, "")
    bench.clock.advance(0)
    assert (numbers(dead), queue.acked, job.ended) == ([1, 2, MANY], MANY - 5, "committed")
    assert numbers(queue) == [MOST + 3, MOST + 4]
    assert (queue.ready, queue.unacked, client.consumer.inflight, client.credit.used) == (2, 0, 0, 0)
    assert bench.vhost.settlements == []


@pytest.mark.parametrize("which", ["q", "d"])
def test_a_queue_may_be_deleted_during_a_long_commit(which: str) -> None:
    bench, queue, client = delivered_bench(MANY, MANY, **LETTERS)
    dead = bench.queue("d")
    job = job_of(client.consumer, {MANY - 2: DISCARD})
    job.commit()
    bench.vhost.declarations.delete_queue(which, False, False)
    assert queue.acked == (MANY - 2 if which == "q" else 0)
    bench.clock.advance(0)
    assert (queue.acked, job.ended, dead.ready) == (MANY - 2, "committed", 2 if which == "q" else 0)
    assert (client.credit.used, client.consumer.inflight) == (0, 0)


def test_a_client_does_not_continue_in_the_middle_of_a_deletion() -> None:
    bench, queue, client = acknowledged_bench()
    again = [
        Tx.Commit(),
        Method.Delete(queue="q"),
        Method.Declare(queue="q"),
        Method.Bind(queue="q", exchange="amq.fanout"),
    ]
    data = b"".join(method_bytes(command, 1) for command in again)
    bench.loop.turn(lambda: client.connection.receive(data))
    assert queue.unacked == MANY
    other = bench.open()
    bench.ask(other, Method.Delete(queue="q"))
    bench.loop.run()
    assert names(other.frames()) == ["Queue.DeleteOk"]
    assert names(client.frames())[-4:] == ["Tx.CommitOk", "Queue.DeleteOk", "Queue.DeclareOk", "Queue.BindOk"]
    vhost = bench.broker.vhosts["/"]
    assert [each.destination for each in vhost.topology.exchanges["amq.fanout"].bindings()] == [
        vhost.topology.queues["q"]
    ]


def test_a_long_commit_continues_after_the_client_disconnects() -> None:
    bench, queue, client = delivered_bench(MANY, MANY)
    job_of(client.consumer, {}).commit()
    client.held = []
    other = bench.client(queue)
    client.vanish()
    bench.run()
    bench.clock.advance(0)
    bench.run()
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


def test_the_vhost_is_deleted_during_a_commit_and_the_broker_dies() -> None:
    """A settlement is appended only once: other messages are in the same segments."""
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
    taker = KeepingTarget()
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


def test_receipts_are_appended_with_the_commit_and_sent_in_slices() -> None:
    bench = ReceiptBench()
    most = int(SLICE // DEAR)
    count = 2 * most + 1
    for _ in range(count):
        bench.send(TELLS_CONSUMED)
    client = bench.client(bench.q)
    bench.run()
    bench.slow.sync()
    client.held = []
    job = job_of(client.consumer, {})
    job.commit()
    written = len(bench.slow.enqueued)
    bench.slow.sync()
    assert bench.q.acked == 0
    bench.clock.schedule.run()
    assert bench.q.acked == most
    for _ in range(10):
        bench.clock.advance(1)
    assert (len(bench.receipts()), job.ended) == (count, "committed")
    assert len(bench.slow.enqueued) == written, "nothing was appended again"


def test_few_leave_at_once() -> None:
    few = MOST // int(DEAR)
    _, queue, client = delivered_bench(few, few)
    job = job_of(client.consumer, {})
    job.commit()
    assert (queue.acked, job.ended, client.credit.used) == (few, "committed", 0)


@pytest.fixture
def dead_letter_bench() -> BrokerBench:
    """Two messages in `work`, whose dead letters go to `dead`."""
    bench = BrokerBench()
    dead_lettering(bench, "work", "dead")
    declare(bench, "dead")
    declare(bench, "out")
    client = bench.open()
    for body in (b"1", b"2"):
        client.publish("work", body, persistent=True)
    bench.store.complete()
    return bench


def declare(bench: BrokerBench, name: str, **arguments: object) -> None:
    held = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
    bench.broker.vhost("/").declarations.declare_queue(name, True, None, False, held)


def dead_lettering(bench: BrokerBench, name: str, to: str, **arguments: object) -> None:
    declare(bench, name, dead_letter_exchange="", dead_letter_routing_key=to, **arguments)


def queue(bench: BrokerBench, name: str) -> Queue:
    return bench.broker.vhost("/").topology.queues[name]


def counts(bench: BrokerBench, name: str) -> tuple[int, int]:
    """Ready and unacked."""
    found = queue(bench, name)
    return found.ready, found.unacked


def only(bench: BrokerBench, name: str) -> Message:
    """The only message of a queue."""
    (entry,) = queue(bench, name).entries
    return entry.message


def rejecting(bench: BrokerBench, count: int = 1) -> Client091:
    """A client that has rejected so many messages of `work`, published a report, and asks for the commit."""
    client = bench.open()
    client.send(Tx.Select(), 1)
    for tag in range(1, count + 1):
        client.send(Basic.Get(queue="work"), 1)
        client.send(Basic.Reject(tag, requeue=False), 1)
    client.publish("out", b"report", persistent=True)
    client.frames()
    client.send(Tx.Commit(), 1)
    return client


def refused(client: Client091) -> str:
    """Why the commit was refused."""
    (closed,) = client.frames()
    assert isinstance(closed, Channel.Close)
    assert (closed.reply_code, closed.class_id, closed.method_id) == (406, 90, 20)
    return closed.reply_text


def committed(client: Client091) -> bool:
    """Whether the commit, and only that, was answered."""
    return [type(frame) for frame in client.frames()] == [Tx.CommitOk]


def test_the_dead_letter_is_appended_with_the_rest_and_seen_when_it_is_durable(
    dead_letter_bench: BrokerBench,
) -> None:
    store = dead_letter_bench.store
    batch, before = store.batch, len(store.appended)
    old = next(iter(queue(dead_letter_bench, "work").entries)).message
    client = rejecting(dead_letter_bench)
    assert store.batch == batch
    report, letter = store.appended[before:]
    assert report.content is not None
    assert letter.died
    assert store.transacted == [old]
    assert (
        counts(dead_letter_bench, "work"),
        counts(dead_letter_bench, "dead"),
        counts(dead_letter_bench, "out"),
    ) == ((1, 1), (0, 0), (0, 0))
    assert dead_letter_bench.broker.counters.dead_lettered[REJECTED] == 0
    store.complete()
    assert committed(client)
    assert (
        counts(dead_letter_bench, "work"),
        counts(dead_letter_bench, "dead"),
        counts(dead_letter_bench, "out"),
    ) == ((1, 0), (1, 0), (1, 0))
    assert only(dead_letter_bench, "dead") is letter
    assert store.settled == [old]
    assert dead_letter_bench.broker.counters.dead_lettered[REJECTED] == 1


def test_a_store_failure_before_the_sync_undoes_dead_lettering(dead_letter_bench: BrokerBench) -> None:
    client = rejecting(dead_letter_bench)
    dead_letter_bench.store.fail("no disk")
    assert "not committed" in refused(client)
    assert (
        counts(dead_letter_bench, "work"),
        counts(dead_letter_bench, "dead"),
        counts(dead_letter_bench, "out"),
    ) == ((2, 0), (0, 0), (0, 0))
    assert next(iter(queue(dead_letter_bench, "work").entries)).redelivered
    assert dead_letter_bench.broker.counters.dead_lettered[REJECTED] == 0


def test_a_rollback_dead_letters_no_message(dead_letter_bench: BrokerBench) -> None:
    client = dead_letter_bench.open()
    client.send(Tx.Select(), 1)
    client.send(Basic.Get(queue="work"), 1)
    client.send(Basic.Nack(1, requeue=False), 1)
    client.send(Tx.Rollback(), 1)
    client.send(Tx.Commit(), 1)
    assert (counts(dead_letter_bench, "work"), counts(dead_letter_bench, "dead")) == ((1, 1), (0, 0))


def test_a_full_disk_refuses_a_commit_with_dead_letters(dead_letter_bench: BrokerBench) -> None:
    dead_letter_bench.store.failure = (
        "the disk is full"  # settlements go on in the reserve, dead letters do not fit
    )
    client = dead_letter_bench.open()
    client.send(Tx.Select(), 1)
    client.send(Basic.Get(queue="work"), 1)
    client.send(Basic.Get(queue="work"), 1)
    client.send(Basic.Ack(1), 1)
    client.send(Basic.Reject(2, requeue=False), 1)
    client.frames()
    client.send(Tx.Commit(), 1)
    why = "cannot be dead-lettered: the log has stopped: the disk is full"
    assert refused(client).endswith(f"delivery 2, rejected in the transaction, {why}")
    assert (counts(dead_letter_bench, "work"), counts(dead_letter_bench, "dead")) == ((2, 0), (0, 0))
    assert dead_letter_bench.store.transacted == []


def test_a_message_that_the_disk_does_not_give_back_refuses_the_commit(
    dead_letter_bench: BrokerBench,
) -> None:
    client = dead_letter_bench.open()
    client.send(Tx.Select(), 1)
    client.send(Basic.Get(queue="work"), 1)
    dead_letter_bench.store.drop_contents()
    dead_letter_bench.store.unreadable = True
    client.send(Basic.Reject(1, requeue=False), 1)
    client.frames()
    client.send(Tx.Commit(), 1)
    why = "cannot be dead-lettered: the disk does not give it back"
    assert refused(client).endswith(f"delivery 1, rejected in the transaction, {why}")
    assert (counts(dead_letter_bench, "work"), counts(dead_letter_bench, "dead")) == ((2, 0), (0, 0))


def test_a_dead_letter_target_deleted_before_the_sync_drops_the_dead_letter(
    dead_letter_bench: BrokerBench,
) -> None:
    declare(dead_letter_bench, "other")
    client = rejecting(dead_letter_bench)
    letter = dead_letter_bench.store.appended[-1]
    dead_letter_bench.broker.vhost("/").declarations.delete_queue("dead", False, False)
    dead_letter_bench.store.complete()
    assert committed(client)
    assert counts(dead_letter_bench, "work") == (1, 0)
    assert dead_letter_bench.store.forgotten == [letter]


def test_a_source_queue_deleted_before_the_sync_keeps_the_dead_letter(dead_letter_bench: BrokerBench) -> None:
    client = rejecting(dead_letter_bench)
    dead_letter_bench.broker.vhost("/").declarations.delete_queue("work", False, False)
    dead_letter_bench.store.complete()
    assert committed(client)
    assert counts(dead_letter_bench, "dead") == (1, 0), "so the log has it"
    assert dead_letter_bench.store.settled == []


def test_the_queue_s_rules_at_the_commit_hold(dead_letter_bench: BrokerBench) -> None:
    client = rejecting(dead_letter_bench)
    found = queue(dead_letter_bench, "work")
    assert found.limits is not None
    found.limits.apply({})
    dead_letter_bench.store.complete()
    assert committed(client)
    assert counts(dead_letter_bench, "dead") == (1, 0)

    client = rejecting(dead_letter_bench)
    found.limits.apply({"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    dead_letter_bench.store.complete()
    assert committed(client)
    assert (counts(dead_letter_bench, "work"), counts(dead_letter_bench, "dead")) == ((0, 0), (1, 0))
    assert dead_letter_bench.broker.counters.discarded[REJECTED] == 1


def test_a_missing_dead_letter_exchange_drops_rejected_messages(dead_letter_bench: BrokerBench) -> None:
    found = queue(dead_letter_bench, "work")
    assert found.limits is not None
    found.limits.apply({"x-dead-letter-exchange": "gone"})
    client = rejecting(dead_letter_bench)
    assert dropped(dead_letter_bench.broker.counters) == {}
    dead_letter_bench.store.complete()
    assert committed(client)
    assert counts(dead_letter_bench, "work") == (1, 0)
    assert dropped(dead_letter_bench.broker.counters) == {"rejected, no_exchange": 1}


def test_a_full_queue_drops_dead_letters_and_reserves_room_for_accepted_dead_letters(
    dead_letter_bench: BrokerBench,
) -> None:
    declare(dead_letter_bench, "small", max_length=1, overflow="reject-publish")
    found = queue(dead_letter_bench, "work")
    assert found.limits is not None
    found.limits.apply({"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "small"})
    client = rejecting(dead_letter_bench, 2)
    small = queue(dead_letter_bench, "small")
    assert small.limits is not None
    assert small.limits.refuses(Message(NOWHERE, b"", 1, True, 0)), "the first dead letter is on its way"
    dead_letter_bench.store.complete()
    assert committed(client)
    assert (counts(dead_letter_bench, "work"), counts(dead_letter_bench, "small")) == ((0, 0), (1, 0))
    assert (small.limits.reserved, small.limits.reserved_bytes) == (0, 0)
    assert dead_letter_bench.broker.counters.dead_lettered[REJECTED] == 1
    assert dropped(dead_letter_bench.broker.counters) == {"rejected, full": 1}


def test_room_is_given_back_when_the_log_fails(dead_letter_bench: BrokerBench) -> None:
    dead_lettering(dead_letter_bench, "small", "dead", max_length=1, overflow="reject-publish-dlx")
    found = queue(dead_letter_bench, "work")
    assert found.limits is not None
    found.limits.apply({"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "small"})
    rejecting(dead_letter_bench, 2)
    dead_letter_bench.store.fail("no disk")
    small = queue(dead_letter_bench, "small")
    assert small.limits is not None
    assert (small.limits.reserved, small.limits.reserved_bytes) == (0, 0)
    assert (
        counts(dead_letter_bench, "work"),
        counts(dead_letter_bench, "small"),
        counts(dead_letter_bench, "dead"),
    ) == ((2, 0), (0, 0), (0, 0))


def test_reject_publish_dlx_passes_dead_letters_on_in_the_same_batch(dead_letter_bench: BrokerBench) -> None:
    dead_lettering(dead_letter_bench, "full", "dead", max_length=0, overflow="reject-publish-dlx")
    found = queue(dead_letter_bench, "work")
    assert found.limits is not None
    found.limits.apply({"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "full"})
    before = len(dead_letter_bench.store.appended)
    client = rejecting(dead_letter_bench)
    assert len(dead_letter_bench.store.appended) == before + 2, "the report, and the letter that arrives"
    dead_letter_bench.store.complete()
    assert committed(client)
    assert (
        counts(dead_letter_bench, "work"),
        counts(dead_letter_bench, "full"),
        counts(dead_letter_bench, "dead"),
    ) == ((1, 0), (0, 0), (1, 0))
    counters = dead_letter_bench.broker.counters
    assert (counters.dead_lettered[REJECTED], counters.dead_lettered[MAXLEN]) == (1, 1)


def test_a_cycle_of_full_queues_drops_the_dead_letter(
    dead_letter_bench: BrokerBench,
) -> None:
    dead_lettering(dead_letter_bench, "left", "right", max_length=0, overflow="reject-publish-dlx")
    dead_lettering(dead_letter_bench, "right", "left", max_length=0, overflow="reject-publish-dlx")
    found = queue(dead_letter_bench, "work")
    assert found.limits is not None
    found.limits.apply({"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "left"})
    client = rejecting(dead_letter_bench)
    dead_letter_bench.store.complete()
    assert committed(client)
    assert (
        counts(dead_letter_bench, "work"),
        counts(dead_letter_bench, "left"),
        counts(dead_letter_bench, "right"),
    ) == ((1, 0), (0, 0), (0, 0))
    assert dead_letter_bench.broker.counters.dead_lettered[MAXLEN] == 1
    assert dropped(dead_letter_bench.broker.counters) == {"maxlen, cycle": 1}


def test_a_rejected_message_may_be_dead_lettered_to_its_own_queue(dead_letter_bench: BrokerBench) -> None:
    found = queue(dead_letter_bench, "work")
    assert found.limits is not None
    found.limits.apply({"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "work"})
    client = rejecting(dead_letter_bench)
    dead_letter_bench.store.complete()
    assert committed(client)
    assert [entry.message.died for entry in found.entries] == [False, True]


def test_transient_dead_letters_do_not_wait_for_the_sync() -> None:
    bench = BrokerBench()
    dead_lettering(bench, "work", "dead")
    declare(bench, "dead")
    client = bench.open()
    client.publish("work", b"1")
    client.send(Tx.Select(), 1)
    client.send(Basic.Get(queue="work"), 1)
    client.send(Basic.Reject(1, requeue=False), 1)
    client.frames()
    client.send(Tx.Commit(), 1)
    assert committed(client)
    assert (counts(bench, "work"), counts(bench, "dead")) == ((0, 0), (1, 0))


def waiting_rejection(bench: BrokerBench) -> Client091:
    """Return a client whose commit of a rejected message of the durable queue `work` waits for the disk."""
    client = bench.open()
    client.publish("work", b"1", persistent=True)
    bench.store.complete()
    client.send(Tx.Select(), 1)
    client.send(Basic.Get(queue="work"), 1)
    client.send(Basic.Reject(1, requeue=False), 1)
    client.frames()
    client.send(Tx.Commit(), 1)
    assert client.frames() == []
    return client


def new_bench() -> BrokerBench:
    bench = BrokerBench()
    for name in ("work", "dead"):
        bench.broker.vhost("/").declarations.declare_queue(name, True, None, False, {})
    return bench


def outcome(bench: BrokerBench, client: Client091) -> tuple[int, int, int, int]:
    """Make the commit durable; return the counts: dead-lettered, discarded, in `dead`, in `work`."""
    bench.store.complete()
    assert [type(frame) for frame in client.frames()] == [Tx.CommitOk]
    queues, counters = bench.broker.vhost("/").topology.queues, bench.broker.counters
    died = counters.dead_lettered[REJECTED], counters.discarded[REJECTED]
    assert len(bench.store.settled) == 1
    return (*died, queues["dead"].ready, queues["work"].ready + queues["work"].unacked)


def test_messages_dead_lettered_at_the_commit_stay_dead_lettered() -> None:
    bench = new_bench()
    vhost = bench.broker.vhost("/")
    set_policy(vhost, "p", "work", dead_letter_exchange="", dead_letter_routing_key="dead")
    client = waiting_rejection(bench)
    vhost.policies.delete("p")
    vhost.policies.apply_all()
    assert outcome(bench, client) == (1, 0, 1, 0)


def test_messages_discarded_at_the_commit_stay_discarded() -> None:
    bench = new_bench()
    client = waiting_rejection(bench)
    set_policy(bench.broker.vhost("/"), "p", "work", dead_letter_exchange="", dead_letter_routing_key="dead")
    assert outcome(bench, client) == (0, 1, 0, 0)


def declared(bench: BrokerBench, name: str, durable: bool = False, **arguments: object) -> None:
    held = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
    bench.broker.vhost("/").declarations.declare_queue(name, durable, None, False, held)


def ready(bench: BrokerBench, name: str) -> int:
    return int(bench.broker.vhost("/").topology.queues[name].ready)


def test_a_transaction_that_a_full_queue_would_refuse_is_refused_as_a_whole() -> None:
    bench = BrokerBench()
    declared(bench, "q", max_length=2, overflow="reject-publish")
    declared(bench, "other")
    client = bench.open()
    client.send(Tx.Select(), 1)
    for key in ("q", "other", "q", "q"):
        client.publish(key)
    client.frames()
    client.send(Tx.Commit(), 1)
    close = client.frames()[0]
    assert close.name == "Channel.Close"
    assert "publish 4 of 4 in the transaction: queue 'q' in vhost '/' is full" in close.reply_text  # type: ignore[attr-defined]
    assert (ready(bench, "q"), ready(bench, "other")) == (0, 0)
    limits = bench.broker.vhost("/").topology.queues["q"].limits
    assert limits is not None
    assert (limits.reserved, limits.reserved_bytes) == (0, 0)


class Untold(HeldPublish):
    def report_outcome(self, outcome: Outcome) -> None:
        raise RuntimeError("nobody foresaw it")


def test_reserved_room_is_released_when_the_commit_fails() -> None:
    bench = BrokerBench()
    declared(bench, "q", max_length=9, overflow="reject-publish")
    vhost = bench.broker.vhost("/")
    transaction = Transaction(vhost.publisher)
    for _ in range(2):
        route = vhost.publisher.route("", "q")
        transaction.publishes.append(Untold(route, Message(route.address, b"", 7, False, 0), [], False))
    with pytest.raises(RuntimeError, match="nobody foresaw it"):
        transaction.commit()
    limits = vhost.topology.queues["q"].limits
    assert limits is not None
    assert (limits.reserved, limits.reserved_bytes) == (0, 0)


def test_room_is_kept_until_the_transaction_is_durable() -> None:
    bench = BrokerBench()
    declared(bench, "q", durable=True, max_length=2, overflow="reject-publish")
    client, other = bench.open(), bench.open()
    other.send(Confirm.Select(), 1)
    client.send(Tx.Select(), 1)
    for _ in range(2):
        client.publish("q", persistent=True)
    client.send(Tx.Commit(), 1)
    other.frames()
    other.publish("q")
    assert other.confirms() == [("Nack", 1, False)]
    client.frames()
    bench.store.complete()
    assert [frame.name for frame in client.frames()] == ["Tx.CommitOk"]
    assert ready(bench, "q") == 2


@pytest.mark.parametrize("durable", [False, True])
def test_refused_publishes_are_nacked_in_their_turn(durable: bool) -> None:
    bench = BrokerBench()
    declared(bench, "q", durable=durable, max_length=2, overflow="reject-publish")
    declared(bench, "other")
    client = bench.open()
    client.send(Confirm.Select(), 1)
    client.frames()
    client.publish("q", persistent=True)
    client.connection.receive(b"")
    for key in ("q", "q", "q", "other"):
        client.publish(key, persistent=True)
    client.send(Method.Declare(queue="q", passive=True), 1)
    if durable:
        bench.store.complete()
        bench.store.complete()
    event_list = [
        (frame.name, frame.delivery_tag, frame.multiple)  # type: ignore[attr-defined]
        for frame in client.frames()
        if frame.name in ("Basic.Ack", "Basic.Nack")
    ]
    acked: set[int] = set()
    nacked: set[int] = set()
    for name, tag, multiple in event_list:
        covered = {n for n in range(1, tag + 1) if n not in acked | nacked} if multiple else {tag}
        (acked if name == "Basic.Ack" else nacked).update(covered)
    assert (acked, nacked) == ({1, 2, 5}, {3, 4})


@pytest.fixture
def limited_bench() -> BrokerBench:
    bench = BrokerBench()
    declared(bench, "in")
    declared(bench, "out", durable=True)
    declared(bench, "narrow", max_length=1, overflow="reject-publish")
    return bench


def holding(bench: BrokerBench) -> Client091:
    """A client whose transaction has settled a message and fills the narrow queue."""
    client = bench.open()
    client.publish("in")
    client.send(Tx.Select(), 1)
    client.send(Basic.Get(queue="in"), 1)
    client.send(Basic.Ack(1), 1)
    client.publish("narrow")
    client.frames()
    return client


def nothing_was_done(bench: BrokerBench) -> bool:
    """Whether the message is in its queue again, and the narrow queue accepts a message as before."""
    assert (ready(bench, "in"), ready(bench, "narrow")) == (1, 0)
    other = bench.open()
    other.send(Confirm.Select(), 1)
    other.frames()
    other.publish("narrow")
    return other.confirms() == [("Ack", 1, False)]


def test_headers_that_do_not_decode_are_refused_with_the_commit(limited_bench: BrokerBench) -> None:
    client = holding(limited_bench)
    client.connection.receive(
        method_bytes(Basic.Publish(exchange="amq.headers"), 1)
        + frame_bytes(HEADER, 1, struct.pack(">HHQHI", 60, 0, 0, 0x2000, 3) + b"\x01a\xff")
    )
    client.send(Tx.Commit(), 1)
    (close,) = client.frames()
    assert isinstance(close, Channel.Close)
    assert close.reply_code == 406
    assert close.reply_text.startswith("PRECONDITION_FAILED - publish 2 of 2 in the transaction: ")
    assert "headers" in close.reply_text
    assert nothing_was_done(limited_bench)


def test_an_unexpected_error_undoes_the_commit(
    limited_bench: BrokerBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(message: Message, queues: list[Queue]) -> None:
        raise OSError("no reason")

    client = holding(limited_bench)
    client.publish("out", persistent=True)
    with monkeypatch.context() as patched:
        patched.setattr(limited_bench.store, "append_message", fail)
        client.send(Tx.Commit(), 1)
    (close,) = client.frames()
    assert isinstance(close, Connection.Close)
    assert close.reply_code == 541
    assert nothing_was_done(limited_bench)
