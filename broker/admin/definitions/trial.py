"""A copy of the part of the broker that definitions concern, on which they are tried."""

from collections.abc import Generator, Mapping

from broker.admin.fields import Fields
from broker.auth.user import changes_of
from broker.auth.users import Users
from broker.core.broker import Broker
from broker.core.counters import Counters
from broker.core.ports import MessageStore
from broker.core.routing.kinds import new_exchange
from broker.core.schedule import Schedule
from broker.core.vhosts.vhost import VirtualHost

_SOMEBODY = object()  # who owns the exclusive queues of the copy


def trial_steps(
    found: Mapping[str, list[Fields]], broker: Broker, users: Users, vhost: str | None
) -> Generator[None, None, tuple[Broker, Users]]:
    """Copy all virtual hosts without contents, and the users, exchanges and queues that are named.

    Policies whose pattern cannot be used are copied too: they hold for nothing, and may be there again.

    Each step is short.
    """
    store = MessageStore()
    trial = Broker(store, Counters(), lambda: "", Schedule(lambda: 0, lambda: 0, lambda due: None))
    for name, there in list(broker.vhosts.items()):
        copy = trial.declare_vhost(name)
        copy.connections_max = there.connections_max
        copy.queues_max = there.queues_max
        copy.default_queue_type = there.default_queue_type
        for policy in there.policies.all():
            if policy.objection:
                copy.policies.put(policy)
        yield
    for category, key in (("exchanges", "name"), ("bindings", "source"), ("bindings", "destination")):
        for fields in found.get(category, ()):
            _copy_exchange(broker, trial, fields.get("vhost", vhost), fields.get(key))
            yield
    for category, key in (("queues", "name"), ("bindings", "destination")):
        for fields in found.get(category, ()):
            _copy_queue(broker, trial, fields.get("vhost", vhost), fields.get(key))
            yield
    trial_users = Users(store)
    named = [(category, "user") for category in ("permissions", "topic_permissions")]
    for category, key in [("users", "name"), *named]:
        for fields in found.get(category, ()):
            _copy_user(users, trial_users, fields.get(key))
            yield
    return trial, trial_users


def _copy_exchange(broker: Broker, trial: Broker, vhost: object, name: object) -> None:
    there, copy = _both(broker, trial, vhost)
    if there is None or copy is None or not isinstance(name, str) or name in copy.exchanges:
        return
    exchange = there.exchanges.get(name)
    if exchange is not None:
        copy.add_exchange(
            new_exchange(
                name,
                exchange.kind,
                exchange.durable,
                exchange.auto_delete,
                exchange.internal,
                exchange.arguments,
            ),
            0,
        )


def _copy_queue(broker: Broker, trial: Broker, vhost: object, name: object) -> None:
    there, copy = _both(broker, trial, vhost)
    if there is None or copy is None or not isinstance(name, str) or name in copy.queues:
        return
    queue = there.queues.get(name)
    if queue is not None:
        owner = None if queue.exclusive_owner is None else _SOMEBODY
        copy.add_queue(name, queue.durable, owner, queue.auto_delete, queue.arguments, 0)


def _copy_user(users: Users, trial: Users, name: object) -> None:
    user = users.get(name) if isinstance(name, str) else None
    if user is not None:
        for change in changes_of(user):
            trial.apply(change)


def _both(broker: Broker, trial: Broker, name: object) -> tuple[VirtualHost | None, VirtualHost | None]:
    if not isinstance(name, str):
        return None, None
    return broker.vhosts.get(name), trial.vhosts.get(name)
