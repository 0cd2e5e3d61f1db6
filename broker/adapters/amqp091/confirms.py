"""Publisher confirms of a channel: a publish is confirmed when it is safe. [RabbitMQ confirms]

A single basic.ack confirms everything up to a sequence number. A message for a remote queue waits for the
confirm of the other broker too, and is confirmed alone. A message in the log waits for the sync of its
batch. Later messages wait with it, so confirms stay in order and wait no longer than a sync.
"""

from __future__ import annotations

from collections import deque
from typing import final

from mypy_extensions import i64

from broker.adapters.amqp091.state import ChannelState, PublisherConfirms
from broker.core.durations import SAMPLE, Stopwatch
from broker.core.message import AWAITS_REMOTE, ON_ITS_WAY, Message
from broker.core.remotes.remote import RemoteWaiter
from broker.core.schedule import TimedTask
from protocol.amqp091 import methods
from protocol.amqp091.constants import BASIC_ACK, BASIC_NACK


@final
class Confirms(PublisherConfirms):
    """The confirms of a channel, made by confirm.select.

    The log has at most a batch in flight and a batch that is being filled, so two marks suffice.
    """

    def __init__(self, channel: ChannelState) -> None:
        super().__init__()
        self.channel = channel
        self.store = channel.server.store
        self._is_pending = False  # whether these confirms are in the connection's `pending_confirms`
        self._logged_batch: i64 = 0  # the batch with the latest logged publish; 0: none
        self._waiting_batch: i64 = 0  # the latest batch to wait for; 0: none
        self._waiting_upto: i64 = 0  # the last publish that the sync of `_waiting_batch` confirms
        self._sealed_upto: i64 = 0  # the last publish that the sync of the batch before confirms
        self._refused: deque[int] = deque()  # unconfirmed publishes to be nacked in order
        self._held: dict[int, None] = {}  # publishes that wait for other brokers, in order
        self._flush = _LateFlush(channel)
        counters, schedule = channel.server.counters, channel.virtual_host.schedule
        self._watch = Stopwatch(counters.time_to_confirm, schedule.clock)

    def add(self, message: Message) -> None:
        """Count a message that was published and taken, or returned."""
        self.published += 1
        if self.published & SAMPLE == 1:
            self._watch.start(self.published)
        if message.marks & AWAITS_REMOTE:
            self._hold(message)
        if message.sequence != 0 or message.marks & ON_ITS_WAY:
            self._logged_batch = self.store.batch
        if not self._is_pending:
            self._is_pending = True
            self.channel.connection.pending_confirms.append(self)

    def _hold(self, message: Message) -> None:
        """Let the confirm of the last publish wait for the answers of other brokers."""
        wait = self.channel.publisher.take_remote_wait(message)
        if wait is not None:
            self._held[int(self.published)] = None
            wait.set_waiter(_RemoteConfirm(self, self.published))

    def answer_held(self, number: i64, accepted: bool) -> None:
        """Confirm or nack a publish that has waited for other brokers.

        The confirm also waits for the log, if a queue here has the message too.
        """
        if self.ended or int(number) not in self._held:
            return
        del self._held[int(number)]
        if not accepted:
            self.channel.server.counters.refused += 1
        if number > self.answered:
            if not accepted:
                self._refused = deque(sorted([*self._refused, int(number)]))
            return
        self._settle_one(number, accepted)
        self._flush.request()

    def add_refused(self) -> None:
        """Count a message that a full queue has refused.

        The nack is sent in its place among the confirms, so that no ack covers the refused message.
        """
        self.published += 1
        self._refused.append(self.published)
        if not self._is_pending:
            self._is_pending = True
            self.channel.connection.pending_confirms.append(self)

    def refuse(self) -> None:
        """Nack a message, after the confirms of earlier messages.

        The log has failed, so there is nothing to wait for.
        """
        self.end_turn()
        self.published += 1
        self._nack()

    def end_turn(self) -> None:
        """Confirm the publishes of this turn, or wait for the log to do so."""
        self._is_pending = False
        if self.ended:
            return
        if self._logged_batch <= self.store.durable:
            self._answer(self.published)
        elif self.store.failure:
            self.on_store_failed(self.store.failure)
        elif self._waiting_batch == self._logged_batch:
            self._waiting_upto = self.published
        else:
            self._sealed_upto = self._waiting_upto
            self._waiting_batch = self._logged_batch
            self._waiting_upto = self.published
            self.store.wait(self)

    def on_durable(self, batch: i64) -> None:
        """Confirm the messages in `batch`, which the log has synced."""
        if batch >= self._waiting_batch:
            self._waiting_batch = 0
            upto = self._waiting_upto
        else:
            upto = self._sealed_upto
        if not self.ended:
            self._answer(upto)
            self.channel.connection.flush()

    def on_store_failed(self, reason: str) -> None:
        """Nack all unconfirmed messages: the log failed before its sync."""
        self._waiting_batch = 0
        self._logged_batch = 0
        if not self.ended and self.answered < self.published:
            self._nack()
            self.channel.connection.flush()

    def _answer(self, upto: i64) -> None:
        """Ack the unconfirmed messages up to `upto`, and nack the refused ones."""
        refused = self._refused
        if self._held and next(iter(self._held)) <= upto:
            self._answer_singly(upto)
            return
        while refused and refused[0] <= upto:
            first: i64 = refused.popleft()
            last = first
            while refused and refused[0] == last + 1 and last < upto:
                last = refused.popleft()
            self._ack(first - 1)
            if first <= self._watch.number <= last:
                self._watch.cancel()
            channel = self.channel
            channel.connection.out.write(
                methods.settle(channel.number, BASIC_NACK, last, 1 if last > first else 0)
            )
            self.answered = last
        self._ack(upto)

    def _answer_singly(self, upto: i64) -> None:
        """Answer the unconfirmed messages up to `upto` one by one, but those that wait for other brokers.

        An ack of several messages would confirm these too.
        """
        refused = self._refused
        number = self.answered
        while number < upto:
            number += 1
            is_refused = bool(refused) and refused[0] == number
            if is_refused:
                refused.popleft()
            if int(number) not in self._held:
                self._settle_one(number, not is_refused)
        self.answered = max(self.answered, upto)

    def _settle_one(self, number: i64, accepted: bool) -> None:
        channel = self.channel
        method = BASIC_ACK if accepted else BASIC_NACK
        channel.connection.out.write(methods.settle(channel.number, method, number, 0))
        is_timed = number == self._watch.number
        if is_timed and not accepted:
            self._watch.cancel()
        if accepted:
            if is_timed:
                self._watch.stop()
            channel.traffic.confirmed += 1
            channel.server.counters.confirmed += 1
            channel.virtual_host.journal.confirmed(channel.session, 1)

    def _ack(self, upto: i64) -> None:
        count = upto - self.answered
        if count > 0:
            channel = self.channel
            channel.connection.out.write(
                methods.settle(channel.number, BASIC_ACK, upto, 1 if count > 1 else 0)
            )
            if 0 < self._watch.number <= upto:
                self._watch.stop()
            channel.traffic.confirmed += count
            channel.server.counters.confirmed += count
            channel.virtual_host.journal.confirmed(channel.session, count)
            self.answered = upto

    def _nack(self) -> None:
        """Nack all unconfirmed messages."""
        channel = self.channel
        bits = 1 if self.published - self.answered > 1 else 0
        channel.connection.out.write(methods.settle(channel.number, BASIC_NACK, self.published, bits))
        self.answered = self.published
        self._watch.cancel()
        self._refused.clear()
        if bits:
            self._held.clear()  # the nack includes them


@final
class _RemoteConfirm(RemoteWaiter):
    """The confirm of one publish, which waits for other brokers."""

    def __init__(self, confirms: Confirms, number: i64) -> None:
        self._confirms = confirms
        self._number = number

    def on_remote_answer(self, accepted: bool) -> None:
        """Answer the publish."""
        self._confirms.answer_held(self._number, accepted)


@final
class _LateFlush(TimedTask):
    """The flush of a connection in a later step, once for many confirms."""

    def __init__(self, channel: ChannelState) -> None:
        super().__init__()
        self._channel = channel

    def request(self) -> None:
        """Flush soon."""
        if self.due == 0:
            schedule = self._channel.virtual_host.schedule
            schedule.set(self, schedule.now())

    def do_due_work(self) -> None:
        """Flush."""
        if self._channel.connection.is_open():
            self._channel.connection.flush()
