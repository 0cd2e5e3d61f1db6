"""Global parameters: values that clients and tools keep with the broker, under names of their choice."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final, final

from broker.core.errors import NotFound, PreconditionFailed
from broker.core.names import check_length

PARAMETER: Final = "parameter"
_DELETED: Final = PARAMETER + ".delete"

INTERNAL: Final = "internal"
"""How the names of parameters begin that are about this one broker and no other. [RabbitMQ]"""

CLUSTER_NAME: Final = "cluster_name"
"""The parameter that names the broker. [RabbitMQ]"""

Change = dict[str, object]


def _same(one: object, other: object) -> bool:
    """Whether two values are the same JSON: 1, 1.0 and true are three, though equal to Python."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


@final
class Parameters:
    """What JSON can hold, by name. [RabbitMQ global parameters]

    `append` takes a change to the log, and raises StoreFailed when that has stopped.
    """

    def __init__(self, append: Callable[[Change], None]) -> None:
        self._values: dict[str, object] = {}
        self._append = append

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def get(self, name: str) -> object:
        """The value of a parameter, None if there is none."""
        return self._values.get(name)

    def items(self) -> list[tuple[str, object]]:
        """All names with their values, in order."""
        return sorted(self._values.items())

    def set(self, name: str, value: object) -> None:
        """Give a parameter a value.

        Raises:
            PreconditionFailed: the name is empty or longer than 255 bytes.
            StoreFailed: the log has stopped.
        """
        if not name:
            raise PreconditionFailed("a parameter needs a name")
        check_length("parameter name", name)
        if name not in self._values or not _same(self._values[name], value):
            self._append({"kind": PARAMETER, "name": name, "value": value})
            self._values[name] = value

    def delete(self, name: str) -> None:
        """Forget a parameter.

        Raises:
            NotFound: there is none of this name.
            StoreFailed: the log has stopped.
        """
        if name not in self._values:
            raise NotFound(f"no global parameter '{name}'")
        self._append({"kind": _DELETED, "name": name})
        del self._values[name]

    def changes(self) -> list[Change]:
        """The changes that make these parameters again."""
        return [{"kind": PARAMETER, "name": name, "value": value} for name, value in self.items()]

    def apply(self, change: Change) -> None:
        """Make one change again, at recovery.

        Raises:
            ValueError: it is no change of a parameter.
        """
        name = change.get("name")
        if not isinstance(name, str) or change.get("kind") not in (PARAMETER, _DELETED):
            raise ValueError(f"no change of a parameter: {change}")
        if change["kind"] == _DELETED:
            self._values.pop(name, None)
        else:
            self._values[name] = change.get("value")
