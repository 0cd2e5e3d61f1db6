"""The former mappings of a partitioned queue, as long as other brokers may have messages of theirs.

The log of this broker does not have the messages that other brokers have. So after a restart nothing but the
former mapping shows that earlier messages of a key are in another broker. The definition of the queue
contains the former mappings.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from broker.core.arguments.partition import PARTITION_MEMBERS, PARTITION_PINS
from broker.core.arguments.rule import Arguments
from broker.core.errors import PreconditionFailed
from broker.core.partitions.mapping import Mapping
from broker.core.partitions.runs import Elsewhere, FormerPlaces, Run, Slot
from broker.core.queues.queue import Queue

MAPPINGS_MAX: Final = 256
UNKNOWN: Final[i64] = -1


@final
class SentMessages:
    """The messages of a queue that were there, or that the queue had sent to `elsewhere`, at one moment.

    `newest`: the arrival of the last of them, UNKNOWN before recovery has restored the messages. `behind`:
    the number after their last one elsewhere, UNKNOWN while some are in the queue.
    """

    def __init__(self, queue: Queue, elsewhere: Elsewhere, is_restored: bool) -> None:
        self.queue = queue
        self.elsewhere = elsewhere
        self.newest: i64 = UNKNOWN if is_restored else queue.entries.sequence
        self.behind: i64 = UNKNOWN

    @property
    def are_consumed(self) -> bool:
        """Whether all messages have been consumed. The broker has recovered."""
        entries = self.queue.entries
        if self.newest == UNKNOWN:
            self.newest = entries.sequence
        if self.behind == UNKNOWN:
            first = entries.next(entries.head)
            if first is not None and entries.arrival(first) <= self.newest:
                return False
            self.behind = self.elsewhere.sent
        return self.behind <= self.elsewhere.consumed


@final
class FormerMapping:
    """A mapping that was replaced. `members` and `pins`: its arguments. `sent`: by the name of the member."""

    def __init__(self, mapping: Mapping, members: object, pins: object) -> None:
        self.mapping = mapping
        self.members = members
        self.pins = pins
        self.sent: dict[str, SentMessages] = {}


@final
class History(FormerPlaces):
    """The former mappings whose messages may be in other brokers, the earliest one first."""

    def __init__(self) -> None:
        self._mappings: list[FormerMapping] = []

    def __len__(self) -> int:
        """The number of mappings."""
        return len(self._mappings)

    def check_room(self, where: str) -> None:
        """Check that another mapping can be replaced. Raises PreconditionFailed for the queue `where`."""
        if len(self._mappings) >= MAPPINGS_MAX:
            names = sorted({name for each in self._mappings for name in each.sent})
            raise PreconditionFailed(
                f"{where} has changed its members {MAPPINGS_MAX} times while messages of former mappings "
                f"wait in {', '.join(names)}: try again when these have been consumed"
            )

    def add(self, mapping: Mapping, arguments: Arguments, sent: dict[str, SentMessages]) -> None:
        """Add a mapping that is replaced now. `sent`: what its members have sent, by their names."""
        if not sent:
            return
        members, pins = arguments.get(PARTITION_MEMBERS), arguments.get(PARTITION_PINS, {})
        newest = self._mappings[-1] if self._mappings else None
        if newest is None or newest.members != members or newest.pins != pins:
            newest = FormerMapping(mapping, members, pins)
            self._mappings.append(newest)
        newest.sent |= sent

    def forget_consumed(self) -> bool:
        """Forget the mappings whose messages have been consumed. Return whether there was one."""
        before = len(self._mappings)
        for each in self._mappings:
            each.sent = {name: sent for name, sent in each.sent.items() if not sent.are_consumed}
        self._mappings = [each for each in self._mappings if each.sent]
        return len(self._mappings) != before

    def forget_member(self, name: str) -> None:
        """Forget the messages of a member that was deleted."""
        for each in self._mappings:
            each.sent.pop(name, None)
        self._mappings = [each for each in self._mappings if each.sent]

    def find_runs(self, slot: Slot) -> list[Run]:
        """Return new runs of the slot in members that may have messages elsewhere, the earliest one first."""
        runs: list[Run] = []
        for each in self._mappings:
            for index in each.mapping.members_of_slot(slot):
                sent = each.sent.get(each.mapping.members[index].name)
                if sent is None or (runs and runs[-1].queue is sent.queue):
                    continue
                run = Run(slot, sent.queue, sent.elsewhere)
                if run.is_away:
                    runs.append(run)
        return runs

    def describe(self) -> list[dict[str, object]]:
        """Return the arguments of the mappings, for the definition of the queue."""
        return [{PARTITION_MEMBERS: each.members, PARTITION_PINS: each.pins} for each in self._mappings]
