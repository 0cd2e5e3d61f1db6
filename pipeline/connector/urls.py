"""URLs that options have: looked at, and shown to people without what logs in."""

from __future__ import annotations

import re
from collections.abc import Collection
from contextlib import suppress
from typing import Final
from urllib.parse import SplitResult, urlsplit

from pipeline.connector.choices import OptionError

_NEXT: Final = r",\s*(?:amqp|http)s?://"
_LOGIN: Final = re.compile(rf"(^\s*(?:\w+://)?|{_NEXT})(?:(?!{_NEXT}).)*@", re.DOTALL | re.IGNORECASE)


def bare(text: str, instead: str = "") -> str:
    """URLs, with commas between them, without user names and passwords, also where these are not encoded.

    All that may be of a password is left out: what is before the last @ of a URL.
    """
    return _LOGIN.sub(rf"\1{instead}", text)


def split(option: str, url: str, schemes: Collection[str], like: str) -> SplitResult:
    """The parts of a URL. Raises OptionError, which tells no password."""
    place = bare(url)
    part: SplitResult | None = None
    wrong = True
    with suppress(ValueError):  # which may quote the password
        part = urlsplit(url.strip())
        astray = _is_astray(url, part)
        if astray:
            place = bare(url, "...@")
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
    """Whether an @ may end a password that has a '/', '?' or '#': it is no host's that has no colon."""
    if "@" not in url or "@" in part.netloc:
        return False
    return ":" in part.netloc.rpartition("]")[2] or "@" in part.query + part.fragment


def has_password(url: str) -> bool:
    """Whether a URL has a password."""
    with suppress(ValueError):  # no URL at all
        return urlsplit(url.strip()).password is not None
    return "@" in url


def without_login(part: SplitResult) -> str:
    """The URL of a server."""
    return f"{part.scheme}://{part.netloc.rpartition('@')[2]}{part.path}".rstrip("/")
