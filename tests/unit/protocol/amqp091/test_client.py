"""The client of AMQP 0-9-1 against the broker's own engine, in memory, and against odd peers."""

import struct
from typing import cast

import pytest
from pamqp import base, commands
from pamqp.frame import marshal

from broker.adapters.access import Origin
from broker.adapters.amqp091.connection import Connection091
from protocol.amqp091 import client as c
from protocol.amqp091.client import Client, ClientHandler, Login
from protocol.amqp091.content import body, body_of_frames
from protocol.amqp091.incoming import WHOLE_BYTES_MAX
from protocol.amqp091.methods import connection_start, connection_tune, method_frame
from protocol.sasl import amqplain, plain
from tests.support.adapters.connection_without_socket import BrokerBench, RecordingEdge
from tests.support.amqp091.frames import BODY, HEADER, frame_bytes

BODY_MAX = 64 * WHOLE_BYTES_MAX
TO_Q = b"\x00\x01q"
NO_TABLE = b"\0\0\0\0"


def content(payload: bytes, channel: int = 1, step: int = 131064) -> bytes:
    """A persistent message in frames of a channel."""
    head = frame_bytes(HEADER, channel, struct.pack(">HHQHB", 60, 0, len(payload), 0x1000, 2))
    steps = range(0, len(payload), step)
    return head + b"".join(frame_bytes(BODY, channel, payload[at : at + step]) for at in steps)


class Recorder(ClientHandler):
    """The owner of a client that notes each call."""

    def __init__(self) -> None:
        self.salts: list[tuple[bytes, int]] = []
        self.ready = 0
        self.deliveries: list[tuple[int, bool, bytes, bytes]] = []
        self.pieces: list[bytes] = []
        self.events: list[int] = []  # the tags of deliveries, and the negative sizes of pieces
        self.confirms: list[tuple[int, bool, bool]] = []
        self.returns: list[tuple[int, str]] = []
        self.blocked: list[str] = []
        self.flows: list[bool] = []
        self.cancelled = 0
        self.channels_closed: list[tuple[int, str]] = []
        self.closed: list[tuple[int, str]] = []

    def on_salt(self, salt: bytes, iterations: int) -> None:
        self.salts.append((salt, iterations))

    def on_ready(self) -> None:
        self.ready += 1

    def on_delivery(
        self, tag: int, redelivered: bool, address: bytes, content: bytes, size: int, traits: int
    ) -> None:
        self.deliveries.append((tag, redelivered, address, content))
        self.events.append(tag)

    def on_piece(self, frames: bytes, size: int) -> None:
        self.pieces.append(frames)
        self.events.append(-size)

    def on_confirm(self, tag: int, multiple: bool, accepted: bool) -> None:
        self.confirms.append((tag, multiple, accepted))

    def on_return(self, code: int, text: str) -> None:
        self.returns.append((code, text))

    def on_blocked(self, reason: str) -> None:
        self.blocked.append(reason)

    def on_flow(self, active: bool) -> None:
        self.flows.append(active)

    def on_cancelled(self) -> None:
        self.cancelled += 1

    def on_channel_closed(self, code: int, text: str) -> None:
        self.channels_closed.append((code, text))

    def on_closed(self, code: int, text: str) -> None:
        self.closed.append((code, text))


class Session:
    """A client and the broker's end of its connection; `run` carries bytes until both are silent."""

    def __init__(self, bench: BrokerBench | None = None, login: Login | None = None) -> None:
        self.bench = bench or BrokerBench()
        self.calls = Recorder()
        self.client = Client(self.calls, login or Login("guest", "guest", "/"), {"product": "test"}, BODY_MAX)
        self.edge = RecordingEdge()
        self.connection = Connection091(
            self.bench.server, self.bench.scheduler, self.edge, Origin("127.0.0.1", 1, True)
        )
        self.edge.connection = self.connection
        self.connection.start()
        self.client.start()
        assert self.client.take_output() == c.PROTOCOL_HEADER, "the transport takes it"
        self.replies: list[base.Frame] = []
        self.syncs = True  # batches are on disk at once

    def run(self) -> None:
        moved = True
        while moved:
            if self.syncs:
                self.bench.store.complete()
            output = self.client.take_output()
            if output:
                self.connection.receive(output)
            self.bench.turns.run()
            written = bytes(self.edge.written)
            self.edge.written.clear()
            if written:
                self.client.receive(written)
            moved = bool(output or written)

    def open(self) -> "Session":
        self.run()
        assert self.calls.ready == 1, self.calls.closed
        return self

    def ask(self, request: base.Frame, reply: int) -> None:
        self.client.ask(request, reply, self.replies.append)
        self.run()

    def declare(self, name: str, flags: int = c.DURABLE) -> None:
        self.client.declare(name, flags, NO_TABLE, self.replies.append)
        self.run()

    def consume(self, name: str, no_ack: bool = False) -> None:
        self.client.consume(name, "tag", no_ack, NO_TABLE, self.replies.append)
        self.run()


@pytest.fixture
def session() -> Session:
    return Session().open()


def test_a_handshake_ends_with_an_open_channel(session: Session) -> None:
    assert session.client.state == c.READY
    assert session.client.server_properties["product"] == "amqpd"
    assert session.client.heartbeat == 60
    assert session.client.frame_max == 131072
    assert session.connection.client_properties["product"] == "test"
    assert session.connection.client_capabilities["connection.blocked"] is True


def test_the_smaller_limits_count() -> None:
    session = Session(login=Login("guest", "guest", "/", heartbeat=7, frame_max=8192, channel_max=3)).open()
    assert (session.client.heartbeat, session.client.frame_max) == (7, 8192)
    assert (session.connection.heartbeat, session.connection.frame_max) == (7, 8192)
    assert session.connection.channel_max == 3


def test_a_heartbeat_of_0_switches_heartbeats_off() -> None:
    session = Session(login=Login("guest", "guest", "/", heartbeat=0)).open()
    assert (session.client.heartbeat, session.client.beat_ms, session.connection.heartbeat) == (0, 0, 0)


def test_a_heartbeat_of_0_of_the_peer_leaves_the_choice_to_the_client() -> None:
    client = Client(Recorder(), Login("guest", "guest", "/", heartbeat=9), {}, 1000)
    client.start()
    client.receive(connection_start({}, "PLAIN"))
    client.receive(connection_tune(0, 0, 0))
    assert client.heartbeat == 9


def test_the_first_common_mechanism_is_used() -> None:
    login = Login("me", "secret", "/", ("EXTERNAL", "AMQPLAIN", "PLAIN"))
    assert login.choose("plain amqplain") == "AMQPLAIN"
    assert amqplain(login.respond("AMQPLAIN")) == ("me", "secret")
    assert plain(login.respond("PLAIN")) == ("me", "secret")
    assert login.respond("EXTERNAL") == b""


def test_a_published_message_is_stored_as_it_is_and_confirmed(session: Session) -> None:
    session.declare("q")
    session.ask(commands.Confirm.Select(), 85 << 16 | 11)
    raw = content(b"first")
    session.syncs = False
    session.client.publish(TO_Q, raw, mandatory=True)
    session.client.publish(TO_Q, content(b"second", channel=7), mandatory=True)
    session.run()
    assert session.calls.confirms == [], "the batch is not on disk"
    session.bench.store.complete()
    session.run()
    assert session.calls.confirms == [(2, True, True)]
    assert session.client.published == 2
    queue = session.bench.broker.vhosts["/"].topology.queues["q"]
    stored = [entry.message.content for entry in queue.entries]
    assert stored == [raw, content(b"second")]


def test_deliveries_come_with_the_stored_bytes(session: Session) -> None:
    session.declare("q")
    session.ask(commands.Basic.Qos(0, 2, False), 60 << 16 | 11)
    session.consume("q")
    for text in (b"a", b"b" * 9000, b"c"):
        session.client.publish(TO_Q, content(text, step=4000), mandatory=False)
        session.run()
    assert [tag for tag, *_ in session.calls.deliveries] == [1, 2], "the prefetch is 2"
    session.client.ack(2, multiple=True)
    session.run()
    assert [(tag, again, address, body(raw)) for tag, again, address, raw in session.calls.deliveries] == [
        (1, False, TO_Q, b"a"),
        (2, False, TO_Q, b"b" * 9000),
        (3, False, TO_Q, b"c"),
    ]
    session.client.requeue(3, multiple=False)
    session.run()
    assert session.calls.deliveries[-1][:2] == (4, True)
    session.client.ack(4, multiple=False)
    session.run()
    assert session.bench.broker.vhosts["/"].topology.queues["q"].depth == 0


def test_answers_may_come_in_another_order_than_their_requests(session: Session) -> None:
    """RabbitMQ answers basic.cancel of a quorum queue later than the queue.purge behind it."""
    cancelled: list[base.Frame] = []
    purged: list[base.Frame] = []
    session.client.ask(commands.Basic.Cancel("tag", False), 60 << 16 | 31, cancelled.append)
    session.client.ask(commands.Queue.Purge(0, "q", False), 50 << 16 | 31, purged.append)
    session.client.take_output()
    session.client.receive(marshal(commands.Queue.PurgeOk(7), 1))
    assert ([frame.name for frame in purged], cancelled) == (["Queue.PurgeOk"], [])
    session.client.receive(marshal(commands.Basic.CancelOk("tag"), 1))
    assert ([frame.name for frame in cancelled], session.calls.closed) == (["Basic.CancelOk"], [])
    session.client.receive(marshal(commands.Queue.PurgeOk(7), 1))
    assert session.calls.closed == [(505, "UNEXPECTED_FRAME - Queue.PurgeOk on a connection that is ready")]


def test_a_large_body_goes_both_ways_in_pieces(session: Session) -> None:
    session.declare("q")
    session.consume("q", no_ack=True)
    payload = bytes(range(256)) * (3 * WHOLE_BYTES_MAX // 256) + b"end"
    whole = content(payload, channel=9)
    head_bytes = len(content(b""))
    session.client.publish(TO_Q, whole[:head_bytes], mandatory=False)
    session.client.add_piece(whole[head_bytes:])
    session.run()
    assert b"".join(body_of_frames(frames) for frames in session.calls.pieces) == payload
    [(_, _, _, head)] = session.calls.deliveries
    assert len(head) == head_bytes
    assert session.calls.events[0] == 1, "the header comes first"
    assert -sum(session.calls.events[1:]) == len(payload)
    assert len(session.calls.events) > 3


def test_bodies_are_split_for_small_frames() -> None:
    session = Session(login=Login("guest", "guest", "/", frame_max=4096)).open()
    session.declare("q")
    session.client.publish(TO_Q, content(b"x" * 100_000), mandatory=False)
    session.run()
    assert session.calls.closed == []
    assert session.bench.broker.vhosts["/"].topology.queues["q"].ready_bytes == 100_000


def test_a_header_that_does_not_fit_is_refused_by_the_client() -> None:
    session = Session(login=Login("guest", "guest", "/", frame_max=4096)).open()
    header = struct.pack(">HHQHI", 60, 0, 0, 0x2000, 5000) + bytes(5000)
    with pytest.raises(ValueError, match="header has 5026 bytes, the negotiated frame_max is 4096"):
        session.client.publish(TO_Q, frame_bytes(HEADER, 1, header), mandatory=False)
    assert session.client.published == 0


def test_a_mandatory_message_without_a_queue_is_returned_and_then_confirmed(session: Session) -> None:
    session.ask(commands.Confirm.Select(), 85 << 16 | 11)
    session.client.publish(b"\x00\x07missing", content(b"lost"), mandatory=True)
    session.run()
    assert session.calls.returns == [(312, "NO_ROUTE")]
    assert session.calls.confirms == [(1, False, True)]


def test_a_channel_that_was_closed_is_opened_again(session: Session) -> None:
    session.declare("missing", flags=c.PASSIVE)
    assert session.calls.channels_closed[0][0] == 404
    assert session.client.state == c.CHANNEL_CLOSED
    session.client.open_channel()
    session.declare("missing")
    assert session.calls.ready == 2
    assert [frame.name for frame in session.replies] == ["Queue.DeclareOk"]


def test_a_deleted_queue_cancels_the_consumer(session: Session) -> None:
    session.declare("q")
    session.consume("q")
    session.ask(commands.Queue.Delete(0, "q"), 50 << 16 | 41)
    assert session.calls.cancelled == 1


def test_a_shortage_blocks_and_unblocks(session: Session) -> None:
    session.declare("q")
    session.bench.server.shortage.set_shortages(True, False)
    session.client.publish(TO_Q, content(b"x"), mandatory=False)
    session.run()
    session.bench.server.shortage.set_shortages(False, False)
    session.run()
    assert session.calls.blocked == ["low on memory", ""]


def test_the_broker_closes_the_connection(session: Session) -> None:
    session.connection.force_close("maintenance")
    session.run()
    assert session.calls.closed == [(320, "CONNECTION_FORCED - maintenance")]
    assert session.client.state == c.CLOSED


def test_the_client_closes_in_the_middle_of_deliveries(session: Session) -> None:
    session.declare("q")
    for _ in range(5):
        session.client.publish(TO_Q, content(b"x" * 50_000, step=4000), mandatory=False)
    session.run()
    session.client.consume("q", "tag", False, NO_TABLE, session.replies.append)
    session.connection.receive(session.client.take_output())
    session.bench.turns.run()
    assert len(session.edge.written) > 250_000, "the deliveries are on their way"
    session.client.close()
    session.run()
    assert session.calls.deliveries == []
    assert session.calls.closed == [(0, "")]
    assert session.bench.broker.vhosts["/"].topology.queues["q"].ready == 5


def test_a_refused_log_in_has_the_peers_reason() -> None:
    session = Session(login=Login("guest", "wrong", "/"))
    session.run()
    [(code, text)] = session.calls.closed
    assert code == 403
    assert "Login was refused" in text


def test_an_absent_mechanism_ends_the_connection() -> None:
    session = Session(login=Login("guest", "guest", "/", ("EXTERNAL",)))
    session.run()
    [(code, text)] = session.calls.closed
    assert code == 503
    assert "allowed are: EXTERNAL" in text


def test_a_heartbeat_follows_silence_and_a_silent_peer_is_dead(session: Session) -> None:
    assert session.client.beat()
    assert session.client.take_output() == b"", "something was sent in this interval"
    assert session.client.beat()
    assert session.client.take_output() == b"\x08\x00\x00\x00\x00\x00\x00\xce"
    assert session.client.beat()
    assert session.client.beat()
    assert not session.client.beat()


def peer_says(*frames: bytes) -> Recorder:
    """The calls of a client that gets these frames after the handshake."""
    calls = Recorder()
    client = Client(calls, Login("guest", "guest", "/"), {}, 1000)
    client.start()
    client.receive(connection_start({}, "PLAIN"))
    client.receive(connection_tune(0, 0, 0))
    client.receive(method_frame(0, 10 << 16 | 41, b"\0"))
    client.receive(method_frame(1, 20 << 16 | 11, NO_TABLE))
    assert calls.ready == 1
    assert (client.frame_max, client.heartbeat) == (131072, 0)
    client.take_output()
    for each in frames:
        client.receive(each)
    return calls


DELIVER = struct.pack(">BQB", 0, 1, 0) + TO_Q


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        ([method_frame(1, 60 << 16 | 60, DELIVER[:-1]), content(b"x")], 502),
        ([method_frame(1, 60 << 16 | 60, DELIVER[:-1]) + content(b"x")], 502),
        ([method_frame(1, 60 << 16 | 60, b"\xff") + content(b"x")], 502),
        ([method_frame(1, 60 << 16 | 60, DELIVER) + content(bytes(1001))], 311),
        ([method_frame(1, 60 << 16 | 60, DELIVER), method_frame(1, 60 << 16 | 60, DELIVER)], 505),
        ([method_frame(1, 60 << 16 | 11)], 505),
        ([method_frame(1, 60 << 16 | 40, b"\0\0\0\0\0")], 505),
        ([method_frame(2, 60 << 16 | 11)], 504),
        ([content(b"x")], 505),
        ([connection_tune(0, 0, 0)], 505),
        ([b"HTTP/1.1 400 Bad Request\r\n"], 501),
    ],
    ids=lambda value: "" if isinstance(value, list) else str(value),
)
def test_a_peer_that_breaks_the_protocol_ends_its_connection_only(frames: list[bytes], code: int) -> None:
    calls = peer_says(*frames)
    assert [closed[0] for closed in calls.closed] == [code]
    assert calls.deliveries == []


def test_a_stopped_flow_blocks_until_it_is_started() -> None:
    calls = peer_says(method_frame(1, 20 << 16 | 20, b"\0"), method_frame(1, 20 << 16 | 20, b"\1"))
    assert (calls.flows, calls.blocked) == ([False, True], [])
    assert cast("list[object]", calls.closed) == []


SECURE = 10 << 16 | 20
SCRAM_LOGIN = Login("guest", "guest", "/", nonce="abc")


def scram_client(*challenges: bytes) -> tuple[Recorder, Client]:
    """A client with SCRAM-SHA-256 that gets challenges, and salts its password after the first one."""
    calls = Recorder()
    client = Client(calls, SCRAM_LOGIN, {}, 1000)
    client.start()
    client.receive(connection_start({}, "PLAIN SCRAM-SHA-256"))
    for number, challenge in enumerate(challenges):
        client.receive(method_frame(0, SECURE, len(challenge).to_bytes(4, "big") + challenge))
        if number == 0:
            client.continue_login(bytes(32))
    return calls, client


def test_a_client_with_a_nonce_prefers_scram() -> None:
    calls, client = scram_client(b"r=abcdef,s=AAAA,i=4096")
    output = client.take_output()
    assert b"\x0dSCRAM-SHA-256\0\0\0\x10n,,n=guest,r=abc" in output
    assert b"c=biws,r=abcdef,p=" in output
    assert b"guest\0guest" not in output
    assert calls.salts == [(bytes(3), 4096)]
    assert Login("guest", "guest", "/").choose("SCRAM-SHA-256 PLAIN") == "PLAIN"


@pytest.mark.parametrize(
    ("challenges", "reason"),
    [
        ([b"r=other,s=AAAA,i=4096"], "the nonce of the server is malformed"),
        ([b"r=abcdef,s=AAAA,i=4096", b"v=AAAA"], "the peer does not know the password of the log-in"),
    ],
)
def test_a_peer_without_the_password_gets_nothing_else(challenges: list[bytes], reason: str) -> None:
    calls, client = scram_client(*challenges)
    [(_, text)] = calls.closed
    assert reason in text
    client.continue_login(bytes(32))


def test_a_peer_that_skips_its_proof_is_refused() -> None:
    calls, client = scram_client(b"r=abcdef,s=AAAA,i=4096")
    client.receive(connection_tune(0, 0, 0))
    assert [code for code, _ in calls.closed] == [505]
