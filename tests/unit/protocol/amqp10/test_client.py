"""The client of AMQP 1.0 against the broker's own engine, in memory, and against odd peers."""

from collections.abc import Callable

import pytest

from broker.adapters.access import Origin
from broker.adapters.amqp10.connection import Connection10
from broker.core.queues.queue import Queue
from protocol.amqp10 import client as c
from protocol.amqp10.client import Client10, ClientHandler10, RemoteError, Terms
from protocol.amqp10.composing import decode_composite
from protocol.amqp10.composites import Accepted, DeliveryState, Modified, Received, Rejected, Source, Target
from protocol.amqp10.composites import Error as ErrorField
from protocol.amqp10.descriptors import ACCEPTED, MODIFIED, REJECTED, RELEASED
from protocol.amqp10.frames import frame
from protocol.amqp10.outgoing import disposition
from protocol.amqp10.performatives import (
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
    Transfer,
)
from protocol.amqp10.states import DeliveryState as ReceivedState
from protocol.amqp10.types import Composite, Described, Symbol, Ulong
from protocol.sasl import Credentials
from protocol.sniff import AMQP_0_9_1, AMQP_1_0, AMQP_1_0_SASL
from tests.support.adapters.connection_without_socket import BrokerBench, RecordingEdge
from tests.support.amqp10.contents import bare10
from tests.support.amqp10.peer import amqp, sasl
from tests.support.amqp10.reference_codec import described

GUEST = Credentials("guest", "guest", ("PLAIN",))
LARGE = 1_000_000


def message(payload: bytes) -> bytes:
    """A durable message with a data section."""
    data = bytes((0xB0,)) + len(payload).to_bytes(4, "big") + payload
    return b"\x00\x53\x70\xc0\x02\x01\x41" + bare10(body=described(0x75, data))


def wanted(sends: bool, **changes: object) -> Terms:
    """Terms for the queue `q`; by default for two deliveries at once."""
    fields: dict[str, object] = {
        "hostname": "vhost:/",
        "container": "test",
        "link": "link",
        "address": "/queues/q",
        "sends": sends,
        "credit": 2,
        "properties": {"product": "test"},
    }
    return Terms(GUEST, **fields | changes)  # type: ignore[arg-type]


class Recorder(ClientHandler10):
    """The owner of a client that notes each call."""

    def __init__(self) -> None:
        self.ready = 0
        self.deliveries: list[tuple[int, bytes]] = []
        self.formats: list[int] = []
        self.outcomes: list[tuple[int, int, int]] = []
        self.states: list[ReceivedState] = []
        self.sent: list[int] = []
        self.sendable: list[bool] = []
        self.closed: list[RemoteError | None] = []

    def on_ready(self) -> None:
        self.ready += 1

    def on_delivery(self, number: int, message: bytes, message_format: int) -> None:
        self.deliveries.append((number, message))
        self.formats.append(message_format)

    def on_outcome(self, first: int, last: int, outcome: ReceivedState) -> None:
        self.outcomes.append((first, last, outcome.code))
        self.states.append(outcome)

    def on_sent(self, number: int) -> None:
        self.sent.append(number)

    def on_sendable(self, sendable: bool) -> None:
        self.sendable.append(sendable)

    def on_closed(self, error: RemoteError | None) -> None:
        self.closed.append(error)


class Session:
    """A client and the broker's end of its connection; `run` carries bytes until both are silent.

    `step`: the bytes that each side gets at once, 0: all.
    """

    def __init__(self, terms: Terms, bench: BrokerBench | None = None, step: int = 0) -> None:
        self.bench = bench or BrokerBench()
        self.vhost = self.bench.broker.vhosts["/"]
        if "q" not in self.vhost.topology.queues:
            self.vhost.declarations.declare_queue("q", True, None, False, {})
        self.step = step
        self.calls = Recorder()
        self.client = Client10(self.calls, terms)
        self.edge = RecordingEdge()
        origin = Origin("127.0.0.1", 1, True)
        self.connection = Connection10(self.bench.server, self.bench.scheduler, self.edge, origin, True)
        self.connection.start()
        self.client.start()
        assert self.client.take_output() == AMQP_1_0_SASL, "the transport takes it"
        self.syncs = True  # batches are on disk at once

    def run(self) -> None:
        moved = True
        while moved:
            if self.syncs:
                self.bench.store.complete()
            output = self.client.take_output()
            self.carry(self.connection.receive, output)
            self.bench.turns.run()
            written = bytes(self.edge.written)
            self.edge.written.clear()
            self.carry(self.client.receive, written)
            moved = bool(output or written)

    def carry(self, receive: Callable[[bytes], None], data: bytes) -> None:
        for at in range(0, len(data), self.step or len(data) or 1):
            receive(data[at : at + self.step] if self.step else data)

    def open(self) -> "Session":
        self.run()
        assert self.calls.ready == 1, self.calls.closed
        return self

    @property
    def queue(self) -> Queue:
        return self.vhost.topology.queues["q"]


def failed(session: Session) -> RemoteError:
    session.run()
    error = session.calls.closed[0]
    assert error is not None
    return error


def test_a_handshake_ends_with_an_attached_link() -> None:
    session = Session(wanted(True)).open()
    assert session.client.state == c.READY
    assert session.client.peer_properties["product"] == "amqpd"
    assert session.connection.client_properties == {"product": "test"}
    assert session.connection.container == "test"
    assert session.connection.virtual_host is session.vhost


def test_a_sent_message_is_stored_and_then_accepted() -> None:
    session = Session(wanted(True)).open()
    session.syncs = False
    assert session.client.publish(message(b"first")) == 1
    assert session.client.publish(message(b"second")) == 2
    session.run()
    assert session.calls.sent[-1] == 2
    assert session.calls.outcomes == [], "the batch is not on disk"
    session.bench.store.complete()
    session.run()
    assert session.calls.outcomes == [(1, 2, ACCEPTED)]
    assert session.queue.depth == 2


def test_a_settled_message_has_no_outcome() -> None:
    session = Session(wanted(True, settled=True)).open()
    session.client.publish(message(b"x"))
    session.run()
    assert session.queue.depth == 1
    assert (session.calls.sent, session.calls.outcomes) == ([1], [])


def test_received_messages_are_settled_and_new_credit_is_granted() -> None:
    sender = Session(wanted(True)).open()
    bodies = [message(b"%d" % number) for number in range(5)]
    for each in bodies:
        sender.client.publish(each)
    sender.run()
    receiver = Session(wanted(False), sender.bench).open()
    assert [number for number, _ in receiver.calls.deliveries] == [1, 2], "the credit is 2"
    receiver.client.accept(1, 2)
    receiver.run()
    assert [number for number, _ in receiver.calls.deliveries] == [1, 2, 3, 4]
    receiver.client.release(3, 3)
    receiver.client.accept(4, 4)
    receiver.run()
    assert [number for number, _ in receiver.calls.deliveries] == [1, 2, 3, 4, 5, 6]
    contents = [body[-1:] for _, body in receiver.calls.deliveries]
    assert sorted(contents) == [b"0", b"1", b"2", b"2", b"3", b"4"]
    receiver.client.accept(5, 6)
    receiver.run()
    assert receiver.queue.depth == 0


def test_acceptances_out_of_order_are_written_in_order_of_their_calls() -> None:
    sender = Session(wanted(True)).open()
    for number in range(6):
        sender.client.publish(message(b"%d" % number))
    sender.run()
    receiver = Session(wanted(False, credit=6), sender.bench).open()
    for first, last in ((2, 2), (1, 1), (4, 5), (6, 6), (3, 3)):
        receiver.client.accept(first, last)
    receiver.run()
    assert receiver.queue.depth == 0
    assert receiver.calls.closed == []


def test_settled_deliveries_are_not_acknowledged_and_renew_credit() -> None:
    sender = Session(wanted(True)).open()
    for number in range(7):
        sender.client.publish(message(b"%d" % number))
    sender.run()
    receiver = Session(wanted(False, settled=True), sender.bench).open()
    assert [body[-1:] for _, body in receiver.calls.deliveries] == [b"%d" % number for number in range(7)]
    assert receiver.queue.depth == 0


def test_a_large_message_goes_both_ways_in_several_transfers() -> None:
    payload = message(bytes(range(256)) * (LARGE // 256))
    sender = Session(wanted(True, frame_max=4096)).open()
    sender.client.publish(payload)
    sender.run()
    assert sender.calls.outcomes == [(1, 1, ACCEPTED)]
    receiver = Session(wanted(False, frame_max=512), sender.bench).open()
    [(number, received)] = receiver.calls.deliveries
    assert number == 1
    assert received.endswith(payload[payload.index(b"\x00\x53\x75") :])


@pytest.mark.parametrize("step", [1, 2, 3, 7, 1000])
def test_cuts_in_the_input_change_nothing(step: int) -> None:
    sender = Session(wanted(True, frame_max=600), step=step).open()
    sent = [message(b"x" * size) for size in (0, 1, 500, 5000)]
    for each in sent:
        sender.client.publish(each)
    sender.run()
    assert sender.calls.outcomes[-1][1] == 4
    receiver = Session(wanted(False, frame_max=600, credit=9), sender.bench, step=step).open()
    assert [
        body[-len(each) + 7 :] for (_, body), each in zip(receiver.calls.deliveries, sent, strict=True)
    ] == [each[7:] for each in sent]


def test_messages_wait_for_credit() -> None:
    session = Session(wanted(True)).open()
    session.bench.server.shortage.set_shortages(True, False)
    session.run()
    for _ in range(2000):
        session.client.publish(message(b"x"))
    session.run()
    assert max(session.calls.sent, default=0) < 2000
    changes = len(session.calls.sendable)
    session.bench.server.shortage.set_shortages(False, False)
    session.run()
    assert session.calls.sent[-1] == 2000
    assert session.calls.sendable[changes - 1 :] == [False, True]
    assert sum(last - first + 1 for first, last, _ in session.calls.outcomes) == 2000
    assert session.queue.depth == 2000


def test_a_full_queue_refuses() -> None:
    bench = BrokerBench()
    arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
    bench.broker.vhosts["/"].declarations.declare_queue("q", True, None, False, arguments)
    session = Session(wanted(True), bench).open()
    session.client.publish(message(b"fits"))
    session.client.publish(message(b"does not"))
    session.run()
    assert sorted(session.calls.outcomes) == [(1, 1, ACCEPTED), (2, 2, REJECTED)]


def test_a_missing_node_is_an_error_of_the_link() -> None:
    error = failed(Session(wanted(False, address="/queues/missing")))
    assert (error.event, error.condition) == ("the peer has detached the link", "amqp:not-found")
    assert "missing" in error.description
    assert str(error) == f"{error.event}: {error.condition}: {error.description}"


def test_a_link_that_fails_leaves_no_connection() -> None:
    session = Session(wanted(True, address="/queues/missing"))
    failed(session)
    assert session.client.state == c.CLOSED
    assert session.calls.closed[1:] == [None]
    assert session.edge.closed


def test_a_deleted_queue_detaches_the_link() -> None:
    session = Session(wanted(False)).open()
    session.vhost.declarations.delete_queue("q", False, False)
    error = failed(session)
    assert error.condition == "amqp:resource-deleted"


def test_a_wrong_vhost_is_an_error_of_the_connection() -> None:
    error = failed(Session(wanted(True, hostname="vhost:missing")))
    assert error.event == "the peer has closed the connection"
    assert "missing" in error.description


def test_a_wrong_password_is_an_error_of_the_log_in() -> None:
    terms = wanted(True)
    terms.credentials = Credentials("guest", "wrong", ("PLAIN",))
    error = failed(Session(terms))
    assert str(error) == (
        "the log-in has failed: amqp:unauthorized-access: PLAIN ends with the code 1 (auth)"
    )


def test_a_mechanism_that_is_not_offered_is_an_error_of_the_log_in() -> None:
    terms = wanted(True)
    terms.credentials = Credentials("guest", "guest", ("EXTERNAL",))
    assert "allowed are: EXTERNAL" in failed(Session(terms)).description


def test_the_broker_closes_the_connection() -> None:
    session = Session(wanted(False)).open()
    session.connection.force_close("maintenance")
    error = failed(session)
    assert error.condition == "amqp:connection:forced"
    assert session.client.state == c.CLOSED


def test_the_client_closes_in_the_middle_of_deliveries() -> None:
    sender = Session(wanted(True)).open()
    for _ in range(5):
        sender.client.publish(message(b"x" * 50_000))
    sender.run()
    session = Session(wanted(False, credit=5), sender.bench).open()
    assert len(session.calls.deliveries) == 5
    session.client.accept(1, 2)
    session.client.close()
    session.run()
    assert session.calls.closed == [None]
    assert session.edge.closed
    assert session.queue.ready == 3


def test_an_empty_frame_follows_silence_and_a_silent_peer_is_dead() -> None:
    session = Session(wanted(True, idle_ms=10_000)).open()
    client = session.client
    assert client.beat_ms == 5_000
    assert client.beat()
    assert client.take_output() == b"", "something was sent in this interval"
    assert client.beat()
    assert client.take_output() == b"\x00\x00\x00\x08\x02\x00\x00\x00"
    assert client.beat(reads=False)
    assert [client.beat() for _ in range(5)] == [True, True, True, True, False]


# -- odd peers


def transcript(sends: bool) -> bytes:
    """The bytes of a peer from the protocol header to the close."""
    begin = Begin(next_outgoing_id=0, incoming_window=3, outgoing_window=9, remote_channel=0)
    attach = Attach(name="link", handle=0, role=sends, source=Source(), target=Target())
    attach.initial_delivery_count = 0
    flow = Flow(incoming_window=9, next_outgoing_id=0, outgoing_window=9)
    flow.next_incoming_id, flow.handle, flow.delivery_count, flow.link_credit = 0, 0, 0, 5
    tagged = Transfer(handle=0, delivery_id=0, delivery_tag=b"t", more=True)
    deliveries = amqp(tagged, 0, b"first ") + amqp(Transfer(handle=0), 0, b"last")
    outcomes = amqp(Disposition(role=True, first=0, last=1, settled=True, state=Accepted()))
    return b"".join(
        [
            AMQP_1_0_SASL,
            sasl(SaslMechanisms(sasl_server_mechanisms=("PLAIN",))),
            sasl(SaslOutcome(code=0)),
            AMQP_1_0,
            *(amqp(each) for each in (Open(container_id="peer"), begin, attach, flow)),
            outcomes if sends else deliveries,
            amqp(Close(error=ErrorField(condition="amqp:connection:forced", description="bye"))),
        ]
    )


class Eager(Recorder):
    """An owner that sends two messages as soon as the link is attached."""

    client: Client10

    def __init__(self, sends: bool) -> None:
        super().__init__()
        self.sends = sends

    def on_ready(self) -> None:
        super().on_ready()
        if self.sends:
            self.client.publish(b"one")
            self.client.publish(b"two")


def calls_after(sends: bool, *chunks: bytes) -> Recorder:
    """The calls of a client whose peer sends these chunks."""
    calls = Eager(sends)
    calls.client = Client10(calls, wanted(sends))
    calls.client.start()
    for chunk in chunks:
        calls.client.receive(chunk)
        calls.client.take_output()
    return calls


@pytest.mark.parametrize("sends", [True, False])
def test_a_cut_at_any_byte_changes_nothing(sends: bool) -> None:
    data = transcript(sends)
    whole = calls_after(sends, data)
    expected = vars(whole) | {"client": None, "closed": str(whole.closed[0]), "states": len(whole.states)}
    assert whole.outcomes == ([(1, 2, ACCEPTED)] if sends else [])
    assert whole.deliveries == ([] if sends else [(1, b"first last")])
    for at in range(1, len(data)):
        found = calls_after(sends, data[:at], data[at:])
        shown = {"client": None, "closed": str(found.closed[0]), "states": len(found.states)}
        assert vars(found) | shown == expected, at


@pytest.mark.parametrize("sends", [True, False])
def test_a_wrong_byte_anywhere_ends_the_connection_at_most(sends: bool) -> None:
    data = transcript(sends)
    for at in range(len(data)):
        for value in (0x00, 0x40, 0x7F, 0xFF, data[at] ^ 1):
            calls = calls_after(sends, data[:at] + bytes((value,)) + data[at + 1 :])
            assert len(calls.closed) <= 1


class Peer:
    """A client whose peer is the test: `says` sends frames, `heard` returns the client's performatives."""

    def __init__(
        self, terms: Terms, properties: dict[Symbol, object] | None = None, **attach: object
    ) -> None:
        self.calls = Recorder()
        self.client = Client10(self.calls, terms)
        self.client.start()
        self.client.receive(
            AMQP_1_0_SASL + sasl(SaslMechanisms(sasl_server_mechanisms=("PLAIN", "ANONYMOUS")))
        )
        self.client.receive(sasl(SaslOutcome(code=0)) + AMQP_1_0)
        self.client.take_output()
        opened = Open(container_id="odd", max_frame_size=1000, idle_time_out=9000)
        opened.properties = properties  # type: ignore[assignment]
        self.says(opened)
        begin = Begin(next_outgoing_id=0xFFFFFFFE, incoming_window=3, outgoing_window=9)
        begin.remote_channel = 0
        self.client.receive(amqp(begin, 5))
        fields: dict[str, object] = {
            "name": "link",
            "handle": 7,
            "role": terms.sends,
            "source": Source(),
            "target": Target(),
            "initial_delivery_count": 0xFFFFFFFF,
        }
        self.client.receive(amqp(Attach(**fields | attach), 5))  # type: ignore[arg-type]
        self.client.take_output()

    def says(self, *performatives: Composite, payload: bytes = b"", channel: int = 5) -> None:
        for each in performatives:
            on = 0 if isinstance(each, Open | Close) else channel
            self.client.receive(amqp(each, on, payload))

    def transfers(self, delivery_id: int | None, payload: bytes, **fields: object) -> None:
        tag = None if delivery_id is None else b"t"
        made = Transfer(handle=7, delivery_id=delivery_id, delivery_tag=tag, **fields)  # type: ignore[arg-type]
        self.says(made, payload=payload)

    def grants(self, credit: int, window: int = 100, count: int = 0, **fields: object) -> None:
        flow = Flow(
            next_incoming_id=0, incoming_window=window, next_outgoing_id=0xFFFFFFFE, outgoing_window=9
        )
        flow.handle, flow.delivery_count, flow.link_credit = 7, count, credit
        for name, value in fields.items():
            setattr(flow, name, value)
        self.says(flow)

    def heard(self) -> list[tuple[Composite, bytes]]:
        data = self.client.take_output()
        found = []
        while data:
            size = int.from_bytes(data[:4], "big")
            performative, end = decode_composite(data[8:size])
            found.append((performative, data[8 + end : size]))
            data = data[size:]
        return found


def heard_one(peer: Peer) -> Composite:
    [(performative, _)] = peer.heard()
    return performative


def receiving(**changes: object) -> Peer:
    peer = Peer(wanted(False, credit=100, **changes))
    assert peer.calls.ready == 1
    return peer


def sending(**changes: object) -> Peer:
    peer = Peer(wanted(True, **changes))
    assert peer.calls.ready == 1
    assert peer.calls.sendable == [False], "there is no credit yet"
    return peer


def broken(peer: Peer) -> str:
    [error] = peer.calls.closed
    assert error is not None
    assert error.event == c.BROKEN
    close, _ = peer.heard()[-1]
    assert isinstance(close, Close)
    assert close.error is not None
    assert close.error.condition == error.condition
    return f"{error.condition} {error.description}"


def test_delivery_ids_wrap_and_aborted_deliveries_leave_gaps() -> None:
    peer = receiving()
    body = message(b"x")
    peer.transfers(0xFFFFFFFE, body)
    peer.transfers(0xFFFFFFFF, body[:9], more=True)
    peer.transfers(None, b"", aborted=True)
    peer.transfers(0, body[:9], more=True)
    peer.transfers(0, body[9:])
    peer.transfers(1, body)
    assert peer.calls.deliveries == [(1, body), (2, body), (3, body)]
    peer.client.accept(1, 3)
    found = [performative for performative, _ in peer.heard()]
    assert found == [
        Disposition(role=True, first=0xFFFFFFFE, last=0xFFFFFFFE, settled=True, state=Accepted()),
        Disposition(role=True, first=0, last=1, settled=True, state=Accepted()),
    ]


def test_credit_follows_the_deliveries_that_are_settled() -> None:
    peer = receiving()
    for number in range(60):
        peer.transfers(number, message(b"x"))
    assert peer.heard() == []
    peer.client.accept(1, 49)
    assert len(peer.heard()) == 1, "less than half of the credit is free"
    peer.client.accept(50, 50)
    settled, granted = (performative for performative, _ in peer.heard())
    assert isinstance(settled, Disposition)
    assert isinstance(granted, Flow)
    assert (granted.handle, granted.delivery_count, granted.link_credit) == (0, 59, 90)
    assert granted.next_incoming_id == 58


def test_a_payload_of_another_format_keeps_its_format() -> None:
    peer = receiving()
    peer.transfers(0, b"batch", message_format=0x80013700, more=True)
    peer.transfers(None, b"ed")
    peer.transfers(1, b"plain")
    assert peer.calls.deliveries == [(1, b"batched"), (2, b"plain")]
    assert peer.calls.formats == [0x80013700, 0]


def test_a_message_beyond_the_limit_ends_the_connection() -> None:
    peer = receiving(message_max=100)
    peer.transfers(0, b"x" * 60, more=True)
    peer.transfers(None, b"x" * 60, more=True)
    assert "message-size-exceeded a message of more than 100 bytes" in broken(peer)
    assert peer.calls.deliveries == []


def test_a_peer_that_sends_without_credit_has_broken_the_protocol() -> None:
    peer = Peer(wanted(False, credit=1))
    peer.transfers(0, b"x")
    peer.transfers(1, b"x")
    assert "amqp:link:transfer-limit-exceeded" in broken(peer)


@pytest.mark.parametrize(
    ("performative", "words"),
    [
        (Transfer(handle=8, delivery_id=0), "unattached-handle a transfer on handle 8"),
        (Transfer(handle=7), "invalid-field the first transfer of a delivery has no delivery-id"),
        (Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1), "begin on a connection"),
        (Attach(name="other", handle=1, role=False), "attach on a connection that is ready"),
        (
            Flow(incoming_window=1, next_outgoing_id=0xFFFFFFFE, outgoing_window=1, handle=8),
            "flow on handle 8",
        ),
        (SaslInit(mechanism="PLAIN"), "saslinit on a connection"),
    ],
)
def test_a_peer_that_breaks_the_protocol_is_told_why(performative: Composite, words: str) -> None:
    peer = receiving()
    peer.says(performative)
    assert words in broken(peer)


def test_a_frame_of_another_session_breaks_the_protocol() -> None:
    peer = receiving()
    peer.says(Transfer(handle=7, delivery_id=0), channel=0)
    assert "a frame on channel 0, which has no session" in broken(peer)


def test_bytes_that_are_no_frame_break_the_protocol() -> None:
    peer = receiving()
    peer.client.receive(frame(5, b"\x00\x53\x14\xc0\x01"))
    assert "amqp:decode-error" in broken(peer)


def test_each_state_of_a_sent_message() -> None:
    peer = sending()
    peer.grants(10)
    assert peer.calls.sendable == [False, True]
    for _ in range(6):
        peer.client.publish(message(b"x"))
    peer.heard()
    error = ErrorField(condition="amqp:not-allowed", description="no")
    states: list[DeliveryState | None] = [Received(section_number=0, section_offset=0), None, Modified()]
    for state in states:
        peer.says(Disposition(role=True, first=0, state=state, settled=state is not None))
    peer.says(Disposition(role=True, first=1, settled=True))
    peer.client.receive(disposition(5, True, 2, 2, True, b"\x00\x53\x25\x45"))
    peer.says(Disposition(role=True, first=3, settled=True, state=Rejected(error=error)))
    peer.says(Disposition(role=True, first=3, last=90, state=Accepted()))
    peer.says(Disposition(role=False, first=0, last=5, settled=True))
    assert peer.calls.outcomes == [
        (1, 1, MODIFIED),
        (2, 2, RELEASED),
        (3, 3, REJECTED),
        (4, 4, REJECTED),
        (4, 6, ACCEPTED),
    ]
    assert (peer.calls.states[3].condition, peer.calls.states[3].description) == ("amqp:not-allowed", "no")
    assert heard_one(peer) == Disposition(role=False, first=3, last=5, settled=True, state=Accepted())


def test_credit_and_window_limit_what_is_sent() -> None:
    peer = sending()
    large = message(b"y" * 2500)
    peer.grants(2, window=3)
    for _ in range(3):
        peer.client.publish(large)
    sent = peer.heard()
    assert len(sent) == 3, "the window is 3"
    assert peer.calls.sent == [1]
    assert b"".join(payload for _, payload in sent) == large
    peer.grants(2, window=100, next_incoming_id=3)
    assert peer.calls.sent == [1, 2]
    assert peer.calls.sendable == [False, True, False]
    peer.grants(1, count=2, next_incoming_id=6, echo=True)
    *_, (flow, _) = peer.heard()
    assert isinstance(flow, Flow)
    assert (flow.delivery_count, flow.link_credit, flow.available) == (3, 0, 0)
    assert peer.calls.sent == [1, 2, 3]


def test_a_message_in_parts_is_sent_as_its_parts_come() -> None:
    peer = sending()
    peer.grants(2, window=100)
    data = bytes(range(256)) * 20
    assert peer.client.publish(data[:10], size=len(data)) == 1
    assert peer.heard() == [], "a frame takes 1000 bytes"
    assert peer.calls.sendable[-1], "more bytes are wanted"
    peer.client.add_piece(data[10:2500])
    first = peer.heard()
    assert [len(payload) for _, payload in first] == [len(first[0][1])] * 2
    assert peer.calls.sent == []
    peer.client.add_piece(data[2500:])
    rest = peer.heard()
    assert b"".join(payload for _, payload in first + rest) == data
    assert [getattr(transfer, "more", None) for transfer, _ in first + rest] == [True] * (
        len(first + rest) - 1
    ) + [False]
    assert peer.calls.sent == [1]


def test_parts_wait_for_the_window_and_report_it() -> None:
    peer = sending()
    peer.grants(1, window=1)
    data = bytes(5000)
    peer.client.publish(data[:2000], size=len(data))
    assert len(peer.heard()) == 1
    assert peer.calls.sendable[-1] is False
    peer.grants(1, window=1, next_incoming_id=1)
    assert len(peer.heard()) == 1
    peer.client.add_piece(data[2000:])
    peer.grants(1, window=100, next_incoming_id=2)
    assert peer.calls.sent == [1]
    assert peer.calls.sendable[-1] is False, "the credit is used up"


def test_the_size_of_a_message_in_parts_is_limited_by_the_peer() -> None:
    peer = Peer(wanted(True), max_message_size=100)
    with pytest.raises(ValueError, match="has 101 bytes, the peer's max-message-size is 100"):
        peer.client.publish(b"first", size=101)


def test_a_drained_sender_uses_up_its_credit() -> None:
    peer = sending()
    peer.grants(5, drain=True)
    flow = heard_one(peer)
    assert isinstance(flow, Flow)
    assert (flow.delivery_count, flow.link_credit) == (5, 0)
    assert peer.calls.sendable[-1] is False


def test_a_message_larger_than_the_peer_takes_is_refused() -> None:
    peer = Peer(wanted(True), max_message_size=100)
    with pytest.raises(ValueError, match=r"has 1\d\d bytes, the peer's max-message-size is 100"):
        peer.client.publish(message(b"x" * 100))
    assert peer.client.published == 0


def test_a_peer_of_another_protocol_is_named() -> None:
    calls = Recorder()
    client = Client10(calls, wanted(True))
    client.start()
    client.receive(AMQP_0_9_1)
    [error] = calls.closed
    assert "the peer does not speak AMQP 1.0" in str(error)
    assert client.state == c.CLOSED


def test_a_challenge_of_anonymous_is_answered() -> None:
    terms = wanted(True)
    terms.credentials = Credentials("", "", ("ANONYMOUS",))
    client = Client10(Recorder(), terms)
    client.receive(AMQP_1_0_SASL + sasl(SaslMechanisms(sasl_server_mechanisms=("ANONYMOUS",))))
    client.receive(sasl(SaslChallenge(challenge=b"")))
    assert client.take_output().endswith(sasl(SaslResponse(response=b"")))


@pytest.mark.parametrize("ended", [End(), Detach(handle=7, closed=True)])
def test_an_end_without_an_error_is_an_error_too(ended: Composite) -> None:
    peer = receiving()
    peer.says(ended)
    [error] = peer.calls.closed
    assert error is not None
    assert error.condition == c.UNDESCRIBED
    assert isinstance(peer.heard()[-1][0], Close)
    assert peer.client.state == c.CLOSING
    peer.transfers(0, b"ignored")
    peer.says(Close())
    assert peer.calls.closed[1:] == [None]
    assert peer.calls.deliveries == []


def test_an_open_of_a_long_name_leaves_out_the_properties() -> None:
    terms = wanted(True, hostname="vhost:" + "v" * 255, properties={"product": "p" * 250})
    client = Client10(Recorder(), terms)
    client.receive(AMQP_1_0_SASL + sasl(SaslMechanisms(sasl_server_mechanisms=("PLAIN",))))
    client.receive(sasl(SaslOutcome(code=0)))
    assert client.state == c.HEADER
    assert b"product" not in client.take_output()


def test_a_link_without_a_handshake_begins_with_the_session() -> None:
    client = Client10(Recorder(), wanted(True))
    client.start_open(4096)
    size = int.from_bytes(client.take_output()[:4], "big")
    assert size < 100
    assert client.state == c.BEGINNING


SELECTOR = "apache.org:selector-filter:string"


@pytest.mark.parametrize("descriptor", [Symbol(SELECTOR), Ulong(0x0000468C00000004)])
def test_a_selector_is_in_force_if_the_peer_says_so(descriptor: object) -> None:
    answer = Source(filter={"any": Described(descriptor, "a = 1")})
    peer = Peer(wanted(False, credit=100, selector="a = 1"), source=answer)
    assert (peer.calls.ready, peer.calls.closed) == (1, [])


@pytest.mark.parametrize(
    "given", [None, {}, {SELECTOR: None}, {SELECTOR: Described(Symbol("amqp:sql-filter"), "a = 1")}]
)
def test_a_peer_that_ignores_the_selector_gets_no_credit(given: dict[str, object] | None) -> None:
    peer = Peer(wanted(False, credit=100, selector="a = 1"))
    assert peer.calls.closed != []
    peer = Peer(wanted(False, credit=100, selector="a = 1"), source=Source(filter=given))
    [error] = peer.calls.closed
    assert str(error) == (
        "the peer ignores the selector: amqp:not-implemented: filter "
        "'apache.org:selector-filter:string' is not in its attach, and it would send all messages"
    )
    assert peer.calls.ready == 0
    peer.says(Close())
    assert peer.calls.closed == [error, None]
    assert peer.client.state == c.CLOSED


def test_rabbitmq_3_repeats_a_filter_that_it_does_not_apply() -> None:
    answer = Source(filter={SELECTOR: Described(Symbol(SELECTOR), "a = 1")})
    properties: dict[Symbol, object] = {Symbol("product"): "RabbitMQ", Symbol("version"): "3.10.8"}
    peer = Peer(wanted(False, credit=100, selector="a = 1"), properties, source=answer)
    [error] = peer.calls.closed
    assert error is not None
    assert error.description == "RabbitMQ 3.10.8 has no selectors, and it would send all messages"
    properties[Symbol("version")] = "4.2.0"
    peer = Peer(wanted(False, credit=100, selector="a = 1"), properties, source=answer)
    assert (peer.calls.ready, peer.calls.closed) == (1, [])


def test_the_attach_has_the_selector() -> None:
    terms = wanted(False, credit=100, selector="a = 1")
    client = Client10(Recorder(), terms)
    client.start_open(0xFFFF)
    client.take_output()
    begin = Begin(next_outgoing_id=0, incoming_window=3, outgoing_window=9)
    begin.remote_channel = 0
    client.receive(amqp(begin, 5))
    attach, _ = decode_composite(client.take_output()[8:])
    assert isinstance(attach, Attach)
    assert attach.source is not None
    assert attach.source.filter == {SELECTOR: Described(Symbol(SELECTOR), "a = 1")}
