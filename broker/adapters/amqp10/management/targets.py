"""What paths name: segments, queries, and the one segment that names a binding. [RFC 3986]"""

from typing import Final, final

from broker.adapters.access import EXCHANGE, QUEUE
from broker.adapters.amqp10.management.refusal import BAD_REQUEST, Refused
from broker.core.routing.graph import Binding, digest_of
from protocol.amqp10.addresses import AddressError, quote, unquote

_KINDS: Final = {"dstq": QUEUE, "dste": EXCHANGE}


@final
class Target:
    """A path: its segments, still quoted, and its query. Raises Refused."""

    def __init__(self, text: str) -> None:
        path, mark, query = text.partition("?")
        if not path.startswith("/"):
            raise Refused(BAD_REQUEST, f"path '{text}' does not begin with '/'")
        self.text = text
        self.segments = path[1:].split("/")
        self.query: dict[str, str] = {}
        for part in query.split("&") if mark else []:
            name, _, value = part.partition("=")
            self.query[name] = unquoted(text, value.replace("+", " "))

    def name(self) -> str:
        """The name in the second segment. Raises Refused."""
        return unquoted(self.text, self.segments[1])


@final
class Ends:
    """Both ends of a binding, and its key if that is known. `kind` is that of the destination."""

    def __init__(self, source: str, kind: str, destination: str, key: str | None) -> None:
        self.source = source
        self.kind = kind
        self.destination = destination
        self.key = key


def queried_ends(target: Target) -> Ends:
    """The ends that a query names. Raises Refused."""
    query = target.query
    given = [name for name in _KINDS if name in query]
    if "src" not in query or len(given) != 1:
        raise Refused(BAD_REQUEST, f"'{target.text}' needs src, one of dstq and dste, and may have a key")
    return Ends(query["src"], _KINDS[given[0]], query[given[0]], query.get("key"))


def named_binding(target: Target) -> tuple[Ends, str, str]:
    """The ends, the key and the digest of the arguments of the binding that a path names. Raises Refused.

    `/bindings/src=S;dstq=Q;key=K;args=D`, or dste instead of dstq.
    """
    parts = [part.partition("=") for part in target.segments[1].split(";")]
    names = [name for name, _, _ in parts]
    if len(parts) != 4 or names[1] not in _KINDS or [names[0], *names[2:]] != ["src", "key", "args"]:
        raise Refused(BAD_REQUEST, f"bad binding path segment '{target.segments[1]}'")
    source, destination, key = (unquoted(target.text, value) for _, _, value in parts[:3])
    return Ends(source, _KINDS[names[1]], destination, key), key, parts[3][2]


def location(binding: Binding) -> str:
    """The path that names a binding."""
    kind = "dstq" if binding.queue is not None else "dste"
    return (
        f"/bindings/src={quote(binding.source.name)};{kind}={quote(binding.destination_name)}"
        f";key={quote(binding.routing_key)};args={digest_of(binding.key[1])}"
    )


def unquoted(text: str, part: str) -> str:
    """A part of the path `text` without its quoting. Raises Refused."""
    try:
        return unquote(text, part)
    except AddressError as error:
        raise Refused(BAD_REQUEST, str(error)) from None
