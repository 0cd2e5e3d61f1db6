"""`/bindings`: bind, list, unbind. [RabbitMQ rabbit_amqp_management]

Between two there may be a hundred thousand bindings, so they are gone through in slices.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from broker.adapters import topology
from broker.adapters.access import EXCHANGE, QUEUE
from broker.adapters.amqp10.management.asking import Answer, Asking, no_content
from broker.adapters.amqp10.management.bodies import arguments, fields_of, shown_arguments, text
from broker.adapters.amqp10.management.refusal import BAD_REQUEST, OK, Refused
from broker.adapters.amqp10.management.targets import Ends, location, named_binding, queried_ends
from broker.core.errors import NotFound
from broker.core.routing.graph import Binding, digest_of
from broker.core.schedule import Alarm
from protocol.amqp10.constructors import LIST32
from protocol.amqp10.encoding import encode

PROPERTIES: Final = ("source", "destination_queue", "destination_exchange", "binding_key", "arguments")
SLICE: Final = 100  # bindings that are looked at in one turn, fewer of those with long arguments
ARGUMENTS: Final = 100  # characters of the latter that count as a binding more
LOOK: Final[i64] = 20  # microseconds, to look at one


def bind(asking: Asking) -> Answer:
    """Bind a queue or an exchange to an exchange. Raises Refused, BrokerError."""
    fields = fields_of(asking.request.body, "binding", PROPERTIES)
    source = text(fields, "source")
    if ("destination_queue" in fields) == ("destination_exchange" in fields):
        raise Refused(BAD_REQUEST, "a binding needs either destination_queue or destination_exchange")
    kind = QUEUE if "destination_queue" in fields else EXCHANGE
    destination = text(fields, "destination_queue" if kind == QUEUE else "destination_exchange")
    key = text(fields, "binding_key", "")
    try:
        topology.bind(asking.client, asking.virtual_host, kind, destination, source, key, arguments(fields))
    except NotFound as error:
        raise Refused(BAD_REQUEST, error.text) from None  # what the path names, the bindings, is there
    return no_content(durable=True)


def unbind(asking: Asking) -> Answer | None:
    """Remove one binding; one that is absent is removed already. Raises Refused, BrokerError."""
    ends, key, digest = named_binding(asking.target)
    _correct(asking, ends)
    if digest:
        client, virtual_host = asking.client, asking.virtual_host
        topology.require_binding(client, virtual_host, ends.kind, ends.destination, ends.source, key)
        return _Removal(asking, ends, key, digest).begin()
    return _unbound(asking, ends, key, {})


def show(asking: Asking) -> Answer | None:
    """The bindings between two, all or those with one key. Raises Refused, BrokerError."""
    ends = queried_ends(asking.target)
    asking.client.rights.require_any(EXCHANGE, ends.source)
    asking.client.rights.require_any(ends.kind, ends.destination)
    return _List(asking, ends).begin()


def _correct(asking: Asking, ends: Ends) -> None:
    """rabbitmq-amqp-python-client 1.0 says dstq for exchanges too."""
    virtual_host, name = asking.virtual_host, ends.destination
    if ends.kind == QUEUE and name not in virtual_host.queues and name in virtual_host.exchanges:
        ends.kind = EXCHANGE


def _unbound(asking: Asking, ends: Ends, key: str, having: dict[str, object]) -> Answer:
    topology.unbind(asking.client, asking.virtual_host, ends.kind, ends.destination, ends.source, key, having)
    return no_content(durable=True)


class _Walk(Alarm):
    """Goes through the bindings that were there between two when it began, in slices."""

    def __init__(self, asking: Asking, ends: Ends) -> None:
        super().__init__()
        self.asking = asking
        self.ends = ends
        self._next = 0
        self._between = _between(asking, ends)

    def begin(self) -> Answer | None:
        """Go through the first ones; returns the answer if these are all. Raises Refused, BrokerError."""
        between = self._between
        schedule = self.asking.virtual_host.schedule
        room = SLICE
        while room > 0 and self._next < len(between):
            binding = between[self._next]
            if self.ends.key is None or binding.routing_key == self.ends.key:
                self.look(binding)
                room -= len(binding.key[1]) // ARGUMENTS
            self._next += 1
            room -= 1
        schedule.allowance.use(LOOK * (SLICE - room))
        if self._next == len(between):
            return self.answer()
        schedule.set(self, schedule.now())
        return None

    def ring(self) -> None:
        """Go through the next ones (Alarm)."""
        if not self.asking.dropped:
            self.asking.attempt(self.begin)

    def look(self, binding: Binding) -> None:
        """Take one with the right key."""
        raise NotImplementedError

    def answer(self) -> Answer:
        """That was all. Raises Refused, BrokerError."""
        raise NotImplementedError


class _List(_Walk):
    """Shows them."""

    def __init__(self, asking: Asking, ends: Ends) -> None:
        super().__init__(asking, ends)
        self._shown: list[bytes] = []  # the latest, each encoded
        self._pieces: list[bytes] = []  # those before them, many in each, so that the last turn is short
        self._count = 0

    def look(self, binding: Binding) -> None:
        """Show one (_Walk)."""
        destination = f"destination_{binding.destination_type}"
        self._shown.append(
            encode(
                {
                    "source": binding.source.name,
                    destination: binding.destination_name,
                    "binding_key": binding.routing_key,
                    "arguments": shown_arguments(binding.arguments),
                    "location": location(binding),
                }
            )
        )
        if len(self._shown) == SLICE:
            self._join()

    def answer(self) -> Answer:
        """Show all (_Walk)."""
        self._join()
        size = 4 + sum(map(len, self._pieces))
        head = bytes((LIST32,)) + size.to_bytes(4, "big") + self._count.to_bytes(4, "big")
        return Answer(OK, [head, *self._pieces])

    def _join(self) -> None:
        self._pieces.append(b"".join(self._shown))
        self._count += len(self._shown)
        self._shown = []


class _Removal(_Walk):
    """Finds one by the digest of its arguments, and removes it."""

    def __init__(self, asking: Asking, ends: Ends, key: str, digest: str) -> None:
        super().__init__(asking, ends)
        self._key = key
        self._digest = digest
        self._found: Binding | None = None

    def look(self, binding: Binding) -> None:
        """See whether it is this one (_Walk)."""
        if digest_of(binding.key[1]) == self._digest:
            self._found = binding

    def answer(self) -> Answer:
        """Remove it, if there is such a one (_Walk)."""
        if self._found is None:
            return no_content(durable=False)
        return _unbound(self.asking, self.ends, self._key, self._found.arguments)


def _between(asking: Asking, ends: Ends) -> list[Binding]:
    virtual_host = asking.virtual_host
    source = virtual_host.exchanges.get(ends.source)
    named = virtual_host.queues if ends.kind == QUEUE else virtual_host.exchanges
    destination = named.get(ends.destination)
    if source is None or destination is None:
        return []
    return list(source.outgoing.get(destination, {}).values())
