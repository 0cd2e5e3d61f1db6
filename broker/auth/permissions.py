"""What a user may do in one virtual host."""

import re
from typing import Final, final

from broker.core.errors import PreconditionFailed

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
        self._patterns = {"configure": _compile(configure), "write": _compile(write), "read": _compile(read)}
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


def _compile(expression: str) -> re.Pattern[str] | None:
    if not expression:
        return None
    try:
        return re.compile(expression)
    except re.error as error:
        raise PreconditionFailed(f"'{expression}' is not a regular expression: {error}") from error
