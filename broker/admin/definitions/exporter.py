"""Export: definitions as RabbitMQ writes them, in pieces, so that a long export does not delay other work."""

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final, final

from broker.admin.shapes import (
    LIMITS_COMPONENT,
    LIMITS_PARAMETER,
    describe_policy,
    describe_vhost,
    show_permission,
    show_topic,
    show_user,
    vhost_limits,
)
from broker.admin.state import COMPATIBLE_WITH
from broker.auth.passwords import ARGON2ID, RABBIT_SHA256
from broker.auth.user import User
from broker.auth.users import Users
from broker.core.arguments.queue import is_partitioned
from broker.core.arguments.remote import is_remote
from broker.core.broker import INTERNAL, Broker
from broker.core.names import DEFAULT_EXCHANGE, RESERVED_PREFIX
from broker.core.policies.policy import MIRRORING_KEYS, OPERATOR_POLICY, queue_type_of
from broker.core.queues.queue import Queue
from broker.core.queues.stops import stopped
from broker.core.remotes.remote import remote_of
from broker.core.routing.graph import Binding
from broker.core.values import to_json
from broker.core.vhosts.vhost import VirtualHost
from broker.dispatch.dispatchers import Dispatchers
from broker.forwarding.definition import NO_ACK, ON_CONFIRM, ON_PUBLISH, SHOVEL

Shown = dict[str, Any]

VERSIONS: Final = {"rabbit_version": COMPATIBLE_WITH, "rabbitmq_version": COMPATIBLE_WITH}
"""The version of RabbitMQ whose form an export has."""


RABBITMQ_KEYS: Final = MIRRORING_KEYS.union(
    {
        "alternate-exchange",
        "consumer-timeout",
        "dead-letter-exchange",
        "dead-letter-routing-key",
        "dead-letter-strategy",
        "delayed-retry-max",
        "delayed-retry-min",
        "delayed-retry-type",
        "delivery-limit",
        "expires",
        "federation-upstream",
        "federation-upstream-pattern",
        "federation-upstream-set",
        "initial-cluster-size",
        "max-age",
        "max-in-memory-bytes",
        "max-in-memory-length",
        "max-length",
        "max-length-bytes",
        "message-ttl",
        "overflow",
        "queue-leader-locator",
        "queue-master-locator",
        "queue-mode",
        "queue-version",
        "stream-filter-size-bytes",
        "stream-max-segment-size-bytes",
    }
)
"""RabbitMQ's keys of policies. RabbitMQ refuses a policy with another key."""

SHOVEL_KEYS: Final = frozenset(
    {
        "ack-mode",
        "add-forward-headers",
        "add-timestamp-header",
        "delete-after",
        "dest-add-forward-headers",
        "dest-add-timestamp-header",
        "dest-address",
        "dest-application-properties",
        "dest-exchange",
        "dest-exchange-key",
        "dest-message-annotations",
        "dest-predeclared",
        "dest-properties",
        "dest-protocol",
        "dest-publish-properties",
        "dest-queue",
        "dest-queue-args",
        "dest-uri",
        "prefetch-count",
        "publish-properties",
        "reconnect-delay",
        "src-address",
        "src-consumer-args",
        "src-delete-after",
        "src-exchange",
        "src-exchange-key",
        "src-predeclared",
        "src-prefetch-count",
        "src-protocol",
        "src-queue",
        "src-queue-args",
        "src-uri",
    }
)
"""RabbitMQ's fields of shovels."""

OWN_FIELDS_OF_USERS: Final = ("scram_verifier", "loopback_only")

RABBITMQ_ACK_MODES: Final = (ON_CONFIRM, ON_PUBLISH, NO_ACK)


@final
class ForRabbitMQ:
    """Changes an export so that RabbitMQ takes it; `left_out` has a line for each object or part left out.

    The plugins that the definitions need must be enabled there.
    """

    def __init__(self) -> None:
        self.left_out: list[str] = []
        self._users: set[str] = set()
        self._queues: set[tuple[object, object]] = set()

    def adapt(self, category: str, shown: Shown) -> Shown | None:
        """Return an object as RabbitMQ takes it; None: it is left out."""
        if category == "users":
            return self._user(shown)
        if category in ("permissions", "topic_permissions"):
            return None if shown["user"] in self._users else shown
        if category == "policies":
            return self._policy("policy", shown, shown)
        if category == "parameters":
            return self._parameter(shown)
        if category == "queues":
            return self._queue(shown)
        if category == "bindings" and (shown.get("vhost"), shown["destination"]) in self._queues:
            return None if shown["destination_type"] == "queue" else shown
        if category == "dispatchers":
            self.left_out.append(f"dispatcher '{shown['name']}'{_place(shown)}: RabbitMQ has none")
            return None
        return shown

    def _user(self, shown: Shown) -> Shown | None:
        if shown["password_hash"] and shown["hashing_algorithm"] == ARGON2ID:
            self._users.add(shown["name"])
            self.left_out.append(f"user '{shown['name']}': RabbitMQ cannot read the hash of the password")
            return None
        hashing = RABBIT_SHA256 if not shown["password_hash"] else shown["hashing_algorithm"]
        kept = {
            name: value for name, value in shown.items() if name not in ("scram_verifier", "loopback_only")
        }
        return kept | {"hashing_algorithm": hashing}

    def _policy(self, kind: str, shown: Shown, policy: Shown) -> Shown | None:
        """Return `policy`, which is part of `shown`, without keys of amqpd; None: no key is left."""
        definition = policy["definition"]
        own = sorted(set(definition) - RABBITMQ_KEYS)
        if own:
            self.left_out.append(f"{kind} '{shown['name']}'{_place(shown)}: {', '.join(own)}")
        kept = {key: value for key, value in definition.items() if key in RABBITMQ_KEYS}
        return {**policy, "definition": kept} if kept else None

    def _parameter(self, shown: Shown) -> Shown | None:
        value = shown["value"]
        if shown["component"] == OPERATOR_POLICY:
            policy = self._policy("operator policy", shown, value)
            return None if policy is None else shown | {"value": policy}
        if shown["component"] == SHOVEL and isinstance(value, dict):
            own = sorted(set(value) - SHOVEL_KEYS)
            if value.get("ack-mode", ON_CONFIRM) not in RABBITMQ_ACK_MODES:
                own.append("ack-mode")
            if own:
                self.left_out.append(f"shovel '{shown['name']}'{_place(shown)}: {', '.join(own)}")
                return None
        return shown

    def _queue(self, shown: Shown) -> Shown | None:
        arguments = shown["arguments"]
        for what, is_own in (("partitioned", is_partitioned(arguments)), ("remote", is_remote(arguments))):
            if is_own:
                self._queues.add((shown.get("vhost"), shown["name"]))
                self.left_out.append(f"queue '{shown['name']}'{_place(shown)}: RabbitMQ has no {what} queues")
                return None
        return {name: value for name, value in shown.items() if name != "stopped"}


def _place(shown: Shown) -> str:
    return f" in vhost '{shown['vhost']}'" if "vhost" in shown else ""


class Contents:
    """The objects of a virtual host when an export began."""

    def __init__(self, vhost: VirtualHost) -> None:
        self.vhost = vhost
        self.queues = dict(vhost.topology.queues)
        self.exchanges = dict(vhost.topology.exchanges)

    def tells_of(self, queue: Queue) -> bool:
        """Whether the export has a queue: it existed at the beginning and is not exclusive.

        The queues for members in other brokers belong to the definition of their partitioned queue.
        """
        remote = remote_of(queue)
        there = self.queues.get(queue.name) is queue and (remote is None or not remote.front)
        return there and queue.exclusive_owner is None and not queue.name.startswith(RESERVED_PREFIX)

    def tells_of_end(self, binding: Binding) -> bool:
        """Whether the export has the destination of a binding."""
        if binding.queue is not None:
            return self.tells_of(binding.queue)
        return self.exchanges.get(binding.destination_name) is binding.exchange


def export_pieces(
    broker: Broker,
    users: Users,
    dispatchers: Dispatchers,
    version: str,
    adaptation: ForRabbitMQ | None = None,
) -> Iterator[str]:
    """Return the definitions of the whole broker, as pieces of one JSON text.

    Objects may change during the export. The export has the objects that existed at its beginning, and no
    object that refers to an object outside the export.
    """
    contents = [Contents(vhost) for vhost in broker.vhosts.values()]
    there = frozenset(broker.vhosts)
    everybody = [users.require_user(name) for name in users.names()]
    yield from _document(
        VERSIONS | {"product_name": "amqpd", "product_version": version},
        {
            "users": map(_user, everybody),
            "vhosts": (describe_vhost(found.vhost) for found in contents),
            "permissions": _permissions(everybody, there),
            "topic_permissions": _topic_permissions(everybody, there),
            "parameters": (shown for found in contents for shown in _parameters(found, True)),
            "global_parameters": (
                {"name": name, "value": value}
                for name, value in broker.parameters.items()
                if not name.startswith(INTERNAL)
            ),
            "policies": (shown for found in contents for shown in _policies(found, True)),
            "queues": (shown for found in contents for shown in _queues(found, True)),
            "exchanges": (shown for found in contents for shown in _exchanges(found, True)),
            "bindings": (shown for found in contents for shown in _bindings(found, True)),
            **_dispatchers(dispatchers, contents, True),
        },
        adaptation,
    )


def export_vhost_pieces(
    vhost: VirtualHost, dispatchers: Dispatchers, version: str, adaptation: ForRabbitMQ | None = None
) -> Iterator[str]:
    """Return the definitions of one virtual host, without its name, as pieces of one JSON text."""
    contents = Contents(vhost)
    description = describe_vhost(vhost)
    del description["name"]
    yield from _document(
        VERSIONS | {"product_name": "amqpd", "product_version": version} | description,
        {
            "parameters": _parameters(contents, False),
            "policies": _policies(contents, False),
            "queues": _queues(contents, False),
            "exchanges": _exchanges(contents, False),
            "bindings": _bindings(contents, False),
            **_dispatchers(dispatchers, [contents], False),
        },
        adaptation,
    )


def _document(
    head: Shown, categories: dict[str, Iterable[Shown]], adaptation: ForRabbitMQ | None
) -> Iterator[str]:
    yield json.dumps(head)[:-1]
    for name, objects in categories.items():
        yield f',"{name}":['
        comma = ""
        for item in objects:
            adapted = item if adaptation is None else adaptation.adapt(name, item)
            if adapted is not None:
                yield comma + json.dumps(adapted)
                comma = ","
        yield "]"
    if adaptation is not None:
        yield f',"left_out":{json.dumps(adaptation.left_out)}'
    yield "}"


def _user(user: User) -> Shown:
    shown = show_user(user)
    if user.password.hashing == ARGON2ID and user.password.verifier:
        shown["scram_verifier"] = user.password.verifier
    if user.loopback_only:
        shown["loopback_only"] = True
    return shown


def _permissions(users: list[User], vhosts: frozenset[str]) -> Iterator[Shown]:
    for user in users:
        for vhost, permission in list(user.permissions.items()):
            if vhost in vhosts:
                yield show_permission(user.name, vhost, permission)


def _topic_permissions(users: list[User], vhosts: frozenset[str]) -> Iterator[Shown]:
    for user in users:
        for (vhost, exchange), permission in list(user.topics.items()):
            if vhost in vhosts:
                yield show_topic(user.name, vhost, exchange, permission)


def _parameters(contents: Contents, named: bool) -> Iterator[Shown]:
    vhost = contents.vhost
    limits = vhost_limits(vhost)
    if limits:
        yield _of(vhost, named) | {"component": LIMITS_COMPONENT, "name": LIMITS_PARAMETER, "value": limits}
    for policy in list(vhost.policies.operator_policies.values()):
        value = describe_policy(policy)
        yield _of(vhost, named) | {"component": OPERATOR_POLICY, "name": value.pop("name"), "value": value}
    for component, name, stored in vhost.parameters.items():
        yield _of(vhost, named) | {"component": component, "name": name, "value": stored}


def _policies(contents: Contents, named: bool) -> Iterator[Shown]:
    for policy in list(contents.vhost.policies.policies.values()):
        yield _of(contents.vhost, named) | describe_policy(policy)


def _queues(contents: Contents, named: bool) -> Iterator[Shown]:
    for queue in contents.queues.values():
        if contents.tells_of(queue):
            yield _of(contents.vhost, named) | {
                "name": queue.name,
                "durable": queue.durable,
                "auto_delete": queue.auto_delete,
                "type": queue_type_of(queue.arguments),  # another virtual host may have another default type
                "arguments": to_json(queue.arguments),
                **({"stopped": stopped(queue)} if queue.stops is not None else {}),
            }


def _exchanges(contents: Contents, named: bool) -> Iterator[Shown]:
    for exchange in contents.exchanges.values():
        if exchange.name != DEFAULT_EXCHANGE and not exchange.name.startswith(RESERVED_PREFIX):
            yield _of(contents.vhost, named) | {
                "name": exchange.name,
                "type": exchange.kind,
                "durable": exchange.durable,
                "auto_delete": exchange.auto_delete,
                "internal": exchange.internal,
                "arguments": to_json(exchange.arguments),
            }


def _bindings(contents: Contents, named: bool) -> Iterator[Shown]:
    for exchange in contents.exchanges.values():
        for binding in list(exchange.bindings()):
            if contents.tells_of_end(binding):
                yield _of(contents.vhost, named) | {
                    "source": exchange.name,
                    "destination": binding.destination_name,
                    "destination_type": binding.destination_type,
                    "routing_key": binding.routing_key,
                    "arguments": to_json(binding.arguments),
                }


def _dispatchers(
    dispatchers: Dispatchers, contents: list[Contents], named: bool
) -> dict[str, Iterable[Shown]]:
    """Return the category of dispatchers, which RabbitMQ does not know; none if there are no dispatchers."""
    shown = [
        _of(found.vhost, named) | {"name": definition.name} | definition.shown()
        for found in contents
        for definition in dispatchers.all(found.vhost.name)
        if definition.queue in found.queues and found.tells_of(found.queues[definition.queue])
    ]
    return {"dispatchers": shown} if shown else {}


def _of(vhost: VirtualHost, named: bool) -> Shown:
    return {"vhost": vhost.name} if named else {}
