"""The life of one message, from journals, with its origin and its dead letters and copies."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from protocol.journal.rows import EventRow


def trace_message(
    rows: Callable[[], Iterable[EventRow]], message_id: str | None = None, uid: int | None = None
) -> list[EventRow]:
    """Return the events of the messages with this message-id or number, and of related messages.

    Related messages are dead letters and copies of a message, and the message that it was made of. `rows`
    returns all events, once for each step of the relation, as they may not fit into memory.
    """
    wanted = set() if uid is None else {uid}
    if message_id is not None:
        wanted = {row.msg_uid for row in rows() if row.message_id == message_id and row.msg_uid is not None}
    while wanted:
        events: list[EventRow] = []
        kin = set(wanted)
        for row in rows():
            if row.origin_uid in wanted and row.msg_uid is not None:
                kin.add(row.msg_uid)
            if row.msg_uid in wanted:
                events.append(row)
                if row.origin_uid is not None:
                    kin.add(row.origin_uid)
        if kin == wanted:
            return events
        wanted = kin
    return []


def format_event(row: EventRow) -> str:
    """Return an event as a line."""
    words = [f"{time_text(row.ts)} {row.seq:>10} {row.op:<13}"]
    if row.queue is not None:
        words.append(f"{row.vhost} {row.queue}" if row.vhost != "/" else row.queue)
    if row.msg_uid is not None:
        words.append(f"#{row.msg_uid}")
    for name in (
        "reason",
        "origin_uid",
        "qpos",
        "first_qpos",
        "peer_queue",
        "exchange",
        "routing_key",
        "message_id",
        "consumer",
        "conn",
        "channel",
        "user",
        "address",
        "request",
        "size",
        "quantity",
        "unacked",
        "delivery_count",
        "text",
    ):
        value = getattr(row, name)
        if value is not None and not (name == "delivery_count" and value == 0):
            words.append(f"{name}={value!r}" if isinstance(value, str) else f"{name}={value}")
    words += [name for name in ("persistent", "redelivered", "auto_ack") if getattr(row, name)]
    return " ".join(words)


def time_text(microseconds: int) -> str:
    """Return a time in UTC, with microseconds."""
    return datetime.fromtimestamp(microseconds / 1e6, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
