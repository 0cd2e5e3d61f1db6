"""What a queue that the log does not know gets of a message that the log holds for others.

Not the message itself: the log may take its content out of memory, and lets go of it when those others have.
"""

from __future__ import annotations

from broker.core.journal import uid_of
from broker.core.keeper import Keeper
from broker.core.message import Message, copy_of
from broker.core.queue import Queue


def unlogged_twin(message: Message, queues: list[Queue], keepers: list[Keeper]) -> Message:
    """What is put into those of the queues and keepers that are not logged; `message` is in memory."""
    if message.sequence != 0:
        for queue in queues:
            if not queue.logged and queue.stream is None:
                return _twin(message)
        for keeper in keepers:
            if not keeper.queue.logged:
                return _twin(message)
    return message


def _twin(message: Message) -> Message:
    twin = copy_of(message, message.content)
    twin.date = message.date
    twin.uid = uid_of(message)
    return twin
