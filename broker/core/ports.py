"""The interfaces through which the core calls outward: the store, its streams, and their waiters.

An implementation must not block and must not call back into the queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from broker.core.errors import StoreFailed
from broker.core.message import Body, Message

NO_PARTITION: Final[i64] = -1


@mypyc_attr(allow_interpreted_subclasses=True)
class LoggedQueue:
    """A queue as the log knows it.

    `number`: its number in the log; 0: the log does not know the queue. `logged`: the log stores its
    messages.
    `deleted`: the queue has been deleted.
    """

    def __init__(self, name: str, number: i64, logged: bool) -> None:
        self.name = name
        self.number = number
        self.logged = logged
        self.deleted: bool = False


@mypyc_attr(allow_interpreted_subclasses=True)
class DurableWaiter:
    """A caller that must not answer before the log has synced the appended records."""

    def on_durable(self, batch: i64) -> None:
        """Note that batch number `batch` and all before it are on disk.

        Called once per `MessageStore.wait`.
        """
        raise NotImplementedError

    def on_store_failed(self, reason: str) -> None:
        """Note that the log has stopped: the records may or may not be on disk and must not be confirmed."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class StreamWatcher:
    """A listener for the rows of a stream that have become durable."""

    def on_rows_durable(self, behind: i64) -> None:
        """Note that all rows before the offset `behind` are on disk."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class StreamPage:
    """Rows of a stream that are in memory together, with the offsets from `first` up to `behind`."""

    first: i64 = 0
    behind: i64 = 0

    @property
    def size(self) -> i64:
        """The bytes that the rows take."""
        raise NotImplementedError

    def message(self, offset: i64) -> Message:
        """Return the message with an offset, made anew for each call."""
        raise NotImplementedError

    def time(self, offset: i64) -> i64:
        """Return when the row was appended, in microseconds since 1970."""
        raise NotImplementedError

    def filter_value(self, offset: i64) -> bytes:
        """Return the row's value for stream filters; empty: none."""
        raise NotImplementedError


@final
class StreamExtent:
    """Rows of a stream as they are stored, in whole chunks: the offsets from `first` up to `behind`.

    The chunks are `size` bytes of a file from `position` on, in a part that does not change. `fd` is a
    descriptor of the file that the caller must close.
    """

    def __init__(self, fd: int, position: i64, size: i64, first: i64, behind: i64) -> None:
        self.fd = fd
        self.position = position
        self.size = size
        self.first = first
        self.behind = behind


@mypyc_attr(allow_interpreted_subclasses=True)
class StoredStream:
    """A stored stream: messages with consecutive offsets, each 1 more than the one before.

    Messages with offsets from `first` up to `behind` are on disk and can be read. `next`: the offset of the
    next append. `disk_bytes`: the size of all files. `incarnation`: no other stream has this number. This
    base class is an empty stream.
    """

    @property
    def first(self) -> i64:
        """The oldest offset that is kept."""
        return 0

    @property
    def behind(self) -> i64:
        """The offset behind the newest message on disk."""
        return 0

    @property
    def next(self) -> i64:
        """The offset of the next append."""
        return 0

    @property
    def disk_bytes(self) -> i64:
        """Bytes on disk."""
        return 0

    @property
    def incarnation(self) -> int:
        """The number that distinguishes the stream from earlier streams of its name."""
        return 0

    def append(self, message: Message, date: i64, filter_value: bytes) -> None:
        """Append `message` to the batch that the store is filling.

        `date`: now, in milliseconds since 1970. `filter_value`: the value for stream filters. The caller has
        checked that the store accepts appends. Raises the errors of `MessageStore.load`.
        """
        raise NotImplementedError

    def at(self, offset: i64) -> StreamPage | None:
        """Return the rows around an offset, or the oldest ones that are kept; None if it is not on disk yet.

        Raises OSError or LogDamaged if the disk cannot read them.
        """
        return None

    def extent(self, offset: i64, behind: i64) -> StreamExtent | None:
        """Return the chunks from the one around an offset on, or from the oldest chunk that is kept.

        See `protocol.streams.chunk`. They go up to the chunk with the row before `behind`, but not beyond the
        end of their file, nor beyond lost rows. The reader checks their content. None: none of these rows is
        on disk.

        Raises the errors of `at`.
        """
        return None

    def examine(self, offset: i64) -> None:
        """Read the chunk around an offset from the disk; readers step over a damaged one from then on.

        Raises the errors of `at`.
        """

    def reach(self, offset: i64, size: i64) -> i64:
        """Return an offset so that the rows up to it take `size` bytes on disk, but at least one row.

        Within a chunk all rows count as equally long. Raises the errors of `at`.
        """
        return offset

    def since(self, time: i64) -> i64:
        """Return the offset of the first message from a time on, in microseconds since 1970.

        `behind`: none yet.

        Raises the errors of `at`.
        """
        return 0

    def watch(self, watcher: StreamWatcher | None) -> None:
        """Set the only watcher of rows that become readable; None removes it."""

    def apply_retention(self, bytes_max: i64, oldest: i64) -> None:
        """Remove the oldest messages, in large portions, while `bytes_max` bytes remain without them.

        A portion whose messages are all older than `oldest`, in microseconds since 1970, is removed too. 0:
        no limit.
        """

    def drop(self) -> None:
        """Drop the stream: its queue has been deleted, and the store has the deletion appended."""


@mypyc_attr(allow_interpreted_subclasses=True)
class MessageStore:
    """The store, which makes messages and definitions durable.

    *Append* only buffers, in order, into the batch that is being filled (`batch`, counted from 1). *Sync*
    makes whole batches durable in order, and `durable` is the number of the last durable one. This base class
    stores nothing: every batch is durable at once.
    """

    def __init__(self) -> None:
        self.batch: i64 = 1
        self.durable: i64 = 0
        self.failure: str = ""  # why the log no longer accepts appends; "" while it does

    @property
    def refusal(self) -> str:
        """The reason that clients see for a refused append; valid only while there is a `failure`."""
        return f"the log has stopped: {self.failure}"

    def require(self) -> None:
        """Refuse a change that could not be stored.

        Raises:
            StoreFailed: the log accepts no appends.
        """
        if self.failure:
            raise StoreFailed(self.refusal)

    @property
    def unsynced_bytes(self) -> i64:
        """The appended bytes that are not on disk yet; publishers are throttled by this."""
        return 0

    def append_message(self, message: Message, queues: Sequence[LoggedQueue]) -> None:
        """Append an enqueue of `message` on `queues` (all logged); sets the message's log fields.

        The caller has checked that `failure` is empty.
        """

    def raise_mark(self, mark: Message, expiration: i64) -> bool:
        """Give an appended mark of a single queue another expiration, in its record too; false: too late.

        It is too late if the mark is not in the batch being filled.
        """
        return False

    def append_piece(self, piece: Message) -> None:
        """Append a piece of a body before the message to which it belongs; sets the piece's log fields.

        Recovery restores the piece only with its message. While the log accepts no appends, the piece stays
        in memory.
        """

    def new_body(self) -> Body:
        """Return a large body without pieces.

        When its last reference is dropped, its pieces are dropped too.
        """
        return Body([])

    def open_stream(self, number: i64, segment_bytes: i64, partition: i64) -> StoredStream:
        """Return the stream with this number, restored or new, in files of about `segment_bytes`.

        `partition`: an annotation that consumers get with each message; NO_PARTITION: none.

        Raises OSError or LogDamaged if the files differ from the log.
        """
        return StoredStream()

    def append_settle(self, message: Message, queue: LoggedQueue) -> None:
        """Append that `queue` no longer holds `message`. Ignored after a failure (it will be redelivered)."""

    def append_death(
        self, letter: Message, queues: Sequence[LoggedQueue], message: Message, queue: LoggedQueue
    ) -> None:
        """Append that `queues` hold `letter` and `queue` no longer holds `message`; all are logged.

        Both happen, or neither does. If the log accepts no appends (`failure`), or this append turns out not
        to have reached the disk, the log goes on holding `message` until all `queues` have released `letter`.
        """
        self.append_message(letter, queues)
        self.append_settle(message, queue)

    def append_burial(self, message: Message, queue: LoggedQueue) -> None:
        """Append that `queue` no longer holds `message`, because streams have it now: both or neither.

        If the append turns out not to have reached the disk, the log goes on holding `message` until its next
        start. The caller has checked that `failure` is empty, and that `message` is in the log.
        """
        self.append_settle(message, queue)

    def append_replacement(self, message: Message, replaced: Message, queue: LoggedQueue) -> None:
        """Append that `queue` no longer holds `replaced`, because it has `message` in its place.

        If `message` has only just been appended, both happen or neither does. If its append turns out not to
        have reached the disk, or already has, the log goes on holding `replaced` until `queue` has released
        `message`. Both are logged, `replaced` now and `message` if it is persistent.
        """
        self.append_settle(replaced, queue)

    def append_count(
        self, message: Message, queue: LoggedQueue, count: i64, annotations: bytes = b""
    ) -> None:
        """Append how many counted deliveries of `message`, which is logged, `queue` has made.

        `annotations`: those that consumers have added to the message there. The last count of a message is
        valid.
        """

    def append_transacted_settle(self, message: Message, queue: LoggedQueue) -> None:
        """Append that a transaction settles `message` on `queue`: with the rest of its batch or not at all.

        The queue holds the message until then and settles it, with `append_settle`, when the batch is
        durable. After a failure, of the log or of the batch alone, this call has no effect.
        """

    def forget(self, message: Message, queue: LoggedQueue) -> None:
        """Note that `queue`, a logged one that held `message`, was deleted.

        Nothing needs to be appended: the deletion in the definitions covers its messages.
        """

    def append_definition(self, change: dict[str, object]) -> None:
        """Append a change of the durable topology, a JSON-able dict with a `kind`; see `Broker.apply`."""

    def load(self, message: Message) -> bytes:
        """Return the content of a logged message, or of a piece, whose `content` is None."""
        raise NotImplementedError

    def content_of(self, message: Message) -> bytes:
        """Return the content of a message or piece, from memory or disk. Raises the errors of `load`."""
        content = message.content
        return content if content is not None else self.load(message)

    def wait(self, waiter: DurableWaiter) -> None:
        """Call `waiter.on_durable` once when the batch being filled now is on disk."""
        waiter.on_durable(self.batch)
