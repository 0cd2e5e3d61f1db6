"""The durable topology as the log keeps it: changes, JSON-able dicts with a `kind`, and how they are applied.

A change that declares describes the whole object, so that a later one of the same object replaces it; one
that deletes takes along what cannot be without the object (a queue its bindings, a virtual host everything).
"""

from __future__ import annotations

from typing import Final

from broker.core.binding import Binding, binding_key
from broker.core.errors import PreconditionFailed
from broker.core.exchange import Exchange
from broker.core.exchange_kinds import new_exchange
from broker.core.field_values import decode_table, encode_table
from broker.core.policy import OPERATOR_POLICY, POLICY, checked_policy
from broker.core.queue import Queue
from broker.core.queue_numbers import last_number
from broker.core.stopping import set_stopped, stopped
from broker.core.stream_list import StreamEntryList
from broker.core.stream_progress import OFFSETS
from broker.core.topology import Topology
from broker.core.volatile import LOST

QUEUE: Final = "queue"
EXCHANGE: Final = "exchange"
BINDING: Final = "binding"
DELETED: Final = ".delete"  # appended to the kind

Change = dict[str, object]


def queue_change(vhost: str, queue: Queue, stopping: bool = False) -> Change:
    """A durable queue is as described; `stopping`: and will be so when the broker starts again."""
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
    if queue.stream is not None and queue.stream.offsets.kept:
        change[OFFSETS] = {name: list(kept) for name, kept in queue.stream.offsets.kept.items()}
    return change


def exchange_change(vhost: str, exchange: Exchange) -> Change:
    """A durable exchange is as described; `number` is that of what it keeps, if it keeps messages."""
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
    """A durable binding is there."""
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
    """A durable queue is gone."""
    change: Change = {
        "kind": QUEUE + DELETED,
        "vhost": vhost,
        "name": queue.name,
        "number": int(queue.number),
    }
    last = last_number(queue.number, queue.arguments)
    return change if last == queue.number else change | {"last": int(last)}


def exchange_deleted(vhost: str, exchange: Exchange) -> Change:
    """A durable exchange is gone."""
    change: Change = {"kind": EXCHANGE + DELETED, "vhost": vhost, "name": exchange.name}
    if exchange.kept is not None:
        change["number"] = int(exchange.kept.number)
    return change


def binding_deleted(vhost: str, binding: Binding) -> Change:
    """A durable binding is gone."""
    change = binding_change(vhost, binding)
    change["kind"] = BINDING + DELETED
    return change


def apply_change(topology: Topology, change: Change) -> None:
    """Apply one change at recovery. What is there already stays, what is absent need not be deleted.

    Exchanges that lost their last binding are not deleted here: the log says so itself if they were.

    Raises:
        ValueError: no change of a queue, an exchange, a binding or a policy.
    """
    kind = text_of(change, "kind")
    if kind == QUEUE:
        _apply_queue(topology, change)
    elif kind == QUEUE + DELETED:
        queue = topology.queues.get(text_of(change, "name"))
        topology.numbers.reserve(number_of(change, "last" if "last" in change else "number"))
        if queue is not None and queue.number == number_of(change, "number"):
            topology.remove_queue(queue)
    elif kind == EXCHANGE:
        _apply_exchange(topology, change)
    elif kind == EXCHANGE + DELETED:
        exchange = topology.exchanges.get(text_of(change, "name"))
        topology.numbers.reserve(_kept_number(change))
        if exchange is not None:
            topology.remove_exchange(exchange)
    elif kind == BINDING:
        _apply_binding(topology, change)
    elif kind == BINDING + DELETED:
        _apply_binding_deleted(topology, change)
    elif kind in (POLICY, OPERATOR_POLICY):
        _apply_policy(topology, change, kind == OPERATOR_POLICY)
    elif kind in (POLICY + DELETED, OPERATOR_POLICY + DELETED):
        topology.policies.remove(text_of(change, "name"), kind == OPERATOR_POLICY + DELETED)
    else:
        raise ValueError(f"no definition is of kind {kind!r}")
    topology.bindings.finish()  # a long log may delete more than ever was there at once


def _apply_queue(topology: Topology, change: Change) -> None:
    name = text_of(change, "name")
    number = number_of(change, "number")
    if number < 1:
        raise ValueError(f"the log knows no queue by the number {number}: {change}")
    arguments = decode_table(change.get("arguments"))
    topology.numbers.reserve(last_number(number, arguments))
    queue = topology.queues.get(name)
    same = topology.numbers.queues.get(number)
    if same is not None and same.vhost == topology.name and same.name != name:
        if queue is not None:
            topology.remove_queue(queue)
        topology.rename_queue(same, name)
        queue = same
    if queue is not None and queue.number == number:
        # the same queue, altered, or described again at the head of a segment: it may hold messages already
        queue.auto_delete = flag_of(change, "auto_delete")
        queue.arguments = arguments
        topology.policies.cover_queue(queue)
    else:
        if queue is not None:
            topology.remove_queue(queue)
        queue = topology.add_queue(name, True, None, flag_of(change, "auto_delete"), arguments, number)
    set_stopped(queue, texts_of(change, "stopped"))
    if queue.volatile is not None:
        queue.volatile.restore(change.get(LOST))
    if isinstance(queue.entries, StreamEntryList):
        queue.entries.offsets_found = change.get(OFFSETS)


def _apply_exchange(topology: Topology, change: Change) -> None:
    name = text_of(change, "name")
    arguments = decode_table(change.get("arguments"))
    flags = flag_of(change, "auto_delete"), flag_of(change, "internal")
    try:
        exchange = new_exchange(name, text_of(change, "type"), True, *flags, arguments)
    except PreconditionFailed as error:
        raise ValueError(error.text) from error
    number = _kept_number(change)
    topology.numbers.reserve(number)
    old = topology.exchanges.get(exchange.name)
    if old is not None:
        if exchange_change(topology.name, old) == change:
            return
        topology.remove_exchange(old)
    topology.add_exchange(exchange, number)


def _kept_number(change: Change) -> int:
    """The number in the log of what an exchange keeps, 0 if it keeps nothing."""
    return number_of(change, "number") if "number" in change else 0


def _apply_binding(topology: Topology, change: Change) -> None:
    source = topology.exchanges.get(text_of(change, "source"))
    destination = _destination(topology, change)
    if source is None or destination is None:
        return  # one end was deleted later in a log that was read from the middle
    arguments = decode_table(change.get("arguments"))
    try:
        binding = Binding(source, destination, text_of(change, "routing_key"), arguments)
    except PreconditionFailed as error:
        raise ValueError(error.text) from error
    topology.add_binding(binding)


def _apply_binding_deleted(topology: Topology, change: Change) -> None:
    source = topology.exchanges.get(text_of(change, "source"))
    destination = _destination(topology, change)
    if source is None or destination is None:
        return
    key = binding_key(text_of(change, "routing_key"), decode_table(change.get("arguments")))
    binding = source.binding(destination, key)
    if binding is not None:
        topology.remove_binding(binding)


def _apply_policy(topology: Topology, change: Change, operator: bool) -> None:
    try:
        policy = checked_policy(
            topology.name,
            text_of(change, "name"),
            change.get("pattern"),
            change.get("definition"),
            change.get("priority"),
            change.get("apply_to"),
            operator,
            kept=True,
        )
    except PreconditionFailed as error:
        raise ValueError(error.text) from error
    topology.policies.put(policy)


def _destination(topology: Topology, change: Change) -> Queue | Exchange | None:
    name = text_of(change, "destination")
    if text_of(change, "destination_type") == QUEUE:
        return topology.queues.get(name)
    return topology.exchanges.get(name)


def text_of(change: Change, field: str) -> str:
    """A string field of a change.

    Raises:
        ValueError: it is absent or no string.
    """
    value = change.get(field)
    if not isinstance(value, str):
        raise ValueError(f"a definition needs a string as {field!r}: {change}")
    return value


def number_of(change: Change, field: str) -> int:
    """An integer field of a change.

    Raises:
        ValueError: it is absent or no integer.
    """
    value = change.get(field)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"a definition needs an integer as {field!r}: {change}")
    return value


def texts_of(change: Change, field: str) -> list[str]:
    """A field of a change that is a list of strings; [] if it is absent.

    Raises:
        ValueError: it is something else.
    """
    value = change.get(field, [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ValueError(f"a definition needs a list of strings as {field!r}: {change}")
    return value


def flag_of(change: Change, field: str) -> bool:
    """A boolean field of a change.

    Raises:
        ValueError: it is absent or no boolean.
    """
    value = change.get(field)
    if not isinstance(value, bool):
        raise ValueError(f"a definition needs a boolean as {field!r}: {change}")
    return value
