"""The headers of a dead-lettered message: x-death, x-first-death-*, x-last-death-*. [RabbitMQ dead lettering]

x-death is an array with one table for each queue and reason, the latest death first. The types of the values
and their order are RabbitMQ's.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from protocol.amqp091.fields import Reader
from protocol.amqp091.properties import Field

X_DEATH: Final = b"x-death"
FIRST: Final = b"x-first-death-"
LAST: Final = b"x-last-death-"

_LENGTH: Final = struct.Struct(">I")
_LONG: Final = struct.Struct(">q")
_TIME: Final = struct.Struct(">Q")


@dataclass
class Death:
    """The count of a message's deaths in a queue for a reason, and the circumstances of the first death.

    `time`: seconds since 1970. `exchange`, `routing_keys`: the address of the publish.
    `original_expiration`: milliseconds as text, "" if the message had none.
    """

    queue: str
    reason: str
    time: int
    exchange: str
    routing_keys: list[str]
    original_expiration: str = ""
    count: int = 1

    def encode(self) -> bytes:
        """Return the table as a field value."""
        fields = [
            (b"count", b"l" + _LONG.pack(self.count)),
            (b"reason", long_string(self.reason)),
            (b"queue", long_string(self.queue)),
            (b"time", b"T" + _TIME.pack(self.time)),
            (b"exchange", long_string(self.exchange)),
            (b"routing-keys", _array([long_string(key) for key in self.routing_keys])),
        ]
        if self.original_expiration:
            fields.insert(0, (b"original-expiration", long_string(self.original_expiration)))
        table = b"".join([bytes([len(name)]) + name + value for name, value in fields])
        return b"F" + _LENGTH.pack(len(table)) + table


def long_string(text: str) -> bytes:
    """Return a long string as a field value."""
    raw = text.encode()
    return b"S" + _LENGTH.pack(len(raw)) + raw


def _array(values: list[bytes]) -> bytes:
    joined = b"".join(values)
    return b"A" + _LENGTH.pack(len(joined)) + joined


def encode_deaths(deaths: list[Death]) -> bytes:
    """Return the value of x-death."""
    return _array([death.encode() for death in deaths])


def decode_deaths(value: bytes) -> list[Death]:
    """Return the deaths in a value from `encode_deaths`. Raises ValueError for any other value."""
    deaths: list[Death] = []
    for table in _array_in(value):
        if not isinstance(table, dict):
            raise ValueError("x-death has an element that is no table")
        deaths.append(_death(table))
    return deaths


def _array_in(value: bytes) -> list[object]:
    decoded = Reader(value).value()
    if not isinstance(decoded, list):
        raise ValueError("x-death is no array")
    return decoded


def _death(table: dict[str, object]) -> Death:
    count = table.get("count")
    time = table.get("time")
    keys = table.get("routing-keys")
    if not isinstance(count, int) or not isinstance(time, datetime) or not isinstance(keys, list):
        raise ValueError("a table of x-death lacks a field")
    return Death(
        str(table.get("queue", "")),
        str(table.get("reason", "")),
        int(time.timestamp()),
        str(table.get("exchange", "")),
        [str(key) for key in keys],
        str(table.get("original-expiration", "")),
        count,
    )


def add_death(deaths: list[Death], death: Death) -> list[Death]:
    """Return the history with a further death, which is counted with deaths of the same queue and reason."""
    for known in deaths:
        if known.queue == death.queue and known.reason == death.reason:
            known.count += 1
            return [known, *[other for other in deaths if other is not known]]
    return [death, *deaths]


def write_headers(fields: list[Field], deaths: list[Death], exchange: str, first: bool) -> list[Field]:
    """Return headers with this history. The message of the latest death was published to `exchange`.

    `first`: the message had not died before, and a publisher wrote any history in the headers. Other fields
    keep their places and bytes.
    """
    latest = deaths[0]
    facts = {b"reason": latest.reason, b"queue": latest.queue, b"exchange": exchange}
    values = {LAST + field: long_string(text) for field, text in facts.items()}
    if first:
        values |= {FIRST + field: long_string(text) for field, text in facts.items()}
    values[X_DEATH] = encode_deaths(deaths)
    written: list[Field] = []
    for name, value in fields:
        if name not in values:
            written.append((name, value))
        elif values[name]:
            written.append((name, values[name]))
            values[name] = b""  # only the first field of this name stays
    return written + [(name, value) for name, value in values.items() if value]


def without_oldest_deaths(fields: list[Field], excess: int) -> list[Field]:
    """Return headers from `write_headers`, `excess` bytes shorter if enough deaths can be left out.

    The latest death stays. Raises ValueError for other headers.
    """
    deaths = [death for name, value in fields if name == X_DEATH for death in decode_deaths(value)]
    while excess > 0 and len(deaths) > 1:
        excess -= len(deaths.pop().encode())
    return [(name, encode_deaths(deaths) if name == X_DEATH else value) for name, value in fields]


def without_deaths(fields: list[Field]) -> list[Field]:
    """Return headers without anything that `write_headers` adds."""
    return [field for field in fields if field[0] != X_DEATH and not field[0].startswith((FIRST, LAST))]
