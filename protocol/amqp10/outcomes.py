"""Encoded delivery states, for dispositions and transfers of this side. [amqp-1.0 3.4, 4.5.5, 4.5.8]"""

from typing import Final

from protocol.amqp10.constructors import FALSE, STRING8, STRING32, SYMBOL8, SYMBOL32, TRUE
from protocol.amqp10.descriptors import DECLARED, ERROR, MODIFIED, REJECTED, TRANSACTIONAL_STATE
from protocol.amqp10.writing import NULL_VALUE, binary, composite, sized

ACCEPTED_VALUE: Final = b"\x00\x53\x24\x45"
RELEASED_VALUE: Final = b"\x00\x53\x26\x45"


def error(condition: str, description: str, info: bytes = NULL_VALUE) -> bytes:
    """Return an encoded error; `info` is a map, encoded."""
    symbol = sized(condition.encode("ascii"), SYMBOL8, SYMBOL32)
    return composite(ERROR, [symbol, sized(description.encode(), STRING8, STRING32), info])


def rejected(fault: bytes = NULL_VALUE) -> bytes:
    """Return the encoded outcome rejected; `fault`: an encoded error."""
    return composite(REJECTED, [fault])


def modified(delivery_failed: bool, undeliverable_here: bool, annotations: bytes = NULL_VALUE) -> bytes:
    """Return the encoded outcome modified; `annotations` is a map, encoded."""
    flags = [bytes((TRUE if flag else FALSE,)) for flag in (delivery_failed, undeliverable_here)]
    return composite(MODIFIED, [*flags, annotations])


def declared(txn_id: bytes) -> bytes:
    """Return the encoded outcome declared."""
    return composite(DECLARED, [binary(txn_id)])


def transactional(txn_id: bytes, outcome: bytes = NULL_VALUE) -> bytes:
    """Return the encoded transactional-state; `outcome` is encoded."""
    return composite(TRANSACTIONAL_STATE, [binary(txn_id), outcome])
