"""`transport` = `amqp` and a broker that takes its time: a slow stream is not an empty one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pamqp import base, commands

from pipeline.connector import plain
from pipeline.connector.choices import OptionError
from pipeline.connector.link import framed
from pipeline.connector.offsets import Place
from pipeline.connector.options import source_options
from pipeline.connector.progress import Progress
from pipeline.connector.reading import of_batch
from pipeline.connector.server import ServerError
from protocol.amqp091 import constants as c

ROWS = 2000
LATE_S = 1.0
TIMEOUT_S = 20.0


class SlowLink:
    """A link to a broker with a stream. `late`: seconds until its messages come; `told`: its count."""

    late = LATE_S
    told = 0
    rows = ROWS

    def __init__(self, _: object) -> None:
        self._frames: Iterator[tuple[int, bytes]] = iter(())
        self._wait = self.late

    def call(self, method: base.Frame) -> base.Frame | None:
        """The stream's count, or nothing that is looked at."""
        if isinstance(method, commands.Queue.Declare):
            assert method.passive
            return commands.Queue.DeclareOk("s", self.told, 0)
        if isinstance(method, commands.Basic.Consume):
            spec: Any = (method.arguments or {})[plain.OFFSET]
            first = {"first": 0, "last": self.rows - 10}.get(spec, spec)
            self._frames = (frame for offset in range(first, self.rows) for frame in message(offset))
        return None

    def frame(self, timeout: float) -> tuple[int, bytes] | None:
        """The next one, if it comes in time."""
        self._wait -= timeout
        if self._wait > 0:
            return None
        self._wait = 0
        return next(self._frames, None)

    def send(self, data: bytes) -> None:
        """Whatever is acknowledged."""

    def drop(self) -> None:
        """The end."""


def message(offset: int) -> Iterator[tuple[int, bytes]]:
    """The frames of a message without a body."""
    deliver = commands.Basic.Deliver("t", offset + 1, False, "", "s")
    yield c.FRAME_METHOD, framed(deliver)[7:-1]
    header = commands.Basic.Properties(headers={plain.OFFSET: offset})
    flags = header.marshal()
    yield c.FRAME_HEADER, b"\x00\x3c\x00\x00" + bytes(8) + flags


@pytest.fixture
def link(monkeypatch: pytest.MonkeyPatch) -> type[SlowLink]:
    class Here(SlowLink):
        """Its figures are those of one test."""

    monkeypatch.setattr(plain, "Link", Here)
    return Here


def options(streaming: bool, **more: object) -> Any:
    given = {"url": "amqp://h", "subscribe": "s", "transport": "amqp", "requestTimeoutMs": 1000 * TIMEOUT_S}
    texts = {name: str(value).removesuffix(".0") for name, value in (given | more).items()}
    return source_options(texts, streaming=streaming)


def at(offset: int) -> dict[str, Any]:
    return {"v": 1, "q": {"s": {"0": offset}}, "id": {"s": {"0": ""}}}


@pytest.mark.parametrize(("told", "late"), [(0, LATE_S), (ROWS, TIMEOUT_S - 1)], ids=["untold", "told"])
def test_all_of_a_slow_stream_is_read(link: type[SlowLink], told: int, late: float) -> None:
    link.told, link.late = told, late
    (found,) = of_batch(options(False))
    assert (found.start, found.end) == (0, ROWS)
    assert Progress(options(True, startingOffsets="latest")).initial().json() == at(ROWS)


def test_a_stream_with_messages_that_do_not_come_is_an_error(link: type[SlowLink]) -> None:
    link.told, link.late = ROWS, TIMEOUT_S + 1
    with pytest.raises(ServerError, match="stream 's' has 2000 messages, and gave none within 20 s"):
        of_batch(options(False))


def test_a_stream_that_begins_and_does_not_go_on_is_waited_for(
    link: type[SlowLink], monkeypatch: pytest.MonkeyPatch
) -> None:
    link.told, link.late = ROWS, 0
    before = link.frame

    def slow(self: SlowLink, timeout: float) -> tuple[int, bytes] | None:
        return before(self, timeout) if timeout > LATE_S else None

    monkeypatch.setattr(link, "frame", slow)
    (found,) = of_batch(options(False))
    assert found.end == ROWS


@pytest.mark.parametrize("fail_on_loss", [True, False])
def test_a_planned_batch_is_read_as_it_was_planned(link: type[SlowLink], fail_on_loss: bool) -> None:
    mine = Progress(options(True, failOnDataLoss=str(fail_on_loss).lower()))
    link.late = plain.EMPTY_S + 1  # longer than anything is waited for here
    (part,) = mine.slices(at(1000), at(2000))
    assert (part.wanted.place, part.wanted.start, part.wanted.end) == (Place("s", 0), 1000, 2000)


def test_a_stream_that_is_empty_is_waited_for_once(
    link: type[SlowLink], monkeypatch: pytest.MonkeyPatch
) -> None:
    link.rows = 0
    mine = Progress(options(True, pollIntervalMs=1))
    start = mine.initial().json()
    monkeypatch.setattr(plain, "EMPTY_S", None)
    assert mine.next_batch(start, None) == start == at(0)
    link.rows, link.late = 10, 0
    assert mine.next_batch(start, None) == at(10)


def test_no_reader_has_its_offsets_kept(link: type[SlowLink]) -> None:
    with pytest.raises(OptionError, match="'readerName' is not for transport 'amqp'"):
        Progress(options(True, readerName="r")).initial()
