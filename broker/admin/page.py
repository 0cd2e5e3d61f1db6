"""The files of the management page. All of them come from the broker, and none may load anything else."""

import gzip
import hashlib
import mimetypes
from pathlib import Path
from typing import Final, NamedTuple

FOLDER: Final = Path(__file__).with_name("static")
PREFIX: Final = "/page/"
INDEX: Final = "index.html"

POLICY: Final = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
)
"""The Content-Security-Policy: scripts, styles and requests of this broker only, and none written in HTML."""

HEADERS: Final = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"vary", b"accept, accept-encoding"),
    (b"cache-control", b"no-cache"),
)
TYPES: Final = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}


class File(NamedTuple):
    """A file of the page: its bytes, the same compressed, its type, and the base of its tag for caches."""

    body: bytes
    packed: bytes
    kind: str
    tag: str

    def headers(self, is_packed: bool) -> list[tuple[bytes, bytes]]:
        """Return the headers of an answer with the file or the compressed file. Each has a tag of its own."""
        kind = (b"content-type", self.kind.encode())
        if not is_packed:
            return [kind, (b"etag", f'"{self.tag}"'.encode()), *HEADERS]
        return [kind, (b"etag", f'"{self.tag}-gzip"'.encode()), (b"content-encoding", b"gzip"), *HEADERS]


def wants_page(accept: str) -> bool:
    """Whether a client prefers the page to JSON: it says that it reads HTML, as browsers do."""
    return any(item.partition(";")[0].strip() == "text/html" for item in accept.lower().split(","))


class Page:
    """The files of the page, read when they are first wanted.

    A path is looked up among the names of the files, and never joined to the folder.
    """

    def __init__(self, folder: Path = FOLDER) -> None:
        places = [place for place in folder.rglob("*") if place.is_file()]
        self._places = {place.relative_to(folder).as_posix(): place for place in places}
        self._files: dict[str, File] = {}

    def find(self, path: str) -> File | None:
        """Return the file at a path, `/` or below PREFIX; None if there is none."""
        name = INDEX if path == "/" else path.removeprefix(PREFIX)
        place = self._places.get(name)
        if place is None:
            return None
        if name not in self._files:
            self._files[name] = _read(place)
        return self._files[name]


def _read(place: Path) -> File:
    body = place.read_bytes()
    kind = TYPES.get(place.suffix) or mimetypes.guess_type(place.name)[0] or "application/octet-stream"
    if kind == "text/html":
        kind = "text/html; charset=utf-8"
    tag = hashlib.sha256(body).hexdigest()[:16]
    return File(body, gzip.compress(body, 9, mtime=0), kind, tag)
