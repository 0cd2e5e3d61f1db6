"""Targets of dispatchers in normal form: URLs, which an allow-list covers by prefix, and paths of commands.

Two texts for the same place have the same normal form. A text that servers and clients could read differently
has none: a user in the URL, a segment `..` in any encoding or with parameters, an encoded slash.
"""

import ipaddress
import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote_to_bytes, urlsplit

PORTS: Final = {"http": 80, "https": 443}
LENGTH_MAX: Final = 2048  # characters of a URL or of a path
PORT_MAX: Final = 65535
HIDDEN: Final = "***"  # shown instead of a secret

_BLANKS: Final = bytes(range(0x21))  # control characters and the space, which some servers drop
_OVERLONG: Final = b"\xc0\xc1"  # an overlong form of a dot or a slash begins with these octets

_HOST: Final = re.compile(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?", re.ASCII)
_PATH: Final = re.compile(r"(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})*", re.ASCII)  # [RFC 3986 3.3]
_QUERY: Final = re.compile(r"(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Url:
    """An HTTP URL in normal form. `segments`: the decoded parts of the path. `text`: the URL to request."""

    scheme: str
    host: str
    port: int
    segments: tuple[bytes, ...]
    text: str
    has_query: bool

    def covers(self, other: "Url") -> bool:
        """Whether `other` is the same place, or a place below, segment by segment."""
        if (self.scheme, self.host, self.port) != (other.scheme, other.host, other.port):
            return False
        prefix = self.segments
        if prefix and not prefix[-1]:  # a slash at the end names the same place
            prefix = prefix[:-1]
        return other.segments[: len(prefix)] == prefix

    @property
    def shown(self) -> str:
        """The URL as log lines and refusals show it: a query may have credentials."""
        return f"{self.text.partition('?')[0]}?{HIDDEN}" if self.has_query else self.text


def parse_url(text: object) -> Url:
    """Read an HTTP URL. Raises ValueError with the reason."""
    if not isinstance(text, str):
        raise ValueError("not a text")
    if len(text) > LENGTH_MAX:
        raise ValueError(f"longer than {LENGTH_MAX} characters")
    if not text.isascii() or not text.isprintable() or " " in text or "\\" in text:
        raise ValueError("a URL has printable ASCII characters only, and neither spaces nor backslashes")
    parts = urlsplit(text)  # ValueError: brackets without an IPv6 address
    scheme = parts.scheme.lower()
    if scheme not in PORTS:
        raise ValueError("the URL begins neither with http:// nor with https://")
    if "@" in parts.netloc:
        raise ValueError("the URL names a user; pass credentials in headers, by reference")
    if "#" in text:
        raise ValueError("the URL has a fragment")
    host, port = _parse_host(parts.hostname, parts.netloc), parts.port
    if port is None:
        port = PORTS[scheme]
    elif not 0 < port <= PORT_MAX:
        raise ValueError(f"the port is not a number from 1 to {PORT_MAX}")
    path = parts.path or "/"
    if _PATH.fullmatch(path) is None or _QUERY.fullmatch(parts.query) is None:
        raise ValueError("the URL has a character that must be percent-encoded")
    place = host if port == PORTS[scheme] else f"{host}:{port}"
    query = f"?{parts.query}" if parts.query else ""
    return Url(
        scheme, host, port, _parse_segments(path), f"{scheme}://{place}{path}{query}", bool(parts.query)
    )


def _parse_host(host: str | None, netloc: str) -> str:
    """Return a host in lower case, an IPv6 address in brackets. Raises ValueError."""
    if not host:
        raise ValueError("the host is missing")
    if netloc.startswith("["):
        return f"[{ipaddress.IPv6Address(host).compressed}]"
    host = host.lower()
    if _HOST.fullmatch(host) is None:
        raise ValueError(f"the host {host!r} is malformed")
    return host


def _parse_segments(path: str) -> tuple[bytes, ...]:
    """Return the decoded segments of a path. Raises ValueError for a segment with two meanings."""
    segments = tuple(unquote_to_bytes(each) for each in path.split("/")[1:])
    for segment in segments:
        _check_segment(segment)
    return () if segments == (b"",) else segments


def _check_segment(segment: bytes) -> None:
    """Check a decoded segment, and how servers read it that decode it again. Raises ValueError.

    Some servers drop the parameters of a segment, after `;`, before they go to the parent folder for `..`.
    """
    while True:
        name = segment.partition(b";")[0].strip(_BLANKS)
        if name in (b".", b".."):
            raise ValueError("the path has a segment . or ..")
        if any(octet in b"/\\\0" for octet in segment):
            raise ValueError("the path has an encoded slash, backslash or NUL")
        if any(octet in _OVERLONG for octet in segment):
            raise ValueError("the path has octets that are never UTF-8")
        decoded = unquote_to_bytes(segment)
        if decoded == segment:
            return
        segment = decoded


def parse_command(text: object) -> str:
    """Read the absolute path of a command. Raises ValueError with the reason."""
    if not isinstance(text, str) or "\0" in text:
        raise ValueError("not a path")
    if len(text) > LENGTH_MAX:
        raise ValueError(f"longer than {LENGTH_MAX} characters")
    if not text.startswith("/"):
        raise ValueError("the path of a command begins with /")
    if posixpath.normpath(text) != text or text in ("/", "//"):
        raise ValueError("the path is not in normal form, or names no file")
    return text


class AllowList:
    """The targets that dispatchers may call: prefixes of URLs, and commands."""

    def __init__(self, entries: Iterable[str]) -> None:
        """Read the entries of the setting `dispatch_allow`. Raises ValueError."""
        self._urls: list[Url] = []
        self._commands: set[str] = set()
        for each in entries:
            if each.startswith("/"):
                self._commands.add(parse_command(each))
                continue
            url = parse_url(each)
            if url.has_query:
                raise ValueError("an allowed URL is a prefix and has no query")
            self._urls.append(url)

    def __bool__(self) -> bool:
        return bool(self._urls or self._commands)

    def allows_url(self, url: Url) -> bool:
        """Whether a prefix covers the URL."""
        return any(prefix.covers(url) for prefix in self._urls)

    def allows_command(self, path: str) -> bool:
        """Whether the command is named."""
        return path in self._commands


def parse_targets(value: object) -> tuple[str, ...]:
    """Read allowed targets: a list, or one text with commas; none: an empty list, or `off`.

    Raises ValueError.
    """
    if isinstance(value, str):
        value = value.split(",")
    if not isinstance(value, (list, tuple)) or not all(isinstance(each, str) for each in value):
        raise ValueError("not a list of URLs and paths")
    given = [part.strip() for each in value for part in each.split(",")]  # flags give a list of lists
    if [each.lower() for each in given] in ([], [""], ["off"]):
        return ()
    for each in given:
        try:
            AllowList([each])
        except ValueError as error:
            raise ValueError(f"{each!r}: {error}") from error
    return tuple(given)
