"""Every way into a queue, for those who watch that nobody takes one while a queue calls out."""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType

from broker.core.attaching import attach, detach
from broker.core.clearing import dispose
from broker.core.connection import Connection
from broker.core.consumer_target import ConsumerTarget
from broker.core.dead_letter import dead_letter
from broker.core.discarding import discard_all
from broker.core.getting import get_one
from broker.core.immediate import enqueue_immediate, hand_over
from broker.core.leaving import take_out
from broker.core.operation import mark, unmark
from broker.core.queue import Queue
from broker.core.release import deliver_again, release
from broker.core.settling import settle_all

WAYS_IN: tuple[Callable[..., object], ...] = (
    Queue.enqueue,
    Queue.link,
    Queue.unlink,
    Queue.deliver_single_message,
    Queue.acquire,
    Queue.settle,
    ConsumerTarget.process_pending,
    Connection.pump,
    attach,
    detach,
    dead_letter,
    deliver_again,
    discard_all,
    dispose,
    enqueue_immediate,
    get_one,
    hand_over,
    mark,
    release,
    settle_all,
    take_out,
    unmark,
)


def codes(functions: tuple[Callable[..., object], ...]) -> dict[CodeType, str]:
    """The code of each function, and what it is called; {} where that is compiled and cannot be watched."""
    return {each.__code__: each.__qualname__ for each in functions if hasattr(each, "__code__")}
