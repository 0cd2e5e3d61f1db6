"""The parser of selectors: it makes an expression of the tokens."""

from __future__ import annotations

from typing import Final

from broker.core.errors import PreconditionFailed
from broker.core.selector.condition import Alike, Between, Comparison, In, IsNull, Junction, opposite
from broker.core.selector.expression import (
    ANYTHING,
    BINARY,
    CONDITION,
    NUMBER,
    STRING,
    Arithmetic,
    Expression,
    Identifier,
    Literal,
    negative,
)
from broker.core.selector.lexer import END, INTEGER_MAX, NAME, SIGN, WORD, Token, refusal, tokens_of
from broker.core.selector.lexer import NUMBER as NUMBER_TOKEN
from broker.core.selector.lexer import STRING as STRING_TOKEN

NESTING_MAX: Final = 50
_ORDERING: Final = ("<", ">", "<=", ">=")
_COMPARISONS: Final = ("=", "<>", *_ORDERING)


def parse(text: str) -> Expression:
    """Return the condition in a text.

    Raises:
        PreconditionFailed: the text is no condition, or parentheses are nested too deeply; with the position.
    """
    return Parser(tokens_of(text), INTEGER_MAX).whole()


class Parser:
    """A recursive-descent parser; only parentheses make it go deeper.

    Other grammars are variants of this one.
    """

    def __init__(self, tokens: list[Token], integer_max: int) -> None:
        self._integer_max = integer_max
        self._tokens = tokens
        self._next = 0
        self._depth = 0

    def whole(self) -> Expression:
        """Return the condition that consists of all tokens."""
        condition = self._junction("OR")
        if self._token().kind != END:
            raise self._unexpected("an operator or the end")
        return _need(condition, (CONDITION, ANYTHING), self._tokens[0].position)

    # -- conditions

    def _junction(self, word: str) -> Expression:
        """Parse conditions joined with OR; each operand may be several joined with AND."""
        start = self._token().position
        first = self._junction("AND") if word == "OR" else self._negation()
        if not self._at(WORD, word):
            return first
        operands = _operands(word, _need(first, (CONDITION, ANYTHING), start))
        while self._take(WORD, word):
            start = self._token().position
            operand = self._junction("AND") if word == "OR" else self._negation()
            operands += _operands(word, _need(operand, (CONDITION, ANYTHING), start))
        return Junction(word, operands)

    def _negation(self) -> Expression:
        count = 0
        while self._take(WORD, "NOT"):
            count += 1
        start = self._token().position
        condition = self._comparison()
        if count == 0:
            return condition
        _need(condition, (CONDITION, ANYTHING), start)
        return opposite(condition) if count % 2 else opposite(opposite(condition))

    def _comparison(self) -> Expression:
        start = self._token().position
        left = self._sum()
        token = self._token()
        if token.kind == SIGN and token.text in _COMPARISONS:
            return self._compared(left, start)
        if token.kind != WORD or token.value in ("AND", "OR"):
            return left
        if self._take(WORD, "IS"):
            negated = self._take(WORD, "NOT")
            self._expect(WORD, "NULL")
            test: Expression = IsNull(left)
        else:
            negated = self._take(WORD, "NOT")
            if self._take(WORD, "BETWEEN"):
                test = self._between(left, start)
            elif self._take(WORD, "IN"):
                test = self._among(left)
            elif self._take(WORD, "LIKE"):
                test = self._alike(_need(left, (STRING, ANYTHING), start))
            elif negated:
                raise self._unexpected("BETWEEN, IN or LIKE")
            else:
                return left  # a word that does not belong here: the caller will refuse it
        return opposite(test) if negated else test

    def _compared(self, left: Expression, start: int) -> Expression:
        sign = self._take_any().text
        right_start = self._token().position
        right = self._sum()
        if sign in _ORDERING:
            _need(left, (NUMBER, STRING, BINARY, ANYTHING), start)
            _need(right, (NUMBER, STRING, BINARY, ANYTHING), right_start)
        return self._comparison_of(sign, left, right)

    def _comparison_of(self, sign: str, left: Expression, right: Expression) -> Expression:
        return Comparison(sign, left, right)

    def _between(self, operand: Expression, start: int) -> Expression:
        kinds = (NUMBER, STRING, ANYTHING)
        low_start = self._token().position
        low = self._sum()
        self._expect(WORD, "AND")
        high_start = self._token().position
        high = self._sum()
        return Between(
            _need(operand, kinds, start), _need(low, kinds, low_start), _need(high, kinds, high_start)
        )

    def _among(self, operand: Expression) -> Expression:
        self._expect(SIGN, "(")
        choices = [self._choice()]
        while self._take(SIGN, ","):
            choices.append(self._choice())
        self._expect(SIGN, ")")
        return In(operand, choices)

    def _choice(self) -> Expression:
        start = self._token().position
        choice = self._signed()
        if not isinstance(choice, Literal):
            raise refusal(start, "IN takes literals only")
        return choice

    def _alike(self, operand: Expression) -> Expression:
        pattern = self._take_string("a pattern in quotes")
        escape = ""
        if self._take(WORD, "ESCAPE"):
            position = self._token().position
            escape = self._take_string("a character in quotes")
            if len(escape) != 1:
                raise refusal(position, "ESCAPE takes one character")
        start = self._tokens[self._next - 1].position
        try:
            return Alike(operand, pattern, escape)
        except ValueError as error:
            raise refusal(start, str(error)) from error

    # -- values

    def _sum(self) -> Expression:
        return self._calculation(("+", "-"))

    def _product(self) -> Expression:
        return self._calculation(("*", "/", "%"))

    def _calculation(self, signs: tuple[str, ...]) -> Expression:
        """Parse a sum of products, or a product of signed values."""
        start = self._token().position
        first = self._product() if signs[0] == "+" else self._signed()
        if not self._at_sign(signs):
            return first
        _need(first, (NUMBER, ANYTHING), start)
        operators: list[str] = []
        operands: list[Expression] = []
        while self._at_sign(signs):
            operators.append(self._take_any().text)
            start = self._token().position
            operand = self._product() if signs[0] == "+" else self._signed()
            operands.append(_need(operand, (NUMBER, ANYTHING), start))
        return self._arithmetic(first, operators, operands)

    def _arithmetic(self, first: Expression, signs: list[str], operands: list[Expression]) -> Expression:
        return Arithmetic(first, signs, operands, True)

    def _signed(self) -> Expression:
        minuses = 0
        signs = 0
        while self._at_sign(("+", "-")):
            signs += 1
            if self._take_any().text == "-":
                minuses += 1
        start = self._token().position
        operand = self._primary(minuses % 2 == 1)
        if signs > 0:
            _need(operand, (NUMBER, ANYTHING), start)
        if minuses == 0:
            return operand
        if not isinstance(operand, Literal):
            return negative(operand) if minuses % 2 else negative(negative(operand))
        value = operand.value
        assert isinstance(value, (int, float)), "a literal that is a number"
        if minuses % 2:
            value = -value
        if isinstance(value, int) and value > self._integer_max:
            raise refusal(start, f"'{value}' is out of range")
        return Literal(value)

    def _primary(self, negative: bool) -> Expression:
        token = self._token()
        value = token.value
        if token.kind == WORD:
            return self._word()
        if token.kind == END or (token.kind == SIGN and value != "("):
            raise self._unexpected("a value or a condition")
        self._next += 1
        if token.kind == NUMBER_TOKEN:
            if isinstance(value, int) and value > self._integer_max and not negative:
                raise refusal(token.position, f"'{token.text}' is out of range")
            return Literal(value)
        if token.kind == STRING_TOKEN:
            return Literal(value)
        if token.kind == NAME:
            assert isinstance(value, str), "names are strings"
            return Identifier(value)
        self._depth += 1
        if self._depth > NESTING_MAX:
            raise refusal(token.position, f"more than {NESTING_MAX} parentheses within each other")
        inner = self._junction("OR")
        self._expect(SIGN, ")")
        self._depth -= 1
        return inner

    def _word(self) -> Expression:
        """Parse a word that is a value."""
        value = self._token().value
        if value not in ("TRUE", "FALSE"):
            raise self._unexpected("a value or a condition")
        self._next += 1
        return Literal(value == "TRUE")

    # -- tokens

    def _token(self) -> Token:
        return self._tokens[self._next]

    def _take_any(self) -> Token:
        """Take the next token, which is not the end."""
        token = self._tokens[self._next]
        self._next += 1
        return token

    def _at(self, kind: str, value: str) -> bool:
        token = self._tokens[self._next]
        return token.kind == kind and token.value == value

    def _at_sign(self, signs: tuple[str, ...]) -> bool:
        token = self._tokens[self._next]
        return token.kind == SIGN and token.text in signs

    def _take(self, kind: str, value: str) -> bool:
        """Take the next token if it is this one."""
        if not self._at(kind, value):
            return False
        self._next += 1
        return True

    def _take_string(self, what: str) -> str:
        token = self._token()
        if token.kind != STRING_TOKEN:
            raise self._unexpected(what)
        self._next += 1
        assert isinstance(token.value, str), "strings are strings"
        return token.value

    def _expect(self, kind: str, value: str) -> None:
        if not self._take(kind, value):
            raise self._unexpected(f"'{value}'")

    def _unexpected(self, wanted: str) -> PreconditionFailed:
        token = self._token()
        found = "the end" if token.kind == END else f"'{token.text}'"
        return refusal(token.position, f"expected {wanted}, found {found}")


def _need(expression: Expression, kinds: tuple[str, ...], position: int) -> Expression:
    """Return the expression, if it is of one of the kinds."""
    if expression.kind not in kinds:
        raise refusal(position, f"expected {kinds[0]}, found {expression.kind}")
    return expression


def _operands(word: str, operand: Expression) -> list[Expression]:
    """Return the operand, or its own operands if it is joined with the same word.

    Parentheses make no difference then.
    """
    return operand.operands if isinstance(operand, Junction) and operand.word == word else [operand]
