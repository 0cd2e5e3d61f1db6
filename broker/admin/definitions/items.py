"""The objects of a definitions file: a function for each kind checks the fields and makes the object.

The same functions make an object on trial and for good. Each is idempotent, and appends nothing to the log if
the object exists with the same description.
"""

from collections.abc import Mapping
from typing import Final

from broker.admin.json_documents import (
    Fields,
    read_field_table,
    read_flag,
    read_stored_value,
    read_table,
    read_tags,
    read_text,
    require_field,
)
from broker.admin.shapes import LIMITS_COMPONENT, LIMITS_OF_VHOSTS, set_vhost_limits
from broker.auth.passwords import NO_PASSWORD, RABBIT_SHA256, Password, import_hash
from broker.auth.user import USER_LIMITS, checked_limits
from broker.auth.users import Users
from broker.core.arguments.queue import DEFAULT_QUEUE_TYPE, QUEUE_TYPE
from broker.core.broker import INTERNAL, Broker
from broker.core.errors import NotFound, PreconditionFailed, UnknownKind
from broker.core.names import DEFAULT_EXCHANGE, RESERVED_PREFIX, one_line
from broker.core.policies.policy import ALL, OPERATOR_POLICY, Policy, parse_policy
from broker.core.queues.stops import OPERATIONS
from broker.core.values import show
from broker.core.vhosts.alteration import stop_queue
from broker.core.vhosts.vhost import VirtualHost
from broker.dispatch.definition import definition_of
from broker.dispatch.dispatchers import Dispatchers
from broker.forwarding.upstream import COMPONENTS

PROTECTED: Final = "protected_from_deletion"
METADATA: Final = ("description", "tags", "default_queue_type", PROTECTED)
"""The fields of a virtual host's metadata, as RabbitMQ has them."""


class Target:
    """The destination of definitions.

    `passwords` has, by user, the hashes of passwords that are in clear text.
    """

    def __init__(
        self, broker: Broker, users: Users, dispatchers: Dispatchers, passwords: Mapping[str, Password]
    ) -> None:
        self.broker = broker
        self.users = users
        self.dispatchers = dispatchers
        self.passwords = passwords

    def vhost(self, fields: Fields, vhost: str | None) -> VirtualHost:
        """Return the virtual host of an object: its own, or the one that the whole file is for.

        Raises NotFound, and PreconditionFailed if the object names another virtual host.
        """
        name = vhost if vhost is not None else read_text(fields, "vhost")
        if fields.get("vhost", name) != name:
            raise PreconditionFailed(
                f"it is of vhost '{show(fields['vhost'])}', but the file is for '{name}'"
            )
        virtual_host = self.broker.vhosts.get(name)
        if virtual_host is None:
            raise NotFound(f"there is no vhost '{name}', and the definitions make none")
        return virtual_host


def make_user(target: Target, fields: Fields, vhost: str | None) -> None:
    """Make a user; a hash is stored unchanged."""
    name = read_text(fields, "name")
    password = target.passwords.get(name)
    if password is None:
        hashing = read_text(fields, "hashing_algorithm", RABBIT_SHA256)
        verifier = read_text(fields, "scram_verifier", "")
        kept = fields.get("password_hash")
        password = import_hash(read_text(fields, "password_hash"), hashing, verifier) if kept else NO_PASSWORD
    tags = read_tags(fields)
    limits = checked_limits(read_table(fields, "limits"), USER_LIMITS)
    loopback = fields.get("loopback_only")
    if loopback is not None:
        loopback = read_flag(fields, "loopback_only", False)
    old = target.users.get(name)
    same = old is not None and (old.password, old.tags) == (password, tags)
    if old is None or not same or loopback not in (None, old.loopback_only):
        target.users.put(name, password, tags, loopback)
    target.users.set_limits(name, limits)


def make_vhost(target: Target, fields: Fields, vhost: str | None) -> None:
    """Make a virtual host with its description and limits."""
    name = read_text(fields, "name")
    virtual_host = target.broker.declare_vhost(name)
    metadata = read_table(fields, "metadata")
    for key in metadata:
        if key not in METADATA:
            raise PreconditionFailed(f"'{key}' in 'metadata' is not known, allowed: {', '.join(METADATA)}")
    description = {**metadata, **{key: fields[key] for key in METADATA if fields.get(key)}}
    queue_type = description.get("default_queue_type")
    target.broker.describe_vhost(
        name,
        read_text(description, "description", virtual_host.description),
        read_tags(description) if "tags" in description else virtual_host.tags,
        virtual_host.default_queue_type
        if queue_type is None
        else None
        if queue_type == "undefined"
        else read_text(description, "default_queue_type"),
        read_flag(metadata, PROTECTED, virtual_host.protected),
    )
    limits = read_table(fields, "limits")
    if limits:
        _limit(target, virtual_host, limits)


def make_permission(target: Target, fields: Fields, vhost: str | None) -> None:
    """Make a user's permissions in a virtual host."""
    user, where = read_text(fields, "user"), target.vhost(fields, vhost).name
    wanted = tuple(read_text(fields, what) for what in ("configure", "write", "read"))
    old = target.users.require_user(user).permissions.get(where)
    if old is None or (old.configure, old.write, old.read) != wanted:
        target.users.permit(user, where, *wanted)


def make_topic_permission(target: Target, fields: Fields, vhost: str | None) -> None:
    """Make a user's permissions at a topic exchange."""
    user, where = read_text(fields, "user"), target.vhost(fields, vhost).name
    exchange, write, read = (read_text(fields, name) for name in ("exchange", "write", "read"))
    old = target.users.require_user(user).topics.get((where, exchange))
    if old is None or (old.write, old.read) != (write, read):
        target.users.permit_topic(user, where, exchange, write, read)


def make_exchange(target: Target, fields: Fields, vhost: str | None) -> None:
    """Make an exchange. The default exchange and predeclared exchanges are skipped, as in RabbitMQ."""
    virtual_host, name = target.vhost(fields, vhost), one_line(read_text(fields, "name"))
    if name == DEFAULT_EXCHANGE or name.startswith(RESERVED_PREFIX):
        return
    virtual_host.declarations.declare_exchange(
        name,
        read_text(fields, "type"),
        read_flag(fields, "durable", True),
        read_flag(fields, "auto_delete", False),
        read_flag(fields, "internal", False),
        read_field_table(fields.get("arguments"), f"exchange '{name}'"),
    )


def make_queue(target: Target, fields: Fields, vhost: str | None) -> None:
    """Make a queue. Names that the broker generates are skipped, as in RabbitMQ."""
    virtual_host, name = target.vhost(fields, vhost), one_line(read_text(fields, "name"))
    if not name:
        raise PreconditionFailed("a queue needs a name")
    if name.startswith(RESERVED_PREFIX):
        return
    arguments = read_field_table(fields.get("arguments"), f"queue '{name}'")
    meant = virtual_host.default_queue_type or DEFAULT_QUEUE_TYPE
    kind = read_text(fields, "type", meant)
    if kind != meant:
        arguments.setdefault(QUEUE_TYPE, kind)
    durable, auto_delete = read_flag(fields, "durable", True), read_flag(fields, "auto_delete", False)
    queue = virtual_host.declarations.declare_queue(name, durable, None, auto_delete, arguments)
    if "stopped" in fields:
        stop_queue(virtual_host.topology, queue, _read_stopped(fields["stopped"]))


def _read_stopped(value: object) -> list[str]:
    """Return the operations of a queue that are switched off. Raises PreconditionFailed."""
    if not isinstance(value, list) or any(each not in OPERATIONS for each in value):
        raise PreconditionFailed(f"'stopped' is not a list of {' and '.join(OPERATIONS)}: {show(value)}")
    return [each for each in OPERATIONS if each in value]


def make_binding(target: Target, fields: Fields, vhost: str | None) -> None:
    """Make a binding. The bindings of queues to the default exchange exist already."""
    virtual_host = target.vhost(fields, vhost)
    source, destination = one_line(read_text(fields, "source")), one_line(read_text(fields, "destination"))
    if source == DEFAULT_EXCHANGE or destination.startswith("amq.gen-"):
        return
    key = read_text(fields, "routing_key", "")
    arguments = read_field_table(fields.get("arguments"), f"a binding from '{source}' to '{destination}'")
    kind = read_text(fields, "destination_type")
    if kind == "queue":
        queue = virtual_host.topology.queues.get(destination)
        virtual_host.declarations.bind_queue(
            destination, source, key, arguments, queue.exclusive_owner if queue else None
        )
    elif kind == "exchange":
        virtual_host.declarations.bind_exchange(destination, source, key, arguments)
    else:
        raise PreconditionFailed(f"'destination_type' is '{kind}', allowed: queue, exchange")


def make_dispatcher(target: Target, fields: Fields, vhost: str | None) -> None:
    """Make a dispatcher, or replace its definition."""
    virtual_host, name = target.vhost(fields, vhost), read_text(fields, "name")
    target.dispatchers.set(definition_of(virtual_host.name, name, fields))


def make_policy(target: Target, fields: Fields, vhost: str | None) -> None:
    """Make a policy."""
    _make_policy(target.vhost(fields, vhost), read_text(fields, "name"), fields, operator=False)


def make_parameter(target: Target, fields: Fields, vhost: str | None) -> None:
    """Make a parameter of a virtual host: an operator policy, limits, a shovel, or an upstream.

    Components of other plugins of RabbitMQ are refused.
    """
    virtual_host, name = target.vhost(fields, vhost), read_text(fields, "name")
    component = read_text(fields, "component")
    if component not in (OPERATOR_POLICY, LIMITS_COMPONENT, *COMPONENTS):
        known = ", ".join((OPERATOR_POLICY, LIMITS_COMPONENT, *COMPONENTS))
        raise UnknownKind(f"component '{component}' is not known, allowed: {known}")
    require_field(fields, "value")
    if component == OPERATOR_POLICY:
        _make_policy(virtual_host, name, read_table(fields, "value"), operator=True)
    elif component == LIMITS_COMPONENT:
        _limit(target, virtual_host, read_table(fields, "value"))
    else:
        set_component(virtual_host, component, name, fields)


def set_component(vhost: VirtualHost, component: str, name: str, fields: Fields) -> None:
    """Set the parameter of a component in COMPONENTS to the field `value`. Raises PreconditionFailed."""
    value = read_stored_value(fields, "value")
    COMPONENTS[component](vhost.name, name, value)
    vhost.parameters.set(component, name, value)


def make_global_parameter(target: Target, fields: Fields, vhost: str | None) -> None:
    """Make a global parameter, which may have any value. Another broker's internal parameters are skipped."""
    name = read_text(fields, "name")
    value = read_stored_value(fields, "value")
    if not name.startswith(INTERNAL):
        target.broker.parameters.set(name, value)


def _make_policy(vhost: VirtualHost, name: str, fields: Fields, operator: bool) -> None:
    vhost.policies.set(read_policy(vhost, name, fields, operator))


def read_policy(vhost: VirtualHost, name: str, fields: Fields, operator: bool) -> Policy:
    """Return the policy that RabbitMQ's JSON object describes. Raises PreconditionFailed."""
    pattern = require_field(fields, "pattern")
    return parse_policy(
        vhost.name,
        name,
        pattern,
        require_field(fields, "definition"),
        fields.get("priority", 0),
        fields.get("apply-to", ALL),
        operator,
        kept=vhost.policies.has_pattern(name, operator, pattern),
    )


def _limit(target: Target, vhost: VirtualHost, limits: Fields) -> None:
    set_vhost_limits(target.broker, vhost, checked_limits(limits, LIMITS_OF_VHOSTS))
