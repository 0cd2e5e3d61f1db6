"""Planted faults of message groups, each alone."""

from tests.simulation.queues.mutant import Mutant

GROUP_MUTANTS: dict[str, Mutant] = {
    "a fresh group is not looked at again": Mutant(
        "core/queues/groups.py",
        "            self._take(group, consumer)\n            hidden = True\n",
        "            self._take(group, consumer)\n",
        profile="groups, sticky, priorities, bytes",
    ),
    "a group is free before its last entry in flight settles": Mutant(
        "core/queues/groups.py",
        "        if group.inflight == 0:\n            self._continue_group(group)\n            self.wake()\n",
        "        if group.owner is not None or group.inflight == 0:\n"
        "            self._continue_group(group)\n            self.wake()\n",
        profile="groups",
    ),
    "a returned entry of a group is passed by a later one": Mutant(
        "core/queues/groups.py",
        "        if own is not None and own.precedes(entry):\n",
        "        if own is not None:\n",
        profile="groups",
    ),
    "rebalancing moves a group with entries in flight": Mutant(
        "core/queues/groups.py",
        "            if group.inflight == 0 and group.owner is not None:",
        "            if group.owner is not None:",
        profile="groups, rebalanced",
    ),
    "an idle key is forgotten although in flight": Mutant(
        "core/queues/groups.py",
        "            self.idle.pop(group, None)\n        group.entries += 1\n",
        "            pass\n        group.entries += 1\n",
        profile="groups, few remembered",
    ),
    "all that is parked is looked through whenever an entry leaves": Mutant(
        "core/queues/group.py", "            if len(heap) > most:\n", "            if True:\n", seeds=0
    ),
    "the key used last is forgotten": Mutant(
        "core/queues/groups.py",
        "next(iter(self.idle))",
        "next(reversed(self.idle))",
        profile="groups, few remembered",
    ),
    "nothing closes a group": Mutant(
        "core/queues/groups.py",
        "            group.shut = True\n            if group.owner",
        "            if group.owner",
        profile="groups",
    ),
    "nobody is told that a group is free": Mutant(
        "core/queues/groups.py",
        "        if freed and queue.ready != 0:\n",
        "        if False:\n",
        seeds=1000,
        profile="groups",
    ),
    "others are told that a group is free before it is": Mutant(
        "core/queues/groups.py",
        "            self._continue_group(group)\n            self.wake()\n",
        "            self.wake()\n            self._continue_group(group)\n",
        seeds=1000,
        profile="groups",
    ),
    "who lacks room is not told that a group is free": Mutant(
        "core/queues/groups.py",
        "        if queue.waiting:\n",
        "        if False:\n",
        profile="groups, selectors, priorities, bytes",
        first=1500,
    ),
    "what is parked of a free group stays there": Mutant(
        "core/queues/groups.py",
        "                group.take_parked(context)\n                heappush(context.behind, entry)\n",
        "                pass\n",
        profile="groups",
    ),
    "an owner is not told what is parked of its group": Mutant(
        "core/queues/groups.py",
        "            holding.add_head(group)\n    limits",
        "            pass\n    limits",
        profile="groups",
    ),
    "groups outlive their owners": Mutant(
        "core/queues/groups.py",
        "        if holding_of(consumer) is not None and consumer.state == REMOVED:\n",
        "        if False:\n",
        profile="groups",
    ),
    "groups of those who stand by stay theirs": Mutant(
        "core/queues/election.py",
        "            self.queue.discipline.free_other_groups(successor)\n",
        "            pass\n",
        profile="groups, one consumer",
    ),
    "a group is overtaken in strict order": Mutant(
        "core/queues/group.py",
        "        if self.inflight != promised:\n            return None\n        first",
        "        first",
        profile="groups, strict order",
    ),
    "the first of a group need not be first in strict order": Mutant(
        "core/queues/groups.py",
        "group.in_order() is entry",
        "group.inflight == 0",
        profile="groups, strict order",
    ),
    "an owner is not told that it is its turn in strict order": Mutant(
        "core/queues/groups.py",
        "        elif self.strict:\n            self._open_to(group, owner)\n",
        "        elif self.strict:\n            pass\n",
        profile="groups, strict order",
    ),
    "a limit does not know what is parked": Mutant(
        "core/queues/groups.py",
        "        limits.note_parked(entry)\n",
        "        pass\n",
        profile="groups, limits",
    ),
    "numbers are no keys": Mutant(
        "core/queues/group.py",
        "not isinstance(value, (str, int))",
        "not isinstance(value, str)",
        profile="groups",
    ),
    "groups of JMS are none": Mutant(
        "core/message_view.py",
        "        return headers.get(_JMS_GROUP_ID) if value is None else value\n",
        "        return value\n",
        profile="groups",
    ),
    "a key on disk cannot be read": Mutant(
        "core/queues/group.py",
        "            view = self._views(message, self._store)\n",
        '            view = self._views(message, self._store) if message.content else ""\n',
        profile="groups, log",
    ),
    "a group of which an operator holds something is free": Mutant(
        "core/operators/operation.py",
        "        queue.discipline.note_acquisition(entry, holder)\n",
        "        pass\n",
        profile="groups, operations",
    ),
    "a group is not free when an operator lets go": Mutant(
        "core/operators/operation.py",
        "            discipline.note_return(back)\n",
        "            pass\n",
        profile="groups, operations",
    ),
    "a get that has waited keeps its group": Mutant(
        "core/queues/groups.py",
        "owner.state == REMOVED or owner.getting:",
        "owner.state == REMOVED:",
        profile="gets that wait",
    ),
    "groups move for a get that waits": Mutant(
        "core/queues/groups.py",
        "        if self.rebalances and not consumer.getting:\n",
        "        if self.rebalances:\n",
        profile="gets that wait",
    ),
    "a gate is shut for gets": Mutant(
        "core/queues/attach.py",
        "    gate = None if consumer.getting else queue.manager.gate\n",
        "    gate = queue.manager.gate\n",
        profile="gets that wait",
    ),
}
