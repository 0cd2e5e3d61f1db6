"""A shovel: it moves messages from its source to its destination, and begins again when an end fails.

[Bernstein and Newcomer, Principles of Transaction Processing 4.5, Routing] [RabbitMQ shovel]

An attempt opens the destination, then the source. In the mode `on-confirm` a message is acknowledged at the
source when the destination has confirmed it, so a crash at any time loses nothing, and may forward messages
twice. The mode `exactly-once` forwards none twice, see `staged`. A refused message is returned to the source
after a pause, in which no other messages are taken.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

import structlog
from mypy_extensions import i64, mypyc_attr

from broker.core.delivery.journal import (
    CARRIED,
    CONNECTED,
    DISCONNECTED,
    FINISHED,
    SHUT,
    STARTED,
)
from broker.core.publishing.duplicate_check import PRECEDING
from broker.core.schedule import Schedule, TimedTask
from broker.forwarding.attempt import HOLD_REFUSED, INTERNAL_ERROR
from broker.forwarding.bulk import Batch, BatchOwner, BatchRule, Gate
from broker.forwarding.definition import (
    EXACTLY_ONCE,
    NEVER,
    NO_ACK,
    ON_CONFIRM,
    ON_PUBLISH,
    QUEUE_LENGTH,
    Definition,
    stages_here,
)
from broker.forwarding.ends import (
    CHANNEL_FLOW,
    FLOW,
    Destination,
    EndHost,
    Source,
)
from broker.forwarding.ends10 import Destination10, Source10
from broker.forwarding.ports import MessageDestination, MessageSource, Run, Timer, guard
from broker.forwarding.rewriting import Rewriting
from broker.forwarding.staged import StagedSource, StagingHost, reader_of, staged_queue
from broker.forwarding.uri import AMQP10
from protocol.amqp091.client import Client
from protocol.amqp091.content import header_frame_bytes

STARTING: Final = "starting"
RUNNING: Final = "running"
BLOCKED: Final = "blocked"
PAUSED: Final = "paused"
WAITING: Final = "waiting"  # for the next window
TERMINATED: Final = "terminated"  # waits for the next attempt, or has ended for good
TOLERANCE_MS: Final = 10  # messages of so much time are sent together
UNLIMITED: Final[i64] = -1
CARRIED_MS: Final = 60_000  # between two events of the journal that count messages
REASON_MAX: Final = 1024  # characters of a reason in the journal

_log = structlog.get_logger("amqpd.forwarding")


# Further reasons for taking no messages.
HOLD_RATE: Final = 4  # the rate is reached
HOLD_WINDOW: Final = 8  # the window is over, and the last messages are on their way
US_PER_SECOND: Final = 1_000_000
US_PER_MS: Final = 1000


@final
class RateLimit:
    """The limit of an attempt to `rate` messages in a second, 0: none.

    Each message uses a part of a second. When the parts of the coming TOLERANCE_MS are used, the source is
    held until the debt is over.
    """

    def __init__(self, attempt: Attempt, schedule: Schedule, rate: int) -> None:
        self._attempt = attempt
        self._schedule = schedule
        self._rate = rate
        self._timer = Timer(attempt, self._look)
        self._paid_until = 0  # the time on the clock, in microseconds, up to which messages were sent

    def count(self) -> None:
        """Count a message."""
        if self._rate == 0:
            return
        now = int(self._schedule.now()) * US_PER_MS
        self._paid_until = max(self._paid_until, now) + US_PER_SECOND // self._rate
        if self._paid_until - now > TOLERANCE_MS * US_PER_MS and self._timer.due == 0:
            self._attempt.hold(HOLD_RATE)
            self._wait()

    def end(self) -> None:
        """Limit nothing any more."""
        self._schedule.cancel(self._timer)

    def _look(self) -> None:
        """Take messages again, or wait for messages that came meanwhile."""
        if self._paid_until > int(self._schedule.now()) * US_PER_MS:
            self._wait()
        else:
            self._attempt.release(HOLD_RATE)

    def _wait(self) -> None:
        self._schedule.set(self._timer, self._paid_until // US_PER_MS + 1)


@final
class Attempt(BatchOwner):
    """A try of a shovel: its ends, from the first connection to the failure of one of them."""

    def __init__(self, shovel: Shovel) -> None:
        definition = shovel.definition
        turn = shovel.attempts
        super().__init__(shovel.schedule)
        self.source_uri = definition.source.uris[turn % len(definition.source.uris)]
        self.destination_uri = definition.destination.uris[turn % len(definition.destination.uris)]
        self._shovel = shovel
        self._mode = definition.ack_mode
        self._has_ignored = False  # messages beyond the wanted number have arrived
        self._rate = RateLimit(self, shovel.schedule, definition.rate)
        self._batch: Batch | None = None
        if definition.batch_size or definition.batch_interval:
            rule = BatchRule(definition.batch_size, definition.batch_interval)
            self._batch = Batch(self, shovel.schedule, rule)
        self._rewriting: Rewriting | None = None
        if definition.destination.protocol != AMQP10:
            cluster = shovel.host.ends.cluster_name()
            self._rewriting = Rewriting(
                definition, self.source_uri, self.destination_uri, cluster, shovel.schedule
            )
        self._source = shovel.new_source(self)
        confirms = self._mode in (ON_CONFIRM, EXACTLY_ONCE)
        self.destination: MessageDestination
        self._client: Client | None = None  # the client of AMQP 0-9-1: each message goes straight to it
        self._is_mandatory = False
        self._is_answered = confirms  # the destination reports when it has a message
        self._is_sections = False  # messages are sections of AMQP 1.0 on their whole way
        ends = shovel.host.ends
        if definition.destination.protocol == AMQP10:
            self._is_answered = True
            self._is_sections = definition.source.protocol == AMQP10
            self.destination = Destination10(self, definition, self.destination_uri, ends)
        else:
            destination = Destination(self, definition, self.destination_uri, ends, confirms)
            self.destination = destination
            self._client = destination.client
            self._is_mandatory = destination.mandatory

    def begin(self) -> None:
        """Connect to the destination; the source follows when messages can be published."""
        self.destination.open()

    def end(self, gives_up: bool = False) -> None:
        """Close both ends. Unacknowledged messages return to the source.

        `gives_up`: the shovel does not use this source again, so messages that are staged return too.
        """
        self.is_over = True
        if gives_up:
            guard(self, self._source.give_up)
        self._schedule.cancel(self._retry)
        self._rate.end()
        if self._batch is not None:
            self._batch.end()
        for close in (self._source.close, self.destination.close):  # an error of one must not keep the other
            try:
                close()
            except Exception:
                self._shovel.log_error()

    # -- calls of the ends

    def on_destination_ready(self) -> None:
        """Connect to the source."""
        if not self.is_over:
            self._source.open()

    def on_source_ready(self, ready: i64) -> None:
        """Begin to forward, unless there is nothing to forward."""
        if not self.is_over:
            self._shovel.note_running(ready)

    def on_message(self, number: i64, address: bytes, content: bytes, has_pieces: bool, traits: i64) -> None:
        """Forward a message. Messages beyond the wanted number stay unacknowledged until the end."""
        if self.is_over:
            return
        batch, unsent = self._batch, self._shovel.unsent
        if unsent == 0 or (batch is not None and unsent == len(batch)):
            self._has_ignored = True
            return
        if batch is None:
            self.forward(number, address, content, has_pieces, traits)
        elif has_pieces or (self._mode == EXACTLY_ONCE and not _has_predecessor(content)):
            batch.send_all()  # the source sends nothing else before the answer to its first message
            if not self.is_over:
                self.forward(number, address, content, has_pieces, traits)
        else:
            batch.add(number, address, content, traits)
            if len(batch) == unsent and not batch.goes:
                batch.send()

    def may_send(self) -> bool:
        """Whether saved messages may be sent. Refused messages wait for the answers to saved ones, too."""
        return not self.is_over and self._holds & ~HOLD_REFUSED == 0

    @property
    def saved(self) -> int:
        """The number of messages that wait for their batch."""
        return 0 if self._batch is None else len(self._batch)

    def forward(self, number: i64, address: bytes, content: bytes, has_pieces: bool, traits: i64) -> None:
        """Send a message to the destination."""
        shovel = self._shovel
        if self.is_over:
            return
        try:
            rewriting = self._rewriting
            if rewriting is not None:
                if rewriting.changes_address:
                    address = rewriting.address_of(address, content)
                if rewriting.changes(content):
                    content = rewriting.content_of(content)
            client = self._client
            if client is None:
                sent = self.destination.send(address, content, has_pieces, traits)
            else:
                client.publish(address, content, self._is_mandatory)
                sent = client.published
        except ValueError as error:
            self.on_failed(f"message {number} from the source cannot be forwarded: {error}")
            return
        if sent != number:
            self.on_failed(f"the source has numbered a message {number}, and it is message {sent}")
            return
        self.window.sent = sent
        self._rate.count()
        shovel.note_sent(len(content) - (0 if self._is_sections else header_frame_bytes(content)))
        if has_pieces:
            self._is_incomplete = True
            self.apply_holds()
        else:
            self._note_complete()

    def on_piece(self, frames: bytes, is_last: bool) -> None:
        """Forward a part of a large body, unless its message is not forwarded."""
        if self.is_over or not self._is_incomplete:
            return
        self.destination.send_piece(frames)
        self._shovel.note_bytes(len(frames))
        if is_last:
            self._is_incomplete = False
            self.apply_holds()
            self._note_complete()

    def _note_complete(self) -> None:
        """Note that the last message is sent with its whole body."""
        if self._is_answered:
            return
        number = self.window.sent
        if self._mode == ON_PUBLISH:
            self._source.settle(number, False)
        if self._mode in (ON_PUBLISH, NO_ACK):
            self.window.confirm(number, False)
            self._shovel.note_done(1)
            self._finish_window()

    def on_outcomes(self, first: i64, last: i64, accepted: bool) -> None:
        """Take the answers of the destination to consecutive messages."""
        if self._is_answered:
            super().on_outcomes(first, last, accepted)
            self._finish_window()

    def take_confirms(self, runs: list[Run], last: i64, count: i64) -> None:
        """Acknowledge confirmed messages at the source, unless the source has settled its deliveries."""
        if self._mode != NO_ACK:
            super().take_confirms(runs, last, count)
        self._shovel.note_done(count)

    def close_window(self) -> None:
        """Take no more messages, and end when all messages on their way are answered."""
        self.hold(HOLD_WINDOW)
        self._finish_window()

    def _finish_window(self) -> None:
        if self.is_over or not self._holds & HOLD_WINDOW:
            return
        if self.window.count() == 0 and not self._is_incomplete:
            self.end_turn()  # the last acknowledgements
            self._shovel.note_window_over()

    def take_refusals(self, runs: list[Run], count: i64) -> None:
        """Take no more messages, and return the refused messages after a pause."""
        self._shovel.note_refused(count)
        super().take_refusals(runs, count)
        if self._batch is not None and self._batch:
            self._batch.send()

    def return_refused(self) -> None:
        """Return the refused messages to the source, and take messages again, once all have an answer."""
        if self._batch is not None and self._batch.goes:
            self.retry_later()
        elif self._has_ignored and self.window.count() == 0:
            self._refused = []
            self.on_failed("the destination has refused messages, and later messages were not taken")
        else:
            super().return_refused()

    def release(self, reason: int) -> None:
        """Release a reason for taking no messages."""
        super().release(reason)
        if self._batch is not None and self._batch.goes:
            self._batch.send()
            self.end_turn()

    def on_failed(self, reason: str) -> None:
        """End the attempt."""
        if not self.is_over:
            self._shovel.note_failed(reason)

    def on_broken(self) -> None:
        """Log the exception that is being handled, an error of this broker, and end the attempt over it."""
        self._shovel.log_error()
        self.on_failed(INTERNAL_ERROR)

    def end_turn(self) -> None:
        """Write the output of both ends: first the messages, then the acknowledgements."""
        self.destination.flush()
        self._source.flush()


def _has_predecessor(content: bytes) -> bool:
    """Whether a message that is forwarded exactly once names the message before."""
    return content.find(PRECEDING.encode(), 0, header_frame_bytes(content)) >= 0


@final
class ForwardingHost:
    """The broker, as shovels see it.

    `ends`: for connections. `staging`: for sources that forward exactly once.
    """

    def __init__(self, ends: EndHost, staging: StagingHost) -> None:
        self.ends = ends
        self.staging = staging
        self.schedule = ends.schedule


@final
class ShovelTimer(TimedTask):
    """A call of a running shovel at a time."""

    def __init__(self, call: Callable[[], None]) -> None:
        super().__init__()
        self._call = call

    def do_due_work(self) -> None:
        """Make the call."""
        self._call()


@mypyc_attr(allow_interpreted_subclasses=True)
class Shovel(TimedTask):
    """A shovel with its state, its present attempt, and the counts since its start.

    `kind` and `names`: the shovel in the log.
    `state`: STARTING, RUNNING, PAUSED, WAITING or TERMINATED; a running shovel whose destination takes
    nothing is shown as BLOCKED. `reason`: why the last attempt ended. `since`: the date of the state, in
    milliseconds since 1970.
    `forwarded`: messages sent to the destination, with repetitions. `confirmed`: messages that are done.
    `refused`: messages that the destination has refused. `unsent` and `remaining`: the numbers of messages
    that are not sent, and not done, before the shovel deletes itself; UNLIMITED: it does not. `receipts`: the
    way back of receipts, which starts and stops with the shovel; None: there is none.
    """

    def __init__(
        self, definition: Definition, host: ForwardingHost, finish: Callable[[Shovel], None]
    ) -> None:
        super().__init__()
        self.kind = "shovel"
        self.names = {"shovel": definition.name, "vhost": definition.vhost}
        self.definition = definition
        self.host = host
        self.schedule = host.ends.schedule
        self.state = STARTING
        self.reason = ""
        self.since: i64 = self.schedule.date()
        self.attempts = 0
        self.forwarded: i64 = 0
        self.forwarded_bytes: i64 = 0
        self.confirmed: i64 = 0
        self.refused: i64 = 0
        self.unsent: i64 = UNLIMITED
        self.remaining: i64 = UNLIMITED
        self.attempt: Attempt | None = None
        self.receipts: Shovel | None = None
        self._finish = finish
        self._is_counted = False  # `remaining` is known
        windows = definition.windows
        self._gate = None if windows is None else Gate(self.schedule, windows)
        self._look = ShovelTimer(self.look_at_window)
        self._count = ShovelTimer(self._record_count)
        self._recorded: i64 = 0  # `confirmed` at the last event in the journal

    def new_source(self, attempt: Attempt) -> MessageSource:
        """Return the source of an attempt."""
        definition = self.definition
        if stages_here(definition):
            return StagedSource(attempt, staged_queue(definition), self.host.staging)
        if definition.source.protocol == AMQP10:
            return Source10(attempt, definition, attempt.source_uri, self.host.ends)
        no_ack = definition.ack_mode == NO_ACK
        return Source(attempt, definition, attempt.source_uri, self.host.ends, no_ack, self.reader)

    @property
    def shown_state(self) -> str:
        """The state as RabbitMQ shows it."""
        attempt = self.attempt
        if self.state == RUNNING and attempt is not None and attempt.blocked:
            return FLOW if attempt.blocked in (FLOW, CHANNEL_FLOW) else BLOCKED
        return self.state

    @property
    def reader(self) -> str:
        """The name of the reader for which the source is staged; "" unless the mode is `exactly-once`."""
        definition = self.definition
        if definition.ack_mode != EXACTLY_ONCE:
            return ""
        return reader_of(definition, "" if stages_here(definition) else self.host.staging.origin)

    @property
    def labels(self) -> tuple[str, ...]:
        """The names in metrics: of a shovel, its name and its virtual host."""
        return self.definition.name, self.definition.vhost

    @property
    def is_running(self) -> bool:
        """Whether the shovel takes messages now."""
        return self.shown_state == RUNNING

    @property
    def in_flight(self) -> i64:
        """The number of messages that are sent and not confirmed."""
        return 0 if self.attempt is None else self.attempt.window.count()

    def record(self, event: i64, reason: str = "") -> None:
        """Write an event into the journal, with the messages that are done since the event before.

        `event`: see `broker.core.delivery.journal`. `reason`: of a failure.
        """
        journal = self.host.staging.broker.journal
        if not journal.on:
            return
        details: dict[str, object] = {"kind": self.kind, **self.names}
        attempt = self.attempt
        if attempt is not None:
            details["source"] = attempt.source_uri.place
            details["destination"] = attempt.destination_uri.place
        if reason:
            details["reason"] = reason[:REASON_MAX]
        journal.forwarded(event, self.confirmed - self._recorded, details)
        self._recorded = self.confirmed

    def _record_count(self) -> None:
        """Write the number of messages into the journal, and look again after CARRIED_MS."""
        if self.confirmed > self._recorded:
            self.record(CARRIED)
        self._set_count()

    def _set_count(self) -> None:
        if self.host.staging.broker.journal.on:
            self.schedule.set(self._count, self.schedule.after(CARRIED_MS))

    def start(self) -> None:
        """Begin an attempt now, unless the shovel is paused."""
        if self.definition.paused:
            self._set_state(PAUSED)
            return
        self.schedule.cancel(self)
        gate = self._gate
        if gate is not None:
            if not gate.is_open():
                self._wait_for_window(gate)
                return
            self.schedule.set(self._look, gate.next_look())
        self._set_state(STARTING)
        try:
            attempt = Attempt(self)
            self.attempt = attempt
            self.attempts += 1
            attempt.begin()
        except Exception:  # an error of this broker ends the attempt only
            self.log_error()
            self.note_failed(INTERNAL_ERROR)

    def stop(self, gives_up: bool = False, event: i64 = SHUT) -> None:
        """End the present attempt, and begin no other one.

        `gives_up`: as for `Attempt.end`. `event`: for the journal.
        """
        if event != SHUT or self.state != PAUSED:  # a paused shovel has stopped before
            self.record(event)
        self.schedule.cancel(self)
        self._end_attempt(gives_up)
        self._set_state(TERMINATED)
        if self.receipts is not None:
            self.receipts.stop(event=event)

    def look_at_window(self) -> None:
        """End the attempt when its window is over, or let the attempt continue in a window that has begun."""
        gate, attempt = self._gate, self.attempt
        if gate is None or attempt is None:
            return
        self.schedule.set(self._look, gate.next_look())
        if gate.is_open():
            attempt.release(HOLD_WINDOW)
        else:
            attempt.close_window()

    def note_window_over(self) -> None:
        """End the attempt, whose messages are all answered, until the next window."""
        self._end_attempt()
        if self._gate is not None:
            self._wait_for_window(self._gate)

    def _wait_for_window(self, gate: Gate) -> None:
        if self.state != WAITING:
            self._set_state(WAITING)
            _log.info("shovel waits for its window", shovel=self.definition.name, vhost=self.definition.vhost)
        self.schedule.set(self, gate.next_look())

    @property
    def next_window(self) -> int:
        """The date at which the next window begins, in milliseconds since 1970; 0: the shovel needs none."""
        return 0 if self._gate is None or self.state != WAITING else self._gate.opens()

    @property
    def saved(self) -> int:
        """The number of messages that were taken from the source and wait for their batch."""
        return 0 if self.attempt is None else self.attempt.saved

    @property
    def source_ready(self) -> int:
        """The number of messages that wait in a source queue of this broker; -1: the source is elsewhere."""
        source = self.definition.source
        vhost = self.host.staging.broker.vhosts.get(source.uris[0].vhost)
        if vhost is None or not source.queue or not all(uri.is_local for uri in source.uris):
            return -1
        queue = vhost.topology.queues.get(source.queue)
        return -1 if queue is None else int(queue.ready)

    def restart(self) -> None:
        """End the present attempt, and begin another one now, unless the shovel is paused."""
        self.stop()
        self.reason = ""
        _log.info(f"{self.kind} restarted", **self.names)
        if not self.definition.paused:
            self.record(STARTED)
        self.start()
        if self.receipts is not None:
            self.receipts.record(STARTED)
            self.receipts.start()

    def do_due_work(self) -> None:
        """Begin the next attempt: the delay after a failure is over."""
        self.start()

    # -- calls of the attempt

    def note_running(self, ready: i64) -> None:
        """Note that the source is about to deliver; `ready` messages are in its queue."""
        after = self.definition.source.delete_after
        if after != NEVER and not self._is_counted:
            self._is_counted = True
            self.remaining = ready if after == QUEUE_LENGTH else after
        self.unsent = self.remaining
        if self.remaining == 0:
            self._end_for_good()
            return
        self._set_state(RUNNING)
        self.reason = ""
        self.record(CONNECTED)
        self._set_count()
        attempt = self.attempt
        if attempt is not None:
            _log.info(
                f"{self.kind} running",
                **self.names,
                source=attempt.source_uri.place,
                destination=attempt.destination_uri.place,
            )

    def note_sent(self, size: i64) -> None:
        """Count a message of `size` bytes that was sent."""
        self.forwarded += 1
        self.forwarded_bytes += size
        if self.unsent > 0:
            self.unsent -= 1

    def note_bytes(self, size: i64) -> None:
        """Count a part of a large body."""
        self.forwarded_bytes += size

    def note_refused(self, count: i64) -> None:
        """Count messages that the destination has refused, and that will be sent again."""
        self.refused += count
        if self.unsent >= 0:
            self.unsent += count

    def note_done(self, count: i64) -> None:
        """Count messages that are acknowledged at the source."""
        self.confirmed += count
        if self.remaining > 0:
            self.remaining -= count
            if self.remaining <= 0:
                self.remaining = 0
                self._end_for_good()

    def note_failed(self, reason: str) -> None:
        """End the attempt; the next one follows after the delay, if there is one."""
        delay = self.definition.reconnect_delay
        if reason != self.reason:  # a failure that repeats is a single event
            self.record(DISCONNECTED, reason)
        self.reason = reason
        self._end_attempt()
        self._set_state(TERMINATED)
        _log.warning(
            f"{self.kind} failed",
            **self.names,
            reason=reason,
            next_attempt_s=delay or None,
        )
        if delay:
            self.schedule.set(self, self.schedule.after(delay * 1000))

    def log_error(self) -> None:
        """Log the exception that is being handled."""
        _log.exception("internal error", **self.names)

    def _end_for_good(self) -> None:
        """End a shovel that has forwarded the wanted number of messages."""
        attempt = self.attempt
        if attempt is not None:
            attempt.end_turn()  # the last acknowledgements
        self.stop(event=FINISHED)
        _log.info(
            "shovel has finished",
            shovel=self.definition.name,
            vhost=self.definition.vhost,
            forwarded=int(self.confirmed),
        )
        self._finish(self)

    def _end_attempt(self, gives_up: bool = False) -> None:
        attempt, self.attempt = self.attempt, None
        self.schedule.cancel(self._look)
        self.schedule.cancel(self._count)
        if attempt is not None:
            attempt.end(gives_up)

    def _set_state(self, state: str) -> None:
        self.state = state
        self.since = self.schedule.date()
