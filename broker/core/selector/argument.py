"""The argument that has a selector, of bindings and of consumers."""

from __future__ import annotations

from typing import Final

from broker.core.argument_rule import Arguments, invalid
from broker.core.errors import PreconditionFailed
from broker.core.selector.selector import Selector

SELECTOR: Final = "x-filter-jms-selector"


def selector_argument(arguments: Arguments, owner: str) -> Selector | None:
    """The selector among the arguments of `owner`, None without any or for one of spaces. [JMS 1.1, 3.8.1]

    Raises:
        PreconditionFailed: it is none; with the position.
    """
    if SELECTOR not in arguments:
        return None
    text = arguments[SELECTOR]
    if not isinstance(text, str):
        raise invalid(SELECTOR, owner, text, "is not a string")
    if not text.strip():
        return None
    try:
        return Selector(text)
    except PreconditionFailed as error:
        raise PreconditionFailed(f"invalid arg '{SELECTOR}' for {owner}: {error.text}") from error
