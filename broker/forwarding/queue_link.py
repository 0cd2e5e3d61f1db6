"""The source of a federated queue: the upstream's queue, consumed while the local queue has idle consumers.

[RabbitMQ federated queues] The link consumes with a priority below that of ordinary consumers, so the
upstream serves its own consumers first. The link consumes only while the local queue is empty and a local
consumer of an ordinary priority would take a message. So messages move to where consumers are, and do not
move back and forth between two brokers that are each other's upstream.
"""

from __future__ import annotations

from typing import Final, final

from pamqp import base, commands

from broker.core.queues.hooks import DemandWatcher
from broker.core.queues.queue import Queue
from broker.forwarding.definition import Definition
from broker.forwarding.ends import EndHost
from broker.forwarding.federated_source import FederatedSource, Place, received_entries, with_entry
from broker.forwarding.ports import EndOwner
from broker.forwarding.upstream import Upstream
from broker.forwarding.uri import Uri
from protocol.amqp091.client import DURABLE, PASSIVE
from protocol.amqp091.properties import Field
from protocol.amqp091.table import EMPTY_TABLE, encode_table
from protocol.errors import NOT_FOUND

LINK_PRIORITY: Final = -1
LOCAL_PRIORITY: Final = 0
"""The least priority of consumers that count: the consumers of links are below."""

PRIORITIES: Final = "consumer_priorities"
"""The capability that an upstream must have."""

VISITS: Final = "visit-count"
VISITS_MAX: Final = 2**31  # a larger count is none of a link
CC: Final = b"CC"
ORIGINAL_CC: Final = b"x-original-cc"
ORIGINAL_EXCHANGE: Final = b"x-original-exchange"
ORIGINAL_KEY: Final = b"x-original-routing-key"


@final
class LinkDemand(DemandWatcher):
    """The watcher of the local queue's consumers."""

    def __init__(self, source: QueueSource) -> None:
        self._source = source

    def on_demand_changed(self) -> None:
        """Look at the consumers in a later step."""
        self._source.wake()


@final
class QueueSource(FederatedSource):
    """The connection of a queue's link to its upstream."""

    def __init__(
        self,
        owner: EndOwner,
        definition: Definition,
        uri: Uri,
        host: EndHost,
        upstream: Upstream,
        place: Place,
        queue: Queue,
    ) -> None:
        super().__init__(owner, definition, uri, host, upstream, place, upstream.queue or queue.name)
        self._queue = queue
        self._demand = LinkDemand(self)
        self._consumes = False

    # -- the set-up

    def set_up(self) -> None:
        """Look for the queue at the upstream."""
        capabilities = self.client.server_properties.get("capabilities")
        if not self.uri.is_local and not (
            isinstance(capabilities, dict) and capabilities.get(PRIORITIES) is True
        ):
            self.fail(f"the broker has no priorities of consumers: no capability '{PRIORITIES}'")
            return
        self.expect((NOT_FOUND,), self._make_queue)
        self.client.declare(self.target, PASSIVE, EMPTY_TABLE, self._found)

    def _make_queue(self) -> None:
        """Declare the queue like the local one, but never with auto-delete.

        The link's consumer comes and goes, and its end would delete the queue with the messages that wait.
        """
        self.expect_success()
        local = self._queue
        flags = DURABLE if local.durable else 0
        self.client.declare(self.target, flags, encode_table(local.arguments), self._found)

    def _found(self, answer: commands.Queue.DeclareOk) -> None:
        self.expect_success()
        self.limit_deliveries(self._follow)

    def _follow(self, answer: base.Frame) -> None:
        """Follow the demand of the local consumers."""
        self.note_running()
        if not self._closing:
            self._queue.watch_demand(self._demand)
            self.wake()

    # -- the demand

    def do_soon(self) -> None:
        """Consume while the local consumers want messages."""
        wants = not self._queue.deleted and self._queue.has_demand(LOCAL_PRIORITY)
        if wants == self._consumes:
            return
        self._consumes = wants
        tag = self.upstream.consumer_tag
        if wants:
            arguments = encode_table({"x-priority": LINK_PRIORITY})
            self.client.consume(self.target, tag, self.no_ack, arguments, self._consuming)
        else:
            self.client.cancel(tag)
        self.flush()

    def _consuming(self, answer: base.Frame) -> None:
        """Do nothing: messages follow."""

    def close(self) -> None:
        """Close the connection."""
        self._queue.stop_watching_demand(self._demand)
        super().close()

    # -- messages

    def federate(
        self, fields: list[Field], received: object, address: bytes, redelivered: bool
    ) -> list[Field] | None:
        """Add the upstream to the header, with the number of times that the message has come from there.

        The first link keeps the exchange and the routing key of the publish in headers. Further routing keys
        have had their effect, so they have another header from then on.
        """
        visits = 1
        entries = received_entries(fields)
        renamed = [(ORIGINAL_CC, value) if name == CC else (name, value) for name, value in fields]
        if isinstance(received, list):
            here = [entry for entry in received if self._is_here(entry)]
            if here:
                last = here[0].get(VISITS)
                visits = last + 1 if isinstance(last, int) and 0 <= last < VISITS_MAX else 1
                others = [entry for entry in received if isinstance(entry, dict) and entry not in here]
                entries = b"".join(b"F" + encode_table(entry) for entry in others)
        else:
            split = 1 + address[0]
            original = {ORIGINAL_EXCHANGE: address[1:split], ORIGINAL_KEY: address[split + 1 :]}
            renamed = [field for field in renamed if field[0] not in original]
            renamed += [
                (name, b"S" + len(value).to_bytes(4, "big") + value) for name, value in original.items()
            ]
        fields_of_entry = {"redelivered": redelivered, VISITS: visits}
        return with_entry(renamed, self.entry_of(**fields_of_entry), entries)

    def _is_here(self, entry: object) -> bool:
        return (
            isinstance(entry, dict)
            and entry.get("uri") == self.uri.shown
            and entry.get(self.place.kind) == self.place.name
        )
