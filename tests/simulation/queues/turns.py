"""Pending work of clients that the core does in slices, for the model.

Pending entries keep their state. An entry that is settled, rejected or returned stays acquired by its owner;
an entry that is to be purged stays ready. The model learns of each change when the core has made it. The
checks here: the core works in order, returns the credit with each entry, and leaves no entry behind.
"""

from __future__ import annotations

from typing import Final

from broker.core.entries.entry import DEQUEUED, QueueEntry
from broker.core.queues.consumer import QueueConsumer
from broker.core.queues.groups import Groups
from broker.core.queues.purge import Purge, PurgeWaiter
from broker.core.queues.returns import DISCARD_SLICE as REFUSED_AT_ONCE
from broker.core.queues.returns import FEW, EndedDeliveries
from tests.simulation.queues.clients import Client, Held
from tests.simulation.queues.invariants import check
from tests.simulation.queues.model import EXPIRED, OUT, Item, Shelf
from tests.simulation.queues.state import WorldState

AT_ONCE: Final = int(min(FEW, REFUSED_AT_ONCE))
"""So many go in one turn, whatever is done to them."""
SHORT: Final = AT_ONCE < 10
"""Whether the core is one whose slices have been shortened."""


class Purging(PurgeWaiter):
    """A requested purge. `entries`: its entries by item; `sure`: items that must leave."""

    def __init__(self, shelf: Shelf, entries: dict[Item, QueueEntry]) -> None:
        self.shelf = shelf
        self.entries = entries
        self.dead = list(shelf.dead)
        self.sure = {item for item in entries if item.state != OUT}
        self.dropped = 0
        self.over = False

    def on_purged(self, purge: Purge) -> None:
        assert not self.over, "a purge is over once"
        self.over = True

    def catch_up(self, world: WorldState, dying: int) -> bool:
        """Update the model, except for a message that is dying now; return whether the purge is over."""
        shelf = self.shelf
        if not shelf.deleted:
            there = set(shelf.items)
            for item, entry in list(self.entries.items()):
                if item.state == OUT:
                    self.sure.discard(item)  # a taker came before the purge
                gone = entry.state == DEQUEUED and item.number != dying and item in there
                gone = gone and item.state != OUT  # items that are out have been settled this very moment
                if gone and not shelf.is_late(item, world.clock.now):
                    world.seen(f"entry: {item.state} to purged")
                    world.book.remove(shelf, item)
                    self.dropped += 1
        if not self.over:
            return False
        for item, entry in self.entries.items():
            key = (shelf.name, item.number)
            if entry.state == DEQUEUED and item.number != dying and world.book.dying.get(key) == EXPIRED:
                del world.book.dying[key]  # the item would have expired later
        for number in [number for number in self.dead if number in shelf.dead.keys() - shelf.seized]:
            world.seen("entry: dead to purged")
            world.book.bury(shelf, number)
            world.book.journal.remove((shelf.name, number))
        left = [item.number for item in shelf.items if item in self.sure]
        check(world.seen, "S2", not left, f"{left} were not purged")
        shelf.service.purges -= 1
        return True


class Turns:
    """`settled`: by frames; `refused`: by queues; `returned`: by consumers; `purges`: as requested.

    Of each of the first three the core has something left to do, in this order. `owed`: what frames have
    given back and whose credit has not been.
    """

    def __init__(self, world: WorldState) -> None:
        self.world = world
        self.settled: list[list[Held]] = []
        self.refused: dict[Shelf, list[Held]] = {}
        self.returned: list[list[Held]] = []
        self.owed: list[Held] = []
        self.purges: list[Purging] = []
        self.pausing: list[Shelf] = []

    # ---- requests of clients, before the core gets them

    def settle(self, helds: list[Held]) -> None:
        """Record that a single frame settles these deliveries."""
        self._leave(helds)
        self.settled.append(helds)

    def refuse(self, helds: list[Held]) -> None:
        """Record that these deliveries of a queue's acquiring consumers are refused for good."""
        helds = [held for held in helds if held.there]
        self._leave(helds)
        if helds:
            self.refused.setdefault(helds[0].shelf, []).extend(helds)

    def give_back(self, runs: list[list[Held]], *, owed: bool = False) -> None:
        """Record that these deliveries return, in runs of a consumer; `owed`: with their credit."""
        specs = [purging.shelf.spec for purging in self.purges]
        if any(spec.max_length is not None or spec.max_bytes is not None for spec in specs):
            self.advance(0)  # or who knows whether what is to be purged is pushed out before
        few = len(runs) == 1 and len(runs[0]) <= AT_ONCE  # a message may push out what another message needs
        for run in runs:
            helds = [held for held in run if held.there]
            if not helds:
                continue
            shelf = helds[0].shelf
            if few and (shelf.spec.limit is None or self.world.queue_of(shelf).manager.discards is None):
                self.world.book.release(shelf, [held.item for held in helds])
            else:
                self._leave(helds)
                self.returned.append(helds)
        if owed:
            self.owed += [held for run in runs for held in run]

    def purge(self, shelf: Shelf) -> None:
        """Purge the ready items of a queue and count them; others wait for the end of the purge."""
        world = self.world
        numbers = {world.life.number(entry.message): entry for entry in world.queue_of(shelf).entries}
        purging = Purging(shelf, {item: numbers[item.number] for item in shelf.items})
        self.purges.append(purging)
        purge = world.life.vhost.declarations.purge_queue(shelf.name)
        shelf.service.purges += 1
        purge.set_waiter(purging)
        self.catch_up()
        if purging in self.purges:
            world.seen("slices: purge")

    def _leave(self, helds: list[Held]) -> None:
        for held in helds:
            held.client.leaving.append(held)

    # ---- the core

    def left(self, client: Client, count: int, size: int) -> None:
        """`client` has the credit back of so many deliveries, which have left if they were settled."""
        self.catch_up()
        if not self.settled and not self.owed:
            return
        rest = self._rest()
        settled = [
            held
            for helds in self.settled
            for held in helds
            if held.client is client and not held.is_out() and (held.consumer, held.entry) not in rest
        ][:count]
        seen = self.world.seen
        if not settled:
            back = [
                held
                for held in self.owed
                if held.client is client and (held.consumer, held.entry) not in rest
            ][:count]
            if back:
                sizes = sum(held.item.note.size for held in back)
                check(seen, "S3", (len(back), sizes) == (count, size), f"{count} instead of {len(back)}")
                self.owed = [held for held in self.owed if held not in back]
            return
        sizes = sum(held.item.note.size for held in settled)
        check(seen, "S3", (len(settled), sizes) == (count, size), f"{count} instead of {len(settled)}")
        for helds in self.settled:
            self._check_order(helds, [held for held in helds if held in settled])
        for held in settled:
            client.leaving.remove(held)
            if held.there:
                self.world.book.settle(held.shelf, held.item)
        self.settled = [
            some for helds in self.settled if (some := [held for held in helds if held not in settled])
        ]
        if self.settled:
            seen("slices: settle")

    def _rest(self) -> set[tuple[QueueConsumer, QueueEntry]]:
        """Return the entries that are settled or returned by a client and still pending in the core."""
        rest: set[tuple[QueueConsumer, QueueEntry]] = set()
        for each in self.world.life.vhost.settlements:
            assert isinstance(each, EndedDeliveries)
            rest |= {(consumer, entry) for consumer, some in each.remaining_runs() for entry in some}
        return rest

    def catch_up(self, dying: int = 0) -> None:
        """Update the model by the core's work, except for a message that is dying this moment."""
        if not (self.refused or self.returned or self.purges or self.pausing):
            return
        self._catch_up_refusals()
        for helds in list(self.returned):
            self._catch_up_returns(helds)
        self._pause()
        for purging in list(self.purges):
            if purging.catch_up(self.world, dying):
                self.purges.remove(purging)

    def _pause(self) -> None:
        """Serve no consumer of a queue while entries are on their way back to it, except waiting ones."""
        for shelf in self.pausing:
            shelf.service.returning = False
        rest = self._rest() if self.returned else set()
        self.pausing = [
            helds[0].shelf
            for helds in self.returned
            if helds[0].shelf.spec.retry is None
            and any((held.consumer, held.entry) in rest for held in helds)
        ]
        for shelf in self.pausing:
            shelf.service.returning = True

    def _catch_up_refusals(self) -> None:
        for shelf, helds in list(self.refused.items()):
            gone = [held for held in helds if held.entry.state == DEQUEUED]
            self._check_order(helds, gone)
            for held in gone:
                held.client.leaving.remove(held)
                self.world.book.discard(shelf, held.item)
            left = self.refused[shelf] = [held for held in helds if held not in gone]
            if not left:
                del self.refused[shelf]
            elif gone:
                self.world.seen("slices: refuse")

    def _catch_up_returns(self, helds: list[Held]) -> None:
        back = [held for held in helds if not held.is_out()]
        for held in back:
            helds.remove(held)
            held.client.leaving.remove(held)
        if back:
            self.world.book.release(back[0].shelf, [held.item for held in back])
            if helds:
                self.world.seen("slices: give back")
        if not helds:
            self.returned.remove(helds)

    # ---- turns

    def come(self) -> None:
        """Run all turns after a client's step, unless clients continue before."""
        world = self.world
        if not world.haste or self.waits() or world.rng.random() >= world.haste:
            self.advance(0)
            return
        self.catch_up()
        if self.are_due():
            world.seen("slices: haste")

    def wait(self) -> None:
        """Advance until no work is pending, because the model does everything at once."""
        if self.waits():
            self.advance(0)

    def advance(self, milliseconds: int) -> None:
        """Let time pass; whatever has turns to come has them before."""
        for step in (0, milliseconds) if milliseconds else (0,):
            self.world.clock.advance(step, self.catch_up)
            self.catch_up()
            self.check_done()

    def are_due(self) -> bool:
        """Whether there are turns to come now."""
        clock = self.world.clock
        return bool(clock.wakes) and clock.wakes[-1] <= clock.now

    # ---- invariants

    def _check_order(self, helds: list[Held], gone: list[Held]) -> None:
        """Check that no entry of a queue has left before an earlier one of `helds`."""
        left: set[Shelf] = set()
        for held in helds:
            if held not in gone and held.there:
                left.add(held.shelf)
            elif held in gone and held.there:
                text = f"{held.item.number} leaves before others that were settled before it"
                check(self.world.seen, "S1", held.shelf not in left, text)

    def shelves(self) -> set[str]:
        """The queues of which something is on its way, by their names."""
        helds = [held for some in (*self.settled, *self.refused.values(), *self.returned) for held in some]
        return {held.shelf.name for held in helds} | {purging.shelf.name for purging in self.purges}

    def note(self, how: str) -> None:
        """Something happens; is anything on its way?"""
        if self.settled or self.refused or self.returned or self.purges:
            self.world.seen("slices: " + how)

    def deleted(self, shelf: Shelf) -> None:
        """End the pending work of a deleted queue; settled and refused entries have left before."""
        self._catch_up_refusals()
        waiting = [
            held.item.number for helds in self.settled for held in helds if held.shelf is shelf and held.there
        ]
        waiting += [held.item.number for held in self.refused.pop(shelf, [])]
        check(self.world.seen, "S2", not waiting, f"{waiting} have not left before their queue")
        for helds in [helds for helds in self.returned if helds[0].shelf is shelf]:
            lost = [held.item.number for held in helds if shelf.is_exhausted(held.item)]
            check(self.world.seen, "S2", not (lost and shelf.spec.dead_letter), f"{lost} are no dead letters")
            self.returned.remove(helds)
            for held in helds:
                held.client.leaving.remove(held)

    def waits(self) -> bool:
        """Whether immediate work of the model has turns pending: limits, groups, records."""
        now = self.world.clock.now
        for queue in self.world.life.vhost.topology.queues.values():
            groups = queue.discipline
            if isinstance(groups, Groups):
                # or who knows which group is idle first
                ambiguous = self.settled or self.refused or self.returned or self.purges
                if groups.release is not None or (groups.sticky and ambiguous):
                    return True
            for task in (queue.limits, queue.memory):
                if task is not None and 0 < task.due <= now:
                    return True
        return False

    def check_settled(self) -> None:
        """Check after a clean stop that settled messages were not recovered."""
        numbers = [held.item.number for helds in self.settled for held in helds]
        check(self.world.seen, "S2", not numbers, f"{numbers} are settled and have not left")

    def check_credit(self, client: Client) -> None:
        """Check that a window counts its client's deliveries, ended ones until their turns have come.

        Deliveries that need no settlement are not counted.
        """
        if any(taker.no_ack for taker in client.takers.values()):
            return
        owed = [held for helds in (*self.settled, self.owed) for held in helds if held.client is client]
        expected = len(client.held) + len(client.lost) + len(owed)
        used = (client.window.used, int(client.credit.used))
        check(self.world.seen, "S3", used == (expected, expected), f"{used} instead of {expected} are used")

    def check_done(self) -> None:
        """Check that no turn is pending."""
        numbers = [
            held.item.number
            for helds in (*self.settled, *self.refused.values(), *self.returned)
            for held in helds
        ]
        numbers += [held.item.number for held in self.owed]
        check(self.world.seen, "S2", not numbers, f"{numbers} have turns to come no more")
        purges = [purging.shelf.name for purging in self.purges]
        check(self.world.seen, "S2", not purges, f"the purges of {purges} have no end")
        for client in self.world.clients:
            lost = [held.item.number for held in client.held if held.shelf.deleted and held.consumer.acquires]
            check(self.world.seen, "I3", not lost, f"{lost} of a deleted queue are held")
