"""When a message is to be delivered, as its publisher says. [RabbitMQ delayed message exchange]"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from mypy_extensions import i64

from broker.core.argument_rule import MILLISECONDS_MAX
from broker.core.errors import PreconditionFailed
from broker.core.field_values import show, type_name
from broker.core.message import BY_CLOCK, DELAYED, Message
from broker.core.schedule import Schedule
from broker.core.view import MessageView, milliseconds

DELAY: Final = "x-delay"
DELAY_MAX: Final = 2**32 - 1  # milliseconds; what asks for more is not delayed, as in RabbitMQ
DELIVERY_TIME: Final = "x-delivery-time"


def delay_of(view: MessageView) -> i64:
    """For how many milliseconds a message is to be held, 0: not at all."""
    value = view.headers().get(DELAY)
    if isinstance(value, str):
        sign = value[:1] if value[:1] in ("+", "-") else ""
        digits = value[len(sign) :]
        if not (digits.isascii() and digits.isdigit() and len(digits) < 20):
            return 0
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return int(value) if 0 < value <= DELAY_MAX else 0


def hold_until_due(message: Message, view: MessageView, schedule: Schedule) -> None:
    """Have the queues that a message goes to hold it for as long as its headers ask for.

    Raises what `due_date` raises.
    """
    date = due_date(view, schedule)
    if date != 0:
        message.date = date
        message.marks |= DELAYED if DELIVERY_TIME in view.headers() else DELAYED | BY_CLOCK


def due_date(view: MessageView, schedule: Schedule) -> i64:
    """From which date on, in ms since 1970, a message may be delivered; 0: at once.

    `x-delivery-time` counts, and if there is none `x-delay`.

    Raises:
        PreconditionFailed: `x-delivery-time` is no time, or too far away.
    """
    headers = view.headers()
    if DELIVERY_TIME not in headers:
        delay = delay_of(view)
        return schedule.date_after(delay) if delay > 0 else 0
    now = schedule.date()
    value = headers[DELIVERY_TIME]
    if isinstance(value, datetime):
        date = milliseconds(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        date = value
    else:
        raise _invalid(value, "is neither a timestamp nor milliseconds since 1970")
    if date > now + MILLISECONDS_MAX:
        raise _invalid(value, "is more than ten years away")
    return date if date > now else 0


def _invalid(value: object, why: str) -> PreconditionFailed:
    return PreconditionFailed(
        f"invalid message: header '{DELIVERY_TIME}' '{show(value)}' of type '{type_name(value)}' {why}"
    )
