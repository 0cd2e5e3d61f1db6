"""The connections that are open, by virtual host and by user."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol, final

from mypy_extensions import i64


class OpenConnection(Protocol):
    """A connection of any protocol after its log-in and the choice of its virtual host."""

    def rights_changed(self) -> None:
        """What the user may do is no longer what it was: nothing that was decided before holds."""

    def shortage_began(self) -> None:
        """Whatever publishes from now on has to be held."""

    def log_is_behind(self) -> None:
        """Publish nothing more until what has been appended is on disk."""

    def force_close(self, reason: str) -> None:
        """Close the connection: an operator wants it so, or what it works with is gone."""


@final
class Connections:
    """All open connections of the daemon, in the order in which they were opened."""

    def __init__(self) -> None:
        self.all: Final[dict[OpenConnection, None]] = {}
        self._of_user: dict[str, dict[OpenConnection, None]] = {}
        self._in_vhost: dict[str, dict[OpenConnection, None]] = {}
        self._channels: dict[str, int] = {}

    def add(self, connection: OpenConnection, user: str, vhost: str) -> None:
        """A connection has been opened."""
        self.all[connection] = None
        self._of_user.setdefault(user, {})[connection] = None
        self._in_vhost.setdefault(vhost, {})[connection] = None

    def remove(self, connection: OpenConnection, user: str, vhost: str) -> None:
        """A connection is gone; nothing happens if it was never added, or has been removed."""
        if self.all.pop(connection, 0) is None:
            _remove(self._of_user, user, connection)
            _remove(self._in_vhost, vhost, connection)

    def of_user(self, user: str) -> list[OpenConnection]:
        """The connections of a user."""
        return list(self._of_user.get(user, ()))

    def in_vhost(self, vhost: str) -> list[OpenConnection]:
        """The connections to a virtual host."""
        return list(self._in_vhost.get(vhost, ()))

    def count_of_user(self, user: str) -> int:
        """How many connections a user has."""
        return len(self._of_user.get(user, ()))

    def count_in_vhost(self, vhost: str) -> int:
        """How many connections there are to a virtual host."""
        return len(self._in_vhost.get(vhost, ()))

    def channels_of_user(self, user: str) -> int:
        """How many channels (sessions) a user has open."""
        return self._channels.get(user, 0)

    def add_channels(self, user: str, count: i64) -> None:
        """A user has opened channels; with a negative count, closed some."""
        left = self._channels.get(user, 0) + count
        if left > 0:
            self._channels[user] = left
        else:
            self._channels.pop(user, None)

    # -- what others tell them

    def rights_changed(self, user: str) -> None:
        """What a user may do has changed."""
        for connection in self.of_user(user):
            connection.rights_changed()

    def user_deleted(self, user: str) -> None:
        """A user is gone, and all connections with him. [RabbitMQ connection tracking]"""
        close_all(self.of_user(user), f"user '{user}' is deleted")

    def vhost_deleted(self, vhost: str) -> None:
        """A virtual host is gone, and all connections with it. [RabbitMQ connection tracking]"""
        close_all(self.in_vhost(vhost), f"vhost '{vhost}' is deleted")


def close_all(connections: Iterable[OpenConnection], reason: str) -> None:
    """Close connections, saying why."""
    for connection in connections:
        connection.force_close(reason)


def _remove(group: dict[str, dict[OpenConnection, None]], name: str, connection: OpenConnection) -> None:
    members = group[name]
    del members[connection]
    if not members:
        del group[name]
