"""The events of one message, of its origin, and of its dead letters and copies."""

from __future__ import annotations

from collections.abc import Set
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

STEPS_MAX: Final = 32


def find_uids(events: DataFrame, message_id: str) -> set[int]:
    """Return the numbers of the messages with a message-id."""
    wanted = (F.col("message_id") == message_id) & F.col("msg_uid").isNotNull()
    return {int(row["msg_uid"]) for row in events.where(wanted).select("msg_uid").distinct().collect()}


def find_family(events: DataFrame, uids: Set[int]) -> set[int]:
    """Return the messages with their origins and their copies, found in STEPS_MAX steps at most."""
    known = set(uids)
    copies = events.where((F.col("op") == "enqueue") & F.col("origin_uid").isNotNull())
    new = known
    for _ in range(STEPS_MAX):
        listed = list(new)
        either = F.col("msg_uid").isin(listed) | F.col("origin_uid").isin(listed)
        pairs = copies.where(either).select("msg_uid", "origin_uid").distinct().collect()
        new = {int(uid) for pair in pairs for uid in pair} - known
        known |= new
        if not new:
            break
    return known


def lineage(events: DataFrame, uids: Set[int]) -> DataFrame:
    """Return all events of these messages and their family, in order."""
    return events.where(F.col("msg_uid").isin(list(find_family(events, uids)))).orderBy("ts", "node", "seq")


def format_event(row: dict[str, Any]) -> str:
    """Return an event of `lineage` as a line."""
    parts = [f"{row['ts']:%Y-%m-%d %H:%M:%S.%f}", f"message {row['msg_uid']}", row["op"]]
    if row["reason"]:
        parts.append(f"({row['reason']})")
    if row["queue"] is not None:
        parts.append(f"queue '{row['queue']}' in '{row['vhost']}'")
    words = {"origin_uid": "made of", "peer_queue": "to", "routing_key": "with key", "consumer": "consumer"}
    parts += [f"{word} {row[name]}" for name, word in words.items() if row[name] not in (None, "")]
    if row["delivery_count"]:
        parts.append(f"delivered {row['delivery_count']} times")
    return " ".join(parts)
