"""Export: definitions as RabbitMQ writes them, in pieces, so that a long export does not delay other work."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

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
from broker.auth.passwords import ARGON2ID
from broker.auth.user import User
from broker.auth.users import Users
from broker.core.broker import INTERNAL, Broker
from broker.core.names import DEFAULT_EXCHANGE, RESERVED_PREFIX
from broker.core.policies.policy import OPERATOR_POLICY, queue_type_of
from broker.core.queues.election import stopped
from broker.core.queues.queue import Queue
from broker.core.remotes.remote import remote_of
from broker.core.routing.graph import Binding
from broker.core.values import to_json
from broker.core.vhosts.vhost import VirtualHost
from broker.dispatch.dispatchers import Dispatchers

Shown = dict[str, Any]


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


def export_pieces(broker: Broker, users: Users, dispatchers: Dispatchers, version: str) -> Iterator[str]:
    """Return the definitions of the whole broker, as pieces of one JSON text.

    Objects may change during the export. The export has the objects that existed at its beginning, and no
    object that refers to an object outside the export.
    """
    contents = [Contents(vhost) for vhost in broker.vhosts.values()]
    there = frozenset(broker.vhosts)
    everybody = [users.require_user(name) for name in users.names()]
    yield from _document(
        {"product_name": "amqpd", "product_version": version},
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
    )


def export_vhost_pieces(vhost: VirtualHost, dispatchers: Dispatchers, version: str) -> Iterator[str]:
    """Return the definitions of one virtual host, without its name, as pieces of one JSON text."""
    contents = Contents(vhost)
    description = describe_vhost(vhost)
    del description["name"]
    yield from _document(
        {"product_name": "amqpd", "product_version": version} | description,
        {
            "parameters": _parameters(contents, False),
            "policies": _policies(contents, False),
            "queues": _queues(contents, False),
            "exchanges": _exchanges(contents, False),
            "bindings": _bindings(contents, False),
            **_dispatchers(dispatchers, [contents], False),
        },
    )


def _document(head: Shown, categories: dict[str, Iterable[Shown]]) -> Iterator[str]:
    yield json.dumps(head)[:-1]
    for name, objects in categories.items():
        yield f',"{name}":['
        comma = ""
        for item in objects:
            yield comma + json.dumps(item)
            comma = ","
        yield "]"
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
