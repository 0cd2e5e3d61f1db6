"""Messages, their bodies, and the addresses to which they were published."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64, mypyc_attr, u8

SHORT_STRING_BYTES_MAX: Final = 255
NEVER: Final[i64] = -1  # an expiration: the message may wait for ever

# bits of a message's marks
AWAITS_REMOTE: Final = 1  # the publisher waits for another broker; the log does not keep this mark
REMEMBERED: Final = 2  # no message, but an id or producer that queues remember (`queues.duplicates`)
TELLS_ARRIVAL: Final = 4  # the publisher wants receipts: for its arrival in queues,
TELLS_CONSUMED: Final = 8  # and when consumers have settled it (`publishing.receipts`)
DELAYED: Final = 32  # the queues delay the message until its date (`publishing.delay`)
BY_CLOCK: Final = 128  # the date is the end of a delay, which setting the calendar does not change
NOT_BY_CLOCK: Final = 255 - BY_CLOCK
NOT_DELAYED: Final = 255 - DELAYED - BY_CLOCK
KNOWN: Final = 16  # a duplicate for some queue; the log does not keep this mark
IN_STREAM: Final = 64  # a row of a stream in the current batch; the log does not keep this mark either
ON_ITS_WAY: Final = KNOWN | IN_STREAM  # a part of it may not be on disk yet


@final
@mypyc_attr(acyclic=True)
class Address:
    """The exchange and routing key to which a message was published.

    `encoded` is both as short strings, in this order: the log and AMQP 0-9-1 use this form. Messages of one
    route share one Address, so identity is the fast comparison.
    """

    name: object | None = None  # the journal's name for it, once the journal needs one

    def __init__(self, exchange: str, routing_key: str) -> None:
        self.exchange = exchange
        self.routing_key = routing_key
        name = exchange.encode()
        key = routing_key.encode()
        self.encoded = bytes([len(name)]) + name + bytes([len(key)]) + key


@final
@mypyc_attr(acyclic=True)
class Message:
    """An immutable message, shared by every queue to which it was routed.

    `content` is the content header and body frames as the publisher sent them, one slice, or sections of AMQP
    1.0. It is None once the content is only in the log (`MessageStore.load` reads it). `size` is the body in
    bytes. `body`: a body that is too large for `content`; then `content` is the part before the body.
    `date`: the time from which the message's age is counted, in milliseconds since 1970; 0: no one needs it.
    `expiration`: how many milliseconds the message may wait in a queue; NEVER: its publisher set none.
    `died`: the message has been dead-lettered, so the broker itself wrote the headers about its death.
    `marks`: further flags; 0 for most messages.
    The log stores these four too, for a message with a date. They are set before the message is appended, and
    not changed afterwards.
    """

    # the log's book-keeping (up to `date`), which no other code changes; class defaults, because most
    # messages need no other values
    sequence: i64 = 0  # the message's number in the log; 0: not logged
    references: i64 = 0  # durable queues that still hold it
    segment: i64 = 0  # where its content lies: segment number,
    offset: i64 = 0  # offset of the content in the segment's file,
    length: i64 = 0  # and length of the content in bytes
    uid: i64 = 0  # the journal's number for it; negative: that of the message it was made from
    log_previous: Message | None = None  # live messages of one segment are linked, oldest first
    log_next: Message | None = None
    date: i64 = 0
    expiration: i64 = NEVER
    died: bool = False
    marks: u8 = 0
    body: Body | None = None

    def __init__(
        self, address: Address, content: bytes | None, size: i64, persistent: bool, priority: i64
    ) -> None:
        self.address = address
        self.content = content
        self.size = size
        self.persistent = persistent
        self.priority = priority


@final
@mypyc_attr(acyclic=True)
class Body:
    """A large body in pieces, so that the whole body need not be in memory.

    The message with which it arrived shares the body with its copies and dead letters, and with transports
    that are about to send it. `pieces` are messages that are in no queue. Their content is body frames as the
    publisher sent them, or sections, cut anywhere. When the last reference to the body is dropped, its pieces
    in the log are added to `orphans`, so that the store can release them.
    """

    def __init__(self, orphans: list[Message]) -> None:
        self.pieces: list[Message] = []
        self.orphans = orphans

    def __del__(self) -> None:
        # may be called from anywhere, so this only notes the pieces
        for piece in self.pieces:
            if piece.sequence > 0:  # else it is only in memory, which is freed at once
                self.orphans.append(piece)


def held_bytes(message: Message) -> i64:
    """Return the bytes that a message takes while it is held: its content, or the pieces of a large body."""
    return max(0 if message.content is None else len(message.content), message.size)


def copy_of(message: Message, content: bytes | None) -> Message:
    """Return a copy of the message with this content and without a date; queues and log treat it as new."""
    copy = Message(message.address, content, message.size, message.persistent, message.priority)
    copy.expiration = message.expiration
    copy.died = message.died
    copy.marks = message.marks
    copy.body = message.body
    return copy


def piece_of(body: Body, frames: bytes, size: i64) -> Message:
    """Add a piece to a body: `frames`, which carry `size` bytes of the body."""
    piece = Message(NOWHERE, frames, size, True, 0)
    body.pieces.append(piece)
    return piece


NOWHERE: Final = Address("", "")


def uid_of(message: Message) -> i64:
    """Return the journal's number for `message`, the same in all its queues; 0: it has none yet."""
    return message.uid if message.uid > 0 else message.sequence


def set_descent(message: Message, origin: Message) -> None:
    """Note for the journal that `message`, which is new, was made from `origin`."""
    message.uid = -uid_of(origin)
