"""Close and return texts of AMQP 0-9-1 that are RabbitMQ's word for word: clients and people search for them.

`reply_texts.json` lists them. Each case provokes one over a socket.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import pytest
from pamqp import base
from pamqp.commands import Basic, Channel, Confirm, Connection, Exchange, Queue, Tx
from pamqp.common import FieldTable

from tests.support.admin.api import Api
from tests.support.amqp091.frames import METHOD, decode_method, header_bytes
from tests.support.amqp091.peer import Connector, Dialler, Peer, PeerChannel
from tests.support.daemon.daemon import Address, DaemonStarter
from tests.support.reply_texts import Answer, check, listed, unused_name

GOLDEN: Final = listed("amqp-0-9-1")
SMALL: Final = 1000  # bytes of the largest message, where that is what a case is about
DIRECT_REPLY: Final = "amq.rabbitmq.reply-to"

Step = base.Frame | bytes
Steps = Callable[[PeerChannel, str], Sequence[Step]]


def publish(exchange: str = "", key: str = "k", **properties: object) -> Callable[[PeerChannel], bytes]:
    """Return a function that encodes a message for a channel."""
    given = Basic.Properties(**properties)  # type: ignore[arg-type]
    return lambda channel: channel.encode_publish(b"", key, exchange, given)


def queue(name: str, **options: object) -> Queue.Declare:
    """Return the declaration of a queue."""
    return Queue.Declare(queue=name, **options)  # type: ignore[arg-type]


def exchange(name: str, kind: str = "direct", **options: object) -> Exchange.Declare:
    """Return the declaration of an exchange."""
    return Exchange.Declare(exchange=name, exchange_type=kind, **options)  # type: ignore[arg-type]


def again(name: str, first: dict[str, object], second: dict[str, object]) -> Sequence[Step]:
    """Return two declarations of a queue that differ."""
    return [queue(name, arguments=first), queue(name, arguments=second)]


def hashing(name: str, key: str) -> Sequence[Step]:
    """Return a binding to a consistent hash exchange."""
    return [
        queue(name),
        exchange(name, "x-consistent-hash"),
        Queue.Bind(queue=name, exchange=name, routing_key=key),
    ]


def matching(name: str, value: str | int) -> Sequence[Step]:
    """Return a binding to an exchange of kind headers."""
    arguments: FieldTable = {"x-match": value}
    return [queue(name), Queue.Bind(queue=name, exchange="amq.headers", routing_key="", arguments=arguments)]


CHANNEL: Final[dict[str, Steps]] = {
    # objects that do not exist
    "passive declaration of no queue": lambda c, n: [Queue.Declare(queue=n, passive=True)],
    "passive declaration of no exchange": lambda c, n: [exchange(n, passive=True)],
    "consume from no queue": lambda c, n: [Basic.Consume(queue=n)],
    "get from no queue": lambda c, n: [Basic.Get(queue=n)],
    "purge of no queue": lambda c, n: [Queue.Purge(queue=n)],
    "bind of no queue": lambda c, n: [Queue.Bind(queue=n, exchange="amq.direct", routing_key="k")],
    "bind to no exchange": lambda c, n: [queue(n), Queue.Bind(queue=n, exchange=n, routing_key="k")],
    "bind of no exchange": lambda c, n: [Exchange.Bind(destination=n, source="amq.direct", routing_key="k")],
    "publish to no exchange": lambda c, n: [publish(n)(c)],
    "no queue declared before": lambda c, n: [Basic.Get(queue="")],
    # names
    "reserved name of a queue": lambda c, n: [queue(f"amq.{n}")],
    "reserved name of an exchange": lambda c, n: [exchange(f"amq.{n}")],
    "bind to the default exchange": lambda c, n: [
        queue(n),
        Queue.Bind(queue=n, exchange="", routing_key="k"),
    ],
    "delete the default exchange": lambda c, n: [Exchange.Delete(exchange="")],
    "delete a predeclared exchange": lambda c, n: [Exchange.Delete(exchange="amq.direct")],
    # objects that exist with other properties
    "queue that is not durable": lambda c, n: [
        queue(n),
        queue(n, durable=True),
    ],
    "queue that is not auto-delete": lambda c, n: [queue(n), queue(n, auto_delete=True)],
    "queue without the argument": lambda c, n: again(n, {}, {"x-max-length": 100_000}),
    "queue with an argument": lambda c, n: again(n, {"x-max-length": 100_000}, {}),
    "queue with another number": lambda c, n: again(n, {"x-max-length": 10}, {"x-max-length": 11}),
    "queue with another text": lambda c, n: again(
        n, {"x-overflow": "drop-head"}, {"x-overflow": "reject-publish"}
    ),
    "exchange of another kind": lambda c, n: [exchange(n), exchange(n, "topic")],
    "exchange that is not durable": lambda c, n: [exchange(n), exchange(n, durable=True)],
    "exchange that is not auto-delete": lambda c, n: [exchange(n), exchange(n, auto_delete=True)],
    "exchange that is not internal": lambda c, n: [exchange(n), exchange(n, internal=True)],
    "exchange without an alternate": lambda c, n: [
        exchange(n),
        exchange(n, arguments={"alternate-exchange": "amq.fanout"}),
    ],
    "unknown kind of exchange": lambda c, n: [exchange(n, "x-nothing")],
    "value of a wrong type": lambda c, n: [queue(n, arguments={"x-max-length": "ten"})],
    # objects in use
    "queue that is in use": lambda c, n: [
        queue(n),
        Basic.Consume(queue=n),
        Queue.Delete(queue=n, if_unused=True),
    ],
    "queue that is not empty": lambda c, n: [
        queue(n),
        publish(key=n)(c),
        Queue.Delete(queue=n, if_empty=True),
    ],
    "exchange that is in use": lambda c, n: [
        queue(n),
        exchange(n),
        Queue.Bind(queue=n, exchange=n, routing_key="k"),
        Exchange.Delete(exchange=n, if_unused=True),
    ],
    "second exclusive consumer": lambda c, n: [
        queue(n),
        Basic.Consume(queue=n, exclusive=True),
        Basic.Consume(queue=n),
    ],
    "get beside a single active consumer": lambda c, n: [
        queue(n, arguments={"x-single-active-consumer": True}),
        Basic.Get(queue=n),
    ],
    "consume from a stream without a prefetch": lambda c, n: [
        queue(n, durable=True, arguments={"x-queue-type": "stream"}),
        Basic.Consume(queue=n),
    ],
    # delivery tags, modes of a channel
    "ack of an unknown tag": lambda c, n: [Basic.Ack(80)],
    "nack of an unknown tag": lambda c, n: [Basic.Nack(81)],
    "reject of an unknown tag": lambda c, n: [Basic.Reject(82)],
    "confirms in a transaction": lambda c, n: [Tx.Select(), Confirm.Select()],
    "a transaction with confirms": lambda c, n: [Confirm.Select(), Tx.Select()],
    "commit without a transaction": lambda c, n: [Tx.Commit()],
    "rollback without a transaction": lambda c, n: [Tx.Rollback()],
    # messages
    "publish to an internal exchange": lambda c, n: [exchange(n, internal=True), publish(n)(c)],
    "another user's message": lambda c, n: [publish(user_id=n)(c)],
    "expiration of no number": lambda c, n: [publish(expiration="soon")(c)],
    "expiration with a unit": lambda c, n: [publish(expiration="10s")(c)],
    "negative expiration": lambda c, n: [publish(expiration="-1")(c)],
    "expiration of more than ten years": lambda c, n: [publish(expiration="315360000001")(c)],
    "CC of a wrong type": lambda c, n: [publish(headers={"CC": "one"})(c)],
    "BCC of a wrong type": lambda c, n: [publish(headers={"BCC": 100_000})(c)],
    # direct reply-to
    "reply consumer that acknowledges": lambda c, n: [Basic.Consume(queue=DIRECT_REPLY)],
    "second reply consumer": lambda c, n: [Basic.Consume(queue=DIRECT_REPLY, no_ack=True)] * 2,
    "request without a reply consumer": lambda c, n: [publish(reply_to=DIRECT_REPLY)(c)],
    # kinds of exchanges
    "x-match of another word": lambda c, n: matching(n, "some"),
    "x-match of a wrong type": lambda c, n: matching(n, 100_000),
    "weight of no number": lambda c, n: hashing(n, "heavy"),
    "weight of nothing": lambda c, n: hashing(n, "0"),
    "hash of two things": lambda c, n: [
        exchange(n, "x-consistent-hash", arguments={"hash-header": "h", "hash-property": "message_id"})
    ],
    "hash of no property": lambda c, n: [
        exchange(n, "x-consistent-hash", arguments={"hash-property": "colour"})
    ],
    "key to a local random exchange": lambda c, n: [
        queue(n),
        exchange(n, "x-local-random"),
        Queue.Bind(queue=n, exchange=n, routing_key="k"),
    ],
    "exchange bound to a local random exchange": lambda c, n: [
        exchange(n, "x-local-random"),
        Exchange.Bind(destination="amq.direct", source=n, routing_key=""),
    ],
    "delayed exchange of no kind": lambda c, n: [exchange(n, "x-delayed-message")],
    "delayed exchange of its own kind": lambda c, n: [
        exchange(n, "x-delayed-message", arguments={"x-delayed-type": "x-delayed-message"})
    ],
    # connection errors
    "consumer tag in use": lambda c, n: [
        queue(n),
        Basic.Consume(queue=n, consumer_tag="t"),
        Basic.Consume(queue=n, consumer_tag="t"),
    ],
    "second channel.open": lambda c, n: [Channel.Open()],
    "content without a method": lambda c, n: [header_bytes(0, None, c.number)],
}
"""Steps on an open channel. The broker refuses the last step."""


NEWER: Final = {
    "unknown kind of exchange",
    "get beside a single active consumer",
    "key to a local random exchange",
    "exchange bound to a local random exchange",
    "delayed exchange of no kind",
    "delayed exchange of its own kind",
    "unknown mechanism",
    "frame_max that is too small",
    "frame_max that is too large",
    "channel_max that is too large",
}
"""Cases without their text in RabbitMQ 3.10, which lacks the feature or closes the socket at once."""


def marked(cases: Iterable[str]) -> list[Any]:
    """Return cases as parameters of a test that runs against RabbitMQ too."""
    newer = pytest.mark.amqpd_only("a text of RabbitMQ 4 or of a plugin")
    return [pytest.param(case, marks=[newer] if case in NEWER else []) for case in cases]


@pytest.fixture
def free(address: Address) -> Iterator[str]:
    """A name whose queue and exchange are deleted after the test."""
    name = unused_name()
    yield name
    peer = Peer(address).open()
    channel = peer.channel()
    channel.call(Queue.Delete(queue=name), Queue.DeleteOk)
    channel.call(Exchange.Delete(exchange=name), Exchange.DeleteOk)
    peer.drop()


@pytest.mark.parametrize("case", marked(CHANNEL))
def test_texts_on_an_open_channel(connect: Connector, free: str, case: str) -> None:
    peer = connect()
    channel = peer.channel()
    for step in CHANNEL[case](channel, free):
        peer.send(step) if isinstance(step, bytes) else channel.write(step)
    check(closed(peer), GOLDEN[case], free)
    peer.drop()


def closed(peer: Peer) -> Answer:
    """Return the reply code and text of the next channel.close or connection.close."""
    while True:
        frame = peer.receive()
        if frame.kind == METHOD:
            command = decode_method(frame)
            if isinstance(command, (Channel.Close, Connection.Close)):
                return {"code": command.reply_code, "text": command.reply_text}


def dialled(dial: Dialler, *commands: base.Frame) -> Peer:
    """Return a connection to which these methods were sent, each when the broker wanted it."""
    peer = dial()
    peer.start()
    for command in commands:
        if isinstance(command, Connection.TuneOk):
            peer.expect(Connection.Tune)
        peer.write(command)
    return peer


def log_in(user: str = "guest", password: str = "guest", mechanism: str = "PLAIN") -> Connection.StartOk:
    """Return connection.start-ok of a client that wants to know why a log-in is refused."""
    properties = {"capabilities": {"authentication_failure_close": True}}
    return Connection.StartOk(properties, mechanism, f"\0{user}\0{password}")  # type: ignore[arg-type]


HANDSHAKE: Final[dict[str, Callable[[str], Sequence[base.Frame]]]] = {
    "wrong password": lambda n: [log_in(password="wrong")],
    "unknown mechanism": lambda n: [log_in(mechanism="NONSENSE")],
    "frame_max that is too small": lambda n: [log_in(), Connection.TuneOk(2047, 100, 0)],
    "frame_max that is too large": lambda n: [log_in(), Connection.TuneOk(2047, 1_000_000, 0)],
    "channel_max that is too large": lambda n: [log_in(), Connection.TuneOk(5000, 131072, 0)],
    "no such virtual host": lambda n: [log_in(), Connection.TuneOk(2047, 131072, 0), Connection.Open(n)],
}
"""Methods that a client sends until the broker refuses the handshake."""


@pytest.mark.parametrize("case", marked(HANDSHAKE))
def test_texts_of_the_handshake(dial: Dialler, case: str) -> None:
    name = unused_name()
    check(closed(dialled(dial, *HANDSHAKE[case](name))), GOLDEN[case], name)


def test_the_text_on_a_channel_that_is_not_open(connect: Connector) -> None:
    peer = connect()
    peer.write(Basic.Qos(), 1)
    check(closed(peer), GOLDEN["channel that is not open"], "")


def test_the_texts_of_a_locked_queue(connect: Connector) -> None:
    name = unused_name()
    connect().channel().declare(name, exclusive=True)
    peer = connect()
    channel = peer.channel()
    channel.write(Basic.Consume(queue=name))
    check(closed(peer), GOLDEN["another connection's exclusive queue"], name)


def test_the_text_of_a_returned_message(channel: PeerChannel) -> None:
    channel.publish(b"", unused_name(), mandatory=True)
    returned = channel.returned().method
    assert isinstance(returned, Basic.Return)
    check({"code": returned.reply_code, "text": returned.reply_text}, GOLDEN["unroutable message"], "")


def test_the_texts_of_messages_without_room(start_daemon: DaemonStarter, connect: Connector) -> None:
    daemon = start_daemon("--message-size-max", str(SMALL), "--disk-free-min", "1000000GB")
    channel = connect(daemon.address).channel()
    channel.publish(bytes(SMALL + 1), "k")
    check(closed(channel.peer), GOLDEN["message that is too large"], "")
    channel = connect(daemon.address).channel()
    channel.publish(b"", "k")
    blocked = channel.peer.expect(Connection.Blocked)
    check({"text": blocked.reason}, GOLDEN["connection.blocked for space"], "")


@pytest.fixture
def ann(api: Api) -> Iterator[str]:
    """A user with a virtual host of the same name; the user may open the virtual host, and nothing in it."""
    name = unused_name()
    api.put("vhosts", name)
    api.put("users", name, password="secret", tags="")
    api.put("permissions", name, name, configure="^$", write="^$", read="^$")
    api.put("queues", name, "q", durable=True)
    yield name
    api.ask("DELETE", "vhosts", name)
    api.ask("DELETE", "users", name)


def enter(dial: Dialler, name: str) -> Peer:
    """Return a connection of this user, to which everything up to connection.open was sent."""
    return dialled(dial, log_in(name, "secret"), Connection.TuneOk(2047, 131072, 0), Connection.Open(name))


RIGHTS: Final[dict[str, Steps]] = {
    "configure a queue": lambda c, n: [queue("mine")],
    "configure an exchange": lambda c, n: [exchange("mine")],
    "read a queue": lambda c, n: [Basic.Consume(queue="q")],
    "read an exchange": lambda c, n: [
        Exchange.Bind(destination="amq.fanout", source="amq.direct", routing_key="k")
    ],
    "write to an exchange": lambda c, n: [publish("amq.direct")(c)],
    "write to the default exchange": lambda c, n: [publish("")(c)],
    "write to a topic": lambda c, n: [publish("amq.topic", "news")(c)],
}
"""Steps for which the user has no permission."""


@pytest.mark.parametrize("case", RIGHTS)
def test_texts_of_missing_permissions(api: Api, dial: Dialler, ann: str, case: str) -> None:
    if case == "read an exchange":
        api.put("permissions", ann, ann, status=204, configure="^$", write="^amq[.]fanout$", read="^$")
    if case == "write to a topic":
        api.put("permissions", ann, ann, status=204, configure="^$", write="^amq[.]topic$", read="^$")
        api.put("topic-permissions", ann, ann, exchange="amq.topic", write="^sport$", read="^$")
    peer = enter(dial, ann)
    peer.write(Channel.Open(), 1)
    channel = PeerChannel(peer, 1)
    for step in RIGHTS[case](channel, ann):
        peer.send(step) if isinstance(step, bytes) else channel.write(step)
    check(closed(peer), GOLDEN[case], ann)


def test_the_texts_of_a_virtual_host_that_a_user_may_not_open(api: Api, dial: Dialler, ann: str) -> None:
    inside = enter(dial, ann)
    inside.expect(Connection.OpenOk)
    api.delete("permissions", ann, ann)
    check(closed(enter(dial, ann)), GOLDEN["virtual host of others"], ann)
    inside.write(Connection.UpdateSecret("secret", "renewal"))
    check(closed(inside), GOLDEN["virtual host of others"], ann)


def test_the_texts_of_limits(api: Api, dial: Dialler, ann: str) -> None:
    peer = enter(dial, ann)
    peer.expect(Connection.OpenOk)
    peer.channel()
    api.put("permissions", ann, ann, status=204, configure=".*", write=".*", read=".*")
    api.put("vhost-limits", ann, "max-queues", value=1, status=204)
    api.put("user-limits", ann, "max-channels", value=1, status=204)
    PeerChannel(peer, 1).write(queue("more"))
    check(closed(peer), GOLDEN["limit of queues"], ann)
    peer.write(Channel.Open(), 2)
    check(closed(peer), GOLDEN["limit of channels"], ann)

    api.put("vhost-limits", ann, "max-connections", value=0, status=204)
    check(closed(enter(dial, ann)), GOLDEN["limit of the virtual host's connections"], ann)
    api.delete("vhost-limits", ann, "max-connections")
    api.put("user-limits", ann, "max-connections", value=0, status=204)
    check(closed(enter(dial, ann)), GOLDEN["limit of the user's connections"], ann)


def test_the_texts_for_deleted_vhosts_and_users(api: Api, dial: Dialler, ann: str) -> None:
    peer = enter(dial, ann)
    peer.expect(Connection.OpenOk)
    api.delete("vhosts", ann)
    check(closed(peer), GOLDEN["virtual host that is deleted"], ann)
    api.put("vhosts", ann)
    api.put("permissions", ann, ann, configure=".*", write=".*", read=".*")
    peer = enter(dial, ann)
    peer.expect(Connection.OpenOk)
    api.delete("users", ann)
    check(closed(peer), GOLDEN["user that is deleted"], ann)


OTHERS: Final = {
    "channel that is not open",
    "another connection's exclusive queue",
    "unroutable message",
    "connection.blocked for space",
    "message that is too large",
    "virtual host of others",
    "limit of queues",
    "limit of channels",
    "limit of the virtual host's connections",
    "limit of the user's connections",
    "virtual host that is deleted",
    "user that is deleted",
}
"""The cases that have a test of their own."""


def test_every_listed_text_has_its_case() -> None:
    assert set(GOLDEN) == OTHERS | set(CHANNEL) | set(HANDSHAKE) | set(RIGHTS)
