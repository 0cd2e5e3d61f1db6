"""A seeded random life of a log on a simulated disk, compared with the model of accidents."""

import random
from collections.abc import Callable
from typing import Final

from broker.core.errors import StoreFailed
from broker.store.log import Log
from broker.store.recovery.sink import RecoveryReport
from tests.simulation.sim_disk import PowerLoss
from tests.simulation.store_burials import bury
from tests.simulation.store_model import (
    State,
    TopologySink,
    difference,
    rows_of,
    time_of,
    whole,
)
from tests.simulation.store_work import Work
from tests.support.store.hand_log import DeferredWork, annotations_of_count, logged_queue, open_log

FOLDER = "/data"


class Machine(Work):
    """Does random things to a log until an accident, recovers, checks, and goes on."""

    def __init__(self, seed: int) -> None:
        super().__init__(random.Random(seed))
        self.segment_bytes = self.rng.choice([4096, 16384])  # many segments of an equal size are used again
        self.chunk_bytes = self.rng.choice([600, 600, 1 << 20])  # with short chunks, a batch has several
        self.deferred = DeferredWork()
        self.clean = False
        self.interrupted = False
        self.fresh = True
        self.refused = 0
        self.recoveries = 0
        self._restart()

    # --- the possible operations

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
        self._forget()

    def _forget(self) -> None:
        """Break the reference cycles of an unused log's messages."""
        for segment in self.log.segments.all():
            segment.forget_all()

    def _one_step(self) -> None:
        draw = self.rng.random()
        for bound, step in STEPS:
            if draw < bound:
                step(self)
                return
        if draw < 0.9985:
            self.disk.failing_syncs = 1
        else:
            self.disk.rotten_reads = 1

    def _do_deferred(self) -> None:
        if self.deferred.pending:
            self.deferred.step(self.rng.randrange(len(self.deferred.pending)))

    def _lose_power_soon(self) -> None:
        self.disk.operations_left = self.rng.randrange(12)

    def _capacity(self) -> None:
        if self.disk.capacity > 1 << 30:
            self.disk.capacity = self.disk.used() + self.rng.randrange(6000)
        else:
            self.disk.capacity = 1 << 40

    # --- accidents

    def _notice_failure(self) -> None:
        if not self.log.failure or self.refused:
            if not self.log.failure:
                self.make_room()
            self.refused = 1 if self.log.failure else 0
            return
        self.refused = 1
        if self.log.stopped:
            return
        moved = self.log.in_flight or self.log.batch
        gone = self.model.refuse(self.log.durable, moved)
        self.deaths.refuse(self.log.durable, moved, gone)
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
        self.disk.failing_syncs = self.disk.rotten_reads = 0
        while True:
            self.deferred.pending.clear()
            try:
                self.recover()
                return
            except PowerLoss:
                self.disk.crash()
                self.interrupted = True  # the run that could not start may have left its mark, or not

    def _check_accounts(self) -> None:
        """Check that each count is in a single record, and the lengths that segments know."""
        counts = self.log.counts
        assert sum(segment.count_bytes for segment in self.log.segments.all()) == sum(
            count.size for sequence in counts.first for count in counts.by_queue(sequence).values()
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
            self.deferred.pending.clear()
            self.interrupted = True
            self.disk.capacity = 1 << 40
            sink = TopologySink()
            log, report = self._open(sink)
        self.disk.operations_left = -1
        found = State()
        found.queues = sink.queues
        found.counts = sink.counts
        found.streams = {number: rows_of(stream) for number, stream in sink.streams.items()}
        assert sink.annotations == {key: annotations_of_count(count) for key, count in sink.counts.items()}
        for message, queues, redelivered in sink.messages:
            assert redelivered == (not report.clean)
            assert message.sequence not in found.messages, "a message comes back once"
            found.messages[message.sequence] = (whole(log, message), set(queues), time_of(message))
        sequences = [message.sequence for message, _, _ in sink.messages]
        assert sequences == sorted(sequences)
        assert any(found.everything() == state.everything() for state in possible), (
            f"after recovery {self.recoveries}: {difference(found, possible)}"
        )
        assert report.clean == clean or (clean and self.interrupted)
        if not self.fresh:
            self._forget()
        self.log = log
        self.model.recovered(found)
        self.queues = {number: logged_queue(number) for number in sink.queues}
        self.held = {}
        self.deaths.forget()
        self.uploads = []
        self.streams = sink.streams
        self.reserved = set()
        self.waiting = {}
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
            return self.definitions()

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
            chunk_bytes=self.chunk_bytes,
        )
        self.log_is_new = False
        return result


STEPS: Final[tuple[tuple[float, Callable[[Machine], None]], ...]] = (
    (0.29, Machine.publish),
    (0.35, Machine.upload),
    (0.60, Machine.settle),
    (0.65, Machine.count),
    (0.71, Machine.stream),
    (0.77, lambda machine: machine.log.commit()),
    (0.79, Machine.transact),
    (0.825, lambda machine: machine.deaths.die()),
    (0.84, bury),
    (0.93, Machine._do_deferred),
    (0.955, Machine.topology),
    (0.965, lambda machine: machine.log.tick()),
    (0.975, Machine._lose_power_soon),
    (0.980, Machine._close),
    (0.987, Machine._crash_or_kill),
    (0.997, Machine._capacity),
)
"""The kinds of a step: the first with a number above a random one is chosen."""
