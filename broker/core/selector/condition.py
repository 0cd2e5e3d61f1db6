"""Conditions of selectors, which are true, false or unknown; None is unknown. [JMS 1.1, 3.8.1]

Values of different types are not equal, and neither is greater: such a comparison is false. The same holds
for headers of types that selectors do not have: arrays and tables. Beyond JMS, strings have an order, that of
code points, so that dates can be compared, and binaries are compared with each other.
"""

from __future__ import annotations

from typing import final

from broker.core.message_view import MessageView
from broker.core.selector.expression import (
    AND_LEVEL,
    COMPARISON_LEVEL,
    CONDITION,
    NOT_LEVEL,
    OR_LEVEL,
    SUM_LEVEL,
    Expression,
    Identifier,
    Literal,
)
from broker.core.selector.like import Like


@final
class Comparison(Expression):
    """Two values and one of = <> < > <= >=."""

    def __init__(self, sign: str, left: Expression, right: Expression) -> None:
        super().__init__(CONDITION, COMPARISON_LEVEL)
        self.sign = sign
        self.left = left
        self.right = right

    def evaluate(self, view: MessageView) -> object:
        """Compare the two values; unknown if one is NULL."""
        return compare(self.sign, self.left.evaluate(view), self.right.evaluate(view))

    def text(self) -> str:
        """The canonical text, with spaces around the sign."""
        return f"{self.left.within(SUM_LEVEL)} {self.sign} {self.right.within(SUM_LEVEL)}"


def compare(sign: str, left: object, right: object) -> bool | None:
    """Compare two values; None if one of them is None."""
    if left is None or right is None:
        return None
    if isinstance(left, bool) or isinstance(right, bool):
        if not (isinstance(left, bool) and isinstance(right, bool)):
            return False
        return (left == right) == (sign == "=") if sign in ("=", "<>") else False
    if isinstance(left, int) and isinstance(right, int):  # the most frequent ones
        if sign == "=":
            return left == right
        return _ordered(sign, -1 if left < right else 1 if left > right else 0)
    if isinstance(left, (int, float)) and isinstance(right, (int, float)):
        return _ordered(sign, (left > right) - (left < right)) if left == left and right == right else False
    if isinstance(left, str) and isinstance(right, str):
        if sign == "=":
            return left == right
        return _ordered(sign, (left > right) - (left < right))
    if isinstance(left, (bytes, bytearray)) and isinstance(right, (bytes, bytearray)):
        return _ordered(sign, (bytes(left) > bytes(right)) - (bytes(left) < bytes(right)))
    return False


def _ordered(sign: str, order: int) -> bool:
    """Whether a sign agrees with `order`: negative, 0 or positive."""
    if order == 0:
        return sign in ("=", "<=", ">=")
    return sign in (("<", "<=", "<>") if order < 0 else (">", ">=", "<>"))


@final
class Between(Expression):
    """A value from one bound to another, both included."""

    def __init__(self, operand: Expression, low: Expression, high: Expression) -> None:
        super().__init__(CONDITION, COMPARISON_LEVEL)
        self.operand = operand
        self.low = low
        self.high = high

    def evaluate(self, view: MessageView) -> object:
        """Evaluate two comparisons joined with AND."""
        value = self.operand.evaluate(view)
        above = compare(">=", value, self.low.evaluate(view))
        if above is False:
            return False
        below = compare("<=", value, self.high.evaluate(view))
        return below if below is False else None if above is None else below

    def text(self) -> str:
        """The canonical text, with AND between the bounds."""
        bounds = f"{self.low.within(SUM_LEVEL)} AND {self.high.within(SUM_LEVEL)}"
        return f"{self.operand.within(SUM_LEVEL)} BETWEEN {bounds}"


@final
class In(Expression):
    """A value and the list of values to which it may be equal, most often literals."""

    def __init__(self, operand: Expression, choices: list[Expression]) -> None:
        super().__init__(CONDITION, COMPARISON_LEVEL)
        self.operand = operand
        self.choices = choices
        literals = [choice.value for choice in choices if isinstance(choice, Literal)]
        self._strings = frozenset([value for value in literals if isinstance(value, str)])
        self._others = [
            choice
            for choice in choices
            if not isinstance(choice, Literal) or not isinstance(choice.value, str)
        ]

    def evaluate(self, view: MessageView) -> object:
        """Look for the value; unknown for NULL. Among the choices NULL is equal to nothing."""
        value = self.operand.evaluate(view)
        if value is None:
            return None
        if isinstance(value, str) and value in self._strings:
            return True
        return any(compare("=", value, choice.evaluate(view)) for choice in self._others)

    def text(self) -> str:
        """The canonical text, with the choices in their order."""
        choices = ", ".join([choice.within(SUM_LEVEL) for choice in self.choices])
        return f"{self.operand.within(SUM_LEVEL)} IN ({choices})"


@final
class Alike(Expression):
    """A string and the pattern that it must match."""

    def __init__(self, operand: Expression, pattern: str, escape: str) -> None:
        super().__init__(CONDITION, COMPARISON_LEVEL)
        self.operand = operand
        self.pattern = pattern
        self.escape = escape
        self.like = Like(pattern, escape)

    def evaluate(self, view: MessageView) -> object:
        """Match the pattern; unknown for NULL, false for a value that is no string."""
        value = self.operand.evaluate(view)
        if value is None:
            return None
        return self.like.matches(value) if isinstance(value, str) else False

    def text(self) -> str:
        """The canonical text, with ESCAPE if there is one."""
        text = f"{self.operand.within(SUM_LEVEL)} LIKE {Literal(self.pattern).text()}"
        return f"{text} ESCAPE {Literal(self.escape).text()}" if self.escape else text


@final
class IsNull(Expression):
    """The test for an absent value."""

    def __init__(self, operand: Expression) -> None:
        super().__init__(CONDITION, COMPARISON_LEVEL)
        self.operand = operand

    def evaluate(self, view: MessageView) -> object:
        """Whether the value is absent; never unknown."""
        return self.operand.evaluate(view) is None

    def text(self) -> str:
        """The canonical text, with IS NULL behind it."""
        return f"{self.operand.within(SUM_LEVEL)} IS NULL"


@final
class Not(Expression):
    """The negation of a condition; that of unknown is unknown."""

    def __init__(self, operand: Expression) -> None:
        super().__init__(CONDITION, NOT_LEVEL)
        self.operand = operand

    def evaluate(self, view: MessageView) -> object:
        """Negate; unknown also for a value that is no condition."""
        value = self.operand.evaluate(view)
        return not value if isinstance(value, bool) else None

    def text(self) -> str:
        """The canonical text, with NOT before it."""
        return f"NOT {self.operand.within(NOT_LEVEL)}"


@final
class Junction(Expression):
    """Conditions joined with AND, or with OR."""

    def __init__(self, word: str, operands: list[Expression]) -> None:
        super().__init__(CONDITION, AND_LEVEL if word == "AND" else OR_LEVEL)
        self.word = word
        self.decisive = word == "OR"  # the value of an operand that decides
        self.operands = operands

    def evaluate(self, view: MessageView) -> object:
        """Evaluate the operands in order; unknown if none decides and one is unknown."""
        result: object = not self.decisive
        for operand in self.operands:
            value = operand.evaluate(view)
            if value is self.decisive:
                return value
            if not isinstance(value, bool):
                result = None
        return result

    def text(self) -> str:
        """The canonical text, in the order of evaluation."""
        return f" {self.word} ".join([operand.within(self.level + 1) for operand in self.operands])


def opposite(condition: Expression) -> Expression:
    """Negate a condition.

    Three negations become one; two must stay, as they turn a non-condition into unknown.
    """
    if isinstance(condition, Not) and isinstance(condition.operand, Not):
        return condition.operand
    return Not(condition)


def demands_of(condition: Expression) -> list[tuple[str, str | int]]:
    """Return the equalities that a condition needs to be true: identifiers, and their strings or integers."""
    if isinstance(condition, Junction):
        demands: list[tuple[str, str | int]] = []
        if condition.word == "AND":
            for operand in condition.operands:
                demands += demands_of(operand)
        return demands
    if not isinstance(condition, Comparison) or condition.sign != "=":
        return []
    left, right = condition.left, condition.right
    if isinstance(left, Literal):
        left, right = right, left
    if not isinstance(left, Identifier) or not isinstance(right, Literal):
        return []
    value = right.value
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        return []
    return [(left.name, value)]
