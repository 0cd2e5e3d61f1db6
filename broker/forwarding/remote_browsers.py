"""Browsers of remote queues: each has a connection over which the other broker's queue is browsed. [amqpd]

A browser first sees the messages of the other queue. A browser of a snapshot then sees the messages that are
kept here, in the mode `hybrid`. Before the other queue is browsed, the messages here that may leave soon do
so. A browser is cancelled when its connection fails, because another connection would begin anew.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, final

import structlog
from mypy_extensions import i64
from pamqp import base, commands

from broker.core.arguments.consumer import (
    BROWSE,
    BROWSE_FROM,
    FIRST,
    LAST,
    NO_TIME,
    SELECTOR,
    SNAPSHOT,
    BrowseRange,
)
from broker.core.entries.entry import DEQUEUED, QueueEntry
from broker.core.message import Address, Body, Message, copy_of, piece_of
from broker.core.publishing.duplicate_check import POSITION
from broker.core.queues.browse_cursor import PartFilter
from broker.core.remotes.consumption import NO_POSITION
from broker.core.remotes.remote import RemoteBrowser
from broker.forwarding.attempt import INTERNAL_ERROR
from broker.forwarding.definition import Definition
from broker.forwarding.ends import End091, EndHost
from broker.forwarding.ports import EndOwner, Timer
from broker.forwarding.rewriting import ORIGIN_NAME, ORIGIN_NAMES
from broker.forwarding.staged import StagingHost
from broker.forwarding.uri import Uri
from protocol.amqp091 import constants as c
from protocol.amqp091.client import PASSIVE
from protocol.amqp091.content import PERSISTENT, PRIORITY_SHIFT, header_frame_bytes
from protocol.amqp091.incoming import WHOLE_BYTES_MAX
from protocol.amqp091.properties import Properties
from protocol.amqp091.table import EMPTY_TABLE, encode_table
from protocol.errors import ProtocolError

TAG: Final = "remote-browser"
WINDOW: Final = 200  # copies that the browser has not passed
KEPT_MS: Final = 1000  # the longest time for messages here to leave, before the other queue is browsed
KEPT_LOOK_MS: Final = 10
SCANNED_MAX: Final = 1000  # messages here that are looked at in a turn
ADDRESSES_MAX: Final = 4096
POSITION_NAME: Final = POSITION.encode()
POSITION_BYTES: Final = 9  # with the octet of the type

_log = structlog.get_logger("amqpd.forwarding")


class ReceivingEnd(End091):
    """A connection over which messages come, also large ones. The subclass takes them with `take`."""

    def __init__(
        self, owner: EndOwner, definition: Definition, uri: Uri, host: EndHost, new_body: Callable[[], Body]
    ) -> None:
        super().__init__(owner, definition, uri, host, "source")
        self._new_body = new_body
        self._large: Message | None = None  # the large message that is arriving
        self._body: Body | None = None
        self._large_tag: i64 = 0
        self._large_redelivered = False
        self._missing: i64 = 0  # bytes of the large body that have not arrived
        self._addresses: dict[bytes, Address] = {}

    @property
    def is_receiving(self) -> bool:
        """Whether a part of a large body has not arrived."""
        return self._large is not None

    def take(self, tag: i64, message: Message, redelivered: bool) -> None:
        """Take a message with its whole body."""
        raise NotImplementedError

    def on_delivery(
        self, tag: i64, redelivered: bool, address: bytes, content: bytes, size: i64, traits: i64
    ) -> None:
        """Take a message, a large one when its body has arrived, without the headers of its origin."""
        if self._closing:
            return
        if content.find(ORIGIN_NAME, 0, header_frame_bytes(content)) >= 0:
            content = without_origin(content)
        persistent = traits & PERSISTENT != 0
        message = Message(self._address(address), content, size, persistent, traits >> PRIORITY_SHIFT)
        if size > WHOLE_BYTES_MAX:
            self._body = message.body = self._new_body()
            self._large, self._large_tag, self._large_redelivered = message, tag, redelivered
            self._missing = size
        else:
            self.take(tag, message, redelivered)

    def on_piece(self, frames: bytes, size: i64) -> None:
        """Keep a part of a large body."""
        if self._closing or self._body is None or self._large is None:
            return
        piece_of(self._body, frames, size)
        self._missing -= size
        if self._missing == 0:
            message, self._large, self._body = self._large, None, None
            self.take(self._large_tag, message, self._large_redelivered)

    def _address(self, encoded: bytes) -> Address:
        address = self._addresses.get(encoded)
        if address is None:
            split = 1 + encoded[0]
            exchange, key = encoded[1:split], encoded[split + 1 :]
            address = Address(exchange.decode(errors="replace"), key.decode(errors="replace"))
            if len(self._addresses) >= ADDRESSES_MAX:
                self._addresses.clear()
            self._addresses[encoded] = address
        return address


def without_origin(content: bytes) -> bytes:
    """Return a content without the headers of its origin, which a link has added; as it is if malformed."""
    try:
        properties = Properties(content)
        properties.set_fields([field for field in properties.fields() if field[0] not in ORIGIN_NAMES])
    except ProtocolError:
        return content
    return properties.content()


def position_of(content: bytes, origin: bytes) -> i64:
    """Return the position of a message that a link of the encoded `origin` has sent, else NO_POSITION."""
    if not origin or content.find(ORIGIN_NAME, 0, header_frame_bytes(content)) < 0:
        return NO_POSITION
    try:
        values = dict(Properties(content).fields())
    except ProtocolError:
        return NO_POSITION
    position = values.get(POSITION_NAME, b"")
    if values.get(ORIGIN_NAME) != origin or len(position) != POSITION_BYTES:
        return NO_POSITION
    return int.from_bytes(position[1:], "big")


@final
class BrowsingEnd(ReceivingEnd):
    """The connection of a browser to the other broker.

    `ready`: the number of ready messages of the other queue when the browser began there.
    """

    def __init__(self, browse: Browse, definition: Definition, uri: Uri, host: EndHost, queue: str) -> None:
        super().__init__(browse, definition, uri, host, browse.broker.store.new_body)
        self.ready: i64 = 0
        self._browse = browse
        self._queue = queue
        self._left: deque[int] = deque()  # the tags of copies that the browser has not passed

    def on_ready(self) -> None:
        """Browse the queue."""
        self.client.declare(self._queue, PASSIVE, EMPTY_TABLE, self._found)

    def _found(self, frame: commands.Queue.DeclareOk) -> None:
        self.ready = frame.message_count or 0
        self.client.ask(commands.Basic.Qos(0, WINDOW, False), c.BASIC_QOS_OK, self._limited)

    def _limited(self, frame: base.Frame) -> None:
        arguments = encode_table(browse_arguments(self._browse.browser))
        self.client.consume(self._queue, TAG, False, arguments, self._consuming)

    def _consuming(self, frame: base.Frame) -> None:
        self.note_ready()
        self._browse.note_begun(self.ready)

    def on_delivery(
        self, tag: i64, redelivered: bool, address: bytes, content: bytes, size: i64, traits: i64
    ) -> None:
        """Take a copy, and note whether the message is still here too."""
        self._browse.note_copy(content)
        super().on_delivery(tag, redelivered, address, content, size, traits)

    def take(self, tag: i64, message: Message, redelivered: bool) -> None:
        """Show a copy to the browser."""
        if self._browse.show(message, redelivered):
            self._left.append(int(tag))
        elif self._left:
            self._left[-1] = int(tag)  # acknowledged with the copy before
        else:
            self.client.ack(tag, True)
        self._browse.note_demand()

    def acknowledge(self, count: i64) -> None:
        """Acknowledge copies that the browser has passed, so that others come."""
        tag = 0
        for _ in range(min(count, len(self._left))):
            tag = self._left.popleft()
        if tag:
            self.client.ack(tag, True)
            self.flush()

    def on_cancelled(self) -> None:
        """Note the end of the snapshot. A queue that is browsed for ever has been deleted."""
        if self._browse.browser.extent.snapshot:
            self._browse.note_end()
        else:
            super().on_cancelled()


def browse_arguments(browser: RemoteBrowser) -> dict[str, object]:
    """Return the arguments of the consumer that browses for `browser`."""
    extent = browser.extent
    arguments: dict[str, object] = {BROWSE: SNAPSHOT if extent.snapshot else True}
    if extent.since != NO_TIME:
        arguments[BROWSE_FROM] = datetime.fromtimestamp(extent.since / 1000, UTC)
    elif extent.skip > 0:
        arguments[BROWSE_FROM] = int(extent.skip)
    elif extent.beginning != FIRST:
        arguments[BROWSE_FROM] = extent.beginning
    if browser.filter is not None and browser.filter.selector:
        arguments[SELECTOR] = browser.filter.selector
    return arguments


@final
class Browse(EndOwner):
    """The service of a browser of a remote queue: copies from the other queue, then those of messages here.

    `reader`: the name under which the link stages the messages here. `keeps`: no message here leaves now.
    """

    def __init__(
        self,
        browser: RemoteBrowser,
        definition: Definition,
        uri: Uri,
        host: EndHost,
        staging: StagingHost,
        queue: str,
        reader: str,
    ) -> None:
        self.browser = browser
        self.broker = staging.broker
        self._remote = browser.remote
        self._here = browser.remote.queue
        self._staging = staging
        self._reader = reader
        self._schedule = host.schedule
        self._deadline = host.schedule.after(KEPT_MS)
        self._start = Timer(self, self._open_soon)
        self._end = BrowsingEnd(self, definition, uri, host, queue)
        self._kept: deque[QueueEntry] = deque()  # the messages here that follow
        self._seen: set[QueueEntry] = set()  # messages of these that were in the other queue too
        self._part: PartFilter | None = None
        self._shows_there = True  # the messages of the other queue are a part of the browser's extent
        self._has_shown = False
        self._is_far_over = False
        self._is_over = False

    def begin(self) -> None:
        """Browse the other queue as soon as the messages here have left, or have had time to."""
        self._open_soon()

    def close(self) -> None:
        """End the service. The browser stays as it is."""
        if not self._is_over:
            self._is_over = True
            self._schedule.cancel(self._start)
            self._end.close()

    def note_demand(self) -> None:
        """Call `look` in a later step."""
        self.browser.note_demand()

    def _open_soon(self) -> None:
        """Open the connection, unless messages here are about to leave."""
        if self._waiting() and self._schedule.now() < self._deadline:
            self._schedule.set(self._start, self._schedule.after(KEPT_LOOK_MS))
        else:
            self._end.open()

    def _waiting(self) -> list[QueueEntry]:
        """Return the messages here that belong to the queue for a browser that begins now."""
        if not self._remote.hybrid:
            return []
        entries = self._here.entries
        return [entry for entry in entries if entries.arrival(entry) <= self.browser.newest]

    # -- calls of the end

    def note_begun(self, ready: i64) -> None:
        """Note that the other queue is being browsed, in which `ready` messages were."""
        extent = self.browser.extent
        if not extent.snapshot:
            return
        kept = self._waiting()
        if extent.beginning == LAST and kept:
            self._shows_there = False
            kept = kept[-1:]
        self._kept = deque(kept)
        part = BrowseRange(skip=max(extent.skip - ready, 0), since=extent.since)
        views = self._remote.host.views
        self._part = PartFilter(part, self._here.entries, None, views, self._here.store)

    def note_copy(self, content: bytes) -> None:
        """Note that a message which is here, too, comes from the other queue."""
        if not self._kept:
            return
        stage = self.broker.staging.find_stage(self._here, self._reader)
        if stage is not None:
            position = position_of(content, self._staging.origin_of(stage))
            entry = stage.entry(position) if stage.kept <= position < stage.next else None
            if entry is not None:
                self._seen.add(entry)

    def show(self, message: Message, redelivered: bool) -> bool:
        """Show a copy of a message of the other queue; false: the browser does not see it."""
        if not self._shows_there or not self.browser.show(message, redelivered):
            return False
        self._has_shown = True
        return True

    def note_end(self) -> None:
        """Note that the browser has got its whole snapshot of the other queue."""
        self._is_far_over = True
        self.note_demand()

    # -- the browser

    def look(self) -> bool:
        """Bring further copies. Return whether the browser goes on."""
        browser = self.browser
        if self._is_over or browser.is_over():
            self.close()
            return False
        self._end.acknowledge(browser.drop_seen())
        if self._is_far_over:
            self._show_kept()
            if not self._kept and browser.inlet.depth == 0:
                self.close()
                browser.finish()
                return False
        return True

    def _show_kept(self) -> None:
        """Show copies of messages here, in their order. Those that have left meanwhile are not seen."""
        scanned = 0
        while self._kept and self.browser.inlet.depth < WINDOW:
            if scanned == SCANNED_MAX:
                self.note_demand()
                return
            scanned += 1
            entry = self._kept.popleft()
            if entry.state == DEQUEUED or entry in self._seen or not self._is_in_part(entry):
                continue
            message = entry.message
            try:
                content = self._here.store.content_of(message)
            except OSError as error:
                self.on_failed(f"a message cannot be read: {error}")
                return
            self.browser.show(copy_of(message, content), False)

    def _is_in_part(self, entry: QueueEntry) -> bool:
        """Whether a message here is in the extent; all are that follow a message of the extent."""
        return self._has_shown or self._part is None or self._part.passes(entry)

    # -- as the owner of the end

    def on_failed(self, reason: str) -> None:
        """Cancel the browser."""
        if not self._is_over:
            where = {"queue": self._here.name, "vhost": self._here.vhost}
            _log.warning("browser of a remote queue cancelled", **where, reason=reason)
            self.close()
            self.browser.cancel()

    def on_broken(self) -> None:
        """Log the exception that is being handled, an error of this broker, and cancel the browser."""
        _log.exception("internal error", queue=self._here.name, vhost=self._here.vhost)
        self.on_failed(INTERNAL_ERROR)

    def end_turn(self) -> None:
        """Write the output."""
        self._end.flush()
