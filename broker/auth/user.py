"""Users, and the changes that describe users in the log: JSON-able dicts whose kind begins with `user`."""

from collections.abc import Iterable, Mapping
from typing import Final, cast, final

from broker.auth.passwords import ARGON2ID, Password
from broker.auth.permissions import Permission, TopicPermission
from broker.auth.terms import MAX_CHANNELS, MAX_CONNECTIONS
from broker.core.errors import PreconditionFailed
from protocol.scram import NAME_BYTES_MAX

USER: Final = "user"
PERMISSION: Final = "user.permission"
TOPIC: Final = "user.topic"
LIMITS: Final = "user.limits"
DELETED: Final = ".delete"  # appended to the kind

IMPERSONATOR: Final = "impersonator"
"""The tag of users who may publish in the name of others."""

FORWARDING_TAGS: Final = ("administrator", "policymaker")
"""The tags of users who may have the broker connect to other brokers."""

USER_LIMITS: Final = (MAX_CONNECTIONS, MAX_CHANNELS)

TAGS_MAX: Final = 32

Change = dict[str, object]


@final
class User:
    """A user. A new password makes a new User, because `remembered` belongs to the old password alone."""

    __slots__ = ("limits", "loopback_only", "name", "password", "permissions", "remembered", "tags", "topics")

    def __init__(self, name: str, password: Password, tags: tuple[str, ...], loopback_only: bool) -> None:
        self.name = name
        self.password = password
        self.tags = tags
        self.loopback_only = loopback_only
        self.permissions: dict[str, Permission] = {}
        """By virtual host; without a permission the user may not open the virtual host."""
        self.topics: dict[tuple[str, str], TopicPermission] = {}
        """By virtual host and exchange; without a topic permission every routing key is allowed."""
        self.limits: dict[str, int] = {}
        """The limits `max-connections` and `max-channels`, if set."""
        self.remembered = b""
        """The digest of a password that was right, b"" if unknown; see `Authenticator`."""

    def replaced(self, password: Password, tags: tuple[str, ...], loopback_only: bool) -> "User":
        """Return the same user with another password, without the digest of the old password."""
        user = User(self.name, password, tags, loopback_only)
        user.permissions = self.permissions
        user.topics = self.topics
        user.limits = self.limits
        return user


def user_change(name: str, password: Password, tags: tuple[str, ...], loopback_only: bool) -> Change:
    """The change that sets a user, except permissions and limits."""
    return {
        "kind": USER,
        "name": name,
        "password_hash": password.hash,
        "hashing": password.hashing,
        "verifier": password.verifier,
        "tags": list(tags),
        "loopback_only": loopback_only,
    }


def user_deleted(name: str) -> Change:
    """The change that deletes a user with all permissions."""
    return {"kind": USER + DELETED, "name": name}


def permission_change(name: str, vhost: str, permission: Permission) -> Change:
    """The change that sets a user's permission in a virtual host."""
    return {
        "kind": PERMISSION,
        "name": name,
        "vhost": vhost,
        "configure": permission.configure,
        "write": permission.write,
        "read": permission.read,
    }


def permission_deleted(name: str, vhost: str) -> Change:
    """The change that deletes a user's permission in a virtual host."""
    return {"kind": PERMISSION + DELETED, "name": name, "vhost": vhost}


def topic_change(name: str, vhost: str, exchange: str, topic: TopicPermission) -> Change:
    """The change that sets a user's permission for routing keys of a topic exchange."""
    return {
        "kind": TOPIC,
        "name": name,
        "vhost": vhost,
        "exchange": exchange,
        "write": topic.write,
        "read": topic.read,
    }


def topic_deleted(name: str, vhost: str, exchange: str) -> Change:
    """The change that allows a user all routing keys of a topic exchange again."""
    return {"kind": TOPIC + DELETED, "name": name, "vhost": vhost, "exchange": exchange}


def limits_change(name: str, limits: Mapping[str, int]) -> Change:
    """The change that replaces a user's limits."""
    return {"kind": LIMITS, "name": name, "limits": dict(limits)}


def changes_of(user: User) -> list[Change]:
    """Return the changes that make exactly this user."""
    name = user.name
    changes = [user_change(name, user.password, user.tags, user.loopback_only)]
    changes += [permission_change(name, vhost, permission) for vhost, permission in user.permissions.items()]
    changes += [topic_change(name, *key, permission) for key, permission in user.topics.items()]
    if user.limits:
        changes.append(limits_change(name, user.limits))
    return changes


def objections_of(user: User) -> list[str]:
    """Return the reasons why permissions of a user are unusable; such a permission allows nothing."""
    objections = [
        f"a permission of user '{user.name}' in vhost '{vhost}': {permission.objection}"
        for vhost, permission in user.permissions.items()
        if permission.objection
    ]
    objections += [
        f"the topic permission of user '{user.name}' for exchange '{exchange}' in vhost '{vhost}': "
        f"{topic.objection}"
        for (vhost, exchange), topic in user.topics.items()
        if topic.objection
    ]
    return objections


def apply_change(users: dict[str, User], change: Change) -> None:
    """Apply a change at recovery. Changes of an absent user are ignored. Raises ValueError."""
    kind, name = change["kind"], _text(change, "name")
    known = users.get(name)
    if kind == USER:
        password = Password(
            _text(change, "password_hash"),
            cast("str", change.get("hashing", ARGON2ID)),
            cast("str", change.get("verifier", "")),
        )
        old = known if known is not None else User(name, password, (), False)
        tags = tuple(cast("list[str]", change["tags"]))
        users[name] = old.replaced(password, tags, bool(change["loopback_only"]))
    elif kind == USER + DELETED:
        users.pop(name, None)
    elif kind not in (PERMISSION, PERMISSION + DELETED, TOPIC, TOPIC + DELETED, LIMITS):
        raise ValueError(f"unknown change of users: {kind}")
    elif known is not None:
        _apply_to(known, change)


def _apply_to(user: User, change: Change) -> None:
    kind = change["kind"]
    if kind == LIMITS:
        user.limits = dict(cast("Mapping[str, int]", change["limits"]))
        return
    vhost = _text(change, "vhost")
    if kind == PERMISSION:
        expressions = (_text(change, right) for right in ("configure", "write", "read"))
        user.permissions[vhost] = Permission(*expressions)
    elif kind == PERMISSION + DELETED:
        user.permissions.pop(vhost, None)
    elif kind == TOPIC:
        topic = TopicPermission(_text(change, "write"), _text(change, "read"))
        user.topics[vhost, _text(change, "exchange")] = topic
    else:
        user.topics.pop((vhost, _text(change, "exchange")), None)


def _text(change: Change, field: str) -> str:
    return cast("str", change[field])


def check_name(name: str) -> None:
    """Refuse a name that no user may have. Raises PreconditionFailed."""
    if not 0 < len(name.encode("utf-8", "surrogatepass")) <= NAME_BYTES_MAX or not name.isprintable():
        raise PreconditionFailed(f"a user's name is 1 to {NAME_BYTES_MAX} bytes of printable text")


def checked_limits(limits: Mapping[str, int], names: Iterable[str]) -> dict[str, int]:
    """Return limits by name without the negative ones. Raises PreconditionFailed for any other mistake."""
    for name, value in limits.items():
        if name not in names:
            raise PreconditionFailed(f"limit '{name}' is not known, allowed: {', '.join(names)}")
        if not isinstance(value, int) or isinstance(value, bool):
            raise PreconditionFailed(f"limit '{name}' is {value!r} and not a whole number")
    return {name: value for name, value in limits.items() if value >= 0}


def checked_tags(name: str, tags: Iterable[str]) -> tuple[str, ...]:
    """Return the tags without duplicates. Raises PreconditionFailed."""
    checked = tuple(dict.fromkeys(tags))
    for tag in checked:
        if (
            not tag
            or not tag.isprintable()
            or "," in tag
            or len(tag.encode("utf-8", "replace")) > NAME_BYTES_MAX
        ):
            raise PreconditionFailed(f"tag {tag!r} of user '{name}' is not 1 to 255 bytes of printable text")
    if len(checked) > TAGS_MAX:
        raise PreconditionFailed(f"user '{name}' has {len(checked)} tags, at most {TAGS_MAX} are allowed")
    return checked
