"""The handshake of an AMQP 0-9-1 connection: start, tune, open. [amqp-0-9-1 2.2.4]"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import structlog
from mypy_extensions import i64
from pamqp import base, commands

from broker.adapters.server import HELD_FOR_REPLY
from protocol.amqp091 import constants as c
from protocol.amqp091 import methods
from protocol.amqp091.connection import AUTHENTICATED, AUTHENTICATING, advance
from protocol.errors import ACCESS_REFUSED, COMMAND_INVALID, NOT_ALLOWED, ProtocolError
from protocol.sasl import MECHANISMS, credentials

if TYPE_CHECKING:
    from broker.adapters.connection091 import Connection091

_log = structlog.get_logger("amqpd.connection")


@final
class Handshake:
    """Lives until the connection is open."""

    def __init__(self, connection: Connection091) -> None:
        self.connection = connection
        self._mechanism = ""

    def start(self) -> None:
        """Send connection.start."""
        connection = self.connection
        connection.out.write(methods.connection_start(connection.server.properties, MECHANISMS))

    def on_method(self, method: int, frame: base.Frame) -> None:
        """Take the client's next step; the state table has allowed it."""
        if isinstance(frame, commands.Connection.StartOk):
            self._start_ok(frame)
        elif isinstance(frame, commands.Connection.TuneOk):
            self._tune_ok(frame)
        elif isinstance(frame, commands.Connection.Open):
            self._open(frame)
        else:
            raise ProtocolError(COMMAND_INVALID, f"{frame.name} during the handshake", method)

    def _start_ok(self, frame: commands.Connection.StartOk) -> None:
        connection = self.connection
        properties = frame.client_properties or {}
        capabilities = properties.get("capabilities")
        connection.client_capabilities = dict(capabilities) if isinstance(capabilities, dict) else {}
        name = properties.get("connection_name")
        connection.client_name = name if isinstance(name, str) else ""
        self._mechanism = frame.mechanism
        response: object = frame.response
        raw = bytes(response) if isinstance(response, bytes | bytearray) else str(response).encode()
        try:
            connection.user, password = credentials(frame.mechanism, raw)
        except ProtocolError as e:
            self._refuse(e.text)
            return
        connection.hold(HELD_FOR_REPLY)  # nothing is kept for a stranger
        connection.server.access.authenticate(
            connection.user, password, connection.loopback, self._authenticated
        )

    def _authenticated(self, accepted: bool) -> None:
        """The password was checked, perhaps after a while."""
        connection = self.connection
        if connection.state != AUTHENTICATING:
            return  # the peer left meanwhile
        if not accepted:
            self._refuse("wrong user name or password, or guest from outside")
            connection.flush()
            return
        connection.state = advance(connection.state, AUTHENTICATED)
        server = connection.server
        connection.out.write(methods.connection_tune(server.channel_max, server.frame_max, server.heartbeat))
        connection.release(HELD_FOR_REPLY)

    def _refuse(self, why: str) -> None:
        """Close 403 if the client understands that before tune, else hang up.

        [RabbitMQ authentication_failure_close]
        """
        connection = self.connection
        text = (
            f"ACCESS_REFUSED - Login was refused using authentication mechanism {self._mechanism}."
            " For details see the broker logfile."
        )
        _log.warning(
            "login refused", peer=connection.peer, user=connection.user, mechanism=self._mechanism, reason=why
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

    def _open(self, frame: commands.Connection.Open) -> None:
        connection = self.connection
        name = frame.virtual_host
        virtual_host = connection.server.broker.vhosts.get(name)
        if virtual_host is None:
            raise ProtocolError(NOT_ALLOWED, f"vhost {name} not found", c.CONNECTION_OPEN)
        if not connection.server.access.may_access(connection.user, name):
            raise ProtocolError(
                NOT_ALLOWED,
                f"access to vhost '{name}' refused for user '{connection.user}'",
                c.CONNECTION_OPEN,
            )
        connection.virtual_host = virtual_host
        connection.out.write(methods.connection_open_ok())
        _log.info(
            "connection opened",
            peer=connection.peer,
            user=connection.user,
            vhost=name,
            client=connection.client_name,
        )


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
