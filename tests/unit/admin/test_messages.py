"""Messages of both protocols as the API shows them, while the queue changes meanwhile."""

import asyncio
import base64
from typing import Any

import pytest
from pamqp.commands import Queue as Method

from broker.adapters.formats.either import SelectorFilter
from broker.admin.api import slices
from broker.admin.api.answers import ApiError
from broker.admin.api.message_shapes import BYTES_MAX, show_message
from broker.admin.api.messages import look, take
from broker.core.entries.cursor import SCAN_BUDGET
from broker.core.entries.entry import QueueEntry
from broker.core.message import Address, Message
from broker.core.queues.queue import Queue
from broker.core.selector.selector import Selector
from broker.core.vhosts.vhost import VirtualHost
from protocol.amqp10.types import Symbol
from tests.support.adapters.connection_without_socket import BrokerBench, Client091
from tests.support.adapters.queued_messages10 import data, put, put_large
from tests.support.amqp10.contents import content10
from tests.support.amqp10.reference_codec import described
from tests.support.conversion.contents import DATA, FOOTER, SEQUENCE, VALUE
from tests.support.core.purge import purge
from tests.support.core.topology import add_queue, consume, new_vhost, publish


@pytest.fixture
def vhost() -> VirtualHost:
    """The queue's virtual host."""
    return new_vhost()


@pytest.fixture
def queue(vhost: VirtualHost, monkeypatch: pytest.MonkeyPatch) -> Queue:
    """A queue of ten messages; every step of a request is a turn of its own."""
    monkeypatch.setattr(slices, "SLICE_SECONDS", 0.0)
    queue = add_queue(vhost, "q")
    for _ in range(10):
        publish(vhost, "", "q")
    return queue


def write(entry: QueueEntry, left: int) -> str:
    return f"{entry.order}:{left}"


class Turns:
    """Counts turns of the event loop, and calls a function in the third turn."""

    def __init__(self, act: object = None) -> None:
        self.count = 0
        self._act = act
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(0)
            self.count += 1
            if self.count == 3 and callable(self._act):
                self._act()

    def stop(self) -> int:
        """Stop, and return the number of turns."""
        self._task.cancel()
        return self.count


async def test_looking_gives_way_after_every_message(queue: Queue) -> None:
    turns = Turns()
    assert await look(queue, 7, write) == [f"{number}:{10 - number}" for number in range(1, 8)]
    assert turns.stop() >= 6
    assert (queue.ready, queue.unacked, queue.delivered, queue.browsers) == (10, 0, 0, None)
    assert not any(entry.redelivered or entry.delivery_count for entry in queue.entries)


async def test_listing_ends_when_a_purge_empties_the_queue(queue: Queue) -> None:
    turns = Turns(lambda: purge(queue))
    seen = await look(queue, 10, write)
    turns.stop()
    assert 0 < len(seen) < 10
    assert queue.ready == 0


async def test_listing_ends_when_the_queue_is_deleted(vhost: VirtualHost, queue: Queue) -> None:
    turns = Turns(lambda: vhost.declarations.delete_queue("q", False, False) if not queue.deleted else None)
    seen = await look(queue, 10, write)
    turns.stop()
    assert 0 < len(seen) < 10


async def test_listing_by_index_ends_when_the_queue_is_deleted(vhost: VirtualHost, queue: Queue) -> None:
    indexed = vhost.declarations.declare_queue("indexed", False, None, False, {"x-index": "k"})
    for _ in range(10):
        publish(vhost, "", "indexed", headers={"k": "a"})
    turns = Turns(lambda: vhost.declarations.delete_queue("indexed", False, False))
    seen = await look(indexed, 10, write, SelectorFilter(Selector("k = 'a'"), queue.store))
    turns.stop()
    assert 0 < len(seen) < 10


async def test_ready_entries_behind_acquired_ones_are_found(queue: Queue) -> None:
    taker, consumer = consume(queue)
    for _ in range(2 * SCAN_BUDGET):
        queue.enqueue(queue.entries.head.message)
    for _ in range(9 + 2 * SCAN_BUDGET):
        queue.deliver_single_message(consumer)
    turns = Turns()
    assert await look(queue, 5, write) == [f"{10 + 2 * SCAN_BUDGET}:0"]
    assert len(taker.taken) == 9 + 2 * SCAN_BUDGET
    assert turns.stop() >= 2


async def test_taking_gives_way_and_settles_at_the_end(queue: Queue) -> None:
    held: list[int] = []
    turns = Turns(lambda: held.append(int(queue.unacked)))
    assert len(await take(queue, 6, "ack_requeue_false", write)) == 6
    assert turns.stop() >= 10
    assert held[0] > 0
    assert (queue.ready, queue.unacked, queue.acked) == (4, 0, 6)


async def test_a_message_beyond_the_answer_s_limit_is_not_touched(queue: Queue) -> None:
    large = Message(Address("", "q"), b"", BYTES_MAX, False, 0)
    queue.enqueue(large)
    assert len(await look(queue, 20, write)) == 11
    queue.enqueue(large)
    assert len(await look(queue, 20, write)) == 11
    assert len(await take(queue, 20, "ack_requeue_false", write)) == 11
    (left,) = queue.entries
    assert (left.redelivered, left.delivery_count, queue.ready) == (False, 0, 1)
    assert len(await take(queue, 20, "ack_requeue_false", write)) == 1


async def test_a_message_that_cannot_be_shown_stays_in_the_queue(queue: Queue) -> None:
    def fail(entry: QueueEntry, left: int) -> str:
        if entry.order == 4:
            raise OSError("the disk is gone")
        return ""

    with pytest.raises(OSError, match="the disk is gone"):
        await take(queue, 10, "ack_requeue_false", fail)
    assert (queue.ready, queue.unacked) == (10, 0)


FOOT = described(FOOTER, b"\xc1\x01\x00")
TWO = bytes(range(256)) * 8192


@pytest.fixture
def client(bench: BrokerBench) -> Client091:
    """The client that has declared the queue."""
    client = bench.open()
    client.send(Method.Declare(queue="q"), 1)
    return client


def shown(bench: BrokerBench, limit: int | None = None, encoding: str = "auto") -> dict[str, Any]:
    queue = bench.broker.vhosts["/"].topology.queues["q"]
    [entry] = queue.entries
    return show_message(bench.server, queue, entry, 3, encoding, limit)


def test_a_message_of_amqp_10_is_shown_with_the_names_of_amqp_091(
    bench: BrokerBench, client: Client091
) -> None:
    content = content10(
        {"x-own": ["a"], "x-basic-type": "t", "x-cc": ["k"]},
        {"kind": 1, "blob": b"\xff"},
        True,
        7,
        content_type=Symbol("text/plain"),
        subject="unknown there",
        reply_to="/queues/back",
        group_id="g",
    )
    put(bench, content + FOOT)
    assert shown(bench) == {
        "payload_bytes": 4,
        "redelivered": False,
        "exchange": "",
        "routing_key": "q",
        "message_count": 3,
        "protocol": "amqp-1.0",
        "properties": {
            "content_type": "text/plain",
            "delivery_mode": 2,
            "priority": 7,
            "reply_to": "back",
            "type": "t",
            "app_id": "g",
            "headers": {"kind": 1, "blob": "\\xff", "x-own": ["a"], "CC": ["k"]},
        },
        "payload": "body",
        "payload_encoding": "string",
    }
    assert shown(bench, 2, "base64")["payload"] == "Ym8="


def test_a_message_of_amqp_091_says_so(bench: BrokerBench, client: Client091) -> None:
    client.publish("q", b"hello")
    found = shown(bench, 3)
    assert (found["protocol"], found["payload"], found["payload_bytes"]) == ("amqp-0-9-1", "hel", 5)


@pytest.mark.parametrize("on_disk", [False, True])
@pytest.mark.parametrize("limit", [0, 1, 7000, None])
@pytest.mark.parametrize(
    ("sections", "payload", "kind"),
    [
        (data(TWO[:5000]) + data(TWO[5000:]) + FOOT, TWO, None),
        (described(VALUE, b"\xb0\x00\x20\x00\x00" + TWO), None, "amqp-1.0"),
        (described(SEQUENCE, b"\x45") * 300_000, None, "amqp-1.0"),
        (described(DATA, b"\xa1\x00") + TWO, None, "amqp-1.0"),
    ],
)
def test_a_large_body_is_shown_as_consumers_get_it(
    bench: BrokerBench,
    client: Client091,
    sections: bytes,
    payload: bytes | None,
    kind: str | None,
    limit: int | None,
    on_disk: bool,
) -> None:
    put_large(bench, sections, content10({"x-own": 1}, body=b""), on_disk=on_disk)
    found = shown(bench, limit, "base64")
    assert found["payload_bytes"] == len(sections)
    assert found["properties"].get("type") == kind
    assert found["properties"]["headers"] == {"x-own": 1}
    assert base64.b64decode(found["payload"]) == (payload or sections)[:limit]


def test_a_large_body_of_amqp_091_is_shown_too(bench: BrokerBench, client: Client091) -> None:
    client.publish("q", TWO)
    found = shown(bench, 70_000)
    assert (found["payload_bytes"], found["payload_encoding"]) == (len(TWO), "base64")


def test_more_than_an_answer_holds_is_refused(bench: BrokerBench, client: Client091) -> None:
    put_large(bench, data(bytes(BYTES_MAX)))
    with pytest.raises(ApiError, match="ask for less with 'truncate'"):
        shown(bench)
    assert shown(bench, 5)["payload"] == "\0" * 5
