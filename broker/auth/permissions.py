"""What a user may do in one virtual host."""

import re
from collections.abc import Mapping
from typing import Final, final

from broker.core.errors import PreconditionFailed

CONFIGURE: Final = "configure"
WRITE: Final = "write"
READ: Final = "read"

ANSWERS_MAX: Final = 4096
"""Answers remembered per permission; an open set of names (reply queues) must not grow without bound."""


@final
class Permission:
    """Three regular expressions over names of exchanges and queues, as RabbitMQ understands them.

    An expression matches anywhere in a name unless it is anchored; the empty one matches nothing. The
    default exchange, whose name is empty, is asked for as `amq.default`. Raises PreconditionFailed for a
    malformed expression.
    """

    __slots__ = ("_answers", "_patterns", "configure", "read", "write")

    def __init__(self, configure: str, write: str, read: str) -> None:
        self.configure = configure
        self.write = write
        self.read = read
        self._patterns = {CONFIGURE: _compile(configure), WRITE: _compile(write), READ: _compile(read)}
        self._answers: dict[tuple[str, str], bool] = {}

    def allows(self, what: str, name: str) -> bool:
        """Whether `what` (configure, write or read) is allowed on the exchange or queue called `name`."""
        answer = self._answers.get((what, name))
        if answer is None:
            pattern = self._patterns[what]
            answer = pattern is not None and pattern.search(name or "amq.default") is not None
            if len(self._answers) >= ANSWERS_MAX:
                self._answers.clear()
            self._answers[what, name] = answer
        return answer


@final
class TopicPermission:
    """Two regular expressions over the routing keys of one topic exchange. [RabbitMQ topic authorisation]

    `{username}`, `{vhost}` and `{client_id}` in them stand for what is known of who asks; a variable
    without a value stays as it is. The empty expression matches the empty key. Raises PreconditionFailed
    for a malformed expression: when it is made or, if the values make it malformed, when it is asked.
    """

    __slots__ = ("_patterns", "read", "write")

    def __init__(self, write: str, read: str) -> None:
        _compile(write)
        _compile(read)
        self.write = write
        self.read = read
        self._patterns: dict[tuple[object, ...], re.Pattern[str]] = {}

    def allows(self, what: str, routing_key: str, variables: Mapping[str, str]) -> bool:
        """Whether `what` (write: publish, read: bind) is allowed with `routing_key`."""
        question = (what, *variables.items())
        pattern = self._patterns.get(question)
        if pattern is None:
            pattern = _compiled(_expand(self.write if what == WRITE else self.read, variables))
            if len(self._patterns) >= ANSWERS_MAX:
                self._patterns.clear()
            self._patterns[question] = pattern
        return pattern.search(routing_key) is not None


def _expand(expression: str, variables: Mapping[str, str]) -> str:
    """Put in the values, as texts and not as expressions; in one pass, so that a value is never expanded."""
    if not expression:
        return "^$"
    return re.sub(
        r"\{(username|vhost|client_id)\}",
        lambda match: re.escape(variables[match[1]]) if match[1] in variables else match[0],
        expression,
    )


def _compile(expression: str) -> re.Pattern[str] | None:
    return _compiled(expression) if expression else None


def _compiled(expression: str) -> re.Pattern[str]:
    try:
        return re.compile(expression)
    except (re.error, OverflowError, RecursionError) as error:
        raise PreconditionFailed(f"'{expression}' is not a regular expression: {error}") from error
