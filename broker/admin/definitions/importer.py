"""Import: all objects are made on a trial copy first, and for good if none is wrong.

An import may pass over what the broker does not have, such as exchange types of RabbitMQ's plugins, and over
queues and exchanges that exist with another description. The trial finds them.
[RabbitMQ load_definitions]
"""

import hashlib
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, final

import structlog

from broker.admin.definitions import items
from broker.admin.definitions.items import Target
from broker.admin.json_documents import Fields, JsonError, read_json
from broker.auth.passwords import Password, make_password
from broker.auth.user import changes_of
from broker.auth.users import Users
from broker.core.arguments.partition import PARTITION_MEMBERS
from broker.core.broker import Broker
from broker.core.counters import Counters
from broker.core.errors import BrokerError, Inequivalent, PreconditionFailed, UnknownKind
from broker.core.partitions.mapping import member_names
from broker.core.policies.policy import OPERATOR_POLICY, is_known_key
from broker.core.ports import MessageStore
from broker.core.remotes.remote import TrialLinks
from broker.core.routing.kinds import new_exchange
from broker.core.schedule import Schedule
from broker.core.vhosts.vhost import VirtualHost
from broker.dispatch.definition import FIELDS as DISPATCHER_FIELDS
from broker.dispatch.dispatchers import Dispatchers

_OWNER = object()  # the owner of the exclusive queues of the copy

Maker = Callable[[Target, Fields, str | None], None]
Steps = Generator[None, None, None]

OF_VHOST: Final = ("parameters", "policies", "exchanges", "queues", "bindings", "dispatchers")
"""The categories of a file for a single virtual host."""

SAID_OF_VHOST: Final = ("description", "tags", "default_queue_type", "metadata", "limits")
"""The fields of a file for a single virtual host that describe the host itself. [RabbitMQ 4]"""

ABOUT_FILE: Final = frozenset(
    {"rabbit_version", "rabbitmq_version", "product_name", "product_version", "rabbitmq_definition_format"}
    | {"original_cluster_name", "explanation", "left_out"}
)
ABOUT_VHOST_FILE: Final = ABOUT_FILE | {"original_vhost_name", "name"}
"""Fields that describe the origin of a file, and change nothing."""

PROBLEMS_MAX: Final = 20

LOADED: Final = "internal_loaded_definitions"
"""The global parameter that keeps the digest of the definitions loaded last."""

_log = structlog.get_logger("amqpd")


def trial_steps(
    objects: Mapping[str, list[Fields]], broker: Broker, users: Users, vhost: str | None
) -> Generator[None, None, tuple[Broker, Users]]:
    """Copy all virtual hosts without contents, and the users, exchanges and queues that the definitions name.

    Policies with an unusable pattern are copied too: they apply to nothing, and may be declared again.

    Each step is short.
    """
    store = MessageStore()
    trial = Broker(store, Counters(), lambda: "", Schedule(lambda: 0, lambda: 0, lambda due: None))
    trial.remote_links = TrialLinks(broker.remote_links)
    for name, there in list(broker.vhosts.items()):
        copy = trial.declare_vhost(name)
        copy.connections_max = there.connections_max
        copy.queues_max = there.queues_max
        copy.default_queue_type = there.default_queue_type
        copy.protected = there.protected
        for policy in there.policies.all():
            if policy.objection:
                copy.policies.put(policy)
        yield
    for category, key in (("exchanges", "name"), ("bindings", "source"), ("bindings", "destination")):
        for fields in objects.get(category, ()):
            _copy_exchange(broker, trial, fields.get("vhost", vhost), fields.get(key))
            yield
    for category, key in (("queues", "name"), ("bindings", "destination"), ("dispatchers", "queue")):
        for fields in objects.get(category, ()):
            _copy_queue(broker, trial, fields.get("vhost", vhost), fields.get(key))
            yield
    for fields in objects.get("queues", ()):
        arguments = fields.get("arguments")
        for name in member_names(arguments) if isinstance(arguments, dict) else ():
            _copy_queue(broker, trial, fields.get("vhost", vhost), name)
        yield
    trial_users = Users(store)
    named = [(category, "user") for category in ("permissions", "topic_permissions")]
    for category, key in [("users", "name"), *named]:
        for fields in objects.get(category, ()):
            _copy_user(users, trial_users, fields.get(key))
            yield
    return trial, trial_users


def _copy_exchange(broker: Broker, trial: Broker, vhost: object, name: object) -> None:
    there, copy = _find_vhosts(broker, trial, vhost)
    if there is None or copy is None or not isinstance(name, str) or name in copy.topology.exchanges:
        return
    exchange = there.topology.exchanges.get(name)
    if exchange is not None:
        copy.topology.add_exchange(
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
    there, copy = _find_vhosts(broker, trial, vhost)
    if there is None or copy is None or not isinstance(name, str) or name in copy.topology.queues:
        return
    queue = there.topology.queues.get(name)
    if queue is not None:
        owner = None if queue.exclusive_owner is None else _OWNER
        copy.topology.add_queue(name, queue.durable, owner, queue.auto_delete, queue.arguments, 0)


def _copy_user(users: Users, trial: Users, name: object) -> None:
    user = users.get(name) if isinstance(name, str) else None
    if user is not None:
        for change in changes_of(user):
            trial.apply(change)


def _find_vhosts(
    broker: Broker, trial: Broker, name: object
) -> tuple[VirtualHost | None, VirtualHost | None]:
    if not isinstance(name, str):
        return None, None
    return broker.vhosts.get(name), trial.vhosts.get(name)


class Category(NamedTuple):
    """A kind of objects: the function that makes an object, and the fields that an object may have."""

    make: Maker
    fields: frozenset[str]


def _category(make: Maker, fields: str) -> Category:
    return Category(make, frozenset(fields.split()))


CATEGORIES: Final[Mapping[str, Category]] = {
    "users": _category(
        items.make_user,
        "name password password_hash hashing_algorithm scram_verifier tags limits loopback_only",
    ),
    "vhosts": _category(items.make_vhost, "name description tags default_queue_type metadata limits"),
    "permissions": _category(items.make_permission, "user vhost configure write read"),
    "topic_permissions": _category(items.make_topic_permission, "user vhost exchange write read"),
    "parameters": _category(items.make_parameter, "vhost component name value"),
    "global_parameters": _category(items.make_global_parameter, "name value"),
    "policies": _category(items.make_policy, "vhost name pattern apply-to definition priority"),
    "exchanges": _category(items.make_exchange, "vhost name type durable auto_delete internal arguments"),
    "queues": _category(items.make_queue, "vhost name type durable auto_delete arguments stopped"),
    "bindings": _category(
        items.make_binding, "vhost source destination destination_type routing_key arguments"
    ),
    "dispatchers": _category(items.make_dispatcher, " ".join(("vhost", "name", *DISPATCHER_FIELDS))),
}
"""The categories of a definitions file, in the order in which their objects are made."""


class DefinitionsError(Exception):
    """Definitions that are refused as a whole; `problems` has a line for each wrong object."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@final
class Skipped:
    """The objects, and parts of objects, that an import has passed over: a line for each in `lines`."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._exchanges: set[tuple[object, object]] = set()

    def supported_part(self, category: str, fields: Fields, vhost: str | None) -> Fields | None:
        """Return an object without unknown fields and keys of policies; None: nothing is left of it."""
        known = CATEGORIES[category].fields
        unknown = [name for name in fields if name not in known]
        fields = {name: value for name, value in fields.items() if name in known}
        operator = category == "parameters" and fields.get("component") == OPERATOR_POLICY
        policy = fields.get("value") if operator else fields
        where = _describe_object(category, fields, vhost)
        if (operator or category == "policies") and isinstance(policy, Mapping):
            definition = policy.get("definition")
            if isinstance(definition, Mapping):
                kept = {key: value for key, value in definition.items() if is_known_key(key, operator)}
                unknown += [key for key in definition if key not in kept]
                changed = {**policy, "definition": kept}
                fields = {**fields, "value": changed} if operator else changed
                if definition and not kept:
                    self.lines.append(f"{where}: no key of its definition is known: {', '.join(definition)}")
                    return None
        if unknown:
            self.lines.append(f"{where}: {', '.join(unknown)} is not known")
        return fields

    def takes(self, category: str, fields: Fields, vhost: str | None, error: BrokerError) -> bool:
        """Whether an import passes over a refused object, which is noted then."""
        host = fields.get("vhost", vhost)
        ends = [fields.get("source")]
        if fields.get("destination_type") == "exchange":
            ends.append(fields.get("destination"))
        lacks = category == "bindings" and any((host, end) in self._exchanges for end in ends)
        if not lacks and not isinstance(error, UnknownKind | Inequivalent):
            return False
        if category == "exchanges" and isinstance(error, UnknownKind):
            self._exchanges.add((host, fields.get("name")))
        self.lines.append(f"{_describe_object(category, fields, vhost)}: {error.text}")
        return True


def _form_steps(
    document: object, vhost: str | None, skipped: Skipped | None
) -> Generator[None, None, Mapping[str, list[Fields]]]:
    """Return the objects of a document by category, in order. Raises DefinitionsError."""
    if not isinstance(document, Mapping):
        raise DefinitionsError(["definitions are a JSON object"])
    wanted = CATEGORIES if vhost is None else OF_VHOST
    problems: list[str] = []
    objects: dict[str, list[Fields]] = {}
    for category in wanted:
        entries = document.get(category, [])
        right = isinstance(entries, list)
        for entry in entries if right else ():
            right = right and isinstance(entry, Mapping)
            yield
        if right:
            objects[category] = entries
        else:
            problems.append(f"'{category}' is not a list of objects")
    vhost_keys = () if vhost is None else SAID_OF_VHOST
    about = ABOUT_FILE if vhost is None else ABOUT_VHOST_FILE
    for name in document:
        if name in CATEGORIES and name not in wanted:
            if document[name]:
                problems.append(f"'{name}' cannot be imported into one vhost, allowed: {', '.join(wanted)}")
        elif name not in wanted and name not in about and name not in vhost_keys:
            if skipped is not None:
                skipped.lines.append(f"'{name}' is not known")
                continue
            problems.append(f"'{name}' is not known, allowed: {', '.join((*wanted, *vhost_keys))}")
    if problems:
        raise DefinitionsError(problems)
    of_vhost = {name: document[name] for name in vhost_keys if name in document}
    return {"vhosts": [of_vhost | {"name": vhost}], **objects} if of_vhost else objects


def find_clear_passwords(document: object) -> dict[str, str]:
    """Return the clear-text passwords of a document by user, which must be hashed before the import."""
    users = document.get("users", []) if isinstance(document, Mapping) else []
    passwords: dict[str, str] = {}
    for user in users if isinstance(users, list) else []:
        if isinstance(user, Mapping) and isinstance(user.get("name"), str):
            password = user.get("password")
            if isinstance(password, str) and password and not user.get("password_hash"):
                passwords[user["name"]] = password
    return passwords


def import_steps(
    document: object,
    broker: Broker,
    users: Users,
    dispatchers: Dispatchers,
    passwords: Mapping[str, Password],
    vhost: str | None = None,
    skipped: Skipped | None = None,
) -> Steps:
    """Import definitions, into one virtual host or into the virtual hosts that they name, object by object.

    Each step is short. Nothing changes before the trial of the last object. An object that exists with the
    same description stays. An object with another description is an error, as in a declaration.

    `skipped`: takes what the import passes over. None: all of it is an error.

    Raises:
        DefinitionsError: some objects are wrong. If other clients change the broker between two steps, the
        import may end with this error after a part of the changes.
    """
    objects = yield from _form_steps(document, vhost, skipped)
    trial_broker, trial_users = yield from trial_steps(objects, broker, users, vhost)
    trial = Target(trial_broker, trial_users, dispatchers.trial_for(trial_broker), passwords)
    try:
        objects = yield from _make_all(objects, trial, vhost, skipped)
        yield from _check_queue_limits(trial.broker, broker)
    except DefinitionsError:
        yield from _delete_trial(trial.broker)
        raise
    yield from _delete_trial(trial.broker)
    yield from _make_all(objects, Target(broker, users, dispatchers, passwords), vhost)


def _make_all(
    objects: Mapping[str, list[Fields]], target: Target, vhost: str | None, skipped: Skipped | None = None
) -> Generator[None, None, Mapping[str, list[Fields]]]:
    """Make objects; return those that were made. Raises DefinitionsError."""
    problems: list[str] = []
    made: dict[str, list[Fields]] = {}
    for category, entries in objects.items():
        make, known = CATEGORIES[category]
        kept = made[category] = []
        for entry in _members_first(entries) if category == "queues" else entries:
            fields = entry if skipped is None else skipped.supported_part(category, entry, vhost)
            if fields is not None:
                try:
                    _check_fields(fields, known)
                    make(target, fields, vhost)
                    kept.append(fields)
                except BrokerError as error:
                    if skipped is None or not skipped.takes(category, fields, vhost, error):
                        problems.append(f"{_describe_object(category, fields, vhost)}: {error.text}")
                    if len(problems) == PROBLEMS_MAX:
                        raise DefinitionsError([*problems, "further problems are not shown"]) from error
            yield
    if problems:
        raise DefinitionsError(problems)
    return made


def _members_first(queues: list[Fields]) -> list[Fields]:
    """Return the queues with the partitioned ones last, because their members must exist."""
    last = [fields for fields in queues if _has_members(fields)]
    return [*(fields for fields in queues if not _has_members(fields)), *last] if last else queues


def _has_members(fields: Fields) -> bool:
    arguments = fields.get("arguments")
    return isinstance(arguments, dict) and PARTITION_MEMBERS in arguments


def _check_fields(fields: Fields, known: frozenset[str]) -> None:
    """Refuse an unknown field, which would be ignored and may be misspelt. Raises PreconditionFailed."""
    for name in fields:
        if name not in known:
            raise PreconditionFailed(f"'{name}' is not known, allowed: {', '.join(sorted(known))}")


def _check_queue_limits(trial: Broker, broker: Broker) -> Steps:
    """Check the limits of queues against the broker, as the copy has only some of the queues.

    Raises DefinitionsError.
    """
    problems: list[str] = []
    for name, vhost in trial.vhosts.items():
        limit = vhost.queues_max
        there = broker.vhosts[name].topology.queues if name in broker.vhosts else {}
        added = 0
        for queue in vhost.topology.queues:
            added += queue not in there
            yield
        if limit is not None and added and len(there) + added > limit:
            problems.append(
                f"vhost '{name}': {added} more queues would exceed the limit of {limit}, "
                f"there are {len(there)}"
            )
    if problems:
        raise DefinitionsError(problems)


def _delete_trial(trial: Broker) -> Steps:
    """Delete the queues of the copy, one by one, and their bindings in slices.

    The copy as a whole is a reference cycle. The garbage collector would free 20,000 queues in one step of
    half a second.
    """
    for vhost in trial.vhosts.values():
        while vhost.topology.queues:
            vhost.topology.remove_queue(next(reversed(vhost.topology.queues.values())))
            yield
            while vhost.topology.bindings.has_deleted():
                vhost.topology.bindings.do_due_work()
                yield


def _describe_object(category: str, fields: Fields, vhost: str | None) -> str:
    kind = {"policies": "policy"}.get(category, category.removesuffix("s").replace("_", " "))
    if category == "bindings":
        name = f"from '{fields.get('source')}' to '{fields.get('destination')}'"
    elif category in ("permissions", "topic_permissions"):
        name = f"of user '{fields.get('user')}'"
    else:
        name = f"'{fields.get('name')}'"
    where: Any = None if category == "vhosts" else fields.get("vhost", vhost)
    return f"{kind} {name}" + (f" in vhost '{where}'" if where is not None else "")


class LoadError(OSError):
    """The definitions cannot be loaded; the text names the file, and each wrong object."""


def load_definitions(
    path: Path,
    skip_unchanged: bool,
    skip_unsupported: bool,
    broker: Broker,
    users: Users,
    dispatchers: Dispatchers,
) -> None:
    """Import a file, all objects or none.

    `skip_unchanged`: do nothing if the content is that of the file loaded last. `skip_unsupported`: pass over
    what the broker does not have, with a warning for each object. Raises LoadError.
    """
    skipped = Skipped() if skip_unsupported else None
    try:
        content = path.read_bytes()
    except OSError as error:
        raise LoadError(f"load_definitions: {path} cannot be read: {error.strerror}") from error
    digest = hashlib.sha256(content).hexdigest()
    if skip_unchanged and broker.parameters.get(LOADED) == digest:
        _log.info("definitions are those loaded before", file=str(path))
        return
    try:
        document = read_json(content)
    except JsonError as error:
        raise LoadError(f"load_definitions: {path}: {error}") from error
    passwords = {user: make_password(password) for user, password in find_clear_passwords(document).items()}
    try:
        for _ in import_steps(document, broker, users, dispatchers, passwords, skipped=skipped):
            pass
    except DefinitionsError as error:
        lines = [f"load_definitions: {path} is not loaded:", *error.problems]
        raise LoadError("\n".join(lines)) from error
    for line in [] if skipped is None else skipped.lines:
        _log.warning("definition passed over", file=str(path), reason=line)
    broker.parameters.set(LOADED, digest)
    broker.apply_policies()
    _log.info("definitions loaded", file=str(path))
