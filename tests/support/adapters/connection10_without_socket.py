"""A connection of AMQP 1.0 without a socket: a test sends frames and reads the written frames."""

from typing import NamedTuple

from broker.adapters.access import Origin
from broker.adapters.amqp10.connection import Connection10
from protocol.amqp10.composing import decode_composite
from protocol.amqp10.composites import Source, Target
from protocol.amqp10.frames import AMQP_FRAME, FRAME_HEADER_BYTES, SASL_FRAME
from protocol.amqp10.performatives import Attach, Begin, Flow, Open, SaslInit, Transfer
from protocol.amqp10.types import Composite
from tests.support.adapters.connection_without_socket import BrokerBench, RecordingEdge
from tests.support.amqp10.contents import bare10
from tests.support.amqp10.peer import AMQP, amqp, sasl

SHORT = bare10()
WINDOW = 2048


class WrittenFrame(NamedTuple):
    """A frame that was written."""

    performative: Composite
    payload: bytes


class Client10:
    """A logged-in client with an open connection and a session on channel 0."""

    def __init__(self, bench: BrokerBench, frame_max: int = 131072) -> None:
        self.bench = bench
        self.edge = RecordingEdge()
        origin = Origin("127.0.0.1", 1, True)
        self.connection = Connection10(bench.server, bench.scheduler, self.edge, origin, True)
        self.connection.start()
        login = SaslInit(mechanism="PLAIN", initial_response=b"\0guest\0guest")
        self.connection.receive(sasl(login) + AMQP)
        self.send(Open(container_id="client", max_frame_size=frame_max))
        self.send(Begin(next_outgoing_id=0, incoming_window=WINDOW, outgoing_window=WINDOW))
        del self.edge.written[: bytes(self.edge.written).index(AMQP) + len(AMQP)]
        self.written()

    def send(self, *performatives: Composite, payload: bytes = b"") -> None:
        """Send frames in a single turn; the last frame has the payload."""
        *before, last = performatives
        self.connection.receive(b"".join(amqp(made) for made in before) + amqp(last, 0, payload))

    def sends(self, name: str, handle: int = 0, **fields: object) -> None:
        """Attach a link to this queue, on which the client sends."""
        target = Target(address=f"/queues/{name}")
        self._attach(handle, False, source=Source(), target=target, initial_delivery_count=0, **fields)

    def receives(self, name: str, handle: int = 0, credit: int = 100, **fields: object) -> None:
        """Attach a link to this queue, on which the client receives."""
        self._attach(handle, True, source=Source(address=f"/queues/{name}"), target=Target(), **fields)
        flow = Flow(next_incoming_id=0, incoming_window=WINDOW, next_outgoing_id=0, outgoing_window=WINDOW)
        flow.handle, flow.delivery_count, flow.link_credit = handle, 0, credit
        self.send(flow)
        self.bench.turns.run()

    def publish(self, *ids: int, handle: int = 0, durable: bool = False, **fields: object) -> None:
        """Send messages with these delivery-ids in a single turn."""
        payload = (b"\x00\x53\x70\xc0\x02\x01\x41" if durable else b"") + SHORT
        made = [
            Transfer(handle=handle, delivery_id=number, delivery_tag=b"%d" % number, **fields)  # type: ignore[arg-type]
            for number in ids
        ]
        self.connection.receive(b"".join(amqp(transfer, 0, payload) for transfer in made))

    def written(self) -> list[WrittenFrame]:
        """The frames that were written since the last call."""
        data = bytes(self.edge.written)
        self.edge.written.clear()
        found = []
        while data:
            size, kind = int.from_bytes(data[:4], "big"), data[5]
            assert kind in (AMQP_FRAME, SASL_FRAME)
            body, data = data[FRAME_HEADER_BYTES:size], data[size:]
            if body:
                performative, end = decode_composite(body)
                found.append(WrittenFrame(performative, body[end:]))
        return found

    def _attach(self, handle: int, role: bool, **fields: object) -> None:
        self.send(Attach(name=f"link {handle}", handle=handle, role=role, **fields))  # type: ignore[arg-type]
        answer, *others = self.written()
        assert isinstance(answer.performative, Attach)
        assert all(isinstance(other.performative, Flow) for other in others)
