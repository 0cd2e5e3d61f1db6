"""The content of each queue by its journal, compared with the real queue after every step."""

from __future__ import annotations

from broker.core.arguments.queue import FULL
from broker.core.broker import Broker
from broker.core.message import uid_of
from broker.core.message_view import Views
from broker.core.queues.dead_letter_backlog import existing_backlog
from broker.core.queues.queue import Queue
from broker.journal.recorder import QueueRecorder, Recorder
from protocol.journal.decoder import Decoder, Names
from protocol.journal.encoder import Encoder
from protocol.journal.rows import EventRow, block_rows
from tests.simulation.queues.invariants import Seen, check
from tests.support.core.hand_clock import HandClock

Holder = tuple[object, object, object]
LEAVING = {"ack", "reject", "expire", "dead_letter", "drop_overflow", "replace", "remove"}


class Ledger:
    """The journal of a life of a broker with all events, which only this class reads."""

    def __init__(self, broker: Broker, clock: HandClock, views: Views) -> None:
        self.encoder = Encoder("node", 1)
        self.recorder = Recorder(
            FULL, self.encoder, lambda: clock.now * 1000, broker.store, views, self._read, lambda: None
        )
        self.queues: dict[int, dict[int, int]] = {}  # places by message, of each queue
        self.seen: Seen | None = None
        self.began: dict[int, int] = {}  # how many a restart has brought back, of each queue
        self._lost: dict[int, int] = {}
        self._listed: dict[int, int] = {}
        self._holders: dict[tuple[int | None, int], Holder] = {}
        self._names: Names = {}
        self._seq = 0
        broker.journal = self.recorder

    def begin(self, queues: list[Queue]) -> None:
        """Recovery is over."""
        self.recorder.started = True
        for queue in queues:
            if isinstance(queue.journal, QueueRecorder):
                queue.journal.recovered()
        self._read()
        self.began = {number: len(entries) for number, entries in self.queues.items()}

    def end(self, queues: list[Queue]) -> dict[int, int]:
        """The broker has stopped; returns how many its journal says will be there again, of each queue."""
        for queue in queues:
            if isinstance(queue.journal, QueueRecorder):
                queue.journal.stopped()
        self._read()
        return {
            int(queue.number): len(self.queues[int(queue.number)]) - self._lost.get(int(queue.number), 0)
            for queue in queues
            if queue.number > 0
        }

    def compare(self, seen: Seen, queue: Queue) -> None:
        """Check that the journal's content equals the queue's content."""
        self.seen = seen
        self._read()
        self.recorder.stale = True
        journal = queue.journal
        assert isinstance(journal, QueueRecorder)
        places = {int(uid_of(entry.message)): int(entry.order) for entry in queue.entries}
        journaled = self.queues.get(int(journal.name.fields[2]))
        backlog = existing_backlog(queue)
        if backlog is not None:
            places |= {int(uid_of(each.message)): int(each.order) for each in backlog.deaths()}
        check(
            seen, "J1", journaled == places, f"queue {queue.name} has {places}, its journal says {journaled}"
        )

    def _read(self) -> None:
        header = self.encoder.header(0)
        decoder = Decoder(header + self.encoder.take())
        decoder.names = self._names
        for block in decoder.blocks():
            for row in block_rows("node", block, self._names):
                self._seq += 1
                self._check(row.seq == self._seq, f"event {row.seq} follows {self._seq - 1}")
                self._apply(row)

    def _apply(self, row: EventRow) -> None:
        op, uid, number = row.op, row.msg_uid, row.queue_id
        if number is None:
            return
        if op == "declare":
            self._check(number not in self.queues, f"queue {number} is new twice")
            self.queues[number] = {}
            return
        if op == "recover" and uid is not None:
            assert row.qpos is not None
            self._listed[uid] = row.qpos
            return
        if op == "recover":
            self._check(row.quantity == len(self._listed), f"{row.quantity} listed: {self._listed}")
            self.queues[number], self._listed = self._listed, {}
            return
        self._change(row, self.queues[number])

    def _change(self, row: EventRow, entries: dict[int, int]) -> None:
        op, uid, place = row.op, row.msg_uid, row.qpos
        if op == "purge":
            assert place is not None
            assert row.first_qpos is not None
            gone = [each for each, at in entries.items() if row.first_qpos <= at <= place]
            self._check(len(gone) == row.quantity, f"{row.quantity} purged of {entries}: {gone}")
            for each in gone:
                del entries[each]
        elif op == "lost":
            assert row.quantity is not None
            assert row.queue_id is not None
            self._lost[row.queue_id] = row.quantity
        elif op in ("queue_delete", "checkpoint"):
            there = len(entries) - self._lost.get(row.queue_id or 0, 0)
            self._check(row.quantity == there, f"{op} of {row.quantity}, not {entries}")
        elif op == "enqueue":
            assert uid is not None
            assert place is not None
            self._check(uid not in entries, f"message {uid} comes twice")
            entries[uid] = place
        elif uid is not None:
            self._check(entries.get(uid) == place, f"{op} of message {uid} at {place}: {entries}")
            self._hand_over(row, uid)
            if op in LEAVING:
                del entries[uid]
                self._holders.pop((row.queue_id, uid), None)

    def _hand_over(self, row: EventRow, uid: int) -> None:
        """Check that a single consumer at a time has a message, and returns or acknowledges it."""
        key, actor = (row.queue_id, uid), (row.conn, row.channel, row.consumer)
        holder = self._holders.get(key)
        if row.op in ("deliver", "stage"):
            self._check(holder in (None, actor), f"{row.op} of message {uid} to {actor}, {holder} has it")
            self._holders[key] = actor
        elif row.op == "ack":
            self._check(holder == actor, f"ack of message {uid} by {actor}, {holder} has it")
        elif row.op == "requeue":
            self._check(holder in (None, actor), f"requeue of message {uid} by {actor}, {holder} has it")
            self._holders.pop(key, None)

    def _check(self, holds: bool, text: str) -> None:
        assert self.seen is not None or holds, text
        if self.seen is not None:
            check(self.seen, "J1", holds, text)
