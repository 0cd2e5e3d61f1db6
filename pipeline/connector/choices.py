"""What `.option(name, value)` said, held to types: each refusal names the option and the value."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from pipeline.errors import PipelineError

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class OptionError(PipelineError):
    """An option is wrong, or one is missing."""


class Choices:
    """Options by their names, in which case does not count; values are text.

    Every function raises OptionError. What has been asked for is known then, and `refuse_others` names the
    rest.
    """

    def __init__(self, given: Mapping[str, str], source: str = "amqp") -> None:
        self._source = source
        self._given = {name.lower(): str(value) for name, value in given.items()}
        self._asked: set[str] = set()

    def text(self, *names: str) -> str | None:
        """The value of the first of these names that is given: the others are older names of it."""
        self._asked |= {name.lower() for name in names}
        found = [name for name in names if name.lower() in self._given]
        if len(found) > 1:
            raise OptionError(f"options '{found[0]}' and '{found[1]}' are the same: one of them is enough")
        return self._given[found[0].lower()] if found else None

    def one_of(self, name: str, allowed: Iterable[str], default: str) -> str:
        """One of some words."""
        value = self.text(name)
        words = list(allowed)
        if value is None:
            return default
        for word in words:
            if value.lower() == word.lower():
                return word
        raise OptionError(f"option '{name}' is '{value}'; it is one of {', '.join(words)}")

    def flag(self, name: str, default: bool) -> bool:
        """True or false."""
        return self.one_of(name, ("true", "false"), str(default).lower()) == "true"

    def number(self, name: str, default: int, least: int = 1) -> int:
        """A whole number, `least` or more."""
        found = self.count(name, least=least)
        return default if found is None else found

    def count(self, *names: str, least: int = 1) -> int | None:
        """A whole number, `least` or more; None if it is not said."""
        value = self.text(*names)
        if value is None:
            return None
        if not re.fullmatch(r"-?\d+", value) or int(value) < least:
            raise OptionError(f"option '{names[0]}' is '{value}'; it is a whole number from {least} on")
        return int(value)

    def seconds(self, name: str, default: float) -> float:
        """A time such as 500ms, 30s, 15m, 1h, in seconds."""
        value = self.text(name)
        if value is None:
            return default
        found = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", value.strip())
        if found is None:
            raise OptionError(f"option '{name}' is '{value}'; it is a time such as 500ms, 30s or 15m")
        return float(found[1]) * _UNITS[found[2]]

    def refuse_others(self, known: Iterable[str] = ()) -> None:
        """Refuse what nobody has asked for and is not `known`."""
        left = self._given.keys() - self._asked - {name.lower() for name in known}
        if left:
            raise OptionError(f"format '{self._source}' has no option '{min(left)}'")
