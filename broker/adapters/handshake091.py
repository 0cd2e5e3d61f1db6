"""The handshake of an AMQP 0-9-1 connection: start, secure, tune, open. [amqp-0-9-1 2.2.4]"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import structlog
from mypy_extensions import i64
from pamqp import base, commands

from broker.adapters.access import Login
from broker.adapters.opening import open_connection
from broker.adapters.server import HELD_FOR_REPLY
from broker.core.arguments.queue import GET_WAIT, queue_argument_objection
from broker.core.values import show
from protocol.amqp091 import constants as c
from protocol.amqp091 import methods
from protocol.amqp091.connection import AUTHENTICATED, AUTHENTICATING, CHALLENGED, advance
from protocol.errors import ACCESS_REFUSED, COMMAND_INVALID, NOT_ALLOWED, RESOURCE_ERROR, ProtocolError
from protocol.sasl import EXTERNAL

if TYPE_CHECKING:
    from broker.adapters.connection091 import Connection091

FRAME_BYTES_MAX: Final = 8192  # until tune-ok; the specification promises 4096, tokens are longer
STRANGER_BYTES_MAX: Final = 65536  # in all, from a peer that has not logged in

_log = structlog.get_logger("amqpd.connection")


@final
class Handshake:
    """Lives until the connection is open. The applicant of its log-in (`broker.adapters.access`)."""

    def __init__(self, connection: Connection091) -> None:
        self.connection = connection
        self.authenticated = False
        self._login: Login | None = None
        self._user = ""  # who has proved to be that, while the broker's own proof is on its way
        self._heard: i64 = 0

    def start(self) -> None:
        """Send connection.start."""
        connection = self.connection
        server = connection.server
        mechanisms = server.access.mechanisms(connection.origin)
        if connection.origin.identity is not None and EXTERNAL not in mechanisms.split():
            _log.info("EXTERNAL not offered", peer=connection.peer, certificate=connection.origin.identity)
        connection.out.write(methods.connection_start(server.properties, mechanisms))

    def hear(self, size: i64) -> None:
        """So many bytes have come. Raises ProtocolError(RESOURCE_ERROR): a stranger sends no end of them."""
        self._heard += size
        if self._heard > STRANGER_BYTES_MAX and not self.authenticated:
            raise ProtocolError(RESOURCE_ERROR, f"more than {STRANGER_BYTES_MAX} bytes before the log-in")

    def on_method(self, method: int, frame: base.Frame) -> None:
        """Take the client's next step; the state table has allowed it."""
        if isinstance(frame, commands.Connection.StartOk):
            self._start_ok(frame)
        elif isinstance(frame, commands.Connection.SecureOk):
            self._respond(_response(frame))
        elif isinstance(frame, commands.Connection.TuneOk):
            self._tune_ok(frame)
        elif isinstance(frame, commands.Connection.Open):
            open_connection(self.connection, frame.virtual_host)
        else:
            raise ProtocolError(COMMAND_INVALID, f"{frame.name} during the handshake", method)

    def abandon(self) -> None:
        """The peer has left."""
        if self._login is not None:
            self._login.abandon()

    def _start_ok(self, frame: commands.Connection.StartOk) -> None:
        connection = self.connection
        properties = frame.client_properties or {}
        connection.client_properties = dict(properties)
        allowed = queue_argument_objection(GET_WAIT, properties.get(GET_WAIT, 0))
        if allowed:
            text = f"client property '{GET_WAIT}' is not {allowed}: '{show(properties[GET_WAIT])}'"
            raise ProtocolError(NOT_ALLOWED, text, c.CONNECTION_START_OK)
        capabilities = properties.get("capabilities")
        connection.client_capabilities = dict(capabilities) if isinstance(capabilities, dict) else {}
        name = properties.get("connection_name")
        connection.client_name = name if isinstance(name, str) else ""
        connection.mechanism = frame.mechanism
        self._login = connection.server.access.login(frame.mechanism, connection.origin, self)
        self._respond(_response(frame))

    def _respond(self, response: object) -> None:
        """Hand on what the client says; nothing more is kept of a stranger until that is answered."""
        raw = bytes(response) if isinstance(response, bytes | bytearray) else str(response).encode()
        self.connection.hold(HELD_FOR_REPLY)
        if self._user:
            self._tune(self._user)
        elif self._login is not None:
            self._login.respond(raw)

    def challenged(self, challenge: bytes) -> None:
        """The log-in wants to know more."""
        connection = self.connection
        if connection.state == AUTHENTICATING:  # else the peer left meanwhile
            connection.state = advance(connection.state, CHALLENGED)
            connection.out.write(methods.connection_secure(challenge))
            connection.release(HELD_FOR_REPLY)

    def accepted(self, user: str, proof: bytes) -> None:
        """The peer is who it says; perhaps it wants the same of the broker."""
        if self.connection.state == AUTHENTICATING:
            if proof:
                self._user = user
                self.challenged(proof)
            else:
                self._tune(user)

    def _tune(self, user: str) -> None:
        connection = self.connection
        server = connection.server
        server.counters.logins_accepted += 1
        self.authenticated = True
        connection.edge.logged_in()
        connection.user = user
        connection.state = advance(connection.state, AUTHENTICATED)
        connection.out.write(methods.connection_tune(server.channel_max, server.frame_max, server.heartbeat))
        connection.release(HELD_FOR_REPLY)

    def refused(self, user: str, why: str) -> None:
        """Close 403 if the client understands that before tune, else hang up.

        [RabbitMQ authentication_failure_close]
        """
        connection = self.connection
        if connection.state != AUTHENTICATING:
            return
        connection.server.counters.logins_refused += 1
        text = (
            f"ACCESS_REFUSED - Login was refused using authentication mechanism {connection.mechanism}."
            " For details see the broker logfile."
        )
        _log.warning(
            "login refused", peer=connection.peer, user=user, mechanism=connection.mechanism, reason=why
        )
        if connection.client_capabilities.get("authentication_failure_close") is True:
            connection.close(ACCESS_REFUSED, text)
        else:
            connection.drop()

    def _tune_ok(self, frame: commands.Connection.TuneOk) -> None:
        connection = self.connection
        server = connection.server
        connection.channel_max = _negotiated("channel_max", frame.channel_max, server.channel_max, 1)
        connection.frame_max = _negotiated("frame_max", frame.frame_max, server.frame_max, c.FRAME_MIN_SIZE)
        connection.wire.frame_max = connection.frame_max
        connection.heartbeat = frame.heartbeat


def _response(frame: object) -> object:
    """Return the client's response: pamqp has text where it is UTF-8, and otherwise bytes."""
    response: object = getattr(frame, "response", None)
    return response


def _negotiated(name: str, asked: i64, offered: i64, least: i64) -> i64:
    """The client's value, 0 meaning ours. Raises ProtocolError(NOT_ALLOWED) when it is out of range."""
    if asked == 0:
        return offered
    if asked > offered:
        raise ProtocolError(
            NOT_ALLOWED,
            f"negotiated {name} = {asked} is higher than the maximum allowed value ({offered})",
            c.CONNECTION_TUNE_OK,
        )
    if asked < least:
        raise ProtocolError(
            NOT_ALLOWED,
            f"negotiated {name} = {asked} is lower than the minimum allowed value ({least})",
            c.CONNECTION_TUNE_OK,
        )
    return asked
