"""URLs that options have: looked at, and shown to people without what logs in."""

from __future__ import annotations

import re
from collections.abc import Collection
from contextlib import suppress
from urllib.parse import SplitResult, urlsplit

from pipeline.connector.choices import OptionError


def bare(text: str) -> str:
    """URLs, with commas between them, without user names and passwords, also where these are not encoded."""
    return re.sub(r"(^|://)(?:(?!://).)*@", r"\1", text, flags=re.DOTALL)


def split(option: str, url: str, schemes: Collection[str], like: str) -> SplitResult:
    """The parts of a URL. Raises OptionError, which tells no password."""
    place = bare(url)
    part: SplitResult | None = None
    wrong = True
    with suppress(ValueError):  # which may quote the password
        part = urlsplit(url.strip())
        astray = "@" in url and "@" not in part.netloc  # the password has a '/', '?' or '#'
        if part.hostname and not astray:
            place = f"{part.scheme}://{part.hostname}"
        wrong = astray or part.scheme not in schemes or not part.hostname or part.port == 0
    if part is None or wrong:
        raise OptionError(
            f"option '{option}' is '{place}'; it is like {like} (with %2F for a / in a password)"
        )
    return part


def without_login(part: SplitResult) -> str:
    """The URL of a server."""
    return f"{part.scheme}://{part.netloc.rpartition('@')[2]}{part.path}".rstrip("/")
