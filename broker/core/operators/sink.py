"""Staged sinks: a program publishes batches of rows, each batch exactly once. [amqpd]

The tasks of a batch write their rows into separate attempts, which no consumer sees. The commit of a batch is
a single record of the log. The record names the last committed batch, and the attempts to publish. The
decision is final then. Afterwards the sink publishes the rows chunk by chunk. Each chunk takes one
transaction, which also removes the chunk from its attempt. After a restart the sink goes on with the first
remaining chunk. If a committed chunk cannot be published at the moment (a queue is full, for example), the
sink retries.

`broker/admin/api/sinks.py` is the HTTP interface. [Bernstein and Newcomer, Principles of Transaction
Processing 4.2]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, final

from mypy_extensions import i64

from broker.core.delivery.journal import Operator
from broker.core.entries.entry import DEQUEUED, QueueEntry
from broker.core.entries.list import FifoEntryList
from broker.core.errors import LimitReached, NotFound
from broker.core.message import Message
from broker.core.names import check_length
from broker.core.operators.operation import Operation
from broker.core.ports import DurableWaiter
from broker.core.publishing.publisher import Outcome, Publisher
from broker.core.queues.consumer import make_holder
from broker.core.queues.purge import dispose
from broker.core.queues.queue import Queue, drop
from broker.core.queues.source import BROKER, Source
from broker.core.routing.graph import Route
from broker.core.schedule import Chore
from broker.core.transactions.transaction import HeldPublish
from broker.core.vhosts.changes import DELETED, Change, flag_of, number_of, text_of
from broker.core.vhosts.registry import Registry
from broker.core.vhosts.vhost import VirtualHost


@final
class BatchRow:
    """A message to publish to an exchange; `keys`: all its routing keys, [] for `routing_key` alone."""

    def __init__(self, message: Message, exchange: str, routing_key: str, keys: list[str]) -> None:
        self.message = message
        self.exchange = exchange
        self.routing_key = routing_key
        self.keys = keys


Known = set[tuple[str, str]]
"""Exchanges and routing keys."""

OpenRows = Callable[[bytes, "VirtualHost", "Known | None"], list[BatchRow]]
"""Returns the rows of a stored chunk, for publishing in a virtual host; made anew for each call.

Rows without headers whose exchange and routing key are known are left out.
"""


def no_rows(content: bytes, virtual_host: VirtualHost, known: Known | None) -> list[BatchRow]:
    """Refuse to read rows, in brokers that only inspect a log."""
    raise NotImplementedError


@final
class Attempt:
    """Chunks of rows in the order in which they came, each a message of a queue that no client can reach.

    `number`: the number of the queue in the log, which is never used twice, so it identifies the attempt. The
    routing key of a stored chunk is its count of rows.
    """

    def __init__(
        self, virtual_host: VirtualHost, number: i64, batch: i64, partition: i64, epoch: i64
    ) -> None:
        queue = Queue(
            "",
            virtual_host.store,
            FifoEntryList(),
            virtual_host.counters,
            durable=True,
            logged=True,
            number=number,
            vhost=virtual_host.name,
        )
        virtual_host.topology.numbers.queues[number] = queue
        self.queue = queue
        self.number = number
        self.batch = batch
        self.partition = partition
        self.epoch = epoch
        self.holder = make_holder(queue, no_ack=True)
        self.rows: i64 = 0

    def add(self, chunks: list[Message], done: Callable[[str], object]) -> None:
        """Append chunks to the log and to the attempt. The log must accept appends.

        `done` is called with "" when the chunks are on disk. If they cannot be stored, they are removed from
        the attempt, and `done` is called with the reason.
        """
        store = self.queue.store
        entries: list[QueueEntry] = []
        for chunk in chunks:
            store.append_message(chunk, [self.queue])
            entries.append(self.queue.link(chunk))
            self.rows += rows_in(chunk)
        store.wait(_Added(self, entries, done))

    def take_back(self, entries: list[QueueEntry]) -> None:
        """Remove entries that the log could not store."""
        for entry in entries:
            if entry.state != DEQUEUED:  # else the attempt was dropped before
                self.rows -= rows_in(entry.message)
                drop(self.queue, entry)

    def count(self) -> None:
        """Count the rows of the chunks that recovery has restored."""
        self.rows = 0
        for entry in self.queue.entries:
            self.rows += rows_in(entry.message)

    def described(self) -> list[int]:
        """Describe the attempt without its rows, for the log."""
        return [int(self.number), int(self.batch), int(self.partition), int(self.epoch)]


@final
class _Added(DurableWaiter):
    """Chunks on their way to the disk."""

    def __init__(self, attempt: Attempt, entries: list[QueueEntry], done: Callable[[str], object]) -> None:
        self._attempt = attempt
        self._entries = entries
        self._done = done

    def on_durable(self, batch: i64) -> None:
        """Report that the chunks are on disk."""
        self._done("")

    def on_store_failed(self, reason: str) -> None:
        """Remove the chunks and report the failure."""
        self._attempt.take_back(self._entries)
        self._done(reason)


def rows_in(chunk: Message) -> i64:
    """Return the number of rows of a stored chunk."""
    return int(chunk.address.routing_key)


@final
class RowPublish(HeldPublish):
    """The publish of a row. `nowhere`: the row is mandatory, and its route leads to no queue."""

    def __init__(self, route: Route, row: BatchRow, mandatory: bool) -> None:
        super().__init__(route, row.message, row.keys, False)
        row.message.address = route.address
        self.mandatory = mandatory
        self.nowhere = False

    def resolve(self, publisher: Publisher, source: Source) -> str:
        """Find the queues."""
        refusal = super().resolve(publisher, source)
        passage = self.passage
        if refusal or not self.mandatory or passage.queues or passage.keepers or passage.is_duplicate:
            return refusal
        self.nowhere = True
        address = self.route.address
        return f"exchange '{address.exchange}' leads nowhere with routing key '{address.routing_key}'"

    def report_outcome(self, outcome: Outcome) -> None:
        """Do nothing: no client waits for the outcome."""


def publishes_of(
    chunk: Message,
    virtual_host: VirtualHost,
    open_rows: OpenRows,
    mandatory: bool,
    known: Known | None = None,
) -> list[RowPublish]:
    """Return the publishes of a stored chunk's rows that are not `known`, in their order.

    Raises:
        NotFound, AccessRefused: an exchange has been deleted, or is internal now.
    """
    routes: dict[tuple[str, str], Route] = {}
    publishes: list[RowPublish] = []
    for row in open_rows(virtual_host.store.content_of(chunk), virtual_host, known):
        key = row.exchange, row.routing_key
        route = routes.get(key)
        if route is None:
            route = virtual_host.publisher.route(row.exchange, row.routing_key)
            routes[key] = route
        publishes.append(RowPublish(route, row, mandatory))
    return publishes


def objection(
    chunk: Message, virtual_host: VirtualHost, open_rows: OpenRows, mandatory: bool, known: Known
) -> str:
    """Return why a row of a stored chunk can never be published, "" if all rows can. Nothing is published.

    `known`: exchanges and routing keys to which rows without headers can be published; this chunk adds to it.

    A full or stopped queue is no reason, because the row can be published later.

    Raises:
        NotFound, AccessRefused, PreconditionFailed: a row can never be published.
    """
    for publish in publishes_of(chunk, virtual_host, open_rows, mandatory, known):
        refusal = publish.resolve(virtual_host.publisher, BROKER)
        publish.passage.unreserve()
        if publish.nowhere:
            return refusal
        route = publish.route
        if not route.careful and not route.by_message:
            known.add((route.address.exchange, route.address.routing_key))
    return ""


@final
class Move(Operation):
    """The transaction that publishes the rows of a chunk and removes the chunk: both or neither.

    `done` is called with "" when the transaction is on disk, or else with the reason of the failure.
    """

    def __init__(
        self,
        virtual_host: VirtualHost,
        attempt: Attempt,
        entry: QueueEntry,
        publishes: list[RowPublish],
        done: Callable[[str], None],
    ) -> None:
        super().__init__(virtual_host.publisher, attempt.queue, attempt.holder)
        self.publishes.extend(publishes)
        self.remove(entry)
        self._told = done

    def on_committed(self) -> None:
        """Report success."""
        self._told("")

    def on_commit_failed(self, reason: str) -> None:
        """Report that the log has failed."""
        self._told(f"the log has failed: {reason}")

    def _refusal_text(self, number: int, why: str) -> str:
        return why


SINK: Final = "sink"
ATTEMPT: Final = "sink.attempt"
ATTEMPTS_MAX: Final = 20_000  # open attempts of a sink at the same time
RETRY_MS: Final = 500  # the delay before a chunk that could not be published is tried again
NO_BATCH: Final[i64] = -1


@final
class Sink(Chore):
    """The sink of `query` in a virtual host, for the one program that uses this name.

    `user`: the user who made the sink. `checkpoint` names the program's record of its batches, "": not known.
    `epoch` grows with each attachment; each attempt belongs to one epoch. `last`: the last committed batch,
    NO_BATCH: none.
    `moving`: attempts that are committed and not completely published. `blocked`: why the next chunk cannot
    be published now, "" if it can. `mandatory`: a row without a queue is an error. `is_deleted`: the sink was
    deleted.
    `by`: the actor of the last commit, from `Journal.current_actor`; None: `user`, before a restart.
    """

    def __init__(self, virtual_host: VirtualHost, query: str, user: str, open_rows: OpenRows) -> None:
        super().__init__(virtual_host.schedule, 1)
        self.virtual_host = virtual_host
        self.query = query
        self.user = user
        self.epoch: i64 = 0
        self.last: i64 = NO_BATCH
        self.checkpoint = ""
        self.mandatory: bool = True
        self.attempts: dict[int, Attempt] = {}  # uncommitted attempts, by their numbers
        self.moving: list[Attempt] = []
        self.blocked = ""
        self.is_deleted: bool = False
        self.by: object | None = None
        self.gate: object | None = None  # a lock for changes of the sink; the core does not read it
        self.open_rows = open_rows
        self._user = Operator(user, "", "")
        self._under_way: bool = False  # a chunk is being published,
        self._rows_under_way: i64 = 0  # and has so many rows
        self._watchers: list[Callable[[], None]] = []

    @property
    def moving_rows(self) -> i64:
        """The number of committed rows that are not published yet."""
        rows: i64 = 0
        for attempt in self.moving:
            rows += attempt.rows
        return rows

    # ---- commands: the caller has checked that the log accepts appends

    def attach(self) -> None:
        """Begin a new epoch, and drop the attempts of earlier ones."""
        self.epoch += 1
        self._drop(list(self.attempts.values()))

    def begin(self, batch: i64, partition: i64) -> Attempt:
        """Begin an attempt at a partition of a batch. Raises LimitReached."""
        if len(self.attempts) >= ATTEMPTS_MAX:
            raise LimitReached(
                f"sink '{self.query}' in vhost '{self.virtual_host.name}' has {ATTEMPTS_MAX} attempts already"
            )
        number = self.virtual_host.topology.numbers.take()
        attempt = Attempt(self.virtual_host, number, batch, partition, self.epoch)
        self.attempts[number] = attempt
        change = self._named(ATTEMPT)
        change["attempt"] = attempt.described()
        self.virtual_host.store.append_definition(change)
        return attempt

    def drop(self, attempts: list[Attempt]) -> None:
        """Drop attempts, which are not committed, with all their rows."""
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
        """Commit `batch`: the rows of `winners` will be published, and `batch` becomes the last one.

        Other attempts at this batch or at earlier ones are dropped. Nothing may be `moving` yet. From now on
        the sink serves `checkpoint` only. `done` is called with "" when the decision is on disk, or else with
        the reason of the failure.
        """
        won = {int(each.number) for each in winners}
        losers = [
            each for each in self.attempts.values() if each.batch <= batch and int(each.number) not in won
        ]
        decision = Decision(self, winners, losers, done)
        self.by = self.virtual_host.journal.current_actor()
        self.last = batch
        self.checkpoint = checkpoint or self.checkpoint
        self.mandatory = mandatory
        self.moving = list(winners)
        for attempt in winners + losers:
            self.attempts.pop(attempt.number, None)
        self.virtual_host.store.append_definition(self.describe())
        self.virtual_host.store.wait(decision)

    def idle(self, watcher: Callable[[], None]) -> None:
        """Call `watcher` once, when all committed rows are published or the sink is deleted."""
        if self.moving and not self.is_deleted:
            self._watchers.append(watcher)
        else:
            watcher()

    def ignore(self, watcher: Callable[[], None]) -> None:
        """Forget a `watcher` of `idle`."""
        if watcher in self._watchers:
            self._watchers.remove(watcher)

    def forget(self) -> None:
        """Release everything: the sink or its virtual host has been deleted."""
        self.is_deleted = True
        self.virtual_host.schedule.cancel(self)
        for attempt in [*self.attempts.values(), *self.moving]:
            self.dispose_attempt(attempt)
        self.attempts = {}
        self.moving = []
        self._notify_watchers()

    # ---- publishing after a decision

    def publish_soon(self) -> None:
        """Schedule the publishing of committed rows, if there are any."""
        if self.moving:
            self.continue_soon()

    def step(self, budget: i64) -> bool:
        """Publish the next chunk; its end schedules the chunk after it."""
        journal = self.virtual_host.journal
        before = journal.actor
        journal.actor = self._user if self.by is None else self.by
        try:
            self._publish_chunk()
        finally:
            journal.actor = before
        return False

    def _publish_chunk(self) -> None:
        if self.is_deleted or self._under_way:
            return
        moving = self.moving
        while moving and moving[0].queue.depth == 0:
            self._finish(moving[0])
        if not moving:
            self._notify_watchers()
            return
        attempt = moving[0]
        entries = attempt.queue.entries
        entry = entries.next(entries.head)
        assert entry is not None, "a queue with a depth has an entry"
        move: Move | None = None
        self._under_way = True
        self._rows_under_way = rows_in(entry.message)
        try:
            publishes = publishes_of(entry.message, self.virtual_host, self.open_rows, self.mandatory)
            move = Move(self.virtual_host, attempt, entry, publishes, self._moved)
            move.commit()
        except Exception as error:  # refused, or the disk cannot read the chunk
            try:
                if move is not None:
                    move.abort()
            finally:
                self._moved(str(error))

    def _moved(self, trouble: str) -> None:
        self._under_way = False
        if self.is_deleted:
            return
        schedule = self.virtual_host.schedule
        if trouble and trouble != self.blocked:
            self.virtual_host.trouble(f"{self.where()} cannot publish what is committed: {trouble}")
        self.blocked = trouble
        if not trouble:
            self.moving[0].rows -= self._rows_under_way
        schedule.set(self, schedule.after(RETRY_MS) if trouble else schedule.now())

    def _finish(self, attempt: Attempt) -> None:
        """Release a completely published attempt. The log removes it with the sink's next description."""
        self.moving.remove(attempt)
        if not self.moving:
            self.virtual_host.store.append_definition(self.describe())
        self.dispose_attempt(attempt)

    def _notify_watchers(self) -> None:
        for _ in range(len(self._watchers)):
            self._watchers.pop(0)()

    def _drop(self, attempts: list[Attempt]) -> None:
        for attempt in attempts:
            del self.attempts[attempt.number]
        self.virtual_host.store.append_definition(self.describe())
        for attempt in attempts:
            self.dispose_attempt(attempt)

    def dispose_attempt(self, attempt: Attempt) -> None:
        """Dispose of an attempt whose end is already in the log."""
        self.virtual_host.topology.numbers.queues.pop(attempt.number, None)
        dispose(attempt.queue, self.virtual_host.schedule)

    # ---- in words

    def where(self) -> str:
        """Name the sink in messages to clients."""
        return f"sink '{self.query}' in vhost '{self.virtual_host.name}'"

    def describe(self) -> Change:
        """Describe the whole sink, for the log."""
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
        """Start publishing: the decision is on disk."""
        sink = self._sink
        for attempt in self._losers:
            sink.dispose_attempt(attempt)
        sink.publish_soon()
        self._done("")

    def on_store_failed(self, reason: str) -> None:
        """Undo the decision, which is not on disk."""
        sink = self._sink
        if sink.is_deleted:
            for attempt in self._losers:
                sink.dispose_attempt(attempt)
        else:
            sink.last = self._before
            sink.checkpoint = self._checkpoint_before
            sink.moving = []
            for attempt in self._winners + self._losers:
                sink.attempts[attempt.number] = attempt
            # the log will still write the decision when there is room again: append the state before it
            sink.virtual_host.store.append_definition(sink.describe())
        self._done(f"the log has failed: {reason}")


SINKS_MAX: Final = 1000  # for each virtual host


@final
class Sinks:
    """All sinks of a broker. `open_rows` reads the chunks of attempts; it is set before recovery."""

    def __init__(self, registry: Registry) -> None:
        self.open_rows: OpenRows = no_rows
        self._registry = registry
        self._sinks: dict[tuple[str, str], Sink] = {}
        registry.appliers[SINK] = self.apply
        registry.definers.append(self.describe)

    def of(self, virtual_host: VirtualHost) -> list[Sink]:
        """The sinks of a virtual host."""
        return [sink for sink in self._sinks.values() if sink.virtual_host is virtual_host]

    def find_sink(self, virtual_host: VirtualHost, query: str) -> Sink | None:
        """Return the sink of a query; None: there is none."""
        return self._sinks.get((virtual_host.name, query))

    def existing(self, virtual_host: VirtualHost, query: str) -> Sink:
        """Return the sink of a query. Raises NotFound."""
        sink = self.find_sink(virtual_host, query)
        if sink is None:
            raise NotFound(f"no sink '{query}' in vhost '{virtual_host.name}'")
        return sink

    def attach(self, virtual_host: VirtualHost, query: str, user: str, since: i64 = 0) -> Sink:
        """Return the sink of a query, a new one if there is none; earlier attachments become invalid.

        `since`: the epochs of a new sink come after this number. The number must grow with time, so that the
        epochs of an earlier sink of this name differ from all epochs of the new sink.

        Raises:
            LimitReached: the virtual host has too many sinks.
            PreconditionFailed: the name is empty, longer than 255 bytes or not valid UTF-8.
            StoreFailed: the log has stopped.
        """
        check_length("sink name", query)
        self._registry.store.require()
        sink = self.find_sink(virtual_host, query)
        if sink is None:
            if len(self.of(virtual_host)) >= SINKS_MAX:
                raise LimitReached(f"vhost '{virtual_host.name}' has {SINKS_MAX} sinks already")
            sink = Sink(virtual_host, query, user, self.open_rows)
            sink.epoch = since
            self._sinks[virtual_host.name, query] = sink
        sink.attach()
        return sink

    def delete(self, sink: Sink) -> None:
        """Delete a sink, with all rows that have not been published. Raises StoreFailed."""
        self._registry.store.require()
        name = sink.virtual_host.name
        del self._sinks[name, sink.query]
        self._registry.store.append_definition({"kind": SINK + DELETED, "vhost": name, "query": sink.query})
        sink.forget()

    def forget_vhost(self, vhost: str) -> None:
        """Forget the sinks of a deleted virtual host; its deletion is already in the log."""
        for key in [key for key in self._sinks if key[0] == vhost]:
            self._sinks.pop(key).forget()

    def describe(self) -> Iterator[list[Change]]:
        """Describe each sink, for the log."""
        for key, sink in list(self._sinks.items()):
            yield [sink.describe()] if self._sinks.get(key) is sink else []

    def apply(self, change: Change) -> None:
        """Apply a change from the log. Raises ValueError."""
        name = text_of(change, "vhost")
        query = text_of(change, "query")
        kind = text_of(change, "kind")
        virtual_host = self._registry.vhosts.get(name)
        sink = self._sinks.get((name, query))
        if kind == SINK + DELETED:
            if sink is not None:
                del self._sinks[name, query]
                sink.forget()
        elif kind == ATTEMPT:
            attempt = _numbers(change, "attempt")
            if len(attempt) != 4:
                raise ValueError(f"an attempt has four numbers: {change}")
            if virtual_host is not None:
                virtual_host.topology.numbers.reserve(attempt[0])
            if sink is not None and attempt[0] not in sink.attempts:  # else it is described yet
                sink.attempts[attempt[0]] = Attempt(sink.virtual_host, *attempt)
        elif kind != SINK:
            raise ValueError(f"no definition is of kind {kind!r}")
        elif virtual_host is not None:
            if sink is None:
                sink = Sink(virtual_host, query, text_of(change, "user"), self.open_rows)
                self._sinks[name, query] = sink
            _apply(sink, change)

    def recover(self) -> None:
        """Continue publishing after recovery, before the broker serves clients."""
        for sink in self._sinks.values():
            for attempt in [*sink.attempts.values(), *sink.moving]:
                attempt.count()
            sink.publish_soon()


def _apply(sink: Sink, change: Change) -> None:
    """Set a sink to its description. Raises ValueError."""
    sink.epoch = number_of(change, "epoch")
    sink.last = number_of(change, "last")
    sink.mandatory = flag_of(change, "mandatory")
    sink.checkpoint = text_of(change, "checkpoint") if "checkpoint" in change else ""
    described = change.get("attempts")
    if not isinstance(described, list):
        raise ValueError(f"a sink needs a list of attempts: {change}")
    before = sink.attempts | {int(each.number): each for each in sink.moving}
    attempts: dict[int, Attempt] = {}
    for each in described:
        numbers = _numbers({"attempt": each}, "attempt")
        if len(numbers) != 4:
            raise ValueError(f"an attempt has four numbers: {change}")
        number = numbers[0]
        sink.virtual_host.topology.numbers.reserve(number)
        known = before.pop(number, None)
        attempts[number] = known if known is not None else Attempt(sink.virtual_host, *numbers)
    for gone in before.values():
        sink.dispose_attempt(gone)
    try:
        sink.moving = [attempts.pop(number) for number in _numbers(change, "moving")]
    except KeyError as error:
        raise ValueError(f"a sink has no attempt {error}: {change}") from error
    sink.attempts = attempts


def _numbers(change: Change, field: str) -> list[int]:
    """Return a field that is a list of integers. Raises ValueError."""
    value = change.get(field)
    if not isinstance(value, list) or not all(isinstance(each, int) for each in value):
        raise ValueError(f"a sink needs integers as {field!r}: {change}")
    return value
