"""Histories of a broker's definitions, and descriptions that are taken of them a few objects at a time."""

import contextlib
import json
from collections.abc import Iterator

from broker.auth.passwords import Password
from broker.auth.users import Users
from broker.core.broker import Broker
from broker.core.errors import BrokerError
from broker.core.message import Message
from broker.core.policies.policy import Policy
from broker.core.ports import MessageStore
from broker.core.queues.volatile import NOTE_MS
from broker.core.vhosts.alteration import alter_queue, merge_arguments, stop_queue
from broker.core.vhosts.vhost import VirtualHost
from tests.support.core.hand_clock import HandClock
from tests.support.core.topology import Change, definitions_of, new_broker

VHOSTS = ["a", "b"]
NAMES = ["p", "q", "r", "s"]
SOURCES = [*NAMES, "amq.topic"]
KINDS = ["direct", "fanout", "topic", "x-recent-history"]
TABLES: list[dict[str, object]] = [{}, {"x-max-length": 5}, {"x-volatile": True}, {"k": b"\x01"}]
MAKE = ["queue", "queue", "exchange", "exchange", "bind", "bind", "bind", "bind exchange", "policy"]
CHANGE = ["rename", "rename", "stop", "publish", "wait", "limit", "tell", "parameter"]
DROP = ["no queue", "no exchange", "unbind", "unbind exchange", "no policy", "no parameter"]
VHOST = ["vhost", "no vhost", "vhost again"]
USERS = ["user", "user", "permit", "forbid", "no user"]

Step = tuple[str, str, str, str, int]


class World:
    """A broker, its users, and a clock."""

    def __init__(self, broker: Broker, clock: HandClock) -> None:
        self.broker = broker
        self.clock = clock
        self.users = Users(broker.store)
        broker.appliers["user"] = self.users.apply
        broker.definers.append(self.users.describe)
        broker.leaving.append(self.users.forget_vhost)

    def follow(self, step: Step) -> None:
        """Apply a step; a refused step changes nothing."""
        with contextlib.suppress(BrokerError):
            self._follow(*step)
        self.clock.advance(1)

    def _follow(self, what: str, name: str, one: str, other: str, number: int) -> None:
        broker = self.broker
        if what == "wait":
            self.clock.advance(NOTE_MS)
        elif what == "parameter":
            broker.parameters.set(one, number)
        elif what == "no parameter":
            broker.parameters.delete(one)
        elif what == "user":
            self.users.put(one, Password(f"h{number % 3}"), ("administrator",) if number % 2 else ())
        elif what == "no user":
            self.users.delete(one)
        elif what == "permit":
            self.users.permit(one, name, "", "", str(number))
            self.users.set_limits(one, {"max-channels": number - 1})
        elif what == "forbid":
            self.users.forbid(one, name)
        elif what == "limit":
            broker.limit_vhost(name, number, None)
        elif what == "tell":
            broker.describe_vhost(name, other, (one,), None)
        else:
            if what in ("no vhost", "vhost again"):
                broker.delete_vhost(name)
            if what != "no vhost":
                self._inside(broker.declare_vhost(name), what, one, other, number)

    def _inside(self, vhost: VirtualHost, what: str, one: str, other: str, number: int) -> None:
        table = dict(TABLES[number % len(TABLES)])
        operator = number % 2 == 0
        if what == "queue":
            vhost.declarations.declare_queue(one, number != 0, None, number > 8, table)
        elif what == "no queue":
            vhost.declarations.delete_queue(one, False, False)
        elif what == "rename":
            queue = vhost.declarations.find_queue(one)
            arguments = merge_arguments(queue, {"x-max-length": number})
            alter_queue(vhost.topology, queue, other if number % 3 else one, arguments, False)
        elif what == "stop":
            stop_queue(vhost.topology, vhost.declarations.find_queue(one), ["enqueue"] if operator else [])
        elif what == "publish":
            vhost.publisher.publish(
                vhost.publisher.route("", one),
                Message(vhost.publisher.route("", one).address, b"", 0, False, 0),
            )
        elif what == "exchange":
            vhost.declarations.declare_exchange(one, KINDS[number % 4], number != 0, number > 8, False, {})
        elif what == "no exchange":
            vhost.declarations.delete_exchange(one, False)
        elif what == "policy":
            vhost.policies.set(Policy(one, "", {"max-length": number}, operator=operator))
        elif what == "no policy":
            vhost.policies.delete(one, operator)
        elif what == "bind":
            vhost.declarations.bind_queue(one, other, str(number % 3), {})
        elif what == "unbind":
            vhost.declarations.unbind_queue(one, other, str(number % 3), {})
        elif what == "bind exchange":
            vhost.declarations.bind_exchange(one, other, str(number % 3), {})
        elif what == "unbind exchange":
            vhost.declarations.unbind_exchange(one, other, str(number % 3), {})
        else:
            assert what in VHOST, what


class ChangeStore(MessageStore):
    """Notes the changes while there is a description that they belong to."""

    def __init__(self) -> None:
        super().__init__()
        self.description: Iterator[list[Change]] | None = None
        self.text: list[Change] = []

    def append_definition(self, change: Change) -> None:
        if self.description is not None:
            self.text.append(json.loads(json.dumps(change)))

    def take(self, broker: Broker, objects: int) -> bool:
        """Have some objects described; True if these were the last."""
        if self.description is None:
            self.description = iter(broker.describe())
            self.text = []
        for _ in range(objects):
            changes = next(self.description, None)
            if changes is None:
                self.description = None
                return True
            self.text += json.loads(json.dumps(changes))
        return False


def new_world(store: MessageStore) -> World:
    clock = HandClock()
    return World(new_broker(store, clock), clock)


def applied(changes: list[Change]) -> World:
    """Return the world that recovery makes of changes, before lost objects are counted."""
    again = new_world(MessageStore())
    for change in changes:
        again.broker.apply(json.loads(json.dumps(change)))
    return again


def durable_changes(broker: Broker) -> list[str]:
    """Return all durable changes, sorted."""
    return sorted(json.dumps(change, sort_keys=True) for change in definitions_of(broker))
