"""Expressions of selectors, which are evaluated for one message. [JMS 1.1, 3.8.1]

A value is an int, a float, a str, a bool, bytes, or None, which is SQL's NULL; as a condition None is
*unknown*. Conditions are in `condition`.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from broker.core.message_view import MessageView
from broker.core.selector.lexer import is_plain

# how tightly an expression binds, for the parentheses of its canonical text
OR_LEVEL: Final[i64] = 1
AND_LEVEL: Final[i64] = 2
NOT_LEVEL: Final[i64] = 3
COMPARISON_LEVEL: Final[i64] = 4
SUM_LEVEL: Final[i64] = 5
PRODUCT_LEVEL: Final[i64] = 6
SIGN_LEVEL: Final[i64] = 7
PRIMARY_LEVEL: Final[i64] = 8

# the kind of an expression, as far as it is known without a message
CONDITION: Final = "a condition"
NUMBER: Final = "a number"
STRING: Final = "a string"
BINARY: Final = "a binary"
ANYTHING: Final = "an identifier"


class Expression:
    """A part of a selector. `kind`: the kind of its value if it is not NULL."""

    def __init__(self, kind: str, level: i64) -> None:
        self.kind = kind
        self.level = level

    def evaluate(self, view: MessageView) -> object:
        """Return the value for a message."""
        raise NotImplementedError

    def text(self) -> str:
        """The canonical text: in one spelling, with the parentheses that it needs."""
        raise NotImplementedError

    def within(self, level: i64) -> str:
        """The canonical text as a part of an expression that binds as tightly as `level`."""
        return self.text() if self.level >= level else f"({self.text()})"


@final
class Literal(Expression):
    """A number, a string, a binary, TRUE or FALSE."""

    def __init__(self, value: int | float | str | bool | bytes) -> None:
        super().__init__(_kind_of(value), PRIMARY_LEVEL)
        self.value = value

    def evaluate(self, view: MessageView) -> object:
        """Return the value, always the same."""
        return self.value

    def text(self) -> str:
        """The literal as a client would write it."""
        value = self.value
        if isinstance(value, bool):
            return "TRUE" if value else "FALSE"
        if isinstance(value, str):
            return "'" + value.replace("'", "''") + "'"
        if isinstance(value, bytes):
            return "0x" + value.hex().upper()
        return repr(value)


def _kind_of(value: int | float | str | bool | bytes) -> str:
    if isinstance(value, bool):
        return CONDITION
    if isinstance(value, str):
        return STRING
    return BINARY if isinstance(value, bytes) else NUMBER


@final
class Identifier(Expression):
    """A header or a property, by MessageView.lookup."""

    def __init__(self, name: str) -> None:
        super().__init__(ANYTHING, PRIMARY_LEVEL)
        self.name = name

    def evaluate(self, view: MessageView) -> object:
        """Return the message's value of this name."""
        return view.lookup(self.name)

    def text(self) -> str:
        """The name, quoted if need be."""
        return self.name if is_plain(self.name) else '"' + self.name.replace('"', '""') + '"'


@final
class Negative(Expression):
    """A number with the other sign."""

    def __init__(self, operand: Expression) -> None:
        super().__init__(NUMBER, SIGN_LEVEL)
        self.operand = operand

    def evaluate(self, view: MessageView) -> object:
        """Negate; NULL for a value that is no number."""
        value = self.operand.evaluate(view)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return -value
        return None

    def text(self) -> str:
        """The canonical text, with a minus."""
        return "-" + self.operand.within(SIGN_LEVEL)


@final
class Arithmetic(Expression):
    """Sums and differences, or products, quotients and remainders, from left to right.

    `whole`: a quotient of integers is an integer.
    """

    def __init__(self, first: Expression, signs: list[str], operands: list[Expression], whole: bool) -> None:
        super().__init__(NUMBER, SUM_LEVEL if signs[0] in "+-" else PRODUCT_LEVEL)
        self.whole = whole
        self.first = first
        self.signs = signs
        self.operands = operands

    def evaluate(self, view: MessageView) -> object:
        """Calculate; NULL where a part is no number, or the result cannot be calculated."""
        result = self.first.evaluate(view)
        for index, sign in enumerate(self.signs):
            result = _calculate(sign, result, self.operands[index].evaluate(view), self.whole)
        return result

    def text(self) -> str:
        """The canonical text, with spaces around the signs."""
        parts = [self.first.within(self.level)]
        for index, sign in enumerate(self.signs):
            parts += [sign, self.operands[index].within(self.level + 1)]
        return " ".join(parts)


def _calculate(sign: str, left: object, right: object, whole: bool) -> object:
    if not isinstance(left, (int, float)) or not isinstance(right, (int, float)):
        return None
    if isinstance(left, bool) or isinstance(right, bool):
        return None
    try:
        if sign == "+":
            return left + right
        if sign == "-":
            return left - right
        if sign == "*":
            return left * right
        if isinstance(left, int) and isinstance(right, int):
            if sign == "%":
                remainder = abs(left) % abs(right)  # with the sign of what is divided, as in Java
                return remainder if left >= 0 else -remainder
            if whole:
                quotient = abs(left) // abs(right)  # towards zero, as in Java
                return quotient if (left < 0) == (right < 0) else -quotient
        return None if sign == "%" else left / right
    except (OverflowError, ZeroDivisionError):
        return None


def negative(operand: Expression) -> Expression:
    """Negate a number. Three negations become one; two must stay, as they turn a non-number into NULL."""
    if isinstance(operand, Negative) and isinstance(operand.operand, Negative):
        return operand.operand
    return Negative(operand)
