"""The annotations of a dead-lettered message: x-opt-deaths and similar ones. [RabbitMQ dead lettering]

x-opt-deaths is an array with one map for each queue and reason, the latest death first. The types of the
values are RabbitMQ's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from protocol.amqp10.encoding import encode
from protocol.amqp10.types import Array, Map, Symbol, Timestamp, Uint, Ulong

DEATHS: Final = b"x-opt-deaths"
FIRST: Final = b"x-first-death-"
LAST: Final = b"x-last-death-"

_MAP32: Final = 0xD1
_STRING32: Final = 0xB1
_COUNT_MAX: Final = 2**63 - 1
_TTL_MAX: Final = 2**32 - 1


@dataclass
class Death:
    """The deaths of a message in a queue for a reason: their number, and the circumstances of the first.

    `first_time`, `last_time`: milliseconds since 1970; `last_time` is -1 if it is unknown. `exchange`,
    `routing_keys`: the address and the keys of the publish. `ttl`: milliseconds, -1 if the message had none.
    """

    queue: str
    reason: str
    first_time: int
    last_time: int
    exchange: str
    routing_keys: list[str]
    ttl: int = -1
    count: int = 1

    def value(self) -> Map:
        """Return this death as a map."""
        keys: list[object] = list(self.routing_keys)
        fields: list[tuple[str, object]] = [
            ("queue", self.queue),
            ("reason", Symbol(self.reason)),
            ("count", Ulong(self.count)),
            ("first-time", Timestamp(self.first_time)),
        ]
        if self.last_time >= 0:
            fields.append(("last-time", Timestamp(self.last_time)))
        fields.append(("exchange", self.exchange))
        fields.append(("routing-keys", Array(_STRING32, keys)))
        if self.ttl >= 0:
            fields.append(("ttl", Uint(min(self.ttl, _TTL_MAX))))
        return Map([(Symbol(name), value) for name, value in fields])


def encode_deaths(deaths: list[Death]) -> bytes:
    """Return the encoded value of x-opt-deaths."""
    return encode(Array(_MAP32, [death.value() for death in deaths]))


def decode_deaths(value: object) -> list[Death]:
    """Return the deaths in a decoded value of x-opt-deaths, without the items that are no deaths."""
    maps = value.items if isinstance(value, Array) else []
    deaths = [_death(item) for item in maps if isinstance(item, dict)]
    return [death for death in deaths if death is not None]


def _death(fields: dict[object, object]) -> Death | None:
    queue = fields.get("queue")
    reason = fields.get("reason")
    exchange = fields.get("exchange")
    if not isinstance(queue, str) or not isinstance(reason, str) or not isinstance(exchange, str):
        return None
    count = fields.get("count")
    first = fields.get("first-time")
    last = fields.get("last-time", Timestamp(-1))
    if not isinstance(count, int) or not isinstance(first, Timestamp) or not isinstance(last, Timestamp):
        return None
    listed = fields.get("routing-keys")
    keys = listed.items if isinstance(listed, Array) else listed
    if not isinstance(keys, list) or not 0 < count < _COUNT_MAX:
        return None
    ttl = fields.get("ttl")
    return Death(
        queue,
        reason,
        first,
        last,
        exchange,
        [key for key in keys if isinstance(key, str)],
        ttl if isinstance(ttl, int) and 0 <= ttl <= _TTL_MAX else -1,
        count,
    )


def add_death(deaths: list[Death], death: Death) -> list[Death]:
    """Return the history with a further death, which is counted in the entry of its queue and reason."""
    for known in deaths:
        if known.queue == death.queue and known.reason == death.reason:
            known.count += 1
            known.last_time = death.last_time
            return [known, *[other for other in deaths if other is not known]]
    return [death, *deaths]
