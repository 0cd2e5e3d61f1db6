"""Names in the journal: a file says what each stands for before a record uses its number."""

from typing import Final, final

from mypy_extensions import i64

# kinds, and what their fields are
QUEUE: Final = 1  # virtual host, queue, incarnation
ROUTE: Final = 2  # exchange, routing key
CONNECTION: Final = 3  # connection, channel, user
CONSUMER: Final = 4  # consumer, connection, channel, user

FIELDS: Final = {QUEUE: 3, ROUTE: 2, CONNECTION: 3, CONSUMER: 4}
"""How many fields a name of each kind has."""


@final
class Name:
    """What a number stands for. `file`: the number of the file that has said so last."""

    def __init__(self, number: i64, kind: int, fields: tuple[str, ...]) -> None:
        self.number = number
        self.kind = kind
        self.fields = fields
        self.file: i64 = 0
