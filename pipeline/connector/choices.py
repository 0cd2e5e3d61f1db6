"""Values of options with their types, and URLs without their credentials for messages."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Final
from urllib.parse import SplitResult, urlsplit

from pipeline.errors import PipelineError

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}

_NEXT: Final = r",\s*(?:amqp|http)s?://"
_LOGIN: Final = re.compile(rf"(^\s*(?:\w+://)?|{_NEXT})(?:(?!{_NEXT}).)*@", re.DOTALL | re.IGNORECASE)


class OptionError(PipelineError):
    """An option is wrong, or one is missing."""


class Choices:
    """Options by name, ignoring case; values are text.

    All functions raise OptionError. Every option that was read counts as known; `refuse_others` refuses the
    rest.
    """

    def __init__(self, given: Mapping[str, str], source: str = "amqp") -> None:
        self._source = source
        self._given = {name.lower(): str(value) for name, value in given.items()}
        self._asked: set[str] = set()

    def text(self, *names: str) -> str | None:
        """Return the value of the first given name of an option; the later names are older ones."""
        self._asked |= {name.lower() for name in names}
        spellings = [name for name in names if name.lower() in self._given]
        if len(spellings) > 1:
            raise OptionError(
                f"options '{spellings[0]}' and '{spellings[1]}' are the same: one of them is enough"
            )
        return self._given[spellings[0].lower()] if spellings else None

    def one_of(self, name: str, allowed: Iterable[str], default: str) -> str:
        """Return the value, which must be one of the allowed words."""
        value = self.text(name)
        words = list(allowed)
        if value is None:
            return default
        for word in words:
            if value.lower() == word.lower():
                return word
        raise OptionError(f"option '{name}' is '{value}'; it is one of {', '.join(words)}")

    def flag(self, name: str, default: bool) -> bool:
        """Return a boolean."""
        return self.one_of(name, ("true", "false"), str(default).lower()) == "true"

    def number(self, name: str, default: int, least: int = 1) -> int:
        """Return a whole number of at least `least`."""
        number = self.count(name, least=least)
        return default if number is None else number

    def count(self, *names: str, least: int = 1) -> int | None:
        """Return a whole number of at least `least`; None without one."""
        value = self.text(*names)
        if value is None:
            return None
        if not re.fullmatch(r"-?\d+", value) or int(value) < least:
            raise OptionError(f"option '{names[0]}' is '{value}'; it is a whole number from {least} on")
        return int(value)

    def seconds(self, name: str, default: float) -> float:
        """Return a time such as 500ms, 30s, 15m or 1h, in seconds."""
        value = self.text(name)
        if value is None:
            return default
        match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", value.strip())
        if match is None:
            raise OptionError(f"option '{name}' is '{value}'; it is a time such as 500ms, 30s or 15m")
        return float(match[1]) * _UNITS[match[2]]

    def refuse_others(self, known: Iterable[str] = ()) -> None:
        """Refuse options that were never read and are not `known`."""
        left = self._given.keys() - self._asked - {name.lower() for name in known}
        if left:
            raise OptionError(f"format '{self._source}' has no option '{min(left)}'")


def hide_credentials(text: str, instead: str = "") -> str:
    """Return URLs, with commas between them, without user names and passwords, encoded or not.

    Everything that may belong to a password is removed: the part before the last @ of a URL.
    """
    return _LOGIN.sub(rf"\1{instead}", text)


def split_url(option: str, url: str, schemes: Collection[str], like: str) -> SplitResult:
    """Return the parts of a URL. Raises OptionError, whose text contains no password."""
    place = hide_credentials(url)
    part: SplitResult | None = None
    wrong = True
    with suppress(ValueError):  # the error's text may contain the password
        part = urlsplit(url.strip())
        astray = _is_astray(url, part)
        if astray:
            place = hide_credentials(url, "...@")
        elif part.hostname:
            place = f"{part.scheme}://{part.hostname}"
        wrong = astray or part.scheme not in schemes or not part.hostname or part.port == 0
    if part is None or wrong:
        raise OptionError(
            f"option '{option}' is '{place}'; it is like {like} (with %2F for a / in a password, and %40 "
            "for an @ behind the host)"
        )
    return part


def _is_astray(url: str, part: SplitResult) -> bool:
    """Whether an @ may end a password that has a '/', '?' or '#'. A host name with an @ has no colon."""
    if "@" not in url or "@" in part.netloc:
        return False
    return ":" in part.netloc.rpartition("]")[2] or "@" in part.query + part.fragment


def has_password(url: str) -> bool:
    """Whether a URL has a password."""
    with suppress(ValueError):  # no URL
        return urlsplit(url.strip()).password is not None
    return "@" in url


def strip_credentials(part: SplitResult) -> str:
    """Return the URL of a server without credentials."""
    return f"{part.scheme}://{part.netloc.rpartition('@')[2]}{part.path}".rstrip("/")
