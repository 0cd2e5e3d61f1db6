"""Every function that enters a queue, to detect calls of them while a queue calls out."""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType

from broker.core.delivery.session import Connection, PullingTarget
from broker.core.operators.operation import mark, unmark
from broker.core.queues.attach import attach, detach, get_one
from broker.core.queues.immediate import deliver_next, enqueue_immediate
from broker.core.queues.purge import dispose
from broker.core.queues.queue import Queue, dead_letter, take_out
from broker.core.queues.returns import deliver_again, discard_all, release, settle_all

ENTRANCES: tuple[Callable[..., object], ...] = (
    Queue.enqueue,
    Queue.link,
    Queue.unlink,
    Queue.deliver_single_message,
    Queue.acquire,
    Queue.settle,
    PullingTarget.process_pending,
    Connection.pump,
    attach,
    detach,
    dead_letter,
    deliver_again,
    discard_all,
    dispose,
    enqueue_immediate,
    get_one,
    deliver_next,
    mark,
    release,
    settle_all,
    take_out,
    unmark,
)


def names_by_code(functions: tuple[Callable[..., object], ...]) -> dict[CodeType, str]:
    """Return the names of functions by code; {} for compiled functions, which cannot be traced."""
    return {each.__code__: each.__qualname__ for each in functions if hasattr(each, "__code__")}
