"""Faults that are planted one at a time: each must make the simulation, or a measure of F1 to F4, fail.

`python -m tests.simulation.queues.mutants [NAME ...]` plants these, or all. Not among them is an election
before what the former consumer had is back: nothing is delivered in between, so nobody could ever tell.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.simulation.queues.group_mutants import GROUP_MUTANTS
from tests.simulation.queues.mutant import Mutant, copy
from tests.simulation.queues.short_slices import shorten
from tests.simulation.queues.slice_mutants import SLICE_MUTANTS
from tests.simulation.queues.special_mutants import SPECIAL_MUTANTS

SIMULATION = ("-m", "tests.simulation.queues", "--seeds")
MEASURED = ("tests/simulation/queues/test_costs.py", "tests/simulation/queues/test_fairness.py")
MEASURES = ("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *MEASURED)


MUTANTS: dict[str, Mutant] = {
    "lost baton": Mutant(
        "core/queues/consumers.py",
        "        if consumer.acquires:\n            pass_baton(queue, consumer)\n",
        "        pass\n",
    ),
    "lost baton of those that are suspended together": Mutant(
        "core/delivery/credit.py", "        pass_baton(queue)\n", "        pass\n"
    ),
    "notify before state": Mutant(
        "core/queues/consumers.py",
        "        queue.manager.move(consumer, INTERESTED if consumer.acquires else NON_ACQUIRING)\n"
        "        notify_consumer(queue, consumer)\n",
        "        notify_consumer(queue, consumer)\n"
        "        queue.manager.move(consumer, INTERESTED if consumer.acquires else NON_ACQUIRING)\n",
    ),
    "woken by those that are suspended together": Mutant(
        "core/delivery/credit.py", "        if target.desired and not", "        if False and not"
    ),
    "cursor not pulled back": Mutant(
        "core/queues/queue.py", "            queue.context.offer(entry, depth)\n", "            pass\n"
    ),
    "release without an offer to those with selectors": Mutant(
        "core/queues/queue.py",
        "        context.offer_many(back, depth)\n",
        "        pass\n",
        profile="selectors",
    ),
    "release without a wake-up": Mutant(
        "core/queues/queue.py", "            notify_one(queue, entry)\n", "            pass\n"
    ),
    "returned entries are shown to browsers": Mutant(
        "core/queues/queue.py",
        "    for context in queue.filtered:\n        context.offer_many(",
        "    for context in queue.filtered + (list(queue.browsers.cursors) if queue.browsers else []):\n"
        "        context.offer_many(",
        profile="priority",
    ),
    "out-of-order arrival without an offer": Mutant(
        "core/queues/queue.py",
        "    depth = queue.depth\n    queue.context.offer(entry, depth)\n",
        "    depth = queue.depth\n",
        profile="priority",
    ),
    "dead cursor": Mutant(
        "core/entries/cursor.py", "            self.last = self.entries.before(entry)\n", "            pass\n"
    ),
    "cursor follows backwards": Mutant(
        "core/entries/cursor.py",
        "            self.skip_first(entry)\n        else:\n            self._move_to(entry)\n",
        "            self.skip_first(entry)\n        self._move_to(entry)\n",
    ),
    "late arrivals begin with an entry that is gone": Mutant(
        "core/entries/cursor.py",
        "            self.late.forget(entry, self.last)\n",
        "            pass\n",
        profile="priority",
    ),
    "what comes back before late arrivals is taken for one of them": Mutant(
        "core/entries/cursor.py",
        "            return not entry.precedes(begin)\n",
        "            return True\n",
        profile="priority",
    ),
    "late arrivals go on behind the cursor": Mutant(
        "core/entries/cursor.py",
        "        after = None if entry is last or _is_last_of_rank(entry) else entry.next\n",
        "        after = None if _is_last_of_rank(entry) else entry.next\n",
        profile="priority",
    ),
    "any notified consumer will do": Mutant(
        "core/queues/consumers.py",
        "    if queue.ready == 0:\n        return\n",
        "    if queue.ready == 0 or queue.manager.notified != 0:\n        return\n",
    ),
    "one baton for all selectors": Mutant(
        "core/queues/consumers.py",
        "            effort += context.effort - before\n",
        "            return\n",
        profile="selectors",
    ),
    "a baton stays with equals that want no work": Mutant(
        "core/queues/consumers.py",
        "        if level is None or not level.wants_work:\n",
        "        if level is None:\n",
        profile="selectors",
    ),
    "a baton is passed to nobody of the same level": Mutant(
        "core/queues/consumers.py",
        "            _look(queue, level, level.interested.head)\n",
        "            pass\n",
        profile="selectors",
    ),
    "an owner leaves its groups to equals": Mutant(
        "core/queues/consumers.py",
        "    if relied and (consumer.holding is None or not consumer.holding.owns_some()):\n",
        "    if relied:\n",
        profile="groups, sticky, priorities, bytes",
    ),
    "a connection that is shared gets the share of one consumer": Mutant(
        "core/delivery/session.py",
        "                if not ends_round:\n",
        "                if not self.shares_turn:\n",
        seeds=0,
    ),
    "no waiting for a turn": Mutant(
        "core/queues/consumers.py",
        "    wait_for_turn(queue, consumer, entry)\n    return True\n",
        "    return True\n",
        profile="selectors",
    ),
    "those who waited for their turn are forgotten": Mutant(
        "core/queues/consumers.py",
        "    elif consumer in queue.gated:\n",
        "    elif False:\n",
        profile="selectors",
    ),
    "a priority is overtaken": Mutant(
        "core/queues/consumers.py",
        "        return queue.manager.outranked(consumer)\n",
        "        return False\n",
        profile="consumer priorities",
    ),
    "rotation broken": Mutant(
        "core/queues/consumer.py",
        "        tail = self.tail\n        consumer.prev = tail\n        if tail is None:\n"
        "            self.head = consumer\n        else:\n            tail.next = consumer\n"
        "        self.tail = consumer\n",
        "        head = self.head\n        consumer.next = head\n        if head is None:\n"
        "            self.tail = consumer\n        else:\n            head.prev = consumer\n"
        "        self.head = consumer\n",
        seeds=0,
    ),
    "what comes back is sorted in": Mutant(
        "core/entries/cursor.py",
        "            heappush(self.behind, entry)\n            self.compact(depth)\n",
        "            self.behind.append(entry)\n"
        "            self.behind.sort()\n"
        "            self.compact(depth)\n",
        seeds=0,
    ),
    "a notification delivers": Mutant(
        "core/delivery/session.py",
        "            self.session.connection.notify_work(self)\n",
        "            self.session.connection.notify_work(self)\n            self.process_pending(1)\n",
    ),
    "takeover without draining": Mutant(
        "core/queues/election.py",
        "        self.draining = self._waits()\n",
        "        self.draining = False\n",
        profile="single active",
    ),
    "those who lacked room are forgotten when the entry goes": Mutant(
        "core/queues/queue.py", "        if self.waiters:\n            wake_waiters(self, entry)\n", ""
    ),
    "those who lacked room are forgotten when the window has room": Mutant(
        "core/delivery/credit.py",
        "                    stop_waiting(queue, consumer)\n",
        "                    pass\n",
    ),
    "a time goes on with the client": Mutant(
        "core/queues/queue.py",
        "        queue.limits.timers.stop(timer)\n\n\ndef next_in_time",
        "        pass\n\n\ndef next_in_time",
        profile="ttl",
    ),
    "one too few come back": Mutant(
        "core/queues/queue.py",
        "queue.delivery_limit < entry",
        "queue.delivery_limit <= entry",
        profile="delivery limit",
    ),
    "not marked as redelivered": Mutant(
        "core/queues/returns.py", "            entry.redelivered = True\n            back", "            back"
    ),
    "settled in memory only": Mutant(
        "core/queues/queue.py",
        "            self.store.append_settle(message, self)\n",
        "            pass\n",
        profile="log",
    ),
    "counts are not remembered": Mutant(
        "core/queues/queue.py",
        "        queue.store.append_count(",
        "        len or queue.store.append_count(",
        profile="log, limits",
    ),
    "redeliveries are not remembered": Mutant(
        "store/restore.py",
        "                        log.append_delivered(entry.message, queue)\n",
        "                        pass\n",
        profile="log",
    ),
    "a transaction settles too early": Mutant(
        "core/transactions/transaction.py",
        "                host.store.append_transacted_settle(message, queue)\n",
        "                pass\n",
        seeds=2000,
        profile="log",
    ),
    "a purge takes what clients have": Mutant(
        "core/queues/purge.py",
        "            elif entry.state == AVAILABLE or entry.state == HELD:\n",
        "            elif True:\n",
    ),
    "what waits takes no part in an overflow": Mutant(
        "core/queues/limits.py",
        "    while limits.is_over_limits() and deliver_next(limits.queue):\n",
        "    while False:\n",
        profile="ring",
    ),
    "strict order is overtaken": Mutant(
        "core/queues/order.py",
        "        if queue.unacked == 0:\n            first = queue.entries.next(queue.entries.head)\n",
        "        if True:\n            first = queue.context.get_next_available_entry()\n",
        profile="strict order",
    ),
    "nobody is told when strict order lets go": Mutant(
        "core/queues/order.py",
        "        elif owner is not None:\n            notify_one(self.queue, first)\n",
        "        elif owner is not None:\n            pass\n",
        profile="strict order",
    ),
    "a gate is never shut again": Mutant(
        "core/queues/gate.py", "            self.is_open = False\n", "            pass\n", profile="gate"
    ),
    "what is outdated comes back": Mutant(
        "core/queues/returns.py",
        "        if latest is not None and latest.is_outdated(entry):\n",
        "        if False:\n",
        profile="last value",
    ),
    "the time of what is held is forgotten": Mutant(
        "core/queues/retry.py", "        if due:\n            offer_again(queue, due)\n", "", profile="retry"
    ),
    "a sorted queue takes no notice of its header": Mutant(
        "core/entries/sorted.py",
        "sort_key(self._headers.value(message, self._header))",
        "sort_key(None)",
        profile="sorted",
    ),
    "an equal of priority 127 does not take over": Mutant(
        "core/queues/election.py",
        "return newcomer.priority == PREEMPTS_EQUALS and not self._single_active",
        "return False",
        profile="exclusive consumers",
    ),
    "the next exclusive consumer does not wait for one that is cancelled": Mutant(
        "core/queues/election.py",
        "            self._leavers.append(left)\n",
        "            pass\n",
        profile="cancelled exclusive consumers",
    ),
    "who takes over waits for one that was cancelled before": Mutant(
        "core/queues/election.py",
        "        self._leavers.clear()\n",
        "",
        profile="cancelled exclusive consumers",
    ),
    "the next exclusive consumer waits without limit": Mutant(
        "core/queues/election.py",
        "            self._limit_drain()\n\n    def note_delivery_end",
        "            pass\n\n    def note_delivery_end",
        profile="cancelled exclusive consumers",
    ),
    "the limit of an earlier wait ends a later one": Mutant(
        "core/queues/election.py", "        self._end_limit()\n", "", profile="cancelled exclusive consumers"
    ),
    "a queue that is stopped gives on": Mutant(
        "core/queues/stops.py",
        "            suspend(queue, consumer, BLOCKED_BY_STOP)  # no consumer takes over\n",
        "            pass\n",
        profile="stop",
    ),
    "content cannot be read while queues are restored": Mutant(
        "store/start.py",
        "        self.log.segments = stored.segments\n",
        "",
        profile="log, kinds",
    ),
    "dead letters go round in circles": Mutant(
        "core/queues/death.py", "            if where == queue:\n", "            if False:\n", profile="cycle"
    ),
}
MUTANTS |= GROUP_MUTANTS | SPECIAL_MUTANTS | SLICE_MUTANTS
ORDINARY = (
    "cursor not pulled back",
    "lost baton",
    "notify before state",
    "dead cursor",
    "not marked as redelivered",
)


def survives(mutant: Mutant, root: Path) -> bool:
    """Plant it in a fresh copy under `root` and run; true if nobody noticed."""
    copy(root)
    mutant.plant(root)
    seeds = (str(mutant.first), str(mutant.seeds))
    if mutant.haste:
        shorten(root)
    command = [sys.executable, *(SIMULATION + seeds if mutant.seeds else MEASURES)]
    if mutant.profile:
        command += ["--profile", mutant.profile]
    if mutant.haste:
        command += ["--haste", str(mutant.haste)]
    own = {"PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": str(root)}
    environment = {**os.environ, **own}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    print(done.stdout.strip().splitlines()[-1][:200] if done.stdout.strip() else done.stderr[-200:])
    noticed = "; again: " if mutant.seeds else " failed"
    assert done.returncode == 0 or noticed in done.stdout, f"it does not even run: {done.stdout}{done.stderr}"
    return done.returncode == 0


def main() -> int:
    survivors = []
    for name in sys.argv[1:] or MUTANTS:
        with tempfile.TemporaryDirectory() as folder:
            print(f"{name}: ", end="", flush=True)
            if survives(MUTANTS[name], Path(folder)):
                survivors.append(name)
    print(f"survivors: {survivors}")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
