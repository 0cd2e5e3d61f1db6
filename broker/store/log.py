"""The log: every durable change, appended once, in order, to one row of segment files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, final

from mypy_extensions import i64

from broker.core.message import NOWHERE, Address, Body, Message
from broker.core.ports import LoggedQueue
from broker.store.append import HeldMessages
from broker.store.batch import Batch, encode_queues
from broker.store.content import ContentReader, drop_contents
from broker.store.definition_text import Describe
from broker.store.disk import Disk
from broker.store.recovery.recovery import recover
from broker.store.recovery.sink import RecoveryReport, RecoverySink
from broker.store.segment import Files, Segment
from broker.store.space import Room, Space
from broker.store.stand_ins import STANDS_IN, StandIns
from broker.store.sync import Syncer

MIB: Final = 1024 * 1024
PIECE: Final = encode_queues([]) + NOWHERE.encoded  # the destination of a piece: no queue


@final
class Log(HeldMessages):
    """A MessageStore of segment files in one folder. Call `recover` first, `close` last.

    `wants_commit` is called with the first append into an empty batch, so that the owner calls `commit` at
    the end of the turn. From there on batches follow one another by themselves.

    `failure` is not empty while publishes are refused. After a failed sync, or a write that failed for
    another reason than a full disk, the log is `stopped` until the daemon starts again. After a full disk
    (`full`) settles and copies continue in the reserve. When the syncer has been able to preallocate a new
    reserve and a whole new segment, `failure` becomes empty again: nothing on disk depends on the batch that
    did not fit. Its messages stay in memory as if they had never been logged (sequence 0), and their
    publishers have been notified.
    """

    def __init__(
        self,
        directory: str,
        disk: Disk,
        syncer: Syncer,
        clock: Callable[[], float],
        describe: Describe,
        segment_bytes: int = 64 * MIB,
        first_segment_bytes: int = 4 * MIB,
        reserve_bytes: int = 4 * MIB,
        memory_budget: int = 256 * MIB,
    ) -> None:
        files = Files(directory, disk, syncer, segment_bytes, first_segment_bytes, reserve_bytes)
        super().__init__(disk, syncer, clock, describe, files)
        self.memory_budget: i64 = memory_budget
        self.reader = ContentReader(disk, files)
        self.last_queues: Sequence[LoggedQueue] = []
        self.last_address: Address | None = None
        self.destination = b""  # the two in the form of a message record
        self.stand_ins = StandIns(self)
        self.space = Space(self)
        self.room = Room(self, self.space, self.stand_ins)

    # --- what the core calls

    def append_message(self, message: Message, queues: Sequence[LoggedQueue]) -> None:
        """Append an enqueue of `message` on `queues`; its content must be in memory."""
        if self.failure:
            return
        if message.body is not None:
            self._append_body(message.body)
        message.references = len(queues)
        address = message.address
        if queues is not self.last_queues or address is not self.last_address:  # each route has its own
            self.destination = encode_queues([queue.number for queue in queues]) + address.encoded
            self.last_queues = queues
            self.last_address = address
        self._append(message, self.destination)

    def append_piece(self, piece: Message) -> None:
        """Append a piece of a body; `append_message` for a message with that body follows."""
        if not self.failure:
            piece.references = 1  # until it is dropped as an orphan
            self._append(piece, PIECE)

    def _append_body(self, body: Body) -> None:
        for piece in body.pieces:
            if piece.sequence == 0:  # the log accepted no appends then, or its batch has failed
                self.append_piece(piece)

    def _append(self, message: Message, destination: bytes) -> None:
        batch = self.filling
        if batch.count == 0:
            self.wants_commit()
        message.sequence = self.next_sequence
        self.next_sequence += 1
        content = message.content
        assert content is not None, "only the content of durable messages leaves memory"
        batch.add_message(message, content, destination)
        batch.segment.link(message)
        self.content_bytes += message.length

    def append_settle(self, message: Message, queue: LoggedQueue) -> None:
        """Append that `queue` no longer holds `message`."""
        if message.sequence > 0:
            if not self.stopped:
                self.append_void(message, queue.number)
            self.release(message, queue.number)
        elif message.sequence == STANDS_IN:
            self.stand_ins.settle(message, queue)

    def append_death(
        self, letter: Message, queues: Sequence[LoggedQueue], message: Message, queue: LoggedQueue
    ) -> None:
        """Append that `queues` hold `letter`, and `queue` no longer holds `message`: both or neither."""
        self.stand_ins.append(letter, queues, message, queue)

    def append_burial(self, message: Message, queue: LoggedQueue) -> None:
        """Append that streams have `message` instead of `queue`."""
        self.stand_ins.append_burial(message, queue)

    def append_replacement(self, message: Message, replaced: Message, queue: LoggedQueue) -> None:
        """Append that `queue` has `message` in the place of `replaced`."""
        self.stand_ins.append_replacement(message, replaced, queue)

    def append_transacted_settle(self, message: Message, queue: LoggedQueue) -> None:
        """Append that a transaction settles `message` on `queue`, which does so when the batch is durable."""
        if message.sequence == STANDS_IN:
            self.stand_ins.append_transacted_settle(message, queue)
        elif message.sequence > 0 and not self.stopped:
            self._touch()
            self.filling.last_words.append((message, queue.number))

    def forget(self, message: Message, queue: LoggedQueue) -> None:
        """Forget a message of a deleted queue; the change of the definitions records the deletion.

        A record that names pieces is settled all the same, because it must be void before its pieces may be
        removed.
        """
        if message.sequence == STANDS_IN:
            self.stand_ins.settle(message, queue)
        elif message.body is not None:
            self.append_settle(message, queue)
        elif message.sequence != 0:
            message.references -= 1
            if message.references == 0:
                self.drop(message)

    def append_count(
        self, message: Message, queue: LoggedQueue, count: i64, annotations: bytes = b""
    ) -> None:
        """Append the delivery count and annotations of a message in `queue`.

        A full disk takes settles only.
        """
        if message.sequence <= 0:
            return
        if self.failure and not self.room.takes_count(message, queue, count, annotations):
            return
        self._touch()
        batch = self.filling
        segment = batch.segment
        batch.add_count(message.sequence, queue.number, count, annotations)
        self.counts.note(message.sequence, queue.number, count, annotations, segment)
        if message.segment != segment.number and message.segment != self.last_needed:
            self.last_needed = message.segment
            segment.needs.add(message.segment)

    def load(self, message: Message) -> bytes:
        """Return the content of a message, or a piece, whose `content` is None. The caller leaves that None.

        Raises OSError or LogDamaged if the disk cannot read it.
        """
        return self.reader.load(message, self.segments.holding(message))

    # --- what the daemon calls

    def recover(self, sink: RecoverySink) -> RecoveryReport:
        """Read the folder, give `sink` everything that survived, and get ready for appends.

        Raises LogDamaged, LogVersionUnknown, LogLocked, OSError.
        """
        report = recover(self, sink)
        self.files.recycles = True
        return report

    def prepared(self, name: str, reason: str) -> None:
        """Note that a spare or reserve file is ready, or could not be made."""
        self.files.prepared(name, reason)
        self.room.prepared()

    def removed(self, name: str, reason: str) -> None:
        """Note that a segment's file has been deleted, so that there is room again."""
        if self.full:
            self.files.ask(True)

    def tick(self) -> None:
        """Retry what failed for lack of room or descriptors; called every second or so."""
        found = len(self.orphans) > 0
        self.drop_orphans()
        self.write_again()
        if not self.stopped:
            self._ask_for_files()
            if found and not self.in_flight:  # else the batch in flight, which may have settles, takes one
                self.space.step()
            self.commit()

    # --- hooks

    def make_file(self, segment: Segment) -> None:
        """Give a new segment its file."""
        self.room.make(segment)

    def on_segment_begun(self) -> None:
        """Note that with a new segment an older one may have become removable."""
        self.space.changed = True

    def on_segment_dead(self) -> None:
        """Note that a dead segment may have become removable."""
        self.space.changed = True

    def on_write_failed(self, batch: Batch, error: BaseException) -> None:
        """Stop, or continue in the reserve."""
        self.room.write_failed(batch, error)

    def on_start_failed(self, segment: Segment, error: OSError) -> None:
        """Try once more in the reserve if the disk is full."""
        self.room.start_failed(segment, error)

    def on_batch_durable(self) -> None:
        """Release what had to be kept until the batch was durable."""
        batch = self.sealed
        assert batch is not None
        self.sealed = None
        segment = batch.segment
        segment.entry_synced = True
        if segment.number > self.files.noted:
            self.files.note_newest(segment.number)
        for burial in batch.burials:
            if burial.message.sequence == STANDS_IN:
                self.stand_ins.settle(burial.message, burial.queue)
            else:
                self.release(burial.message, burial.queue.number)
        if self.content_bytes > self.memory_budget:  # this batch's contents are needed last
            self.content_bytes -= drop_contents(segment, batch.offset, batch.end)
        self.streams.synced(batch)
        if self.closing:
            return
        self.drop_orphans()
        if segment is not self.filling.segment:
            self.files.retire(segment)
        self.space.step()
        self._ask_for_files()

    def _ask_for_files(self) -> None:
        """Request the next segment's file in time; it may be made from a segment that dies meanwhile."""
        segment = self.filling.segment
        self.files.ask(self.full or segment.end * 2 >= segment.limit)

    def let_go(self) -> None:
        """Close every file and the syncer, and release the folder's lock."""
        self.stopped = True
        if not self.failure:
            self.failure = "the log is closed"
        self.syncer.close()
        self.streams.close()
        for segment in self.segments.all():
            segment.forget_all()
            self.files.close(segment)
        self.files.unlock()
