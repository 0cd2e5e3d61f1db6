"""The history of a dead-lettered message: x-death of AMQP 0-9-1, x-opt-deaths of AMQP 1.0. [RabbitMQ 4]

x-death has times in seconds, x-opt-deaths in milliseconds. x-death has the time of the first death in a
queue for a reason. The time of the last such death is known from x-death only if there was no other.
"""

from typing import Final

from mypy_extensions import i64

from protocol.amqp091 import deaths as deaths091
from protocol.amqp10 import deaths as deaths10
from protocol.amqp10.conditions import DecodeError
from protocol.amqp10.constructors import NONE
from protocol.amqp10.decoding import decode
from protocol.conversion.field_values import SECONDS_MAX

_TTL_MAX: Final = (1 << 32) - 1
_TTL_DIGITS: Final = len(str(_TTL_MAX))


def opt_deaths(x_death: bytes) -> bytes | None:
    """Return the encoded value of x-opt-deaths for a field value of x-death; None if it is no history."""
    try:
        deaths = deaths091.decode_deaths(x_death)
        return deaths10.encode_deaths([_death10(death) for death in deaths]) if deaths else None
    except (ValueError, OverflowError):
        return None


def _death10(death: deaths091.Death) -> deaths10.Death:
    first = death.time * 1000
    last = first if death.count == 1 else NONE
    ttl = NONE
    expiration = death.original_expiration
    if expiration.isascii() and expiration.isdigit() and len(expiration) <= _TTL_DIGITS:
        number = int(expiration)
        if number <= _TTL_MAX:
            ttl = number
    return deaths10.Death(
        death.queue, death.reason, first, last, death.exchange, death.routing_keys, ttl, death.count
    )


def x_death(data: bytes, p: i64, end: i64) -> bytes | None:
    """Return the field value of x-death for the x-opt-deaths from `p` to `end`; None without deaths."""
    try:
        history, _ = decode(data, p, end)
    except DecodeError:
        return None
    deaths = [
        _death091(death)
        for death in deaths10.decode_deaths(history)
        if 0 <= death.first_time // 1000 <= SECONDS_MAX
    ]
    return deaths091.encode_deaths(deaths) if deaths else None


def _death091(death: deaths10.Death) -> deaths091.Death:
    expiration = str(death.ttl) if death.ttl >= 0 else ""
    seconds = death.first_time // 1000
    return deaths091.Death(
        death.queue, death.reason, seconds, death.exchange, death.routing_keys, expiration, death.count
    )
