"""The parameters of a virtual host: JSON values of components, such as shovels. [RabbitMQ parameters]

The core stores the values and does not read them. The component that understands a value has checked it
before, and is notified of each change.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Final, final

from broker.core.errors import NotFound, PreconditionFailed
from broker.core.names import check_length
from broker.core.ports import MessageStore
from broker.core.vhosts.changes import DELETED, Change, text_of

COMPONENT: Final = "component"


def is_same(one: object, other: object) -> bool:
    """Whether two values are the same JSON: 1, 1.0 and true are three, though equal to Python."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _notify_nobody(component: str, name: str) -> None:
    """Do nothing: no component runs in this process."""


@final
class VhostParameters:
    """The parameters of the virtual host `vhost`, by component and name.

    `changed` is called with component and name after a parameter was set or deleted, and not at recovery.
    """

    def __init__(self, vhost: str, store: MessageStore) -> None:
        self.changed: Callable[[str, str], None] = _notify_nobody
        self._vhost = vhost
        self._store = store
        self._values: dict[tuple[str, str], object] = {}

    def get(self, component: str, name: str) -> object:
        """Return the value of a parameter, None without one."""
        return self._values.get((component, name))

    def has(self, component: str, name: str) -> bool:
        """Whether there is such a parameter."""
        return (component, name) in self._values

    def items(self, component: str | None = None) -> list[tuple[str, str, object]]:
        """Return component, name and value of all parameters, or those of a component, in order."""
        return [
            (kind, name, value)
            for (kind, name), value in sorted(self._values.items(), key=_key)
            if component in (None, kind)
        ]

    def set(self, component: str, name: str, value: object) -> None:
        """Set the value of a parameter, which its component has checked.

        Raises:
            PreconditionFailed: the name is empty, longer than 255 bytes or not valid UTF-8.
            StoreFailed: the log has stopped.
        """
        if not name:
            raise PreconditionFailed(f"a parameter of component '{component}' needs a name")
        check_length("parameter name", name)
        if (component, name) in self._values and is_same(self._values[component, name], value):
            return
        self._store.require()
        self._store.append_definition(self._change(component, name, value))
        self._values[component, name] = value
        self.changed(component, name)

    def delete(self, component: str, name: str) -> None:
        """Delete a parameter.

        Raises:
            NotFound: there is no such parameter.
            StoreFailed: the log has stopped.
        """
        if (component, name) not in self._values:
            raise NotFound(f"no parameter '{name}' of component '{component}' in vhost '{self._vhost}'")
        self._store.require()
        change: Change = {"kind": COMPONENT + DELETED, "vhost": self._vhost}
        self._store.append_definition(change | {"component": component, "name": name})
        del self._values[component, name]
        self.changed(component, name)

    def describe(self) -> Iterator[list[Change]]:
        """Yield the changes that recreate the parameters, as they are when each list is yielded."""
        for component, name in list(self._values):
            there = (component, name) in self._values
            yield [self._change(component, name, self._values[component, name])] if there else []

    def apply(self, change: Change) -> None:
        """Apply a change from the log. Raises ValueError for a malformed change."""
        named = {field: each for field, each in change.items() if field != "value"}  # errors quote no secrets
        key = text_of(named, "component"), text_of(named, "name")
        if change["kind"] == COMPONENT + DELETED:
            self._values.pop(key, None)
        elif change["kind"] == COMPONENT:
            self._values[key] = change.get("value")
        else:
            raise ValueError(f"no change of a parameter: {named}")

    def _change(self, component: str, name: str, value: object) -> Change:
        return {
            "kind": COMPONENT,
            "vhost": self._vhost,
            "component": component,
            "name": name,
            "value": value,
        }


def _key(item: tuple[tuple[str, str], object]) -> tuple[str, str]:
    return item[0]
