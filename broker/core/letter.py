"""How a message is told where and why it died. What it says of that is up to its protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from broker.core.message import Message
from broker.core.ports import MessageStore
from broker.core.view import MessageView

_REJECTED: Final = "rejected"


@final
class Past:
    """How it went with a message in the queue in which it died.

    `deliveries`: how often the queue, which counts, gave it out, 0: never; `returns`: how often it came back
    then in a way that counts. `expired_by`: whose time to live was over, "message" or "queue"; "" if it did
    not expire; `expired_while`: "ready", or "held" because it was to wait before it was tried again.
    `annotations`: what consumers have added to it, encoded.
    """

    def __init__(self) -> None:
        self.deliveries: i64 = 0
        self.returns: i64 = 0
        self.expired_by = ""
        self.expired_while = ""
        self.annotations = b""


@final
class Notice:
    """What a dead letter is to say: the message has left `queue` at `date` (ms since 1970) for `reason`.

    `keeps_keys`: it goes on with the routing keys that it has; else those that its publisher added are void.
    `past`: what else there is to tell, if anything.
    """

    def __init__(
        self, queue: str, reason: str, date: i64, keeps_keys: bool, past: Past | None = None
    ) -> None:
        self.queue = queue
        self.reason = reason
        self.date = date
        self.keeps_keys = keeps_keys
        self.past = past


@final
class DeadLetter:
    """A message that says why it died.

    `content`: as it goes on, without an expiration. `copies`: the routing keys that it has beside its own.
    `deaths`: queue and reason of each death, the latest first. `view`: for exchanges that choose by message.
    """

    def __init__(
        self, content: bytes, copies: list[str], deaths: list[tuple[str, str]], view: MessageView
    ) -> None:
        self.content = content
        self.copies = copies
        self.deaths = deaths
        self.view = view

    def ends_cycle(self, queue: str) -> bool:
        """Whether the message died in `queue` before, and no client has refused it since.

        It would die there again and again, with nobody to notice. [RabbitMQ automatic dead-letter cycles]
        """
        for where, reason in self.deaths:
            if reason == _REJECTED:
                return False
            if where == queue:
                return True
        return False


LetterWriter = Callable[[Message, MessageStore, Notice], DeadLetter]
"""Makes the dead letter of a message; the store has its content if memory has not.

Raises what MessageStore.load raises.
"""


def bare_letter(message: Message, store: MessageStore, notice: Notice) -> DeadLetter:
    """For messages of which nothing is known but where they go."""
    content = message.content
    if content is None:
        content = store.load(message)
    return DeadLetter(content, [], [(notice.queue, notice.reason)], MessageView())
