"""The links of remote queues to their brokers. [amqpd]

A link has two connections. Over the first one the link publishes the messages that wait in the queue here, in
their order. Over the second one the link consumes from the other queue, as many messages as the consumers
here have credit for, and passes on what the consumers do with them.

The messages are staged: an attempt begins with the messages that are not confirmed. If the other broker
remembers the positions of messages, and its queue has `x-dedup-producers`, the queue gets each message once.
An attempt ends when one of its connections fails, and the next one follows after a delay.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final
from urllib.parse import quote

import structlog
from mypy_extensions import i64
from pamqp import base, commands

from broker.adapters.peers.server import IDENTITY, MESSAGE_ORIGINS, PRODUCT, QUEUE_LINKS
from broker.core.arguments.remote import LINK_COUNTS, LINK_PATH
from broker.core.broker import Broker
from broker.core.errors import BrokerError, PreconditionFailed
from broker.core.message import Message
from broker.core.operators.stage import Stage
from broker.core.queues.consumer import ROOM_MAX, QueueConsumer
from broker.core.remotes.consumption import GRACE_MS, NO_POSITION
from broker.core.remotes.remote import RemoteBrowser, RemoteLink, RemoteLinks, RemoteQueue, remote_of
from broker.core.vhosts.reroute import finish_return
from broker.forwarding.attempt import INTERNAL_ERROR, ForwardingAttempt
from broker.forwarding.definition import Definition, DestinationEnd, SourceEnd
from broker.forwarding.ends import Destination, EndHost
from broker.forwarding.ports import EndOwner, Run, Timer
from broker.forwarding.remote_browsers import Browse, ReceivingEnd, position_of
from broker.forwarding.staged import StagedQueue, StagedSource, StagingHost
from broker.forwarding.uri import AMQP091, Uri, parse_remote, parse_uri
from protocol.amqp091 import constants as c
from protocol.amqp091.client import PASSIVE
from protocol.amqp091.methods import short_string
from protocol.amqp091.table import EMPTY_TABLE, encode_table
from protocol.errors import NOT_FOUND, NOT_IMPLEMENTED

KIND: Final = "remote queue"
READER: Final = "remote queue"  # the name under which the messages of a remote queue are staged
TAG: Final = "remote"  # consumer tags begin with this
ARGUMENT: Final = "x-remote"
PREFETCH_MAX: Final = 65535
RETRY_MS: Final = 200  # the delay before the second attempt; each further delay is twice as long
RETRY_MS_MAX: Final = 10_000
REFRESH_MS: Final = 5000  # the interval of looks at the counts of the other queue
RETURN_MS: Final = 200  # the same interval while a rerouted queue moves back
IDLE_MS: Final = 1000  # the time after which messages that no consumer takes are returned
FEEDERS_MS: Final = 3 * REFRESH_MS  # the time after which a link that says nothing more feeds no queue
FEEDERS_MAX: Final = 500
BEATS_UNTIL_DEAD: Final = 3  # heartbeat intervals after which no broker keeps a connection without a peer
MISSING: Final = f"closed the channel: {NOT_FOUND} "  # the reason of an attempt whose queue does not exist

ACK: Final = 0
REJECT: Final = 1
REQUEUE: Final = 2

STARTING: Final = "starting"
RUNNING: Final = "running"
WAITING: Final = "waiting"  # the next attempt follows after a delay
ENDED: Final = "ended"

_log = structlog.get_logger("amqpd.forwarding")


@final
class Intake(ReceivingEnd):
    """The connection over which a link consumes, gets, and answers deliveries."""

    def __init__(self, attempt: Attempt, link: Link, host: EndHost) -> None:
        super().__init__(attempt, link.definition, link.uri, host, link.broker.store.new_body)
        self._attempt = attempt
        self._link = link
        self._remote = link.remote
        self._queue = link.queue
        self._limit_sent: i64 = 0  # deliveries without an answer that the other broker may have sent
        self._consumes = False
        self._consumers = 0
        self._cancels = False  # deliveries of a consumer that was cancelled may be on their way
        self._inside: set[int] = set()  # deliveries in the window, where each consumer has its own one
        self._got: set[int] = set()  # messages of basic.get without an answer, which no window counts
        self._gets_next = False  # the next message answers a basic.get
        self._gets: list[QueueConsumer] = []  # the requests of the basic.get on its way
        self._answers: list[tuple[int, int]] = []
        self._position: i64 = NO_POSITION  # the position of the message that arrives
        self._refresh = Timer(attempt, self._look_at_counts)
        self._idle = Timer(attempt, self._return_idle)
        self._purges: list[Callable[[i64, str], None]] = []
        self._activity = 0  # the number of deliveries and answers, now
        self._asked = -1  # and when the counts were requested
        self._stored_when_asked: i64 = 0  # the position behind the last message stored there at that time

    # -- set-up and end

    def on_ready(self) -> None:
        """Look for the queue, which must exist."""
        self._declare(self._found)

    def _declare(self, done: Callable[[commands.Queue.DeclareOk], None], counts: bool = False) -> None:
        """Ask for the counts of the queue. `counts`: messages that may come back are included.

        An amqpd whose queue is remote, too, compares the path, and refuses to close a circle.
        """
        arguments: dict[str, object] = {LINK_PATH: self._link.path()}
        if counts:
            arguments[LINK_COUNTS] = True
        self.client.declare(self._queue, PASSIVE, encode_table(arguments), done)

    def _found(self, frame: commands.Queue.DeclareOk) -> None:
        remote = self._remote
        remote.ready = frame.message_count or 0
        remote.consumers = frame.consumer_count or 0
        self._link.objection = ""
        self._note_consumption(remote.ready == 0 and self._is_idle())
        if not self.is_ready:
            self.note_ready()
            self._link.note_connected(self.client.heartbeat)
            self._attempt.on_intake_ready()
            self.look()
        elif remote.is_returning and remote.ready == 0 and self._is_idle():
            if self.has_capability(QUEUE_LINKS):
                self._declare(self._counted, True)
                return
            others = remote.consumers - (1 if self._consumes else 0)
            if others <= 0 and self._link.is_alone() and self._link.try_return():
                return
        self._refresh_later()

    def _counted(self, frame: commands.Queue.DeclareOk) -> None:
        """End the return if the other queue has no message, and none that may come back."""
        is_over = self._remote.is_returning and frame.message_count == 0 and self._is_idle()
        if not (is_over and self._link.try_return()):
            self._refresh_later()

    def _is_idle(self) -> bool:
        """Whether no message has come since the request for counts, and none is here."""
        return self._asked == self._activity and self._remote.inlet.depth == 0

    def _refresh_later(self) -> None:
        consumption = self._remote.consumption
        often = self._remote.is_returning or (consumption is not None and consumption.is_awaited)
        self._schedule.set(self._refresh, self._schedule.after(RETURN_MS if often else REFRESH_MS))

    def _note_consumption(self, is_empty: bool) -> None:
        """Note which messages the other broker still has, for a member of a partitioned queue."""
        consumption = self._remote.consumption
        if consumption is None:
            return
        if is_empty and self._stored_when_asked > 0:
            consumption.note_empty(self._stored_when_asked)
        else:
            consumption.look()
        if consumption.is_awaited and self.is_ready:
            self._refresh_later()

    def _look_at_counts(self) -> None:
        self.look()  # the counts must know of all answers
        self._asked = self._activity
        self._stored_when_asked = self._attempt.source.stored
        self._declare(self._found)
        self.flush()

    def refresh(self) -> None:
        """Look at the counts in a later step."""
        if self.is_ready and not self._closing:
            self._schedule.set(self._refresh, self._schedule.now())

    def close(self) -> None:
        """End the consumer; the other broker requeues all deliveries without an answer."""
        self._schedule.cancel(self._refresh)
        self._schedule.cancel(self._idle)
        super().close()
        purges, self._purges = self._purges, []
        for done in purges:
            done(0, self._link.purge_failure)

    def on_closed(self, code: int, text: str) -> None:
        """End the attempt; the next one sets a limit for each consumer if the broker knows no other."""
        if code == NOT_IMPLEMENTED:  # quorum queues of RabbitMQ
            self._link.shares_window = False
        super().on_closed(code, text)

    # -- demand

    def look_often(self) -> None:
        """Look at the counts soon, because the queue moves back."""
        if self.is_ready and not self._closing:
            self._schedule.set(self._refresh, self._schedule.after(RETURN_MS))

    def look_sooner(self) -> None:
        """Look at the counts soon, because messages wait for the consumption of those in the other broker."""
        soon = self._schedule.after(RETURN_MS)
        if self.is_ready and not self._closing and self._refresh.due > soon:
            self._schedule.set(self._refresh, soon)

    def look(self) -> None:
        """Have the other broker send as many messages as the consumers want, and send the answers.

        A smaller limit is sent before the answers, which would otherwise make room for messages that nobody
        wants.
        """
        if not self.is_ready or self._closing:
            return
        if self._remote.consumption is not None and not self._attempt.sends:
            return  # the positions of deliveries have an origin that is not known yet
        inlet = self._remote.inlet
        self._get()
        demand = self._remote.demand()
        wanted = max(demand - inlet.ready - self._coming(), 0)
        held = self._in_window()
        free = self._limit_sent - held
        if demand == 0 and inlet.ready > 0:
            if self._idle.due == 0:
                self._schedule.set(self._idle, self._schedule.after(IDLE_MS))
        else:
            self._schedule.cancel(self._idle)
        if wanted == 0 and held == 0:
            self._cancel()
        elif self._consumes and free > wanted and (demand < ROOM_MAX or free > 4 * ROOM_MAX):
            self._set_limit(held + wanted)
        self._send_answers()
        if wanted > 0 and (not self._consumes or free * 2 <= wanted):
            self._set_limit(held + wanted)
        self.flush()

    def _in_window(self) -> i64:
        """Return the number of deliveries without an answer that the limit counts."""
        if not self._link.shares_window:
            return len(self._inside)
        inlet = self._remote.inlet
        return inlet.unacked + inlet.ready + self._coming() - len(self._got)

    def _coming(self) -> int:
        """Return the number of messages, 0 or 1, of which a part has arrived."""
        return 1 if self.is_receiving else 0

    def _set_limit(self, limit: i64) -> None:
        """Set the number of deliveries without an answer, and consume.

        Where each consumer has its own limit, which cannot change, another consumer follows when all
        deliveries of the former one have arrived. They do not count for the limit of the other one.
        """
        limit = min(max(limit, 1), PREFETCH_MAX)
        if self._cancels or (self._consumes and limit == self._limit_sent):
            return
        shares = self._link.shares_window
        if self._consumes and not shares:
            self._cancel()
            return
        self._limit_sent = limit
        self.client.ask(commands.Basic.Qos(0, int(limit), shares), c.BASIC_QOS_OK, _ignore)
        if not self._consumes:
            self._consumes = True
            self._consumers += 1
            self.client.consume(self._queue, f"{TAG}-{self._consumers}", False, EMPTY_TABLE, _ignore)

    def _cancel(self) -> None:
        """Consume no more. Messages that are on their way arrive all the same."""
        self._limit_sent = 0
        if not self._consumes:
            return
        self._consumes = False
        tag = f"{TAG}-{self._consumers}"
        if self._link.shares_window:
            self.client.cancel(tag)
        else:
            self._cancels = True
            self._inside.clear()
            self.client.ask(commands.Basic.Cancel(tag, False), c.BASIC_CANCEL_OK, self._cancelled)

    def _cancelled(self, frame: base.Frame) -> None:
        self._cancels = False
        self._link.note_demand()

    def _return_idle(self) -> None:
        """Return the messages that no consumer has taken for a while.

        A consumer that waits until a message fits into its window in bytes would demand the message again.
        """
        if self._remote.demand() == 0 and not self._remote.inlet.waiting:
            self._remote.return_ready()
        self.look()

    def _get(self) -> None:
        """Get a message for the first of the requests that wait."""
        if not self._gets and self._remote.inlet.ready == 0 and not self.is_receiving:
            self._gets = self._remote.waiting_gets()
            if self._gets:
                self.client.get(self._queue)

    def on_get_answer(self, found: bool) -> None:
        """End the requests that waited: the other queue is empty."""
        gets, self._gets = self._gets, []
        self._gets_next = found
        if not found:
            end_gets(self._remote, gets)
        self._link.note_demand()

    # -- deliveries

    def take(self, tag: i64, message: Message, redelivered: bool) -> None:
        """Put a message into the inlet."""
        self._link.note_use()
        self._remote.arrive(tag, message, redelivered, self._position)
        self._link.note_demand()

    def on_delivery(
        self, tag: i64, redelivered: bool, address: bytes, content: bytes, size: i64, traits: i64
    ) -> None:
        """Count a message in its window, and take it."""
        if self._closing:
            return
        self._activity += 1
        self._position = position_of(content, self._attempt.source.origin)
        if self._gets_next:
            self._gets_next = False
            self._got.add(int(tag))
        elif not self._link.shares_window and not self._cancels:
            self._inside.add(int(tag))
        super().on_delivery(tag, redelivered, address, content, size, traits)

    def answer(self, kind: int, tag: i64) -> None:
        """Send the answer to a delivery soon."""
        self._activity += 1
        self._got.discard(int(tag))
        self._inside.discard(int(tag))
        self._answers.append((kind, int(tag)))
        self._link.note_demand()

    def _send_answers(self) -> None:
        answers, self._answers = self._answers, []
        client = self.client
        for kind, tag in answers:
            if kind == ACK:
                client.ack(tag, False)
            elif kind == REJECT:
                client.reject(tag)
            else:
                client.requeue(tag, False)

    # -- purge

    def purge(self, done: Callable[[i64, str], None]) -> None:
        """Purge the other queue; `done`: as for `RemoteHook.purge`."""
        self._purges.append(done)
        self.client.ask(commands.Queue.Purge(0, self._queue, False), c.QUEUE_PURGE_OK, self._purged)
        self.flush()

    def _purged(self, frame: base.Frame) -> None:
        assert isinstance(frame, commands.Queue.PurgeOk), "the id of the method has been compared"
        self._remote.ready = 0
        self._purges.pop(0)(frame.message_count or 0, "")


def _ignore(frame: base.Frame) -> None:
    """Do nothing: the request has no other answer."""


def end_gets(remote: RemoteQueue, gets: list[QueueConsumer]) -> None:
    """Answer requests for a single message, as far as they still wait: there is none."""
    waiting = remote.waiting_gets()
    for consumer in gets:
        if consumer in waiting:
            consumer.target.on_consumer_cancelled(consumer)


@final
class Attempt(ForwardingAttempt):
    """An attempt of a link: its connections, until the first of them fails."""

    def __init__(self, link: Link) -> None:
        super().__init__(link.schedule)
        self.sends = False  # the other broker takes messages
        self._link = link
        self._address = short_string("") + short_string(link.queue)
        self.source = self._source = StagedSource(self, link.staged(), link.staging)
        self.destination = Destination(self, link.definition, link.uri, link.host, True)
        self.source.drains = link.remote.is_returning
        self.intake = Intake(self, link, link.host)

    def begin(self) -> None:
        """Open the connection that finds the other queue; the one that sends follows."""
        self.intake.open()

    def end(self) -> None:
        """Close both connections. Messages that are not confirmed stay staged."""
        self.is_over = True
        self._schedule.cancel(self._retry)
        for close in (self.source.close, self.destination.close, self.intake.close):
            try:
                close()
            except Exception:
                self._link.log_error()

    def on_intake_ready(self) -> None:
        """Note that the other queue exists, and does not send its messages to this one."""
        self.destination.open()
        self._link.note_progress()

    # -- calls of the ends

    def on_destination_ready(self) -> None:
        """Begin to send. Messages get positions if the other broker remembers them."""
        if self.is_over:
            return
        identity = self.destination.client.server_properties.get(IDENTITY)
        if identity and identity == self._link.staging.origin and self._link.is_circle:
            self._link.objection = "it is the partitioned queue itself"
            self.on_failed(self._link.objection)
            return
        has_origins = self.destination.has_capability(MESSAGE_ORIGINS)
        self.source.marks_positions = has_origins or self._link.remote.consumption is not None
        self.source.open()

    def on_source_ready(self, ready: i64) -> None:
        """Note that messages are sent."""
        self.sends = True
        self._link.note_stage(self.source.stage)
        self._link.note_progress()
        self._link.note_demand()

    def on_message(self, number: i64, address: bytes, content: bytes, has_pieces: bool, traits: i64) -> None:
        """Send a message to the other queue."""
        if self.is_over:
            return
        try:
            self.window.sent = self.destination.send(self._address, content, has_pieces, traits)
        except ValueError as error:
            self.on_failed(f"message {number} cannot be sent: {error}")
            return
        self._link.forwarded += 1
        self._is_incomplete = has_pieces
        self.apply_holds()

    def on_piece(self, frames: bytes, is_last: bool) -> None:
        """Send a part of a large body."""
        if self.is_over:
            return
        self.destination.send_piece(frames)
        if is_last:
            self._is_incomplete = False
            self.apply_holds()

    def take_confirms(self, runs: list[Run], last: i64, count: i64) -> None:
        """Count and settle confirmed messages."""
        self._link.confirmed += count
        self._link.note_use()
        super().take_confirms(runs, last, count)

    def take_refusals(self, runs: list[Run], count: i64) -> None:
        """Drop the refused messages whose publishers learn of it, and send the others again after a pause."""
        self._link.refused += count
        self.source.drop_refused(runs)
        super().take_refusals(runs, count)

    def on_failed(self, reason: str) -> None:
        """End the attempt."""
        if not self.is_over:
            self._link.note_failed(reason)

    def on_broken(self) -> None:
        """Log the exception that is being handled, an error of this broker, and end the attempt over it."""
        self._link.log_error()
        self.on_failed(INTERNAL_ERROR)

    def end_turn(self) -> None:
        """Write the output of both connections."""
        if self.is_over:
            return
        self.destination.flush()
        self.source.flush()
        self.intake.flush()


@final
class Link(RemoteLink):
    """The link of a remote queue.

    `uri` and `queue`: the other broker, and the name of the queue there. `reason`: why the last attempt
    ended. `since`: the date of the state, in ms since 1970. `attempts`: their number. `shares_window`: the
    other broker has a limit for all consumers of a channel together. `is_new`: no earlier link of this queue
    has messages in the other broker. `objection`: why the other broker cannot have the messages, as last
    known, "" if it can.
    """

    def __init__(
        self,
        remote: RemoteQueue,
        uri: Uri,
        queue: str,
        host: EndHost,
        staging: StagingHost,
        is_new: bool,
    ) -> None:
        self.remote = remote
        self.uri = uri
        self.queue = queue
        self.host = host
        self.staging = staging
        self.broker: Broker = staging.broker
        self.schedule = host.schedule
        self.state = STARTING
        self.reason = ""
        self.since: i64 = self.schedule.date()
        self.attempts = 0
        self.forwarded = 0
        self.confirmed = 0
        self.refused = 0
        self.shares_window = True
        self.objection = ""
        self.attempt: Attempt | None = None
        self._stage: Stage | None = None
        self.definition = self._define()
        self._browses: dict[RemoteBrowser, Browse] = {}
        self._delay = RETRY_MS
        self._is_first = is_new  # no connection has been ready
        self._alone_from: i64 = 0  # when the other broker has ended all earlier connections
        here = remote.queue
        self._name = f"{staging.origin}/{quote(here.vhost, '')}/{quote(here.name, '')}"
        self._feeders: dict[str, i64] = {}  # remote queues whose messages come here, and until when
        owner = _LinkOwner(self)
        self._start = Timer(owner, self.start)
        self._look = Timer(owner, self._look_now)

    def _define(self) -> Definition:
        here = self.remote.queue
        source = SourceEnd([parse_uri("amqp://", here.vhost, ARGUMENT)], AMQP091)
        source.queue = here.name
        destination = DestinationEnd([self.uri], AMQP091)
        destination.queue = destination.key = self.queue
        destination.exchange = ""
        destination.predeclared = True
        destination.names_origins = True
        definition = Definition(here.vhost, here.name, source, destination)
        definition.title = f"{KIND} '{here.name}'"
        definition.client_name = f"{KIND.capitalize()} {here.name}"
        return definition

    def staged(self) -> StagedQueue:
        """Return the queue here as the source of an attempt."""
        here = self.remote.queue
        staged = StagedQueue(here.vhost, here.name, READER, self.definition.where)
        staged.watcher = self.remote
        return staged

    # -- attempts

    def start(self) -> None:
        """Begin an attempt now."""
        self.schedule.cancel(self._start)
        self._set_state(STARTING)
        self.attempts += 1
        try:
            self.attempt = Attempt(self)
            self.attempt.begin()
        except Exception:  # an error of this broker ends the attempt only
            self.log_error()
            self.note_failed(INTERNAL_ERROR)

    def stop(self) -> None:
        """End the present attempt, and begin no other one."""
        self.schedule.cancel(self._start)
        self.schedule.cancel(self._look)
        self._end_attempt()
        for browse in self._browses.values():
            browse.close()
        self._browses.clear()
        self._set_state(ENDED)

    def end(self) -> None:
        """Stop: the remote queue has been deleted."""
        self.stop()

    def note_stage(self, stage: Stage) -> None:
        """Note the stage of the attempt, which gives the positions of messages."""
        self._stage = stage
        consumption = self.remote.consumption
        if consumption is not None:
            consumption.begin(self)

    def next_position(self) -> i64:
        """Return the position of the next message that is staged."""
        return 0 if self._stage is None else self._stage.next

    @property
    def is_circle(self) -> bool:
        """Whether this broker at the address would give the queue its own messages."""
        here = self.remote.queue
        return self.uri.vhost == here.vhost and self.queue in (self.remote.front, here.name)

    def note_progress(self) -> None:
        """Note that one of the connections is ready."""
        attempt = self.attempt
        if attempt is None or not (attempt.sends and attempt.intake.is_ready) or self.state == RUNNING:
            return
        self._set_state(RUNNING)
        self.is_up = True
        self.reason = ""
        self._delay = RETRY_MS
        _log.info("remote queue linked", **self._labels(), broker=self.uri.place)

    def note_use(self) -> None:
        """Note that a message got through one of the connections: the next failure is a first one."""
        self._delay = RETRY_MS

    def note_failed(self, reason: str) -> None:
        """End the attempt; the next one follows after a delay."""
        self.reason = reason
        if MISSING in reason:
            self.objection = f"there is no queue '{self.queue}' at {self.uri.place}"
        self._end_attempt()
        self._set_state(WAITING)
        _log.warning("remote queue not linked", **self._labels(), reason=reason, next_attempt_ms=self._delay)
        self.schedule.set(self._start, self.schedule.after(self._delay))
        self._delay = min(self._delay * 2, RETRY_MS_MAX)

    def log_error(self) -> None:
        """Log the exception that is being handled."""
        _log.exception("internal error", **self._labels())

    @property
    def labels(self) -> tuple[str, ...]:
        """The names in metrics: of the queue here, and of its virtual host."""
        return self.remote.queue.name, self.remote.queue.vhost

    @property
    def is_running(self) -> bool:
        """Whether the link is connected."""
        return self.state == RUNNING

    @property
    def in_flight(self) -> int:
        """The number of messages that are sent and not confirmed."""
        return 0 if self.attempt is None else int(self.attempt.window.count())

    @property
    def source_ready(self) -> int:
        """The number of messages that wait here."""
        return int(self.remote.queue.ready)

    def _labels(self) -> dict[str, str]:
        return {"queue": self.remote.queue.name, "vhost": self.remote.queue.vhost}

    def _end_attempt(self) -> None:
        self.is_up = False
        attempt, self.attempt = self.attempt, None
        if attempt is not None:
            attempt.end()
        if not self.remote.is_ended:
            self.remote.forget_deliveries()
            self.note_demand()  # requests for a single message end

    def _set_state(self, state: str) -> None:
        self.state = state
        self.since = self.schedule.date()

    # -- calls of the queue

    def settle(self, tag: i64) -> None:
        """Acknowledge a delivery."""
        self._answer(ACK, tag)

    def reject(self, tag: i64) -> None:
        """Reject a delivery."""
        self._answer(REJECT, tag)

    def requeue(self, tag: i64) -> None:
        """Requeue a delivery."""
        self._answer(REQUEUE, tag)

    def _answer(self, kind: int, tag: i64) -> None:
        if self.attempt is not None:
            self.attempt.intake.answer(kind, tag)

    def note_demand(self) -> None:
        """Look in a later step."""
        if self._look.due == 0 and self.state != ENDED:
            self.schedule.set(self._look, self.schedule.now())

    # -- browsers

    def browse_objection(self) -> str:
        """Return why the other queue cannot be browsed; "" if it can."""
        attempt = self.attempt
        if attempt is None:
            return f"{self.remote.shown_address} cannot be reached, try again"
        shown = attempt.intake.client.server_properties
        product = shown.get("product")
        if product == PRODUCT or attempt.intake.has_capability(QUEUE_LINKS):
            return ""
        named = f"{product} {shown.get('version', '')}".strip() if isinstance(product, str) else "unknown"
        return f"the product of {self.remote.shown_address} is {named}, and only {PRODUCT} has browsers"

    def _serve_browsers(self) -> None:
        """Begin the service of browsers that are new, and bring copies to the others."""
        for browser in list(self.remote.browsers):
            browse = self._browses.get(browser)
            if browse is None and browser.is_over():
                self.remote.browsers.remove(browser)
            elif browse is None:
                browse = Browse(
                    browser, self.definition, self.uri, self.host, self.staging, self.queue, READER
                )
                self._browses[browser] = browse
                browse.begin()
            elif not browse.look():
                del self._browses[browser]
                self.remote.browsers.remove(browser)

    # -- other links and connections

    def path(self) -> list[str]:
        """Return the names of this queue and of the remote queues whose messages come here."""
        now = self.schedule.now()
        return [self._name, *(name for name, until in self._feeders.items() if until > now)][:FEEDERS_MAX]

    def note_feeders(self, path: list[str]) -> None:
        """Note the remote queues whose messages come here. Raises PreconditionFailed for a circle."""
        if self._name in path:
            circle = " to ".join([*path[path.index(self._name) :: -1], self._name])
            raise PreconditionFailed(
                f"{self.remote.where} is remote, and its messages would go round in a circle: {circle}"
            )
        now = self.schedule.now()
        is_known = all(self._feeders.get(name, 0) > now for name in path)
        self._feeders = {name: until for name, until in self._feeders.items() if until > now}
        self._feeders |= dict.fromkeys(path[:FEEDERS_MAX], now + FEEDERS_MS)
        if not is_known and self.attempt is not None:
            self.attempt.intake.refresh()

    def note_connected(self, heartbeat: int) -> None:
        """Note that the other broker may not have ended an earlier connection. `heartbeat`: in seconds."""
        dead_ms = BEATS_UNTIL_DEAD * heartbeat * 1000
        if self.remote.consumption is not None:
            self.remote.consumption.grace_ms = max(dead_ms, GRACE_MS)
        if not self._is_first:
            self._alone_from = self.schedule.after(dead_ms)
        self._is_first = False

    def is_alone(self) -> bool:
        """Whether the other broker has ended all earlier connections, by their heartbeats at the latest."""
        return self.schedule.now() >= self._alone_from

    @property
    def purge_failure(self) -> str:
        """The failure of a purge during which the link breaks."""
        return (
            f"{self.remote.where} may not be purged: the link to {self.remote.shown_address} broke before "
            "its answer, purge again"
        )

    def try_return(self) -> bool:
        """Serve the queue from here again, if the other broker has confirmed all messages and has none.

        The return waits while the log accepts no appends.
        """
        attempt = self.attempt
        if attempt is None or not attempt.source.is_drained or self.broker.store.failure:
            return False
        here = self.remote.queue
        vhost = self.broker.vhosts.get(here.vhost)
        if vhost is None:
            return False
        self._release_stage()
        finish_return(vhost, here)
        _log.info("rerouted queue is back", **self._labels())
        return True

    def _release_stage(self) -> None:
        """Remove the reader of the link, which has staged nothing."""
        staging = self.broker.staging
        stage = staging.find_stage(self.remote.queue, READER)
        if stage is not None:
            staging.release(stage)

    def _set_drains(self, attempt: Attempt) -> None:
        """Stage no further messages while the queue moves back, or stage them again."""
        is_returning = self.remote.is_returning
        if attempt.source.drains != is_returning:
            attempt.source.drains = is_returning
            if is_returning:
                attempt.intake.look_often()
            else:
                attempt.source.stage_again()

    def _look_now(self) -> None:
        self._serve_browsers()
        attempt = self.attempt
        if attempt is not None:
            self._set_drains(attempt)
        if attempt is not None and attempt.intake.is_ready:
            consumption = self.remote.consumption
            if consumption is not None and consumption.is_awaited:
                attempt.intake.look_sooner()
            attempt.intake.look()
        else:
            end_gets(self.remote, self.remote.waiting_gets())

    def purge(self, done: Callable[[i64, str], None]) -> None:
        """Purge the other queue."""
        attempt = self.attempt
        if attempt is None or not attempt.intake.is_ready:
            done(0, self.purge_failure)
        else:
            attempt.intake.purge(done)


@final
class _LinkOwner(EndOwner):
    """The owner of the timers of a link, for an error of this broker in their calls."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def on_broken(self) -> None:
        """Log the error, and end the attempt."""
        self._link.log_error()
        self._link.note_failed(INTERNAL_ERROR)


@final
class RemoteQueues(RemoteLinks):
    """The links of all remote queues of a broker. They run from `start` to `stop`."""

    def __init__(self, host: EndHost, staging: StagingHost) -> None:
        self._host = host
        self._staging = staging
        self._broker = staging.broker
        self._runs = False
        self._broker.remote_links = self

    def check(self, address: object, vhost: str, name: str, where: str) -> None:
        """Check the address of a remote queue. Raises PreconditionFailed."""
        parse_remote(address, vhost, name, where)

    def find_objection(self, remote: RemoteQueue) -> str:
        """Return why the other broker cannot have the messages, as last known; "" if it can."""
        link = link_of(remote)
        return "" if link is None else link.objection

    def open(self, remote: RemoteQueue) -> None:
        """Link a remote queue, which is new."""
        if self._runs:
            self._link(remote, True)

    def _link(self, remote: RemoteQueue, is_new: bool) -> None:
        here = remote.queue
        try:
            uri, queue = parse_remote(remote.address, here.vhost, here.name, ARGUMENT)
        except BrokerError as error:  # a later version of the broker has declared the queue
            _log.error("remote queue not linked", queue=here.name, vhost=here.vhost, reason=error.text)
            return
        link = Link(remote, uri, queue, self._host, self._staging, is_new)
        remote.link = link
        link.start()

    def links(self) -> list[Link]:
        """Return the links of all remote queues."""
        return [link for remote in self._all() if (link := link_of(remote)) is not None]

    def start(self) -> None:
        """Link all remote queues: the broker serves clients now."""
        self._runs = True
        for remote in self._all():
            self._link(remote, False)

    def stop(self) -> None:
        """End all links: the broker stops."""
        self._runs = False
        for remote in self._all():
            link = link_of(remote)
            if link is not None:
                link.stop()

    def _all(self) -> list[RemoteQueue]:
        queues = [queue for vhost in self._broker.vhosts.values() for queue in vhost.topology.queues.values()]
        return [remote for queue in queues if (remote := remote_of(queue)) is not None]


def link_of(remote: RemoteQueue) -> Link | None:
    """Return the link of a remote queue; None before the broker serves clients."""
    link = remote.link
    assert link is None or isinstance(link, Link), "this module makes all of them"
    return link
