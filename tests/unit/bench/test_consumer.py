"""The bench's consumer reads deliveries in any pieces, and detects errors in them."""

import asyncio
import struct
from typing import Any, cast

import pytest

from broker.bench.amqp091 import Consumer091, make_template
from broker.bench.connection import Connection
from broker.bench.plan import Address, Plan
from broker.bench.traffic import Traffic

ADDRESS = Address("localhost", 5672, "guest", "guest", "/")
TAG = b"\x0bbench-00000"


class Socket:
    """A socket that keeps the written bytes."""

    def __init__(self) -> None:
        self.written = b""
        self.closed = False

    def set_write_buffer_limits(self, high: int) -> None:
        self.high = high

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        self.closed = True


def delivery(tag: int, sequence: int, size: int, frame_max: int = 131072, redelivered: bool = False) -> bytes:
    """Return the frames of a delivery of the bench's publisher."""
    made = make_template("", "q", size, persistent=False, frame_max=frame_max)
    publish, stamp_at = made.data, made.stamp_at
    content_at = 8 + struct.unpack_from(">I", publish, 3)[0]
    content = bytearray(publish[content_at:])
    struct.pack_into(">QQ", content, stamp_at - content_at, sequence, 1)
    arguments = struct.pack(">HH", 60, 60) + TAG + struct.pack(">QB", tag, redelivered) + b"\x00\x01q"
    return struct.pack(">BHI", 1, 1, len(arguments)) + arguments + b"\xce" + content


def consumer_of(plan: Plan) -> tuple[Consumer091, Traffic, Socket]:
    flow = Traffic(plan)
    consumer = Consumer091(plan, flow, ["q"])
    socket = Socket()
    consumer.connection_made(cast("asyncio.BaseTransport", socket))
    return consumer, flow, socket


def feed(client: Connection[Any], data: bytes, step: int) -> None:
    for start in range(0, len(data), step):
        piece = data[start : start + step]
        while piece:
            room = client.get_buffer(-1)
            part = piece[: len(room)]
            room[: len(part)] = part
            client.buffer_updated(len(part))
            piece = piece[len(part) :]


def acks(written: bytes) -> list[tuple[int, bool]]:
    """The basic.ack frames in `written`: tag and multiple."""
    frames = [written[start : start + 21] for start in range(0, len(written), 21)]
    assert all(
        one[:11] == b"\x01\x00\x01\x00\x00\x00\x0d\x00\x3c\x00\x50" and one[-1:] == b"\xce" for one in frames
    )
    return [(int.from_bytes(one[11:19], "big"), bool(one[19])) for one in frames]


@pytest.mark.parametrize("size", [16, 17, 22, 23, 24, 1024])
@pytest.mark.parametrize("step", [1, 7, 100, 1000, 10**9])
def test_every_delivery_is_counted_checked_and_acknowledged(size: int, step: int) -> None:
    consumer, flow, socket = consumer_of(Plan(ADDRESS, size=size, count=20))

    feed(consumer, b"".join(delivery(n + 1, n, size) for n in range(20)), step)

    assert consumer.failure is None
    assert (flow.received, flow.receipt.count, flow.checker.lost([20])) == (20, 20, 0)
    assert (flow.checker.reordered, consumer.receipts.damaged, consumer.receipts.misnumbered) == (0, 0, 0)
    assert acks(socket.written) == [(n, False) for n in range(1, 21)]


@pytest.mark.parametrize("step", [997, 10**9])
def test_bodies_in_several_frames(step: int) -> None:
    size = 300_000
    consumer, flow, _ = consumer_of(Plan(ADDRESS, size=size, count=3, auto_ack=True))

    feed(consumer, b"".join(delivery(n + 1, n, size) for n in range(3)), step)

    assert (flow.received, flow.checker.lost([3]), consumer.receipts.damaged) == (3, 0, 0)


def test_acknowledges_in_groups_and_the_rest_at_the_end() -> None:
    consumer, _, socket = consumer_of(Plan(ADDRESS, size=16, count=10, ack_every=4))

    feed(consumer, b"".join(delivery(n + 1, n, 16) for n in range(10)), 10**9)
    assert acks(socket.written) == [(4, True), (8, True)]

    consumer.finish()
    assert acks(socket.written)[2:] == [(10, True)]


def test_auto_ack_writes_nothing() -> None:
    consumer, _, socket = consumer_of(Plan(ADDRESS, size=16, count=10, auto_ack=True))

    feed(consumer, b"".join(delivery(n + 1, n, 16) for n in range(10)), 10**9)
    consumer.finish()

    assert socket.written == b""


@pytest.mark.parametrize(
    ("sequences", "lost", "duplicates", "reordered"),
    [([0, 1, 2, 4], 1, 0, 0), ([0, 1, 2, 2, 3, 4], 0, 1, 0), ([0, 1, 3, 2, 4], 0, 0, 1)],
)
@pytest.mark.parametrize("step", [1, 10**9])
def test_errors_are_detected_on_the_fast_path_too(
    sequences: list[int], lost: int, duplicates: int, reordered: int, step: int
) -> None:
    consumer, flow, _ = consumer_of(Plan(ADDRESS, size=64, count=5))

    feed(consumer, b"".join(delivery(tag, n, 64) for tag, n in enumerate(sequences, 1)), step)

    checker = flow.checker
    assert (checker.lost([5]), checker.duplicates, checker.reordered) == (lost, duplicates, reordered)


def test_a_gap_in_the_delivery_tags_is_seen() -> None:
    consumer, _, _ = consumer_of(Plan(ADDRESS, size=64, count=5))

    feed(consumer, b"".join(delivery(tag, n, 64) for n, tag in enumerate((1, 2, 4, 5))), 10**9)

    assert consumer.receipts.misnumbered == 1


@pytest.mark.parametrize("place", [-2, -8, -40])
def test_a_body_that_is_not_what_was_published_is_damaged(place: int) -> None:
    consumer, flow, _ = consumer_of(Plan(ADDRESS, size=64, count=3))
    broken = bytearray(delivery(1, 0, 64))
    broken[place] ^= 1

    feed(consumer, bytes(broken) + delivery(2, 1, 64) + delivery(3, 2, 64), 10**9)

    assert (consumer.receipts.damaged, flow.checker.lost([3]), flow.received) == (1, 1, 3)


def test_a_damaged_tail_is_seen_after_the_shape_is_known() -> None:
    consumer, _, _ = consumer_of(Plan(ADDRESS, size=64, count=3))
    broken = bytearray(delivery(2, 1, 64))
    broken[-2] ^= 1

    feed(consumer, delivery(1, 0, 64) + bytes(broken) + delivery(3, 2, 64), 10**9)

    assert consumer.receipts.damaged == 1


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x01\x00\x01\x00\x00\x00\x04\x00\x3c\x00\x0b\x00", "0xCE"),
        (b"\x03\x00\x01\x00\x00\x00\x01x\xce", "type 3"),
        (b"\x01\x00\x01\x00\x00\x00\x04\x00\x3c\x00\x63\xce", "malformed"),
        (delivery(1, 0, 64)[:36] + b"\x08\x00\x00\x00\x00\x00\x00\xce" + delivery(1, 0, 64)[36:], "delivery"),
    ],
)
def test_malformed_input_ends_the_run_with_a_reason(data: bytes, reason: str) -> None:
    consumer, flow, socket = consumer_of(Plan(ADDRESS, size=64, count=3))

    feed(consumer, data, 10**9)

    assert reason in str(consumer.failure)
    assert flow.settled.is_set()
    assert socket.closed
