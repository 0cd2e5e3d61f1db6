"""`transport` = `amqp` with a slow broker: a slow stream is not an empty one."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from pamqp import base, commands

from pipeline.connector import foreign_streams
from pipeline.connector.batches import read_range
from pipeline.connector.choices import OptionError
from pipeline.connector.link import encode_method
from pipeline.connector.offsets import Place, Range
from pipeline.connector.options import source_options
from pipeline.connector.plan import Progress, Slice, plan_batch
from pipeline.connector.schema import body_type, source_schema
from pipeline.connector.server import ServerError
from pipeline.connector.streams import DataLossError
from protocol.amqp091 import constants as c

ROWS = 2000
LATE_S = 1.0
TIMEOUT_S = 20.0


class SlowLink:
    """A link to a broker with a stream.

    `late`: seconds until its messages come; `declared_count`: its count; `last`: how many its last chunk has;
    `waits`: how long it has been waited for nothing, each time.
    """

    late = LATE_S
    declared_count = 0
    rows = ROWS
    last = 10
    product = "another"
    waits: list[float]

    def __init__(self, _: object) -> None:
        self._frames: Iterator[tuple[int, bytes]] = iter(())
        self._wait = self.late

    def call(self, method: base.Frame) -> base.Frame | None:
        """The stream's count, or nothing that is looked at."""
        if isinstance(method, commands.Queue.Declare):
            assert method.passive
            return commands.Queue.DeclareOk("s", self.declared_count, 0)
        if isinstance(method, commands.Basic.Consume):
            spec: Any = (method.arguments or {})[foreign_streams.OFFSET]
            first = {"first": 0, "last": max(self.rows - self.last, 0)}.get(spec, spec)
            self._frames = (frame for offset in range(first, self.rows) for frame in message(offset))
        return None

    def frame(self, timeout: float) -> tuple[int, bytes] | None:
        """Return the next frame, if it arrives in time."""
        self._wait -= timeout
        if self._wait > 0:
            self.waits.append(timeout)
            return None
        self._wait = 0
        found = next(self._frames, None)
        if found is None:
            self.waits.append(timeout)
        return found

    def send(self, data: bytes) -> None:
        """Whatever is acknowledged."""

    def drop(self) -> None:
        """The end."""


def message(offset: int) -> Iterator[tuple[int, bytes]]:
    """The frames of a message without a body."""
    deliver = commands.Basic.Deliver("t", offset + 1, False, "", "s")
    yield c.FRAME_METHOD, encode_method(deliver)[7:-1]
    header = commands.Basic.Properties(headers={foreign_streams.OFFSET: offset})
    flags = header.marshal()
    yield c.FRAME_HEADER, b"\x00\x3c\x00\x00" + bytes(8) + flags


@pytest.fixture
def link(monkeypatch: pytest.MonkeyPatch) -> type[SlowLink]:
    class Here(SlowLink):
        """A link whose figures belong to a single test."""

        waits: list[float] = []  # noqa: RUF012 (each test has its own)

    monkeypatch.setattr(foreign_streams, "connect", Here)
    return Here


def options(streaming: bool, **more: object) -> Any:
    given = {"url": "amqp://h", "subscribe": "s", "transport": "amqp", "requestTimeoutMs": 1000 * TIMEOUT_S}
    texts = {name: str(value).removesuffix(".0") for name, value in (given | more).items()}
    return source_options(texts, streaming=streaming)


def at(offset: int) -> dict[str, Any]:
    return {"v": 1, "q": {"s": {"0": offset}}, "id": {"s": {"0": ""}}}


@pytest.mark.parametrize(("delivered", "late"), [(0, LATE_S), (ROWS, TIMEOUT_S - 1)], ids=["untold", "told"])
def test_all_of_a_slow_stream_is_read(link: type[SlowLink], delivered: int, late: float) -> None:
    link.declared_count, link.late = delivered, late
    (found,) = plan_batch(options(False))
    assert (found.start, found.end) == (0, ROWS)
    assert Progress(options(True, startingOffsets="latest")).initial().json() == at(ROWS)


def test_a_stream_with_messages_that_do_not_come_is_an_error(link: type[SlowLink]) -> None:
    link.declared_count, link.late = ROWS, TIMEOUT_S + 1
    with pytest.raises(ServerError, match="stream 's' has 2000 messages, and gave none within 20 s"):
        plan_batch(options(False))


def test_a_stream_that_stops_after_its_first_rows_is_waited_for(
    link: type[SlowLink], monkeypatch: pytest.MonkeyPatch
) -> None:
    link.declared_count, link.late = ROWS, 0
    before = link.frame

    def slow(self: SlowLink, timeout: float) -> tuple[int, bytes] | None:
        return before(self, timeout) if timeout > foreign_streams.QUIET_S else None

    monkeypatch.setattr(link, "frame", slow)
    (found,) = plan_batch(options(False))
    assert found.end == ROWS


def test_rows_that_retention_has_removed_are_not_waited_for(link: type[SlowLink]) -> None:
    link.declared_count, link.late = ROWS + 5000, 0  # before retention has taken some
    (found,) = plan_batch(options(False))
    assert found.end == ROWS
    assert link.waits == [foreign_streams.LOOK_S, foreign_streams.QUIET_S]


def test_the_end_of_a_stream_that_grows_is_not_waited_for(
    link: type[SlowLink], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    before = link.frame

    def frame(self: SlowLink, timeout: float) -> tuple[int, bytes] | None:
        now[0] += 0.1
        return before(self, timeout)

    monkeypatch.setattr(link, "frame", frame)
    monkeypatch.setattr(foreign_streams, "time", SimpleNamespace(monotonic=lambda: now[0]))
    link.rows, link.last, link.late, link.declared_count = 10_000, 9000, 0, 20_000
    (found,) = plan_batch(options(False))
    assert 1000 < found.end < 1020
    assert now[0] < 2 * foreign_streams.LOOK_S
    now[0] = 0
    (found,) = plan_batch(options(False, failOnDataLoss="false", endingOffsets='{"s": {"0": 20000}}'))
    assert 1020 < found.end < 1200
    assert TIMEOUT_S < now[0] < TIMEOUT_S + 2 * foreign_streams.LOOK_S


@pytest.mark.parametrize("fail_on_loss", [True, False])
def test_a_planned_batch_is_read_as_it_was_planned(link: type[SlowLink], fail_on_loss: bool) -> None:
    mine = Progress(options(True, failOnDataLoss=str(fail_on_loss).lower()))
    link.late = foreign_streams.EMPTY_S + 1  # longer than anything is waited for here
    (part,) = mine.slices(at(1000), at(2000))
    assert (part.wanted.place, part.wanted.start, part.wanted.end) == (Place("s", 0), 1000, 2000)
    assert mine.next_batch(at(2000), None) == at(2000)


def test_a_stream_that_was_declared_again_has_nothing_of_a_planned_batch(
    link: type[SlowLink], caplog: pytest.LogCaptureFixture
) -> None:
    link.rows, link.late = 50, 0
    with pytest.raises(DataLossError, match="ends before offset 50, not 2000"):
        Progress(options(True)).slices(at(1000), at(2000))
    assert TIMEOUT_S in link.waits, "it may be slow"
    with pytest.raises(DataLossError, match="ends before offset 50, not 2000"):
        Progress(options(True)).next_batch(at(2000), None)
    mine = Progress(options(True, failOnDataLoss="false", pollIntervalMs=1))
    assert mine.slices(at(1000), at(2000)) == []
    assert "ends before offset 50, not 2000" in caplog.text
    following = mine.next_batch(at(2000), None)
    assert following == at(50)
    link.rows, link.waits[:] = 60, []
    assert mine.next_batch(following, None) == at(60)
    assert TIMEOUT_S not in link.waits


def test_a_batch_ends_with_a_stream_that_ends_before_what_is_asked_for(
    link: type[SlowLink], caplog: pytest.LogCaptureFixture
) -> None:
    link.rows, link.late = 1000, 0
    asked = {"endingOffsets": '{"s": {"0": 2000}}'}
    with pytest.raises(DataLossError, match="ends before offset 1000, not 2000"):
        plan_batch(options(False, **asked))
    (found,) = plan_batch(options(False, failOnDataLoss="false", **asked))
    assert (found.start, found.end) == (0, 1000)
    assert "ends before offset 1000, not 2000" in caplog.text
    assert TIMEOUT_S in link.waits


def test_messages_that_do_not_come_are_left_out_if_that_is_wanted(
    link: type[SlowLink], caplog: pytest.LogCaptureFixture
) -> None:
    link.rows = 1500
    part = Slice(Range(Place("s", 0), "", 1000, 2000), None)
    schema = source_schema(body_type("binary", None), False, False)
    with pytest.raises(ServerError, match="stream 's' gave no message 1500 within 20 s"):
        list(read_range(options(True), schema, part))
    batches = list(read_range(options(True, failOnDataLoss="false"), schema, part))
    assert sum(batch.num_rows for batch in batches) == 500
    assert "500 messages are missing of partition 0 of 's' from 1000 to 2000" in caplog.text
    assert link.waits[-1] == TIMEOUT_S


def test_planning_does_not_wait_for_a_missing_stream(link: type[SlowLink]) -> None:
    link.rows = link.late = 0
    mine = Progress(options(True, startingOffsets='{"s": {"0": 23}}', pollIntervalMs=1))
    start = mine.initial().json()
    assert mine.next_batch(start, None) == start == at(23)
    assert TIMEOUT_S not in link.waits


def test_a_stream_that_is_empty_is_waited_for_once(
    link: type[SlowLink], monkeypatch: pytest.MonkeyPatch
) -> None:
    link.rows = 0
    mine = Progress(options(True, pollIntervalMs=1))
    start = mine.initial().json()
    monkeypatch.setattr(foreign_streams, "EMPTY_S", None)
    assert mine.next_batch(start, None) == start == at(0)
    link.rows, link.late = 10, 0
    assert mine.next_batch(start, None) == at(10)


def test_no_reader_has_its_offsets_kept(link: type[SlowLink]) -> None:
    with pytest.raises(OptionError, match="'readerName' is not for transport 'amqp'"):
        Progress(options(True, readerName="r")).initial()
