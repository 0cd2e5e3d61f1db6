"""Receipts as messages of AMQP 0-9-1."""

from __future__ import annotations

from broker.adapters.access import EXCHANGE, Rights
from broker.auth.terms import WRITE
from broker.core.message import Message
from broker.core.names import DEFAULT_EXCHANGE
from broker.core.publishing.receipts import receipt_marks
from protocol.amqp091.composing import compose


def write_receipt(headers: dict[str, object], body: bytes, persistent: bool, correlation_id: str) -> bytes:
    """The content of a receipt (ReceiptWriter)."""
    return compose(headers, body, "application/json", persistent, correlation_id or None)


def mark_receipts(message: Message, headers: dict[str, object], rights: Rights) -> None:
    """Note which receipts a message asks for.

    Raises:
        PreconditionFailed: it does so in a way that makes no sense.
        AccessRefused: its publisher may not publish to the default exchange, as the receipts will.
    """
    marks = receipt_marks(headers)
    if marks != 0:
        rights.require(WRITE, EXCHANGE, DEFAULT_EXCHANGE)
        message.marks |= marks
