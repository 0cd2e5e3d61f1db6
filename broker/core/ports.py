"""What the core calls outward. Implementations must not block and must not call back into the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64, mypyc_attr

from broker.core.errors import StoreFailed
from broker.core.message import Body, Message

if TYPE_CHECKING:
    from broker.core.queue import Queue


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

    def append_message(self, message: Message, queues: list[Queue]) -> None:
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

    def append_settle(self, message: Message, queue: Queue) -> None:
        """Append that `queue` no longer holds `message`. Ignored after a failure (it will be redelivered)."""

    def append_death(self, letter: Message, queues: list[Queue], message: Message, queue: Queue) -> None:
        """Append that `queues` hold `letter` and `queue` no longer holds `message`; all are logged.

        Both or neither, whatever happens: while the log accepts no appends (`failure`), or if it turns out
        that this one did not reach the disk, it goes on holding `message` until all `queues` have let go of
        `letter`.
        """
        self.append_message(letter, queues)
        self.append_settle(message, queue)

    def append_replacement(self, message: Message, replaced: Message, queue: Queue) -> None:
        """Append that `queue` no longer holds `replaced`, because it has `message` in its place.

        If `message` has only just been appended, then both or neither: should it turn out that it did not
        reach the disk, or has this turned out before, then the log goes on holding `replaced` until `queue`
        has let go of `message`. Both are logged, `replaced` now and `message` if it is persistent.
        """
        self.append_settle(replaced, queue)

    def append_count(self, message: Message, queue: Queue, count: i64, annotations: bytes = b"") -> None:
        """Append how often `queue` has given out `message`, which is logged, as far as it counts.

        `annotations`: what consumers have added to it there. The last of a message's counts is the one.
        """

    def append_transacted_settle(self, message: Message, queue: Queue) -> None:
        """Append that a transaction settles `message` on `queue`: with the rest of its batch or not at all.

        The queue holds the message until then and settles it, with `append_settle`, when the batch is
        durable. After a failure, of the log or of the batch alone, it is as if this had not been called.
        """

    def forget(self, message: Message, queue: Queue) -> None:
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
