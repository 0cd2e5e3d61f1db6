"""The outcome of a publish."""

from __future__ import annotations

from typing import Final, final


@final
class Outcome:
    """The outcome of a publish: one of the constants of this module, compared with `is`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


ROUTED: Final = Outcome("routed")  # a queue or a delayed exchange has the message
UNROUTED: Final = Outcome("unrouted")  # no queue is bound for the message
NO_CONSUMER: Final = Outcome("no consumer")  # no consumer could get the immediate message at once
REFUSED: Final = Outcome("refused")  # a queue is full, or lacks the predecessor; no queue has it
DUPLICATE: Final = Outcome("duplicate")  # all queues had the message before
