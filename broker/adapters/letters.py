"""The dead letters of messages, each as its protocol has them."""

from __future__ import annotations

from broker.adapters import letter091
from broker.adapters.amqp10 import letter as letter10
from broker.adapters.annotated import annotated_content
from broker.core.message import Message
from broker.core.ports import MessageStore
from broker.core.queues.death import DeadLetter, Notice
from protocol.amqp10.sections import is_sections


def write_letter(message: Message, store: MessageStore, notice: Notice) -> DeadLetter:
    """The dead letter of a message (LetterWriter). Raises what MessageStore.load raises."""
    content = message.content
    if content is None:
        content = store.load(message)
    if notice.past is not None and notice.past.annotations:
        content = annotated_content(content, notice.past.annotations)
    if is_sections(content):
        return letter10.letter_of(message, content, notice)
    return letter091.letter_of(message, content, notice)
