"""The parser for look-aheads of a regular expression: it cuts them off so that RE2 can match every part."""

from __future__ import annotations

import re
from typing import Final, NamedTuple, final

BRANCHES_MAX: Final = 16
"""Branches that one expression with look-aheads may be written out to."""

LOOKS_MAX: Final = 128
"""Look-aheads of all branches of one expression."""

DEPTH_MAX: Final = 100
"""Groups within groups of an expression with look-aheads."""

PROPERTIES_MAX: Final = 20
r"""Unicode properties (`\p{...}`) of one expression: RE2 takes 0.1 ms to read each."""

# Kinds of tokens.
ATOM: Final = 0  # a character, a class or a whole group
PLACE: Final = 1  # an assertion that takes no character: ^ $ \A \b \B \z
REPEAT: Final = 2
FLAGS: Final = 3
BAR: Final = 4
OPEN: Final = 5
LOOK: Final = 6
CLOSE: Final = 7

_TOKEN: Final = re.compile(
    r"""
      \\Q (?s:.*?) (?: \\E | \Z )
    | \\ (?: [pP]\{[^}]*\} | x\{[^}]*\} | u[0-9A-Fa-f]{4} | U[0-9A-Fa-f]{8} | [0-7]{3} | (?s:.) )
    | \[ \^? \]? (?: \[: [^\]]* :\] | \\ (?s:.) | [^\]\\] )* \]
    | \(\?\# [^)]* \)
    | \( (?: \?\# | \?P?<[A-Za-z_]\w*> | \?[A-Za-z-]*[:)] | \?<?[=!] | \?P?[=>&(RC<'|+\-0-9]? | \* )?
    | (?: [*+?] | \{ [0-9]* (?:,[0-9]*)? \} ) [?+]?
    | (?s:.)
    """,
    re.VERBOSE,
)
_COUNTED: Final = re.compile(r"\{(?:[0-9]+(?:,[0-9]*)?|,[0-9]*)\}[?+]?")
_FLAGS: Final = re.compile(r"\(\?([imsUau]*)(?:-([imsU]*))?([:)])")
_BACK_REFERENCE: Final = re.compile(r"\\(?:[1-9]\Z|[kg]\Z)")
_PLACES: Final = frozenset({"^", "$", r"\A", r"\b", r"\B", r"\z"})
_FLAG_NAMES: Final = "imsU"

_NOT_OF_RE2: Final = (
    ("(?<=", "a look-behind"),
    ("(?<!", "a look-behind"),
    ("(?>", "an atomic group"),
    ("(?P=", "a back reference"),
    ("(?(", "a condition on a group"),
    ("(?R", "a recursion"),
    ("(?P>", "a recursion"),
    ("(?&", "a recursion"),
    ("(?+", "a recursion"),
    ("(?|", "a branch reset"),
    ("(*", "a verb"),
)
"""Openings of what RE2 does not have, and their names."""


class UnsupportedPattern(Exception):  # noqa: N818  the sentence that it begins has the expression as its subject
    """RE2 cannot match the expression; the text is the rest of a sentence about the expression."""


class Token(NamedTuple):
    """A piece of an expression, spelt for RE2; `at` is the place of its first character, from 1."""

    kind: int
    text: str
    at: int


class Look(NamedTuple):
    """A look-ahead: the expression that must match at a place, or must not (`negative`)."""

    text: str
    negative: bool


@final
class Branch:
    """An alternative of an expression: what RE2 matches, and the look-aheads before and behind it.

    `anchored`: the branch matches from the start of a name or not at all.
    """

    def __init__(self, text: str, before: list[Look], behind: list[Look], anchored: bool) -> None:
        self.text = text
        self.before = before
        self.behind = behind
        self.anchored = anchored


def read_branches(text: str, ignore_case: bool) -> list[Branch]:
    """Read an expression into branches without look-aheads; an expression that has none is a single branch.

    Syntax errors that RE2 finds by itself are left to RE2. Raises UnsupportedPattern.
    """
    tokens = _tokens(text)
    flags = "i" if ignore_case else ""
    if all(token.kind != LOOK for token in tokens):
        return [Branch(_spelt(flags) + "".join(token.text for token in tokens), [], [], False)]
    reader = _Reader(tokens, flags)
    rows = reader.alternatives(0)
    if reader.next < len(tokens):
        raise UnsupportedPattern(
            f"is not a regular expression: unexpected ) at character {tokens[reader.next].at}"
        )
    if sum(item.kind == LOOK for row in rows for item in row) > LOOKS_MAX:
        raise UnsupportedPattern(f"has more than {LOOKS_MAX} look-aheads in its branches")
    return [_branch(row) for row in rows]


# -- tokens


def _tokens(text: str) -> list[Token]:
    tokens: list[Token] = []
    properties = 0
    for match in _TOKEN.finditer(text):
        piece = match.group()
        at = match.start() + 1
        first = piece[0]
        if piece.startswith("(?#") and piece[-1] == ")":
            continue
        if first == "(":
            tokens.append(_opening(piece, at))
        elif first == ")":
            tokens.append(Token(CLOSE, piece, at))
        elif first == "|":
            tokens.append(Token(BAR, piece, at))
        elif first in "*+?" or (first == "{" and _COUNTED.fullmatch(piece)):
            tokens.append(_repeat(piece, at, tokens))
        elif first == "\\":
            if len(piece) == 2 and piece[1] in "pPx" and text.startswith("{", match.end()):
                raise _unclosed("{", at)
            properties += piece[1:2] in ("p", "P")
            tokens.append(_escape(piece, at))
        elif piece == "[":
            raise _unclosed(piece, at)
        else:
            if first == "[":
                properties += len(re.findall(r"\\[pP]", piece))
            tokens.append(Token(PLACE if piece in _PLACES else ATOM, piece, at))
    if properties > PROPERTIES_MAX:
        raise UnsupportedPattern(f"has {properties} Unicode properties, at most {PROPERTIES_MAX} are allowed")
    return tokens


def _opening(piece: str, at: int) -> Token:
    if piece in ("(?=", "(?!"):
        return Token(LOOK, piece, at)
    if piece == "(?#":
        raise _unclosed(piece, at)
    for opening, name in _NOT_OF_RE2:
        if piece.startswith(opening):
            raise _lacking(name, opening, at)
    if re.fullmatch(r"\(\?[0-9-]+", piece):
        raise _lacking("a recursion", piece, at)
    flags = _FLAGS.fullmatch(piece)
    if flags is None:
        return Token(OPEN, piece, at)
    on = "".join(each for each in flags[1] if each in _FLAG_NAMES)  # `a` and `u` are Python's
    off = flags[2] or ""
    spelt = f"(?{on}{'-' if off else ''}{off}"
    if flags[3] == ":":
        return Token(OPEN, spelt + ":", at)
    return Token(FLAGS, spelt + ")" if on or off else "", at)


def _repeat(piece: str, at: int, before: list[Token]) -> Token:
    if len(piece) > 1 and piece[-1] == "+":
        raise _lacking("a possessive repeat", piece, at)
    if before and before[-1].kind == REPEAT:
        raise UnsupportedPattern(f"is not a regular expression: it repeats a repeat at character {at}")
    return Token(REPEAT, piece.replace("{,", "{0,", 1), at)


def _escape(piece: str, at: int) -> Token:
    if _BACK_REFERENCE.match(piece):
        raise _lacking("a back reference", piece, at)
    if piece == r"\Z":
        return Token(PLACE, r"\z", at)
    if piece[1:2] in ("u", "U") and len(piece) > 2:
        return Token(ATOM, rf"\x{{{piece[2:]}}}", at)
    if len(piece) == 2 and not piece[1].isascii():
        return Token(ATOM, piece[1], at)
    return Token(PLACE if piece in _PLACES else ATOM, piece, at)


def _unclosed(opening: str, at: int) -> UnsupportedPattern:
    return UnsupportedPattern(f"is not a regular expression: nothing closes the {opening} at character {at}")


def _lacking(name: str, piece: str, at: int) -> UnsupportedPattern:
    return UnsupportedPattern(f"has {name}, '{piece}' at character {at}, which RE2 cannot match")


# -- branches


class _Item(NamedTuple):
    """A part of a row: a token, a whole group without look-aheads, or a look-ahead and its content."""

    kind: int
    text: str
    at: int
    negative: bool = False


Row = list[_Item]


@final
class _Reader:
    """A walk over the tokens of an expression with look-aheads, which expands groups that contain some."""

    def __init__(self, tokens: list[Token], flags: str) -> None:
        self.next: int = 0
        self._tokens = tokens
        self._flags = flags  # the flags in force at `next`

    def alternatives(self, depth: int) -> list[Row]:
        """Read alternatives up to the end of their group, each into one row or more."""
        if depth > DEPTH_MAX:
            raise UnsupportedPattern(f"has more than {DEPTH_MAX} groups within groups")
        finished: list[Row] = []
        rows: list[Row] = [[self._flags_in_force()]]
        while self.next < len(self._tokens):
            token = self._tokens[self.next]
            if token.kind == CLOSE:
                break
            self.next += 1
            if token.kind == BAR:
                finished += rows
                rows = [[self._flags_in_force()]]
                continue
            if token.kind == FLAGS:
                self._flags = _changed(self._flags, token.text)
                pieces = [[self._flags_in_force()]]
            elif token.kind == LOOK:
                pieces = [[self._look(token, depth)]]
            elif token.kind == OPEN:
                pieces = self._group(token, depth)
            else:
                pieces = [[self._repeated(_Item(token.kind, token.text, token.at))]]
            if len(rows) * len(pieces) + len(finished) > BRANCHES_MAX:
                raise UnsupportedPattern(f"has more than {BRANCHES_MAX} branches with look-aheads")
            if len(pieces) == 1:
                for row in rows:
                    row += pieces[0]
            else:
                rows = [row + piece for row in rows for piece in pieces]
        return finished + rows

    def _group(self, opening: Token, depth: int) -> list[Row]:
        """Read a group: a single part if no look-ahead is in the group, else the rows of its alternatives."""
        outer = self._flags
        start = self.next
        self._flags = _changed(outer, opening.text)
        rows = self.alternatives(depth + 1)
        self._close(opening)
        self._flags = outer
        if all(item.kind != LOOK for row in rows for item in row):
            inner = "".join(token.text for token in self._tokens[start : self.next])
            is_place = all(item.kind in (PLACE, FLAGS) for row in rows for item in row)
            item = _Item(PLACE if is_place else ATOM, opening.text + inner, opening.at)
            return [[self._repeated(item)]]
        self._refuse_repeat(opening)
        return [[*row, self._flags_in_force()] for row in rows]

    def _look(self, opening: Token, depth: int) -> _Item:
        outer = self._flags
        start = self.next
        rows = self.alternatives(depth + 1)
        inner = "".join(token.text for token in self._tokens[start : self.next])
        self._close(opening)
        self._flags = outer
        for row in rows:
            for item in row:
                if item.kind == LOOK:
                    raise _misplaced(item, "within a look-ahead")
        self._refuse_repeat(opening)
        return _Item(LOOK, f"{_spelt(outer)}(?:{inner})", opening.at, opening.text == "(?!")

    def _close(self, opening: Token) -> None:
        if self.next == len(self._tokens):
            raise _unclosed("(", opening.at)
        self.next += 1

    def _repeated(self, item: _Item) -> _Item:
        """Return the part together with the repeat that follows it, if one does."""
        if self.next < len(self._tokens) and self._tokens[self.next].kind == REPEAT:
            self.next += 1
            return item._replace(text=item.text + self._tokens[self.next - 1].text)
        return item

    def _refuse_repeat(self, opening: Token) -> None:
        if self.next < len(self._tokens) and self._tokens[self.next].kind == REPEAT:
            raise _misplaced(_Item(LOOK, "", opening.at), "within a repeat")

    def _flags_in_force(self) -> _Item:
        return _Item(FLAGS, _spelt(self._flags, complete=True), 0)


def _branch(row: Row) -> Branch:
    """Cut the look-aheads off both ends of a row of parts."""
    atoms = [index for index, item in enumerate(row) if item.kind not in (LOOK, PLACE, FLAGS)]
    first = atoms[0] if atoms else len(row)
    last = atoms[-1] if atoms else len(row)
    before: list[Look] = []
    behind: list[Look] = []
    anchored = False
    multiline = False
    for index, item in enumerate(row):
        if item.kind == LOOK:
            if first < index < last:
                raise _misplaced(item, "in the middle of a branch")
            (before if index < first else behind).append(Look(item.text, item.negative))
        elif item.kind == FLAGS:
            multiline = "m" in item.text.split("-")[0]
        elif index < first and (item.text == r"\A" or (item.text == "^" and not multiline)):
            anchored = True
    if before and behind and not anchored:
        raise UnsupportedPattern("has look-aheads at both ends of a branch that does not begin with ^")
    text = "".join(item.text for item in row if item.kind != LOOK)
    return Branch(text, before, behind, anchored)


def _misplaced(look: _Item, where: str) -> UnsupportedPattern:
    return UnsupportedPattern(
        f"has a look-ahead {where}, at character {look.at}: RE2 cannot match it there, only at the start "
        "or the end of a branch"
    )


# -- flags


def _changed(flags: str, spelt: str) -> str:
    """The flags in force behind `(?i-s)` or within `(?i-s:`."""
    match = _FLAGS.fullmatch(spelt)
    if match is None:
        return flags
    off = match[2] or ""
    return "".join(each for each in _FLAG_NAMES if (each in flags or each in match[1]) and each not in off)


def _spelt(flags: str, complete: bool = False) -> str:
    """The flags as RE2 reads them; `complete`: the other flags are turned off."""
    off = "".join(each for each in _FLAG_NAMES if each not in flags) if complete else ""
    return f"(?{flags}{'-' if off else ''}{off})" if flags or off else ""
