"""The log: every durable change, appended once, in order, to one row of segments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from mypy_extensions import i64

from broker.core.durations import Latency
from broker.core.message import NOWHERE, Address, Body, Message
from broker.core.ports import DurableWaiter, LoggedQueue, StoredStream
from broker.store.appender import Appender
from broker.store.batch import encode_queues
from broker.store.commit import BatchStorage
from broker.store.definition_text import Describe
from broker.store.group_commit import GroupCommit
from broker.store.held import HeldMessages
from broker.store.recovery.sink import RecoveryReport, RecoverySink
from broker.store.space import Room, Space
from broker.store.start import Start
from broker.store.state import LogState
from broker.store.streams.stream import Streams
from broker.store.substitutes import SUBSTITUTE, Substitutes
from broker.store.upkeep import Upkeep

MEMORY_BUDGET: Final = 256 * 1024 * 1024
PIECE: Final = encode_queues([]) + NOWHERE.encoded  # the destination of a piece: no queue


@final
class Log(LogState):
    """A MessageStore of segments in a storage. Call `recover` first, `close` last.

    `wants_commit` is called with the first append into an empty batch, so that the owner calls `commit` at
    the end of the turn. From there on batches follow one another by themselves. `defined` is called with
    each appended change of the definitions.

    `failure` is not empty while publishes are refused. After a failed batch the log is `stopped` until the
    daemon starts again. After an undone batch (`full`) settles and copies continue in the reserve. When the
    storage has room for a new reserve and a whole new segment, `failure` becomes empty again. Nothing stored
    depends on the undone batch. The messages of that batch stay in memory as if they had never been logged
    (sequence 0), and their publishers have been notified.

    The log is composed of parts that share its state. The `appender` fills a batch, and `group` commits
    batches. `held` counts the queues of each message. `space` reclaims space, and `room` handles a full disk.
    `substitutes` are dead letters whose batch has failed. `upkeep` is the work behind each batch.
    """

    def __init__(self, storage: BatchStorage, describe: Describe, memory_budget: int = MEMORY_BUDGET) -> None:
        super().__init__()
        self.storage = storage
        self.last_queues: Sequence[LoggedQueue] = []
        self.last_address: Address | None = None
        self.destination = b""  # the two in the form of a message record
        self.streams = Streams(self, storage)
        self.held = HeldMessages(self)
        self.appender = Appender(self, storage, self.streams, describe)
        self.substitutes = Substitutes(self)
        self.space = Space(self, storage)
        self.room = Room(self, storage, self.space, self.substitutes, self.appender, self.streams)
        self.upkeep = Upkeep(
            self, storage, self.held, self.substitutes, self.streams, self.space, memory_budget
        )
        self.group = GroupCommit(self, storage, self.appender, self.streams, self.room, self.upkeep)

    # --- for the core (MessageStore)

    def append_message(self, message: Message, queues: Sequence[LoggedQueue]) -> None:
        """Append an enqueue of `message` on `queues`. The content must be in memory."""
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
        self.appender.add_message(message, self.destination)

    def raise_mark(self, mark: Message, expiration: i64) -> bool:
        """Give an appended mark of a single queue another expiration, in its record too; false: too late."""
        batch = self.filling
        if mark.sequence < batch.first_sequence or mark.references != 1 or self.failure:
            return False
        if not batch.set_expiration(mark, expiration):
            return False
        mark.expiration = expiration
        return True

    def append_piece(self, piece: Message) -> None:
        """Append a piece of a body; `append_message` for a message with that body follows."""
        if not self.failure:
            piece.references = 1  # until it is dropped as an orphan
            self.appender.add_message(piece, PIECE)

    def _append_body(self, body: Body) -> None:
        for piece in body.pieces:
            if piece.sequence == 0:  # the log accepted no appends then, or its batch has failed
                self.append_piece(piece)

    def new_body(self) -> Body:
        """Return a large body without pieces."""
        return Body(self.orphans)

    def append_settle(self, message: Message, queue: LoggedQueue) -> None:
        """Append that `queue` no longer holds `message`."""
        if message.sequence > 0:
            if not self.stopped:
                self.appender.add_settle(message, queue.number)
            self.held.release(message, queue.number)
        elif message.sequence == SUBSTITUTE:
            self.substitutes.settle(message, queue)

    def append_death(
        self, letter: Message, queues: Sequence[LoggedQueue], message: Message, queue: LoggedQueue
    ) -> None:
        """Append that `queues` hold `letter`, and `queue` no longer holds `message`: both or neither."""
        self.substitutes.append(letter, queues, message, queue)

    def append_burial(self, message: Message, queue: LoggedQueue) -> None:
        """Append that streams have `message` instead of `queue`."""
        self.substitutes.append_burial(message, queue)

    def append_replacement(self, message: Message, replaced: Message, queue: LoggedQueue) -> None:
        """Append that `queue` has `message` in the place of `replaced`."""
        self.substitutes.append_replacement(message, replaced, queue)

    def append_transacted_settle(self, message: Message, queue: LoggedQueue) -> None:
        """Append that a transaction settles `message` on `queue`, which does so when the batch is durable."""
        if message.sequence == SUBSTITUTE:
            self.substitutes.append_transacted_settle(message, queue)
        elif message.sequence > 0 and not self.stopped:
            self.appender.add_transacted_settle(message, queue.number)

    def append_delivered(self, message: Message, queue: LoggedQueue) -> None:
        """Append that a consumer of `queue` has seen the message.

        Done for all such messages before `close`.
        """
        if message.sequence > 0 and not self.stopped:
            self.appender.add_delivered(message, queue.number)

    def append_count(
        self, message: Message, queue: LoggedQueue, count: i64, annotations: bytes = b""
    ) -> None:
        """Append the delivery count and annotations of a message in `queue`.

        A full disk takes settles only.
        """
        if message.sequence <= 0:
            return
        if not self.failure or self.room.takes_count(message, queue, count, annotations):
            self.appender.add_count(message, queue.number, count, annotations)

    def append_definition(self, change: dict[str, object]) -> None:
        """Append a change of the durable topology. Raises TypeError if it cannot be JSON."""
        if not self.stopped:
            self.appender.add_definition(change)
            self.defined(change)

    def forget(self, message: Message, queue: LoggedQueue) -> None:
        """Forget a message of a deleted queue; the change of the definitions records the deletion.

        A record that names pieces is settled all the same, because it must be void before its pieces may be
        removed.
        """
        if message.sequence == SUBSTITUTE:
            self.substitutes.settle(message, queue)
        elif message.body is not None:
            self.append_settle(message, queue)
        elif message.sequence != 0:
            message.references -= 1
            if message.references == 0:
                self.held.drop(message)

    def open_stream(self, number: i64, segment_bytes: i64, partition: i64) -> StoredStream:
        """Return the stream with this number, in files of about `segment_bytes`; 0: the default size."""
        return self.streams.open(int(number), segment_bytes, partition)

    def load(self, message: Message) -> bytes:
        """Return the content of a message, or a piece, whose `content` is None. The caller leaves that None.

        Raises OSError or LogDamaged if the storage cannot read it.
        """
        return self.storage.load(message, self.segments.holding(message))

    def wait(self, waiter: DurableWaiter) -> None:
        """Call `waiter.on_durable` once when everything appended so far is durable."""
        self.group.wait(waiter)

    # --- for the daemon

    def recover(self, sink: RecoverySink) -> RecoveryReport:
        """Replay the storage, give `sink` everything that survived, and get ready for appends.

        Raises LogDamaged, LogVersionUnknown, LogLocked, OSError.
        """
        return Start(self, self.storage, self.appender, self.streams, self.group).recover(sink)

    def commit(self) -> None:
        """Commit the batch being filled, unless another batch is in flight or there is nothing to commit."""
        self.group.commit()

    def tick(self) -> None:
        """Repeat attempts that failed for lack of room or descriptors; called about once per second."""
        had_orphans = len(self.orphans) > 0
        self.held.drop_orphans()
        self.group.retry()
        if not self.stopped:
            self.upkeep.tick(had_orphans)
            self.group.commit()

    def close(self) -> None:
        """Make the rest durable, mark a clean stop, and release everything. Blocks.

        Raises StoreFailed if the last batch did not become durable: then the log is as after a crash.
        """
        self.group.close()

    def release(self) -> None:
        """Release the storage without a clean stop: the log is as after a crash."""
        self.group.release()

    # --- measures

    @property
    def unsynced_bytes(self) -> i64:
        """The appended bytes that are not durable yet."""
        flying = self.sealed
        filling = self.filling
        unsynced = len(filling.writer) + filling.stream_bytes
        return unsynced if flying is None else unsynced + flying.end - flying.offset + flying.stream_bytes

    @property
    def bytes_on_disk(self) -> int:
        """The written bytes of all segments."""
        return sum(segment.end for segment in self.segments.all())

    @property
    def segment_count(self) -> int:
        """The number of segments."""
        return self.segments.count

    @property
    def message_reads(self) -> int:
        """The number of messages whose content was read from the disk."""
        return int(self.storage.message_reads)

    @property
    def sync_latency(self) -> Latency:
        """The durations of syncs, in seconds."""
        return self.storage.sync_latency
