"""Access control as the adapters see it: SASL log-ins and the rights of users, behind a port.

Adapters do not import users, passwords or permissions. An adapter has a peer with an origin. The peer does a
SASL exchange, and has a user name afterwards.
"""

from __future__ import annotations

from typing import Final, Protocol, final

from broker.auth.certificates import NO_CERTIFICATE, PeerCertificate
from broker.auth.terms import CONFIGURE, READ, WRITE, Applicant
from broker.core.arguments.rule import REMOTE, is_address, show_member
from broker.core.errors import AccessRefused
from broker.core.names import DEFAULT_EXCHANGE, refuse_default_exchange
from broker.core.routing.exchanges import TOPIC
from broker.core.routing.graph import Exchange

QUEUE: Final = "queue"
EXCHANGE: Final = "exchange"


@final
class Origin:
    """The origin of a peer.

    `peer`: the peer's address with the port, as the log names it. `identity`: the name in a verified
    certificate of the peer, None without one. `cipher` is empty on a connection without TLS. `local_address`:
    the address to which the peer connected. `since`: the time of connecting, in milliseconds since 1970.
    `certificate`: the verified certificate of the peer. `websocket`: AMQP comes in messages of a WebSocket.
    `name`: the name of the connection, with both addresses.
    """

    def __init__(
        self,
        address: str,
        port: int,
        loopback: bool,
        identity: str | None = None,
        tls_version: str = "",
        cipher: str = "",
        local_address: str = "",
        local_port: int = 0,
        since: int = 0,
        websocket: bool = False,
        certificate: PeerCertificate = NO_CERTIFICATE,
    ) -> None:
        self.address = address
        self.port = port
        self.local_address = local_address
        self.local_port = local_port
        self.since = since
        self.peer = _endpoint(address, port)
        self.name = f"{self.peer} -> {_endpoint(local_address, local_port)}"
        self.loopback = loopback
        self.identity = identity
        self.tls_version = tls_version
        self.cipher = cipher
        self.websocket = websocket
        self.certificate = certificate


def is_loopback(address: str) -> bool:
    """Whether an address is this machine's own."""
    return address.startswith(("127.", "::ffff:127.")) or address == "::1"


def _endpoint(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


class Login(Protocol):
    """A SASL exchange. [RFC 4422]"""

    def respond(self, response: bytes) -> None:
        """Take the peer's next message; the applicant is called, perhaps before this returns.

        Raises ProtocolError(SYNTAX_ERROR) for a message that makes no sense.
        """

    def abandon(self) -> None:
        """End the exchange without a result: the peer has disconnected."""


class Access(Protocol):
    """The port for authentication and authorisation."""

    def mechanisms(self, origin: Origin) -> str:
        """The SASL mechanisms offered to a peer, with spaces between them."""

    def login(self, mechanism: str, origin: Origin, applicant: Applicant) -> Login:
        """Begin a log-in. Raises ProtocolError(COMMAND_INVALID) for a mechanism that is not for this peer."""

    def may_access(self, user: str, vhost: str) -> bool:
        """Whether `user` may use the virtual host at all."""

    def is_allowed(self, user: str, vhost: str, right: str, name: str) -> bool:
        """Whether `user` may configure, write or read the exchange or queue called `name`."""

    def is_topic_allowed(self, user: str, vhost: str, right: str, exchange: str, routing_key: str) -> bool:
        """Whether `user` may publish (write) or bind (read) with a routing key at a topic exchange."""

    def may_impersonate(self, user: str) -> bool:
        """Whether `user` may publish in the name of others."""

    def may_forward(self, user: str) -> bool:
        """Whether `user` may have the broker connect to other brokers."""

    def limit(self, user: str, kind: str) -> int | None:
        """The limit `max-connections` or `max-channels` of `user`, if it is set."""


@final
class Rights:
    """The rights of a user in a virtual host, with refusals in RabbitMQ's words. [RabbitMQ access control]

    Rights are checked on every operation. The check of basic.publish happens when its route is resolved.
    """

    def __init__(self, access: Access, user: str, vhost: str) -> None:
        self._access = access
        self.user = user
        self.vhost = vhost

    def has_right(self, right: str, name: str) -> bool:
        """Whether the user may configure, write or read an exchange or queue."""
        return self._access.is_allowed(self.user, self.vhost, right, name)

    def require(self, right: str, kind: str, name: str) -> None:
        """Refuse an operation for which the user has no right. Raises AccessRefused."""
        if not self._access.is_allowed(self.user, self.vhost, right, name):
            if kind == EXCHANGE and name == DEFAULT_EXCHANGE:
                name = "amq.default"
            raise AccessRefused(
                f"{right} access to {kind} '{name}' in vhost '{self.vhost}' refused for user '{self.user}'"
            )

    def require_any(self, kind: str, name: str) -> None:
        """Refuse the name of an object for which the user has no right at all. Raises AccessRefused."""
        if not (self.has_right(READ, name) or self.has_right(WRITE, name)):
            self.require(CONFIGURE, kind, name)

    def require_members(self, front: str, names: list[str]) -> None:
        """Refuse a user that may not use all these queues, the new members of the partitioned queue `front`.

        A consumer of the partitioned queue gets their messages, and its messages go there. So the user must
        be able to read and write the queues here, and to have the broker connect to others for the addresses
        of other queues. Raises AccessRefused.
        """
        for name in names:
            if is_address(name):
                self._require_forwarding_user(
                    f"queue '{front}' in vhost '{self.vhost}' with member '{show_member(name)}'"
                )
            else:
                self.require(READ, QUEUE, name)
                self.require(WRITE, QUEUE, name)

    def require_forwarding(self, kind: str, name: str, to: object) -> None:
        """Refuse a new object that forwards messages, unless the user may do so directly. [RabbitMQ]

        `to` is the dead-letter exchange of a new queue, or the alternate exchange of a new exchange. The user
        must be able to read the new object and to write to `to`. Raises AccessRefused.
        """
        if isinstance(to, str):
            self.require(READ, kind, name)
            self.require(WRITE, EXCHANGE, to)

    def require_remote(self, name: str, arguments: dict[str, object]) -> None:
        """Refuse a new remote queue, unless the user may have the broker connect to other brokers.

        Policymakers and administrators may do so. They may define shovels too. Raises AccessRefused.
        """
        if REMOTE in arguments:
            self._require_forwarding_user(f"queue '{name}' in vhost '{self.vhost}' with {REMOTE}")

    def _require_forwarding_user(self, what: str) -> None:
        """Refuse a user that may not have the broker connect to other brokers. Raises AccessRefused."""
        if not self._access.may_forward(self.user):
            raise AccessRefused(
                f"{what} refused for user '{self.user}', who needs the tag 'policymaker' or 'administrator'"
            )

    def require_binding(
        self, kind: str, destination: str, source: str, exchange: Exchange | None, key: str
    ) -> None:
        """Require the rights to bind or unbind: write to the destination, read from the source. [RabbitMQ]

        `kind` is the kind of the destination. `exchange` is the exchange called `source`, if it exists.
        Raises AccessRefused, also for the default exchange at either end.
        """
        self.require(WRITE, kind, destination)
        if kind == EXCHANGE:
            refuse_default_exchange(destination)
        refuse_default_exchange(source)
        self.require(READ, EXCHANGE, source)
        if exchange is not None:
            self.require_topic(READ, exchange, key)

    def require_topic(self, right: str, exchange: Exchange, routing_key: str) -> None:
        """Refuse a routing key with which the user may not publish (write) or bind (read).

        Raises AccessRefused.

        Routing keys are restricted at topic exchanges only. [RabbitMQ topic authorisation]
        """
        if exchange.kind == TOPIC and not self._access.is_topic_allowed(
            self.user, self.vhost, right, exchange.name, routing_key
        ):
            raise AccessRefused(
                f"{right} access to topic '{routing_key}' in exchange '{exchange.name}' in vhost "
                f"'{self.vhost}' refused for user '{self.user}'"
            )

    def may_impersonate(self) -> bool:
        """Whether the user may publish in the name of others."""
        return self._access.may_impersonate(self.user)
