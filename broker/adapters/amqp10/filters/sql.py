"""SQL filters. [filtex-v1.0 6]"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Final, final
from uuid import UUID

from broker.adapters.amqp10.filters.parts import Parts, parts_of
from broker.adapters.amqp10.filters.properties import is_header
from broker.adapters.amqp10.filters.sql_tokens import (
    APPLICATION,
    BINARY,
    DURABLE,
    INTEGER_MAX,
    PLACES,
    PRIORITY,
    USER_ID,
    sql_tokens,
)
from broker.core.errors import PreconditionFailed
from broker.core.message_view import Criterion, MessageView
from broker.core.selector.condition import Comparison, In, demands_of
from broker.core.selector.expression import (
    NUMBER,
    PRIMARY_LEVEL,
    Arithmetic,
    Expression,
    Identifier,
    Literal,
    negative,
)
from broker.core.selector.lexer import SIGN, WORD, Token
from broker.core.selector.parser import Parser
from broker.core.selector.selector import LENGTH_MAX

_NUMBERS: Final = count(1)


@final
class SqlFilter(Criterion):
    """A condition in the SQL of AMQP 1.0; `date` returns the time of day, in ms since 1970.

    A criterion that uses the time equals no other, even with the same text, because its result for a message
    depends on the time of the check.

    Raises:
        PreconditionFailed: the text is too long or no condition; the refusal has the position.
    """

    def __init__(self, text: str, date: Callable[[], int]) -> None:
        if len(text) > LENGTH_MAX:
            raise PreconditionFailed(f"{len(text)} characters, at most {LENGTH_MAX} are allowed")
        parser = _SqlParser(sql_tokens(text), date)
        self._condition = parser.whole()
        number = f"{next(_NUMBERS)} " if parser.uses_time else ""
        demands = [
            (name[len(APPLICATION) :], value)
            for name, value in demands_of(self._condition)
            if name.startswith(APPLICATION) and is_header(name[len(APPLICATION) :])
        ]
        super().__init__(f"sql: {number}{self._condition.text()}", demands)

    def matches(self, view: MessageView) -> bool:
        """Whether the condition is true for a message."""
        return self._condition.evaluate(_Fields(parts_of(view))) is True


@final
class _Fields(MessageView):
    """A message as the conditions of SQL filters read it."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def lookup(self, name: str) -> object | None:
        """Return the value of a name: UUIDs as bytes, the user-id as text, as publishers see it."""
        if name.startswith(APPLICATION):
            return _plain(self._parts.application_property(name[len(APPLICATION) :].encode()))
        if name == PRIORITY:
            return self._parts.priority()
        if name == DURABLE:
            return self._parts.durable()
        value = self._parts.property(PLACES[name])
        if isinstance(value, bytes) and name == USER_ID:
            return _text(value)
        return _plain(value)


@final
class _CurrentTime(Expression):
    """The function UTC(), the time of day in ms since 1970."""

    def __init__(self, date: Callable[[], int]) -> None:
        super().__init__(NUMBER, PRIMARY_LEVEL)
        self._date = date

    def evaluate(self, view: MessageView) -> object:
        """Return the present time."""
        return self._date()

    def text(self) -> str:
        """Return the call of the function."""
        return "UTC()"


@final
class _SqlParser(Parser):
    """The parser of SQL filters, whose grammar differs a little from that of selectors.

    `uses_time`: the condition has UTC().
    """

    def __init__(self, tokens: list[Token], date: Callable[[], int]) -> None:
        super().__init__(tokens, INTEGER_MAX)
        self._date = date
        self.uses_time = False

    def _choice(self) -> Expression:
        """Parse an element of the list after IN, which may be any expression."""
        return self._sum()

    def _among(self, operand: Expression) -> Expression:
        among = super()._among(operand)
        assert isinstance(among, In), "the base class returns an In"
        if not any(_is_user_id(each) for each in (operand, *among.choices)):
            return among
        return In(_as_text(operand), [_as_text(choice) for choice in among.choices])

    def _comparison_of(self, sign: str, left: Expression, right: Expression) -> Expression:
        if _is_user_id(left) or _is_user_id(right):
            return Comparison(sign, _as_text(left), _as_text(right))
        return Comparison(sign, left, right)

    def _arithmetic(self, first: Expression, signs: list[str], operands: list[Expression]) -> Expression:
        """Parse arithmetic, in which quotients of integers need not be integers."""
        return Arithmetic(first, signs, operands, False)

    def _signed(self) -> Expression:
        """Parse an expression with a sign: a plus makes a value that is no number NULL, as a minus does."""
        plus = self._at(SIGN, "+")
        signed = super()._signed()
        return negative(negative(signed)) if plus and not isinstance(signed, Literal) else signed

    def _primary(self, negative: bool) -> Expression:
        token = self._token()
        if token.kind != BINARY:
            return super()._primary(negative)
        self._next += 1
        return Literal(token.value)

    def _word(self) -> Expression:
        if not self._take(WORD, "UTC"):
            return super()._word()
        self._expect(SIGN, "(")
        self._expect(SIGN, ")")
        self.uses_time = True
        return _CurrentTime(self._date)


def _is_user_id(expression: Expression) -> bool:
    return isinstance(expression, Identifier) and expression.name == USER_ID


def _as_text(expression: Expression) -> Expression:
    """Return an expression to compare with the user-id: a binary as a string, any other one unchanged."""
    if isinstance(expression, Literal) and isinstance(expression.value, bytes):
        return Literal(_text(expression.value))
    return expression


def _text(raw: bytes) -> str:
    return raw.decode(errors="surrogateescape")


def _plain(value: object) -> object | None:
    if isinstance(value, UUID):
        return value.bytes
    return value if isinstance(value, (str, bool, int, float, bytes)) else None
