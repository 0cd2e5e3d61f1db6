"""The properties of messages by their names, and where they stand. [amqp-0-9-1 1.8.3]"""

from __future__ import annotations

from typing import Final

from protocol.amqp091 import properties as basic

TEXTS: Final = {
    "content_type": basic.CONTENT_TYPE,
    "content_encoding": basic.CONTENT_ENCODING,
    "correlation_id": basic.CORRELATION_ID,
    "reply_to": basic.REPLY_TO,
    "expiration": basic.EXPIRATION,
    "message_id": basic.MESSAGE_ID,
    "type": basic.TYPE,
    "user_id": basic.USER_ID,
    "app_id": basic.APP_ID,
}
OCTETS: Final = {"delivery_mode": basic.DELIVERY_MODE, "priority": basic.PRIORITY}
TIMESTAMP: Final = "timestamp"
PLACES: Final = TEXTS | OCTETS | {TIMESTAMP: basic.TIMESTAMP}
"""The bit of each among the flags, counted from the highest."""
