"""What may be asked of messages, in whatever language."""

from __future__ import annotations

from broker.core.view import MessageView


class Criterion:
    """A condition on messages.

    `canonical`: a text; criteria with the same let the same messages pass.
    `demands`: equalities without which it is not true, each an identifier of selectors and the string or
    integer that it must be equal to.
    """

    def __init__(self, canonical: str, demands: list[tuple[str, str | int]]) -> None:
        self.canonical = canonical
        self.demands = demands

    def matches(self, view: MessageView) -> bool:
        """Whether the condition is true for a message: neither false nor unknown."""
        raise NotImplementedError
