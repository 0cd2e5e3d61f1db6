"""Names in the journal: a file defines the number of each name before a record uses this number."""

from typing import Final, final

from mypy_extensions import i64

# Kinds, and their fields.
QUEUE: Final = 1  # virtual host, queue, incarnation
ROUTE: Final = 2  # exchange, routing key
CONNECTION: Final = 3  # connection, channel, user
CONSUMER: Final = 4  # consumer, connection, channel, user
SESSION: Final = 5  # connection, channel, user, address
LINK: Final = 6  # consumer, connection, channel, user, address
OPERATOR: Final = 7  # user, address, request of the HTTP API
DEPUTY: Final = 8  # consumer that acts for an operator: consumer, user, address, request of the HTTP API

FIELDS: Final = {QUEUE: 3, ROUTE: 2, CONNECTION: 3, CONSUMER: 4, SESSION: 4, LINK: 5, OPERATOR: 3, DEPUTY: 4}
"""The count of fields of a name, by kind. Only files of version 1 have CONNECTION and CONSUMER."""

ABSENT: Final = -1
ACTORS: Final = {
    CONNECTION: (0, 1, 2, ABSENT, ABSENT, ABSENT),
    CONSUMER: (1, 2, 3, 0, ABSENT, ABSENT),
    SESSION: (0, 1, 2, ABSENT, 3, ABSENT),
    LINK: (1, 2, 3, 0, 4, ABSENT),
    OPERATOR: (ABSENT, ABSENT, 0, ABSENT, 1, 2),
    DEPUTY: (ABSENT, ABSENT, 1, 0, 2, 3),
}
"""The fields of an actor, by kind: connection, channel, user, consumer, address, request."""


@final
class Name:
    """A name and its number. `file`: the number of the last file that has defined this name."""

    def __init__(self, number: i64, kind: int, fields: tuple[str, ...]) -> None:
        self.number = number
        self.kind = kind
        self.fields = fields
        self.file: i64 = 0
