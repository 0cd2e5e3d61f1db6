"""The states of an AMQP 1.0 connection, as far as this side has to tell them apart. [amqp-1.0 2.4.6]"""

from __future__ import annotations

from typing import Final

AUTHENTICATING: Final = "authenticating"
AUTHENTICATED: Final = "authenticated"  # the peer's header of AMQP is to come,
OPENING: Final = "opening"  # then its open
OPENED: Final = "open"
CLOSING: Final = "closing"  # it has been told, and its own close is to come
CLOSED: Final = "closed"
