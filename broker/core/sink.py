"""A staged sink: batches of rows that a program has published exactly once. [amqpd]

The tasks of a batch write their rows into attempts of their own, which nobody sees. To commit a batch is one
record of the log: it says which batch was the last one, and which attempts are to be published. That is
decided then, once, whatever happens. The rows are published after it, chunk by chunk, in a transaction each
with the chunk's leaving its attempt; after a restart that goes on with the first chunk that is still there.
What is decided and cannot be done at the moment (a queue is full, say) waits until it can be.

`broker/admin/api/sinks.py` is the way in. [Bernstein and Newcomer, Principles of Transaction Processing 4.2]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from broker.core.attempt import Attempt, OpenRows, rows_in
from broker.core.clearing import dispose
from broker.core.errors import LimitReached
from broker.core.journal import Operator
from broker.core.moving import Move, publishes_of
from broker.core.ports import DurableWaiter
from broker.core.schedule import Alarm

if TYPE_CHECKING:
    from broker.core.definitions import Change
    from broker.core.vhost import VirtualHost

SINK: Final = "sink"
ATTEMPT: Final = "sink.attempt"
ATTEMPTS_MAX: Final = 20_000  # of one sink at the same time
RETRY_MS: Final = 500  # after which rows are tried again that could not be published
NO_BATCH: Final[i64] = -1


@final
class Sink(Alarm):
    """The sink of `query` in a virtual host, for one program that is known to the broker by that name.

    `user`: who made it. `checkpoint` names the program's memory of its batches, "": not known. `epoch` grows
    with each attachment, and attempts are of one. `last`: the last batch that was committed, NO_BATCH: none.
    `moving`: attempts that are committed and not all published yet; `blocked`: why not, if something is in
    their way. `mandatory`: their rows are not to be published to nowhere. `gone`: it was deleted.
    `by`: the actor who has committed the last batch, of `Journal.who`; None: `user`, before a restart.
    """

    def __init__(self, virtual_host: VirtualHost, query: str, user: str, open_rows: OpenRows) -> None:
        super().__init__()
        self.virtual_host = virtual_host
        self.query = query
        self.user = user
        self.epoch: i64 = 0
        self.last: i64 = NO_BATCH
        self.checkpoint = ""
        self.mandatory: bool = True
        self.attempts: dict[int, Attempt] = {}  # that may be committed, by their numbers
        self.moving: list[Attempt] = []
        self.blocked = ""
        self.gone: bool = False
        self.by: object | None = None
        self.gate: object | None = None  # of whoever changes it; the core does not read it
        self.open_rows = open_rows
        self._user = Operator(user, "", "")
        self._under_way: bool = False  # a chunk is, to the disk,
        self._rows_under_way: i64 = 0  # which has so many rows
        self._watchers: list[Callable[[], None]] = []

    @property
    def moving_rows(self) -> i64:
        """How many committed rows are yet to be published."""
        rows: i64 = 0
        for attempt in self.moving:
            rows += attempt.rows
        return rows

    # ---- commands: the caller has asked whether the log accepts appends

    def attach(self) -> None:
        """A new epoch: what attempts of earlier ones have written is dropped."""
        self.epoch += 1
        self._drop(list(self.attempts.values()))

    def begin(self, batch: i64, partition: i64) -> Attempt:
        """An attempt at a partition of a batch. Raises LimitReached."""
        if len(self.attempts) >= ATTEMPTS_MAX:
            raise LimitReached(
                f"sink '{self.query}' in vhost '{self.virtual_host.name}' has {ATTEMPTS_MAX} attempts already"
            )
        number = self.virtual_host.numbers.take()
        attempt = Attempt(self.virtual_host, number, batch, partition, self.epoch)
        self.attempts[number] = attempt
        change = self._named(ATTEMPT)
        change["attempt"] = attempt.described()
        self.virtual_host.store.append_definition(change)
        return attempt

    def drop(self, attempts: list[Attempt]) -> None:
        """Forget attempts, which are not committed, with all that they have written."""
        if attempts:
            self._drop(attempts)

    def serves(self, checkpoint: str) -> bool:
        """Whether a program with this `checkpoint` ("": not known) may go on after the sink's last batch.

        The batches of another checkpoint have the same numbers and other rows.
        """
        return not checkpoint or not self.checkpoint or checkpoint == self.checkpoint

    def commit(
        self,
        batch: i64,
        winners: list[Attempt],
        mandatory: bool,
        checkpoint: str,
        done: Callable[[str], None],
    ) -> None:
        """Decide that the rows of `winners` are published, and that `batch` is the last one that was.

        Other attempts at it or at earlier ones are dropped. Nothing is `moving`. From now on the sink serves
        `checkpoint` only. `done` is called when the decision is on disk, with "", or else with why
        it was not made.
        """
        won = {int(each.number) for each in winners}
        losers = [
            each for each in self.attempts.values() if each.batch <= batch and int(each.number) not in won
        ]
        decision = Decision(self, winners, losers, done)
        self.by = self.virtual_host.journal.who()
        self.last = batch
        self.checkpoint = checkpoint or self.checkpoint
        self.mandatory = mandatory
        self.moving = list(winners)
        for attempt in winners + losers:
            self.attempts.pop(attempt.number, None)
        self.virtual_host.store.append_definition(self.describe())
        self.virtual_host.store.wait(decision)

    def idle(self, watcher: Callable[[], None]) -> None:
        """Have `watcher` be called once when all is published that is committed, or the sink is gone."""
        if self.moving and not self.gone:
            self._watchers.append(watcher)
        else:
            watcher()

    def ignore(self, watcher: Callable[[], None]) -> None:
        """`watcher` need not be called any more."""
        if watcher in self._watchers:
            self._watchers.remove(watcher)

    def forget(self) -> None:
        """The sink has been deleted, or its virtual host: let go of everything."""
        self.gone = True
        self.virtual_host.schedule.cancel(self)
        for attempt in [*self.attempts.values(), *self.moving]:
            self.let_go(attempt)
        self.attempts = {}
        self.moving = []
        self._tell()

    # ---- what comes after a decision

    def go_on(self) -> None:
        """Publish what is committed, if there is something."""
        if self.moving:
            self.virtual_host.schedule.set(self, self.virtual_host.schedule.now())

    def ring(self) -> None:
        """Publish the next chunk (Alarm)."""
        journal = self.virtual_host.journal
        before = journal.actor
        journal.actor = self._user if self.by is None else self.by
        try:
            self._publish_chunk()
        finally:
            journal.actor = before

    def _publish_chunk(self) -> None:
        if self.gone or self._under_way:
            return
        moving = self.moving
        while moving and moving[0].queue.depth == 0:
            self._finish(moving[0])
        if not moving:
            self._tell()
            return
        attempt = moving[0]
        entries = attempt.queue.entries
        entry = entries.next(entries.head)
        assert entry is not None, "what has a depth has an entry"
        move: Move | None = None
        self._under_way = True
        self._rows_under_way = rows_in(entry.message)
        try:
            publishes = publishes_of(entry.message, self.virtual_host, self.open_rows, self.mandatory)
            move = Move(self.virtual_host, attempt, entry, publishes, self._moved)
            move.commit()
        except Exception as error:  # refused, or the disk does not give the chunk back
            if move is not None:
                move.abort()
            self._moved(str(error))

    def _moved(self, trouble: str) -> None:
        self._under_way = False
        if self.gone:
            return
        schedule = self.virtual_host.schedule
        if trouble and trouble != self.blocked:
            self.virtual_host.trouble(f"{self.where()} cannot publish what is committed: {trouble}")
        self.blocked = trouble
        if not trouble:
            self.moving[0].rows -= self._rows_under_way
        schedule.set(self, schedule.after(RETRY_MS) if trouble else schedule.now())

    def _finish(self, attempt: Attempt) -> None:
        """All its rows are published. To the log it goes with what is said of the sink next."""
        self.moving.remove(attempt)
        if not self.moving:
            self.virtual_host.store.append_definition(self.describe())
        self.let_go(attempt)

    def _tell(self) -> None:
        watchers, self._watchers = self._watchers, []
        for watcher in watchers:
            watcher()

    def _drop(self, attempts: list[Attempt]) -> None:
        for attempt in attempts:
            del self.attempts[attempt.number]
        self.virtual_host.store.append_definition(self.describe())
        for attempt in attempts:
            self.let_go(attempt)

    def let_go(self, attempt: Attempt) -> None:
        """Let go of an attempt: the log has been told."""
        self.virtual_host.numbers.queues.pop(attempt.number, None)
        dispose(attempt.queue, self.virtual_host.schedule)

    # ---- in words

    def where(self) -> str:
        """Which sink this is, for messages to clients."""
        return f"sink '{self.query}' in vhost '{self.virtual_host.name}'"

    def describe(self) -> Change:
        """All of it, for the log."""
        change = self._named(SINK)
        change["user"] = self.user
        change["epoch"] = int(self.epoch)
        change["last"] = int(self.last)
        if self.checkpoint:
            change["checkpoint"] = self.checkpoint
        change["mandatory"] = self.mandatory
        change["attempts"] = [each.described() for each in [*self.attempts.values(), *self.moving]]
        change["moving"] = [int(each.number) for each in self.moving]
        return change

    def _named(self, kind: str) -> Change:
        return {"kind": kind, "vhost": self.virtual_host.name, "query": self.query}


@final
class Decision(DurableWaiter):
    """A commit on its way to the disk."""

    def __init__(
        self, sink: Sink, winners: list[Attempt], losers: list[Attempt], done: Callable[[str], None]
    ) -> None:
        self._sink = sink
        self._winners = winners
        self._losers = losers
        self._done = done
        self._before = sink.last
        self._checkpoint_before = sink.checkpoint

    def on_durable(self, batch: i64) -> None:
        """It is there (DurableWaiter)."""
        sink = self._sink
        for attempt in self._losers:
            sink.let_go(attempt)
        sink.go_on()
        self._done("")

    def on_store_failed(self, reason: str) -> None:
        """It is not: nothing was decided (DurableWaiter)."""
        sink = self._sink
        if sink.gone:
            for attempt in self._losers:
                sink.let_go(attempt)
        else:
            sink.last = self._before
            sink.checkpoint = self._checkpoint_before
            sink.moving = []
            for attempt in self._winners + self._losers:
                sink.attempts[attempt.number] = attempt
            # the log says it all the same when there is room again, and so has to be told otherwise
            sink.virtual_host.store.append_definition(sink.describe())
        self._done(f"the log has failed: {reason}")
