"""Writes into a message of AMQP 1.0 where and why it died. [RabbitMQ dead lettering]"""

from __future__ import annotations

from typing import Final

from broker.adapters.amqp10.headers import raw_annotation
from broker.adapters.amqp10.view import View10
from broker.core.message import Message
from broker.core.queues.death import DeadLetter, Notice, Past
from protocol.amqp10.annotations import reannotated, with_annotations
from protocol.amqp10.constructors import NONE
from protocol.amqp10.deaths import DEATHS, FIRST, LAST, Death, add_death, decode_deaths, encode_deaths
from protocol.amqp10.encoding import encode
from protocol.amqp10.headers import header_section
from protocol.amqp10.sections import scan_front
from protocol.conversion.names import X_CC

_ACQUIRED: Final = b"x-acquired-count"
_RETURNED: Final = b"x-delivery-count"
_EXPIRED_BY: Final = b"x-expired-by"
_EXPIRED_WHILE: Final = b"x-expired-while"
_TOLD: Final = (b"reason", b"queue", b"exchange")  # of the first death and the last one


def letter_of(message: Message, content: bytes, notice: Notice) -> DeadLetter:
    """The dead letter of a message with this content (LetterWriter).

    All that is told stands in the annotations, by the names of AMQP 0-9-1's headers but for x-opt-deaths. The
    ttl leaves the header, so that it does not die of that again, and so do the further routing keys the
    annotations if they are void. What a publisher wrote of deaths is not believed. Annotations that do not
    decode are of no use to anybody, and go too. The bare message stays as it is.
    """
    view = View10(content)
    copies = view.further_keys()
    exchange = message.address.exchange
    death = Death(
        notice.queue,
        notice.reason,
        notice.date,
        notice.date,
        exchange,
        [message.address.routing_key, *copies],
        _ttl(message, view),
    )
    deaths = add_death(deaths_of(content) if message.died else [], death)
    told: dict[bytes, object] = {}
    for prefix in (LAST,) if message.died else (FIRST, LAST):
        for what, text in zip(_TOLD, (death.reason, death.queue, exchange), strict=True):
            told[prefix + what] = text
    _add_past(told, notice.past)
    without = [name for name in (_EXPIRED_BY, _EXPIRED_WHILE) if name not in told]
    if not notice.keeps_keys:
        copies = []
        without.append(X_CC)
    written = _written(message, view, without, deaths, told)
    return DeadLetter(written, copies, [(each.queue, each.reason) for each in deaths], View10(written))


def deaths_of(content: bytes) -> list[Death]:
    """The history that a dead letter tells of, the latest death first."""
    return decode_deaths(raw_annotation(content, scan_front(content), DEATHS))


def first_queue(content: bytes) -> str:
    """The queue in which a dead letter died first, "" if it does not say."""
    queue = raw_annotation(content, scan_front(content), FIRST + b"queue")
    return queue if isinstance(queue, str) else ""


def without_history(content: bytes) -> bytes:
    """A dead letter without what it tells of its deaths."""
    told = [prefix + what for prefix in (FIRST, LAST) for what in _TOLD]
    return with_annotations(content, scan_front(content), [DEATHS, *told], [], [])


def _add_past(told: dict[bytes, object], past: Past | None) -> None:
    """How often the queue gave it out, and whose time was over."""
    if past is None:
        return
    if past.deliveries > 0:
        told[_ACQUIRED] = int(past.deliveries)
        told[_RETURNED] = int(past.returns)
    if past.expired_by:
        told[_EXPIRED_BY] = past.expired_by
        told[_EXPIRED_WHILE] = past.expired_while


def _written(
    message: Message, view: View10, without: list[bytes], deaths: list[Death], told: dict[bytes, object]
) -> bytes:
    """The content with a header that has no ttl, and with what is told in its annotations."""
    layout = view.layout
    header = view.header()
    durable = message.persistent if layout.header == NONE else header.durable
    section = reannotated(
        view.content,
        layout.annotations,
        layout.annotations_end,
        without,
        [DEATHS, *told],
        [encode_deaths(deaths), *[encode(value) for value in told.values()]],
    )
    return b"".join(
        (
            header_section(durable, view.priority(), NONE, header.first_acquirer, header.delivery_count),
            section,
            view.content[layout.bare :],
        )
    )


def _ttl(message: Message, view: View10) -> int:
    """Milliseconds, NONE if the message had none."""
    return int(message.expiration if message.expiration >= 0 else view.header().ttl)
