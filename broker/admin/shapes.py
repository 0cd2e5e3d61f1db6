"""Objects as the API shows them, with RabbitMQ's fields; limits of virtual hosts. [RabbitMQ vhost limits]"""

import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

from broker.adapters.formats.either import view_of
from broker.admin.statistics import COUNTERS, LENGTHS, OF_EXCHANGE, Measurement, Spans
from broker.auth.permissions import Permission, TopicPermission
from broker.auth.user import User
from broker.core.arguments.queue import AT_LEAST_ONCE, AT_MOST_ONCE, strategy_warning
from broker.core.arguments.remote import DIRECT, HYBRID, shown_arguments
from broker.core.arguments.rule import show_member
from broker.core.broker import Broker
from broker.core.partitions.partitioned import Partitioned, Totals, partitions_of, totals_of
from broker.core.policies.policy import EffectiveValue, MergedPolicies, Policy, SourcedValue, queue_type_of
from broker.core.ports import MessageStore
from broker.core.publishing.delay import Delays, count_delayed
from broker.core.queues.consumer import INTERESTED, NOT_INTERESTED, NOTIFIED, SINGLE_ACTIVE
from broker.core.queues.duplicates import memory_of
from broker.core.queues.election import activity_of, is_served
from broker.core.queues.queue import Queue
from broker.core.queues.stops import stopped
from broker.core.remotes.remote import RemoteQueue, consumers_of, remote_of
from broker.core.routing.graph import Binding, Exchange, digest_of
from broker.core.routing.kinds import DelayedExchange
from broker.core.statistics import has_capacity, head_age
from broker.core.streams.stream import QueueStream, stream_of
from broker.core.values import fingerprint, to_json
from broker.core.vhosts.vhost import VirtualHost
from broker.forwarding.remote_queues import link_of

MAX_CONNECTIONS: Final = "max-connections"
MAX_QUEUES: Final = "max-queues"
LIMITS_OF_VHOSTS: Final = (MAX_CONNECTIONS, MAX_QUEUES)

LIMITS_COMPONENT: Final = "vhost-limits"
LIMITS_PARAMETER: Final = "limits"
"""The name of the parameter that has the limits of a virtual host, in the component LIMITS_COMPONENT."""

QUEUE_BYTES: Final = 4096
ENTRY_BYTES: Final = 250
"""What a queue and a message take in memory beside the body, about."""

Shown = dict[str, Any]

UNKNOWN_USER: Final = "unknown"
"""RabbitMQ names the user who declared an object; a stored object of amqpd does not have one."""

STATES: Final = {INTERESTED: "interested", NOTIFIED: "notified", NOT_INTERESTED: "not_interested"}
BROWSER: Final = "browser"
"""The states of consumers; a browser has none of the others."""

BINDING_ORDER: Final = ("vhost", "source", "destination_type", "destination", "routing_key", "properties_key")


def vhost_limits(vhost: VirtualHost) -> dict[str, int]:
    """Return the limits that are set for a virtual host."""
    both = ((MAX_CONNECTIONS, vhost.connections_max), (MAX_QUEUES, vhost.queues_max))
    return {name: limit for name, limit in both if limit is not None}


def set_vhost_limits(broker: Broker, vhost: VirtualHost, limits: Mapping[str, int]) -> None:
    """Replace the limits unless they are equal; a negative limit means none. Raises BrokerError."""
    wanted = {name: limit for name, limit in limits.items() if limit >= 0}
    if wanted != vhost_limits(vhost):
        broker.limit_vhost(vhost.name, wanted.get(MAX_CONNECTIONS), wanted.get(MAX_QUEUES))


def show_queue(
    queue: Queue, totals: Totals, node: str, store: MessageStore, measurement: Measurement, spans: Spans
) -> Shown:
    """Show a queue with these totals. `measurement` has its numbers with their rates.

    `messages_dlx` and `message_bytes_dlx` are RabbitMQ's names for messages that wait to be dead-lettered.
    Held messages wait for a retry, or for other members of a partitioned queue. Delayed messages have not
    entered the queue; `messages` does not count them. A partitioned queue has the counts of its members.
    `memory` is an estimate. All messages of a durable queue count as persistent.
    """
    messages, size = measurement.number("messages"), totals.bytes
    stored = is_stored(queue)
    consumers = queue.consumer_count
    capacity = queue_capacity(queue)
    return {
        "name": to_json(queue.name),
        "vhost": queue.vhost,
        "type": queue_type_of(queue.arguments),
        "durable": queue.durable,
        "auto_delete": queue.auto_delete,
        "exclusive": queue.exclusive_owner is not None,
        "arguments": to_json(shown_arguments(queue.arguments)),
        "node": node,
        "state": "running",
        "stopped": stopped(queue),
        **measurement.show(LENGTHS, spans.lengths),
        "messages_delayed": count_delayed(queue),
        "messages_ram": 0 if queue.stream is not None else messages,
        "messages_ready_ram": 0 if queue.stream is not None else int(totals.ready),
        "messages_unacknowledged_ram": int(totals.unacked),
        "messages_paged_out": messages if queue.stream is not None else 0,
        "messages_persistent": messages if stored else 0,
        "message_bytes": size,
        "message_bytes_ready": int(totals.ready_bytes),
        "message_bytes_unacknowledged": int(totals.unacked_bytes),
        "message_bytes_held": int(totals.held_bytes),
        "message_bytes_dlx": int(totals.dead_bytes),
        "message_bytes_ram": 0 if queue.stream is not None else size,
        "message_bytes_paged_out": size if queue.stream is not None else 0,
        "message_bytes_persistent": size if stored else 0,
        "memory": estimated_memory(queue, messages, size),
        "consumers": consumers,
        "active_consumers": consumers if queue.election is None else count_served(queue),
        "consumer_capacity": capacity,
        "consumer_utilisation": capacity,
        "single_active_consumer_tag": single_active_tag(queue),
        "exclusive_consumer_tag": next((each.tag for each in queue.manager.all if each.exclusive), None),
        "head_message_timestamp": head_timestamp(queue, store),
        "head_message_age": round(head_age(queue, time.monotonic()), 1),
        "message_stats": measurement.show(COUNTERS, spans.msg_rates),
        **_replica_fields(queue, node),
        **_feature_fields(queue),
        **_policy_fields(queue.effect),
    }


def is_stored(queue: Queue) -> bool:
    """Whether the messages of a queue are on disk."""
    return queue.logged or queue.stream is not None


def estimated_memory(queue: Queue, messages: int, size: int) -> int:
    """Return about how many bytes of memory a queue takes, by its messages and the bytes of their bodies."""
    return QUEUE_BYTES if queue.stream is not None else QUEUE_BYTES + messages * ENTRY_BYTES + size


def queue_capacity(queue: Queue) -> float:
    """Return the share of the time in which a queue could deliver at once; 0 without consumers."""
    if not queue.consumer_count:
        return 0
    reading = queue.reading
    if reading is None:
        return 1.0 if has_capacity(queue) else 0.0
    return round(reading.capacity, 3)


def count_served(queue: Queue) -> int:
    """Return the number of consumers that the queue serves; the others wait until it serves them."""
    return sum(is_served(consumer) for consumer in consumers_of(queue))


def single_active_tag(queue: Queue) -> str | None:
    """Return the tag of the only consumer that the queue serves; None: it serves several, or none."""
    if queue.election is None:
        return None
    return next((each.tag for each in queue.manager.all if activity_of(each) == SINGLE_ACTIVE), None)


def head_timestamp(queue: Queue, store: MessageStore) -> int | None:
    """Return the property `timestamp` of the oldest message, in seconds, if its content is in memory."""
    if queue.stream is not None or queue.partitions is not None:
        return None
    entry = queue.entries.next(queue.entries.head)
    if entry is None or entry.message.content is None:
        return None
    value = view_of(entry.message, store).property("timestamp")
    return value // 1000 if isinstance(value, int) else None


def _replica_fields(queue: Queue, node: str) -> Shown:
    """Return RabbitMQ's fields of replicated queues: the single node has the only replica."""
    kind = queue_type_of(queue.arguments)
    if kind == "classic":
        return {"recoverable_slaves": [], "slave_nodes": [], "synchronised_slave_nodes": []}
    shown: Shown = {"leader": node, "members": [node], "online": [node]}
    if kind == "quorum":
        shown |= {"delivery_limit": int(queue.delivery_limit), "open_files": {node: 0}}
    return shown


def _feature_fields(queue: Queue) -> Shown:
    """Return the fields of features, for queues that use the feature."""
    fields: Shown = {}
    limits = queue.limits
    if limits is not None and limits.dead_letter_reasons:
        fields["dead_letter_strategy"] = AT_LEAST_ONCE if limits.sure else AT_MOST_ONCE
    warning = strategy_warning(queue.effective, queue.arguments)
    if warning:
        fields["warnings"] = [warning]
    volatile = queue.volatile
    if volatile is not None:
        fields["lost_at_restart"] = {"messages": int(volatile.lost), "estimated": volatile.estimated}
    stream = stream_of(queue)
    if stream is not None:
        fields["partitions"] = show_partitions(stream)
    partitions = partitions_of(queue)
    if partitions is not None:
        fields |= show_mapping(partitions)
    if queue.member is not None:
        fields["partitioned_queue"] = to_json(queue.member.front_name)
    remote = remote_of(queue)
    if remote is not None:
        fields["remote"] = show_remote_queue(remote)
    memory = memory_of(queue)
    if memory is not None:
        fields["messages_duplicate"] = int(memory.duplicates)
        fields["remembered"] = {"message_ids": len(memory.ids), "producers": len(memory.producers)}
    return fields


def show_remote_queue(remote: RemoteQueue) -> Shown:
    """Show the link of a remote queue to the other broker. The address has no log-in."""
    queue = remote.queue
    shown: Shown = {
        "address": to_json(show_member(remote.address) if remote.front else remote.shown_address),
        "mode": HYBRID if remote.hybrid else DIRECT,
        "state": "starting",
        "messages_waiting": int(queue.depth),
        "messages_unconfirmed": int(queue.unacked),
        "messages_ready_there": int(remote.ready),
        "consumers_there": int(remote.consumers),
    }
    link = link_of(remote)
    if link is not None:
        shown |= {"queue": to_json(link.queue), "state": link.state, "attempts": link.attempts}
        if link.reason:
            shown["reason"] = link.reason
    return shown


def show_mapping(partitions: Partitioned) -> Shown:
    """Show the members of a partitioned queue with their counts, and the keys that are moving.

    `leaving`: the mapping does not name the member any more, and the member is not empty. `messages_moving`:
    messages of `keys_moving` slots of keys that wait until the former member has none of the slot any more.
    """
    mapped = {member.name: member for member in partitions.mapping.members}
    pins: dict[int, list[object]] = {}
    for value, index in partitions.mapping.pins.items():
        pins.setdefault(index, []).append(to_json(value))
    members: list[Shown] = []
    for index, queue in enumerate(partitions.member_queues()):
        assert isinstance(queue, Queue), "every QueueState is a Queue"
        member = mapped.get(queue.name)
        totals = totals_of(queue)
        shown: Shown = {
            "name": to_json(queue.name),
            "leaving": member is None,
            "messages": totals.messages,
            "messages_ready": int(totals.ready),
            "messages_unacknowledged": int(totals.unacked),
            "messages_held": int(totals.held),
        }
        remote = remote_of(queue)
        if remote is not None:
            shown["remote"] = show_remote_queue(remote)
        if member is not None and not partitions.mapping.by_selector:
            shown["weight"] = member.weight
            shown["pins"] = pins.get(index, [])
        elif member is not None:
            shown["selector"] = "" if member.selector is None else member.selector.canonical
        members.append(shown)
    return {
        "members": members,
        "messages_moving": int(partitions.runs.waiting),
        "keys_moving": int(partitions.runs.moving),
    }


def show_partitions(stream: QueueStream) -> list[Shown]:
    """Show the partitions of a stream: offsets from `first` up to `next`, exclusively, can be read."""
    return [
        {
            "partition": number,
            "incarnation": int(stored.incarnation),
            "first": int(stored.first),
            "next": int(stored.behind),
            "bytes": int(stored.disk_bytes),
        }
        for number, stored in enumerate(stream.partitions)
    ]


def show_exchange(exchange: Exchange, vhost: str, measurement: Measurement, spans: Spans) -> Shown:
    """Show an exchange. `messages_delayed` is the number of messages that the exchange delays."""
    held: Shown = {}
    if isinstance(exchange, DelayedExchange) and isinstance(exchange.delays, Delays):
        held["messages_delayed"] = len(exchange.delays)
    return {
        "name": exchange.name,
        "vhost": vhost,
        "type": exchange.kind,
        "durable": exchange.durable,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "arguments": to_json(exchange.arguments),
        "message_stats": measurement.show(OF_EXCHANGE, spans.msg_rates),
        "user_who_performed_action": UNKNOWN_USER,
        **held,
        **_policy_fields(exchange.effect),
    }


def _policy_fields(effect: MergedPolicies) -> Shown:
    """Show the highest policy as RabbitMQ shows the one policy that applies; `policies` has all of them."""
    return {
        "policy": effect.policies[0].name if effect.policies else None,
        "operator_policy": effect.operator_policies[0].name if effect.operator_policies else None,
        "policies": [policy.name for policy in effect.policies],
        "operator_policies": [policy.name for policy in effect.operator_policies],
        "effective_policy_definition": effect.values,
    }


def show_binding(binding: Binding | Queue, vhost: str) -> Shown:
    """Show a binding.

    `properties_key` identifies the binding among those with the same source and destination.

    A queue represents its binding to the default exchange, by its own name.
    """
    if isinstance(binding, Queue):
        return _default_binding(binding)
    return {
        "source": binding.source.name,
        "vhost": vhost,
        "destination": to_json(binding.destination_name),
        "destination_type": binding.destination_type,
        "routing_key": to_json(binding.routing_key),
        "arguments": to_json(binding.arguments),
        "properties_key": properties_key(binding.routing_key, binding.arguments),
    }


def _default_binding(queue: Queue) -> Shown:
    return {
        "source": "",
        "vhost": queue.vhost,
        "destination": to_json(queue.name),
        "destination_type": "queue",
        "routing_key": to_json(queue.name),
        "arguments": {},
        "properties_key": properties_key(queue.name, {}),
    }


def properties_key(routing_key: str, arguments: dict[str, object]) -> str:
    """Return routing key and arguments of a binding as one segment of a path.

    [RabbitMQ pack_binding_props]: `~` for neither; else the key, and behind a `~` a digest of the arguments,
    if any. `~` and `%` in the key are encoded, so that no two keys are equal.
    """
    if not routing_key and not arguments:
        return "~"
    key = routing_key.replace("%", "%25").replace("~", "%7E")
    if not arguments:
        return key
    return f"{key}~{digest_of(fingerprint(arguments))}"


def describe_vhost(vhost: VirtualHost) -> Shown:
    """Describe a virtual host by its metadata."""
    metadata: Shown = {"description": vhost.description, "tags": list(vhost.tags)}
    if vhost.default_queue_type is not None:
        metadata["default_queue_type"] = vhost.default_queue_type
    if vhost.protected:
        metadata["protected_from_deletion"] = True
    return {
        "name": vhost.name,
        "description": vhost.description,
        "tags": list(vhost.tags),
        "metadata": metadata,
    }


def show_user(user: User) -> Shown:
    """Show a user with the hash of the password, which definitions need."""
    return {
        "name": user.name,
        "password_hash": user.password.hash,
        "hashing_algorithm": user.password.hashing,
        "tags": list(user.tags),
        "limits": user.limits,
    }


def show_permission(user: str, vhost: str, permission: Permission) -> Shown:
    """Show a user's permissions in a virtual host."""
    return {
        "user": user,
        "vhost": vhost,
        "configure": permission.configure,
        "write": permission.write,
        "read": permission.read,
    }


def show_topic(user: str, vhost: str, exchange: str, topic: TopicPermission) -> Shown:
    """Show a user's permissions at a topic exchange."""
    return {"user": user, "vhost": vhost, "exchange": exchange, "write": topic.write, "read": topic.read}


def show_policy(policy: Policy, vhost: str) -> Shown:
    """Show a policy or an operator policy, with its virtual host."""
    return {"vhost": vhost} | describe_policy(policy)


def describe_policy(policy: Policy) -> Shown:
    """Show a policy or an operator policy."""
    return {
        "name": policy.name,
        "pattern": policy.pattern,
        "apply-to": policy.apply_to,
        "definition": policy.definition,
        "priority": policy.priority,
    }


def show_effective(arguments: dict[str, EffectiveValue], idle: frozenset[str] = frozenset()) -> Shown:
    """Show an object's effective values, each with its source and overridden values.

    Values of `idle` have no effect.
    """
    return {
        key: {
            "value": to_json(effective.value),
            "source": _show_claim(effective.source),
            "overrides": _show_claims(effective.others),
            **({"no_effect": True} if key in idle else {}),
        }
        for key, effective in arguments.items()
    }


def _show_claims(claims: Iterable[SourcedValue]) -> list[Shown]:
    return [_show_claim(claim) | {"value": to_json(claim.value)} for claim in claims]


def _show_claim(claim: SourcedValue) -> Shown:
    return {"kind": claim.kind, "name": claim.name}
