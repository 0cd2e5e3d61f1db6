"""The settings of a running broker: shown with their origins, and in part changed without a restart."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from pydantic import ValidationError

from config.settings import Settings, allowed_values, is_secret, word_for_absent

HIDDEN: Final = "(not shown)"
"""The value that a secret is shown with."""

DEFAULT: Final = "default"
BY_OPERATOR: Final = "an operator, until the next start"
"""The origin of a value that was changed while the broker runs."""

Apply = Callable[[Any], None]
"""Puts the new value of a setting into effect."""


class UnchangeableError(Exception):
    """A setting cannot get a value while the broker runs; the text names both, and says what is allowed."""


def plain_value(name: str, settings: Settings) -> object:
    """Return the value of a setting as JSON has it; secrets are hidden."""
    value = getattr(settings, name)
    if is_secret(name):
        return HIDDEN
    if value is None:
        return word_for_absent(name)
    if isinstance(value, tuple):
        return [str(item) for item in value]
    return value if isinstance(value, (bool, int)) else str(value)


class RunningSettings:
    """The settings in effect. A change holds until the next start, and is not written to any file.

    `sources`: the place that set each setting; settings without a place have their defaults. `appliers`: the
    settings that may change, each with the function that puts a value into effect.
    """

    def __init__(
        self, settings: Settings, sources: Mapping[str, str], appliers: Mapping[str, Apply] | None = None
    ) -> None:
        self._values = settings
        self._sources = dict(sources)
        self._appliers = dict(appliers or {})

    def show(self) -> list[dict[str, object]]:
        """Return each setting: name, value, source, whether it may change without a restart."""
        return [
            {
                "name": name,
                "value": plain_value(name, self._values),
                "source": self._sources.get(name, DEFAULT),
                "changeable": name in self._appliers,
            }
            for name in Settings.model_fields
        ]

    def change(self, name: str, value: object) -> None:
        """Change a setting until the next start. Raises UnchangeableError, KeyError: no such setting."""
        if name not in Settings.model_fields:
            raise KeyError(name)
        if name not in self._appliers:
            raise UnchangeableError(
                f"setting '{name}' needs a restart of the broker; "
                f"changeable while it runs: {', '.join(sorted(self._appliers))}"
            )
        try:
            checked = getattr(Settings.model_validate({name: value}), name)
        except ValidationError as error:
            raise UnchangeableError(
                f"setting '{name}' cannot be {value!r}, allowed: {allowed_values(name)}"
            ) from error
        self._appliers[name](checked)
        self._values = self._values.model_copy(update={name: checked})
        self._sources[name] = BY_OPERATOR
