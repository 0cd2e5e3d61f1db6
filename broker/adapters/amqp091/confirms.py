"""Publisher confirms of a channel: a publish is confirmed when it is safe. [RabbitMQ confirms]

A single basic.ack confirms everything up to a sequence number. A message in the log waits for the sync of its
batch. Later messages wait with it, so confirms stay in order and wait no longer than a sync.
"""

from __future__ import annotations

from collections import deque
from typing import final

from mypy_extensions import i64

from broker.adapters.amqp091.state import ChannelState, PublisherConfirms
from broker.core.message import ON_ITS_WAY, Message
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

    def add(self, message: Message) -> None:
        """Count a message that was published and taken, or returned."""
        self.published += 1
        if message.sequence != 0 or message.marks & ON_ITS_WAY:
            self._logged_batch = self.store.batch
        if not self._is_pending:
            self._is_pending = True
            self.channel.connection.pending_confirms.append(self)

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
        while refused and refused[0] <= upto:
            first: i64 = refused.popleft()
            last = first
            while refused and refused[0] == last + 1 and last < upto:
                last = refused.popleft()
            self._ack(first - 1)
            channel = self.channel
            channel.connection.out.write(
                methods.settle(channel.number, BASIC_NACK, last, 1 if last > first else 0)
            )
            self.answered = last
        self._ack(upto)

    def _ack(self, upto: i64) -> None:
        count = upto - self.answered
        if count > 0:
            channel = self.channel
            channel.connection.out.write(
                methods.settle(channel.number, BASIC_ACK, upto, 1 if count > 1 else 0)
            )
            channel.server.counters.confirmed += count
            channel.virtual_host.journal.confirmed(channel.session, count)
            self.answered = upto

    def _nack(self) -> None:
        """Nack all unconfirmed messages."""
        channel = self.channel
        bits = 1 if self.published - self.answered > 1 else 0
        channel.connection.out.write(methods.settle(channel.number, BASIC_NACK, self.published, bits))
        self.answered = self.published
        self._refused.clear()
