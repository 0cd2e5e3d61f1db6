"""Selectors: a text becomes a condition that messages match or not."""

from __future__ import annotations

from typing import Final, final

from broker.core.errors import PreconditionFailed
from broker.core.message_view import Criterion, MessageView
from broker.core.selector.condition import demands_of
from broker.core.selector.parser import parse

LENGTH_MAX: Final = 4096  # characters


@final
class Selector(Criterion):
    """A condition on messages. [JMS 1.1, 3.8.1]

    `canonical`: the text in one spelling. Texts that differ only in spaces, the case of words, superfluous
    parentheses and the spelling of numbers have the same one.

    Raises:
        PreconditionFailed: the text is too long or no condition; the refusal has the position.
    """

    def __init__(self, text: str) -> None:
        if len(text) > LENGTH_MAX:
            raise PreconditionFailed(f"{len(text)} characters, at most {LENGTH_MAX} are allowed")
        condition = parse(text)
        super().__init__(condition.text(), demands_of(condition))
        self._condition = condition

    def matches(self, view: MessageView) -> bool:
        """Whether the condition is true for a message."""
        return self._condition.evaluate(view) is True
