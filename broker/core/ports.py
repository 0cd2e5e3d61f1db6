"""What the core calls outward. Implementations must not block and must not call back into the queue."""

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

    `number`: its number in the log; 0: the log need not know the queue. `logged`: the log has its messages.
    `deleted`: the queue has been deleted.
    """

    def __init__(self, name: str, number: i64, logged: bool) -> None:
        self.name = name
        self.number = number
        self.logged = logged
        self.deleted: bool = False


@mypyc_attr(allow_interpreted_subclasses=True)
class DurableWaiter:
    """Somebody who must not answer before the log has synced what it appended."""

    def on_durable(self, batch: i64) -> None:
        """Batch number `batch` and everything before it is on disk. Called once per `MessageStore.wait`."""
        raise NotImplementedError

    def on_store_failed(self, reason: str) -> None:
        """The log has stopped; what was waited for may or may not be on disk and must not be confirmed."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class StreamWatcher:
    """Somebody who is to know which rows of a stream are safe."""

    def rows_durable(self, behind: i64) -> None:
        """All rows before the offset `behind` are on disk."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class StreamPage:
    """Rows of a stream that are in memory together: those with the offsets from `first` up to `behind`."""

    first: i64 = 0
    behind: i64 = 0

    @property
    def size(self) -> i64:
        """Bytes that they take."""
        raise NotImplementedError

    def message(self, offset: i64) -> Message:
        """The message with an offset, made anew for each call."""
        raise NotImplementedError

    def time(self, offset: i64) -> i64:
        """When it was appended, in microseconds since 1970."""
        raise NotImplementedError

    def filter_value(self, offset: i64) -> bytes:
        """What it says of itself for consumers to choose by; empty: nothing."""
        raise NotImplementedError


@final
class StreamExtent:
    """Rows of a stream as they are stored, in whole chunks: the offsets from `first` up to `behind`.

    They are `size` bytes of a file, from `position` on, where it does not change. `fd` is a descriptor of it
    that the caller is to close.
    """

    def __init__(self, fd: int, position: i64, size: i64, first: i64, behind: i64) -> None:
        self.fd = fd
        self.position = position
        self.size = size
        self.first = first
        self.behind = behind


@mypyc_attr(allow_interpreted_subclasses=True)
class StoredStream:
    """Messages that are kept one behind the other, each with an offset: 1 more than the one before.

    Those with offsets from `first` up to `behind` are on disk and can be read. `next`: the offset of what is
    appended next. `disk_bytes`: what all of it takes on disk. `incarnation`: no other stream has this number.
    This base class is the stream that has nothing.
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
        """The offset of what is appended next."""
        return 0

    @property
    def disk_bytes(self) -> i64:
        """Bytes on disk."""
        return 0

    @property
    def incarnation(self) -> int:
        """What tells it from an earlier stream of its name."""
        return 0

    def append(self, message: Message, date: i64, filter_value: bytes) -> None:
        """Append `message`, into the batch that the store fills.

        `date`: now, in milliseconds since 1970. `filter_value`: what consumers choose by. The caller has
        checked that the store accepts appends. Raises what `MessageStore.load` raises.
        """
        raise NotImplementedError

    def at(self, offset: i64) -> StreamPage | None:
        """The rows around an offset, or the oldest ones that are kept; None if it is not on disk yet.

        Raises OSError or LogDamaged if the disk does not give them back.
        """
        return None

    def extent(self, offset: i64, behind: i64) -> StreamExtent | None:
        """The chunks (protocol.streams.chunk) from that around an offset on, or from the oldest that is kept.

        They go up to the one that has the row before `behind`, or less far: to the end of their file, and not
        beyond rows that are lost. What is in them is left to who reads them. None if none of these rows is on
        disk, or not any more.

        Raises what `at` raises.
        """
        return None

    def examine(self, offset: i64) -> None:
        """Read the chunk around an offset from the disk: if it is damaged all step over it from now on.

        Raises what `at` raises.
        """

    def reach(self, offset: i64, size: i64) -> i64:
        """The offset up to which the rows from one on take `size` bytes on disk: behind one row at least.

        Within a chunk all rows count as equally long. Raises what `at` raises.
        """
        return offset

    def since(self, time: i64) -> i64:
        """The offset of the first message from a time on, in microseconds since 1970; `behind`: none yet.

        Raises what `at` raises.
        """
        return 0

    def watch(self, watcher: StreamWatcher | None) -> None:
        """Have `watcher`, and nobody else, be told of what becomes readable."""

    def trim(self, bytes_max: i64, oldest: i64) -> None:
        """Let go of the oldest messages, in large portions: while `bytes_max` are there without them.

        Also while all of a portion are older than `oldest`, in microseconds since 1970. 0: no limit.
        """

    def drop(self) -> None:
        """Its queue has been deleted, which has been appended to the store."""


@mypyc_attr(allow_interpreted_subclasses=True)
class MessageStore:
    """Where messages and definitions become durable.

    *Append* only buffers, in order, into the batch that is being filled (`batch`, counted from 1); *sync*
    makes whole batches durable in order, and `durable` is the number of the last one. This base class keeps
    nothing: every batch is durable at once.
    """

    def __init__(self) -> None:
        self.batch: i64 = 1
        self.durable: i64 = 0
        self.failure: str = ""  # why the log no longer accepts appends; "" while it does

    @property
    def refusal(self) -> str:
        """Why something cannot be kept, in words for a client; to be asked while there is a `failure`."""
        return f"the log has stopped: {self.failure}"

    def require(self) -> None:
        """Refuse what could not be kept.

        Raises:
            StoreFailed: the log accepts no appends.
        """
        if self.failure:
            raise StoreFailed(self.refusal)

    @property
    def unsynced_bytes(self) -> i64:
        """Bytes that were appended and are not on disk yet: publishers are held back by it."""
        return 0

    def append_message(self, message: Message, queues: Sequence[LoggedQueue]) -> None:
        """Append an enqueue of `message` on `queues` (all logged); sets the message's log fields.

        The caller has checked that `failure` is empty.
        """

    def append_piece(self, piece: Message) -> None:
        """Append a piece of a body, ahead of the message that it belongs to; sets the piece's log fields.

        Recovery brings it back with its message only. While the log accepts no appends it stays in memory.
        """

    def new_body(self) -> Body:
        """A large body without pieces yet. When nobody refers to it any more, its pieces are dropped."""
        return Body([])

    def open_stream(self, number: i64, segment_bytes: i64, partition: i64) -> StoredStream:
        """The stream with this number, found by recovery or new, in files of about that size.

        `partition`: what consumers are told with each message; NO_PARTITION: nothing.

        Raises OSError or LogDamaged if it is not as the log says.
        """
        return StoredStream()

    def append_settle(self, message: Message, queue: LoggedQueue) -> None:
        """Append that `queue` no longer holds `message`. Ignored after a failure (it will be redelivered)."""

    def append_death(
        self, letter: Message, queues: Sequence[LoggedQueue], message: Message, queue: LoggedQueue
    ) -> None:
        """Append that `queues` hold `letter` and `queue` no longer holds `message`; all are logged.

        Both or neither, whatever happens: while the log accepts no appends (`failure`), or if it turns out
        that this one did not reach the disk, it goes on holding `message` until all `queues` have let go of
        `letter`.
        """
        self.append_message(letter, queues)
        self.append_settle(message, queue)

    def append_burial(self, message: Message, queue: LoggedQueue) -> None:
        """Append that `queue` no longer holds `message`, which streams have from now on: both or neither.

        If it turns out that this did not reach the disk, the log goes on holding `message` until it starts
        again. The caller has checked that `failure` is empty, and that `message` is in the log.
        """
        self.append_settle(message, queue)

    def append_replacement(self, message: Message, replaced: Message, queue: LoggedQueue) -> None:
        """Append that `queue` no longer holds `replaced`, because it has `message` in its place.

        If `message` has only just been appended, then both or neither: should it turn out that it did not
        reach the disk, or has this turned out before, then the log goes on holding `replaced` until `queue`
        has let go of `message`. Both are logged, `replaced` now and `message` if it is persistent.
        """
        self.append_settle(replaced, queue)

    def append_count(
        self, message: Message, queue: LoggedQueue, count: i64, annotations: bytes = b""
    ) -> None:
        """Append how often `queue` has given out `message`, which is logged, as far as it counts.

        `annotations`: what consumers have added to it there. The last of a message's counts is the one.
        """

    def append_transacted_settle(self, message: Message, queue: LoggedQueue) -> None:
        """Append that a transaction settles `message` on `queue`: with the rest of its batch or not at all.

        The queue holds the message until then and settles it, with `append_settle`, when the batch is
        durable. After a failure, of the log or of the batch alone, it is as if this had not been called.
        """

    def forget(self, message: Message, queue: LoggedQueue) -> None:
        """`queue`, a logged one that held `message`, was deleted.

        Nothing need be appended: the definition change says it all.
        """

    def append_definition(self, change: dict[str, object]) -> None:
        """Append a change of the durable topology, a JSON-able dict with a `kind`; see `Broker.apply`."""

    def load(self, message: Message) -> bytes:
        """The content of a logged message, or of a piece, whose `content` is None."""
        raise NotImplementedError

    def wait(self, waiter: DurableWaiter) -> None:
        """Call `waiter.on_durable` once when the batch being filled now is on disk."""
        waiter.on_durable(self.batch)
