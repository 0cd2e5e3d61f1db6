"""The source of a shovel that forwards exactly once: a queue of this broker, staged for the shovel.

[Bernstein and Newcomer, Principles of Transaction Processing 4.5, Routing: as one transaction]

A stage gives each message a position, which is in the log before the message is sent. After a crash the
message has the same position, and is sent again if it was not acknowledged. The destination remembers the
highest position of this origin in the batch of its log that stores the message. So the message is enqueued
there exactly once, whichever side crashes.

The first message of an attempt is sent alone, and each later one names its predecessor: the destination
refuses a message whose predecessor it has refused. A lost message could otherwise look like a duplicate.
"""

from __future__ import annotations

from collections import deque
from hashlib import sha256
from typing import Final, Protocol, final
from urllib.parse import quote, unquote

import structlog
from librt.strings import BytesWriter, write_i64_be
from mypy_extensions import i64

from broker.adapters.formats.either import Conversions, SelectorFilter, content_for091, delivered_content
from broker.core.broker import Broker
from broker.core.delivery.credit import Credit
from broker.core.delivery.session import Connection, PullingTarget, Scheduler, Session
from broker.core.entries.entry import QueueEntry
from broker.core.errors import BrokerError, NotFound, PreconditionFailed, StoreFailed
from broker.core.message import SHORT_STRING_BYTES_MAX, Message
from broker.core.operators.stage import Stage
from broker.core.ports import DurableWaiter
from broker.core.publishing.duplicate_check import ORIGIN, POSITION, PRECEDING
from broker.core.queues.attach import attach, attach_here, detach
from broker.core.queues.consumer import NOTIFIED, QueueConsumer
from broker.core.queues.consumers import found_nothing
from broker.core.queues.queue import Queue
from broker.core.schedule import Chore, TimedTask
from broker.core.selector.selector import Selector
from broker.forwarding.definition import PREFETCH, Definition
from broker.forwarding.ports import EndOwner, Run, Timer, guard
from broker.forwarding.rewriting import ORIGIN_NAME, ORIGIN_NAMES
from protocol.amqp091.content import HEADER_PREFIX_BYTES, header_frame_bytes, with_fields
from protocol.amqp091.properties import Properties
from protocol.amqp10.sections import is_sections
from protocol.errors import ProtocolError

PREFIX: Final = "shovel "  # with this the names of the readers of shovels begin
RELEASE_MS: Final = 1000  # between two attempts to release a stage
REQUEUED: Final = 1  # steps of `Stage.requeue_some` in a turn
SENT_MAX: Final = 256  # messages sent in a turn
NONE: Final[i64] = -1
_NO_PIECES: Final[deque[Message]] = deque()

_log = structlog.get_logger("amqpd.forwarding")


class StoredWatcher(Protocol):
    """The publishers of messages that wait until the destination has answered."""

    def note_stored(self, message: Message) -> None:
        """Note that the destination has stored a message."""

    def note_refused(self, message: Message) -> bool:
        """Note that the destination has refused a message; true: the message is dropped."""


@final
class StagedQueue:
    """A queue, and the reader for which it is staged. `where`: the reader, for people.

    `prefetch`: the number of messages that may be staged; 0: PREFETCH. `table`: the arguments with which a
    missing queue is declared; None: the queue must exist. `selector`: only matching messages are staged;
    None: all. A selector does not apply to messages that are staged already. `watcher`: for the link of a
    remote queue, the publishers; None: the reader is no such link.
    """

    def __init__(self, vhost: str, name: str, reader: str, where: str) -> None:
        self.vhost = vhost
        self.name = name
        self.reader = reader
        self.where = where
        self.prefetch: i64 = 0
        self.table: dict[str, object] | None = None
        self.selector: Selector | None = None
        self.watcher: StoredWatcher | None = None


def staged_queue(definition: Definition) -> StagedQueue:
    """Return the queue of this broker that a shovel stages."""
    source = definition.source
    staged = StagedQueue(source.uris[0].vhost, source.queue, reader_of(definition), definition.where)
    staged.prefetch = source.prefetch
    staged.table = None if source.predeclared else source.table
    staged.selector = source.selector
    return staged


def reader_of(definition: Definition, origin: str = "") -> str:
    """Return the name under which a shovel stages messages, which no other shovel has at the queue's broker.

    `origin`: the name of this broker for others; "": the queue is in this broker.
    """
    owner = f"{origin}/" if origin else ""
    reader = f"{PREFIX}{owner}{quote(definition.vhost, '')}/{quote(definition.name, '')}"
    if len(reader) <= SHORT_STRING_BYTES_MAX:
        return reader
    return f"{PREFIX}{sha256(reader.encode()).hexdigest()}"


def marked(content: bytes, origin: bytes, position: i64, preceding: i64) -> bytes:
    """Return a content with its origin (see `origin_fields`), its position, and the position before, if any.

    Raises ValueError for headers that do not decode.
    """
    has_headers = content[HEADER_PREFIX_BYTES] & _HAS_HEADERS != 0
    if has_headers and content.find(ORIGIN_NAME, 0, header_frame_bytes(content)) >= 0:  # forwarded before
        try:
            properties = Properties(content)
            properties.set_fields([field for field in properties.fields() if field[0] not in ORIGIN_NAMES])
        except ProtocolError as error:
            raise ValueError(error.text) from error
        content = properties.content()
    fields = _SCRATCH
    fields.truncate(0)
    fields.write(origin)
    write_i64_be(fields, position)
    if preceding != NONE:
        fields.write(_PRECEDING)
        write_i64_be(fields, preceding)
    return with_fields(content, fields.getvalue())


def encoded_origin(origin: str) -> bytes:
    """Return an origin as the value of a header, with its type."""
    octets = origin.encode()
    return b"S" + len(octets).to_bytes(4, "big") + octets


def origin_fields(origin: bytes) -> bytes:
    """Return the header with an encoded origin, and the beginning of the header with the position."""
    return _ORIGIN + origin + _POSITION


def _field(name: str, kind: bytes) -> bytes:
    """Return the encoded name of a header, and the octet of its type."""
    return bytes([len(name)]) + name.encode() + kind


_SCRATCH: Final = BytesWriter()  # for `marked`
_HAS_HEADERS: Final = 0x20  # in the first octet of the property flags
_ORIGIN: Final = _field(ORIGIN, b"")  # the origin has its type with it
_POSITION: Final = _field(POSITION, b"l")
_PRECEDING: Final = _field(PRECEDING, b"l")


def owner_in(reader: str) -> tuple[str, str] | None:
    """Return the virtual host and the name of the shovel of this broker that has named a reader.

    None: another program has named the reader, or the name was too long (`reader_of`).
    """
    if not reader.startswith(PREFIX) or reader.count("/") != 1:
        return None
    vhost, _, name = reader.removeprefix(PREFIX).partition("/")
    owner = unquote(vhost), unquote(name)
    return owner if reader == f"{PREFIX}{quote(owner[0], '')}/{quote(owner[1], '')}" else None


@final
class StageReleases(TimedTask):
    """The releases of stages whose readers were deleted. A release waits while the log takes nothing.

    `_waiting`: stages, each with its epoch at the deletion. A reader that has attached since keeps its stage.
    """

    def __init__(self, broker: Broker) -> None:
        super().__init__()
        self._broker = broker
        self._waiting: list[tuple[Stage, int]] = []

    def release_reader(self, staged: StagedQueue) -> None:
        """Return the staged messages of a reader to their queue, if there are any."""
        vhost = self._broker.vhosts.get(staged.vhost)
        queue = None if vhost is None else vhost.topology.queues.get(staged.name)
        stage = None if queue is None else self._broker.staging.find_stage(queue, staged.reader)
        if stage is not None:
            self.release(stage)

    def release(self, stage: Stage) -> None:
        """Return the messages of a stage to their queue, now or when the log has recovered."""
        stage.release_marked()
        if not self._release_now(stage):
            _log.warning(
                "messages stay staged until the log recovers",
                reader=stage.reader,
                queue=stage.queue.name,
                vhost=stage.queue.vhost,
            )
            self._waiting.append((stage, int(stage.epoch)))
            self._look_later()

    def do_due_work(self) -> None:
        """Try all releases again."""
        waiting, self._waiting = self._waiting, []
        for stage, epoch in waiting:
            known = self._broker.staging.find_stage(stage.queue, stage.reader)
            is_free = known is stage and stage.epoch == epoch and not stage.queue.deleted
            if is_free and not self._release_now(stage):
                self._waiting.append((stage, epoch))
        if self._waiting:
            self._look_later()

    def _look_later(self) -> None:
        schedule = self._broker.schedule
        schedule.set(self, schedule.after(RELEASE_MS))

    def _release_now(self, stage: Stage) -> bool:
        """Release a stage, unless the log takes nothing."""
        try:
            self._broker.staging.release(stage)
        except StoreFailed:
            return False
        Requeue(self._broker, stage).continue_soon()
        return True


@final
class Requeue(Chore):
    """The return of the messages of a stage that was released, in slices."""

    def __init__(self, broker: Broker, stage: Stage) -> None:
        super().__init__(broker.schedule, REQUEUED)
        self._stage = stage

    def step(self, budget: i64) -> bool:
        """Return some messages."""
        return not self._stage.queue.deleted and self._stage.requeue_some()


@final
class StagingHost:
    """The broker, as staged sources see it.

    `origin`: the name of this broker for others, which no other broker has. It is set before a shovel starts.
    `releases`: the releases of stages whose readers were deleted.
    """

    def __init__(
        self, broker: Broker, scheduler: Scheduler, conversions: Conversions, origin: str = ""
    ) -> None:
        self.broker = broker
        self.scheduler = scheduler
        self.conversions = conversions
        self.origin = origin
        self.releases = StageReleases(broker)

    def origin_of(self, stage: Stage) -> bytes:
        """Return the origin of the messages of a stage, encoded as the value of a header."""
        return encoded_origin(f"{self.origin}/{int(stage.incarnation):x}")


@final
class StagedConnection(Connection):
    """The turns in which a source stages messages."""

    def __init__(self, scheduler: Scheduler, source: StagedSource, name: str) -> None:
        super().__init__(scheduler)
        self.name = name
        self._source = source

    def pump(self, budget: i64) -> None:
        """Stage messages, and append them to the log."""
        super().pump(budget)
        guard(self._source.owner, self._source.work)


@final
class StagedTarget(PullingTarget):
    """The consumer's end of a source, which stages messages instead of delivering them."""

    def __init__(self, session: Session, source: StagedSource) -> None:
        self._source = source
        super().__init__(session, Credit())

    def wants_work(self) -> bool:
        """Whether more messages may be staged."""
        return not self.closed and self._source.room() > 0

    def fits(self, size: i64) -> bool:
        """Take no message at the moment of its publication: each message is staged in a turn."""
        return False

    def process_pending(self, quota: i64) -> i64:
        """Stage up to `quota` messages."""
        self.again = False
        if not self.consumers:
            return 0
        try:
            return self._stage(quota, self.consumers[0])
        except Exception:
            self._source.owner.on_broken()
            return 0

    def _stage(self, quota: i64, consumer: QueueConsumer) -> i64:
        count = self._source.stage_some(min(quota, self._source.room()))
        if count < 0:
            found_nothing(self._source.queue, consumer)
            self.again = consumer.state == NOTIFIED  # the search for a message is not over
            return 0
        self.update()
        self.again = consumer.state >= NOTIFIED
        return count

    def on_consumer_cancelled(self, consumer: QueueConsumer) -> None:
        """End the attempt: the queue was deleted."""
        guard(self._source.owner, lambda: self._source.fail("the queue was deleted"))


@final
class StagedSource(DurableWaiter):
    """The source end of an attempt that forwards exactly once.

    Positions: messages before `_acked` are stored at the destination, and messages before `_next` are sent.
    `_offsets`: the position of each sent message by its number in the attempt. `_done`: positions beyond
    `_acked` that are stored. `_alone`: the next message is sent alone, and without its predecessor.
    `marks_positions`: the destination gets the positions. `drains`: no further messages are staged.
    """

    def __init__(self, owner: EndOwner, staged: StagedQueue, host: StagingHost) -> None:
        self.owner = owner
        self.marks_positions = True
        self.drains = False
        self._staged = staged
        self._host = host
        self._store = host.broker.store
        self._stage: Stage | None = None
        self._target: StagedTarget | None = None
        self._consumer: QueueConsumer | None = None
        self._origin = b""  # encoded
        self._origin_fields = b""
        self._room_max: i64 = staged.prefetch or PREFETCH
        self._coming: i64 = 0  # marked, and not in a step yet
        self._waits = False  # for the log
        self._has_step = False  # a step is on its way to the disk
        self._closed = False
        self._holds = False
        self._alone = True
        self._acked: i64 = 0
        self._next: i64 = 0
        self._preceding: i64 = NONE
        self._sent: i64 = 0
        self._offsets: dict[int, int] = {}
        self._unsettled: i64 = 1  # all messages with lower numbers are answered
        self._done: set[int] = set()
        self._work = Timer(owner, self.send_soon)
        self._reader = staged.reader
        self._returns = False  # refused messages wait until all messages on their way are answered
        self._epoch: i64 = 0  # the epoch of the stage that this source has attached
        self._sends = False
        self._pieces = _NO_PIECES  # the pieces of the last message that are left to send

    @property
    def stage(self) -> Stage:
        """The stage of an open source."""
        assert self._stage is not None, "the source is open"
        return self._stage

    @property
    def queue(self) -> Queue:
        """The queue of an open source."""
        return self.stage.queue

    # -- as a source

    def open(self) -> None:
        """Stage messages of the queue, and first send again those that are staged."""
        try:
            self._attach()
        except BrokerError as error:
            self.fail(error.text)
            return
        self._wait()
        self.owner.on_source_ready(self.queue.ready)

    def close(self) -> None:
        """Stage and send no more."""
        if self._closed:
            return
        self._closed = True
        self._host.broker.schedule.cancel(self._work)
        stage, target, consumer = self._stage, self._target, self._consumer
        if stage is None:
            return
        stage.release_marked()
        if target is not None and consumer is not None:
            target.close()
            detach(stage.queue, consumer, [])

    def settle(self, number: i64, multiple: bool) -> None:
        """Note that the destination has stored a message, or all messages up to this one."""
        offsets = self._offsets
        if not multiple:
            if number in offsets:
                self._note_done(offsets.pop(number))
        else:
            number = min(number, self._sent)
            for each in range(self._unsettled, number + 1):
                if each in offsets:
                    self._note_done(offsets.pop(each))
            self._unsettled = max(self._unsettled, number + 1)
        self._alone = False
        self._advance()
        self._return_answered()

    def _note_done(self, offset: i64) -> None:
        if offset == self._acked:
            self._acked += 1
        else:
            self._done.add(int(offset))
        watcher = self._staged.watcher
        entry = None if watcher is None else self.stage.entry(offset)
        if watcher is not None and entry is not None:
            watcher.note_stored(entry.message)

    def drop_refused(self, runs: list[Run]) -> None:
        """Drop the refused messages whose publishers learn of the refusal; the others are sent again."""
        watcher = self._staged.watcher
        assert watcher is not None, "only the link of a remote queue drops messages"
        for first, last in runs:
            for number in range(first, last + 1):
                offset = self._offsets.get(number)
                entry = None if offset is None else self.stage.entry(offset)
                if offset is not None and entry is not None and watcher.note_refused(entry.message):
                    del self._offsets[number]
                    self._done.add(offset)
        self._advance()

    def refuse(self, number: i64, multiple: bool) -> None:
        """Note that the reader has refused a message, or all messages up to this one.

        These are sent again when all messages that were sent are answered.
        """
        self._returns = True
        offsets = self._offsets
        offsets.pop(number, None)
        if multiple:
            number = min(number, self._sent)
            for each in range(self._unsettled, number):
                offsets.pop(each, None)
            self._unsettled = max(self._unsettled, number + 1)
        self._return_answered()

    def _return_answered(self) -> None:
        if self._returns and not self._offsets and not self._pieces:
            self._returns = False
            self.return_refused([])
            self._continue_soon()

    def give_up(self) -> None:
        """Do nothing: `release_stage` returns the messages."""

    def return_refused(self, runs: list[Run]) -> None:
        """Send again from the first message that is not stored: all answers have arrived."""
        self._offsets.clear()
        self._next = self._acked
        self._preceding = NONE
        self._alone = True

    def stage_again(self) -> None:
        """Stage further messages: the source does not drain any more."""
        if self._target is not None:
            self._target.update()

    def hold(self) -> None:
        """Send nothing until `release`."""
        self._holds = True

    def release(self) -> None:
        """Send again."""
        self._holds = False
        self._continue_soon()

    def flush(self) -> None:
        """Send more, as answers have arrived, and have the log remember what is stored."""
        self.work()

    def fail(self, reason: str) -> None:
        """End the attempt."""
        if not self._closed:
            self.owner.on_failed(f"source queue '{self._staged.name}': {reason}")

    # -- staging

    def room(self) -> i64:
        """Return how many more messages may be staged now."""
        stage = self._stage
        if self._closed or self.drains or stage is None or self._waits or not self._is_attached(stage):
            return 0
        return self._room_max - self._coming - (stage.next - self._acked)

    @property
    def origin(self) -> bytes:
        """The encoded origin in the headers of the messages, b"" before the source is open."""
        return self._origin

    @property
    def stored(self) -> i64:
        """The position behind the messages that the destination has stored without a gap."""
        return self._acked

    @property
    def is_drained(self) -> bool:
        """Whether the destination has stored all staged messages, and the log knows this."""
        stage = self._stage
        return stage is not None and self._coming == 0 and stage.kept == stage.next and not self._waits

    def stage_some(self, most: i64) -> i64:
        """Mark up to `most` messages. Return their number, or -1 if there are not so many."""
        count: i64 = 0
        consumer = self._consumer
        if most <= 0 or consumer is None:
            return 0
        self.stage.use_cursor(consumer.context)
        try:
            while count < most:
                if self.stage.take_one() < 0:
                    break
                count += 1
        except BrokerError as error:
            self.fail(error.text)
            return -1
        self._coming += count
        return count if count == most else -1

    def work(self) -> None:
        """Append a step to the log if there is anything to append, and send messages that are on disk."""
        stage = self._stage
        if self._closed or stage is None or self._waits:
            return
        if not self._is_attached(stage):
            self.fail(f"another program has attached to reader '{self._reader}', or has deleted it")
            return
        if not self._send():
            return
        if self._coming > 0 or self._acked > stage.first:
            if self._store.failure:
                self.fail(self._store.refusal)
                return
            self._coming = 0
            self._has_step = True
            self._host.broker.staging.append(stage, stage.step(self._acked, self._host.broker.schedule.now()))
            self._wait()

    def on_durable(self, batch: i64) -> None:
        """Send the messages that are staged now: their positions are on disk."""
        guard(self.owner, self._send_stored)

    def _send_stored(self) -> None:
        stage = self._stage
        self._waits = False
        if stage is None:
            return
        self._has_step = False
        if self._is_attached(stage):  # also after the end of the attempt, until the next one attaches
            stage.note_durable()
            while stage.settle_some():
                pass
        if self._closed:
            return
        self.send_soon()
        if self._target is not None and not self._closed:
            self._target.update()

    def on_store_failed(self, reason: str) -> None:
        """Undo the step, which is not on disk, and end the attempt."""
        guard(self.owner, lambda: self._undo(reason))

    def _undo(self, reason: str) -> None:
        self._waits = False
        if self._has_step and self._stage is not None and self._is_attached(self._stage):
            self._has_step = False
            self._host.broker.staging.undo(self._stage)
        self.fail(f"the log has failed: {reason}")

    def send_soon(self) -> None:
        """Send, and write what was sent."""
        self.work()
        if not self._closed:
            self.owner.end_turn()

    def _is_attached(self, stage: Stage) -> bool:
        """Whether the stage is the one to which this source has attached, and nobody has attached since."""
        staging = self._host.broker.staging
        return stage.epoch == self._epoch and staging.find_stage(stage.queue, self._reader) is stage

    def _wait(self) -> None:
        self._waits = True
        self._store.wait(self)

    def _attach(self) -> None:
        """Attach to the queue and its stage. Raises BrokerError."""
        staged, broker = self._staged, self._host.broker
        vhost = broker.vhosts.get(staged.vhost)
        if vhost is None:
            raise NotFound(f"no vhost '{staged.vhost}'")
        queue = vhost.topology.queues.get(staged.name)
        if queue is None:
            if staged.table is None:
                raise NotFound(f"no queue '{staged.name}' in vhost '{vhost.name}'")
            queue = vhost.declarations.declare_queue(staged.name, True, None, False, staged.table)
        if not queue.logged:
            raise PreconditionFailed("it is not durable, so positions of its messages cannot be remembered")
        reader = self._reader
        is_new = broker.staging.find_stage(queue, reader) is None
        is_link = staged.watcher is not None
        incarnation = broker.new_incarnation() if is_new else 0
        stage = broker.staging.attach(queue, reader, incarnation, for_link=is_link)
        self._stage, self._epoch = stage, stage.epoch
        self._acked = self._next = stage.first
        self._origin = self._host.origin_of(stage)
        self._origin_fields = origin_fields(self._origin)
        connection = StagedConnection(self._host.scheduler, self, staged.where)
        target = StagedTarget(Session(connection), self)
        selector = staged.selector
        sieve = None if selector is None else SelectorFilter(selector, broker.store, vhost.trouble)
        consumer = QueueConsumer(target, queue, tag=reader, entry_filter=sieve)
        self._target, self._consumer = target, consumer
        try:
            (attach_here if is_link else attach)(queue, consumer)
        except BrokerError:
            target.close()
            self._consumer = None
            raise

    # -- sending

    def _advance(self) -> None:
        """Move `_acked` over the positions that are stored."""
        done = self._done
        while self._acked in done:
            done.remove(self._acked)
            self._acked += 1
        if self._next < self._acked:  # refused messages were to be sent again, and have ended meanwhile
            self._next = self._acked
            self._preceding = self._acked - 1

    def _continue_soon(self) -> None:
        if not self._closed:
            schedule = self._host.broker.schedule
            schedule.set(self._work, schedule.now())

    def _send(self) -> bool:
        """Send messages whose positions are on disk; false: the attempt has ended."""
        if not self._sends:
            self._sends = True
            try:
                self._send_some()
            finally:
                self._sends = False
        return not self._closed

    def _send_some(self) -> None:
        stage = self.stage
        count = 0
        while (
            not self._closed
            and not self._holds
            and (self._pieces or (self._next < stage.behind and not self._returns))
        ):
            if self._pieces:
                self._send_piece(self._pieces.popleft())
                self._continue_soon()
                return
            if self._alone and self._offsets:
                return
            if count == SENT_MAX:
                self._continue_soon()
                return
            offset = self._next
            self._next += 1
            entry = stage.entry(offset)
            if self._done and offset in self._done:
                self._preceding = offset
                continue
            if entry is None:  # a transient message that a restart has lost
                self._done.add(offset)
                self._advance()
                continue
            try:
                content, self._pieces = self._content(entry)
                if self.marks_positions:
                    content = marked(content, self._origin_fields, offset, self._preceding)
            except (OSError, ValueError) as error:
                self.fail(f"the message at position {offset} cannot be forwarded: {error}")
                return
            count += 1
            self._sent += 1
            self._offsets[self._sent] = offset
            self._preceding = offset
            self.owner.on_message(
                self._sent, entry.message.address.encoded, content, len(self._pieces) > 0, 0
            )

    def _send_piece(self, piece: Message) -> None:
        """Send a piece of the body of the last message."""
        try:
            frames = self._store.content_of(piece)
        except OSError as error:
            self.fail(f"the message at position {self._next - 1} cannot be forwarded: {error}")
            return
        self.owner.on_piece(frames, not self._pieces)

    def _content(self, entry: QueueEntry) -> tuple[bytes, deque[Message]]:
        """Return the content of a message as frames, and the pieces of a large body. Raises OSError."""
        message = entry.message
        content = self._store.content_of(message)
        if self.queue.entries.annotations is not None:
            content = delivered_content(content, self.queue, entry)
        body = message.body
        if body is None:
            return content_for091(self._host.conversions, message, content), _NO_PIECES
        if is_sections(content):  # the size of the converted body must be known first
            sections = [self._store.content_of(piece) for piece in body.pieces]
            return self._host.conversions.convert(b"".join([content, *sections])), _NO_PIECES
        return content_for091(self._host.conversions, message, content), deque(body.pieces)
