"""What a transaction rejects, and where it goes: in the same batch as everything else, or not at all."""

import pytest
from pamqp.commands import Basic, Channel, Tx

from broker.core.message import NOWHERE, Message
from broker.core.queues.hooks import MAXLEN, REJECTED
from broker.core.queues.queue import Queue
from tests.wired import House, Wired
from tests.yard import dropped


@pytest.fixture
def house() -> House:
    """Two messages in `work`, whose dead letters go to `dead`."""
    house = House()
    dead_lettering(house, "work", "dead")
    declare(house, "dead")
    declare(house, "out")
    client = house.open()
    for body in (b"1", b"2"):
        client.publish("work", body, persistent=True)
    house.store.complete()
    return house


def declare(house: House, name: str, **arguments: object) -> None:
    held = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
    house.broker.vhost("/").declarations.declare_queue(name, True, None, False, held)


def dead_lettering(house: House, name: str, to: str, **arguments: object) -> None:
    declare(house, name, dead_letter_exchange="", dead_letter_routing_key=to, **arguments)


def queue(house: House, name: str) -> Queue:
    return house.broker.vhost("/").topology.queues[name]


def counts(house: House, name: str) -> tuple[int, int]:
    """Ready and unacked."""
    found = queue(house, name)
    return found.ready, found.unacked


def only(house: House, name: str) -> Message:
    """The only message of a queue."""
    (entry,) = queue(house, name).entries
    return entry.message


def rejecting(house: House, count: int = 1) -> Wired:
    """A client that has rejected so many messages of `work`, published a report, and asks for the commit."""
    client = house.open()
    client.send(Tx.Select(), 1)
    for tag in range(1, count + 1):
        client.send(Basic.Get(queue="work"), 1)
        client.send(Basic.Reject(tag, requeue=False), 1)
    client.publish("out", b"report", persistent=True)
    client.frames()
    client.send(Tx.Commit(), 1)
    return client


def refused(client: Wired) -> str:
    """Why the commit was refused."""
    (closed,) = client.frames()
    assert isinstance(closed, Channel.Close)
    assert (closed.reply_code, closed.class_id, closed.method_id) == (406, 90, 20)
    return closed.reply_text


def committed(client: Wired) -> bool:
    """Whether the commit, and only that, was answered."""
    return [type(frame) for frame in client.frames()] == [Tx.CommitOk]


def test_the_dead_letter_is_appended_with_the_rest_and_seen_when_it_is_durable(house: House) -> None:
    store = house.store
    batch, before = store.batch, len(store.appended)
    old = next(iter(queue(house, "work").entries)).message
    client = rejecting(house)
    assert store.batch == batch
    report, letter = store.appended[before:]
    assert report.content is not None
    assert letter.died
    assert store.transacted == [old]
    assert (counts(house, "work"), counts(house, "dead"), counts(house, "out")) == ((1, 1), (0, 0), (0, 0))
    assert house.broker.counters.dead_lettered[REJECTED] == 0
    store.complete()
    assert committed(client)
    assert (counts(house, "work"), counts(house, "dead"), counts(house, "out")) == ((1, 0), (1, 0), (1, 0))
    assert only(house, "dead") is letter
    assert store.settled == [old]
    assert house.broker.counters.dead_lettered[REJECTED] == 1


def test_a_log_that_fails_meanwhile_leaves_nothing_dead(house: House) -> None:
    client = rejecting(house)
    house.store.fail("no disk")
    assert "not committed" in refused(client)
    assert (counts(house, "work"), counts(house, "dead"), counts(house, "out")) == ((2, 0), (0, 0), (0, 0))
    assert next(iter(queue(house, "work").entries)).redelivered
    assert house.broker.counters.dead_lettered[REJECTED] == 0


def test_a_rollback_leaves_nothing_dead(house: House) -> None:
    client = house.open()
    client.send(Tx.Select(), 1)
    client.send(Basic.Get(queue="work"), 1)
    client.send(Basic.Nack(1, requeue=False), 1)
    client.send(Tx.Rollback(), 1)
    client.send(Tx.Commit(), 1)
    assert (counts(house, "work"), counts(house, "dead")) == ((1, 1), (0, 0))


def test_a_log_that_takes_nothing_refuses_the_commit(house: House) -> None:
    house.store.failure = "the disk is full"  # settlements go on in the reserve, dead letters do not fit
    client = house.open()
    client.send(Tx.Select(), 1)
    client.send(Basic.Get(queue="work"), 1)
    client.send(Basic.Get(queue="work"), 1)
    client.send(Basic.Ack(1), 1)
    client.send(Basic.Reject(2, requeue=False), 1)
    client.frames()
    client.send(Tx.Commit(), 1)
    why = "cannot be dead-lettered: the log has stopped: the disk is full"
    assert refused(client).endswith(f"delivery 2, rejected in the transaction, {why}")
    assert (counts(house, "work"), counts(house, "dead")) == ((2, 0), (0, 0))
    assert house.store.transacted == []


def test_a_message_that_the_disk_does_not_give_back_refuses_the_commit(house: House) -> None:
    client = house.open()
    client.send(Tx.Select(), 1)
    client.send(Basic.Get(queue="work"), 1)
    house.store.drop_contents()
    house.store.unreadable = True
    client.send(Basic.Reject(1, requeue=False), 1)
    client.frames()
    client.send(Tx.Commit(), 1)
    why = "cannot be dead-lettered: the disk does not give it back"
    assert refused(client).endswith(f"delivery 1, rejected in the transaction, {why}")
    assert (counts(house, "work"), counts(house, "dead")) == ((2, 0), (0, 0))


def test_queues_that_are_deleted_meanwhile(house: House) -> None:
    declare(house, "other")
    client = rejecting(house)
    letter = house.store.appended[-1]
    house.broker.vhost("/").declarations.delete_queue("dead", False, False)
    house.store.complete()
    assert committed(client)
    assert counts(house, "work") == (1, 0)
    assert house.store.forgotten == [letter]


def test_a_queue_that_is_deleted_meanwhile_has_let_its_dead_letter_go(house: House) -> None:
    client = rejecting(house)
    house.broker.vhost("/").declarations.delete_queue("work", False, False)
    house.store.complete()
    assert committed(client)
    assert counts(house, "dead") == (1, 0), "so the log has it"
    assert house.store.settled == []


def test_what_the_queue_said_at_the_commit_holds(house: House) -> None:
    client = rejecting(house)
    found = queue(house, "work")
    assert found.rules is not None
    found.rules.apply({})
    house.store.complete()
    assert committed(client)
    assert counts(house, "dead") == (1, 0)

    client = rejecting(house)
    found.rules.apply({"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    house.store.complete()
    assert committed(client)
    assert (counts(house, "work"), counts(house, "dead")) == ((0, 0), (1, 0))
    assert house.broker.counters.discarded[REJECTED] == 1


def test_an_exchange_that_is_not_there_drops_them(house: House) -> None:
    found = queue(house, "work")
    assert found.rules is not None
    found.rules.apply({"x-dead-letter-exchange": "gone"})
    client = rejecting(house)
    assert dropped(house.broker.counters) == {}
    house.store.complete()
    assert committed(client)
    assert counts(house, "work") == (1, 0)
    assert dropped(house.broker.counters) == {"rejected, no_exchange": 1}


def test_a_full_queue_refuses_them_too_and_room_is_kept_until_they_come(house: House) -> None:
    declare(house, "small", max_length=1, overflow="reject-publish")
    found = queue(house, "work")
    assert found.rules is not None
    found.rules.apply({"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "small"})
    client = rejecting(house, 2)
    small = queue(house, "small")
    assert small.rules is not None
    assert small.rules.refuses(Message(NOWHERE, b"", 1, True, 0)), "the first dead letter is on its way"
    house.store.complete()
    assert committed(client)
    assert (counts(house, "work"), counts(house, "small")) == ((0, 0), (1, 0))
    assert (small.rules.reserved, small.rules.reserved_bytes) == (0, 0)
    assert house.broker.counters.dead_lettered[REJECTED] == 1
    assert dropped(house.broker.counters) == {"rejected, full": 1}


def test_room_is_given_back_when_the_log_fails(house: House) -> None:
    dead_lettering(house, "small", "dead", max_length=1, overflow="reject-publish-dlx")
    found = queue(house, "work")
    assert found.rules is not None
    found.rules.apply({"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "small"})
    rejecting(house, 2)
    house.store.fail("no disk")
    small = queue(house, "small")
    assert small.rules is not None
    assert (small.rules.reserved, small.rules.reserved_bytes) == (0, 0)
    assert (counts(house, "work"), counts(house, "small"), counts(house, "dead")) == ((2, 0), (0, 0), (0, 0))


def test_a_full_queue_sends_them_on_in_the_same_batch(house: House) -> None:
    dead_lettering(house, "full", "dead", max_length=0, overflow="reject-publish-dlx")
    found = queue(house, "work")
    assert found.rules is not None
    found.rules.apply({"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "full"})
    before = len(house.store.appended)
    client = rejecting(house)
    assert len(house.store.appended) == before + 2, "the report, and the letter that arrives"
    house.store.complete()
    assert committed(client)
    assert (counts(house, "work"), counts(house, "full"), counts(house, "dead")) == ((1, 0), (0, 0), (1, 0))
    counters = house.broker.counters
    assert (counters.dead_lettered[REJECTED], counters.dead_lettered[MAXLEN]) == (1, 1)


def test_full_queues_that_send_each_other_dead_letters_end_with_the_cycle_rule(house: House) -> None:
    dead_lettering(house, "left", "right", max_length=0, overflow="reject-publish-dlx")
    dead_lettering(house, "right", "left", max_length=0, overflow="reject-publish-dlx")
    found = queue(house, "work")
    assert found.rules is not None
    found.rules.apply({"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "left"})
    client = rejecting(house)
    house.store.complete()
    assert committed(client)
    assert (counts(house, "work"), counts(house, "left"), counts(house, "right")) == ((1, 0), (0, 0), (0, 0))
    assert house.broker.counters.dead_lettered[MAXLEN] == 1
    assert dropped(house.broker.counters) == {"maxlen, cycle": 1}


def test_a_rejected_message_may_come_back_to_its_own_queue(house: House) -> None:
    found = queue(house, "work")
    assert found.rules is not None
    found.rules.apply({"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "work"})
    client = rejecting(house)
    house.store.complete()
    assert committed(client)
    assert [entry.message.died for entry in found.entries] == [False, True]


def test_transient_ones_do_not_wait_for_the_log() -> None:
    house = House()
    dead_lettering(house, "work", "dead")
    declare(house, "dead")
    client = house.open()
    client.publish("work", b"1")
    client.send(Tx.Select(), 1)
    client.send(Basic.Get(queue="work"), 1)
    client.send(Basic.Reject(1, requeue=False), 1)
    client.frames()
    client.send(Tx.Commit(), 1)
    assert committed(client)
    assert (counts(house, "work"), counts(house, "dead")) == ((0, 0), (1, 0))
