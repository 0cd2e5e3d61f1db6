"""Published, confirmed, delivered and acknowledged messages, across the lives of a broker that is killed.

A message is (publisher, number); its route is the set of queues that its publisher's messages go to. A *life*
is one process of the broker. What must hold, whatever the instant of the kill:

- a confirmed persistent message that its consumer did not acknowledge is still in every queue of its route;
- nothing is delivered that was not published, or to a queue off its route, or with another body;
- nothing is delivered twice in one life, for nobody requeues;
- what was published in an earlier life is marked as redelivered;
- a transient message does not outlive its life;
- messages of one publisher come in order;
- what was acknowledged comes back only if the acknowledgement can have been under way: one that the broker is
  known to have handled before a publish that it confirmed is on disk with that publish.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

IDENTITY = struct.Struct(">BQ")
MIB = 1 << 20
FILLER = bytes(range(251)) * (6 * MIB // 251)  # no frame and no piece of it is like the one before
LARGE_EVERY = 997
IN_PIECES_EVERY = 4001
TRANSIENT_EVERY = 10


def body_size(number: int) -> int:
    """Bytes of a body: mostly a few hundred, now and then several frames, seldom several mebibytes."""
    if number % IN_PIECES_EVERY == IN_PIECES_EVERY - 1:
        return MIB + number * 7919 % (4 * MIB)
    return IDENTITY.size + (200_000 if number % LARGE_EVERY == LARGE_EVERY - 1 else number * 7919 % 400)


def body_of(publisher: int, number: int) -> bytes:
    """Return the body of a message, which identifies the message."""
    return IDENTITY.pack(publisher, number) + FILLER[: body_size(number) - IDENTITY.size]


def persistent(number: int) -> bool:
    """Whether a message is published as persistent."""
    return number % TRANSIENT_EVERY != TRANSIENT_EVERY - 1


class Acknowledged(NamedTuple):
    """Messages acknowledged together, and when the broker was known to have handled it (0: not known)."""

    messages: list[tuple[int, int]]
    handled: float


class Publications:
    """The publications of a single publisher."""

    def __init__(self, route: Sequence[str]) -> None:
        self.route = frozenset(route)
        self.sent = 0  # numbers below this may have reached a broker
        self.confirmed = bytearray()
        self.first_of_life = [0]

    def sending(self, count: int) -> int:
        """`count` more are about to be sent; returns the number of the first."""
        first = self.sent
        self.confirmed.extend(bytes(count))
        self.sent += count
        return first

    def confirm(self, first: int, last: int) -> None:
        """The broker has confirmed these."""
        self.confirmed[first : last + 1] = b"\x01" * (last + 1 - first)

    def life_of(self, number: int) -> int:
        """Return the life of the broker in which a message was published."""
        life = len(self.first_of_life) - 1
        while self.first_of_life[life] > number:
            life -= 1
        return life


class Acquired:
    """The deliveries and acknowledgements of a single queue."""

    def __init__(self) -> None:
        self.seen_in_life: dict[tuple[int, int], int] = {}
        self.acknowledged: list[Acknowledged] = []
        self.maybe_settled: set[tuple[int, int]] = set()
        self.settled: set[tuple[int, int]] = set()
        self.last_of_publisher: dict[int, int] = {}


class Ledger:
    """The whole account. Publishers and consumers write their own sides from their own threads."""

    def __init__(self, routes: Mapping[int, Sequence[str]]) -> None:
        self.life = 0
        self.publications = {publisher: Publications(route) for publisher, route in routes.items()}
        queues = sorted({queue for route in routes.values() for queue in route})
        self.queues = {queue: Acquired() for queue in queues}
        self.violations: list[str] = []
        self.fence = 0.0  # the latest time before a publish that was confirmed by syncing it

    def delivered(self, queue: str, body: bytes, redelivered: bool) -> tuple[int, int]:
        """Account for a delivery; returns which message it is."""
        publisher, number = IDENTITY.unpack_from(body)
        message = (publisher, number)
        for fault in self._faults(queue, message, body, redelivered):
            self.violations.append(f"life {self.life}, queue {queue}, message {message}: {fault}")
        acquired = self.queues[queue]
        acquired.seen_in_life[message] = self.life
        acquired.last_of_publisher[publisher] = number
        return message

    def acknowledging(self, queue: str, messages: list[tuple[int, int]]) -> int:
        """Record messages that are about to be acknowledged; return a ticket for `handled`."""
        acquired = self.queues[queue]
        acquired.acknowledged.append(Acknowledged(messages, 0))
        return len(acquired.acknowledged) - 1

    def handled(self, queue: str, ticket: int, when: float) -> None:
        """The broker has handled the acknowledgement; `when` is the time at which that was known."""
        acquired = self.queues[queue]
        acquired.acknowledged[ticket] = acquired.acknowledged[ticket]._replace(handled=when)

    def crashed(self) -> None:
        """Record that the broker is dead and all parties have read its last bytes."""
        for acquired in self.queues.values():
            for messages, handled in acquired.acknowledged:
                (acquired.settled if 0 < handled < self.fence else acquired.maybe_settled).update(messages)
            acquired.acknowledged.clear()
            acquired.last_of_publisher.clear()
        for publications in self.publications.values():
            publications.first_of_life.append(publications.sent)
        self.life += 1

    def missing(self, queue: str, found: set[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return messages that must be in `queue` now and are not among those `found` in it."""
        acquired = self.queues[queue]
        gone = acquired.settled | acquired.maybe_settled | found
        return [message for message in self._owed(queue) if message not in gone]

    def drained(self, queue: str, found: set[tuple[int, int]]) -> None:
        """The queue was emptied for good, by acknowledgements that are known to be on disk."""
        for message in self.missing(queue, found):
            self.violations.append(f"life {self.life}, queue {queue}: {message} was confirmed and is lost")
        acquired = self.queues[queue]
        acquired.settled |= acquired.maybe_settled | found
        acquired.settled.update(self._owed(queue))  # a single report is enough
        acquired.maybe_settled.clear()
        acquired.acknowledged.clear()

    def totals(self) -> dict[str, int]:
        """Return the numbers of published and confirmed messages, for the report of a run."""
        return {
            "published": sum(publications.sent for publications in self.publications.values()),
            "confirmed": sum(sum(publications.confirmed) for publications in self.publications.values()),
            "settled": sum(len(acquired.settled) for acquired in self.queues.values()),
        }

    def _owed(self, queue: str) -> Iterator[tuple[int, int]]:
        for publisher, publications in self.publications.items():
            if queue in publications.route:
                for number, confirmed in enumerate(publications.confirmed):
                    if confirmed and persistent(number):
                        yield publisher, number

    def _faults(self, queue: str, message: tuple[int, int], body: bytes, redelivered: bool) -> Iterator[str]:
        publisher, number = message
        publications = self.publications.get(publisher)
        acquired = self.queues[queue]
        if publications is None or number >= publications.sent:
            yield "was never published"
            return
        if queue not in publications.route:
            yield "is off its route"
        if body != body_of(publisher, number):
            yield "has another body"
        if acquired.seen_in_life.get(message) == self.life:
            yield "was delivered twice"
        elif acquired.last_of_publisher.get(publisher, -1) >= number:
            yield f"comes after {acquired.last_of_publisher[publisher]}"
        if message in acquired.settled:
            yield "comes back although its acknowledgement was on disk"
        earlier = publications.life_of(number) < self.life
        if redelivered != earlier:
            yield f"has redelivered={redelivered}"
        if earlier and not persistent(number):
            yield "is transient and outlived its life"
