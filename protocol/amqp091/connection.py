"""The states of a connection as a table; a missing transition is an error. [amqp-0-9-1 2.2.4, 1.4]"""

from typing import Final

from protocol.amqp091 import constants as c
from protocol.errors import CHANNEL_ERROR, COMMAND_INVALID, ProtocolError

STARTING: Final = "starting"  # start is sent
AUTHENTICATING: Final = "authenticating"  # start-ok or secure-ok has arrived and is being checked
SECURING: Final = "securing"  # secure is sent
TUNING: Final = "tuning"  # tune is sent
TUNED: Final = "tuned"  # tune-ok has arrived
OPEN: Final = "open"
CLOSING: Final = "closing"  # close is sent, close-ok has not arrived
CLOSED: Final = "closed"

AUTHENTICATED: Final = -1  # inputs that are not methods
ERROR: Final = -2
CHALLENGED: Final = -3

TRANSITIONS: Final[dict[tuple[str, int], str]] = {
    (STARTING, c.CONNECTION_START_OK): AUTHENTICATING,
    (AUTHENTICATING, CHALLENGED): SECURING,
    (SECURING, c.CONNECTION_SECURE_OK): AUTHENTICATING,
    (AUTHENTICATING, AUTHENTICATED): TUNING,
    (TUNING, c.CONNECTION_TUNE_OK): TUNED,
    (TUNED, c.CONNECTION_OPEN): OPEN,
    (OPEN, c.CONNECTION_UPDATE_SECRET): OPEN,
    (OPEN, c.CONNECTION_CLOSE): CLOSED,
    (STARTING, c.CONNECTION_CLOSE): CLOSED,
    (SECURING, c.CONNECTION_CLOSE): CLOSED,
    (TUNING, c.CONNECTION_CLOSE): CLOSED,
    (TUNED, c.CONNECTION_CLOSE): CLOSED,
    (CLOSING, c.CONNECTION_CLOSE): CLOSED,
    (CLOSING, c.CONNECTION_CLOSE_OK): CLOSED,
    (STARTING, ERROR): CLOSING,
    (AUTHENTICATING, ERROR): CLOSING,
    (SECURING, ERROR): CLOSING,
    (TUNING, ERROR): CLOSING,
    (TUNED, ERROR): CLOSING,
    (OPEN, ERROR): CLOSING,
}


def advance(state: str, event: int) -> str:
    """Return the state after the input `event`. Raises ProtocolError(COMMAND_INVALID) if not allowed."""
    next_state = TRANSITIONS.get((state, event))
    if next_state is None:
        text = f"connection method {event & 0xFFFF} on a connection that is {state}"
        raise ProtocolError(COMMAND_INVALID, text, max(event, 0))
    return next_state


CHANNEL_CLOSED: Final = 0
CHANNEL_OPEN: Final = 1
CHANNEL_CLOSING: Final = 2  # close is sent, close-ok has not arrived; other frames are dropped

CHANNEL_TRANSITIONS: Final[dict[tuple[int, int], int]] = {
    (CHANNEL_CLOSED, c.CHANNEL_OPEN): CHANNEL_OPEN,
    (CHANNEL_OPEN, c.CHANNEL_CLOSE): CHANNEL_CLOSED,
    (CHANNEL_OPEN, ERROR): CHANNEL_CLOSING,
    (CHANNEL_CLOSING, c.CHANNEL_OPEN): CHANNEL_CLOSING,
    (CHANNEL_CLOSING, c.CHANNEL_CLOSE): CHANNEL_CLOSED,
    (CHANNEL_CLOSING, c.CHANNEL_CLOSE_OK): CHANNEL_CLOSED,
}
"""The states of a channel. [amqp-0-9-1 1.5]"""


def advance_channel(state: int, event: int) -> int:
    """Return the channel's state after the input `event`. Raises ProtocolError(CHANNEL_ERROR)."""
    next_state = CHANNEL_TRANSITIONS.get((state, event))
    if next_state is not None:
        return next_state
    if state == CHANNEL_OPEN and event == c.CHANNEL_OPEN:
        raise ProtocolError(CHANNEL_ERROR, "second 'channel.open' seen", event)
    raise ProtocolError(CHANNEL_ERROR, "expected 'channel.open'", event)
