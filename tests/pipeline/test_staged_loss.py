"""A reader of an ordinary queue when the queue, its reader or its messages are missing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from pipeline.connector.batches import read_range
from pipeline.connector.options import SourceOptions, source_options
from pipeline.connector.plan import Progress
from pipeline.connector.schema import body_type, source_schema
from pipeline.connector.server import close_idle
from pipeline.connector.streams import DataLossError
from pipeline.errors import PipelineError
from tests.support.admin.api import Api
from tests.support.pipeline.broker import Broker

KINDS = {b"lasting": 2, b"passing": 1}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    broker = Broker(tmp_path_factory.mktemp("broker"))
    yield broker
    close_idle()
    broker.stop()


@pytest.fixture
def queue(broker: Broker, request: pytest.FixtureRequest) -> str:
    """A queue of the test's own."""
    name: str = request.node.name
    broker.declare(name)
    return name


def options(broker: Broker, queue: str, fail_on_loss: bool) -> SourceOptions:
    options = {"subscribe": queue, "readerName": "r", "failOnDataLoss": str(fail_on_loss).lower()}
    return source_options(broker.options_of_spark | options, streaming=True)


def taken(options: SourceOptions, mine: Progress, start: dict[str, Any], end: dict[str, Any]) -> list[Any]:
    """Offset and body of each message of a batch."""
    schema = source_schema(body_type("binary", None), False, False)
    batches = [batch for part in mine.slices(start, end) for batch in read_range(options, schema, part)]
    return [
        (row["offset"], row["value"])
        for batch in batches
        for row in batch.select(["offset", "value"]).to_pylist()
    ]


def position(found: dict[str, Any], queue: str) -> int:
    offset: int = found["q"][queue]["0"]
    return offset


def test_transient_messages_that_a_restart_has_taken_are_left_out(broker: Broker, queue: str) -> None:
    for body in (b"lasting", b"passing", b"passing", b"lasting", b"passing"):
        broker.publish(queue, [body], delivery_mode=KINDS[body])
    mine = Progress(options(broker, queue, True))
    start = mine.initial().json()
    end = mine.next_batch(start, None)
    broker.restart(kill=True)
    careful = options(broker, queue, True)
    with pytest.raises(DataLossError, match="has lost 3 transient messages"):
        taken(careful, Progress(careful), start, end)
    tolerant = options(broker, queue, False)
    mine = Progress(tolerant)
    assert taken(tolerant, mine, start, end) == [(0, b"lasting"), (3, b"lasting")]
    mine.acknowledge(end)
    broker.publish(queue, [b"new"])
    more = mine.next_batch(end, None)
    assert taken(tolerant, mine, end, more) == [(5, b"new")]


def take_away(broker: Broker, queue: str, lost: str) -> None:
    """Delete the reader, or the queue and declare it again."""
    if lost == "reader":
        with closing(Api(broker.daemon.admin)) as api:
            api.delete("staged", "/", queue, "r")
        return
    with broker.channel() as channel:
        channel.queue_delete(queue)
    broker.declare(queue)


@pytest.mark.parametrize("lost", ["queue", "reader"])
def test_newly_staged_messages_are_read_and_not_removed_before(broker: Broker, queue: str, lost: str) -> None:
    broker.publish(queue, [b"old"] * 5)
    mine = Progress(options(broker, queue, True))
    end = mine.next_batch(mine.initial().json(), None)
    assert mine.next_batch(end, None) == end
    broker.publish(queue, [b"unread"] * 2)
    planned = mine.next_batch(end, None)
    assert position(planned, queue) == 7
    take_away(broker, queue, lost)
    if lost == "queue":
        broker.publish(queue, [b"unread"] * 2)
    broker.publish(queue, [b"new"] * 8)
    with pytest.raises(DataLossError, match=re.escape(f"'{queue}' was deleted and declared again")):
        Progress(options(broker, queue, True)).next_batch(end, None)
    tolerant = options(broker, queue, False)
    mine = Progress(tolerant)
    assert taken(tolerant, mine, end, planned) == []
    mine.acknowledge(planned)
    more = mine.next_batch(planned, None)
    bodies = [body for _, body in taken(tolerant, mine, planned, more)]
    assert bodies == [b"unread"] * 2 + [b"new"] * 8


@pytest.mark.parametrize("lost", ["queue", "reader"])
@pytest.mark.parametrize("committed", [False, True])
def test_a_running_query_continues_with_messages_that_are_staged_again(
    broker: Broker, queue: str, lost: str, committed: bool
) -> None:
    broker.declare(f"{queue} too")
    tolerant = options(broker, f"{queue},{queue} too", False)
    mine = Progress(tolerant)
    broker.publish(queue, [b"old"] * 5)
    end = mine.next_batch(mine.initial().json(), None)
    assert mine.next_batch(end, None) == end
    for each in (queue, f"{queue} too"):
        take_away(broker, each, lost)
    if committed:
        mine.acknowledge(end)
        assert taken(tolerant, mine, end, end) == []
    assert position(mine.next_batch(end, None), queue) == 0
    broker.publish(queue, [b"new"] * 3)
    more = mine.next_batch(end, None)
    assert taken(tolerant, mine, end, more) == [(0, b"new"), (1, b"new"), (2, b"new")]
    assert mine.next_batch(more, None) == more


@pytest.mark.parametrize("lost", ["queue", "reader"])
def test_a_running_query_fails_with_messages_that_are_staged_again(
    broker: Broker, queue: str, lost: str
) -> None:
    broker.publish(queue, [b"old"] * 5)
    mine = Progress(options(broker, queue, True))
    end = mine.next_batch(mine.initial().json(), None)
    take_away(broker, queue, lost)
    with pytest.raises(DataLossError, match=re.escape(f"'{queue}' was deleted and declared again")):
        mine.next_batch(end, None)


def test_a_reader_that_attaches_to_a_new_declaration_reads_it(broker: Broker, queue: str) -> None:
    broker.publish(queue, [b"old"] * 5)
    older, newer = (Progress(options(broker, queue, False)) for _ in range(2))
    end = older.next_batch(older.initial().json(), None)
    take_away(broker, queue, "queue")
    broker.publish(queue, [b"new"] * 3)
    more = newer.next_batch(end, None)
    with pytest.raises(PipelineError, match=re.escape(f"'r' of queue '{queue}' has been taken over")):
        older.next_batch(end, None)
    assert position(newer.next_batch(more, None), queue) == 3
