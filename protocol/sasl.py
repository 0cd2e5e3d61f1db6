"""SASL responses of a single message: the name and the password of the client, which the caller checks.

The functions raise ProtocolError(SYNTAX_ERROR) for a malformed response. The responses of this side's own
log-ins come from `Credentials`.
"""

from typing import Final

from protocol.amqp091.fields import Reader
from protocol.amqp091.table import encode_table
from protocol.errors import COMMAND_INVALID, SYNTAX_ERROR, ProtocolError

PLAIN: Final = "PLAIN"
AMQPLAIN: Final = "AMQPLAIN"
EXTERNAL: Final = "EXTERNAL"
ANONYMOUS: Final = "ANONYMOUS"


def plain(response: bytes) -> tuple[str, str]:
    """Return user and password. Raises ProtocolError if the client wants to act for another user. [RFC 4616]

    Bytes that are not UTF-8 become surrogates, as in passwords from the environment. The check of the
    password decides about them.
    """
    parts = response.split(b"\0")
    if len(parts) != 3:
        raise ProtocolError(SYNTAX_ERROR, f"PLAIN response has {len(parts)} parts instead of 3")
    if parts[0] not in (b"", parts[1]):
        raise ProtocolError(SYNTAX_ERROR, "PLAIN response has an authorization identity that is not the user")
    return parts[1].decode(errors="surrogateescape"), parts[2].decode(errors="surrogateescape")


def amqplain(response: bytes) -> tuple[str, str]:
    """Return user and password. [AMQPLAIN: a field table without its length]

    Bytes that are not UTF-8 become surrogates, as in `plain`.
    """
    try:
        table = Reader(len(response).to_bytes(4, "big") + response).table()
    except ValueError as e:
        raise ProtocolError(SYNTAX_ERROR, f"malformed AMQPLAIN response: {e}") from e
    user, password = _text(table.get("LOGIN")), _text(table.get("PASSWORD"))
    if user is None or password is None:
        raise ProtocolError(SYNTAX_ERROR, "AMQPLAIN response lacks LOGIN or PASSWORD")
    return user, password


def _text(value: object) -> str | None:
    """Return a long string as text; bytes that are not UTF-8 become surrogates."""
    if isinstance(value, bytes):
        return value.decode(errors="surrogateescape")
    return value if isinstance(value, str) else None


class Credentials:
    """The name and the password of a client.

    `mechanisms`: the names of the mechanisms that the client may use, the preferred one first.
    """

    def __init__(self, user: str, password: str, mechanisms: tuple[str, ...]) -> None:
        self.user = user
        self.password = password
        self.mechanisms = mechanisms

    def choose(self, offered: str) -> str:
        """Return the first of the mechanisms that the peer offers.

        `offered`: names, separated by spaces. Raises ProtocolError(COMMAND_INVALID).
        """
        there = offered.upper().split()
        for mechanism in self.mechanisms:
            if mechanism in there:
                return mechanism
        raise ProtocolError(
            COMMAND_INVALID,
            f"the peer offers the log-in mechanisms '{offered}', allowed are: {', '.join(self.mechanisms)}",
        )

    def respond(self, mechanism: str) -> bytes:
        """Return the first and only message of the client for PLAIN, AMQPLAIN, EXTERNAL or ANONYMOUS."""
        if mechanism == PLAIN:
            return b"\0".join((b"", self.user.encode(), self.password.encode()))
        if mechanism == AMQPLAIN:
            return encode_table({"LOGIN": self.user, "PASSWORD": self.password})[4:]
        return b"" if mechanism in (EXTERNAL, ANONYMOUS) else self.user.encode()
