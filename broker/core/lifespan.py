"""Queues that are there until nobody and nothing is left. [amqp-1.0 3.5.11 to 3.5.13]"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from broker.core.delaying import delayed_in
from broker.core.queue import Queue
from broker.core.schedule import Alarm

if TYPE_CHECKING:
    from broker.core.topology import Topology


@final
class Lifespan(Alarm):
    """That of a queue which has been made for somebody, its maker, who counts as a link until it is gone.

    `links`: it lasts as long as there are links, consumers and `Dependents`; if not, as long as its maker.
    `messages`: and as long as there are messages, with clients or not.
    Whoever leaves has it `look`, which it does in a turn of its own, never inside the step of leaving.
    """

    def __init__(self, topology: Topology, queue: Queue, links: bool, messages: bool) -> None:
        super().__init__()
        self.links = links
        self.messages = messages
        self._queue = queue
        self._topology = topology
        self._has_maker = True
        topology.dependents.lifespans[queue] = self
        if messages:
            queue.entries.lifespan = self

    def maker_gone(self) -> None:
        """Who it was made for is not there any more."""
        self._has_maker = False
        self.look()

    def look(self) -> None:
        """Somebody or something has left: this may be the end."""
        if self.due == 0 and not self._has_maker:
            self._topology.schedule.set(self, self._topology.schedule.now())

    def ring(self) -> None:
        """Delete it if nothing is left (Alarm)."""
        queue = self._queue
        if self.links and (queue.consumer_count or self._topology.dependents.has(queue)):
            return
        if self.messages and (queue.messages + delayed_in(queue)):
            return
        self._topology.queue_unused(queue)
