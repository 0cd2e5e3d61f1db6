"""The addresses of sources and targets, and the nodes that they name. The nodes need not exist.

[RabbitMQ AMQP 1.0 addresses, version 2 and 1; Qpid; ActiveMQ]
"""

from typing import Final, final

QUEUE: Final = "queue"
EXCHANGE: Final = "exchange"  # with a routing key
NAME: Final = "name"  # a queue, or else an exchange
ANONYMOUS: Final = "anonymous"  # each message has its own address, in the property `to`
MANAGEMENT: Final = "management"

# whether a link creates the absent queue that it names
CREATED_NEVER: Final = "never"
CREATED_IF_ALLOWED: Final = "if allowed"
CREATED_ALWAYS: Final = "always"

_MANAGEMENT: Final = ("/management", "$management")
_QUEUES: Final = "/queues/"
_EXCHANGES: Final = "/exchanges/"
_CONSUMER: Final = "?consumer."  # the beginning of ActiveMQ's options after a name
_DEFAULT_EXCHANGES: Final = ("", "amq.default")
_HEXADECIMAL: Final = frozenset(b"0123456789abcdefABCDEF")
_UNRESERVED: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


class AddressError(ValueError):
    """An address that names no node; the text has the reason."""


@final
class Node:
    """The node that an address names: `kind`, a constant above, with the names that belong to this kind.

    `key`: the routing key; None: the subject of each message. `creation`: a constant CREATED_...
    `options`: the options that ActiveMQ's clients write after a name, as `?consumer.exclusive=true`.
    The name has no CR and no LF. AMQP 0-9-1 removes both from names, so a name
    that kept them here would mean two queues.
    """

    def __init__(
        self,
        kind: str,
        name: str = "",
        key: str | None = "",
        creation: str = CREATED_NEVER,
        version: int = 2,
    ) -> None:
        self.kind = kind
        self.name = name
        self.key = key
        self.creation = creation
        self.version = version
        self.options: dict[str, str] = {}


def node_of(address: str | None) -> Node:
    """Return the node that the `address` of a source or target names. Raises AddressError."""
    if not address:
        return Node(ANONYMOUS)
    path = _parse_path(address)
    if path in _MANAGEMENT:
        return Node(MANAGEMENT)
    if path.startswith(_QUEUES):
        return Node(QUEUE, _parse_queue(address, path[len(_QUEUES) :]), creation=CREATED_IF_ALLOWED)
    if path.startswith(_EXCHANGES):
        return _parse_exchange(address, path[len(_EXCHANGES) :])
    if path.startswith("/"):
        return _parse_version1(address, path)
    for scheme, kind in (("queue://", QUEUE), ("topic://", EXCHANGE)):
        if path.startswith(scheme):
            name, mark, query = path[len(scheme) :].partition("?")
            name = _remove_line_breaks(address, name)
            if not name:
                raise AddressError(f"address '{address}' has no name")
            if kind == QUEUE:
                node = Node(QUEUE, name, creation=CREATED_ALWAYS, version=1)
            else:
                node = Node(EXCHANGE, "amq.topic", name, version=1)
            if mark:
                node.options = _parse_options(address, query)
            return node
    if _CONSUMER in path and "/" not in path:
        name, _, query = path.partition("?")
        node = Node(NAME, _remove_line_breaks(address, name), None, CREATED_IF_ALLOWED, 1)
        node.options = _parse_options(address, query)
        return node
    text, slash, key = path.partition("/")
    name = _remove_line_breaks(address, text)
    return Node(EXCHANGE, name, key, version=1) if slash else Node(NAME, name, None, CREATED_IF_ALLOWED, 1)


def _remove_line_breaks(address: str, text: str) -> str:
    """Return the name `text` of `address` without CR and LF. Raises AddressError if only these were in it.

    An empty `text` is allowed here: in some addresses an empty name means the default exchange.
    """
    name = text.replace("\r", "").replace("\n", "")
    if text and not name:
        raise AddressError(f"address {address!a} has a name of line breaks only")
    return name


def _parse_options(address: str, query: str) -> dict[str, str]:
    """Return the options after the question mark of an address. Raises AddressError."""
    options: dict[str, str] = {}
    for option in query.split("&"):
        name, _, value = option.partition("=")
        if name:
            options[unquote(address, name)] = unquote(address, value)
    return options


def _parse_path(address: str) -> str:
    """Return the address without the scheme and authority of a URI. A path of one part is a name."""
    for scheme in ("amqp://", "amqps://"):
        if address.startswith(scheme):
            _, slash, path = address[len(scheme) :].partition("/")
            if not slash or not path:
                raise AddressError(f"address '{address}' has no path")
            return "/" + path if "/" in path else path
    return address


def _parse_queue(address: str, quoted: str) -> str:
    if "/" in quoted:
        raise AddressError(f"address '{address}' has a segment after the queue")
    name = _remove_line_breaks(address, unquote(address, quoted))
    if not name:
        raise AddressError(f"address '{address}' has no queue name")
    return name


def _parse_exchange(address: str, rest: str) -> Node:
    parts = rest.split("/")
    if len(parts) > 2:
        raise AddressError(f"address '{address}' has a segment after the routing key")
    name = _remove_line_breaks(address, unquote(address, parts[0]))
    if name in _DEFAULT_EXCHANGES:
        raise AddressError(f"address '{address}' names the default exchange; '/queues/' names a queue")
    return Node(EXCHANGE, name, unquote(address, parts[1]) if len(parts) == 2 else "")


def _parse_version1(address: str, path: str) -> Node:
    """Return the node of an unquoted address, as clients used it before RabbitMQ 4."""
    kind, _, rest = path[1:].partition("/")
    if kind == "exchange" and rest:
        name, slash, key = rest.partition("/")
        name = _remove_line_breaks(address, name)
        return Node(EXCHANGE, "" if name in _DEFAULT_EXCHANGES else name, key if slash else None, version=1)
    if kind == "topic" and rest:
        return Node(EXCHANGE, "amq.topic", rest, version=1)
    if kind == "queue":
        if not rest:
            return Node(EXCHANGE, "", None, version=1)
        return Node(QUEUE, _remove_line_breaks(address, rest), creation=CREATED_ALWAYS, version=1)
    if kind == "amq" and rest.startswith("queue/") and len(rest) > len("queue/"):
        return Node(QUEUE, _remove_line_breaks(address, rest[len("queue/") :]), version=1)
    raise AddressError(f"address '{address}' has an unknown form")


def queue_address(name: str) -> str:
    """Return the address of a queue, for replies and dynamic nodes."""
    return _QUEUES + quote(name)


def quote(name: str) -> str:
    """Return `name` quoted as a part of an address: all but unreserved characters as %XX. [RFC 3986 2.1]"""
    return "".join(chr(octet) if octet in _UNRESERVED else f"%{octet:02X}" for octet in name.encode())


def unquote(address: str, part: str) -> str:
    """Return a part of `address` without its quoting. Raises AddressError."""
    if "%" not in part:
        return part
    octets = bytearray()
    raw = part.encode()
    p = 0
    while p < len(raw):
        if raw[p] != ord("%"):
            octets.append(raw[p])
            p += 1
            continue
        digits = raw[p + 1 : p + 3]
        if len(digits) != 2 or not _HEXADECIMAL.issuperset(digits):
            raise AddressError(f"address '{address}' has a % without two hexadecimal digits after it")
        octets.append(int(digits, 16))
        p += 3
    try:
        return octets.decode()
    except UnicodeDecodeError as e:
        raise AddressError(f"address '{address}' has quoted bytes that are not valid UTF-8") from e
