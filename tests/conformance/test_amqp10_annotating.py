"""AMQP 1.0: annotations that receivers add to messages that return to the queue. [amqp-1.0 3.4.5]"""

import pytest
from pamqp.commands import Basic, Queue

from protocol.amqp10.annotations import decode_map
from protocol.amqp10.composites import Modified, Rejected, Source
from protocol.amqp10.decoding import decode
from protocol.amqp10.performatives import Attach, Disposition
from protocol.amqp10.sections import scan_preamble
from protocol.amqp10.types import Symbol, Ulong
from tests.support.admin.api import Api, amqp
from tests.support.amqp091.peer import Connector, PeerChannel
from tests.support.amqp10.contents import BODY, content10
from tests.support.amqp10.controller import Controller, within
from tests.support.amqp10.peer import Meet
from tests.support.amqp10.peer_session import Delivery, PeerSession10, receiver
from tests.support.daemon.daemon import Address, DaemonStarter
from tests.support.daemon.endings import Ending, both_endings

pytestmark = pytest.mark.amqpd_only("RabbitMQ before version 4 has it in a plugin")

WHERE = ("x-exchange", "x-routing-key")
LARGE = b"\x00\x53\x75\xb0\x00\x20\x00\x00" + b"d" * 0x200000


def modified(failed: object = False, **annotations: object) -> Modified:
    """Return a modified outcome with these annotations; underscores mean hyphens."""
    fields: dict[str, object] = {Symbol(name.replace("_", "-")): value for name, value in annotations.items()}
    return Modified(delivery_failed=bool(failed), message_annotations=fields)


def annotations_of(delivery: Delivery) -> dict[str, object]:
    """The message-annotations of a delivery, but for where its message was published to."""
    layout = scan_preamble(delivery.payload)
    keys, values = decode_map(delivery.payload[layout.annotations : layout.annotations_end])
    found = {key.decode(): decode(value)[0] for key, value in zip(keys, values, strict=True)}
    assert len(found) == len(keys)
    assert all(name in found for name in WHERE)
    return {name: value for name, value in found.items() if name not in WHERE}


def put(session: PeerSession10, queue: str, payload: bytes) -> None:
    """Have a message in the queue."""
    session.sends(queue, 8)
    parts = [payload[at : at + 100_000] for at in range(0, len(payload), 100_000)]
    for part in parts:
        session.transfer(8, part, 0, more=part is not parts[-1])
    session.outcome(0)
    session.detach(8)


def add(session: PeerSession10, queue: str, state: Modified) -> None:
    """Receive a message, and return it with the annotations of `state`."""
    session.receives(queue, 7, 1)
    delivery = session.delivery(7)
    session.settle(delivery.id, state=state)
    session.detach(7)


def received(session: PeerSession10, queue: str) -> Delivery:
    """The next message, which stays in the queue."""
    session.receives(queue, 6, 1, source=Source(address=f"/queues/{queue}", distribution_mode="copy"))
    delivery = session.delivery(6)
    session.detach(6)
    return delivery


def headers_of(channel: PeerChannel, queue: str) -> dict[str, object]:
    """The headers of the next message."""
    return dict(channel.take(queue).properties.headers or {})


@pytest.mark.spec("amqp-1.0", "3.4.5")
@pytest.mark.parametrize("body", [BODY, LARGE], ids=["small", "large"])
def test_annotations_are_added_to_existing_ones(session: PeerSession10, node: str, body: bytes) -> None:
    put(session, node, content10({"x-opt-first": 1, "x-opt-why": "none", "x-opt-last": [2]}, body=body))
    add(session, node, modified(x_opt_why="busy", x_opt_new=True))
    delivery = received(session, node)
    assert annotations_of(delivery) == {
        "x-opt-first": 1,
        "x-opt-last": [2],
        "x-opt-why": "busy",
        "x-opt-new": True,
    }
    assert delivery.payload.endswith(body)
    add(session, node, modified(True, x_opt_why="still busy", x_opt_first=None))
    assert annotations_of(received(session, node)) == {
        "x-opt-first": None,
        "x-opt-last": [2],
        "x-opt-why": "still busy",
        "x-opt-new": True,
    }


@pytest.mark.spec("amqp-1.0", "3.4.5")
def test_modified_with_a_range_annotates_all_its_messages(
    session: PeerSession10, channel: PeerChannel, node: str
) -> None:
    for _ in range(500):
        channel.publish(b"x", node)
    channel.round_trip()
    session.receives(node, 0, 500)
    numbers = [session.delivery().id for _ in range(500)]
    session.settle(numbers[100], numbers[449], modified(x_opt_why="busy" * 1000))
    session.detach(0)
    session.receives(node, 0, 500)
    found = [annotations_of(session.delivery()) for _ in range(500)]
    assert found == [{}] * 100 + [{"x-opt-why": "busy" * 1000}] * 350 + [{}] * 50


@pytest.mark.spec("amqp-1.0", "3.2.10")
def test_reserved_annotations_and_annotations_of_the_broker_are_not_added(
    session: PeerSession10, node: str
) -> None:
    put(session, node, content10())
    own = ("x-exchange", "x-routing-key", "x-cc", "x-opt-deaths", "x-first-death-queue", "x-delivery-count")
    timed = ("x-delay", "x-opt-delivery-time", "x-opt-delivery-delay", "x-basic-type", "x-receipt-to")
    state = modified(x_opt_why="busy", reserved="no", **dict.fromkeys(own + timed, "no"))
    add(session, node, state)
    delivery = received(session, node)
    assert annotations_of(delivery) == {"x-opt-why": "busy"}
    assert node.encode() in delivery.payload


@pytest.mark.spec("amqp-1.0", "3.4.5")
def test_a_browser_adds_no_annotations(session: PeerSession10, node: str) -> None:
    put(session, node, content10())
    session.receives(node, 0, 1, source=Source(address=f"/queues/{node}", distribution_mode="copy"))
    session.settle(session.delivery().id, state=modified(x_opt_why="busy"))
    assert annotations_of(received(session, node)) == {}


@pytest.mark.spec("amqp-1.0", "3.4.5")
@pytest.mark.parametrize("converted", [False, True], ids=["1.0", "0-9-1"])
def test_amqp_0_9_1_consumers_see_added_annotations_as_headers(
    session: PeerSession10, channel: PeerChannel, node: str, converted: bool
) -> None:
    if converted:
        channel.publish(b"x", node, properties=Basic.Properties(headers={"mine": 1, "x-opt-why": 2}))
        channel.round_trip()
    else:
        put(session, node, content10({"x-opt-why": 2}, {"mine": 1}))
    add(session, node, modified(x_opt_why="busy", x_opt_more=Ulong(3)))
    received_annotations = annotations_of(received(session, node))
    assert received_annotations == {"x-opt-why": "busy", "x-opt-more": 3}
    wanted = {"mine": 1, "x-opt-why": "busy", "x-opt-more": 3}
    channel.consume(node, "tag")
    message = channel.delivery()
    assert message.properties.headers == wanted
    channel.cancel("tag")
    channel.call(Queue.Purge(queue=node), Queue.PurgeOk)  # a purge leaves that acquired message in place
    channel.nack(1)
    got = channel.get(node, no_ack=False)
    assert got is not None
    assert got.properties.headers == wanted


@pytest.mark.spec("amqp-1.0", "3.4.5")
@pytest.mark.parametrize("converted", [False, True], ids=["1.0", "0-9-1"])
@pytest.mark.parametrize("limit", [False, True], ids=["rejected", "exhausted"])
def test_dead_letters_keep_added_annotations(
    session: PeerSession10, channel: PeerChannel, node: str, converted: bool, limit: bool
) -> None:
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": node, "x-delivery-limit": 1}
    dying = channel.declare(auto_delete=True, arguments=arguments)  # type: ignore[arg-type]
    if converted:
        channel.publish(b"x", dying)
        channel.round_trip()
    else:
        put(session, dying, content10())
    session.receives(dying, 0, 1)
    session.settle(session.delivery().id, state=modified(True, x_opt_why="busy"))
    session.allow(0, 1, 1)
    last = session.delivery().id
    session.settle(last, state=modified(True, x_opt_more="too much") if limit else Rejected())
    found = annotations_of(received(session, node))
    assert found["x-opt-why"] == "busy"
    assert found.get("x-opt-more") == ("too much" if limit else None)
    assert found["x-last-death-reason"] == ("delivery_limit" if limit else "rejected")
    assert headers_of(channel, node)["x-opt-why"] == "busy"


@pytest.mark.spec("amqp-1.0", "4.4.2")
@pytest.mark.parametrize("fails", [False, True], ids=["commit", "rollback"])
def test_annotations_of_a_transaction_are_added_by_its_commit(
    session: PeerSession10, node: str, fails: bool
) -> None:
    annotation_sets: list[dict[str, object]] = [
        {"x-opt-why": "busy"},
        {"x-opt-why": "late"},
        {},
        {"x-opt-other": 1},
    ]
    controller = Controller(session)
    for _ in annotation_sets:
        put(session, node, content10())
    session.receives(node, 0, len(annotation_sets))
    numbers = [session.delivery().id for _ in annotation_sets]
    txn_id = controller.declare()
    for number, added in zip(numbers, annotation_sets, strict=True):
        state = Modified(message_annotations={Symbol(name): value for name, value in added.items()})
        session.settle(number, state=within(txn_id, state))
    if fails:
        controller.roll_back(txn_id)
    else:
        controller.commit(txn_id)
    session.detach(0)
    session.receives(node, 0, len(annotation_sets))
    assert [annotations_of(session.delivery()) for _ in annotation_sets] == (
        [{}] * len(annotation_sets) if fails else annotation_sets
    )


@pytest.mark.spec("amqp-1.0", "3.4.5")
def test_too_many_are_refused_and_the_message_stays(session: PeerSession10, node: str) -> None:
    put(session, node, content10())
    add(session, node, modified(x_opt_much="m" * 5000))
    session.receives(node, 0, 1)
    session.settle(session.delivery().id, state=modified(x_opt_more="m" * 5000))
    detach = session.expect_detach(0, "amqp:resource-limit-exceeded", node)
    assert detach.error is not None
    assert "8192" in (detach.error.description or "")
    assert annotations_of(received(session, node)) == {"x-opt-much": "m" * 5000}


@pytest.mark.spec("amqp-1.0", "2.7.3")
@pytest.mark.parametrize("size_max", [7000, 4000])
def test_annotations_beyond_max_message_size_are_left_out_of_the_delivery(
    session: PeerSession10, node: str, size_max: int
) -> None:
    put(session, node, content10({"x-opt-why": 1}))
    add(session, node, modified(x_opt_why="m" * 5000))
    session.write(receiver(f"/queues/{node}", 6, max_message_size=size_max))
    session.expect(Attach)
    session.allow(6, 1)
    delivery = session.delivery(6)
    assert len(delivery.payload) <= size_max
    assert annotations_of(delivery) == {"x-opt-why": 1 if size_max < 5000 else "m" * 5000}


@pytest.mark.spec("amqp-1.0", "3.2.10")
def test_annotations_that_cannot_be_decoded_end_the_connection(session: PeerSession10, node: str) -> None:
    put(session, node, content10())
    session.receives(node, 0, 1)
    number = session.delivery().id
    state = modified(x_opt_why="a name that is no symbol")
    frame = session.encode(Disposition(role=True, first=number, settled=True, state=state))
    wrong = frame.replace(b"\xa3\x09x-opt-why", b"\xa1\x09x-opt-why")
    assert wrong != frame
    session.peer.send(wrong)
    session.peer.expect_close("amqp:decode-error", "symbol")


@both_endings
@pytest.mark.spec("amqp-1.0", "3.4.5")
@pytest.mark.parametrize("counts", [False, True], ids=["classic", "quorum"])
def test_annotations_and_the_place_in_the_queue_survive_a_restart(
    start_daemon: DaemonStarter, connect: Connector, meet: Meet, end: Ending, counts: bool
) -> None:
    daemon = start_daemon()
    channel = connect(daemon.address).channel()
    arguments = {"x-queue-type": "quorum"} if counts else {}
    channel.declare("q", durable=True, arguments=arguments)  # type: ignore[arg-type]
    peer = meet(daemon.address)
    peer.open()
    session = PeerSession10(peer)
    for number in range(3):
        put(session, "q", content10({"x-opt-number": number}, durable=True))
    session.receives("q", 0, 2)
    numbers = [session.delivery().id for _ in range(2)]
    session.settle(numbers[0], state=modified(True, x_opt_why="busy"))
    session.settle(numbers[1], state=modified(x_opt_why="later"))
    session.detach(0)
    channel.confirm_select()
    channel.publish(b"x", "q", properties=Basic.Properties(delivery_mode=2))
    channel.expect_confirms(1)  # so all that was said before is on disk
    end(daemon, channel.peer)

    peer = meet(start_daemon().address)
    peer.open()
    session = PeerSession10(peer)
    session.receives("q", 0, 3)
    assert [annotations_of(session.delivery()) for _ in range(3)] == [
        {"x-opt-number": 0, "x-opt-why": "busy"},
        {"x-opt-number": 1, "x-opt-why": "later"},
        {"x-opt-number": 2},
    ]


@pytest.mark.spec("amqp-1.0", "3.4.5")
def test_annotations_are_moved_by_operators_and_shown(
    api: Api, vhost: str, address: Address, meet: Meet
) -> None:
    api.put("queues", vhost, "from", durable=True)
    api.put("queues", vhost, "to", durable=True)
    with amqp(address, vhost) as pika_channel:
        pika_channel.basic_publish("", "from", b"x")
    peer = meet(address)
    peer.open(hostname=f"vhost:{vhost}")
    session = PeerSession10(peer)
    add(session, "from", modified(x_opt_why="busy"))
    (shown,) = api.get("queues", vhost, "from", "messages")["messages"]
    assert shown["properties"]["headers"] == {"x-opt-why": "busy"}
    asked = {"to": {"queue": "to"}, "all": True}
    assert api.post("queues", vhost, "from", "messages", "move", status=200, body=asked)["done"] == 1
    got = {"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto"}
    (taken,) = api.post("queues", vhost, "to", "get", status=200, body=got)
    assert taken["properties"]["headers"] == {"x-opt-why": "busy"}
