"""Field tables as JSON, and JSON as field tables."""

import math
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal

from broker.core.errors import PreconditionFailed

_I64_MIN = -(2**63)
_I64_MAX = 2**63 - 1
_DEPTH_MAX = 64


def shown(value: object) -> object:
    """A field value in JSON. Times are seconds since 1970; what is not UTF-8 is shown with backslashes."""
    if isinstance(value, dict):
        return {_text(str(name)): shown(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [shown(item) for item in value]
    if isinstance(value, (bytes, bytearray)):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, datetime):
        return int(value.timestamp())
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, int | float) else str(value)


def _text(value: str) -> str:
    try:
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:  # half a character that stands for no octet
        return value.encode("utf-8", "backslashreplace").decode()


def field_table(value: object, where: str) -> dict[str, object]:
    """A JSON object as a field table.

    Raises:
        PreconditionFailed: it holds what no field table can hold; `where` says whose arguments they are.
    """
    if value is None or value == []:
        return {}
    if not isinstance(value, Mapping):
        raise PreconditionFailed(f"the arguments of {where} are not an object")
    _check(value, where, 0)
    return dict(value)


def _check(value: object, where: str, depth: int) -> None:
    if depth > _DEPTH_MAX:
        raise PreconditionFailed(f"the arguments of {where} are nested more than {_DEPTH_MAX} deep")
    if isinstance(value, Mapping):
        for name, item in value.items():
            if not 0 < len(name.encode("utf-8", "surrogatepass")) <= 255:
                raise PreconditionFailed(f"an argument of {where} has a name of not 1 to 255 bytes: '{name}'")
            _check(item, where, depth + 1)
    elif isinstance(value, list):
        for item in value:
            _check(item, where, depth + 1)
    elif isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise PreconditionFailed(f"an argument of {where} is no Unicode text: {value!r}") from error
    elif isinstance(value, int) and not _I64_MIN <= value <= _I64_MAX:
        raise PreconditionFailed(f"an argument of {where} does not fit into 64 bits: {value}")
