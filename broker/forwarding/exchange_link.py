"""The source of a federated exchange: a queue at the upstream, which gets what the local bindings ask for.

[RabbitMQ federated exchanges] The link declares at the upstream a durable queue, and an internal exchange
that is bound to the queue. Each local binding is repeated at the upstream, from the upstream's exchange to
the internal one. Each attempt makes another internal exchange with the present bindings, and then deletes the
exchange of the last attempt with bindings that may be out of date. The two share the queue, so no message is
missed or doubled.

The name of the queue has the name of this broker. If the broker gets another name, the link makes another
queue with its own exchange. Then the link deletes the exchange of the former queue, takes the messages that
wait in the former queue, and deletes it. Messages that are published meanwhile are in both queues, so none is
missed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, final

import structlog
from mypy_extensions import i64
from pamqp import base, commands

from broker.core.routing.federation import (
    BOUND_FROM,
    DOWNSTREAM_NAME,
    DOWNSTREAM_VHOST,
    FEDERATION_UPSTREAM_KIND,
    INTERNAL_PURPOSE,
    MAX_HOPS,
    has_passed,
    may_forward,
)
from broker.core.routing.graph import Binding, BindingKey, BindingWatcher, Exchange
from broker.forwarding.definition import Definition
from broker.forwarding.ends import EndHost
from broker.forwarding.federated_source import (
    Done,
    FederatedSource,
    Place,
    received_entries,
    with_entry,
)
from broker.forwarding.ports import EndOwner, Run, Timer
from broker.forwarding.upstream import Upstream
from broker.forwarding.uri import Uri
from protocol.amqp091 import constants as c
from protocol.amqp091.client import DURABLE, PASSIVE, READY
from protocol.amqp091.methods import short_string
from protocol.amqp091.properties import Field
from protocol.amqp091.table import EMPTY_TABLE, encode_table
from protocol.errors import COMMAND_INVALID, NOT_FOUND, PRECONDITION_FAILED

FEDERATION: Final = "federation"  # the value of the argument `x-internal-purpose`
FANOUT: Final = "fanout"
AUTO_DELETE: Final = 4
INTERNAL: Final = 8
QUEUE_IF_EMPTY: Final = 2
QUEUE_NO_WAIT: Final = 4
DELETE_NO_WAIT: Final = 2
NAME_BYTES_MAX: Final = 255
SLICE: Final = 500  # bindings that are sent in a turn: a few milliseconds
CONSUMED_MS: Final = 500  # the wait before another look at a former queue that somebody consumes
LOOKS_MAX: Final = 4

_log = structlog.get_logger("amqpd.forwarding")


@final
class LinkMemory:
    """The state of a link that outlasts its attempts.

    `fans_out`: the upstream does not know the type of exchanges for federation, so the link uses a fanout.
    `empty`: former names of this broker, each with host and virtual host of an upstream, where no message
    waits under the name. `note_empty` is called after a change of `empty`.
    """

    def __init__(self, note_empty: Callable[[], None]) -> None:
        self.fans_out = False
        self.empty: set[tuple[str, str, str]] = set()
        self.note_empty = note_empty


@final
class BindingRelay(BindingWatcher):
    """The bindings of a federated exchange that the upstream must repeat, and the orders that are not sent.

    Bindings with the same key and arguments are repeated once, for as long as one of them exists.
    """

    def __init__(self, source: ExchangeSource, exchange: Exchange) -> None:
        self.orders: deque[tuple[bool, Binding]] = deque()  # true: bind
        self._source = source
        self._exchange = exchange
        self._counts: dict[BindingKey, int] = {}

    def start(self) -> None:
        """Order the present bindings, and follow changes."""
        for binding in self._exchange.bindings():
            self.on_bound(binding)
        self._exchange.watch_bindings(self)

    def stop(self) -> None:
        """Follow no changes any more."""
        self._exchange.stop_watching_bindings(self)
        self.orders.clear()

    def on_bound(self, binding: Binding) -> None:
        """Order a binding that is the first of its key."""
        count = self._counts.get(binding.key, 0)
        self._counts[binding.key] = count + 1
        if count == 0:
            self.orders.append((True, binding))
            self._source.wake()

    def on_unbound(self, binding: Binding) -> None:
        """Order the end of a binding that was the last of its key."""
        left = self._counts.get(binding.key, 0) - 1
        if left > 0:
            self._counts[binding.key] = left
        elif left == 0:
            del self._counts[binding.key]
            self.orders.append((False, binding))
            self._source.wake()


@final
class ExchangeSource(FederatedSource):
    """The connection of an exchange's link to its upstream."""

    def __init__(
        self,
        owner: EndOwner,
        definition: Definition,
        uri: Uri,
        host: EndHost,
        upstream: Upstream,
        place: Place,
        exchange: Exchange,
        memory: LinkMemory,
    ) -> None:
        super().__init__(owner, definition, uri, host, upstream, place, upstream.exchange or exchange.name)
        self._exchange = exchange
        self._memory = memory
        self._relay = BindingRelay(self, exchange)
        self._queue = queue_name(self.target, uri.vhost, place)
        self._suffix = "A"
        self._is_bound = False  # the bindings at the start of the attempt have been sent
        self._entries: dict[bool, bytes] = {}  # entries of the header, by `redelivered`
        self._unseen = list(place.former_names)  # former names whose queues have not been looked for
        self._looks = 0
        self._look_timer = Timer(owner, self._look_for_former)
        self._former: deque[tuple[str, str]] = deque()  # former queues to empty first, each with its name
        self._unsettled: set[int] = set()  # messages of a former queue that are on their way
        self._looking = False  # the answer to a look at the former queue has not come
        self._is_quiet = False  # the former queue was empty at the last look, and nothing has come since

    # -- the set-up, in this order

    def set_up(self) -> None:
        """Look for the exchange at the upstream."""
        if len(self._internal.encode()) > NAME_BYTES_MAX:
            self.fail(f"the name '{self._internal}' is longer than {NAME_BYTES_MAX} bytes")
            return
        self.expect((NOT_FOUND,), self._make_exchange)
        self._declare(self.target, self._exchange.kind, PASSIVE, EMPTY_TABLE, self._found)

    def _make_exchange(self) -> None:
        """Declare the exchange like the local one."""
        self.expect_success()
        local = self._exchange
        flags = (DURABLE if local.durable else 0) | (AUTO_DELETE if local.auto_delete else 0)
        self._declare(self.target, local.kind, flags, encode_table(local.arguments), self._found)

    def _found(self, answer: base.Frame) -> None:
        self._look_for_former()

    def _look_for_former(self) -> None:
        """Look for the queues that have former names of this broker."""
        if not self._unseen:
            self._find_internal()
            return
        self.expect((NOT_FOUND,), self._note_missing)
        self.client.declare(self._former_queue(self._unseen[0]), PASSIVE, EMPTY_TABLE, self._take_former)
        self.flush()

    def _note_missing(self) -> None:
        self._note_empty(self._unseen.pop(0))
        self._look_for_former()

    def _take_former(self, answer: commands.Queue.DeclareOk) -> None:
        """Take a former queue over, unless another broker consumes it, which has the former name now.

        The consumer may also be the last attempt's, whose end the upstream has not noticed yet.
        """
        name = self._unseen[0]
        self._looks += 1
        if answer.consumer_count and self._looks < LOOKS_MAX:
            self._schedule.set(self._look_timer, self._schedule.after(CONSUMED_MS))
            return
        if answer.consumer_count:
            _log.warning(
                "queue of a former name of this broker is left, as another broker consumes it",
                upstream=self.upstream.name,
                queue=self._former_queue(name),
            )
        else:
            self._former.append((self._former_queue(name), name))
        self._looks = 0
        del self._unseen[0]
        self._look_for_former()

    def _find_internal(self) -> None:
        """Look for the internal exchange of an earlier attempt: this attempt makes the other one."""
        self.expect((NOT_FOUND,), self._make_queue)
        self._declare(self._internal, FANOUT, PASSIVE, EMPTY_TABLE, self._take_other)
        self.flush()

    def _take_other(self, answer: base.Frame) -> None:
        self._suffix = "B"
        self._make_queue()

    def _make_queue(self) -> None:
        """Declare the queue for the messages."""
        self.expect_success()
        upstream = self.upstream
        arguments: dict[str, object] = {INTERNAL_PURPOSE: FEDERATION, "x-queue-type": upstream.queue_type}
        if upstream.expires is not None:
            arguments["x-expires"] = upstream.expires
        if upstream.message_ttl is not None:
            arguments["x-message-ttl"] = upstream.message_ttl
        self.client.declare(self._queue, DURABLE, encode_table(arguments), self._make_internal)

    def _make_internal(self, answer: base.Frame) -> None:
        """Declare the internal exchange."""
        if self._memory.fans_out:
            self._make_fanout()
            return
        self.expect((COMMAND_INVALID, PRECONDITION_FAILED), self._make_fanout)
        hops = self.upstream.max_hops
        arguments: dict[str, object] = {
            DOWNSTREAM_NAME: self.place.cluster_name,
            DOWNSTREAM_VHOST: self.place.vhost.name,
            INTERNAL_PURPOSE: FEDERATION,
        }
        self._make_empty(FEDERATION_UPSTREAM_KIND, _with_long(encode_table(arguments), MAX_HOPS, hops))

    def _make_fanout(self) -> None:
        """Declare the internal exchange at an upstream without the type of exchanges for federation."""
        self.expect_success()
        self._memory.fans_out = True
        self._make_empty(FANOUT, encode_table({INTERNAL_PURPOSE: FEDERATION}))

    def _make_empty(self, kind: str, arguments: bytes) -> None:
        """Declare the internal exchange without the bindings that an earlier attempt may have left."""
        self._delete(self._internal)
        self._declare(self._internal, kind, DURABLE | AUTO_DELETE | INTERNAL, arguments, self._bind_queue)

    def _bind_queue(self, answer: base.Frame) -> None:
        """Bind the queue to the internal exchange, and order the bindings."""
        self.expect_success()
        names = short_string(self._queue) + short_string(self._internal) + short_string("")
        request = b"\0\0" + names + b"\0" + EMPTY_TABLE
        self.client.request(c.QUEUE_BIND, request, c.QUEUE_BIND_OK)
        self._relay.start()
        self.wake()

    def do_soon(self) -> None:
        """Send orders of bindings. After the first ones, consume."""
        orders = self._relay.orders
        for _ in range(min(SLICE, len(orders))):
            binds, binding = orders.popleft()
            self._send_order(binds, binding)
        if orders:
            self.wake()
        elif not self._is_bound:
            self._is_bound = True
            self._delete(f"{self._queue} {'A' if self._suffix == 'B' else 'B'}")
            for queue, _ in self._former:
                self._delete(f"{queue} A")
                self._delete(f"{queue} B")
            self.limit_deliveries(self._limited)
        self.flush()

    def _limited(self, answer: base.Frame) -> None:
        self._consume()

    def _consume(self) -> None:
        """Consume the former queues, the oldest first, and then the queue."""
        queue = self._former[-1][0] if self._former else self._queue
        self.client.consume(queue, self.upstream.consumer_tag, self.no_ack, EMPTY_TABLE, self._consuming)
        self.flush()

    def _consuming(self, answer: base.Frame) -> None:
        if not self.is_ready:
            self._warn_of_name()
            self.note_running()
        self._look_at_former()

    def _warn_of_name(self) -> None:
        if self.upstream_name == self.place.cluster_name and not self.uri.is_local:
            _log.warning(
                "upstream has the name of this broker, messages of rings and chains are lost; "
                "set another cluster_name",
                upstream=self.upstream.name,
                cluster_name=self.upstream_name,
            )

    # -- a former queue

    def _former_queue(self, name: str) -> str:
        place = self.place
        return queue_name(self.target, self.uri.vhost, Place(place.vhost, place.kind, place.name, name, ""))

    def _look_at_former(self) -> None:
        """Request the number of messages that wait in the former queue, if no message is on its way."""
        if self._former and not (self._unsettled or self._looking or self._closing):
            self._looking = True
            self.client.declare(self._former[-1][0], PASSIVE, EMPTY_TABLE, self._note_waiting)
            self.flush()

    def _note_waiting(self, answer: commands.Queue.DeclareOk) -> None:
        """Delete the former queue once two answers have found nothing, and nothing has come in between.

        The first answer may have passed deliveries that the upstream had begun.
        """
        self._looking = False
        if self._unsettled:
            return
        if answer.message_count or not self._is_quiet:
            self._is_quiet = answer.message_count == 0
            self._look_at_former()
            return
        self._looking, self._is_quiet = True, False
        self.client.cancel(self.upstream.consumer_tag)
        request = b"\0\0" + short_string(self._former[-1][0]) + bytes([QUEUE_IF_EMPTY])
        self.client.request(c.QUEUE_DELETE, request, c.QUEUE_DELETE_OK, self._forget_former)
        self.flush()

    def _forget_former(self, answer: base.Frame) -> None:
        self._looking = False
        queue, name = self._former.pop()
        _log.info("queue of a former name of this broker deleted", upstream=self.upstream.name, queue=queue)
        self._note_empty(name)
        self._consume()

    def _note_empty(self, name: str) -> None:
        self._memory.empty.add((name, self.uri.host, self.uri.vhost))
        self._memory.note_empty()

    def settle(self, number: i64, multiple: bool) -> None:
        """Acknowledge a message, or all messages up to this one."""
        super().settle(number, multiple)
        if self._former:
            if multiple:
                self._unsettled = {each for each in self._unsettled if each > number}
            self._unsettled.discard(number)
            self._look_at_former()

    def return_refused(self, runs: list[Run]) -> None:
        """Return refused messages to the upstream's queue."""
        super().return_refused(runs)
        if self._former:
            for first, last in runs:
                self._unsettled.difference_update(range(first, last + 1))
            self._look_at_former()

    def note_forwarded(self, number: i64) -> None:
        """Note a message that is on its way."""
        if self._former:
            self._is_quiet = False
            if not self.no_ack:
                self._unsettled.add(int(number))

    # -- bindings

    @property
    def _internal(self) -> str:
        return f"{self._queue} {self._suffix}"

    def _send_order(self, binds: bool, binding: Binding) -> None:
        arguments = self._arguments_of(binding)
        if arguments is None:
            return
        names = short_string(self._internal) + short_string(self.target) + short_string(binding.routing_key)
        waits = self.upstream.waits_for_bind
        request = b"\0\0" + names + (b"\0" if waits else b"\1") + encode_table(arguments)
        method, answer = c.EXCHANGE_BIND, c.EXCHANGE_BIND_OK
        if not binds:
            method, answer = c.EXCHANGE_UNBIND, c.EXCHANGE_UNBIND_OK
        if waits:
            self.client.request(method, request, answer)
        else:
            self.client.order(method, request)

    def _arguments_of(self, binding: Binding) -> dict[str, object] | None:
        """Return the arguments of a binding at the upstream; None: its messages would not come as far.

        Bindings travel against the messages. The hops of a binding count the links that its messages may
        still pass, so the link with the smallest `max-hops` on the way decides. [RabbitMQ]
        """
        hops = self.upstream.max_hops
        place = self.place
        before = binding.arguments.get(BOUND_FROM)
        entries: list[object] = []
        if isinstance(before, list) and before:
            if has_passed(before, self.upstream_name, self.uri.vhost):
                return None
            last = before[0].get("hops") if isinstance(before[0], dict) else None
            if isinstance(last, int):
                hops = min(last - 1, hops)
            entries = before
        if hops < 1:
            return None
        entry = {
            "cluster-name": place.cluster_name,
            "vhost": place.vhost.name,
            "exchange": f"{place.vhost.name}:{place.name} {self._suffix}",
            "hops": hops,
        }
        return {**binding.arguments, BOUND_FROM: [entry, *entries]}

    # -- messages

    def federate(
        self, fields: list[Field], received: object, address: bytes, redelivered: bool
    ) -> list[Field] | None:
        """Add the upstream to the header. None: the message has passed too many links, or has been here."""
        place = self.place
        if not may_forward(received, self.upstream.max_hops, place.cluster_name, place.vhost.name):
            return None
        entry = self._entries.get(redelivered)
        if entry is None:
            names = {"vhost": self.uri.vhost}
            if self.upstream_name:
                names["cluster-name"] = self.upstream_name
            entry = self._entries[redelivered] = self.entry_of(redelivered=redelivered, **names)
        return with_entry(fields, entry, received_entries(fields))

    # -- the end

    def on_closed(self, code: int, text: str) -> None:
        """Use a fanout in the next attempt if the upstream does not know the type of exchanges."""
        if code == COMMAND_INVALID and code in self._expected:
            self._memory.fans_out = True
        super().on_closed(code, text)

    def give_up(self) -> None:
        """Delete the queue and the internal exchange at the upstream, unless they are to stay there."""
        if self.upstream.keeps_resources or self.client.state != READY:
            return
        for queue in (self._queue, *(former for former, _ in self._former)):
            self.client.order(c.QUEUE_DELETE, b"\0\0" + short_string(queue) + bytes([QUEUE_NO_WAIT]))
        self.client.order(c.EXCHANGE_DELETE, b"\0\0" + short_string(self._internal) + bytes([DELETE_NO_WAIT]))

    def close(self) -> None:
        """Close the connection. The queue at the upstream stays."""
        self._relay.stop()
        self._schedule.cancel(self._look_timer)
        super().close()

    def _declare(self, name: str, kind: str, flags: int, arguments: bytes, done: Done) -> None:
        """Send exchange.declare; `flags`: PASSIVE, DURABLE, AUTO_DELETE, INTERNAL."""
        request = b"\0\0" + short_string(name) + short_string(kind) + bytes([flags]) + arguments
        self.client.request(c.EXCHANGE_DECLARE, request, c.EXCHANGE_DECLARE_OK, done)

    def _delete(self, exchange: str) -> None:
        """Send exchange.delete; a missing exchange counts as deleted."""
        self.client.request(c.EXCHANGE_DELETE, b"\0\0" + short_string(exchange) + b"\0", c.EXCHANGE_DELETE_OK)


def queue_name(exchange: str, vhost: str, place: Place) -> str:
    """Return the name of the queue at the upstream for an exchange there in a virtual host. [RabbitMQ]"""
    name = f"federation: {exchange} -> {place.cluster_name}"
    if vhost != place.vhost.name:
        return f"{name}:{place.vhost.name}:{place.name}"
    return name if exchange == place.name else f"{name}:{place.name}"


def _with_long(table: bytes, name: str, number: int) -> bytes:
    """Return an encoded table with a 64-bit integer, the only type that RabbitMQ accepts for `x-max-hops`."""
    field = short_string(name) + b"l" + number.to_bytes(8, "big")
    return (len(table) - 4 + len(field)).to_bytes(4, "big") + table[4:] + field
