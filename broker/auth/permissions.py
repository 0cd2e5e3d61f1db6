"""The permissions of a user in a virtual host."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, final

from broker.auth.terms import CONFIGURE, READ, WRITE
from broker.core.policies.pattern import NamePattern

NO_NAME: Final = "(?!)"
"""The expression used for an empty expression: it matches no name."""

ANSWERS_MAX: Final = 4096
"""The largest number of answers that a permission remembers: the set of names may be open."""

PATTERNS_MAX: Final = 64
"""The largest number of expressions with values that a topic permission remembers; two are usual."""


@final
class Permission:
    """Three regular expressions over names of exchanges and queues, as RabbitMQ understands them.

    An expression matches anywhere in a name unless it is anchored. The empty expression matches nothing. The
    default exchange, whose name is empty, is checked as `amq.default`. A permission with an unusable
    expression allows nothing, and `objection` has the reason ("" otherwise).
    """

    __slots__ = ("_answers", "_patterns", "configure", "objection", "read", "write")

    def __init__(self, configure: str, write: str, read: str) -> None:
        self.configure = configure
        self.write = write
        self.read = read
        self._patterns = {
            right: NamePattern(expression or NO_NAME)
            for right, expression in ((CONFIGURE, configure), (WRITE, write), (READ, read))
        }
        self.objection = _objection(self._patterns.values())
        self._answers: dict[tuple[str, str], bool] = {}  # with an `objection` all answers are False

    def equals(self, other: Permission) -> bool:
        """Whether `other` has the same expressions."""
        return (self.configure, self.write, self.read) == (other.configure, other.write, other.read)

    def allows(self, right: str, name: str) -> bool:
        """Whether `right` (configure, write or read) is allowed on the exchange or queue called `name`."""
        answer = self._answers.get((right, name))
        if answer is None:
            answer = not self.objection and self._patterns[right].matches(name or "amq.default")
            if len(self._answers) >= ANSWERS_MAX:
                self._answers.clear()
            self._answers[right, name] = answer
        return answer


@final
class TopicPermission:
    """Two regular expressions over the routing keys of a topic exchange. [RabbitMQ topic authorisation]

    `{username}` and `{vhost}` in an expression are replaced by the user's values. The empty expression
    matches the empty key. A permission with an unusable expression allows nothing, and `objection` has the
    reason ("" otherwise). An expression that becomes unusable with the values allows nothing by itself.
    """

    __slots__ = ("_answers", "_patterns", "objection", "read", "write")

    def __init__(self, write: str, read: str) -> None:
        self.objection = _objection((NamePattern(write), NamePattern(read)))
        self.write = write
        self.read = read
        self._patterns: dict[tuple[object, ...], NamePattern] = {}
        self._answers: dict[tuple[object, ...], bool] = {}

    def equals(self, other: TopicPermission) -> bool:
        """Whether `other` has the same expressions."""
        return (self.write, self.read) == (other.write, other.read)

    def allows(self, right: str, routing_key: str, variables: Mapping[str, str]) -> bool:
        """Whether `right` (write: publish, read: bind) is allowed with `routing_key`."""
        question = (right, routing_key, *variables.items())
        answer = self._answers.get(question)
        if answer is None:
            answer = not self.objection and self._pattern(right, variables).matches(routing_key)
            if len(self._answers) >= ANSWERS_MAX:
                self._answers.clear()
            self._answers[question] = answer
        return answer

    def _pattern(self, right: str, variables: Mapping[str, str]) -> NamePattern:
        key = (right, *variables.items())
        pattern = self._patterns.get(key)
        if pattern is None:
            pattern = NamePattern(_expand(self.write if right == WRITE else self.read, variables))
            if len(self._patterns) >= PATTERNS_MAX:
                self._patterns.clear()
            self._patterns[key] = pattern
        return pattern


def _expand(expression: str, variables: Mapping[str, str]) -> str:
    """Insert the values as literal texts, in a single pass, so that a value is never expanded."""
    if not expression:
        return "^$"
    return re.sub(
        r"\{(username|vhost)\}",
        lambda match: _literal(variables[match[1]]),
        expression,
    )


def _literal(value: str) -> str:
    """The expression that matches exactly a value."""
    return re.sub(r"[^\w]", lambda match: f"\\x{{{ord(match[0]):x}}}", value)


def _objection(patterns: Iterable[NamePattern]) -> str:
    return "; ".join(f"'{each.text}' {each.objection}" for each in patterns if each.objection)
