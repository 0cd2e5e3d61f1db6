"""The tokens of SQL filters, and the meaning of their names. [filtex-v1.0 6.4]"""

from __future__ import annotations

import re
from typing import Final

from broker.core.selector.lexer import END, NAME, NUMBER, SIGN, STRING, WORD, Token, refusal
from protocol.amqp10.properties import NAMES

BINARY: Final = "binary"
TOKENS_MAX: Final = 200  # [filtex-v1.0 7.1]
INTEGER_MAX: Final = 2**64 - 1

APPLICATION: Final = "application_properties."
PROPERTIES: Final = "properties."
USER_ID: Final = PROPERTIES + "user_id"
PRIORITY: Final = "header.priority"
DURABLE: Final = "header.durable"
PLACES: Final = {PROPERTIES + name.replace("-", "_"): place for place, name in enumerate(NAMES)}
"""The places of the properties by the names that tokens have for them."""

_KNOWN: Final = frozenset((*PLACES, PRIORITY, DURABLE))
_SECTIONS: Final = {
    "header": "header.",
    "h": "header.",
    "properties": PROPERTIES,
    "p": PROPERTIES,
    "application_properties": APPLICATION,
    "a": APPLICATION,
}
_WORDS: Final = frozenset(("AND", "ESCAPE", "FALSE", "IN", "IS", "LIKE", "NOT", "NULL", "OR", "TRUE", "UTC"))
_RESERVED: Final = _WORDS | frozenset(
    ("DATE", "EXISTS", "INF", "LEFT", "LOWER", "NAN", "RIGHT", "SUBSTRING", "UPPER")
)

_TOKEN: Final = re.compile(
    r"""
    (?P<string> '(?:[^']|'')*+' | "(?:[^"]|"")*+" )
    | (?P<binary> 0x(?:[0-9A-F]{2})++ (?![0-9A-Za-z]) )
    | (?P<number> [0-9]++ (?: \.[0-9]++ (?:E[+-]?[0-9]++)? )? (?![0-9A-Za-z_.]) )
    | (?P<delimited> \[ (?: [^\[\]\x00-\x1f\x7f] | \[\[ | \]\] )*+ \] )
    | (?P<field> [A-Za-z][A-Za-z_]*+ \. [A-Za-z][A-Za-z0-9_]*+ )
    | (?P<name> [A-Za-z][A-Za-z0-9_]*+ )
    | (?P<sign> <> | != | >= | <= | [-=<>+*/%(),] )
    """,
    re.VERBOSE,
)
_SPACES: Final = re.compile(r"[ \t\f\n\r]*")


def sql_tokens(text: str) -> list[Token]:
    """Return the tokens of an SQL filter, END last.

    A name consists of a section, a dot and a name in this section. A name without a section is the name of an
    application property.

    Raises:
        PreconditionFailed: no token begins here, a literal is out of range, or there are too many tokens.
    """
    tokens: list[Token] = []
    start = _skip_spaces(text, 0)
    while start < len(text):
        if len(tokens) == TOKENS_MAX:
            raise refusal(start + 1, f"more than {TOKENS_MAX} words, signs and values")
        token = _token_at(text, start)
        tokens.append(token)
        start = _skip_spaces(text, start + len(token.text))
    tokens.append(Token(END, "", "", start + 1))
    return tokens


def _skip_spaces(text: str, start: int) -> int:
    match = _SPACES.match(text, start)
    return start if match is None else match.end()


def _token_at(text: str, start: int) -> Token:
    match = _TOKEN.match(text, start)
    if match is None:
        raise refusal(start + 1, f"{text[start]!r} begins nothing that an SQL filter knows")
    written = match.group()
    position = start + 1
    what = match.lastgroup
    if what == "string":
        quote = written[0]
        return Token(STRING, written, written[1:-1].replace(quote * 2, quote), position)
    if what == "binary":
        return Token(BINARY, written, bytes.fromhex(written[2:]), position)
    if what == "number":
        return Token(NUMBER, written, _number(written, position), position)
    if what == "delimited":
        name = written[1:-1].replace("[[", "[").replace("]]", "]")
        return Token(NAME, written, APPLICATION + name, position)
    if what == "field":
        return Token(NAME, written, _field(written, position), position)
    if what == "sign":
        return Token(SIGN, "<>" if written == "!=" else written, written, position)
    if written in _WORDS:
        return Token(WORD, written, written, position)
    if written.upper() in _RESERVED:
        raise refusal(position, f"'{written}' is reserved; a property of this name is [{written}]")
    return Token(NAME, written, APPLICATION + written, position)


def _number(written: str, position: int) -> int | float:
    value: int | float
    if "." in written:
        value = float(written)
        too_much = value == float("inf")
    else:
        too_much = len(written.lstrip("0")) > len(str(INTEGER_MAX)) or int(written) > INTEGER_MAX
        value = 0 if too_much else int(written)
    if too_much:
        raise refusal(position, f"{written!r} is out of range")
    return value


def _field(written: str, position: int) -> str:
    section, _, name = written.partition(".")
    if section not in _SECTIONS:
        raise refusal(position, f"'{section}' is not a section that filters read")
    full = _SECTIONS[section] + name
    if not full.startswith(APPLICATION) and full not in _KNOWN:
        raise refusal(position, f"'{written}' is not a field that filters read")
    return full
