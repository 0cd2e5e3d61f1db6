"""URIs of brokers, with the query parameters of RabbitMQ's clients. [RabbitMQ URI specification]

A URI without a host means this broker: `amqp://`, or `amqp:///VHOST` for another virtual host. The password
of a URI is in `Uri.password` only: texts for people come from `Uri.shown`. Errors quote nothing of a text
that is no URI, because a password may be at any place in the text.
"""

from __future__ import annotations

import re
from typing import Final, final
from urllib.parse import SplitResult, parse_qsl, unquote, unquote_plus, urlsplit

from broker.core.errors import PreconditionFailed
from broker.core.names import check_length
from protocol.amqp091.client import MECHANISMS
from protocol.amqp091.constants import FRAME_MIN_SIZE
from protocol.amqp10.client import MECHANISMS as MECHANISMS10
from protocol.amqp10.frames import FRAME_MAX_MIN
from protocol.sasl import AMQPLAIN, ANONYMOUS, EXTERNAL, PLAIN
from protocol.scram import MECHANISM as SCRAM

AMQP091: Final = "amqp091"
AMQP10: Final = "amqp10"
PORTS: Final = {"amqp": 5672, "amqps": 5671}
"""The schemes, and the port of each."""

GUEST: Final = "guest"
HEARTBEAT: Final = 10  # seconds, as RabbitMQ's shovels request
CONNECTION_TIMEOUT: Final = 60_000  # milliseconds
NUMBERS: Final = {
    "heartbeat": 65535,
    "connection_timeout": 3_600_000,
    "channel_max": 65535,
    "frame_max": 2**31 - 1,
    "depth": 100,
}
"""The query parameters that are whole numbers, and the largest value of each."""

NUMBERS10: Final = {
    "idle_time_out": 65_535_000,
    "max_frame_size": 2**31 - 1,
    "transfer_limit_margin": 2**31 - 1,
}
"""The whole numbers in the URIs of AMQP 1.0 only. [RabbitMQ amqp10_client]"""

ATTRIBUTES: Final = {
    "idle_time_out": "idle_ms",
    "max_frame_size": "frame_max",
    "depth": "",
    "transfer_limit_margin": "",
}
"""The attributes of parameters that have other names; "": accepted without effect, as in RabbitMQ."""

DIGITS_MAX: Final = 19
NAME_BYTES_MAX: Final = 255
TEXTS10: Final = ("hostname", "container_id")
SASL: Final = "sasl"
SASL_MECHANISMS: Final = {"plain": PLAIN, "anon": ANONYMOUS, "external": EXTERNAL}
FILES: Final = ("cacertfile", "certfile", "keyfile")
TEXTS: Final = (*FILES, "server_name_indication", "password")
FLAGS: Final = {"verify": ("verify_peer", "verify_none"), "fail_if_no_peer_cert": ("true", "false")}
MECHANISM: Final = "auth_mechanism"
SHOWN: Final = frozenset(
    (*NUMBERS, *NUMBERS10, *TEXTS10, SASL, *FILES, *FLAGS, "server_name_indication", MECHANISM)
)
"""The query parameters that may be shown: all but the password, and names that are not known."""

NOT_A_URI: Final = "(not a URI)"
KNOWN_MECHANISMS: Final = (SCRAM, PLAIN, AMQPLAIN, EXTERNAL, ANONYMOUS)


@final
class Uri:
    """The address of a broker, and how to connect to it.

    `host`: "" for this broker. `user` and `password`: of the log-in. `names_user`: the URI has a user.
    `mechanisms`: the log-in mechanisms, the preferred one first. `heartbeat` in seconds, `connection_timeout`
    in milliseconds; `frame_max` and `channel_max`: 0 for the peer's value. `files`: the files of TLS by
    parameter. `verifies`: whether the certificate of the peer must be valid. `server_name`: the name that the
    certificate must have, "": the host.

    Of AMQP 1.0, where `protocol` is AMQP10: `hostname` is the name of the host or virtual host in this side's
    open, `container` the container-id, "": the shovel's, `idle_ms` the idle-time-out in milliseconds.
    """

    def __init__(self, scheme: str, host: str, port: int, vhost: str, protocol: str = AMQP091) -> None:
        self.protocol = protocol
        self.hostname = ""
        self.container = ""
        self.idle_ms = HEARTBEAT * 1000
        self.tls = scheme == "amqps"
        self.scheme = scheme
        self.host = host
        self.port = port
        self.vhost = vhost
        self.names_user = False
        self.user = GUEST
        self.password = GUEST
        self.mechanisms: tuple[str, ...] = MECHANISMS
        self.heartbeat = HEARTBEAT
        self.connection_timeout = CONNECTION_TIMEOUT
        self.frame_max = 0
        self.channel_max = 0
        self.files: dict[str, str] = {}
        self.key_password = ""
        self.verifies = True
        self.server_name = ""
        self.shown = ""

    @property
    def is_local(self) -> bool:
        """Whether the address is this broker, without a socket."""
        return self.host == ""

    @property
    def place(self) -> str:
        """The host and port, as the log names them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}" if self.host else "this broker"


def parse_uri(text: object, default_vhost: str, where: str, protocol: str = AMQP091) -> Uri:
    """Return the address in a URI. `where`: the field with the URI, for errors.

    `default_vhost`: the virtual host of a URI without one. `protocol`: AMQP091 or AMQP10. With AMQP 1.0 a URI
    without a virtual host names the host only, and without a user the log-in is ANONYMOUS.

    Raises PreconditionFailed; its text has no password.
    """
    if not isinstance(text, str):
        raise PreconditionFailed(f"'{where}' is not a URI: it is not a string")
    objection = _objection(text)
    if objection:
        raise PreconditionFailed(f"'{where}' is not a valid URI: {objection}")
    parts = urlsplit(text)
    shown = show_uri(text)
    if parts.scheme not in PORTS:
        raise PreconditionFailed(
            f"'{where}' has the scheme '{parts.scheme}', allowed: {', '.join(PORTS)}: '{shown}'"
        )
    path = parts.path.removeprefix("/")
    if "/" in path:
        raise PreconditionFailed(
            f"'{where}' has more than one part behind the host: '{shown}'; "
            "write / in the name of a vhost as %2F"
        )
    uri = Uri(
        parts.scheme,
        parts.hostname or "",
        parts.port or PORTS[parts.scheme],
        unquote(path) if path else default_vhost,
        protocol,
    )
    uri.shown = shown
    if protocol == AMQP10:
        uri.hostname = f"vhost:{uri.vhost}" if path or uri.is_local else uri.host
        uri.mechanisms = (ANONYMOUS,) if parts.username is None else (PLAIN,)
    if parts.username is not None:
        uri.names_user = True
        uri.user = unquote(parts.username)
        uri.password = unquote(parts.password or "")
    _take_query(uri, parts, where)
    if uri.is_local and uri.tls:
        raise PreconditionFailed(f"'{where}' has the scheme 'amqps' and no host: '{shown}'")
    return uri


def parse_remote(text: object, vhost: str, name: str, where: str) -> tuple[Uri, str]:
    """Return the address of another broker, and the name of a queue there.

    The queue is the second part of the path, or the query parameter `queue`, or else `name`. `vhost`: the
    virtual host of a URI without one. `where`: the field with the URI, for errors.

    Raises PreconditionFailed; its text has no password.
    """
    if not isinstance(text, str):
        raise PreconditionFailed(f"'{where}' is not a URI: it is not a string")
    objection = _objection(text)
    if objection:
        raise PreconditionFailed(f"'{where}' is not a valid URI: {objection}")
    parts = urlsplit(text)
    if not parts.hostname:
        raise PreconditionFailed(f"'{where}' has no host, so it names no other broker: '{show_uri(text)}'")
    host, _, in_path = parts.path.removeprefix("/").partition("/")
    pairs = parts.query.split("&")
    named = [unquote_plus(pair[6:]) for pair in pairs if pair.startswith("queue=")]
    if "/" in in_path or len(named) + bool(in_path) > 1:
        raise PreconditionFailed(
            f"'{where}' names more than one queue: '{show_uri(text)}'; write / in a name as %2F"
        )
    query = "&".join(pair for pair in pairs if not pair.startswith("queue="))
    uri = parse_uri(parts._replace(path=f"/{host}", query=query).geturl(), vhost, where)
    queue = named[0] if named else unquote(in_path)
    check_length(f"the queue in '{where}'", queue)
    return uri, queue or name


def show_uri(text: str) -> str:
    """Return a URI without user, password and secret query parameters. [RabbitMQ amqp_uri]"""
    if _objection(text):
        return NOT_A_URI
    parts = urlsplit(text)
    place = parts.netloc.rpartition("@")[2]
    pairs = [pair for pair in parts.query.split("&") if unquote_plus(pair.partition("=")[0]) in SHOWN]
    query = f"?{'&'.join(pairs)}" if pairs else ""
    return f"{parts.scheme}://{place}{parts.path}{query}"


def _objection(text: str) -> str:
    """Return why a text is no URI with user and password at their place, "" if it is. Nothing is quoted."""
    scheme, found, rest = text.partition("://")
    if not found or not scheme.isalnum():
        return "it does not begin with a scheme, such as 'amqp://'"
    if "#" in rest:
        return "it has a fragment; write # as %23"
    if "@" in _AUTHORITY_END.split(rest, maxsplit=1)[-1] and _AUTHORITY_END.search(rest):
        return "it has an @ behind the host; write / as %2F, ? as %3F and @ as %40 in a user and a password"
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        return "its host or its port is malformed"
    return ""


_AUTHORITY_END: Final = re.compile("[/?]")


def _take_query(uri: Uri, parts: SplitResult, where: str) -> None:
    """Set the query parameters. Raises PreconditionFailed."""
    mechanisms: list[str] = []
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name == MECHANISM:
            mechanism = value.upper()
            known_mechanisms = MECHANISMS10 if uri.protocol == AMQP10 else KNOWN_MECHANISMS
            if mechanism not in known_mechanisms:
                raise _refuse(where, name, value, ", ".join(known_mechanisms).lower())
            mechanisms.append(mechanism)
        elif name in NUMBERS:
            _set_number(uri, where, name, value, NUMBERS[name])
        elif uri.protocol == AMQP10 and name in (*NUMBERS10, *TEXTS10, SASL):
            _set10(uri, where, name, value)
        elif name == "verify":
            if value not in FLAGS[name]:
                raise _refuse(where, name, value, " or ".join(FLAGS[name]))
            uri.verifies = value == "verify_peer"
        elif name in FLAGS:
            if value not in FLAGS[name]:  # servers need it; accepted without effect, as in RabbitMQ
                raise _refuse(where, name, value, " or ".join(FLAGS[name]))
        elif name in FILES:
            uri.files[name] = value
        elif name == "server_name_indication":
            uri.server_name = "" if value == "disable" else value
        elif name == "password":
            uri.key_password = value
        else:
            own = (*NUMBERS10, *TEXTS10, SASL) if uri.protocol == AMQP10 else ()
            known = ", ".join(sorted((*NUMBERS, *TEXTS, *FLAGS, MECHANISM, *own)))
            raise PreconditionFailed(f"'{where}' has the parameter '{name}', which is not known: {known}")
    if mechanisms:
        uri.mechanisms = tuple(mechanisms)
    if uri.files and not uri.tls:
        raise PreconditionFailed(
            f"'{where}' has the parameter '{next(iter(uri.files))}', which needs the scheme 'amqps'"
        )


def _set10(uri: Uri, where: str, name: str, value: str) -> None:
    """Set a parameter that only URIs of AMQP 1.0 have. Raises PreconditionFailed."""
    if name == SASL:
        if value not in SASL_MECHANISMS:
            raise _refuse(where, name, value, ", ".join(SASL_MECHANISMS))
        uri.mechanisms = (SASL_MECHANISMS[value],)
    elif name in TEXTS10:
        if not value or len(value.encode()) > NAME_BYTES_MAX:
            raise _refuse(where, name, value, f"1 to {NAME_BYTES_MAX} bytes")
        setattr(uri, "hostname" if name == "hostname" else "container", value)
    else:
        _set_number(uri, where, name, value, NUMBERS10[name])


def _set_number(uri: Uri, where: str, name: str, value: str, most: int) -> None:
    least = 1 if name == "connection_timeout" else 0
    is_number = value.isascii() and value.isdigit() and len(value) <= DIGITS_MAX
    if not is_number or not least <= int(value) <= most:
        raise _refuse(where, name, value[: DIGITS_MAX + 1], f"a whole number from {least} to {most}")
    if name == "frame_max" and 0 < int(value) < FRAME_MIN_SIZE:
        raise _refuse(where, name, value, f"0 for the limit of the peer, or {FRAME_MIN_SIZE} to {most}")
    if name == "max_frame_size" and 0 < int(value) < FRAME_MAX_MIN:
        raise _refuse(where, name, value, f"0 for the limit of the peer, or {FRAME_MAX_MIN} to {most}")
    if name == "heartbeat":
        uri.idle_ms = int(value) * 1000
    attribute = ATTRIBUTES.get(name, name)
    if attribute:
        setattr(uri, attribute, int(value))


def _refuse(where: str, name: str, value: str, allowed: str) -> PreconditionFailed:
    return PreconditionFailed(f"the parameter '{name}' of '{where}' is '{value}', allowed: {allowed}")
