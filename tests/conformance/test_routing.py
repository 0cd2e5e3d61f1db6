"""Routing: exchange types, exchanges bound to exchanges, alternate exchanges."""

import pytest
from pamqp.commands import Basic, Exchange, Queue
from pamqp.common import FieldTable

from tests.support.amqp091.peer import Connector, PeerChannel
from tests.support.amqp091.topology_commands import (
    bind_exchange,
    bind_queue,
    declare_exchange,
    delete_exchange,
    drain,
)


@pytest.mark.spec("amqp-0-9-1", "3.1.3.1")
def test_direct(channel: PeerChannel, exchange: str, queues: list[str]) -> None:
    declare_exchange(channel, exchange, "direct")
    bind_queue(channel, queues[0], exchange, "a")
    bind_queue(channel, queues[0], exchange, "a")  # twice the same: one binding
    bind_queue(channel, queues[1], exchange, "a")
    bind_queue(channel, queues[1], exchange, "b")
    bind_queue(channel, queues[2], exchange, "")
    for key in ("a", "b", "", "c", "a.b"):
        channel.publish(key.encode(), key, exchange)
    assert [drain(channel, queue) for queue in queues] == [["a"], ["a", "b"], [""], []]


@pytest.mark.spec("amqp-0-9-1", "3.1.3.2")
def test_fanout(channel: PeerChannel, exchange: str, queues: list[str]) -> None:
    declare_exchange(channel, exchange, "fanout")
    bind_queue(channel, queues[0], exchange)
    bind_queue(channel, queues[1], exchange, "ignored")
    bind_queue(channel, queues[1], exchange, "ignored too")  # delivered once
    for key in ("", "any"):
        channel.publish(b"x" + key.encode(), key, exchange)
    assert [drain(channel, queue) for queue in queues] == [["x", "xany"], ["x", "xany"], [], []]


@pytest.mark.spec("amqp-0-9-1", "3.1.3.3")
@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("a.b.c", ["a.b.c"], ["a.b", "a.b.c.d", "a.b.d", ""]),
        ("a.*.c", ["a.b.c", "a..c", "a.*.c"], ["a.c", "a.b.b.c", "b.b.c"]),
        ("*", ["a"], ["", "a.b"]),
        ("*.*", ["a.b", "."], ["a", "a.b.c"]),
        ("#", ["", "a", "a.b.c", ".."], []),
        ("a.#", ["a", "a.b", "a.b.c"], ["b.a", "ab"]),
        ("#.c", ["c", "b.c", "a.b.c"], ["c.d", "ac"]),
        ("a.#.c", ["a.c", "a.b.c", "a.b.b.c"], ["a", "c", "a.c.d"]),
        ("#.b.#", ["b", "a.b", "b.c", "a.a.b.c.c", "b.b"], ["a", ""]),
        ("a.#.#.c", ["a.c", "a.x.y.c"], ["a"]),
        ("*.#", ["a", "a.b", "a.b.c"], []),
        ("a.", ["a."], ["a", "a.b"]),
    ],
)
def test_topic(
    channel: PeerChannel,
    exchange: str,
    queues: list[str],
    pattern: str,
    matching: list[str],
    others: list[str],
) -> None:
    declare_exchange(channel, exchange, "topic")
    bind_queue(channel, queues[0], exchange, pattern)
    bind_queue(channel, queues[1], exchange, "unrelated.key")
    for key in others + matching:
        channel.publish(b"<" + key.encode() + b">", key, exchange)
    assert drain(channel, queues[0]) == [f"<{key}>" for key in matching]
    assert drain(channel, queues[1]) == []


@pytest.mark.spec("amqp-0-9-1", "3.1.3.3")
def test_topic_bindings_that_overlap_deliver_once(
    channel: PeerChannel, exchange: str, queues: list[str]
) -> None:
    declare_exchange(channel, exchange, "topic")
    for pattern in ("#", "a.*", "*.b", "a.b", "a.#"):
        bind_queue(channel, queues[0], exchange, pattern)
    channel.publish(b"once", "a.b", exchange)
    assert drain(channel, queues[0]) == ["once"]
    for pattern in ("#", "a.*", "*.b", "a.b"):
        channel.call(Queue.Unbind(queue=queues[0], exchange=exchange, routing_key=pattern), Queue.UnbindOk)
        channel.publish(pattern.encode(), "a.b", exchange)
    assert drain(channel, queues[0]) == ["#", "a.*", "*.b", "a.b"]
    channel.call(Queue.Unbind(queue=queues[0], exchange=exchange, routing_key="a.#"), Queue.UnbindOk)
    channel.publish(b"nowhere", "a.b", exchange)
    assert drain(channel, queues[0]) == []


@pytest.mark.spec("amqp-0-9-1", "3.1.3.4")
def test_headers(channel: PeerChannel, exchange: str, queues: list[str]) -> None:
    declare_exchange(channel, exchange, "headers")
    bind_queue(channel, queues[0], exchange, arguments={"x-match": "all", "colour": "red", "size": 5})
    bind_queue(channel, queues[1], exchange, arguments={"x-match": "any", "colour": "red", "size": 5})
    bind_queue(channel, queues[2], exchange, arguments={"x-match": "all", "colour": None})
    published: list[tuple[str, FieldTable]] = [
        ("both", {"colour": "red", "size": 5, "other": 1}),
        ("colour", {"colour": "red"}),
        ("size", {"size": 5}),
        ("wrong", {"colour": "blue", "size": 6}),
        ("nothing", {}),
    ]
    for body, headers in published:
        channel.publish(body.encode(), "", exchange, Basic.Properties(headers=headers))
    assert [drain(channel, queue) for queue in queues] == [
        ["both"],
        ["both", "colour", "size"],
        ["both", "colour", "wrong"],
        [],
    ]


@pytest.mark.spec("amqp-0-9-1", "3.1.3")
def test_the_default_exchange_knows_every_queue_by_name(channel: PeerChannel, queues: list[str]) -> None:
    channel.publish(b"here", queues[0])
    assert [drain(channel, queue) for queue in queues] == [["here"], [], [], []]


@pytest.mark.spec("rabbitmq-extensions", "exchange_exchange_bindings")
def test_exchanges_bound_to_exchanges(channel: PeerChannel, name: str, queues: list[str]) -> None:
    front, middle, back = f"{name}.front", f"{name}.middle", f"{name}.back"
    declare_exchange(channel, front, "topic")
    declare_exchange(channel, middle, "direct")
    declare_exchange(channel, back, "fanout")
    bind_exchange(channel, front, middle, "a.*")
    bind_exchange(channel, front, back, "a.#")
    bind_exchange(channel, middle, back, "a.b")
    bind_exchange(channel, back, front, "cycle")
    bind_queue(channel, queues[0], middle, "a.b")
    bind_queue(channel, queues[1], back)
    bind_queue(channel, queues[2], front, "other")
    for key in ("a.b", "a.b.c", "other"):
        channel.publish(key.encode(), key, front)
    assert [drain(channel, queue) for queue in queues] == [["a.b"], ["a.b", "a.b.c"], ["other"], []]
    command = Exchange.Unbind(destination=back, source=front, routing_key="a.#")
    channel.call(command, Exchange.UnbindOk)
    channel.call(command, Exchange.UnbindOk)  # not bound any more: not an error
    channel.publish(b"a.b.c", "a.b.c", front)
    assert drain(channel, queues[1]) == []
    for exchange in (front, middle, back):
        delete_exchange(channel, exchange)


@pytest.mark.spec("rabbitmq-extensions", "alternate-exchange")
def test_the_alternate_exchange_gets_unroutable_messages(
    channel: PeerChannel, name: str, queues: list[str]
) -> None:
    main, spare = f"{name}.main", f"{name}.spare"
    declare_exchange(channel, spare, "fanout")
    declare_exchange(channel, main, "direct", arguments={"alternate-exchange": spare})
    bind_queue(channel, queues[0], main, "known")
    bind_queue(channel, queues[1], spare)
    channel.publish(b"known", "known", main, mandatory=True)
    channel.publish(b"unknown", "unknown", main, mandatory=True)
    channel.expect_silence()
    assert [drain(channel, queue) for queue in queues] == [["known"], ["unknown"], [], []]
    channel.call(Queue.Unbind(queue=queues[1], exchange=spare), Queue.UnbindOk)
    channel.publish(b"nowhere", "unknown", main, mandatory=True)
    assert channel.returned().body == b"nowhere"
    delete_exchange(channel, main)
    delete_exchange(channel, spare)


@pytest.mark.spec("amqp-0-9-1", "3.1.5")
def test_routes_follow_changes_at_once(connect: Connector, channel: PeerChannel, exchange: str) -> None:
    """A cached route must not outlive a change made on another connection."""
    declare_exchange(channel, exchange, "topic")
    publisher = connect().channel()
    publisher.confirm_select()
    for turn in range(10):
        queue = channel.declare(exclusive=True)
        publisher.publish(b"unbound", "a.b", exchange, mandatory=True)
        assert publisher.returned().body == b"unbound"
        publisher.expect_confirms(2 * turn + 1, first=2 * turn + 1)
        bind_queue(channel, queue, exchange, "a.*")
        publisher.publish(b"bound", "a.b", exchange, mandatory=True)
        publisher.expect_confirms(2 * turn + 2, first=2 * turn + 2)
        assert drain(channel, queue) == ["bound"]
        channel.call(Queue.Delete(queue=queue), Queue.DeleteOk)


@pytest.mark.spec("rabbitmq-extensions", "alternate-exchange")
def test_a_chain_of_alternate_exchanges_is_followed_to_its_end(
    channel: PeerChannel, name: str, queues: list[str]
) -> None:
    """A mandatory message is returned only if the last exchange, an internal one, has no match either."""
    chain = [f"{name}.{number}" for number in range(3)]
    for number, exchange in enumerate(chain):
        arguments: FieldTable = {"alternate-exchange": chain[(number + 1) % 3]}  # the last leads to the first
        declare_exchange(channel, exchange, "direct", internal=number == 2, arguments=arguments)
        bind_queue(channel, queues[number], exchange, f"{number}")
    channel.confirm_select()
    for number in range(3):
        channel.publish(b"%d" % number, f"{number}", chain[0], mandatory=True)
    channel.expect_confirms(3)
    channel.publish(b"3", "3", chain[0], mandatory=True)
    assert channel.returned().body == b"3"
    channel.expect_confirms(4, 4)
    assert [drain(channel, queue) for queue in queues] == [["0"], ["1"], ["2"], []]
    delete_exchange(channel, chain[1])  # a gap in the chain
    channel.publish(b"2", "2", chain[0], mandatory=True)
    assert channel.returned().body == b"2"
    for exchange in chain:
        delete_exchange(channel, exchange)


@pytest.mark.spec("rabbitmq-extensions", "exchange_exchange_bindings")
def test_auto_delete_exchanges_go_one_after_the_other(channel: PeerChannel, name: str) -> None:
    chain = [f"{name}.{number}" for number in range(3)]
    for exchange in chain:
        declare_exchange(channel, exchange, "fanout", auto_delete=True)
    queue = channel.declare(exclusive=True)
    bind_exchange(channel, chain[0], chain[1])
    bind_exchange(channel, chain[1], chain[2])
    bind_queue(channel, queue, chain[2])
    channel.publish(b"through", "", chain[0])
    assert drain(channel, queue) == ["through"]
    channel.call(Queue.Delete(queue=queue), Queue.DeleteOk)
    for number, exchange in enumerate(chain):
        channel = channel.peer.channel(10 + number)
        channel.refused(Exchange.Declare(exchange=exchange, passive=True), 404)
