"""Journals made by hand."""

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from broker.journal.reader import JournalError, JournalReader
from protocol.journal import records as r
from protocol.journal.decoder import Decoder
from protocol.journal.encoder import Encoder
from protocol.journal.names import LINK, OPERATOR, QUEUE, ROUTE, SESSION, Name
from protocol.journal.rows import EventRow, rows
from tests.support.daemon.daemon import PATIENCE_S

NODE = "n-1"
STARTED = 1_795_492_079_000_000  # microseconds since 1970
EVENTS_OF_LIFE: Final = 3
OF_THE_BROKER: Final = ("start", "change")
"""Operations that concern no message and no queue, and that each start of a broker has."""


class EventWriter:
    """Writes events to an encoder, a microsecond apart."""

    def __init__(self, encoder: Encoder | None = None) -> None:
        self.encoder = Encoder(NODE, 1) if encoder is None else encoder
        self.time = STARTED
        self.queue = Name(1, QUEUE, ("/", "q", "7"))
        self.other = Name(2, QUEUE, ("/", "other", "8"))
        self.route = Name(3, ROUTE, ("", "q"))
        self.publisher = Name(4, SESSION, ("1.2.3.4:5 -> 6", "1", "guest", "1.2.3.4:5"))
        self.taker = Name(5, LINK, ("ctag", "1.2.3.4:5 -> 6", "2", "guest", "1.2.3.4:5"))
        self.operator = Name(6, OPERATOR, ("boss", "9.9.9.9:1", "DELETE /api/queues/%2F/q/contents"))

    def tell(
        self,
        op: int,
        uid: int = 0,
        place: int = -1,
        other: int = 0,
        size: int = 0,
        reason: str = "",
        text: bytes = b"",
        flags: int = 0,
    ) -> None:
        queue: Name | None = self.queue
        to, actor = None, None
        if op in (r.ENQUEUE, r.UNROUTABLE):
            to, actor = self.route, self.publisher
        elif op == r.DEAD_LETTER:
            to = self.other
        elif op in (r.ACK, r.DELIVER, r.REQUEUE, r.REJECT):
            actor = self.taker
        elif op == r.CONFIRM:
            queue, actor = None, self.publisher
        elif op == r.GAP:
            queue = None
            other = other or self.encoder.seq - size
        elif op in (r.PURGE, r.CHANGE, r.REMOVE):
            actor = self.operator
        self.time += 1
        number = r.reason_number(reason)
        self.encoder.record(self.time, op, uid, place, other, queue, to, actor, size, flags, number, 0, text)

    def life_of(self, uid: int) -> None:
        """A message comes, is delivered and leaves."""
        self.tell(r.ENQUEUE, uid, uid, size=10, text=b"m%d" % uid, flags=r.PERSISTENT)
        self.tell(r.DELIVER, uid, uid, size=10)
        self.tell(r.ACK, uid, uid, size=10)

    def file(self) -> bytes:
        """Return all events as a single file."""
        return self.encoder.header(self.time) + self.encoder.take()


def file_of(scribe: EventWriter, lives: int) -> bytes:
    """Return a file with the lives of `lives` messages, each in a block of its own."""
    encoder = scribe.encoder
    data = encoder.header(scribe.time)
    for _ in range(lives):
        scribe.life_of(encoder.seq)
        data += encoder.take()
    encoder.end_file()
    return data


def rows_of(data: bytes) -> list[EventRow]:
    """The events of a file, which is whole."""
    decoder = Decoder(data)
    found = list(rows(decoder))
    assert not decoder.holes
    return found


def out_of_turn(events: Iterable[EventRow]) -> list[str]:
    """Steps of a journal of deliveries and acknowledgements by others than who had the message."""
    holders: dict[tuple[object, object], tuple[object, ...] | None] = {}
    full: set[object] = set()
    wrong = []
    for row in events:
        key = (row.queue_id, row.msg_uid)
        actor = (row.conn, row.channel, row.consumer)
        if row.op in ("declare", "level", "checkpoint", "recover") and row.msg_uid is None:
            (full.add if row.reason == "full" else full.discard)(row.queue_id)
        if row.op in ("deliver", "stage"):
            if holders.get(key, actor) not in (None, actor):
                wrong.append(f"{row.seq}: {row.op} to {actor}, {holders[key]} has it")
            holders[key] = actor
        elif row.op in ("ack", "requeue"):
            holder = holders.pop(key, None)
            if holder != actor and (holder is not None or (row.op == "ack" and row.queue_id in full)):
                wrong.append(f"{row.seq}: {row.op} by {actor}, {holder} has it")
        elif row.op == "recover":
            holders.pop(key, None)
    return wrong


def wait_for(folder: Path, op: str, count: int = 1) -> None:
    """Wait until the journal has `count` events of this operation, which are written with a delay."""
    late = time.monotonic() + PATIENCE_S
    while sum(row.op == op for row in _rows(folder)) < count:
        assert time.monotonic() < late, f"no {op}: {_rows(folder)}"
        time.sleep(0.02)


def _rows(folder: Path) -> list[EventRow]:
    try:
        return list(JournalReader(folder).rows())
    except JournalError:  # nothing has been written yet
        return []


def write_file(folder: Path, data: bytes, ended: bool = True) -> Path:
    """A file of a journal in `folder`, by its own name."""
    live = folder / "live"
    live.mkdir(parents=True, exist_ok=True)
    header = Decoder(data).header
    path = live / f"{header.node}-{header.first:020d}.ajl{'' if ended else '.open'}"
    path.write_bytes(data)
    return path
