"""A channel of AMQP 0-9-1: publishes, acknowledgements, and its end. [amqp-0-9-1 1.5, 1.8]

The hot path is in this module. Methods that a client sends once per consumer or queue are in `basic` and
`topology`, publisher confirms in `confirms`.
"""

from __future__ import annotations

from typing import Final, final

import structlog
from mypy_extensions import i64

from broker.adapters.amqp091 import basic, consume, direct_reply, topology, tx
from broker.adapters.amqp091.deliver import Target091
from broker.adapters.amqp091.errors import connection_ends, reply_code
from broker.adapters.amqp091.large import take_piece
from broker.adapters.amqp091.publish import (
    REMEMBERED_MAX,
    Publication,
    address_of,
    publish_special,
    refuse_publish,
    resolve,
    return_message,
)
from broker.adapters.amqp091.settle import check_tag, hold_ack, requeue_everything, settle_up_to
from broker.adapters.amqp091.shortage import hold_publisher
from broker.adapters.amqp091.state import ChannelState, ChannelTarget, Connection091State, Handler
from broker.core.delivery.credit import Credit
from broker.core.delivery.journal import INVALID
from broker.core.errors import BrokerError, ExchangeReplaced
from broker.core.message import Address, Body, Message
from broker.core.publishing.publisher import REFUSED, ROUTED
from broker.core.queues.returns import settle_one
from broker.core.vhosts.vhost import VirtualHost
from protocol.amqp091 import constants as c
from protocol.amqp091 import methods
from protocol.amqp091.connection import CHANNEL_CLOSED, CHANNEL_OPEN, ERROR, advance_channel
from protocol.amqp091.content import PERSISTENT, PRIORITY_SHIFT, SPECIAL
from protocol.amqp091.incoming import DISCARD, WHOLE_BYTES_MAX
from protocol.errors import COMMAND_INVALID, PRECONDITION_FAILED, REPLY_NAMES, ChannelError, ProtocolError

HANDLERS: Final[dict[int, Handler]] = basic.HANDLERS | topology.HANDLERS | tx.HANDLERS
LIFECYCLE: Final = (c.CHANNEL_OPEN, c.CHANNEL_CLOSE, c.CHANNEL_CLOSE_OK)

_log = structlog.get_logger("amqpd.channel")


@final
class Channel(ChannelState):
    """An open channel. Made by channel.open; its number is free after both sides have closed the channel."""

    def __init__(self, connection: Connection091State, number: i64, virtual_host: VirtualHost) -> None:
        super().__init__(connection, number, virtual_host)
        self._get_target: Target091 | None = None
        self._body: Body | None = None  # the body of the incoming content, if it is large
        self._publications: dict[bytes, Publication] = {}

    def on_publish(self, arguments: bytes, content: bytes, size: i64, traits: i64) -> None:
        """Take one basic.publish with its content. [amqp-0-9-1 1.8.3.7]"""
        publication = self._publications.get(arguments)
        if publication is None:
            publication = self._resolve_publication(arguments, content, size)
            if publication is None:
                return
        self.traffic.published += 1
        route = publication.route
        message = Message(route.address, content, size, traits & PERSISTENT != 0, traits >> PRIORITY_SHIFT)
        if size > WHOLE_BYTES_MAX:
            message.body = self._body
            self._body = None
        try:
            if publication.is_special or route.by_message or traits & SPECIAL != 0:
                outcome = publish_special(self, publication, message, traits)
            else:
                outcome = self.publisher.publish(route, message, self.session)
        except ExchangeReplaced:
            del self._publications[arguments]
            self.traffic.published -= 1
            self._publish_again(arguments, content, message, traits)
            return
        except BrokerError as error:
            refuse_publish(self, publication, message, error)
            return
        if outcome is not ROUTED:
            if outcome is REFUSED:
                if self.confirms is not None:
                    self.confirms.add_refused()
                return
            return_message(self, publication, message, outcome)
        if self.confirms is not None:
            self.confirms.add(message)

    def _publish_again(self, arguments: bytes, content: bytes, message: Message, traits: i64) -> None:
        """Take a basic.publish once more with a new route: its remembered route no longer suffices."""
        self._body = message.body
        self.on_publish(arguments, content, message.size, traits)

    def on_piece(self, frames: bytes, size: i64, traits: i64) -> None:
        """Take a part of a large body."""
        if self._body is None:
            self._body = self.server.store.new_body()
        take_piece(self.connection, self._body, frames, size, traits & PERSISTENT != 0)

    def part_bytes(self) -> i64:
        """Return the bytes of an incomplete large body that are in memory only."""
        size: i64 = 0
        if self._body is not None:
            for piece in self._body.pieces:
                if piece.sequence == 0:
                    size += piece.size
        return size

    def _resolve_publication(self, arguments: bytes, content: bytes, size: i64) -> Publication | None:
        """Resolve the arguments of basic.publish and remember the result; None if they ended the channel."""
        try:
            publication = resolve(self.connection.rights, self.virtual_host, arguments)
        except BrokerError as error:
            if self.virtual_host.journal.on:
                message = Message(address_of(arguments), content, size, False, 0)
                self.virtual_host.journal.refused_by(self.session, message, error)
            self.refuse(error, c.BASIC_PUBLISH)
            return None
        if len(self._publications) >= REMEMBERED_MAX:
            self._publications.clear()
        publication.replies = direct_reply.find_consumer(self, publication.route.address)
        if self.transaction is not None or publication.replies is not None:
            publication.is_special = True
        self._publications[arguments] = publication
        self.connection.publishes = True
        if self.server.shortage.reason:
            hold_publisher(self.connection)
        return publication

    def on_oversized(self, size: i64) -> None:
        """Close the channel: a body is larger than the limit."""
        journal = self.virtual_host.journal
        if journal.on:
            message = Message(self._incoming_address(), None, size, False, 0)
            journal.refused(self.session, message.address, message, INVALID)
        limit = self.body_bytes_max
        text = f"message size {size} is larger than configured max size {limit}"
        self.fail(PRECONDITION_FAILED, text, c.BASIC_PUBLISH)

    def _incoming_address(self) -> Address:
        """Return exchange and routing key of the incoming content; empty if its arguments do not decode."""
        try:
            return address_of(self._arguments)
        except ProtocolError:
            return Address("", "")

    def on_kept(self, method: i64) -> None:
        """Note a frame after a basic.get or basic.consume that is not answered yet."""
        if self.pending_get is not None:
            self.pending_get.frame_kept(method)
        elif self.pending_consume is not None:
            self.pending_consume.frame_kept(method)

    # -- settling

    def on_ack(self, tag: i64, multiple: bool) -> None:
        """Take one basic.ack. [amqp-0-9-1 1.8.3.13]"""
        unacked = self.unacked
        if self.transaction is not None:
            hold_ack(self, tag, multiple)
            return
        if multiple:
            settle_up_to(self, tag)
            return
        entry = unacked.acknowledge(tag)
        consumer = unacked.holder
        if entry is None or consumer is None:
            if self.reader is not None:
                self.reader.acknowledge(tag, False)
            else:
                check_tag(self, tag, False, c.BASIC_ACK)
            return
        self.traffic.acked += 1
        size = entry.message.size
        settle_one(entry, consumer)
        consumer.target.restore_credit(size)

    # -- other methods

    def on_method(self, method: int, payload: bytes) -> None:
        """Take a method that is not on the hot path. Raises ProtocolError."""
        if method in LIFECYCLE:
            self._change_state(method, payload)
        elif self.expecting != DISCARD:
            frame = methods.decode_method(method, payload)
            handler = HANDLERS.get(method)
            if handler is None:
                text = f"{frame.name} is not a method that a client sends on a channel"
                raise ProtocolError(COMMAND_INVALID, text, method)
            journal = self.virtual_host.journal
            before = journal.actor
            journal.actor = self.session
            try:
                handler(self, frame)
            except BrokerError as error:
                self.refuse(error, method)
            except ChannelError as failure:
                self.fail(failure.code, failure.text, method)
            finally:
                journal.actor = before

    def _change_state(self, method: int, payload: bytes) -> None:
        methods.decode_method(method, payload)
        self.state = advance_channel(self.state, method)
        if self.state == CHANNEL_CLOSED:
            if self.confirms is not None:
                self.confirms.end_turn()
            self.stop_deliveries()
            self.release_everything("the channel was closed")
            self.connection.on_channel_closed(self.number)
            if method == c.CHANNEL_CLOSE:
                self.connection.out.write(methods.method_frame(self.number, c.CHANNEL_CLOSE_OK))

    def reply(self, frame: bytes) -> None:
        """Answer the current method."""
        self.connection.out.write(frame)

    def refuse(self, error: BrokerError, method: int) -> None:
        """Close the channel, or the connection, over a refusal of the core."""
        code = reply_code(error)
        if connection_ends(code):
            raise ProtocolError(code, error.text, method)
        self.fail(code, error.text, method)

    def fail(self, code: int, text: str, method: int) -> None:
        """Close the channel with an error, and release all it owns. [amqp-0-9-1 1.5.2.5]"""
        if self.state != CHANNEL_OPEN:
            return
        connection = self.connection
        _log.warning(
            "channel error",
            peer=connection.peer,
            user=connection.user,
            channel=self.number,
            code=code,
            name=REPLY_NAMES[code],
            reason=text,
        )
        self.state = advance_channel(self.state, ERROR)
        self.discard()
        if self.confirms is not None:
            self.confirms.end_turn()  # publishes before the error are confirmed
        self.stop_deliveries()
        self.release_everything(text)
        connection.out.write(methods.close(self.number, code, f"{REPLY_NAMES[code]} - {text}", method))

    def on_rights_changed(self) -> None:
        """Forget resolved routes and cancel forbidden consumers: the user's permissions have changed."""
        self.forget_publications()
        consume.cancel_forbidden(self)

    def stop_deliveries(self) -> None:
        """Stop all deliveries to the channel before anything is requeued: see `Connection091`."""
        self.session.close_targets()
        if self.confirms is not None:
            self.confirms.ended = True

    def release_everything(self, cause: str) -> None:
        """Requeue every delivery and remove every consumer. [amqp-0-9-1 1.5.2.5]"""
        journal = self.virtual_host.journal
        before = journal.actor
        journal.actor = self.session
        try:
            if self.transaction is not None:
                self.transaction.roll_back(cause)
                self.transaction = None
            requeue_everything(self)
        finally:
            journal.actor = before
        if self.pending_get is not None:
            self.pending_get.abandon()
        if self.pending_consume is not None:
            self.pending_consume.abandon()
        if self.leases is not None:
            self.leases.stop()
            self.leases = None
        if self.replies is not None:
            self.replies.close()
            self.replies = None
        if self.reader is not None:
            self.reader.close()
            self.reader = None
        self.unacked.holder = None
        self._get_target = None  # the target and the confirms refer to the channel
        self.confirms = None
        self._body = None
        self._publications = {}

    def forget_publications(self) -> None:
        """Forget the resolved routes, so that later publishes are resolved anew."""
        self._publications = {}

    def get_target(self) -> Target091:
        """Return the target of basic.get, which has no consumers and no limit."""
        if self._get_target is None:
            self._get_target = Target091(self, Credit(), None, "", False)
        return self._get_target

    def forget_target(self, target: ChannelTarget) -> None:
        """Free the tag of a target whose queue was deleted."""
        self.targets.pop(target.tag, None)
