"""What a connection hears: frames out of what was read, as long as nothing keeps them back. [amqp-1.0 2.2]"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from broker.adapters.amqp10.control import control
from broker.adapters.amqp10.states import AUTHENTICATED, CLOSED, OPENED
from broker.adapters.handshake091 import FRAME_BYTES_MAX, STRANGER_BYTES_MAX
from broker.adapters.turns import Turns
from protocol.amqp10.conditions import FRAMING_ERROR, PeerError
from protocol.amqp10.frames import AMQP_FRAME, FRAME_MAX_MIN, SASL_FRAME, Frames
from protocol.sniff import AMQP_1_0

if TYPE_CHECKING:
    from broker.adapters.amqp10.connection import Connection10


@final
class Hearing:
    """The frames of one connection. `holds`: reasons for which none is taken."""

    def __init__(self, connection: Connection10) -> None:
        self.holds: i64 = 0
        self.frames = Frames(SASL_FRAME, FRAME_BYTES_MAX, 0)
        self.turns = Turns(connection)
        self._connection = connection
        self._stranger_bytes: i64 = 0
        self._taking = False

    def hear(self, data: bytes) -> None:
        """Take the next bytes."""
        if self._connection.login is not None:
            self._stranger_bytes += len(data)
        self.frames.append(data)
        self.take()

    def take(self) -> None:
        """Handle the frames that have arrived, until there is a reason not to. No error leaves here."""
        if self._taking:
            return
        self._taking = True
        connection = self._connection
        allowance = connection.server.broker.schedule.allowance
        before = allowance.begin(self.turns)
        try:
            if connection.login is not None and self._stranger_bytes > STRANGER_BYTES_MAX:
                raise PeerError(FRAMING_ERROR, f"more than {STRANGER_BYTES_MAX} bytes before the log-in")
            while self.holds == 0 and connection.state != CLOSED:
                if connection.state == AUTHENTICATED:
                    if not self._take_header():
                        break
                elif self.frames.advance():
                    self._take_frame()
                else:
                    break
        except PeerError as error:
            connection.fail(error.condition, error.text, error.info)
        except Exception:
            connection.internal_error()
        allowance.end(before)
        self._taking = False
        connection.end_turn()

    def begin_amqp(self, size_max: i64) -> None:
        """The layer of AMQP begins, with frames of at most this size."""
        self.frames.kind = AMQP_FRAME
        self.frames.size_max = max(size_max, FRAME_MAX_MIN)

    def _take_header(self) -> bool:
        """The header of AMQP behind the layer of SASL; False if it has not arrived. [amqp-1.0 5.3.2]"""
        header = self.frames.protocol_header()
        if header is None:
            return False
        if header != AMQP_1_0:
            raise PeerError(FRAMING_ERROR, f"protocol header {header.hex()} behind the log-in")
        self._connection.begin_amqp()
        return True

    def _take_frame(self) -> None:
        connection, frames = self._connection, self.frames
        data, start, end = frames.data, frames.start, frames.end
        if connection.login is not None:
            connection.login.on_frame(data, start, end)
        elif start < end and (
            connection.state != OPENED or not connection.mapped.take(frames.channel, data, start, end)
        ):  # an empty one is there, and has nothing to say
            control(connection, frames.channel, data, start, end)
