"""Messages, and the addresses that they were published to."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64, mypyc_attr, u8

SHORT_STRING_BYTES_MAX: Final = 255
NEVER: Final[i64] = -1  # of an expiration: the message may wait for ever

# bits of a message's marks
REMEMBERED: Final = 2  # it is no message, but what queues remember of one (`memory.py`)
TELLS_ARRIVAL: Final = 4  # its publisher wants receipts: of its arrival in queues,
TELLS_CONSUMED: Final = 8  # and of its being consumed from them (`receipts.py`)
DELAYED: Final = 32  # the queues that it goes to hold it until its date (`delaying.py`)
BY_CLOCK: Final = 128  # that date is the end of a wait, which setting the calendar does not change
NOT_BY_CLOCK: Final = 255 - BY_CLOCK
NOT_DELAYED: Final = 255 - DELAYED - BY_CLOCK
KNOWN: Final = 16  # a queue has had it before; the log does not keep this
IN_STREAM: Final = 64  # a stream has it, as a row of the batch that was filled; nor does it keep this
ON_ITS_WAY: Final = KNOWN | IN_STREAM  # something of it may be on its way to the disk


@final
@mypyc_attr(acyclic=True)
class Address:
    """The exchange and routing key that a message was published to.

    `encoded` is both as short strings, one after the other: the form in which the log keeps them and in which
    AMQP 0-9-1 sends them. Messages of one route share one Address, so identity is the fast comparison.
    """

    name: object | None = None  # what the journal calls it, once it has been asked

    def __init__(self, exchange: str, routing_key: str) -> None:
        self.exchange = exchange
        self.routing_key = routing_key
        name = exchange.encode()
        key = routing_key.encode()
        self.encoded = bytes([len(name)]) + name + bytes([len(key)]) + key


@final
@mypyc_attr(acyclic=True)
class Message:
    """An immutable message, shared by every queue that it was routed to.

    `content` is the content header and body frames as the publisher sent them, one slice, or sections of AMQP
    1.0; None once the log holds them and memory does not (`MessageStore.load` brings them back). `size` is
    the body in bytes. `body`: a body that is too large for that; then `content` is what stands before it.
    `date`: from when on its time is counted, in milliseconds since 1970; 0: nobody needs it.
    `expiration`: how many milliseconds it may wait in a queue; NEVER: its publisher does not say.
    `died`: it has been dead-lettered, and what its headers say of that is the broker's own word.
    `marks`: what else there is to know of it; 0 for most.
    These four are kept in the log too, of a message with a date. They are set before the message is
    appended, and not changed afterwards.
    """

    # the log's book-keeping (up to `date`), untouched by anybody else; defaults of the class: most messages
    # need no other
    sequence: i64 = 0  # its number in the log; 0: not logged
    references: i64 = 0  # durable queues that still hold it
    segment: i64 = 0  # where its content lies: segment number,
    offset: i64 = 0  # offset of the content in the segment's file,
    length: i64 = 0  # and length of the content in bytes
    uid: i64 = 0  # the journal's number of it (`journal.py`); negative: that of what it was made of
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
    """A large body in pieces, so that it need not be in memory as a whole.

    It is shared by the message that it came with, by copies and dead letters of that, and by whoever is about
    to send it. `pieces` are messages that are in no queue; their content is body frames as the publisher sent
    them, or sections, cut anywhere. When nobody refers to the body any more, its pieces that are in the log
    are added to `orphans`: whoever holds them on disk can let go of them.
    """

    def __init__(self, orphans: list[Message]) -> None:
        self.pieces: list[Message] = []
        self.orphans = orphans

    def __del__(self) -> None:
        # may be called from anywhere: nothing is done here but to note it
        for piece in self.pieces:
            if piece.sequence > 0:  # else nobody but memory has it, which is to be free at once
                self.orphans.append(piece)


def held_bytes(message: Message) -> i64:
    """Bytes that a message takes as long as it is held: its content, or the pieces of a large body."""
    return max(0 if message.content is None else len(message.content), message.size)


def copy_of(message: Message, content: bytes | None) -> Message:
    """The same message, but to queues and log a new one, with this content and without a date."""
    copy = Message(message.address, content, message.size, message.persistent, message.priority)
    copy.expiration = message.expiration
    copy.died = message.died
    copy.marks = message.marks
    copy.body = message.body
    return copy


def piece_of(body: Body, frames: bytes, size: i64) -> Message:
    """Add a piece to a body: these frames, which carry `size` bytes of it."""
    piece = Message(NOWHERE, frames, size, True, 0)
    body.pieces.append(piece)
    return piece


NOWHERE: Final = Address("", "")


def uid_of(message: Message) -> i64:
    """The number that the journal knows `message` by, the same in all its queues; 0: it has had none yet."""
    return message.uid if message.uid > 0 else message.sequence


def descends(message: Message, origin: Message) -> None:
    """Have the journal know that `message`, which is new, was made of `origin`."""
    message.uid = -uid_of(origin)
