"""Requests that a browser sends for a page of another site, with the password that it remembers (CSRF).

Browsers say whose page a request is for: `Origin` [RFC 6454] with each request that may change something,
and `Sec-Fetch-Site` [Fetch Metadata]. Other clients send neither, and are not asked for anything.
"""

from collections.abc import Collection, Iterable
from typing import Final
from urllib.parse import urlsplit

SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
CHANGING: Final = "/api/aliveness-test"  # which declares a queue and publishes, by GET
OWN_SITES: Final = frozenset({"same-origin", "none"})
PORTS: Final = {"http": 80, "https": 443}
ANY: Final = "any"


def changes(method: str, path: str) -> bool:
    """Whether a request may change something."""
    return method not in SAFE or path.startswith(CHANGING)


def foreign_site(headers: Iterable[tuple[bytes, bytes]], origins: Collection[str]) -> str:
    """The origin or the site for which a browser sent a request, if it is another one; "" if it is not.

    `headers` have lower-case names. Pages of `origins` are welcome, of all if `any` is among them.
    """
    found: dict[bytes, list[str]] = {b"origin": [], b"host": [], b"sec-fetch-site": []}
    for name, value in headers:
        if name in found:
            found[name].append(value.decode("latin-1").strip().lower())
    told = found[b"origin"]
    if ANY in origins or (told and all(origin in origins for origin in told)):
        return ""
    host = ",".join(found[b"host"])
    for origin in told:
        if origin and not _is_at(origin, host):
            return origin
    return next((f"a {site} origin" for site in found[b"sec-fetch-site"] if site not in OWN_SITES), "")


def _is_at(origin: str, host: str) -> bool:
    """Whether `origin` is served at `host`, with or without the port that its scheme implies."""
    try:
        parts = urlsplit(origin)
        port = parts.port or PORTS.get(parts.scheme)
    except ValueError:
        return False
    name = parts.netloc.rpartition("@")[2]
    bare = name.removesuffix(f":{port}") if port == PORTS.get(parts.scheme) else name
    return bool(bare) and host in (name, bare, f"{bare}:{port}")
