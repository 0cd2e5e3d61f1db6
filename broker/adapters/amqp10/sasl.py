"""The SASL layer, in which the peer of an AMQP 1.0 connection authenticates. [amqp-1.0 5.3]"""

from __future__ import annotations

from typing import Final, final

import structlog
from mypy_extensions import i64

from broker.adapters.access import Login
from broker.adapters.amqp10.handshake import end_output
from broker.adapters.amqp10.state import Connection10State
from broker.adapters.peers.connections import HELD_FOR_REPLY
from protocol.amqp10.composing import decode_composite, encode_composite
from protocol.amqp10.conditions import FRAMING_ERROR, ILLEGAL_STATE, PeerError
from protocol.amqp10.frames import SASL_FRAME, frame
from protocol.amqp10.performatives import SaslChallenge, SaslInit, SaslMechanisms, SaslOutcome, SaslResponse
from protocol.amqp10.types import Composite
from protocol.errors import ProtocolError
from protocol.sasl import ANONYMOUS, EXTERNAL
from protocol.sniff import AMQP_1_0_SASL

OK: Final = 0
REFUSED: Final = 1
WITHOUT_RESPONSE: Final = (ANONYMOUS, EXTERNAL)  # mechanisms that need no response
NOT_OFFERED: Final = ("AMQPLAIN",)  # mechanisms of AMQP 0-9-1 only

_log = structlog.get_logger("amqpd.connection")


@final
class SaslLogin:
    """The SASL exchange of a connection, until the peer has logged in, and the applicant of the log-in.

    See `broker.adapters.access`.
    """

    def __init__(self, connection: Connection10State) -> None:
        self.connection = connection
        self._login: Login | None = None
        self._has_ended = False

    def start(self) -> None:
        """Offer mechanisms; a peer without the SASL layer is accepted as ANONYMOUS. [amqp-1.0 2.2]"""
        connection = self.connection
        mechanisms = self._mechanisms()
        if connection.secured:
            connection.out.write(AMQP_1_0_SASL)
            self._send(SaslMechanisms(sasl_server_mechanisms=mechanisms))
        elif ANONYMOUS in mechanisms:
            self._begin(ANONYMOUS, b"")
        else:
            connection.out.write(AMQP_1_0_SASL)
            end_output(connection)

    def on_frame(self, data: bytes, start: i64, end: i64) -> None:
        """Handle a SASL frame. Raises PeerError, for which the connection is dropped."""
        performative, after = decode_composite(data, int(start), int(end))
        if after != end:
            raise PeerError(FRAMING_ERROR, "bytes follow the performative")
        if isinstance(performative, SaslInit) and self._login is None and not self._has_ended:
            self._init(performative)
        elif isinstance(performative, SaslResponse) and self._login is not None:
            self._respond(performative.response)
        else:
            raise PeerError(ILLEGAL_STATE, f"{type(performative).__name__} is not expected")

    def abandon(self) -> None:
        """End the log-in: the peer has disconnected."""
        self._has_ended = True
        login, self._login = self._login, None
        if login is not None:
            login.abandon()

    def _mechanisms(self) -> tuple[str, ...]:
        offered = self.connection.server.access.mechanisms(self.connection.origin).split()
        return tuple(mechanism for mechanism in offered if mechanism not in NOT_OFFERED)

    def _init(self, init: SaslInit) -> None:
        mechanism = init.mechanism
        self.connection.mechanism = mechanism
        if mechanism not in self._mechanisms():
            self.on_refused("", f"mechanism {mechanism[:40]!r} is not offered")
        elif init.initial_response is not None or mechanism in WITHOUT_RESPONSE:
            self._begin(mechanism, init.initial_response or b"")
        else:
            self._login = self._begin_login(mechanism)
            self._send(SaslChallenge(challenge=b""))  # [RFC 4422 3.3]

    def _begin(self, mechanism: str, response: bytes) -> None:
        self.connection.mechanism = mechanism
        self._login = self._begin_login(mechanism)
        self._respond(response)

    def _begin_login(self, mechanism: str) -> Login:
        return self.connection.server.access.login(mechanism, self.connection.origin, self)

    def _respond(self, response: bytes) -> None:
        """Pass the peer's response to the log-in, and take no more frames until its answer."""
        self.connection.hold(HELD_FOR_REPLY)
        assert self._login is not None
        try:
            self._login.respond(response)
        except ProtocolError as error:
            self.on_refused("", error.text)

    def on_challenge(self, challenge: bytes) -> None:
        """Send a further challenge of the log-in."""
        if not self._has_ended:
            self._send(SaslChallenge(challenge=challenge))
            self.connection.flush()
            self.connection.release(HELD_FOR_REPLY)

    def on_accepted(self, user: str, proof: bytes) -> None:
        """Accept the peer as `user`."""
        connection = self.connection
        if self._has_ended:
            return
        self._has_ended = True
        self._login = None
        connection.server.counters.count_login("amqp10", True)
        connection.user = user
        connection.edge.on_logged_in()
        if connection.secured:
            self._send(SaslOutcome(code=OK, additional_data=proof or None))
        connection.on_logged_in()
        connection.release(HELD_FOR_REPLY)

    def on_refused(self, user: str, why: str) -> None:
        """Refuse the peer; only the log has the reason."""
        connection = self.connection
        if self._has_ended:
            return
        self._has_ended = True
        self._login = None
        connection.server.counters.count_login("amqp10", False)
        _log.warning(
            "login refused", peer=connection.peer, user=user, mechanism=connection.mechanism, reason=why
        )
        if connection.secured:
            self._send(SaslOutcome(code=REFUSED))
        end_output(connection)

    def _send(self, performative: Composite) -> None:
        self.connection.out.write(frame(0, encode_composite(performative), SASL_FRAME))
