"""Selectors: text in, answers about messages out."""

from __future__ import annotations

from typing import Final, final

from broker.core.errors import PreconditionFailed
from broker.core.selector.condition import demands_of
from broker.core.selector.parser import parse
from broker.core.view import MessageView

LENGTH_MAX: Final = 4096  # characters


@final
class Selector:
    """A condition on messages. [JMS 1.1, 3.8.1]

    `canonical`: its text in one spelling, the same for all texts that differ in nothing but spaces, the case
    of words, superfluous parentheses and the spelling of numbers.
    `demands`: equalities without which it is not true, each an identifier and the string or integer that it
    must be equal to.

    Raises:
        PreconditionFailed: the text is too long or no condition; the refusal has the position.
    """

    def __init__(self, text: str) -> None:
        if len(text) > LENGTH_MAX:
            raise PreconditionFailed(f"{len(text)} characters, at most {LENGTH_MAX} are allowed")
        self._condition = parse(text)
        self.canonical = self._condition.text()
        self.demands: list[tuple[str, str | int]] = demands_of(self._condition)

    def matches(self, view: MessageView) -> bool:
        """Whether the condition is true for a message: neither false nor unknown."""
        return self._condition.evaluate(view) is True
