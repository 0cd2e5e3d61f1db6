"""Export: definitions as RabbitMQ writes them, in pieces, so that no length of them holds anybody up."""

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

from broker.admin.api.limits import vhost_limits
from broker.admin.definitions.items import OPERATOR_POLICY, VHOST_LIMITS
from broker.admin.json_values import shown
from broker.auth.passwords import ARGON2ID
from broker.auth.user import User
from broker.auth.users import Users
from broker.core.broker import Broker
from broker.core.names import DEFAULT_EXCHANGE, RESERVED_PREFIX
from broker.core.policy import Policy
from broker.core.vhost import VirtualHost

INTERNAL: Final = "internal"
"""How the names of parameters begin that are about this one broker and no other. [RabbitMQ]"""

Shown = dict[str, Any]


def export_pieces(broker: Broker, users: Users, version: str) -> Iterator[str]:
    """The definitions of everything, as pieces of one JSON text."""
    vhosts = list(broker.vhosts.values())
    names = users.names()
    everybody = [user for user in map(users.get, names) if user is not None]
    yield from _document(
        {"product_name": "amqpd", "product_version": version},
        {
            "users": map(_user, everybody),
            "vhosts": map(_vhost, vhosts),
            "permissions": _permissions(everybody),
            "topic_permissions": _topic_permissions(everybody),
            "parameters": (found for vhost in vhosts for found in _parameters(vhost, True)),
            "global_parameters": (
                {"name": name, "value": value}
                for name, value in broker.parameters.items()
                if not name.startswith(INTERNAL)
            ),
            "policies": (found for vhost in vhosts for found in _policies(vhost, True)),
            "queues": (found for vhost in vhosts for found in _queues(vhost, True)),
            "exchanges": (found for vhost in vhosts for found in _exchanges(vhost, True)),
            "bindings": (found for vhost in vhosts for found in _bindings(vhost, True)),
        },
    )


def export_vhost_pieces(vhost: VirtualHost, version: str) -> Iterator[str]:
    """The definitions of one virtual host, without its name, as pieces of one JSON text."""
    yield from _document(
        {"product_name": "amqpd", "product_version": version},
        {
            "parameters": _parameters(vhost, False),
            "policies": _policies(vhost, False),
            "queues": _queues(vhost, False),
            "exchanges": _exchanges(vhost, False),
            "bindings": _bindings(vhost, False),
        },
    )


def _document(head: Shown, categories: dict[str, Iterable[Shown]]) -> Iterator[str]:
    yield json.dumps(head)[:-1]
    for name, objects in categories.items():
        yield f',"{name}":['
        comma = ""
        for found in objects:
            yield comma + json.dumps(found)
            comma = ","
        yield "]"
    yield "}"


def _user(user: User) -> Shown:
    found: Shown = {
        "name": user.name,
        "password_hash": user.password.hash,
        "hashing_algorithm": user.password.hashing,
        "tags": list(user.tags),
        "limits": user.limits,
    }
    if user.password.hashing == ARGON2ID and user.password.verifier:
        found["scram_verifier"] = user.password.verifier
    if user.loopback_only:
        found["loopback_only"] = True
    return found


def _vhost(vhost: VirtualHost) -> Shown:
    metadata: Shown = {"description": vhost.description, "tags": list(vhost.tags)}
    if vhost.default_queue_type is not None:
        metadata["default_queue_type"] = vhost.default_queue_type
    return {
        "name": vhost.name,
        "description": vhost.description,
        "tags": list(vhost.tags),
        "metadata": metadata,
    }


def _permissions(users: list[User]) -> Iterator[Shown]:
    for user in users:
        for vhost, found in user.permissions.items():
            yield {
                "user": user.name,
                "vhost": vhost,
                "configure": found.configure,
                "write": found.write,
                "read": found.read,
            }


def _topic_permissions(users: list[User]) -> Iterator[Shown]:
    for user in users:
        for (vhost, exchange), found in user.topics.items():
            yield {
                "user": user.name,
                "vhost": vhost,
                "exchange": exchange,
                "write": found.write,
                "read": found.read,
            }


def _parameters(vhost: VirtualHost, named: bool) -> Iterator[Shown]:
    limits = vhost_limits(vhost)
    if limits:
        yield _of(vhost, named) | {"component": VHOST_LIMITS, "name": "limits", "value": limits}
    for policy in list(vhost.policies.operator_policies.values()):
        value = _policy(policy)
        yield _of(vhost, named) | {"component": OPERATOR_POLICY, "name": value.pop("name"), "value": value}


def _policies(vhost: VirtualHost, named: bool) -> Iterator[Shown]:
    for policy in list(vhost.policies.policies.values()):
        yield _of(vhost, named) | _policy(policy)


def _policy(policy: Policy) -> Shown:
    return {
        "name": policy.name,
        "pattern": policy.pattern,
        "apply-to": policy.apply_to,
        "definition": policy.definition,
        "priority": policy.priority,
    }


def _queues(vhost: VirtualHost, named: bool) -> Iterator[Shown]:
    for queue in list(vhost.queues.values()):
        if queue.exclusive_owner is None and not queue.name.startswith(RESERVED_PREFIX):
            yield _of(vhost, named) | {
                "name": queue.name,
                "durable": queue.durable,
                "auto_delete": queue.auto_delete,
                "arguments": shown(queue.arguments),
            }


def _exchanges(vhost: VirtualHost, named: bool) -> Iterator[Shown]:
    for exchange in list(vhost.exchanges.values()):
        if exchange.name != DEFAULT_EXCHANGE and not exchange.name.startswith(RESERVED_PREFIX):
            yield _of(vhost, named) | {
                "name": exchange.name,
                "type": exchange.kind,
                "durable": exchange.durable,
                "auto_delete": exchange.auto_delete,
                "internal": exchange.internal,
                "arguments": shown(exchange.arguments),
            }


def _bindings(vhost: VirtualHost, named: bool) -> Iterator[Shown]:
    for exchange in list(vhost.exchanges.values()):
        for binding in list(exchange.bindings.values()):
            queue = binding.queue
            exclusive = queue is not None and queue.exclusive_owner is not None
            if not exclusive and not binding.destination_name.startswith("amq.gen-"):
                yield _of(vhost, named) | {
                    "source": exchange.name,
                    "destination": binding.destination_name,
                    "destination_type": binding.destination_type,
                    "routing_key": binding.routing_key,
                    "arguments": shown(binding.arguments),
                }


def _of(vhost: VirtualHost, named: bool) -> Shown:
    return {"vhost": vhost.name} if named else {}
