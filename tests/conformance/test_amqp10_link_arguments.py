"""AMQP 1.0: consumer arguments of AMQP 0-9-1 as properties or filters of a receiver's link."""

import json
from collections.abc import Callable, Iterator

import pytest
from pamqp.commands import Queue

from protocol.amqp10.composites import Accepted, Modified, Source
from protocol.amqp10.performatives import Attach, Detach, Open, Transfer
from protocol.amqp10.types import Described, Symbol, Timestamp, Uint
from tests.support.admin.api import Api
from tests.support.amqp091.peer import Connector, PeerChannel
from tests.support.amqp10.contents import bare10
from tests.support.amqp10.peer import Meet
from tests.support.amqp10.peer_session import Begins, PeerSession10, receiver
from tests.support.amqp10.unsettled_maps import unsettled

pytestmark = [
    pytest.mark.amqpd_only("RabbitMQ before version 4 has it in a plugin"),
    pytest.mark.spec("amqp-1.0", "2.7.3"),
]

Asks = Callable[..., Attach]


def properties(
    address: str, handle: int = 0, source: dict[str, object] | None = None, **asked: object
) -> Attach:
    """Return the arguments as link properties; an underscore means a hyphen."""
    fields: dict[str, object] = {Symbol(name.replace("_", "-")): value for name, value in asked.items()}
    return receiver(None, handle, source=Source(address=address, **(source or {})), properties=fields)  # type: ignore[arg-type]


def described(
    address: str, handle: int = 0, source: dict[str, object] | None = None, **asked: object
) -> Attach:
    """Ask by filters whose descriptors are the arguments' names."""
    filter_set: dict[str, object] = {}
    for number, (name, value) in enumerate(asked.items()):
        filter_set[Symbol(f"filter {number}")] = Described(Symbol(name.replace("_", "-")), value)
    return receiver(None, handle, source=Source(address=address, filter=filter_set, **(source or {})))  # type: ignore[arg-type]


def prefixed(
    address: str, handle: int = 0, source: dict[str, object] | None = None, **asked: object
) -> Attach:
    """Ask by filters with amqpd's own names."""
    own = {"amqpd:" + name.removeprefix("x_"): value for name, value in asked.items()}
    return described(address, handle, source, **own)


def bare(address: str, handle: int = 0, source: dict[str, object] | None = None, **asked: object) -> Attach:
    """Ask by filters without descriptors, as some clients make them."""
    fields: dict[str, object] = {Symbol(name.replace("_", "-")): value for name, value in asked.items()}
    return receiver(None, handle, source=Source(address=address, filter=fields, **(source or {})))  # type: ignore[arg-type]


WAYS = pytest.mark.parametrize("asks", [properties, described, prefixed, bare])


def attached(session: PeerSession10, attach: Attach, credit: int = 0) -> Attach:
    """Attach a link that the broker takes; returns the broker's attach."""
    session.write(attach)
    answer = session.expect(Attach)
    assert answer.source is not None
    if credit:
        session.allow(attach.handle, credit)
    return answer


def expect_refusal(session: PeerSession10, attach: Attach, condition: str, words: str = "") -> None:
    """A link that the broker does not take."""
    session.write(attach)
    assert session.expect(Attach).source is None
    session.expect_detach(attach.handle, condition, words)


@pytest.fixture
def other(connect: Connector, node: str) -> Iterator[str]:
    """Another queue that is open to any connection."""
    channel = connect().channel()
    channel.declare(node + ".other")
    yield node + ".other"
    channel.call(Queue.Delete(queue=node + ".other"), Queue.DeleteOk)


def fill(channel: PeerChannel, queue: str, count: int, first: int = 0) -> None:
    """Publish numbers."""
    channel.confirm_select()
    for number in range(first, first + count):
        channel.publish(b"%d" % number, queue)
    channel.expect_confirms(count)


def body(payload: bytes) -> bytes:
    """The body of a short message of AMQP 0-9-1."""
    return payload.rpartition(b"\x53\x75\xa0")[2][1:]


def seen(session: PeerSession10, handle: int, count: int) -> list[bytes]:
    """The bodies of so many deliveries, which are accepted."""
    found = []
    for _ in range(count):
        delivery = session.delivery(handle)
        found.append(body(delivery.payload))
        session.settle(delivery.id)
    return found


@WAYS
def test_an_exclusive_consumer_is_served_alone(
    session: PeerSession10, channel: PeerChannel, node: str, api: Api, asks: Asks
) -> None:
    for handle in (1, 2):
        attached(session, asks(node, handle, x_exclusive_consumer=True), credit=10)
    attached(session, receiver(node, 3), credit=10)
    fill(channel, node, 3)
    assert seen(session, 1, 3) == [b"0", b"1", b"2"]
    consumers = {each["consumer_tag"]: each for each in api.get("queues", "/", node)["consumer_details"]}
    assert consumers["receives 1"]["activity_status"] == "single_active"
    assert consumers["receives 1"]["arguments"] == {"x-exclusive-consumer": True}
    session.detach(1)
    fill(channel.peer.channel(2), node, 1)
    assert seen(session, 2, 1) == [b"0"]
    session.detach(2)
    fill(channel.peer.channel(3), node, 1)
    assert seen(session, 3, 1) == [b"0"]


@WAYS
def test_an_exclusive_link_and_other_consumers_exclude_each_other(
    session: PeerSession10, begin: Begins, channel: PeerChannel, node: str, asks: Asks
) -> None:
    attached(session, asks(node, exclusive=True))
    expect_refusal(begin(), receiver(node), "amqp:resource-locked", "in exclusive use")
    session.detach(0)
    channel.consume(node, "other")
    expect_refusal(session, asks(node, exclusive=True), "amqp:resource-locked", "in exclusive use")
    channel.cancel("other")
    attached(session, asks(node, exclusive=True))


@WAYS
@pytest.mark.parametrize("alone", [True, False])
def test_a_link_receives_from_several_queues_by_turns(
    session: PeerSession10, channel: PeerChannel, node: str, other: str, asks: Asks, alone: bool
) -> None:
    fill(channel, node, 3)
    fill(channel.peer.channel(2), other, 3, first=10)
    attached(session, asks(node, 1, x_also_consume=other if alone else [other]), credit=6)
    assert seen(session, 1, 6) == [b"0", b"10", b"1", b"11", b"2", b"12"]
    session.detach(1)
    assert channel.peer.channel(3).counts(other) == (0, 0)


def test_a_link_to_several_queues_is_detached_when_the_last_queue_is_deleted(
    session: PeerSession10, channel: PeerChannel, name: str
) -> None:
    queues = [channel.declare(f"{name}.{number}") for number in range(2)]
    attached(session, properties(queues[0], 1, x_also_consume=[queues[1]]), credit=10)
    channel.call(Queue.Delete(queue=queues[0]), Queue.DeleteOk)
    fill(channel, queues[1], 1)
    assert seen(session, 1, 1) == [b"0"]
    session.expect_silence()
    channel.call(Queue.Delete(queue=queues[1]), Queue.DeleteOk)
    session.expect_detach(1, "amqp:resource-deleted")


def test_a_link_to_several_queues_comes_back(
    session: PeerSession10, channel: PeerChannel, node: str, other: str
) -> None:
    fill(channel, node, 2)
    fill(channel.peer.channel(2), other, 2, first=10)
    asked = properties(node, 1, {"timeout": 60}, x_also_consume=[other])
    attached(session, asked, credit=4)
    taken = [session.delivery(1) for _ in range(4)]
    session.detach(1, closed=False)
    asked.unsettled = unsettled({taken[0].tag: None, taken[1].tag: Accepted(), taken[3].tag: None})
    answer = attached(session, asked)
    assert set(answer.unsettled or ()) == {delivery.tag for delivery in taken}
    session.allow(1, 10)
    came = [session.read()[0] for _ in range(4)]
    transfers = [each for each in came if isinstance(each, Transfer)]
    assert len(transfers) == 4
    again = {each.delivery_tag for each in transfers if each.resume and not each.settled}
    assert again == {taken[0].tag, taken[3].tag}
    assert [each.delivery_tag for each in transfers if each.resume and each.settled] == [taken[1].tag]
    assert [each.resume for each in transfers].count(False) == 1  # the receiver did not have it
    assert [channel.peer.channel(3 + at).counts(queue) for at, queue in enumerate((node, other))] == [
        (0, 1)
    ] * 2


@WAYS
@pytest.mark.parametrize(
    ("beginning", "shown"),
    [("first", [0, 1, 2]), ("last", [2]), ("next", []), (1, [1, 2]), (Uint(2), [2])],
    ids=["first", "last", "next", "number", "uint"],
)
def test_where_a_browser_begins(
    session: PeerSession10,
    channel: PeerChannel,
    node: str,
    asks: Asks,
    beginning: object,
    shown: list[int],
) -> None:
    fill(channel, node, 3)
    answer = attached(session, asks(node, 1, {"distribution_mode": "copy"}, x_browse_from=beginning), 10)
    assert answer.source is not None
    assert answer.source.distribution_mode == "copy"
    fill(channel.peer.channel(2), node, 1, first=3)
    assert seen(session, 1, len(shown) + 1) == [b"%d" % number for number in [*shown, 3]]
    assert channel.peer.channel(3).counts(node) == (4, 1)


def test_a_browser_begins_at_a_time(session: PeerSession10, node: str) -> None:
    session.sends(node, 0)
    for number, day in enumerate((1, 2, 3)):
        session.publish(0, 1, bare10(creation_time=Timestamp(day * 86_400_000)), first=number)
    began = Timestamp(2 * 86_400_000)
    attached(session, properties(node, 1, x_browse=True, x_browse_from=began), 10)
    assert len([session.delivery(1) for _ in range(2)]) == 2
    session.expect_silence()


@WAYS
@pytest.mark.parametrize("count", [0, 3])
def test_a_snapshot_ends_its_link(
    session: PeerSession10, channel: PeerChannel, node: str, asks: Asks, count: int
) -> None:
    fill(channel, node, count)
    attached(session, asks(node, 1, x_browse="snapshot"))
    fill(channel.peer.channel(2), node, 1, first=count)
    session.allow(1, 10)
    assert [body(session.delivery(1).payload) for _ in range(count)] == [b"%d" % n for n in range(count)]
    assert session.expect(Detach) == Detach(handle=1, closed=True)
    session.write(Detach(handle=1, closed=True))
    assert channel.peer.channel(3).counts(node) == (count + 1, 0)
    session.receives(node, 1, 1)  # the handle is free
    assert seen(session, 1, 1) == [b"0"]


@WAYS
def test_a_queue_is_told_when_a_link_is_served(
    session: PeerSession10, channel: PeerChannel, node: str, other: str, asks: Asks
) -> None:
    asked = {"x_exclusive_consumer": True, "x_notify_active": other}
    for handle in (1, 2):
        attached(session, asks(node, handle, **asked))
    session.detach(1)
    session.detach(2)
    channel.consume(other, no_ack=True)
    changes = [json.loads(channel.delivery().body) for _ in range(4)]
    assert [(each["consumer_tag"], each["active"], each["why"]) for each in changes] == [
        ("receives 1", True, "elected"),
        ("receives 1", False, "detached"),
        ("receives 2", True, "elected"),
        ("receives 2", False, "detached"),
    ]


@WAYS
def test_priorities_and_time_outs(
    session: PeerSession10, channel: PeerChannel, node: str, asks: Asks
) -> None:
    attached(session, asks(node, 1, x_priority=-1), credit=10)
    attached(session, asks(node, 2, x_priority=1, x_consumer_timeout=50), credit=2)
    fill(channel, node, 1)
    late = session.delivery(2)
    assert body(late.payload) == b"0"
    session.read()  # the time is over
    again = session.delivery(2)
    session.settle(again.id)


def test_the_answer_has_the_requested_arguments(session: PeerSession10, node: str) -> None:
    asked = properties(node, 1, x_priority=3, x_exclusive_consumer=True, unknown=1)
    answer = attached(session, asked)
    assert answer.properties == {"x-priority": 3, "x-exclusive-consumer": True}
    answer = attached(session, described(node, 2, x_priority=3, unknown=1))
    assert answer.source is not None
    assert answer.source.filter == {"filter 0": Described("x-priority", 3)}


@pytest.mark.parametrize("asks", [properties, described])
@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"x_exclusive_consumer": "yes"}, "x-exclusive-consumer"),
        ({"exclusive": 1}, "exclusive"),
        ({"x_also_consume": [1]}, "x-also-consume"),
        ({"x_browse_from": "last"}, "needs x-browse"),
        ({"x_browse": "all"}, "x-browse"),
        ({"x_browse": True, "x_browse_from": "end"}, "x-browse-from"),
        ({"x_browse": True, "x_exclusive_consumer": True}, "does not go with"),
        ({"x_browse": True, "exclusive": True}, "does not go with"),
        ({"exclusive": True, "x_exclusive_consumer": True}, "does not go with"),
        ({"x_priority": 2**31}, "x-priority"),
        ({"x_consumer_timeout": -1}, "x-consumer-timeout"),
        ({"x_notify_active": ""}, "x-notify-active"),
    ],
    ids=str,
)
def test_contradicting_arguments_are_refused(
    session: PeerSession10, node: str, asks: Asks, asked: dict[str, object], words: str
) -> None:
    expect_refusal(session, asks(node, **asked), "amqp:invalid-field", words)
    session.receives(node)  # the session is as it was


def test_a_missing_node_is_refused(session: PeerSession10, channel: PeerChannel, node: str) -> None:
    expect_refusal(session, properties(node, x_also_consume=["none"]), "amqp:not-found", "'none'")
    expect_refusal(session, properties(node, x_also_consume=[node]), "amqp:invalid-field", "already receives")
    notified = properties(node, x_notify_active="none")
    expect_refusal(session, notified, "amqp:precondition-failed", "there is no queue 'none'")
    assert channel.counts(node) == (0, 0)


def test_repeated_arguments_are_refused(session: PeerSession10, node: str) -> None:
    twice = properties(node, x_priority=1, priority=2)
    expect_refusal(session, twice, "amqp:invalid-field", "with two values, '1' and '2'")
    attached(session, properties(node, 1, {"filter": {"x-priority": 1}}, x_priority=1))
    filters = {"a": Described("x-priority", 1), "b": Described("amqpd:priority", 1)}
    attach = properties(node, 0, {"filter": filters})
    expect_refusal(session, attach, "amqp:invalid-field", "is present twice")


def test_all_queues_have_to_be_readable(meet: Meet, api: Api, vhost: str, user: Callable[..., Api]) -> None:
    for queue in ("q", "secret"):
        api.put("queues", vhost, queue)
    user("", read="^q$", write="^$")
    peer = meet()
    peer.log_in(f"{vhost}.0", "secret")
    peer.write(Open(container_id="test", hostname=f"vhost:{vhost}"))
    peer.expect(Open)
    session = PeerSession10(peer)
    refused = "amqp:unauthorized-access"
    expect_refusal(session, properties("q", x_also_consume=["secret"]), refused, "secret")
    expect_refusal(session, properties("q", x_notify_active="q"), refused)


@pytest.mark.parametrize(
    "form", ["queue://{}?{}", "{}?{}", "amqp://host/{}?{}"], ids=["queue", "name", "URI"]
)
def test_exclusive_consumers_of_activemq(
    session: PeerSession10, channel: PeerChannel, node: str, api: Api, form: str
) -> None:
    where = form.format(node, "consumer.exclusive=true&consumer.prefetchSize=1")
    for handle in (1, 2):
        answer = attached(session, receiver(where, handle), credit=10)
        assert answer.source is not None
        assert answer.source.address == where
    attached(session, receiver(form.format(node, "consumer.priority=5"), 3), credit=10)
    session.sends(where, 4)
    session.publish(4, 1)
    session.settle(session.delivery(1).id)
    consumers = {each["consumer_tag"]: each for each in api.get("queues", "/", node)["consumer_details"]}
    assert consumers["receives 2"]["arguments"] == {"x-exclusive-consumer": True}
    assert consumers["receives 3"]["arguments"] == {"x-priority": 5}


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("exclusive=maybe", "'maybe', expected true or false"),
        ("priority=high", "'high', expected an integer"),
        ("selector=a%3D1", "apache.org:selector-filter:string"),
        ("noLocal=true", "apache.org:no-local-filter:list"),
    ],
    ids=["exclusive", "priority", "selector", "local"],
)
def test_an_option_that_cannot_be_taken(session: PeerSession10, node: str, option: str, words: str) -> None:
    refused = receiver(f"queue://{node}?consumer.{option}")
    expect_refusal(session, refused, "amqp:invalid-field", words)


def test_a_message_that_an_exclusive_consumer_sends_away_is_for_the_next(
    session: PeerSession10, channel: PeerChannel, node: str
) -> None:
    for handle in (1, 2):
        attached(session, properties(node, handle, x_exclusive_consumer=True), credit=10)
    fill(channel, node, 1)
    away = session.delivery(1)
    session.settle(away.id, state=Modified(undeliverable_here=True))
    channel.publish(b"1", node)  # the consumer is still the one that is served
    assert seen(session, 1, 1) == [b"1"]
    session.detach(1)
    assert seen(session, 2, 1) == [b"0"]
