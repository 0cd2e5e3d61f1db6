"""The handlers of the management node for queues, exchanges, bindings and tokens.

There may be a hundred thousand bindings between two objects, so bindings are searched in slices.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from broker.adapters.access import EXCHANGE, QUEUE
from broker.adapters.amqp10.management.requests import (
    BAD_REQUEST,
    CREATED,
    NOT_IMPLEMENTED,
    OK,
    Answer,
    BindingEnds,
    Refused,
    RequestContext,
    arguments_field,
    arguments_map,
    binding_in_path,
    ends_in_query,
    fields_of,
    flag_field,
    location,
    no_content,
    text_field,
)
from broker.adapters.peers import direct_reply, requests
from broker.adapters.peers.server import PRODUCT
from broker.core.arguments.remote import shown_arguments
from broker.core.errors import NotFound, PreconditionFailed
from broker.core.partitions.partitioned import totals_of
from broker.core.policies.policy import queue_type_of
from broker.core.queues.limits import touch
from broker.core.queues.purge import Purge, PurgeWaiter
from broker.core.queues.queue import Queue
from broker.core.routing.exchanges import DIRECT
from broker.core.routing.graph import Binding, digest_of
from broker.core.schedule import Chore
from protocol.amqp10.constructors import LIST32
from protocol.amqp10.encoding import encode
from protocol.amqp10.types import Array, Uint, Ulong

QUEUE_PROPERTIES: Final = ("durable", "exclusive", "auto_delete", "arguments")
STRING8: Final = 0xA1


def check_name(name: str) -> None:
    """Refuse a name for a new object that contains a line break. Raises Refused. [RabbitMQ]"""
    if "\n" in name or "\r" in name:
        raise Refused(BAD_REQUEST, f"Bad name '{name}': line feed and carriage return characters not allowed")


def declare_queue(context: RequestContext) -> Answer:
    """Create a queue, or check the existing one; durable by default. Raises Refused, BrokerError."""
    fields = fields_of(context.request.body, "queue", QUEUE_PROPERTIES)
    name = context.target.name()
    if not name:
        raise Refused(BAD_REQUEST, "declare queue with empty name not allowed")
    check_name(name)
    is_new = name not in context.virtual_host.topology.queues
    queue = requests.declare_queue(
        context.client,
        context.virtual_host,
        name,
        flag_field(fields, "durable", True),
        flag_field(fields, "exclusive", False),
        flag_field(fields, "auto_delete", False),
        arguments_field(fields),
    )
    return Answer(CREATED if is_new else OK, [encode(_describe_queue(context, queue))], queue.durable)


def show_queue(context: RequestContext) -> Answer:
    """Show a queue, also one that is exclusive to another connection. Raises Refused, BrokerError."""
    name = context.target.name()
    context.client.rights.require_any(QUEUE, name)
    queue = context.virtual_host.topology.queues.get(name)
    if queue is None:
        if direct_reply.receiver_named(context.client.server, context.virtual_host, name) is not None:
            return Answer(OK, [encode(_describe_requester(context, name))])
        raise NotFound(f"queue '{name}' in vhost '{context.virtual_host.name}' not found")
    touch(queue)
    return Answer(OK, [encode(_describe_queue(context, queue))])


def delete_queue(context: RequestContext) -> Answer:
    """Delete a queue, which may be absent. Raises Refused, BrokerError."""
    count, durable = requests.delete_queue(context.client, context.virtual_host, context.target.name())
    return Answer(OK, _count_body(count), durable)


def purge_queue(context: RequestContext) -> Answer | None:
    """Purge the ready messages; the answer follows the purge. Raises Refused, BrokerError."""
    under_way = requests.purge_queue(context.client, context.virtual_host, context.target.name())
    if under_way.over:
        return _purge_answer(under_way)
    under_way.set_waiter(_PurgeAnswer(context))
    return None


@final
class _PurgeAnswer(PurgeWaiter):
    """The answer to a purge over several turns."""

    def __init__(self, context: RequestContext) -> None:
        self._context = context

    def on_purged(self, done: Purge) -> None:
        """Send the answer."""
        self._context.run_step(lambda: _purge_answer(done))


def _purge_answer(done: Purge) -> Answer:
    """Return the answer to a purge that is over. Raises PreconditionFailed if the purge has failed."""
    if done.failure:
        raise PreconditionFailed(done.failure)
    return Answer(OK, _count_body(int(done.dropped)), done.logged)


def _count_body(messages: int) -> list[bytes]:
    return [encode({"message_count": Ulong(messages)})]


def _describe_requester(context: RequestContext, name: str) -> dict[object, object]:
    """Show a requester of AMQP 0-9-1 that waits for direct replies, as RabbitMQ shows its pseudo-queue."""
    return {
        "message_count": Ulong(0),
        "consumer_count": Uint(1),
        "name": name,
        "vhost": context.virtual_host.name,
        "durable": False,
        "auto_delete": True,
        "exclusive": True,
        "type": "rabbit_volatile_queue",
        "arguments": {},
        "leader": PRODUCT,
        "replicas": Array(STRING8, [PRODUCT]),
    }


def _describe_queue(context: RequestContext, queue: Queue) -> dict[object, object]:
    """Show a queue under RabbitMQ's names. The only node has the name in the broker's open."""
    node = str(context.client.server.properties["product"])
    return {
        "message_count": Ulong(int(totals_of(queue).ready)),
        "consumer_count": Uint(queue.consumer_count),
        "name": queue.name,
        "vhost": queue.vhost,
        "durable": queue.durable,
        "auto_delete": queue.auto_delete,
        "exclusive": queue.exclusive_owner is not None,
        "type": queue_type_of(queue.arguments),
        "arguments": arguments_map(shown_arguments(queue.arguments)),
        "leader": node,
        "replicas": Array(STRING8, [node]),
    }


EXCHANGE_PROPERTIES: Final = ("type", "durable", "auto_delete", "internal", "arguments")


def declare_exchange(context: RequestContext) -> Answer:
    """Create or check an exchange; direct and durable by default. Raises Refused, BrokerError."""
    fields = fields_of(context.request.body, "exchange", EXCHANGE_PROPERTIES)
    name = context.target.name()
    check_name(name)
    exchange = requests.declare_exchange(
        context.client,
        context.virtual_host,
        name,
        text_field(fields, "type", DIRECT),
        flag_field(fields, "durable", True),
        flag_field(fields, "auto_delete", False),
        flag_field(fields, "internal", False),
        arguments_field(fields),
    )
    return no_content(exchange.durable)


def delete_exchange(context: RequestContext) -> Answer:
    """Delete an exchange, which may be absent. Raises Refused, BrokerError."""
    durable = requests.delete_exchange(context.client, context.virtual_host, context.target.name())
    return no_content(durable)


PROPERTIES: Final = ("source", "destination_queue", "destination_exchange", "binding_key", "arguments")
SLICE: Final[i64] = 100  # bindings that are checked in a turn, fewer with long arguments
ARGUMENTS: Final[i64] = 100  # characters of arguments that count as a further binding
CHECK_COST: Final[i64] = 20  # the cost of checking a binding, in microseconds


def add_binding(context: RequestContext) -> Answer:
    """Bind a queue or an exchange to an exchange. Raises Refused, BrokerError."""
    fields = fields_of(context.request.body, "binding", PROPERTIES)
    source = text_field(fields, "source")
    if ("destination_queue" in fields) == ("destination_exchange" in fields):
        raise Refused(BAD_REQUEST, "a binding needs either destination_queue or destination_exchange")
    kind = QUEUE if "destination_queue" in fields else EXCHANGE
    destination = text_field(fields, "destination_queue" if kind == QUEUE else "destination_exchange")
    key = text_field(fields, "binding_key", "")
    try:
        requests.bind(
            context.client, context.virtual_host, kind, destination, source, key, arguments_field(fields)
        )
    except NotFound as error:
        raise Refused(BAD_REQUEST, error.text) from None  # not 404: the path /bindings exists
    return no_content(durable=True)


def remove_binding(context: RequestContext) -> Answer | None:
    """Remove a binding, which may be absent. Raises Refused, BrokerError."""
    ends, key, digest = binding_in_path(context.target)
    _correct_kind(context, ends)
    if digest:
        client, virtual_host = context.client, context.virtual_host
        requests.require_binding(client, virtual_host, ends.kind, ends.destination, ends.source, key)
        return _BindingRemoval(context, ends, key, digest).begin()
    return _unbind(context, ends, key, {})


def show_bindings(context: RequestContext) -> Answer | None:
    """Show the bindings between two objects, all or those with a key. Raises Refused, BrokerError."""
    ends = ends_in_query(context.target)
    context.client.rights.require_any(EXCHANGE, ends.source)
    context.client.rights.require_any(ends.kind, ends.destination)
    return _BindingList(context, ends).begin()


def _correct_kind(context: RequestContext, ends: BindingEnds) -> None:
    """Correct the kind of a destination: rabbitmq-amqp-python-client 1.0 uses dstq for exchanges too."""
    virtual_host, name = context.virtual_host, ends.destination
    if (
        ends.kind == QUEUE
        and name not in virtual_host.topology.queues
        and name in virtual_host.topology.exchanges
    ):
        ends.kind = EXCHANGE


def _unbind(
    context: RequestContext, ends: BindingEnds, key: str, binding_arguments: dict[str, object]
) -> Answer:
    requests.unbind(
        context.client, context.virtual_host, ends.kind, ends.destination, ends.source, key, binding_arguments
    )
    return no_content(durable=True)


class _BindingSearch(Chore):
    """A search in slices through the bindings that existed between two objects at its beginning."""

    def __init__(self, context: RequestContext, ends: BindingEnds) -> None:
        super().__init__(context.virtual_host.schedule, SLICE)
        self.context = context
        self.ends = ends
        self._next: i64 = 0
        self._bindings = _bindings_between(context, ends)
        self._is_over = False

    def begin(self) -> Answer | None:
        """Walk through the first slice; return the answer if it is the last. Raises Refused, BrokerError."""
        answer = self._walk()
        if answer is None:
            self.continue_soon()
        return answer

    def step(self, budget: i64) -> bool:
        """Walk through the next slice, and send the answer after the last binding."""
        self._is_over = True
        if not self.context.dropped:
            self.context.run_step(self._walk)
        return not self._is_over

    def _walk(self) -> Answer | None:
        bindings = self._bindings
        room = self.budget
        while room > 0 and self._next < len(bindings):
            binding = bindings[self._next]
            if self.ends.key is None or binding.routing_key == self.ends.key:
                self.check(binding)
                room -= len(binding.key[1]) // ARGUMENTS
            self._next += 1
            room -= 1
        self.schedule.allowance.use(CHECK_COST * (self.budget - room))
        if self._next == len(bindings):
            return self.answer()
        self._is_over = False
        return None

    def check(self, binding: Binding) -> None:
        """Check a binding, whose key matches."""
        raise NotImplementedError

    def answer(self) -> Answer:
        """Return the answer after the last binding. Raises Refused, BrokerError."""
        raise NotImplementedError


class _BindingList(_BindingSearch):
    """The search that lists bindings."""

    def __init__(self, context: RequestContext, ends: BindingEnds) -> None:
        super().__init__(context, ends)
        self._latest: list[bytes] = []  # the latest bindings, each encoded
        self._pieces: list[bytes] = []  # the earlier bindings, joined so that the last turn is short
        self._count = 0

    def check(self, binding: Binding) -> None:
        """Add a binding to the answer (_Walk)."""
        destination = f"destination_{binding.destination_type}"
        self._latest.append(
            encode(
                {
                    "source": binding.source.name,
                    destination: binding.destination_name,
                    "binding_key": binding.routing_key,
                    "arguments": arguments_map(binding.arguments),
                    "location": location(binding),
                }
            )
        )
        if len(self._latest) == SLICE:
            self._join()

    def answer(self) -> Answer:
        """Return the answer with all bindings (_Walk)."""
        self._join()
        size = 4 + sum(map(len, self._pieces))
        head = bytes((LIST32,)) + size.to_bytes(4, "big") + self._count.to_bytes(4, "big")
        return Answer(OK, [head, *self._pieces])

    def _join(self) -> None:
        self._pieces.append(b"".join(self._latest))
        self._count += len(self._latest)
        self._latest = []


class _BindingRemoval(_BindingSearch):
    """The search for a binding by the digest of its arguments, which removes the binding."""

    def __init__(self, context: RequestContext, ends: BindingEnds, key: str, digest: str) -> None:
        super().__init__(context, ends)
        self._key = key
        self._digest = digest
        self._found: Binding | None = None

    def check(self, binding: Binding) -> None:
        """Compare the digest of a binding (_Walk)."""
        if digest_of(binding.key[1]) == self._digest:
            self._found = binding

    def answer(self) -> Answer:
        """Remove the binding, if the search has found it (_Walk)."""
        if self._found is None:
            return no_content(durable=False)
        return _unbind(self.context, self.ends, self._key, self._found.arguments)


def _bindings_between(context: RequestContext, ends: BindingEnds) -> list[Binding]:
    virtual_host = context.virtual_host
    source = virtual_host.topology.exchanges.get(ends.source)
    named = virtual_host.topology.queues if ends.kind == QUEUE else virtual_host.topology.exchanges
    destination = named.get(ends.destination)
    if source is None or destination is None:
        return []
    return list(source.outgoing.get(destination, {}).values())


def renew_token(context: RequestContext) -> Answer:
    """Refuse the renewal of a token: the broker has no log-in by tokens. Raises Refused."""
    if not isinstance(context.request.body, bytes):
        raise Refused(BAD_REQUEST, "the body is not a binary, which a token is")
    raise Refused(NOT_IMPLEMENTED, "this broker has no authentication by tokens")
