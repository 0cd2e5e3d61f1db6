"""Queues that do not get what their own consumer publishes. [JMS noLocal]"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from broker.core.queue import Queue

if TYPE_CHECKING:
    from broker.core.binding import Binding
    from broker.core.route import Resolution

NO_LOCAL: Final = "x-no-local"
"""The argument of a binding that says whose messages its queue is not to get, on whatever way."""


@final
class NoLocal:
    """Those of one virtual host, and whose messages each of them does not get.

    They are left out when a publisher's route is found, so that nothing has to be known of its messages.
    """

    def __init__(self) -> None:
        self._shunned: dict[Queue, str] = {}

    def bound(self, binding: Binding) -> None:
        """A binding is new, and may say so of its queue."""
        publisher = binding.arguments.get(NO_LOCAL)
        if binding.queue is not None and isinstance(publisher, str):
            self._shunned[binding.queue] = publisher

    def forget(self, queue: Queue) -> None:
        """A queue is gone."""
        self._shunned.pop(queue, None)

    def leave_out(self, found: Resolution, publisher: tuple[str, ...]) -> None:
        """Have none of what somebody with these names publishes go to queues that do not get it."""
        if not publisher or not self._shunned:
            return
        for queue in list(found.queues):
            shunned = self._shunned.get(queue)
            if shunned is not None and shunned in publisher:
                del found.queues[queue]
