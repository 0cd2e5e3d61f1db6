"""Regular expressions over names and routing keys: RE2 compiles and matches them, within bounds."""

from __future__ import annotations

from typing import Any, Final, final

import re2

from broker.core.policies.pattern_syntax import Branch, Look, UnsupportedPattern, read_branches

LENGTH_MAX: Final = 8192
"""Characters of an expression."""

SIZE_MAX: Final = 4000
"""Instructions of an expression, and one for each byte of a long one: a list of names has no more.

RE2 looks at each instruction at each byte of a name at most: 6 ms for a name of 255 bytes.
"""

SIZE_MIN: Final = 100
"""Instructions of an expression besides those for its bytes."""

PLACES_SIZE_MAX: Final = 100
"""Instructions of a branch that is tried at each place of a name: 20 ms at most."""

MEMORY_MAX: Final = 512 * 1024
"""Bytes that RE2 may use for one expression."""

ERROR_MAX: Final = 200
"""Characters of an error of RE2 that are repeated."""


@final
class NamePattern:
    """A regular expression of RE2, which matches anywhere unless it is anchored.

    RE2 has no look-aheads. They are allowed at the start and at the end of a branch, where each is an
    expression of its own. An expression that cannot be used matches nothing, and `objection` says why (""
    otherwise). New ones are refused, but a log that has one is read.
    """

    def __init__(self, text: str, ignore_case: bool = False) -> None:
        self.text = text
        self.objection = ""
        self._branches: list[_Matcher] = []
        try:
            self._branches = _matchers(text, ignore_case)
        except UnsupportedPattern as error:
            self.objection = str(error)

    def matches(self, name: str) -> bool:
        """Whether the expression matches a name, or routing key, of up to 255 bytes."""
        try:
            octets = name.encode()
        except UnicodeEncodeError:  # the key is not valid UTF-8: for RE2 such bytes are no character
            octets = "".join("\ufffd" if 0xD800 <= ord(each) <= 0xDFFF else each for each in name).encode()
        return any(branch.matches(octets) for branch in self._branches)


@final
class _Matcher:
    """A branch of an expression, compiled."""

    def __init__(self, branch: Branch) -> None:
        self._anchored = branch.anchored
        self._before = [_Condition(look) for look in branch.before]
        self._behind = [_Condition(look) for look in branch.behind]
        text = branch.text
        if self._behind and not branch.anchored:
            text = f"(?s:.*?)(?:{text})"
        self._pattern = _compiled(text)
        self.size: int = int(self._pattern.programsize)
        self.size += sum(condition.size for condition in (*self._before, *self._behind))
        if (self._behind or (self._before and not self._anchored)) and self.size > PLACES_SIZE_MAX:
            raise UnsupportedPattern(
                "could take too long to match: its look-ahead is tried at each place of a name, and "
                f"comes to {self.size} instructions, {PLACES_SIZE_MAX} are allowed (more at the start of a "
                "branch that begins with ^)"
            )

    def matches(self, name: bytes) -> bool:
        """Whether the branch matches in a name, which is UTF-8."""
        if not self._before and not self._behind:
            return self._pattern.search(name) is not None
        if not self._behind:
            for place in [0] if self._anchored else _places(name):
                if all(each.holds(name, place) for each in self._before) and self._pattern.match(name, place):
                    return True
            return False
        if not all(each.holds(name, 0) for each in self._before):
            return False
        for place in _places(name):
            if self._pattern.fullmatch(name, 0, place) and all(
                each.holds(name, place) for each in self._behind
            ):
                return True
        return False


@final
class _Condition:
    """A look-ahead, compiled."""

    def __init__(self, look: Look) -> None:
        self._pattern = _compiled(look.text)
        self._negative = look.negative
        self.size: int = int(self._pattern.programsize)

    def holds(self, name: bytes, place: int) -> bool:
        """Whether the look-ahead holds at a place in a name, a number of bytes."""
        return (self._pattern.match(name, place) is None) == self._negative


def _matchers(text: str, ignore_case: bool) -> list[_Matcher]:
    if len(text) > LENGTH_MAX:
        raise UnsupportedPattern(f"is {len(text)} characters long, at most {LENGTH_MAX} are allowed")
    matchers: list[_Matcher] = []
    size = 0
    allowed = max(SIZE_MAX, SIZE_MIN + len(text.encode(errors="surrogatepass")))
    for branch in read_branches(text, ignore_case):
        matchers.append(_Matcher(branch))
        size += matchers[-1].size
        if size > allowed:
            raise UnsupportedPattern(
                f"could take too long to match: it comes to {size} instructions, {allowed} are allowed"
            )
    return matchers


def _compiled(text: str) -> Any:
    try:
        return re2.compile(text, _OPTIONS)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace")[:ERROR_MAX]
        if reason.startswith("pattern too large"):
            raise UnsupportedPattern("could take too long to match: it repeats too much") from error
        if reason.startswith("invalid repetition size"):
            reason += ", and RE2 repeats a part 1000 times at most, repeats within repeats included"
        raise UnsupportedPattern(f"is not a regular expression of RE2: {reason}") from error
    except UnicodeEncodeError as invalid:
        raise UnsupportedPattern("is not a regular expression: it is not valid UTF-8") from invalid


def _places(name: bytes) -> list[int]:
    """The places between the characters of a name, both ends included."""
    return [place for place in range(len(name) + 1) if place == len(name) or name[place] & 0xC0 != 0x80]


def _options() -> Any:
    options = re2.Options()
    options.log_errors = False  # else to the standard error, past the log
    options.never_capture = True
    options.max_mem = MEMORY_MAX
    return options


_OPTIONS: Final = _options()
