"""A seeded random life of a log on a simulated disk, held against the model of what accidents may leave."""

import random

from broker.core.errors import StoreFailed
from broker.core.message import Message
from broker.core.queue import Queue
from broker.store.log import Log
from broker.store.recovery import RecoveryReport
from tests.simulation.sim_disk import PowerLoss, SimDisk
from tests.simulation.store_model import Event, Model, State, TopologySink, difference
from tests.storing import Deferred, content_of, logged_queue, new_message, open_log

FOLDER = "/data"


class Machine:
    """Does random things to a log until an accident, recovers, checks, and goes on."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.segment_bytes = self.rng.choice([4096, 16384])  # of equal ones, many are used again
        self.disk = SimDisk(self.rng)
        self.deferred = Deferred()
        self.model = Model()
        self.queues: dict[int, Queue] = {}
        self.held: dict[int, tuple[Message, set[int]]] = {}  # what queues hold in memory, by an own number
        self.counts: dict[tuple[int, int], int] = {}  # by that number and the queue's
        self.next_queue = 1
        self.next_message = 1
        self.clean = False
        self.interrupted = False
        self.fresh = True
        self.refused = 0
        self.recoveries = 0
        self.log: Log
        self._restart()

    # --- what may happen

    def run(self, steps: int) -> None:
        for _ in range(steps):
            try:
                self._one_step()
                self._notice_failure()
            except PowerLoss:
                self._crash()
            if self.log.stopped and self.rng.random() < 0.2:
                self._crash_or_kill()
        self._crash()

    def _one_step(self) -> None:
        draw = self.rng.random()
        if draw < 0.35:
            self._publish()
        elif draw < 0.60:
            self._settle()
        elif draw < 0.68:
            self._count()
        elif draw < 0.79:
            self.log.commit()
        elif draw < 0.93:
            if self.deferred.pending:
                self.deferred.step(self.rng.randrange(len(self.deferred.pending)))
        elif draw < 0.955:
            self._topology()
        elif draw < 0.965:
            self.log.tick()
        elif draw < 0.975:
            self.disk.operations_left = self.rng.randrange(12)
        elif draw < 0.980:
            self._close()
        elif draw < 0.987:
            self._crash_or_kill()
        elif draw < 0.997:
            self._capacity()
        elif draw < 0.9985:
            self.disk.failing_syncs = 1
        else:
            self.disk.rotten_reads = 1

    def _publish(self) -> None:
        if self.log.failure or not self.queues:
            return
        count = min(len(self.queues), self.rng.choice([1, 1, 1, 2, 3]))
        chosen = self.rng.sample(sorted(self.queues), count)
        length = self.rng.choice([5, 40, 400, 3000]) if self.rng.random() < 0.99 else 300_000
        content = content_of(self.next_message, length)
        date = self.rng.choice([0, 0, 1, 1_700_000_000_000, (1 << 63) - 1])
        message = new_message(content, date=date)
        batch = self.log.batch
        self.log.append_message(message, [self.queues[number] for number in chosen])
        self.held[self.next_message] = (message, set(chosen))
        self.next_message += 1
        self.model.add(batch, Event("publish", message.sequence, tuple(chosen), content, date))

    def _settle(self) -> None:
        if not self.held:
            return
        keys = list(self.held)
        # mostly the oldest, sometimes any: both whole segments and holes appear
        key = keys[0] if self.rng.random() < 0.6 else self.rng.choice(keys)
        message, queues = self.held[key]
        number = self.rng.choice(sorted(queues))
        sequence = message.sequence
        if sequence and self.rng.random() < 0.1:
            assert self._load(message) == self.model.content(sequence)
        self._let_go(key, number)
        if sequence:
            if not self.log.stopped:
                self.model.add(self.log.batch, Event("settle", sequence, (number,)))
            self.log.append_settle(message, self.queues[number])

    def _count(self) -> None:
        """A queue gives a message out, sometimes one that it has given out before."""
        if not self.held:
            return
        keys = list(self.held)
        key = keys[0] if self.rng.random() < 0.5 else self.rng.choice(keys)
        message, queues = self.held[key]
        number = self.rng.choice(sorted(queues))
        count = self.counts.get((key, number), 0) + 1
        self.counts[key, number] = count
        if message.sequence and not self.log.failure:
            self.model.add(self.log.batch, Event("count", message.sequence, (number,), count=count))
        self.log.append_count(message, self.queues[number], count)

    def _load(self, message: Message) -> bytes:
        rotten, self.disk.rotten_reads = self.disk.rotten_reads, 0
        content = self.log.load(message) if message.content is None else message.content
        self.disk.rotten_reads = rotten
        return content

    def _let_go(self, key: int, queue: int) -> None:
        _, queues = self.held[key]
        queues.discard(queue)
        if not queues:
            del self.held[key]
        self.counts.pop((key, queue), None)

    def _topology(self) -> None:
        if self.log.failure:
            return
        if len(self.queues) < 2 or self.rng.random() < 0.6:
            number = self.next_queue
            self.next_queue += 1
            self.queues[number] = logged_queue(number)
            self.model.add(self.log.batch, Event("declare", number))
            self.log.append_definition({"kind": "queue", "number": number})
            return
        number = self.rng.choice(sorted(self.queues))
        self.model.add(self.log.batch, Event("delete", number))
        self.log.append_definition({"kind": "queue.delete", "number": number})
        del self.queues[number]
        for key in [key for key, (_, queues) in self.held.items() if number in queues]:
            message = self.held[key][0]
            self._let_go(key, number)
            self.log.forget(message)

    def _capacity(self) -> None:
        if self.disk.capacity > 1 << 30:
            self.disk.capacity = self.disk.used() + self.rng.randrange(6000)
        else:
            self.disk.capacity = 1 << 40

    def _definitions(self) -> list[dict[str, object]]:
        return [{"kind": "queue", "number": number} for number in sorted(self.queues)]

    # --- accidents

    def _notice_failure(self) -> None:
        if not self.log.failure or self.refused:
            self.refused = 1 if self.log.failure else 0
            return
        self.refused = 1
        if self.log.stopped:
            return
        gone = self.model.refuse(self.log.durable, self.log.in_flight or self.log.batch)
        for message, _ in self.held.values():
            assert message.sequence not in gone

    def _crash_or_kill(self) -> None:
        if self.rng.random() < 0.5:
            self._crash()
        else:
            self.disk.kill()
            self._restart()

    def _crash(self) -> None:
        self._check_accounts()
        self.disk.crash()
        self._restart()

    def _close(self) -> None:
        if self.log.stopped:
            return
        last = self.log.batch
        self.disk.operations_left = -1
        self.disk.capacity = 1 << 40
        try:
            self.log.close()
        except StoreFailed:
            self._notice_failure()
            self.clean = self.interrupted = True  # the mark may have reached the disk
            self._crash()
            return
        self.model.close(last)
        self.clean = True
        self._restart()

    def _restart(self) -> None:
        self.deferred.pending.clear()
        self.disk.failing_syncs = self.disk.rotten_reads = 0
        while True:
            try:
                self.recover()
                return
            except PowerLoss:
                self.disk.crash()
                self.interrupted = True  # the run that could not start may have left its mark, or not

    def _check_accounts(self) -> None:
        """Each count is in one record, and the segments know how many they have."""
        counts = self.log.counts
        assert sum(segment.counts for segment in self.log.segments.all()) == sum(
            len(counts.by_queue(sequence)) for sequence in counts.first
        )

    # --- recovery and what it must give

    def _possible(self) -> list[State]:
        return [State()] if self.fresh else self.model.possible(self.log)

    def recover(self) -> None:
        possible = self._possible()
        clean = self.clean
        if self.rng.random() < 0.3:
            self.disk.operations_left = self.rng.randrange(16)
        if self.rng.random() < 0.7:
            self.disk.capacity = 1 << 40
        sink = TopologySink()
        full = self.disk.capacity
        try:
            log, report = self._open(sink)
        except OSError:
            assert full < 1 << 30
            self.disk.kill()
            self.interrupted = True
            self.disk.capacity = 1 << 40
            sink = TopologySink()
            log, report = self._open(sink)
        self.disk.operations_left = -1
        found = State()
        found.queues = sink.queues
        found.counts = sink.counts
        for message, queues, redelivered in sink.messages:
            assert redelivered == (not report.clean)
            assert message.sequence not in found.messages, "a message comes back once"
            content = message.content or log.load(message)
            found.messages[message.sequence] = (content, set(queues), message.date)
        sequences = [message.sequence for message, _, _ in sink.messages]
        assert sequences == sorted(sequences)
        assert any(found.everything() == state.everything() for state in possible), (
            f"after recovery {self.recoveries}: {difference(found, possible)}"
        )
        assert report.clean == clean or (clean and self.interrupted)
        self.log = log
        self.model.recovered(found)
        self.queues = {number: logged_queue(number) for number in sink.queues}
        self.held = {}
        for message, taken, _ in sink.messages:
            self.held[-message.sequence] = (message, set(taken))
        self.counts = {(-sequence, queue): count for (sequence, queue), count in sink.counts.items()}
        self.clean = False
        self.interrupted = False
        self.fresh = False
        self.refused = 1 if log.failure else 0
        self.recoveries += 1

    def _open(self, sink: TopologySink) -> tuple[Log, RecoveryReport]:
        def definitions() -> list[dict[str, object]]:
            if self.log_is_new:
                return [{"kind": "queue", "number": number} for number in sorted(sink.queues)]
            return self._definitions()

        self.log_is_new = True
        result = open_log(
            FOLDER,
            self.disk,
            sink,
            self.deferred,
            definitions,
            segment_bytes=self.segment_bytes,
            first_segment_bytes=4096,
            reserve_bytes=8192,
            memory_budget=self.rng.choice([0, 5000, 1 << 40]),
        )
        self.log_is_new = False
        return result
