"""Notices to a queue when a consumer becomes active or inactive: `x-notify-active`."""

from __future__ import annotations

import json
from collections import deque
from typing import Final, final

from mypy_extensions import i64

from broker.adapters.access import EXCHANGE, Rights
from broker.auth.terms import WRITE
from broker.core.errors import PreconditionFailed
from broker.core.message import Address, Message
from broker.core.names import DEFAULT_EXCHANGE
from broker.core.publishing.routed_message import RoutedMessage, refuse_if_full
from broker.core.queues.consumer import QueueConsumer
from broker.core.queues.source import OWN_SOURCE
from broker.core.schedule import Chore, Schedule
from broker.core.vhosts.vhost import VirtualHost
from protocol.amqp091.composing import compose

SLICE: Final[i64] = 200  # messages that are published in a turn


@final
class _Notice:
    """A notice to publish. `to`: the name of the queue that gets the notice."""

    def __init__(self, virtual_host: VirtualHost, to: str, facts: dict[str, object]) -> None:
        self.virtual_host = virtual_host
        self.to = to
        self.facts = facts


@final
class ActivityNotices(Chore):
    """The notices of a step, published in their order when the step is over.

    The notices are the broker's own messages: a stopped queue takes them.
    """

    def __init__(self, schedule: Schedule) -> None:
        super().__init__(schedule, SLICE)
        self._notices: deque[_Notice] = deque()

    def add(
        self, virtual_host: VirtualHost, to: str, consumer: QueueConsumer, active: bool, why: str
    ) -> None:
        """Add the notice that `consumer` is active from now on, or inactive, because of `why`."""
        facts: dict[str, object] = {
            "queue": consumer.queue.name,
            "consumer_tag": consumer.tag,
            "active": active,
            "why": why,
        }
        self._notices.append(_Notice(virtual_host, to, facts))
        self.continue_soon()

    def step(self, budget: i64) -> bool:
        """Publish up to `budget` notices."""
        while self._notices and budget > 0:
            budget -= 1
            _publish(self._notices.popleft())
        return bool(self._notices)


def _publish(notice: _Notice) -> None:
    """Enqueue a notice; it is lost if the queue is deleted, or is full and refuses it."""
    virtual_host = notice.virtual_host
    queue = virtual_host.topology.queues.get(notice.to)
    if queue is None:
        return
    body = json.dumps(notice.facts, ensure_ascii=False).encode()
    content = compose(notice.facts, body, "application/json")
    message = Message(Address(DEFAULT_EXCHANGE, notice.to), content, len(body), False, 0)
    passage = RoutedMessage(message, [queue], [], OWN_SOURCE)
    if not refuse_if_full(virtual_host, message, passage.queues):
        passage.put(virtual_host)


def check_notified_queue(rights: Rights, virtual_host: VirtualHost, name: str, consumed: str) -> None:
    """Refuse to send notices about a consumer of the queue `consumed` to the queue `name`.

    Raises:
        AccessRefused: the user may not publish to the default exchange.
        PreconditionFailed: there is no such queue.
    """
    rights.require(WRITE, EXCHANGE, DEFAULT_EXCHANGE)
    if name not in virtual_host.topology.queues:
        raise PreconditionFailed(
            f"invalid arg 'x-notify-active' for queue '{consumed}' in vhost '{virtual_host.name}': "
            f"there is no queue '{name}'"
        )
