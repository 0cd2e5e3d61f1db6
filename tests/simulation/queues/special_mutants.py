"""Planted faults of options of messages, each alone."""

from tests.simulation.queues.mutant import Mutant

SPECIAL_MUTANTS: dict[str, Mutant] = {
    "a duplicate is confirmed before it is durable": Mutant(
        "core/transactions/transaction.py",
        "if publish.passage.append(self.host) or publish.message.marks & ON_ITS_WAY:",
        "if publish.passage.append(self.host):",
        seeds=600,
        profile="ids",
    ),
    "what is refused is remembered": Mutant(
        "core/publishing/publisher.py",
        "refuse_if_full(self.host, message, passage.queues):\n",
        "refuse_if_full(self.host, message, passage.queues):\n"
        "            passage.append_identity(self.host)\n"
        "            if passage.identity is not None:\n"
        "                passage.identity.keep(passage.queues)\n",
        profile="ids",
    ),
    "what nobody takes at once is remembered": Mutant(
        "core/publishing/duplicate_check.py",
        "if memory is not None and queue in taken:",
        "if memory is not None:",
        profile="ids, not in the log",
    ),
    "what is remembered is not in the log": Mutant(
        "core/publishing/duplicate_check.py",
        "            host.store.append_message(mark, logged)\n",
        "            pass\n",
        profile="ids",
    ),
    "a transaction does not say what it will have remembered": Mutant(
        "core/publishing/duplicate_check.py",
        "                if self.key:\n                    memory.reserve_id(self.key)\n",
        "",
        seeds=600,
        profile="ids",
    ),
    "what a transaction has had remembered is known for ever": Mutant(
        "core/publishing/duplicate_check.py",
        "                memory.unreserve_id(self.key)\n",
        "                pass\n",
        profile="ids",
    ),
    "an id is forgotten in memory only": Mutant(
        "core/queues/duplicates.py",
        "            self.ids.popitem(last=False)\n            self._settle(oldest)\n",
        "            self.ids.popitem(last=False)\n",
        seeds=600,
        profile="ids",
    ),
    "a window has no end": Mutant(
        "core/queues/duplicates.py", "mark.date + self.window > date and", "mark.date > 0 and", profile="ids"
    ),
    "a number is known only when it is passed": Mutant(
        "core/queues/duplicates.py",
        "sequence <= progress.highest",
        "sequence < progress.highest",
        profile="numbers",
    ),
    "a producer is forgotten though it was heard of": Mutant(
        "core/queues/duplicates.py",
        "            self.producers.move_to_end(producer)\n",
        "            pass\n",
        profile="numbers",
    ),
    "a delayed message is delivered at once": Mutant(
        "core/publishing/publisher.py",
        "        elif message.marks & DELAYED != 0:\n",
        "        elif False:\n",
        profile="delays",
    ),
    "a delayed message comes twice after a restart": Mutant(
        "core/publishing/delay.py",
        "        logged = held if held.sequence != 0 else None\n"
        "        self.host.put_delayed(copy, self.queue, logged)\n",
        "        self.host.put_delayed(copy, self.queue, None)\n",
        profile="delays, in the log",
    ),
    "a delayed message is released before its date is over": Mutant(
        "core/schedule.py",
        "clock[0].due > now:",
        "clock[0].due > now + 5:",
        profile="delays",
    ),
    "of one date come those with a delay before those with a time of day": Mutant(
        "core/schedule.py", "held.date, held.number", "held.date, 0", profile="delays"
    ),
    "delayed messages of one date come in any order": Mutant(
        "core/schedule.py",
        "(self.due == other.due and self.number < other.number)",
        "(self.due == other.due and self.number > other.number)",
        profile="delays",
    ),
    "an earlier delayed message does not set the alarm": Mutant(
        "core/schedule.py",
        "        if heap[0] is held:\n            self._set_due(0)\n",
        "        if self.count == 1:\n            self._set_due(0)\n",
        profile="delays",
    ),
    "a cancelled message comes back": Mutant(
        "core/publishing/delay.py",
        "            self.host.store.append_settle(message, self.queue)\n",
        "            pass\n",
        profile="delays, in the log",
    ),
    "a moved message is in the log twice": Mutant(
        "core/publishing/delay.py",
        "store.append_death(moved, [self.queue], message, self.queue)",
        "store.append_message(moved, [self.queue])",
        profile="delays, in the log",
    ),
    "a moved message comes at the old date too": Mutant(
        "core/publishing/delay.py",
        "        self.cancel(held)\n        return self.hold(message, date, False)\n",
        "        return self.hold(message, date, False)\n",
        profile="delays",
    ),
    "a full queue gets what is delayed": Mutant(
        "core/publishing/delay.py",
        "            if self.is_refused(message):\n",
        "            if False:\n",
        profile="delays",
    ),
    "a delayed message is not delayed after a restart": Mutant(
        "core/vhosts/definitions.py",
        "    if host is not None and message.marks & DELAYED != 0:\n",
        "    if False:\n",
        profile="delays, in the log",
    ),
    "a get takes where nothing is consumed": Mutant(
        "core/queues/attach.py",
        "    if consumer.acquires:\n        if entry.timer",
        "    if consumer.acquires or not entry.redelivered:\n        if entry.timer",
        profile="non-destructive",
    ),
    "a value that replaces another is not shown to those who saw that": Mutant(
        "core/entries/cursor.py",
        "        for cursor in self.cursors:\n            cursor.offer(entry, depth)\n",
        "        pass\n",
        profile="non-destructive",
    ),
    "an operation that is aborted brings back what was replaced": Mutant(
        "core/operators/operation.py",
        "        if latest is not None and latest.is_outdated(entry):\n",
        "        if False:\n",
        profile="operations",
    ),
    "a moved message leaves the log in another batch": Mutant(
        "core/transactions/transaction.py",
        "        if self.outcome == RELEASE:\n",
        "        if self.outcome == RELEASE or self.outcome == REMOVE:\n",
        seeds=600,
        profile="operations, in the log",
    ),
    "what an operator holds is counted as delivered": Mutant(
        "core/operators/operation.py",
        "    make_acquired(queue, entry, holder)\n",
        "    make_acquired(queue, entry, holder)\n    entry.delivery_count += 1\n",
        profile="operations",
    ),
    "nobody is told of what an operator gives back": Mutant(
        "core/operators/operation.py",
        "        offer_again(queue, back)\n",
        "        pass\n",
        profile="operations",
    ),
    "the time of what an operator holds goes on": Mutant(
        "core/operators/operation.py",
        "        stop_timer(queue, entry)\n",
        "        pass\n",
        profile="operations",
    ),
    "an operation that is refused keeps its room": Mutant(
        "core/transactions/transaction.py",
        "            self._unreserve()\n            raise\n        if appended or ",
        "            raise\n        if appended or ",
        profile="operations",
    ),
    "what is redriven is taken for what has been there before": Mutant(
        "core/operators/operation.py",
        "        self.own = True\n",
        "        self.own = False\n",
        profile="redriven",
    ),
    "what is redriven is not in the log": Mutant(
        "core/transactions/transaction.py",
        "            if publish.passage.append(self.host) or publish.message.marks & ON_ITS_WAY:",
        "            if not publish.own and publish.passage.append(self.host):",
        seeds=600,
        profile="redriven, in the log",
    ),
    "routes are not told that a queue is renamed": Mutant(
        "core/routing/topology.py",
        "        self.bindings.note_renamed(queue)\n        self.host.on_routes_changed()\n",
        "        self.bindings.note_renamed(queue)\n",
        seeds=600,
        profile="renamed, in the log",
    ),
    "a renamed queue is another one after a restart": Mutant(
        "core/vhosts/definitions.py",
        "    if same is not None and same.vhost == vhost.name and same.name != name:\n",
        "    if False:\n",
        profile="renamed, in the log",
    ),
    "who alters the time to live has timers forgotten": Mutant(
        "core/queues/limits.py",
        "        self.ttl = number_argument(effective, MESSAGE_TTL, -1)\n",
        "        self.ttl = number_argument(effective, MESSAGE_TTL, -1)\n"
        "        self.timers = type(self.timers)()\n",
        profile="altered",
    ),
    "what is altered is not in the log": Mutant(
        "core/vhosts/alteration.py",
        "        topology.share_queue(queue)\n    _append(topology, queue)\n",
        "        topology.share_queue(queue)\n",
        profile="altered, in the log",
    ),
    "what waits to be dead-lettered is lost with its turn": Mutant(
        "core/queues/dead_letter_backlog.py",
        "                self._keep(lane, death, now)\n                break\n",
        "                del lane.deaths[death]\n                break\n",
        seeds=60,
        profile="at least once",
    ),
    "what is seized is dead-lettered all the same": Mutant(
        "core/queues/dead_letter_backlog.py",
        "            if death.is_seized:\n                break",
        "            if False:\n                break",
        seeds=60,
        profile="at least once",
    ),
    "what is given back waits for the next round": Mutant(
        "core/queues/dead_letter_backlog.py",
        "            if lane is not None and lane.first is death and not lane.is_woken:\n",
        "            if False:\n",
        seeds=120,
        profile="at least once",
    ),
    "a purge drops what is seized": Mutant(
        "core/queues/dead_letter_backlog.py",
        "if death.is_seized or dropped == most:",
        "if dropped == most:",
        seeds=120,
        profile="at least once",
    ),
    "the log is not told of what waits": Mutant(
        "core/queues/dead_letter_backlog.py",
        "        if not is_logged:\n            append_wait(death)\n",
        "",
        seeds=60,
        profile="at least once, in the log",
    ),
}
