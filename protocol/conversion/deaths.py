"""The history of a dead-lettered message: x-death of AMQP 0-9-1, x-opt-deaths of AMQP 1.0. [RabbitMQ 4]

Times are seconds in the one and milliseconds in the other. x-death tells when the first death in a queue for
a reason was; when the last one was is known from it only if there was no other.
"""

from typing import Final

from mypy_extensions import i64

from protocol.amqp091.deaths import Death, decode_deaths, encode_deaths
from protocol.amqp10.conditions import DecodeError
from protocol.amqp10.decoding import decode
from protocol.amqp10.encoding import encode
from protocol.amqp10.types import Array, Map, Symbol, Timestamp, Uint, Ulong
from protocol.conversion.field_values import SECONDS_MAX

X_DEATH: Final = b"x-death"
X_OPT_DEATHS: Final = b"x-opt-deaths"

_MAP32: Final = 0xD1
_STRING32: Final = 0xB1
_COUNT_MAX: Final = (1 << 63) - 1
_UINT_MAX: Final = (1 << 32) - 1


def opt_deaths(x_death: bytes) -> bytes | None:
    """The encoded value of x-opt-deaths for the field value of x-death; None if that is no history."""
    try:
        deaths = decode_deaths(x_death)
        return encode(Array(_MAP32, [_map(death) for death in deaths])) if deaths else None
    except (ValueError, OverflowError):
        return None


def _map(death: Death) -> Map:
    first = Timestamp(death.time * 1000)
    pairs: list[tuple[object, object]] = [
        (Symbol("queue"), death.queue),
        (Symbol("reason"), Symbol(death.reason)),
        (Symbol("count"), Ulong(death.count)),
        (Symbol("first-time"), first),
    ]
    if death.count == 1:
        pairs.append((Symbol("last-time"), first))
    pairs.append((Symbol("exchange"), death.exchange))
    pairs.append((Symbol("routing-keys"), Array(_STRING32, list(death.routing_keys))))
    expiration = death.original_expiration
    if expiration.isascii() and expiration.isdigit() and len(expiration) <= 10:
        ttl = int(expiration)
        if ttl <= _UINT_MAX:
            pairs.append((Symbol("ttl"), Uint(ttl)))
    return Map(pairs)


def x_death(data: bytes, p: i64, end: i64) -> bytes | None:
    """The field value of x-death for the value of x-opt-deaths from `p` to `end`; None if that is none."""
    try:
        history, _ = decode(data, p, end)
    except DecodeError:
        return None
    if not isinstance(history, Array) or not history.items:
        return None
    deaths: list[Death] = []
    for item in history.items:
        death = _death(item)
        if death is None:
            return None
        deaths.append(death)
    return encode_deaths(deaths)


def _death(item: object) -> Death | None:
    if not isinstance(item, dict):
        return None
    queue = item.get("queue")
    reason = item.get("reason")
    exchange = item.get("exchange")
    if not isinstance(queue, str) or not isinstance(reason, str) or not isinstance(exchange, str):
        return None
    count = item.get("count")
    first = item.get("first-time")
    if not isinstance(count, int) or not 0 < count <= _COUNT_MAX or not isinstance(first, Timestamp):
        return None
    time = first // 1000
    keys = item.get("routing-keys")
    found = keys.items if isinstance(keys, Array) else keys
    if not 0 <= time <= SECONDS_MAX or not isinstance(found, list):
        return None
    ttl = item.get("ttl")
    expiration = str(ttl) if isinstance(ttl, int) and not isinstance(ttl, bool) else ""
    return Death(
        queue, reason, time, exchange, [key for key in found if isinstance(key, str)], expiration, count
    )
