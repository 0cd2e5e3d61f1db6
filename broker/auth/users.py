"""All users, with their passwords and their permissions in virtual hosts.

*Owns* the model and its durable form: changes whose kind is `user` or starts with `user.`. A change is
appended to the store of the users before the model changes. Recovery replays the changes with `apply`.
*Never* hashes a password: hashing is slow and belongs to the caller (`broker.auth.passwords`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from broker.auth.passwords import Password
from broker.auth.permissions import Permission, TopicPermission
from broker.auth.user import (
    FORWARDING_TAGS,
    IMPERSONATOR,
    USER_LIMITS,
    Change,
    User,
    apply_change,
    changes_of,
    check_name,
    checked_limits,
    checked_tags,
    limits_change,
    objections_of,
    permission_change,
    permission_deleted,
    topic_change,
    topic_deleted,
    user_change,
    user_deleted,
)
from broker.core.errors import NotFound, PreconditionFailed
from broker.core.ports import MessageStore

LOOPBACK_ONLY: Final = "guest"
"""The user that may log in from loopback only: everybody knows the name, and often the password."""


class Users:
    """All users, by name. After the log has stopped, every change raises StoreFailed.

    `on_rights_changed` is called with a user's name after every change of the user's rights, and `on_deleted`
    after the user is deleted.
    """

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._users: dict[str, User] = {}
        self.on_rights_changed: Callable[[str], None] = _ignore
        self.on_deleted: Callable[[str], None] = _ignore

    def __len__(self) -> int:
        return len(self._users)

    def get(self, name: str) -> User | None:
        """The user called `name`, if there is one."""
        return self._users.get(name)

    def require_user(self, name: str) -> User:
        """The user called `name`. Raises NotFound."""
        user = self._users.get(name)
        if user is None:
            raise NotFound(f"no user '{name}'")
        return user

    def names(self) -> list[str]:
        """Return the names of all users, sorted."""
        return sorted(self._users)

    # -- users

    def add(
        self, name: str, password: Password, tags: Iterable[str] = (), loopback_only: bool | None = None
    ) -> User:
        """Add a user without permissions. Raises PreconditionFailed if the name is taken or malformed.

        By default `loopback_only` is true for `guest` alone.
        """
        if name in self._users:
            raise PreconditionFailed(f"user '{name}' exists already")
        return self.put(name, password, tags, loopback_only)

    def put(
        self,
        name: str,
        password: Password | None,
        tags: Iterable[str] = (),
        loopback_only: bool | None = None,
    ) -> User:
        """Add a user, or replace the password and tags of an existing user, who keeps permissions and limits.

        Without `password` or `loopback_only` a user keeps the present value. Raises PreconditionFailed if the
        name or a tag is malformed, and for a new user without a password.
        """
        self._store.require()
        checked = checked_tags(name, tags)
        old = self._users.get(name)
        if old is None:
            if password is None:
                raise PreconditionFailed(f"user '{name}' is new, and needs a password or a password hash")
            check_name(name)
        if loopback_only is None:
            loopback_only = name == LOOPBACK_ONLY if old is None else old.loopback_only
        if password is None:
            assert old is not None, "a new user has been refused"
            password = old.password
        self._append(user_change(name, password, checked, loopback_only))
        if old is None:
            user = User(name, password, checked, loopback_only)
        elif password == old.password:
            user = old
            user.tags = checked
            user.loopback_only = loopback_only
        else:
            user = old.replaced(password, checked, loopback_only)
        self._users[name] = user
        self.on_rights_changed(name)
        return user

    def delete(self, name: str) -> None:
        """Delete the user and all permissions. Raises NotFound."""
        self._user_to_change(name)
        self._append(user_deleted(name))
        del self._users[name]
        self.on_deleted(name)

    def add_first(self, name: str, password: Password, vhost: str) -> bool:
        """Add the first user, an administrator with all permissions in `vhost`; False if users exist."""
        if self._users:
            return False
        self.add(name, password, tags=("administrator",))
        self.permit(name, vhost, ".*", ".*", ".*")
        return True

    # -- permissions and limits

    def permit(self, name: str, vhost: str, configure: str, write: str, read: str) -> None:
        """Allow the user to open `vhost`, with the rights that the regular expressions give there.

        Raises NotFound for the user. Raises PreconditionFailed for an unusable expression, unless the user
        has the very same permission already.
        """
        user = self._user_to_change(name)
        permission = Permission(configure, write, read)
        old = user.permissions.get(vhost)
        if permission.objection and (old is None or not old.equals(permission)):
            raise PreconditionFailed(permission.objection)
        self._append(permission_change(name, vhost, permission))
        user.permissions[vhost] = permission
        self.on_rights_changed(name)

    def forbid(self, name: str, vhost: str) -> None:
        """Delete the permission that `permit` set, if there is one. Raises NotFound for the user."""
        user = self._user_to_change(name)
        if vhost in user.permissions:
            self._append(permission_deleted(name, vhost))
            del user.permissions[vhost]
            self.on_rights_changed(name)

    def permit_topic(self, name: str, vhost: str, exchange: str, write: str, read: str) -> None:
        """Restrict the user's routing keys at a topic exchange by regular expressions.

        Raises NotFound for the user. Raises PreconditionFailed for an unusable expression, unless the user
        has the very same permission already.
        """
        user = self._user_to_change(name)
        topic = TopicPermission(write, read)
        old = user.topics.get((vhost, exchange))
        if topic.objection and (old is None or not old.equals(topic)):
            raise PreconditionFailed(topic.objection)
        self._append(topic_change(name, vhost, exchange, topic))
        user.topics[vhost, exchange] = topic
        self.on_rights_changed(name)

    def forget_topic(self, name: str, vhost: str, exchange: str | None = None) -> None:
        """Delete the restrictions of `permit_topic` at an exchange, or at all of `vhost`. Raises NotFound."""
        user = self._user_to_change(name)
        keys = [key for key in user.topics if key[0] == vhost and exchange in (None, key[1])]
        for key in keys:
            self._append(topic_deleted(name, *key))
            del user.topics[key]
        if keys:
            self.on_rights_changed(name)

    def forget_vhost(self, vhost: str) -> None:
        """Delete the permissions of all users in a deleted virtual host."""
        for name in self.names():
            self.forbid(name, vhost)
            self.forget_topic(name, vhost)

    def set_limits(self, name: str, limits: Mapping[str, int]) -> None:
        """Replace the user's limits: `max-connections` and `max-channels`; negative: none. Raises NotFound.

        Raises PreconditionFailed for an unknown limit, or a limit that is no whole number.
        """
        user = self._user_to_change(name)
        checked = checked_limits(limits, USER_LIMITS)
        if checked != user.limits:
            self._append(limits_change(name, checked))
            user.limits = checked

    def permissions_in(self, vhost: str) -> list[tuple[str, Permission]]:
        """Return the users that may open `vhost`, by name, with their permissions there."""
        permissions = ((name, self._users[name].permissions.get(vhost)) for name in self.names())
        return [(name, permission) for name, permission in permissions if permission is not None]

    def topics_in(self, vhost: str) -> list[tuple[str, str, TopicPermission]]:
        """Return user, exchange and topic permission for each topic permission in `vhost`."""
        return [
            (name, exchange, topic)
            for name in self.names()
            for (where, exchange), topic in self._users[name].topics.items()
            if where == vhost
        ]

    # -- checks

    def may_access(self, name: str, vhost: str) -> bool:
        """Whether the user may open `vhost`."""
        user = self._users.get(name)
        return user is not None and vhost in user.permissions

    def is_allowed(self, name: str, vhost: str, right: str, resource: str) -> bool:
        """Whether the user may configure, write or read (`right`) the exchange or queue `resource`."""
        user = self._users.get(name)
        permission = user.permissions.get(vhost) if user is not None else None
        return permission is not None and permission.allows(right, resource)

    def is_topic_allowed(self, name: str, vhost: str, right: str, exchange: str, routing_key: str) -> bool:
        """Whether the user may publish (write) or bind (read) with `routing_key` at a topic exchange."""
        user = self._users.get(name)
        if user is None:
            return False
        topic = user.topics.get((vhost, exchange))
        if topic is None:
            return True
        return topic.allows(right, routing_key, {"username": name, "vhost": vhost})

    def may_impersonate(self, name: str) -> bool:
        """Whether the user may publish in the name of others."""
        user = self._users.get(name)
        return user is not None and IMPERSONATOR in user.tags

    def may_forward(self, name: str) -> bool:
        """Whether the user may have the broker connect to other brokers: a policymaker or administrator."""
        user = self._users.get(name)
        return user is not None and any(tag in user.tags for tag in FORWARDING_TAGS)

    def limit(self, name: str, kind: str) -> int | None:
        """The user's limit `max-connections` or `max-channels`, if it is set."""
        user = self._users.get(name)
        return None if user is None else user.limits.get(kind)

    # -- the durable form

    def describe(self) -> Iterator[list[Change]]:
        """Return the changes that make exactly these users from an empty store, a list for each user.

        Users may change between two lists, as in `Broker.describe`.
        """
        for name in list(self._users):
            user = self._users.get(name)
            yield [] if user is None else changes_of(user)

    def objections(self) -> list[str]:
        """Return the reasons why recovered permissions are unusable; such a permission allows nothing."""
        return [objection for user in self._users.values() for objection in objections_of(user)]

    def apply(self, change: Change) -> None:
        """Apply a change at recovery, without appending. Changes of an absent user are ignored."""
        apply_change(self._users, change)

    def _append(self, change: Change) -> None:
        self._store.append_definition(change)

    def _user_to_change(self, name: str) -> User:
        self._store.require()
        return self.require_user(name)


def _ignore(name: str) -> None:
    """Do nothing: the default of `on_rights_changed` and `on_deleted`."""
