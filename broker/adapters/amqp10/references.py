"""Values that filters compare properties with. [filtex-v1.0 4.1.1]"""

from __future__ import annotations

from typing import Final, final
from uuid import UUID

from mypy_extensions import i64

from protocol.amqp10.types import Char, Decimal, Symbol, Timestamp

_EQUAL: Final = 0
_PRESENT: Final = 1
_BEGINNING: Final = 2
_END: Final = 3
_OTHERS: Final = (bool, Timestamp, bytes, UUID, Decimal)


@final
class Reference:
    """What one property has to be.

    `&p:` in front of a string asks for what begins with the rest, `&s:` for what ends with it, and `&&` for
    an `&`; in a symbol they mean nothing. Null asks for any value.
    `text`: references with the same are suited by the same values.

    Raises:
        ValueError: no property can be so.
    """

    def __init__(self, value: object) -> None:
        self._how: i64 = _EQUAL
        self._value: object = value
        if value is None:
            self._how = _PRESENT
        elif isinstance(value, str):
            self._value = str(value)
            if value.startswith("&") and not isinstance(value, (Symbol, Char)):
                self._modify(value)
        elif isinstance(value, float):
            self._value = float(value)
        elif isinstance(value, int) and not isinstance(value, (bool, Timestamp)):
            self._value = int(value)
        elif not isinstance(value, _OTHERS):
            raise ValueError("is no simple value")
        self.text = f"{int(self._how)} {type(self._value).__name__} {self._value!r}"

    def _modify(self, value: str) -> None:
        if value.startswith("&p:"):
            self._how = _BEGINNING
            self._value = value[3:]
        elif value.startswith("&s:"):
            self._how = _END
            self._value = value[3:]
        elif value.startswith("&&"):
            self._value = value[1:]
        else:
            raise ValueError("begins with an & that is followed by neither &, p: nor s:")

    def plain(self) -> str | int | None:
        """The string or integer that is asked for; None if it is something else."""
        value = self._value
        if self._how != _EQUAL or isinstance(value, (bool, Timestamp)):
            return None
        return value if isinstance(value, (str, int)) else None

    def suits(self, value: object) -> bool:
        """Whether a property may have this value; None: there is none.

        Numbers of all types are compared as numbers, strings with symbols, other types with themselves.
        """
        if value is None:
            return False
        wanted = self._value
        if isinstance(wanted, str):
            if not isinstance(value, str):
                return False
            if self._how == _EQUAL:
                return value == wanted
            return value.startswith(wanted) if self._how == _BEGINNING else value.endswith(wanted)
        if self._how == _PRESENT:
            return True
        if isinstance(wanted, (bool, Timestamp)) or isinstance(value, (bool, Timestamp)):
            return type(wanted) is type(value) and wanted == value
        if isinstance(wanted, (int, float)):
            return isinstance(value, (int, float)) and wanted == value
        return type(wanted) is type(value) and wanted == value
