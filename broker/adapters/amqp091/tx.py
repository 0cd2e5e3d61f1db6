"""Transactions of a channel: tx.select, tx.commit, tx.rollback. [amqp-0-9-1 1.9]"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64
from pamqp import commands

from broker.adapters.amqp091.state import ChannelState, ChannelTransaction, Handler
from broker.adapters.peers.connections import HELD_FOR_REPLY
from broker.core.errors import PreconditionFailed
from broker.core.message import ON_ITS_WAY, Message, held_bytes
from broker.core.ports import DurableWaiter
from broker.core.queues.queue import queue_of
from broker.core.schedule import ENTRIES
from broker.core.transactions.transaction import RELEASE, HeldPublish, HeldSettlement
from protocol.amqp091 import constants as c
from protocol.amqp091 import methods
from protocol.errors import PRECONDITION_FAILED

PUBLISH_OVERHEAD: Final = 512  # bytes of memory, roughly, that a held publish takes beside its content


@final
class Transaction091(ChannelTransaction):
    """The transaction of a channel after tx.select: everything held until tx.commit or tx.rollback."""

    def __init__(self, channel: ChannelState) -> None:
        super().__init__(channel.publisher, channel.session)
        self.channel = channel
        self.bytes: i64 = 0
        self._tags: set[int] = set()
        self._run: i64 = 0  # the index of the first settlement with tags that may be missing in `_tags`,
        self._known: i64 = 0  # and the number of its tags in `_tags`
        self.ended = False

    def hold_publish(self, publish: HeldPublish) -> None:
        """Hold a publish, unless the transaction holds too much."""
        self.bytes += held_bytes(publish.message) + PUBLISH_OVERHEAD
        limit = self.channel.server.transaction_bytes_max
        if self.bytes > limit:
            raise PreconditionFailed(
                f"transaction of {self.bytes} bytes is larger than configured max size {limit}"
            )
        self.publishes.append(publish)

    def note_independent(self, message: Message) -> None:
        """Note that a queue has an independent message: the next commit or rollback waits for the disk."""
        if message.sequence != 0 or message.marks & ON_ITS_WAY:
            self.independent_batch = self.host.store.batch

    def settle(self, tags: list[i64], outcome: i64, returned: i64) -> None:
        """Hold the settlements of these unacknowledged deliveries."""
        unacked = self.channel.unacked
        self.channel.virtual_host.schedule.allowance.use(len(tags) // ENTRIES)
        held: HeldSettlement | None = None
        for tag in tags:
            entry = unacked.take(tag)
            consumer = unacked.holder
            if entry is None or consumer is None:
                continue
            if held is None or held.consumer is not consumer:  # mostly the same consumer
                held = self.held_settlement(consumer, outcome, returned)
            held.tags.append(tag)
            held.entries.append(entry)
            discipline = queue_of(consumer).discipline
            if discipline is not None and outcome != RELEASE and consumer.acquires:
                discipline.note_promise(entry, consumer)

    def forget(self, most: i64) -> i64:
        """Forget settlements of deleted queues."""
        left = most
        while left > 0 and self.settlements:
            held = self.settlements[-1]
            count: i64 = min(left, len(held.tags))
            del held.tags[len(held.tags) - count :]
            del held.entries[len(held.entries) - count :]
            if not held.tags:
                self.settlements.pop()
            left -= count
        return most - left

    def tags(self) -> set[int]:
        """Return the tags of the deliveries that the transaction settles."""
        known = self._tags
        while self._run < len(self.settlements):
            tags = self.settlements[self._run].tags
            known.update(tags[self._known :])
            self._known = len(tags)
            if self._run == len(self.settlements) - 1:
                break  # this settlement may become longer
            self._run += 1
            self._known = 0
        return known

    def roll_back(self, cause: str) -> None:
        """Forget the publishes, and make the deliveries unacknowledged again."""
        settlements = self.count_settlements()
        if not cause or self.publishes or settlements:
            journal = self.host.journal
            journal.rolled_back(self.source, len(self.publishes), settlements, cause)
        self.publishes = []
        self.bytes = 0
        for held in self.settlements:
            self.channel.virtual_host.schedule.allowance.use(len(held.tags) // ENTRIES)
            self.channel.unacked.put_back(held.tags, held.entries, held.consumer)
            discipline = queue_of(held.consumer).discipline
            if discipline is not None:
                discipline.note_withdrawal(held.entries)
        self.settlements = []
        self._tags.clear()
        self._run = self._known = 0

    def on_committed(self) -> None:
        """Send tx.commit-ok."""
        self.ended = True
        channel = self.channel
        if channel.is_open():
            channel.reply(methods.method_frame(channel.number, c.TX_COMMIT_OK))
        release_connection(channel)

    def on_commit_failed(self, reason: str) -> None:
        """Close the channel: the log has failed."""
        self.ended = True
        channel = self.channel
        if channel.is_open():
            text = f"the transaction was not committed: the log has failed: {reason}"
            channel.fail(PRECONDITION_FAILED, text, c.TX_COMMIT)
        release_connection(channel)


def release_connection(channel: ChannelState) -> None:
    """Take frames again: the connection may be open although the channel has been closed meanwhile."""
    connection = channel.connection
    if connection.is_open():
        connection.release(HELD_FOR_REPLY)


def select(channel: ChannelState, frame: commands.Tx.Select) -> None:
    """tx.select, which may be repeated. [amqp-0-9-1 1.9.2.1]"""
    if channel.confirms is not None:
        raise PreconditionFailed("cannot switch from confirm to tx mode")
    if channel.transaction is None:
        channel.transaction = Transaction091(channel)
        channel.forget_publications()  # later publishes are resolved as held ones
    channel.reply(methods.method_frame(channel.number, c.TX_SELECT_OK))


def commit(channel: ChannelState, frame: commands.Tx.Commit) -> None:
    """tx.commit: answered when the transaction is on disk. No frames are taken before. [amqp-0-9-1 1.9.2.3]

    Raises what Transaction.commit raises, which closes the channel and so rolls the transaction back.
    """
    transaction = _transaction(channel)
    channel.transaction = Transaction091(channel)
    try:
        transaction.commit()
    except Exception:  # after any error, settled deliveries are requeued with the channel
        channel.transaction = transaction
        raise
    if not transaction.ended:
        channel.connection.hold(HELD_FOR_REPLY)


def rollback(channel: ChannelState, frame: commands.Tx.Rollback) -> None:
    """tx.rollback: settled deliveries become unacknowledged again and stay with the channel.

    The answer is sent when all independent messages are on disk. No frames are taken before.
    [amqp-0-9-1 1.9.2.5]
    """
    transaction = _transaction(channel)
    transaction.roll_back("")
    batch = transaction.independent_batch
    transaction.independent_batch = 0
    reply = RollbackReply(channel)
    if batch > channel.server.store.durable:
        channel.server.store.wait(reply)
        if not reply.ended:
            channel.connection.hold(HELD_FOR_REPLY)
    else:
        channel.reply(methods.method_frame(channel.number, c.TX_ROLLBACK_OK))


@final
class RollbackReply(DurableWaiter):
    """The answer to tx.rollback, which waits for independent messages to be on disk.

    `ended`: the client has an answer.
    """

    def __init__(self, channel: ChannelState) -> None:
        self.channel = channel
        self.ended = False

    def on_durable(self, batch: i64) -> None:
        """Send tx.rollback-ok."""
        self.ended = True
        channel = self.channel
        if channel.is_open():
            channel.reply(methods.method_frame(channel.number, c.TX_ROLLBACK_OK))
        release_connection(channel)

    def on_store_failed(self, reason: str) -> None:
        """Close the channel: the log has failed."""
        self.ended = True
        channel = self.channel
        if channel.is_open():
            text = f"independent messages of the transaction were not stored: the log has failed: {reason}"
            channel.fail(PRECONDITION_FAILED, text, c.TX_ROLLBACK)
        release_connection(channel)


def _transaction(channel: ChannelState) -> Transaction091:
    if channel.transaction is None:
        raise PreconditionFailed("channel is not transactional")
    assert isinstance(channel.transaction, Transaction091), "transactions of channels are made here only"
    return channel.transaction


HANDLERS: Final[dict[int, Handler]] = {
    c.TX_SELECT: select,
    c.TX_COMMIT: commit,
    c.TX_ROLLBACK: rollback,
}
"""The handlers of the methods of class tx."""
