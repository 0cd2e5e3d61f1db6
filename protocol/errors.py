"""The errors of peers. The protocol packages raise no other error, whatever bytes a peer sends."""

from typing import Final

CONNECTION_FORCED: Final = 320
CONTENT_TOO_LARGE: Final = 311
NO_ROUTE: Final = 312
NO_CONSUMERS: Final = 313
ACCESS_REFUSED: Final = 403
NOT_FOUND: Final = 404
RESOURCE_LOCKED: Final = 405
PRECONDITION_FAILED: Final = 406
FRAME_ERROR: Final = 501
SYNTAX_ERROR: Final = 502
COMMAND_INVALID: Final = 503
CHANNEL_ERROR: Final = 504
UNEXPECTED_FRAME: Final = 505
RESOURCE_ERROR: Final = 506
NOT_ALLOWED: Final = 530
NOT_IMPLEMENTED: Final = 540
INTERNAL_ERROR: Final = 541

DUPLICATE: Final = "DUPLICATE"
"""The reply text of amqpd for a returned message that its queues have had before; the code is 406."""

REPLY_NAMES: Final = {
    CONTENT_TOO_LARGE: "CONTENT_TOO_LARGE",
    NO_ROUTE: "NO_ROUTE",
    NO_CONSUMERS: "NO_CONSUMERS",
    CONNECTION_FORCED: "CONNECTION_FORCED",
    ACCESS_REFUSED: "ACCESS_REFUSED",
    NOT_FOUND: "NOT_FOUND",
    RESOURCE_LOCKED: "RESOURCE_LOCKED",
    PRECONDITION_FAILED: "PRECONDITION_FAILED",
    FRAME_ERROR: "FRAME_ERROR",
    SYNTAX_ERROR: "SYNTAX_ERROR",
    COMMAND_INVALID: "COMMAND_INVALID",
    CHANNEL_ERROR: "CHANNEL_ERROR",
    UNEXPECTED_FRAME: "UNEXPECTED_FRAME",
    RESOURCE_ERROR: "RESOURCE_ERROR",
    NOT_ALLOWED: "NOT_ALLOWED",
    NOT_IMPLEMENTED: "NOT_IMPLEMENTED",
    INTERNAL_ERROR: "INTERNAL_ERROR",
}
"""The constants of [amqp-0-9-1 1.1] that a close can carry."""


class ProtocolError(Exception):
    """The peer broke the protocol; the connection ends with this reply code. [amqp-0-9-1 1.1 constants]

    `method`: class id << 16 | method id of the offending method, 0 if no method caused the error.
    """

    def __init__(self, code: int, text: str, method: int = 0) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text
        self.method = method

    @property
    def reply_text(self) -> str:
        """The text in the close method: the constant's name, then the reason."""
        return f"{REPLY_NAMES[self.code]} - {self.text}"


class ChannelError(ProtocolError):
    """The peer broke a rule of a channel; only the channel ends with this reply code."""
