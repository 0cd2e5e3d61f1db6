"""URIs of brokers, with the query parameters of RabbitMQ's clients. [RabbitMQ URI specification]

A URI without a host means this broker: `amqp://`, or `amqp:///VHOST` for another virtual host. The password
of a URI is in `Uri.password` only: texts for people come from `Uri.shown`.
"""

from __future__ import annotations

from typing import Final, final
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from broker.core.errors import PreconditionFailed
from protocol.amqp091.client import MECHANISMS
from protocol.sasl import AMQPLAIN, ANONYMOUS, EXTERNAL, PLAIN

PORTS: Final = {"amqp": 5672, "amqps": 5671}
"""The schemes, and the port of each."""

GUEST: Final = "guest"
HEARTBEAT: Final = 10  # seconds, as RabbitMQ's shovels request
CONNECTION_TIMEOUT: Final = 60_000  # milliseconds
SECRETS: Final = ("password",)
"""The query parameters that are never shown."""

NUMBERS: Final = {
    "heartbeat": 65535,
    "connection_timeout": 3_600_000,
    "channel_max": 65535,
    "frame_max": 2**31 - 1,
    "depth": 100,
}
"""The query parameters that are whole numbers, and the largest value of each."""

FILES: Final = ("cacertfile", "certfile", "keyfile")
TEXTS: Final = (*FILES, "server_name_indication", "password")
FLAGS: Final = {"verify": ("verify_peer", "verify_none"), "fail_if_no_peer_cert": ("true", "false")}
MECHANISM: Final = "auth_mechanism"
KNOWN_MECHANISMS: Final = (PLAIN, AMQPLAIN, EXTERNAL, ANONYMOUS)


@final
class Uri:
    """The address of a broker, and how to connect to it.

    `host`: "" for this broker. `user` and `password`: of the log-in. `names_user`: the URI has a user.
    `mechanisms`: the log-in mechanisms, the preferred one first. `heartbeat` in seconds, `connection_timeout`
    in milliseconds; `frame_max` and `channel_max`: 0 for the peer's value. `files`: the files of TLS by
    parameter. `verifies`: whether the certificate of the peer must be valid. `server_name`: the name that the
    certificate must have, "": the host.
    """

    def __init__(self, scheme: str, host: str, port: int, vhost: str) -> None:
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


def parse_uri(text: object, default_vhost: str, where: str) -> Uri:
    """Return the address in a URI. `where`: the field with the URI, for errors.

    `default_vhost`: the virtual host of a URI without one.

    Raises PreconditionFailed; its text has no password.
    """
    if not isinstance(text, str):
        raise PreconditionFailed(f"'{where}' is not a URI: it is not a string")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise PreconditionFailed(f"'{where}' is not a valid URI: {_without_secrets(str(error))}") from error
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
        port or PORTS[parts.scheme],
        unquote(path) if path else default_vhost,
    )
    uri.shown = shown
    if parts.username is not None:
        uri.names_user = True
        uri.user = unquote(parts.username)
        uri.password = unquote(parts.password or "")
    _take_query(uri, parts, where)
    if uri.is_local and uri.tls:
        raise PreconditionFailed(f"'{where}' has the scheme 'amqps' and no host: '{shown}'")
    return uri


def show_uri(text: str) -> str:
    """Return a URI without user, password and secret query parameters. [RabbitMQ amqp_uri]"""
    try:
        parts = urlsplit(text)
    except ValueError:
        return "(not a URI)"
    place = parts.netloc.rpartition("@")[2]
    pairs = [pair for pair in parts.query.split("&") if pair and pair.partition("=")[0] not in SECRETS]
    query = f"?{'&'.join(pairs)}" if pairs else ""
    return f"{parts.scheme}://{place}{parts.path}{query}"


def _take_query(uri: Uri, parts: SplitResult, where: str) -> None:
    """Set the query parameters. Raises PreconditionFailed."""
    mechanisms: list[str] = []
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name == MECHANISM:
            mechanism = value.upper()
            if mechanism not in KNOWN_MECHANISMS:
                raise _refuse(where, name, value, ", ".join(KNOWN_MECHANISMS).lower())
            mechanisms.append(mechanism)
        elif name in NUMBERS:
            _set_number(uri, where, name, value)
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
            known = ", ".join(sorted((*NUMBERS, *TEXTS, *FLAGS, MECHANISM)))
            raise PreconditionFailed(f"'{where}' has the parameter '{name}', which is not known: {known}")
    if mechanisms:
        uri.mechanisms = tuple(mechanisms)
    if uri.files and not uri.tls:
        raise PreconditionFailed(
            f"'{where}' has the parameter '{next(iter(uri.files))}', which needs the scheme 'amqps'"
        )


def _set_number(uri: Uri, where: str, name: str, value: str) -> None:
    most = NUMBERS[name]
    if not value.isascii() or not value.isdigit() or int(value) > most:
        raise _refuse(where, name, value, f"a whole number from 0 to {most}")
    if name != "depth":  # the depth of a chain of certificates: accepted without effect
        setattr(uri, name, int(value))


def _refuse(where: str, name: str, value: str, allowed: str) -> PreconditionFailed:
    return PreconditionFailed(f"the parameter '{name}' of '{where}' is '{value}', allowed: {allowed}")


def _without_secrets(text: str) -> str:
    """Return the reason of an error without the URI, which the library quotes in some errors."""
    return text.partition(":")[0].partition("'")[0].strip() or "it cannot be parsed"
