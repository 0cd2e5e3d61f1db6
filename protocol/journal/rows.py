"""Events of a journal as people and programs read them: records with names in place of numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from protocol.journal import records as r
from protocol.journal.decoder import Block, Decoder, Names, Record
from protocol.journal.names import ABSENT, ACTORS

_NO_ACTOR: Final = (ABSENT,) * 6
WITH_QUANTITY: Final = frozenset(
    {r.PURGE, r.QUEUE_DELETE, r.DECLARE, r.CHECKPOINT, r.CONFIRM, r.LOST, r.ROLLBACK, r.TRIM, r.FORWARD}
)
"""The operations whose records have a quantity instead of a size; also `recover` without a message."""

WITHOUT_SIZE: Final = frozenset({r.GAP, r.LEVEL, r.START, r.CHANGE})
"""The operations that have no size."""

ADDING: Final = frozenset({r.ENQUEUE, r.APPEND})
"""The operations that add a message to a queue, and that may have an origin."""

WITH_RANGE: Final = frozenset({r.PURGE, r.TRIM})
"""The operations on a range of places."""

WITH_UNACKED: Final = frozenset({r.CHECKPOINT, r.ROLLBACK})
"""The operations with a number of unacknowledged messages."""

WITH_MESSAGE_ID: Final = frozenset({r.ENQUEUE, r.APPEND, r.UNROUTABLE, r.REFUSE})
"""The operations whose text is a message-id."""

WITH_TEXT: Final = frozenset({r.GAP, r.START, r.CHANGE, r.ROLLBACK, r.FORWARD})
"""The operations with another text."""

TO_A_QUEUE: Final = r.DEAD_LETTER
"""The operation whose place is another queue."""


class EventRow(NamedTuple):
    """An event. Fields that do not apply are None; times are in microseconds since 1970.

    `uid` is the message, `origin` the message from which it was made. `qpos`: the place in the queue;
    `first_qpos`: the beginning of a range. `queue_id` differs between a queue and an earlier queue of the
    same name. `quantity` of a `gap`: the number of seqs directly before the gap that may be missing; None if
    unknown. `request`: the request of the HTTP API that an operator has sent.
    """

    node: str
    seq: int
    ts: int
    op: str
    reason: str | None
    vhost: str | None
    queue: str | None
    queue_id: int | None
    msg_uid: int | None
    origin_uid: int | None
    qpos: int | None
    first_qpos: int | None
    peer_queue: str | None
    exchange: str | None
    routing_key: str | None
    user: str | None
    conn: str | None
    channel: int | None
    consumer: str | None
    size: int | None
    quantity: int | None
    unacked: int | None
    delivery_count: int
    persistent: bool
    redelivered: bool
    auto_ack: bool
    message_id: str | None
    text: str | None
    address: str | None = None
    request: str | None = None


def rows(decoder: Decoder) -> Iterator[EventRow]:
    """Iterate over the events of a file. Damaged parts are skipped; see `Decoder.holes`."""
    node = decoder.header.node
    for block in decoder.blocks():
        yield from block_rows(node, block, decoder.names)


def block_rows(node: str, block: Block, names: Names) -> Iterator[EventRow]:
    """Iterate over the events of a block."""
    for record, text in zip(block, block.texts(), strict=True):
        yield _row(node, record, text.decode(errors="replace"), names)


def _row(node: str, record: Record, text: str, names: Names) -> EventRow:
    op = record.op
    vhost, queue, number = _fields(names, record.queue, 3)
    place = _fields(names, record.place, 2)
    kind, actor = names.get(record.actor, (0, ()))
    conn, channel, user, consumer, address, request = (
        None if at == ABSENT else actor[at] for at in ACTORS.get(kind, _NO_ACTOR)
    )
    counts = (
        op in WITH_QUANTITY or (op == r.RECOVER and record.uid == 0) or (op == r.GAP and record.other != 0)
    )
    to_queue = op == TO_A_QUEUE
    routed = record.place != 0 and not to_queue
    return EventRow(
        node,
        record.seq,
        record.ts,
        r.OPS[op] if op < len(r.OPS) else f"op {op}",
        (r.REASONS[record.reason] if record.reason < len(r.REASONS) else f"reason {record.reason}") or None,
        vhost,
        queue,
        None if number is None else int(number),
        record.uid or None,
        (record.other or None) if op in ADDING else None,
        None if record.qpos < 0 else record.qpos,
        record.other if op in WITH_RANGE else None,
        _fields(names, record.place, 3)[1] if to_queue else None,
        place[0] if routed else None,
        place[1] if routed else None,
        user or None,
        conn or None,
        int(channel) if channel else None,
        consumer,
        None if counts or op in WITHOUT_SIZE else record.size,
        record.size if counts else None,
        record.other if op in WITH_UNACKED else None,
        record.deliveries,
        bool(record.flags & r.PERSISTENT),
        bool(record.flags & r.REDELIVERED),
        bool(record.flags & r.AUTO_ACK),
        text if op in WITH_MESSAGE_ID and text else None,
        text if op in WITH_TEXT and text else None,
        address or None,
        request or None,
    )


def _fields(names: Names, number: int, count: int) -> tuple[str | None, ...]:
    """Return the fields of a name; all None for number 0 or for a number that the file has not defined."""
    known = names.get(number)
    return (None,) * count if known is None or len(known[1]) != count else known[1]
