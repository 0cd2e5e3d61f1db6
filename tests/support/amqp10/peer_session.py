"""A session of the AMQP 1.0 client, with a method for each common exchange, and nothing automatic."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

from protocol.amqp10.composing import decode_composite
from protocol.amqp10.composites import Accepted, DeliveryState, Source, Target
from protocol.amqp10.performatives import Attach, Begin, Detach, Disposition, End, Flow, Transfer
from protocol.amqp10.types import Composite
from tests.support.amqp10.contents import bare10
from tests.support.amqp10.peer import Meet, Peer10, amqp

C = TypeVar("C", bound=Composite)

LAST: Final = 0xFFFFFFFF
SETTLES_LATE_S: Final = 0.05  # how late a broker may send a wrong frame


class Delivery(NamedTuple):
    """A received message, in `frames` transfers."""

    id: int
    tag: bytes
    settled: bool
    payload: bytes
    frames: int
    transfer: Transfer


class PeerSession10:
    """A session that this side begins, and the links in it, by their handles."""

    def __init__(self, peer: Peer10, channel: int = 0, **fields: object) -> None:
        values = {"next_outgoing_id": 0, "incoming_window": 2048, "outgoing_window": 2048, **fields}
        self.peer = peer
        self.channel = channel
        self.sent = 0
        self.first_id = int(str(values["next_outgoing_id"]))
        self.received = 0
        self.window = int(str(values["incoming_window"]))
        peer.write(Begin(**values), channel)  # type: ignore[arg-type]
        self.begun = peer.expect(Begin, channel)

    # --- sending

    def write(self, performative: Composite, payload: bytes = b"") -> None:
        """Send a single frame."""
        self.peer.write(performative, self.channel, payload)

    def encode(self, performative: Composite, payload: bytes = b"") -> bytes:
        """The bytes of it."""
        return amqp(performative, self.channel, payload)

    def flow(self, handle: int | None = None, **fields: object) -> None:
        """Say the state of the session, as far as a test does not say it, and that of a link."""
        values = {
            "next_incoming_id": self.received & LAST,
            "incoming_window": self.window,
            "next_outgoing_id": self.first_id + self.sent & LAST,
            "outgoing_window": 2048,
            **fields,
        }
        self.write(Flow(handle=handle, **values))  # type: ignore[arg-type]

    def allow(self, handle: int, credit: int, count: int = 0, **fields: object) -> None:
        """Allow `credit` deliveries, the first of them with the delivery-count `count`."""
        self.flow(handle, delivery_count=count, link_credit=credit, **fields)

    def transfer(
        self, handle: int, payload: bytes | None = None, delivery_id: int | None = 0, **fields: object
    ) -> None:
        """Send a single transfer, by default of a small message."""
        self.peer.send(self.encode_transfer(handle, payload, delivery_id, **fields))

    def encode_transfer(
        self, handle: int, payload: bytes | None = None, delivery_id: int | None = 0, **fields: object
    ) -> bytes:
        """The bytes of `transfer`; the delivery-tag is made of the delivery-id, unless it is given."""
        self.sent += 1
        if delivery_id is not None:
            fields = {"delivery_tag": b"%d" % delivery_id, **fields}
        frame = Transfer(handle=handle, delivery_id=delivery_id, **fields)  # type: ignore[arg-type]
        return self.encode(frame, bare10() if payload is None else payload)

    def settle(
        self,
        first: int,
        last: int | None = None,
        state: DeliveryState | None = None,
        settled: bool = True,
        receiver: bool = True,
    ) -> None:
        """Settle deliveries, by default with the outcome accepted."""
        outcome = Accepted() if state is None else state
        self.write(Disposition(role=receiver, first=first, last=last, settled=settled, state=outcome))

    # --- receiving

    def read(self) -> tuple[Composite, bytes]:
        """The next frame of the session that is not empty, with its payload."""
        while True:
            kind, channel, body = self.peer.raw_frame()
            if body:
                break
        assert (kind, channel) == (0, self.channel)
        performative, end = decode_composite(body)
        if isinstance(performative, Transfer):
            self.received += 1
        return performative, body[end:]

    def expect(self, kind: type[C]) -> C:
        """The performative of the next frame, which is of this kind."""
        performative, _ = self.read()
        assert isinstance(performative, kind), performative
        return performative

    def delivery(self, handle: int = 0) -> Delivery:
        """Return the next delivery, which all next frames must belong to."""
        first, payload = self.read()
        assert isinstance(first, Transfer), first
        assert first.delivery_id is not None
        assert first.delivery_tag is not None
        last, parts = first, [payload]
        while last.more:
            following, payload = self.read()
            assert isinstance(following, Transfer), following
            assert following.delivery_id in (None, first.delivery_id)
            last = following
            parts.append(payload)
            assert following.handle == first.handle
        assert (first.handle, last.aborted) == (handle, False)
        whole = b"".join(parts)
        settled = bool(first.settled or last.settled)
        return Delivery(first.delivery_id, first.delivery_tag, settled, whole, len(parts), first)

    def outcome(self, first: int, last: int | None = None, settled: bool = True) -> object:
        """Return the state of sent deliveries; the next frame must be their only disposition."""
        disposition = self.expect(Disposition)
        assert (disposition.role, disposition.first, disposition.last) == (
            True,
            first,
            first if last is None else last,
        ), disposition
        assert disposition.settled == settled
        return disposition.state

    def expect_silence(self, **fields: int) -> None:
        """Check that only the answer to an echo flow arrives, also a little later."""
        for _ in range(2):
            self.flow(echo=True, **fields)
            flow = self.expect(Flow)
            assert (flow.handle, flow.echo) == (None, False), flow
            time.sleep(SETTLES_LATE_S)

    def expect_detach(self, handle: int, condition: str, words: str = "") -> Detach:
        """The broker detaches a link for this reason; answers that."""
        detach = self.expect(Detach)
        assert (detach.handle, detach.closed) == (handle, True), detach
        assert detach.error is not None
        assert detach.error.condition == condition, detach
        assert words in (detach.error.description or ""), detach
        self.write(Detach(handle=handle, closed=True))
        return detach

    def expect_end(self, condition: str, words: str = "") -> None:
        """The broker ends the session for this reason; answers that."""
        end = self.expect(End)
        assert end.error is not None
        assert end.error.condition == condition, end
        assert words in (end.error.description or ""), end
        self.write(End())

    # --- steps that most tests take

    def sends(self, address: str | None, handle: int = 0, **fields: object) -> tuple[Attach, Flow]:
        """Attach a sending link; return the broker's attach and its credit."""
        self.write(sender(address, handle, **fields))
        answer = self.expect(Attach)
        assert (answer.handle, answer.role) == (handle, True)
        allowed = self.expect(Flow)
        assert allowed.handle == handle
        return answer, allowed

    def receives(self, address: str | None, handle: int = 0, credit: int = 0, **fields: object) -> Attach:
        """Attach a link on which this side receives, and allow so many deliveries."""
        self.write(receiver(address, handle, **fields))
        answer = self.expect(Attach)
        assert (answer.handle, answer.role) == (handle, False)
        if credit:
            self.allow(handle, credit)
        return answer

    def publish(self, handle: int, count: int, payload: bytes | None = None, first: int = 0) -> None:
        """Send so many messages, and see all of them accepted."""
        self.peer.send(b"".join(self.encode_transfer(handle, payload, first + at) for at in range(count)))
        done = 0
        while done < count:
            performative, _ = self.read()
            if isinstance(performative, Flow):
                continue
            assert isinstance(performative, Disposition), performative
            assert performative.first == first + done
            assert (performative.state, performative.settled) == (Accepted(), True)
            assert performative.last is not None
            done = performative.last - first + 1

    def detach(self, handle: int = 0, closed: bool = True) -> None:
        """End a link, as it is."""
        self.write(Detach(handle=handle, closed=closed))
        detach = self.expect(Detach)
        assert (detach.handle, detach.closed, detach.error) == (handle, closed, None), detach

    def end(self) -> None:
        """End the session."""
        self.write(End())
        assert self.expect(End).error is None


def sender(address: str | None, handle: int = 0, **fields: object) -> Attach:
    """The attach of a link on which the client sends."""
    values = {
        "name": f"sends {handle}",
        "source": Source(),
        "target": Target(address=address),
        "initial_delivery_count": 0,
        **fields,
    }
    return Attach(handle=handle, role=False, **values)  # type: ignore[arg-type]


def receiver(address: str | None, handle: int = 0, **fields: object) -> Attach:
    """The attach of a link on which the client receives."""
    values = {"name": f"receives {handle}", "source": Source(address=address), "target": Target(), **fields}
    return Attach(handle=handle, role=True, **values)  # type: ignore[arg-type]


def sourced(attach: Attach, **fields: object) -> Attach:
    """The same attach with these fields of its source."""
    assert attach.source is not None
    return dataclasses.replace(attach, source=dataclasses.replace(attach.source, **fields))  # type: ignore[arg-type]


Begins = Callable[..., PeerSession10]
"""Connects a peer and begins a session, with the fields of a begin that are given."""


def begins(meet: Meet) -> Begins:
    """Return a function that begins sessions, like the fixture `session` of the conformance tests."""

    def begin(channel: int = 0, frame: int | None = None, **fields: object) -> PeerSession10:
        peer = meet()
        peer.open(**({} if frame is None else {"max_frame_size": frame}))
        return PeerSession10(peer, channel, **fields)

    return begin
