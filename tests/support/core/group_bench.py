"""A queue with message groups, by hand."""

from collections.abc import Callable
from typing import Any

from broker.core.entries.entry import EntryFilter
from broker.core.entries.list import FifoEntryList, QueueEntryList
from broker.core.message import Message
from broker.core.message_view import MessageView
from broker.core.ports import MessageStore
from broker.core.queues.group import GroupKeys
from broker.core.queues.groups import Groups
from tests.support.core.hand_clock import HandClock
from tests.support.core.queue_bench import QueueBench, message, number_of


class GroupView(MessageView):
    """The view of a message of a group; a `-` closes the group."""

    def __init__(self, group: str) -> None:
        self.group = group

    def headers(self) -> dict[str, object]:
        if self.group.endswith("-"):
            return {"x-group-id": self.group[:-1], "x-group-seq": -1}
        return {"x-group-id": self.group}


class GroupBench(QueueBench):
    """A bench whose messages are in groups."""

    def __init__(self, entries: QueueEntryList | None = None, **options: bool | int) -> None:
        super().__init__(entries or FifoEntryList())
        self.names: dict[int, str] = {}
        keys = GroupKeys(self.view, self.store, "")
        self.clock = HandClock()
        chosen: dict[str, Any] = {"sticky": True} | options
        self.groups = Groups(self.queue, keys, self.clock.schedule, **chosen)
        self.queue.set_discipline(self.groups)

    def view(self, stored: Message, _store: MessageStore) -> MessageView:
        assert stored.content is not None
        return GroupView(self.names[int(stored.content)])

    def next(self, group: str, priority: int = 0) -> Message:
        self.published += 1
        self.names[self.published] = group
        return message(self.published, 1, priority)

    def send(self, *groups: str, priority: int = 0) -> None:
        """Publish a message of each of these groups; "": of none."""
        for group in groups:
            self.queue.enqueue(self.next(group, priority))


class NumberFilter(EntryFilter):
    """Lets pass the messages with certain numbers."""

    def __init__(self, passes: Callable[[int], bool]) -> None:
        super().__init__(str(id(passes)))
        self._passes = passes

    def passes(self, entry: object) -> bool:
        return self._passes(number_of(entry))  # type: ignore[arg-type]
