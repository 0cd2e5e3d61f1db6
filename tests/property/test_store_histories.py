"""Random histories of appends, segments, copies and crashes, compared with a dict."""

import random
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker.core.message import Message
from broker.store.log import Log
from tests.simulation.sim_disk import SimDisk
from tests.support.effort import cases
from tests.support.store.hand_log import (
    RecordingSink,
    annotations_of_count,
    content_of,
    logged_queue,
    new_message,
    open_log,
)

FOLDER = "/log"
QUEUES = [logged_queue(number) for number in (1, 2, 3)]


class Histories(RuleBasedStateMachine):
    """`durable`: the required content; `pending`: the changes of the batch being filled."""

    @initialize(seed=st.integers(0, 1000), budget=st.sampled_from([0, 2000, 1 << 40]))
    def start(self, seed: int, budget: int) -> None:
        self.disk = SimDisk(random.Random(seed))
        self.budget = budget
        self.durable: dict[int, tuple[bytes, list[int]]] = {}
        self.now: dict[int, tuple[bytes, list[int]]] = {}
        self.messages: dict[int, Message] = {}
        self.topology: list[dict[str, object]] = []
        self.durable_topology = 0
        self.published = 0
        self.counts: dict[tuple[int, int], int] = {}  # by sequence and queue
        self.durable_counts: dict[tuple[int, int], int] = {}
        self.log: Log
        self.reopen(False)

    def reopen(self, clean: bool) -> None:
        """Recover, and compare with the model."""
        sink = RecordingSink()
        self.disk.kill()
        topology = self.topology[: self.durable_topology]
        self.topology = topology
        self.log, report = open_log(
            FOLDER,
            self.disk,
            sink,
            definitions=lambda: list(self.topology),
            segment_bytes=2048,
            first_segment_bytes=1024,
            memory_budget=self.budget,
        )
        assert report.clean == clean
        known: list[object] = []
        for change in sink.changes:
            if change not in known:
                known.append(change)
        assert known == topology
        recovered: dict[int, tuple[bytes, list[int]]] = {}
        order = []
        for message, queues, redelivered in sink.messages:
            content = message.content or self.log.load(message)
            assert message.sequence not in recovered
            assert redelivered is not clean
            recovered[message.sequence] = (content, sorted(queues))
            order.append(message.sequence)
        assert recovered == self.durable
        assert sink.counts == self.durable_counts
        assert sink.annotations == {key: annotations_of_count(count) for key, count in sink.counts.items()}
        self.counts = dict(sink.counts)
        assert order == sorted(order)
        self.messages = {message.sequence: message for message, _, _ in sink.messages}
        self.now = {sequence: (content, list(queues)) for sequence, (content, queues) in recovered.items()}

    def synced(self) -> None:
        """Make all appended records durable."""
        self.durable = {sequence: (content, list(queues)) for sequence, (content, queues) in self.now.items()}
        self.durable_topology = len(self.topology)
        self.durable_counts = dict(self.counts)

    @rule(length=st.integers(0, 600), queues=st.sets(st.sampled_from([0, 1, 2]), min_size=1))
    def publish(self, length: int, queues: set[int]) -> None:
        self.published += 1
        content = content_of(self.published, length)
        message = new_message(content)
        self.log.append_message(message, [QUEUES[index] for index in sorted(queues)])
        self.messages[message.sequence] = message
        self.now[message.sequence] = (content, [index + 1 for index in sorted(queues)])

    @precondition(lambda self: self.now)
    @rule(data=st.data(), count=st.integers(1, 6))
    def settle(self, data: Any, count: int) -> None:
        for _ in range(min(count, len(self.now))):
            sequence = data.draw(st.sampled_from(sorted(self.now)))
            queues = self.now[sequence][1]
            number = data.draw(st.sampled_from(queues))
            queues.remove(number)
            self.counts.pop((sequence, number), None)
            self.log.append_settle(self.messages[sequence], QUEUES[number - 1])
            if not queues:
                del self.now[sequence]
                del self.messages[sequence]

    @precondition(lambda self: self.now)
    @rule(data=st.data(), times=st.integers(1, 6))
    def give_out(self, data: Any, times: int) -> None:
        for _ in range(times):
            sequence = data.draw(st.sampled_from(sorted(self.now)))
            number = data.draw(st.sampled_from(self.now[sequence][1]))
            count = self.counts.get((sequence, number), 0) + 1
            self.counts[sequence, number] = count
            self.log.append_count(
                self.messages[sequence], QUEUES[number - 1], count, annotations_of_count(count)
            )

    @rule()
    def define(self) -> None:
        change: dict[str, object] = {"kind": "binding", "number": len(self.topology)}
        if change not in self.topology:
            self.topology.append(change)
            self.log.append_definition(change)

    @rule()
    def commit(self) -> None:
        self.log.commit()
        self.synced()

    @rule(power=st.booleans())
    def crash(self, power: bool) -> None:
        if power:
            self.disk.crash()
        self.reopen(False)

    @rule()
    def stop_cleanly(self) -> None:
        self.log.close()
        self.synced()
        self.reopen(True)

    @precondition(lambda self: self.now)
    @rule(data=st.data())
    def load(self, data: Any) -> None:
        sequence = data.draw(st.sampled_from(sorted(self.now)))
        message = self.messages[sequence]
        content = self.log.load(message) if message.content is None else message.content
        assert content == self.now[sequence][0]

    @invariant()
    def space_is_bounded(self) -> None:
        """Check that the log has at most twice the needed space and a few segments."""
        if hasattr(self, "log") and self.log.filling.is_empty():
            live = sum(len(content) + 100 for content, _ in self.now.values())
            files = [name for name in self.disk.names(FOLDER) if name.endswith(".log")]
            assert len(files) == self.log.segment_count
            needed = live + 17 * self.published + self.count_bytes() + 500 * self.log.segment_count
            assert self.log.bytes_on_disk <= 3 * needed + 8 * 2048

    def count_bytes(self) -> int:
        """Return the bytes of the needed records of counts."""
        sizes = (len(annotations_of_count(count)) for count in self.counts.values())
        return sum(25 + (size and 4 + size) for size in sizes)

    @invariant()
    def counts_are_right(self) -> None:
        if hasattr(self, "log"):
            live = sum(segment.live for segment in self.log.segments.all())
            assert live == len(self.now)
            assert sum(segment.count_bytes for segment in self.log.segments.all()) == self.count_bytes()
            in_memory = [m.length for m in self.messages.values() if m.content is not None]
            assert self.log.content_bytes == sum(in_memory)


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=cases(60), stateful_step_count=60, deadline=None)
