"""Credit: the windows that limit how many unsettled messages and bytes a client has.

When several targets close or are suspended together, all of them become NOT_INTERESTED before another
consumer takes over. Otherwise the queue would notify a target that is about to be suspended itself.
"""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from broker.core.queues.consumer import BLOCKED_BY_TARGET, ROOM_MAX, ConsumerTarget
from broker.core.queues.consumers import pass_baton, stop_waiting, suspend
from broker.core.queues.queue import Queue, queue_of


def update_together(targets: list[ConsumerTarget]) -> None:
    """Recompute whether each of `targets` wants work, and inform the queues of those that changed."""
    left: dict[Queue, None] = {}
    for target in targets:
        if target.desired and not target.wants_work():
            target.desired = False
            for consumer in target.consumers:
                queue = queue_of(consumer)
                if suspend(queue, consumer, BLOCKED_BY_TARGET):
                    left[queue] = None
    for queue in left:
        pass_baton(queue)
    for target in targets:
        target.update()


def close_together(targets: list[ConsumerTarget]) -> None:
    """Close all `targets` before any of them releases an entry that another one could acquire."""
    for target in targets:
        target.closed = True
    update_together(targets)
    for target in targets:
        target.close()


@final
class Credit:
    """A window of messages and body bytes for one target, or for several (a 0-9-1 channel's).

    `targets`: in the order in which they are resumed. A target of several that has had a message moves to the
    end, so that all of them share a small window.
    `count_max` and `bytes_max`: 0 is unlimited. `used` and `used_bytes` count the unsettled deliveries,
    limited or not, so a limit may be set at any time. The first message always fits an idle byte window.
    Otherwise a message larger than the window could never be delivered. [AMQP 0-9-1 basic.qos]
    """

    def __init__(self, count_max: i64 = 0, bytes_max: i64 = 0) -> None:
        self.count_max = count_max
        self.bytes_max = bytes_max
        self.used: i64 = 0
        self.used_bytes: i64 = 0
        self.targets: dict[ConsumerTarget, None] = {}

    def has(self) -> bool:
        """Whether the window has credit: neither limit is reached."""
        return (self.count_max == 0 or self.used < self.count_max) and (
            self.bytes_max == 0 or self.used_bytes < self.bytes_max
        )

    def room(self) -> i64:
        """Return how many more messages the window takes, at most ROOM_MAX; 1 if only bytes are limited."""
        if self.count_max == 0:
            return ROOM_MAX if self.bytes_max == 0 else 1
        return min(max(self.count_max - self.used, 0), ROOM_MAX)

    def fits(self, size: i64) -> bool:
        """Whether a message with `size` bytes of body may be sent now."""
        if self.count_max != 0 and self.used >= self.count_max:
            return False
        return self.bytes_max == 0 or self.used_bytes == 0 or self.used_bytes + size <= self.bytes_max

    def use(self, size: i64) -> None:
        """Charge the window for a delivery of `size` bytes.

        Suspends the window's targets if this exhausts it.
        """
        self.used += 1
        self.used_bytes += size
        if self.used == self.count_max or (self.bytes_max != 0 and self.used_bytes >= self.bytes_max):
            self.update_targets()

    def use_for(self, target: ConsumerTarget, size: i64) -> None:
        """Charge the window for a delivery of `size` bytes to `target`, which shares the window."""
        targets = self.targets
        if len(targets) > 1 and target in targets:
            del targets[target]
            targets[target] = None
        self.use(size)

    def restore(self, size: i64) -> None:
        """Restore the credit of a message of `size` bytes that was settled or released.

        Resume waiting targets.
        """
        self.used -= 1
        self.used_bytes -= size
        if self.bytes_max != 0:
            self.resume_targets()
        elif self.used == self.count_max - 1:
            self.update_targets()

    def restore_all(self, count: i64, size: i64) -> None:
        """Restore the credit of `count` messages with `size` bytes together.

        Each waiting target is resumed once.
        """
        before = self.used
        self.used -= count
        self.used_bytes -= size
        if self.bytes_max != 0:
            self.resume_targets()
        elif self.used < self.count_max <= before:
            self.update_targets()

    def resize(self, count_max: i64, bytes_max: i64) -> None:
        """Set new limits.

        Below the unsettled count, the window stays exhausted until enough deliveries are settled.
        """
        self.count_max = count_max
        self.bytes_max = bytes_max
        for target in self.targets:
            target.sized = target.is_sized()
        self.resume_targets()

    def resume_targets(self) -> None:
        """Resume the targets, then retry the consumers that wait for bytes: more may fit than before."""
        self.update_targets()
        for target in list(self.targets):
            for consumer in list(target.consumers):
                queue = queue_of(consumer)
                if queue.waiting:
                    stop_waiting(queue, consumer)

    def update_targets(self) -> None:
        """Recompute whether the window's targets want work."""
        if len(self.targets) == 1:
            for target in self.targets:
                target.update()
                return
        update_together(list(self.targets))
