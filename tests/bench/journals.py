"""Sealed journals of any size with planted faults, made column by column; `tests.bench.audit` audits them.

Message k goes to queue k % queues; slot 3k is its enqueue. It is delivered `lag` messages later and acked
`lag` messages after that. A fault drops slots and puts rows in their place.
"""

from __future__ import annotations

import json
import random
from array import array
from collections.abc import Iterator
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

EPOCH: Final = 1_790_000_000_000_000  # microseconds since 1970
DAY: Final = 86_400_000_000
DEAD: Final = "dead"
DEAD_ID: Final = 999_999
COLUMNS: Final = {
    "node": pa.string(),
    "seq": pa.int64(),
    "ts": pa.timestamp("us", tz="UTC"),
    "op": pa.string(),
    "reason": pa.string(),
    "vhost": pa.string(),
    "queue": pa.string(),
    "queue_id": pa.int64(),
    "msg_uid": pa.int64(),
    "origin_uid": pa.int64(),
    "qpos": pa.int64(),
    "first_qpos": pa.int64(),
    "peer_queue": pa.string(),
    "exchange": pa.string(),
    "routing_key": pa.string(),
    "user": pa.string(),
    "conn": pa.string(),
    "channel": pa.int32(),
    "consumer": pa.string(),
    "size": pa.int64(),
    "quantity": pa.int64(),
    "unacked": pa.int64(),
    "delivery_count": pa.int32(),
    "persistent": pa.bool_(),
    "redelivered": pa.bool_(),
    "auto_ack": pa.bool_(),
    "message_id": pa.string(),
    "text": pa.string(),
}
ENQUEUE, DELIVER, ACK = range(3)
Fault = tuple[set[int], list[dict[str, Any]]]


class Planted(NamedTuple):
    """The expected findings: messages by kind, and no others. `events`: the number of written rows."""

    events: int
    uids: dict[str, set[int]]


class Plan:
    """The positions of the faults. `of_kind`: the number of each kind."""

    def __init__(self, events: int, of_kind: int, seed: int = 1) -> None:
        self.messages = events // 3
        self.queues = max(4, min(200, self.messages // 500))
        self.lag = self.queues
        self.restart = self.messages // 2  # before this message
        self.step = DAY // (3 * self.messages)
        chance = random.Random(seed)
        margin = 4 * self.lag
        early = iter(chance.sample(range(self.messages // 10, self.messages // 2 - margin), 4 * of_kind))
        late = iter(chance.sample(range(6 * self.messages // 10, 8 * self.messages // 10), 4 * of_kind))
        kinds = {"lost": early, "double_settled": early, "poison": late, "stuck_unacked": late}
        kinds |= {"undelivered": late, "forwarding_loss": early, "dead_lettered": early, "reordered": late}
        self.uids = {kind: {next(places) for _ in range(of_kind)} for kind, places in kinds.items()}

    def slot(self, message: int, phase: int) -> int:
        """Return the slot of an event of a message."""
        return 3 * (message + phase * self.lag) + phase

    def faults(self) -> dict[int, Fault]:
        """Return the dropped and replaced events, by slot of the inserted rows."""
        found: dict[int, Fault] = {}

        def put(slot: int, rows: list[dict[str, Any]]) -> None:
            found[slot] = ({slot}, rows)

        for k in self.uids["lost"] | self.uids["undelivered"]:
            put(self.slot(k, DELIVER), [])
            put(self.slot(k, ACK), [])
        for k in self.uids["stuck_unacked"]:
            put(self.slot(k, ACK), [])
        for k in self.uids["double_settled"]:
            put(self.slot(k, ACK), [self.row(k, "ack"), self.row(k, "ack")])
        for k in self.uids["poison"]:
            put(self.slot(k, DELIVER), [self.row(k, "deliver") | {"delivery_count": 9, "redelivered": True}])
        for k in self.uids["reordered"]:  # delivered when the next one of its queue already is
            put(self.slot(k, DELIVER), [])
            after = self.slot(k + self.queues, DELIVER)
            put(after, [self.row(k + self.queues, "deliver"), self.row(k, "deliver")])
        dies = {"reason": "rejected", "peer_queue": DEAD}
        for k in self.uids["forwarding_loss"]:
            put(self.slot(k, ACK), [self.row(k, "dead_letter") | dies])
        for k in self.uids["dead_lettered"]:
            put(self.slot(k, ACK), [self.row(k, "dead_letter") | dies, *self._dead(k)])
        return found

    def row(self, message: int, op: str) -> dict[str, Any]:
        """An event of a message."""
        queue = message % self.queues
        return {
            "op": op,
            "queue": f"orders.{queue}",
            "queue_id": queue + 1,
            "msg_uid": message + 1,
            "qpos": message,
            "conn": f"10.0.0.7:5{queue:04d} -> 5672",
            "channel": 1,
            "consumer": f"ctag.{queue}",
            "persistent": True,
            "delivery_count": 0,
            "redelivered": False,
        }

    def _dead(self, message: int) -> list[dict[str, Any]]:
        own = {"queue": DEAD, "queue_id": DEAD_ID, "msg_uid": self.messages + message + 1, "qpos": message}
        came = {
            "op": "enqueue",
            "reason": "dead_letter",
            "origin_uid": message + 1,
            "persistent": True,
            "size": 9,
        }
        return [own | came, own | {"op": "deliver"}, own | {"op": "ack"}]

    def checkpoint(self, message: int, op: str, reason: str, restarted: bool) -> list[dict[str, Any]]:
        """Return the counts of each queue before `message`: two unacknowledged ones, and earlier faults."""
        counts = [2 if message else 0] * self.queues
        changes = {"undelivered": 1, "stuck_unacked": 1} if restarted else {"lost": 1, "double_settled": -1}
        for kind, change in changes.items():
            for k in self.uids[kind]:
                if k + 2 * self.lag < message:
                    counts[k % self.queues] += change
        fact = {"op": op, "reason": reason, "persistent": False}
        rows = [
            fact | {"queue": f"orders.{queue}", "queue_id": queue + 1, "quantity": count}
            for queue, count in enumerate(counts)
        ]
        return [*rows, fact | {"queue": DEAD, "queue_id": DEAD_ID, "quantity": 0}]

    def restart_rows(self) -> list[dict[str, Any]]:
        """Return the rows of an orderly stop, and the recovered content of each queue: all but the lost."""
        rows = self.checkpoint(self.restart, "checkpoint", "shutdown", False)
        listed = range(self.restart - 2 * self.lag, self.restart)
        for end in self.checkpoint(self.restart, "recover", "full", True):
            own = [k for k in listed if k % self.queues + 1 == end["queue_id"]]
            rows += [self.row(k, "recover") for k in own]
            rows.append(end)
        again = range(self.restart - 2 * self.lag, self.restart - self.lag)  # their consumers were closed
        return rows + [self.row(k, "deliver") | {"redelivered": True} for k in again]


def write(folder: Path, events: int, of_kind: int, files: int = 20) -> Planted:
    """Write a sealed journal of about so many events, with so many faults of each kind."""
    plan = Plan(events, of_kind)
    faults = plan.faults()
    slots = 3 * plan.messages
    cuts = [*sorted({3 * (plan.messages * i // files) for i in range(files)} | {3 * plan.restart}), slots]
    seq = 1
    for start, end in pairwise(cuts):
        message = start // 3
        rows = plan.checkpoint(message, "checkpoint", "full", message > plan.restart) if message else []
        if not message:
            rows = plan.checkpoint(0, "declare", "full", False)
        elif message == plan.restart:
            rows = plan.restart_rows()
        table = pa.concat_tables([_rows(rows, start, plan), *_pieces(plan, faults, start, end)])
        table = table.filter(pc.or_kleene(pc.is_null(table["msg_uid"]), pc.greater(table["msg_uid"], 0)))
        count = table.num_rows
        table = table.set_column(1, "seq", _range(seq, seq + count))
        _write(table, folder, seq)
        seq += count
    kinds = (
        "lost",
        "double_settled",
        "poison",
        "stuck_unacked",
        "undelivered",
        "forwarding_loss",
        "reordered",
    )
    uids = {kind: {k + 1 for k in plan.uids[kind]} for kind in kinds}
    return Planted(seq - 1, uids)


def _pieces(plan: Plan, faults: dict[int, Fault], start: int, end: int) -> Iterator[Any]:
    """Yield the rows of slots, with the replaced ones."""
    base = _slots(plan, start, end)
    at = start
    for slot in sorted(each for each in faults if start <= each < end):
        yield base.slice(at - start, slot - at)
        rows = faults[slot][1]
        if rows:
            yield _rows(rows, slot, plan)
        at = slot + 1
    yield base.slice(at - start)


def _slots(plan: Plan, start: int, end: int) -> Any:
    """Return the rows of slots `start` to `end` without faults."""
    slots = _range(start, end)
    phase = pc.subtract(slots, pc.multiply(pc.divide(slots, 3), 3))
    message = pc.subtract(pc.divide(slots, 3), pc.multiply(phase, plan.lag))
    shown = pc.max_element_wise(message, 0)  # before the first are none, and `write` leaves them out
    queue = pc.subtract(shown, pc.multiply(pc.divide(shown, plan.queues), plan.queues))
    is_enqueue = pc.equal(phase, ENQUEUE)

    def when(mask: Any, value: Any) -> Any:
        return pc.if_else(mask, value, pa.scalar(None, value.type))

    def text(form: str) -> Any:
        words = pa.array([form.format(number) for number in range(plan.queues)])
        return words.take(queue.cast(pa.int32()))

    columns = {
        "op": pa.array(["enqueue", "deliver", "ack"]).take(phase.cast(pa.int32())),
        "queue": text("orders.{}"),
        "queue_id": pc.add(queue, 1),
        "msg_uid": pc.add(message, 1),
        "qpos": message,
        "exchange": when(is_enqueue, pa.repeat(pa.scalar("shop"), len(slots))),
        "routing_key": when(is_enqueue, text("order.{}")),
        "user": pa.repeat(pa.scalar("shop"), len(slots)),
        "conn": text("10.0.0.7:5{:04d} -> 5672"),
        "channel": pa.repeat(pa.scalar(1, pa.int32()), len(slots)),
        "consumer": when(pc.invert(is_enqueue), text("ctag.{}")),
        "size": pc.add(256, queue),
        "delivery_count": pa.repeat(pa.scalar(0, pa.int32()), len(slots)),
        "persistent": is_enqueue,
        "redelivered": pa.repeat(pa.scalar(False), len(slots)),
        "auto_ack": pa.repeat(pa.scalar(False), len(slots)),
        "ts": pc.add(EPOCH, pc.multiply(slots, plan.step)).cast(COLUMNS["ts"]),
    }
    return _table(columns, len(slots))


def _rows(rows: list[dict[str, Any]], slot: int, plan: Plan) -> Any:
    time = pa.scalar(EPOCH + slot * plan.step).cast(COLUMNS["ts"])
    columns = {
        name: pa.array([row.get(name) for row in rows], kind)
        for name, kind in COLUMNS.items()
        if name not in ("node", "vhost", "ts")
    }
    return _table(columns | {"ts": pa.repeat(time, len(rows))}, len(rows))


def _table(columns: dict[str, Any], count: int) -> Any:
    same = {"node": "rabbit", "vhost": "/"}
    arrays = [
        pa.repeat(pa.scalar(same[name]), count)
        if name in same
        else columns[name].cast(kind)
        if name in columns
        else pa.nulls(count, kind)
        for name, kind in COLUMNS.items()
    ]
    return pa.table(arrays, names=list(COLUMNS))


def _range(start: int, end: int) -> Any:
    return pa.array(array("q", range(start, end)), pa.int64())


def _write(table: Any, folder: Path, first: int) -> None:
    begun = table["ts"][0].as_py()
    path = folder / "parquet" / f"date={begun:%Y-%m-%d}" / f"hour={begun:%H}"
    path.mkdir(parents=True, exist_ok=True)
    last = first + table.num_rows - 1
    path /= f"rabbit-{first:020d}-{last:020d}.parquet"
    pq.write_table(table, path, compression="zstd")
    times = table["ts"].cast(pa.int64())
    line = {
        "file": str(path.relative_to(folder)),
        "node": "rabbit",
        "rows": table.num_rows,
        "first": first,
        "last": last,
        "earliest": times[0].as_py(),
        "latest": times[-1].as_py(),
        "sha256": sha256(path.read_bytes()).hexdigest(),
        "ended": False,
    }
    with (folder / "manifest.jsonl").open("a") as manifest:
        manifest.write(json.dumps(line) + "\n")
