"""The changes of definitions in the form of the log: each one describes or deletes an object."""

from __future__ import annotations

from typing import Final

from broker.core.arguments.queue import QUEUE_TYPE, queue_argument_objection
from broker.core.errors import PreconditionFailed
from broker.core.partitions.partitioned import partitions_of
from broker.core.queues.queue import Queue
from broker.core.queues.stops import stopped
from broker.core.queues.volatile import LOST
from broker.core.remotes.remote import remote_of
from broker.core.routing.graph import Binding, Exchange
from broker.core.routing.topology import last_number
from broker.core.streams.progress import OFFSETS
from broker.core.streams.stream import stream_of
from broker.core.values import decode_table, encode_table

QUEUE: Final = "queue"
EXCHANGE: Final = "exchange"
BINDING: Final = "binding"
DELETED: Final = ".delete"  # appended to the kind
REROUTE: Final = "reroute"  # the other broker of a rerouted queue
FORMER: Final = "former"  # the former mappings with messages in other brokers
FRONT: Final = "front"  # the partitioned queue that has made a queue for a member in another broker
LEAVING: Final = "leaving"  # the members that a partitioned queue still consumes from

Change = dict[str, object]


def queue_change(vhost: str, queue: Queue, stopping: bool = False) -> Change:
    """Return the change that declares a durable queue; `stopping`: for a clean stop of the broker."""
    change: Change = {
        "kind": QUEUE,
        "vhost": vhost,
        "name": queue.name,
        "number": int(queue.number),
        "auto_delete": queue.auto_delete,
        "arguments": encode_table(queue.arguments),
    }
    if queue.stops is not None:
        change["stopped"] = stopped(queue)
    if queue.volatile is not None:
        change[LOST] = queue.volatile.described(stopping)
    partitions = partitions_of(queue)
    if partitions is not None and partitions.leaving_names:
        change[LEAVING] = partitions.leaving_names
    if partitions is not None and partitions.former_arguments:
        change[FORMER] = [encode_table(each) for each in partitions.former_arguments]
    remote = remote_of(queue)
    if remote is not None and remote.front:
        change[FRONT] = remote.front
    if remote is not None and remote.is_rerouted:
        change[REROUTE] = {"to": remote.address, "returns": remote.is_returning}
    stream = stream_of(queue)
    if stream is not None and stream.offsets.kept:
        change[OFFSETS] = {name: list(kept) for name, kept in stream.offsets.kept.items()}
    return change


def exchange_change(vhost: str, exchange: Exchange) -> Change:
    """Return the change that declares a durable exchange.

    `number` in the change is the number in the log of the queue for its kept messages, if it keeps any.
    """
    change: Change = {
        "kind": EXCHANGE,
        "vhost": vhost,
        "name": exchange.name,
        "type": exchange.kind,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "arguments": encode_table(exchange.arguments),
    }
    if exchange.kept is not None:
        change["number"] = int(exchange.kept.number)
    return change


def binding_change(vhost: str, binding: Binding) -> Change:
    """Return the change that declares a durable binding."""
    return {
        "kind": BINDING,
        "vhost": vhost,
        "source": binding.source.name,
        "destination": binding.destination_name,
        "destination_type": binding.destination_type,
        "routing_key": binding.routing_key,
        "arguments": encode_table(binding.arguments),
    }


def queue_deleted(vhost: str, queue: Queue) -> Change:
    """Return the change that deletes a durable queue."""
    change: Change = {
        "kind": QUEUE + DELETED,
        "vhost": vhost,
        "name": queue.name,
        "number": int(queue.number),
    }
    last = last_number(queue.number, queue.arguments)
    return change if last == queue.number else change | {"last": int(last)}


def exchange_deleted(vhost: str, exchange: Exchange) -> Change:
    """Return the change that deletes a durable exchange."""
    change: Change = {"kind": EXCHANGE + DELETED, "vhost": vhost, "name": exchange.name}
    if exchange.kept is not None:
        change["number"] = int(exchange.kept.number)
    return change


def binding_deleted(vhost: str, binding: Binding) -> Change:
    """Return the change that deletes a durable binding."""
    change = binding_change(vhost, binding)
    change["kind"] = BINDING + DELETED
    return change


def text_of(change: Change, field: str) -> str:
    """Return a string field of a change.

    Raises:
        ValueError: the field is absent or no string.
    """
    value = change.get(field)
    if not isinstance(value, str):
        raise ValueError(f"a definition needs a string as {field!r}: {change}")
    return value


def number_of(change: Change, field: str) -> int:
    """Return an integer field of a change.

    Raises:
        ValueError: the field is absent or no integer.
    """
    value = change.get(field)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"a definition needs an integer as {field!r}: {change}")
    return value


def texts_of(change: Change, field: str) -> list[str]:
    """Return a field of a change that is a list of strings; [] if it is absent.

    Raises:
        ValueError: the field has another type.
    """
    value = change.get(field, [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ValueError(f"a definition needs a list of strings as {field!r}: {change}")
    return value


def tables_of(change: Change, field: str) -> list[dict[str, object]]:
    """Return a field of a change that is a list of encoded tables; [] if it is absent.

    Raises:
        ValueError: the field has another type.
    """
    value = change.get(field, [])
    if not isinstance(value, list):
        raise ValueError(f"a definition needs a list of tables as {field!r}: {change}")
    return [decode_table(each) for each in value]


def flag_of(change: Change, field: str) -> bool:
    """Return a boolean field of a change.

    Raises:
        ValueError: the field is absent or no boolean.
    """
    value = change.get(field)
    if not isinstance(value, bool):
        raise ValueError(f"a definition needs a boolean as {field!r}: {change}")
    return value


VHOST: Final = "vhost"
VHOST_LIMITS: Final = "vhost.limits"
VHOST_METADATA: Final = "vhost.metadata"


def check_queue_type(vhost: str, default_queue_type: str | None) -> None:
    """Refuse a default queue type that does not exist. Raises PreconditionFailed."""
    if default_queue_type is not None:
        allowed = queue_argument_objection(QUEUE_TYPE, default_queue_type)
        if allowed:
            raise PreconditionFailed(
                f"default_queue_type '{default_queue_type}' of vhost '{vhost}' is not {allowed}"
            )


def vhost_change(name: str) -> Change:
    """Return the change that declares a virtual host."""
    return {"kind": VHOST, "name": name}


def limits_change(name: str, connections_max: int | None, queues_max: int | None) -> Change:
    """Return the change that sets the limits of a virtual host, and removes all others."""
    return {
        "kind": VHOST_LIMITS,
        "name": name,
        "connections_max": connections_max,
        "queues_max": queues_max,
    }


def metadata_change(
    name: str, description: str, tags: tuple[str, ...], default_queue_type: str | None, protected: bool
) -> Change:
    """Return the change that sets the metadata of a virtual host."""
    change: Change = {
        "kind": VHOST_METADATA,
        "name": name,
        "description": description,
        "tags": list(tags),
        "default_queue_type": default_queue_type,
    }
    if protected:  # else the change has the form that earlier versions read
        change["protected"] = True
    return change
