"""Octets that are not UTF-8: in headers of messages over HTTP, and in credentials."""

import struct

import pytest
from pamqp.commands import Connection
from pamqp.common import FieldTable
from pamqp.frame import marshal

from tests.support.admin.api import Api
from tests.support.amqp091.peer import Dialler
from tests.support.daemon.daemon import Daemon, DaemonStarter

pytestmark = pytest.mark.amqpd_only("looks at a daemon of its own")

NAME = b"\xff\xfe"
SHOWN = "\\xff\\xfe"


def short(data: bytes) -> bytes:
    return bytes([len(data)]) + data


def long(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def frame(kind: int, payload: bytes) -> bytes:
    return bytes([kind]) + struct.pack(">HI", 1, len(payload)) + payload + b"\xce"


def frame_of(command: Connection.StartOk) -> bytes:
    """A method of the connection as a client sends it."""
    return marshal(command, 0)


def message(routing_key: bytes, more: bytes = b"") -> bytes:
    """Return the basic.publish of a message with an odd header name and an odd header value."""
    nested = short(b"in") + b"F" + long(short(NAME) + b"t\1")
    table = short(NAME) + b"S" + long(b"v") + short(b"v") + b"S" + long(NAME) + nested + more
    header = struct.pack(">HHQH", 60, 0, 1, 0x2000) + long(table)
    method = b"\x00\x3c\x00\x28\0\0" + short(b"") + short(routing_key) + b"\0"
    return frame(1, method) + frame(2, header) + frame(3, b"x")


def test_messages_with_odd_headers_are_shown_and_worked_on(daemon: Daemon, dial: Dialler) -> None:
    channel = dial(daemon.address).open().channel()
    for name in ("odd", "to"):
        channel.declare(name, durable=True)
    channel.confirm_select()
    channel.peer.send(message(b"odd"))
    channel.expect_confirms(1, 1)
    api = Api(daemon.admin)
    queue = ("queues", "/", "odd")
    look: dict[str, object] = {"count": 5, "ackmode": "ack_requeue_true", "encoding": "auto"}
    looked = api.post(*queue, "get", status=200, body=look)
    assert looked[0]["properties"]["headers"] == {SHOWN: "v", "v": SHOWN, "in": {SHOWN: True}}
    assert api.get(*queue, "messages")["messages"][0]["properties"] == looked[0]["properties"]
    done = {"done": 1, "more": False}
    for what, body in (
        ("copy", {"all": True, "to": {"queue": "to"}}),
        ("edit", {"all": True, "properties": {"headers": {"a": 1}}}),
        ("move", {"all": True, "to": {"queue": "to"}}),
    ):
        assert api.post(*queue, "messages", what, status=200, body=body) == done, what
    nowhere = {"all": True, "to": {"exchange": "amq.headers", "routing_key": "k"}}
    api.refused(400, "POST", "queues", "/", "to", "messages", "copy", body=nowhere)
    take = look | {"ackmode": "ack_requeue_false"}
    taken = api.post("queues", "/", "to", "get", status=200, body=take)
    assert len(taken) == 2
    for name in ("odd", "to"):
        api.delete("queues", "/", name)
    api.close()
    channel.peer.drop()


@pytest.mark.parametrize(
    "arguments",
    [
        {"x-dedup-producers": 10},
        {"x-queue-kind": "last-value", "x-last-value-key": "k"},
        {"x-index": "k"},
        {"x-group-kind": "shared"},
    ],
)
def test_queues_that_read_headers_accept_malformed_headers(
    daemon: Daemon, dial: Dialler, arguments: FieldTable
) -> None:
    channel = dial(daemon.address).open().channel()
    channel.declare("looking", arguments=arguments)
    channel.confirm_select()
    delayed = short(b"x-delay") + b"I" + struct.pack(">i", 600_000)
    for tag, more in enumerate((b"", delayed), 1):
        channel.peer.send(message(b"looking", more))
        channel.expect_confirms(tag, tag)
    api = Api(daemon.admin)
    assert api.get("queues", "/", "looking", "delayed")["item_count"] == 1
    api.delete("queues", "/", "looking")
    api.close()
    channel.peer.drop()


@pytest.mark.parametrize(
    ("mechanism", "response"),
    [
        ("PLAIN", b"\0guest\0p\xe4sswort"),
        ("PLAIN", b"\0g\xfcst\0guest"),
        ("PLAIN", b"\0\xff\0\xff"),
        ("AMQPLAIN", b"\x05LOGINS\0\0\0\x02g\xfc\x08PASSWORDS\0\0\0\x05guest"),
        ("AMQPLAIN", b"\x05LOGINS\0\0\0\x05guest\x08PASSWORDS\0\0\0\x02g\xfc"),
    ],
)
def test_credentials_that_are_not_utf_8_are_refused(
    start_daemon: DaemonStarter, dial: Dialler, mechanism: str, response: bytes
) -> None:
    daemon = start_daemon()
    peer = dial(daemon.address)
    peer.start()
    properties: FieldTable = {"capabilities": {"authentication_failure_close": True}}
    marshalled = frame_of(Connection.StartOk(properties, mechanism, "x" * len(response)))
    peer.send(marshalled.replace(b"x" * len(response), response))
    assert peer.expect_close(403).startswith("ACCESS_REFUSED - Login was refused")
    daemon.stop()  # fails if there is a traceback in the log


def test_a_name_for_scram_that_is_not_utf_8_is_refused_like_other_names(
    start_daemon: DaemonStarter, dial: Dialler
) -> None:
    daemon = start_daemon()
    peer = dial(daemon.address)
    peer.start()
    properties: FieldTable = {"capabilities": {"authentication_failure_close": True}}
    first = b"n,,n=g\xfcst,r=abcdefgh"
    marshalled = frame_of(Connection.StartOk(properties, "SCRAM-SHA-256", "x" * len(first)))
    peer.send(marshalled.replace(b"x" * len(first), first))
    challenge = peer.expect(Connection.Secure).challenge
    assert challenge is not None
    nonce = challenge.split(",")[0]
    peer.write(Connection.SecureOk(f"c=biws,{nonce},p={'A' * 43}="))
    assert peer.expect_close(403).startswith("ACCESS_REFUSED - Login was refused")
    daemon.stop()  # fails if there is a traceback in the log


def test_a_name_of_a_property_that_is_not_utf_8_ends_in_a_clear_error(
    start_daemon: DaemonStarter, dial: Dialler
) -> None:
    daemon = start_daemon()
    peer = dial(daemon.address)
    peer.start()
    payload = b"\x00\x0a\x00\x0b" + long(short(NAME) + b"V") + short(b"PLAIN") + long(b"") + short(b"en")
    peer.send(b"\1\0\0" + struct.pack(">I", len(payload)) + payload + b"\xce")
    assert peer.expect(Connection.Close).reply_code in (501, 502)
    daemon.stop()
