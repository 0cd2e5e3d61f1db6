"""The journal of a running broker: the events of each message, also after a restart."""

from pathlib import Path

from pamqp.commands import Basic, Queue, Tx
from pamqp.common import FieldTable

from broker.journal.reader import JournalReader
from broker.journal.verification import Verification
from protocol.journal.rows import EventRow
from tests.support.admin.api import Api
from tests.support.amqp091.peer import Connector
from tests.support.amqp10.contents import bare10
from tests.support.amqp10.peer import Meet
from tests.support.amqp10.peer_session import PeerSession10
from tests.support.daemon.daemon import DaemonStarter
from tests.support.daemon.endings import Ending, both_endings, crash, stop
from tests.support.journal.handmade_journal import OF_THE_BROKER, out_of_turn, wait_for

FULL = ("--journal", "full")
PERSISTENT = Basic.Properties(delivery_mode=2)


def events(folder: Path, *ops: str) -> list[EventRow]:
    """The events of these operations, or all; the journal must be whole and add up."""
    reading = JournalReader(folder)
    rows = list(reading.rows())
    found = Verification()
    found.take(rows)
    assert found.findings == []
    assert reading.damages == []
    assert out_of_turn(rows) == []
    return [row for row in rows if row.op in ops or (not ops and row.op not in OF_THE_BROKER)]


def words(rows: list[EventRow]) -> list[str]:
    """Return the operations of events, with the reason where an event has one."""
    return [row.op if row.reason is None else f"{row.op} {row.reason}" for row in rows]


def named(message_id: str) -> Basic.Properties:
    return Basic.Properties(delivery_mode=2, message_id=message_id)


def test_the_life_of_a_message(start_daemon: DaemonStarter, connect: Connector, folder: Path) -> None:
    daemon = start_daemon(*FULL)
    channel = connect(daemon.address).channel()
    channel.declare("q", durable=True)
    channel.confirm_select()
    channel.publish(b"body", "q", properties=named("m-1"))
    channel.expect_confirms(1)
    channel.consume("q", "tag")
    channel.nack(channel.delivery().tag)
    second = channel.delivery()
    channel.ack(second.tag)
    channel.round_trip()
    stop(daemon, channel.peer)

    rows = events(folder)
    assert words(rows) == [
        "declare full",
        "enqueue",
        "confirm",
        "deliver",
        "requeue nack",
        "deliver",
        "ack",
        "checkpoint shutdown",
        "end",
    ]
    came, deliveries = rows[1], [row for row in rows if row.op == "deliver"]
    assert (came.vhost, came.queue, came.exchange, came.routing_key) == ("/", "q", "", "q")
    assert (came.message_id, came.size, came.persistent, came.user) == ("m-1", 4, True, "guest")
    assert (came.conn or "").endswith(f" -> {daemon.address.host}:{daemon.address.port}")
    assert came.channel == channel.number
    assert {row.msg_uid for row in rows[3:7]} == {came.msg_uid}
    assert {row.qpos for row in rows[3:7]} == {came.qpos}
    assert [(row.consumer, row.delivery_count, row.redelivered) for row in deliveries] == [
        ("tag", 1, False),
        ("tag", 2, True),
    ]
    assert rows[2].quantity == 1
    assert {row.address for row in (came, *deliveries)} == {(came.conn or "").split(" -> ")[0]}
    assert [row.seq for row in rows] == list(range(rows[0].seq, rows[0].seq + 9))
    assert sorted(row.ts for row in rows) == [row.ts for row in rows]


def test_ways_out(start_daemon: DaemonStarter, connect: Connector, folder: Path) -> None:
    daemon = start_daemon(*FULL)
    channel = connect(daemon.address).channel()
    channel.declare("rejected")
    channel.publish(b"", "rejected")
    channel.reject(channel.take("rejected").tag, requeue=False)
    channel.declare("expired", arguments={"x-message-ttl": 0})
    channel.publish(b"", "expired")
    channel.declare("short", arguments={"x-max-length": 1})
    for _ in range(2):
        channel.publish(b"", "short")
    channel.declare("latest", arguments={"x-queue-kind": "last-value", "x-last-value-key": "k"})
    for _ in range(2):
        channel.publish(b"", "latest", properties=Basic.Properties(headers={"k": "same"}))
    channel.declare("immediate")
    channel.publish(b"", "immediate", immediate=True)
    channel.returned()
    channel.declare("limited", arguments={"x-delivery-limit": 0})
    channel.publish(b"", "limited")
    channel.nack(channel.take("limited").tag)
    channel.publish(b"", "nowhere")
    channel.call(Queue.Purge(queue="short"), Queue.PurgeOk)
    channel.call(Queue.Delete(queue="latest"), Queue.DeleteOk)
    stop(daemon, channel.peer)
    gone = events(
        folder, "reject", "expire", "drop_overflow", "replace", "purge", "queue_delete", "unroutable"
    )
    assert [(row.op, row.reason, row.queue, row.quantity) for row in gone if row.reason != "shutdown"] == [
        ("reject", "rejected", "rejected", None),
        ("expire", "expired", "expired", None),
        ("drop_overflow", "maxlen", "short", None),
        ("replace", "replaced", "latest", None),
        ("expire", "immediate", "immediate", None),
        ("reject", "delivery_limit", "limited", None),
        ("unroutable", None, None, None),
        ("purge", None, "short", 1),
        ("queue_delete", None, "latest", 1),
    ]


def test_a_dead_letter_tells_where_it_comes_from(
    start_daemon: DaemonStarter, connect: Connector, folder: Path
) -> None:
    daemon = start_daemon(*FULL)
    channel = connect(daemon.address).channel()
    channel.declare("dead", durable=True)
    arguments: FieldTable = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    channel.declare("q", durable=True, arguments=arguments)
    channel.publish(b"", "q", properties=named("m"))
    channel.reject(channel.take("q").tag, requeue=False)
    channel.ack(channel.take("dead").tag)
    stop(daemon, channel.peer)
    came, died, letter, settled = events(folder, "enqueue", "dead_letter", "ack")
    assert (died.reason, died.peer_queue, died.msg_uid) == ("rejected", "dead", came.msg_uid)
    assert (letter.reason, letter.origin_uid, letter.message_id) == ("dead_letter", came.msg_uid, "m")
    assert letter.msg_uid == settled.msg_uid != came.msg_uid


def test_copies_in_several_queues_are_one_message(
    start_daemon: DaemonStarter, connect: Connector, folder: Path
) -> None:
    daemon = start_daemon(*FULL)
    channel = connect(daemon.address).channel()
    for name, durable in (("one", True), ("two", True), ("transient", False)):
        channel.declare(name, durable=durable)
        channel.call(Queue.Bind(queue=name, exchange="amq.fanout"), Queue.BindOk)
    channel.publish(b"", "", "amq.fanout", PERSISTENT)
    stop(daemon, channel.peer)
    rows = events(folder, "enqueue")
    assert {row.queue for row in rows} == {"one", "two", "transient"}
    assert len({row.msg_uid for row in rows}) == 1


def test_transactions(start_daemon: DaemonStarter, connect: Connector, folder: Path) -> None:
    daemon = start_daemon(*FULL)
    channel = connect(daemon.address).channel()
    channel.declare("q", durable=True)
    channel.publish(b"", "q", properties=PERSISTENT)
    taken = channel.take("q")
    channel.call(Tx.Select(), Tx.SelectOk)
    channel.publish(b"rolled back", "q", properties=PERSISTENT)
    channel.call(Tx.Rollback(), Tx.RollbackOk)
    channel.publish(b"", "q", properties=PERSISTENT)
    channel.ack(taken.tag)
    channel.call(Tx.Commit(), Tx.CommitOk)
    stop(daemon, channel.peer)
    rows = events(folder, "enqueue", "ack")
    assert words(rows) == ["enqueue", "enqueue", "ack"]
    assert rows[1].user == "guest"


def test_clients_of_amqp_10(
    start_daemon: DaemonStarter, connect: Connector, meet: Meet, folder: Path
) -> None:
    daemon = start_daemon(*FULL)
    channel = connect(daemon.address).channel()
    channel.declare("q", durable=True)
    peer = meet(daemon.address)
    peer.open()
    session = PeerSession10(peer)
    session.sends("q")
    session.publish(0, 1, bare10(message_id="m-10"))
    session.receives("q", 1, credit=1)
    session.settle(session.delivery(1)[0])
    wait_for(folder, "ack")
    peer.socket.close()
    stop(daemon, channel.peer)
    came, confirmed, delivered, settled = events(folder, "enqueue", "confirm", "deliver", "ack")
    assert (came.message_id, came.user, came.channel) == ("m-10", "guest", 0)
    assert (confirmed.quantity, delivered.consumer) == (1, settled.consumer)


@both_endings
def test_the_journal_lists_recovered_messages_after_a_restart(
    start_daemon: DaemonStarter, connect: Connector, folder: Path, end: Ending
) -> None:
    daemon = start_daemon(*FULL)
    channel = connect(daemon.address).channel()
    channel.declare("q", durable=True)
    channel.confirm_select()
    for _ in range(3):
        channel.publish(b"", "q", properties=PERSISTENT)
    channel.publish(b"", "q")
    channel.expect_confirms(4)
    channel.ack(channel.take("q").tag)
    wait_for(folder, "ack")
    end(daemon, channel.peer)
    daemon = start_daemon(*FULL)
    channel = connect(daemon.address).channel()
    channel.ack(channel.take("q").tag)
    stop(daemon, channel.peer)

    rows = events(folder)
    again = next(at for at, row in enumerate(rows) if row.op == "recover")
    assert words(rows)[again - 1] == ("gap" if end is crash else "end")
    assert [row.quantity for row in rows if row.op == "gap"] == ([0] if end is crash else [])
    listed = [row for row in rows if row.op == "recover"]
    persistent = [row.msg_uid for row in rows if row.op == "enqueue" and row.persistent]
    assert [row.msg_uid for row in listed] == [*persistent[1:], None]
    assert listed[-1].quantity == 2
    assert rows[again + 4].msg_uid == persistent[1]


def test_a_queue_declared_again_has_a_new_queue_id(
    start_daemon: DaemonStarter, connect: Connector, folder: Path
) -> None:
    daemon = start_daemon(*FULL)
    channel = connect(daemon.address).channel()
    for durable in (True, False):
        for _ in range(2):
            channel.declare("q", durable=durable)
            channel.call(Queue.Delete(queue="q"), Queue.DeleteOk)
    stop(daemon, channel.peer)
    assert len({row.queue_id for row in events(folder, "declare")}) == 4


def test_a_queue_that_is_renamed_stays_the_same(
    start_daemon: DaemonStarter, connect: Connector, folder: Path
) -> None:
    daemon = start_daemon(*FULL)
    channel = connect(daemon.address).channel()
    channel.declare("before", durable=True)
    api = Api(daemon.admin)
    assert api.ask("PATCH", "queues", "/", "before", body={"name": "after"}).status_code == 204
    api.close()
    channel.publish(b"", "after")
    channel.round_trip()
    stop(daemon, channel.peer)
    made, came = events(folder, "declare", "enqueue")
    assert (made.queue, came.queue) == ("before", "after")
    assert made.queue_id == came.queue_id
