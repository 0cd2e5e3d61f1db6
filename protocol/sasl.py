"""SASL responses of AMQP 0-9-1: user and password out of what the client sent, nothing checked here."""

from protocol.amqp091.fields import Reader
from protocol.errors import ACCESS_REFUSED, SYNTAX_ERROR, ProtocolError

MECHANISMS = "PLAIN AMQPLAIN"


def credentials(mechanism: str, response: bytes) -> tuple[str, str]:
    """User and password of a start-ok. [RFC 4616; AMQPLAIN: a field table without its length]

    Raises ProtocolError: ACCESS_REFUSED for a mechanism that was not offered, SYNTAX_ERROR for a malformed
    response.
    """
    if mechanism == "PLAIN":
        return _plain(response)
    if mechanism == "AMQPLAIN":
        return _amqplain(response)
    raise ProtocolError(
        ACCESS_REFUSED, f"unknown authentication mechanism '{mechanism}', offered: {MECHANISMS}"
    )


def _plain(response: bytes) -> tuple[str, str]:
    parts = response.split(b"\0")
    if len(parts) != 3:
        raise ProtocolError(SYNTAX_ERROR, f"PLAIN response has {len(parts)} parts instead of 3")
    try:
        return parts[1].decode(), parts[2].decode()
    except UnicodeDecodeError as e:
        raise ProtocolError(SYNTAX_ERROR, "PLAIN response is not UTF-8") from e


def _amqplain(response: bytes) -> tuple[str, str]:
    try:
        table = Reader(len(response).to_bytes(4, "big") + response).table()
    except ValueError as e:
        raise ProtocolError(SYNTAX_ERROR, f"malformed AMQPLAIN response: {e}") from e
    user, password = table.get("LOGIN"), table.get("PASSWORD")
    if not isinstance(user, str) or not isinstance(password, str):
        raise ProtocolError(SYNTAX_ERROR, "AMQPLAIN response lacks LOGIN or PASSWORD")
    return user, password
