"""Users: who there is, with what password hash, and what each may do in which virtual host.

*Owns* the model and its durable form, changes whose kind is `user` or starts with `user.`; they are appended
to the store that the users were made with, and come back by `apply`.
*Never* hashes a password: that is slow and belongs to the caller (`broker.auth.passwords`).
"""

from collections.abc import Callable, Iterable
from typing import Final, cast, final

from broker.auth.permissions import Permission
from broker.core.errors import NotFound, PreconditionFailed, StoreFailed
from broker.core.ports import MessageStore

NAME_BYTES_MAX: Final = 255

Change = dict[str, object]


@final
class User:
    """One user. Replaced, not changed, with the password: `remembered` belongs to this password alone."""

    __slots__ = ("loopback_only", "name", "password_hash", "permissions", "remembered", "tags")

    def __init__(
        self,
        name: str,
        password_hash: str,
        tags: tuple[str, ...],
        loopback_only: bool,
        permissions: dict[str, Permission],
    ) -> None:
        self.name = name
        self.password_hash = password_hash
        self.tags = tags
        self.loopback_only = loopback_only
        self.permissions = permissions
        """By virtual host; none: the user may not open it."""
        self.remembered = b""
        """Digest of the password, once it was right; see `Authenticator`."""


class Users:
    """All users, by name. Once the log has stopped, whatever would change them raises StoreFailed."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._users: dict[str, User] = {}

    def __len__(self) -> int:
        return len(self._users)

    def get(self, name: str) -> User | None:
        """The user called `name`, if there is one."""
        return self._users.get(name)

    def names(self) -> list[str]:
        """Everybody's names, in order."""
        return sorted(self._users)

    def add(
        self, name: str, password_hash: str, tags: Iterable[str] = (), loopback_only: bool = False
    ) -> User:
        """Add a user who may do nothing yet. Raises PreconditionFailed if the name is taken or malformed."""
        self._require_log()
        if name in self._users:
            raise PreconditionFailed(f"user '{name}' exists already")
        if not 0 < len(name.encode("utf-8", "surrogatepass")) <= NAME_BYTES_MAX or not name.isprintable():
            raise PreconditionFailed(f"a user's name is 1 to {NAME_BYTES_MAX} bytes of printable text")
        return self._put(User(name, password_hash, tuple(tags), loopback_only, {}))

    def change_password(self, name: str, password_hash: str) -> None:
        """Give the user another password; the old one is worth nothing from now on. Raises NotFound."""
        user = self._known(name)
        self._put(User(name, password_hash, user.tags, user.loopback_only, user.permissions))

    def change_tags(self, name: str, tags: Iterable[str]) -> None:
        """Replace the user's tags. Raises NotFound."""
        user = self._known(name)
        user.tags = tuple(tags)
        self._put(user)

    def delete(self, name: str) -> None:
        """Delete the user and all permissions. Raises NotFound."""
        del self._users[self._known(name).name]
        self._append({"kind": "user.delete", "name": name})

    def permit(self, name: str, vhost: str, configure: str, write: str, read: str) -> None:
        """Let the user open `vhost`, and there do what the regular expressions match.

        Raises NotFound for the user, PreconditionFailed for an expression that is none.
        """
        user = self._known(name)
        user.permissions[vhost] = Permission(configure, write, read)
        self._append(_permission_change(user, vhost))

    def forbid(self, name: str, vhost: str) -> None:
        """Take back what `permit` gave, if it did. Raises NotFound for the user."""
        if self._known(name).permissions.pop(vhost, None) is not None:
            self._append({"kind": "user.permission.delete", "name": name, "vhost": vhost})

    def add_first(self, name: str, password_hash: Callable[[], str], vhost: str) -> bool:
        """Add the first user, an administrator who may do everything in `vhost`; False if users exist.

        The well-known `guest` may come from loopback only, whatever the password. `password_hash` is called
        only if it is needed.
        """
        if self._users:
            return False
        self.add(name, password_hash(), tags=("administrator",), loopback_only=name == "guest")
        self.permit(name, vhost, ".*", ".*", ".*")
        return True

    def may_access(self, name: str, vhost: str) -> bool:
        """Whether the user may open `vhost`."""
        user = self._users.get(name)
        return user is not None and vhost in user.permissions

    def allowed(self, name: str, vhost: str, what: str, resource: str) -> bool:
        """Whether the user may `what` (configure, write or read) the exchange or queue called `resource`."""
        user = self._users.get(name)
        permission = user.permissions.get(vhost) if user is not None else None
        return permission is not None and permission.allows(what, resource)

    def definitions(self) -> list[Change]:
        """Changes that make exactly these users out of nobody."""
        changes: list[Change] = []
        for user in self._users.values():
            changes.append(_user_change(user))
            changes += [_permission_change(user, vhost) for vhost in user.permissions]
        return changes

    def apply(self, change: Change) -> None:
        """Make one change again, at recovery, without appending. What concerns an absent user is ignored."""
        kind, name = change["kind"], cast("str", change["name"])
        known = self._users.get(name)
        if kind == "user":
            self._users[name] = User(
                name,
                cast("str", change["password_hash"]),
                tuple(cast("list[str]", change["tags"])),
                bool(change["loopback_only"]),
                known.permissions if known is not None else {},
            )
        elif kind == "user.delete":
            self._users.pop(name, None)
        elif kind == "user.permission":
            if known is not None:
                expressions = (cast("str", change[what]) for what in ("configure", "write", "read"))
                known.permissions[cast("str", change["vhost"])] = Permission(*expressions)
        elif kind == "user.permission.delete":
            if known is not None:
                known.permissions.pop(cast("str", change["vhost"]), None)
        else:
            raise ValueError(f"unknown change of users: {kind}")

    def _put(self, user: User) -> User:
        self._users[user.name] = user
        self._append(_user_change(user))
        return user

    def _append(self, change: Change) -> None:
        self._store.append_definition(change)

    def _require_log(self) -> None:
        if self._store.failure:
            raise StoreFailed(f"the log has stopped: {self._store.failure}")

    def _known(self, name: str) -> User:
        """The user to be changed."""
        self._require_log()
        user = self._users.get(name)
        if user is None:
            raise NotFound(f"no user '{name}'")
        return user


def _user_change(user: User) -> Change:
    return {
        "kind": "user",
        "name": user.name,
        "password_hash": user.password_hash,
        "tags": list(user.tags),
        "loopback_only": user.loopback_only,
    }


def _permission_change(user: User, vhost: str) -> Change:
    permission = user.permissions[vhost]
    return {
        "kind": "user.permission",
        "name": user.name,
        "vhost": vhost,
        "configure": permission.configure,
        "write": permission.write,
        "read": permission.read,
    }
