"""The expiration of a message: a number of milliseconds, as text. [RabbitMQ per-message TTL]"""

from __future__ import annotations

import re
from typing import Final

from mypy_extensions import i64

from broker.core.errors import PreconditionFailed

_MAX: Final = 315_360_000_000  # ten years
_NUMBER: Final = re.compile(r"[+-]?[0-9]+")


def parse_expiration(text: str) -> i64:
    """Milliseconds. Raises PreconditionFailed, with RabbitMQ's reasons, for what is none."""
    found = _NUMBER.match(text)
    if found is None:
        raise _invalid(text, "no_integer")
    rest = text[found.end() :]
    if rest:
        escaped = rest.replace("\\", "\\\\").replace('"', '\\"')
        raise _invalid(text, f'{{leftover_string,"{escaped}"}}')
    number = int(found.group())
    if number < 0:
        raise _invalid(text, f"{{value_negative,{number}}}")
    if number > _MAX:
        raise _invalid(text, f"{{value_too_large,{number}}}")
    return number


def _invalid(text: str, why: str) -> PreconditionFailed:
    return PreconditionFailed(f"invalid expiration '{text}': {why}")
