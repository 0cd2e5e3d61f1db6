"""A seeded random life of a log on a simulated disk, and a model of what each accident must leave."""

import copy
import random
from dataclasses import dataclass

from broker.core.errors import StoreFailed
from broker.core.message import Message
from broker.core.queue import Queue
from broker.store.log import Log
from broker.store.recovery import RecoveryReport
from tests.simulation.sim_disk import PowerLoss, SimDisk
from tests.storing import Deferred, Sink, content_of, logged_queue, new_message, open_log

FOLDER = "/data"


@dataclass
class Event:
    """A change: publish or settle of a sequence, declare or delete of a queue."""

    kind: str
    number: int
    queues: tuple[int, ...] = ()
    content: bytes = b""


class State:
    """What the log amounts to: messages with their content and the queues that hold them, and the queues."""

    def __init__(self) -> None:
        self.messages: dict[int, tuple[bytes, set[int]]] = {}  # by sequence
        self.queues: set[int] = set()

    def apply(self, event: "Event") -> None:
        if event.kind == "publish":
            self.messages[event.number] = (event.content, set(event.queues))
        elif event.kind == "settle":
            self._settle(event.number, event.queues[0])
        elif event.kind == "declare":
            self.queues.add(event.number)
        else:
            self.queues.discard(event.number)
            for sequence in list(self.messages):
                self._settle(sequence, event.number)

    def _settle(self, sequence: int, queue: int) -> None:
        _, queues = self.messages[sequence]
        queues.discard(queue)
        if not queues:
            del self.messages[sequence]

    def described(self) -> list[tuple[int, bytes, list[int]]]:
        return [(s, content, sorted(queues)) for s, (content, queues) in sorted(self.messages.items())]


class TopologySink(Sink):
    """A sink that knows which queues the definitions leave."""

    def __init__(self) -> None:
        super().__init__()
        self.queues: set[int] = set()

    def apply(self, change: dict[str, object]) -> None:
        number = change["number"]
        assert isinstance(number, int)
        if change["kind"] == "queue":
            self.queues.add(number)
        else:
            self.queues.discard(number)

    def message(self, message: Message, queues: list[int], redelivered: bool) -> int:
        taken = [queue for queue in queues if queue in self.queues]
        if taken:
            self.messages.append((message, taken, redelivered))
        return len(taken)


class Machine:
    """Does random things to a log until an accident, recovers, checks, and goes on."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.segment_bytes = self.rng.choice([4096, 16384])  # of equal ones, many are used again
        self.disk = SimDisk(self.rng)
        self.deferred = Deferred()
        self.base = State()  # as of the last recovery
        self.events: list[tuple[int, Event]] = []  # with the batch that each is in
        self.queues: dict[int, Queue] = {}
        self.held: dict[int, tuple[Message, set[int]]] = {}  # what queues hold in memory, by an own number
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
        elif draw < 0.75:
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
        message = new_message(content)
        batch = self.log.batch
        self.log.append_message(message, [self.queues[number] for number in chosen])
        self.held[self.next_message] = (message, set(chosen))
        self.next_message += 1
        self.events.append((batch, Event("publish", message.sequence, tuple(chosen), content)))

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
            assert self._load(message) == self._content(sequence)
        self._let_go(key, number)
        if sequence:
            if not self.log.stopped:
                self.events.append((self.log.batch, Event("settle", sequence, (number,))))
            self.log.append_settle(message, self.queues[number])

    def _load(self, message: Message) -> bytes:
        rotten, self.disk.rotten_reads = self.disk.rotten_reads, 0
        content = self.log.load(message) if message.content is None else message.content
        self.disk.rotten_reads = rotten
        return content

    def _content(self, sequence: int) -> bytes:
        if sequence in self.base.messages:
            return self.base.messages[sequence][0]
        return next(e.content for _, e in self.events if e.kind == "publish" and e.number == sequence)

    def _let_go(self, key: int, queue: int) -> None:
        _, queues = self.held[key]
        queues.discard(queue)
        if not queues:
            del self.held[key]

    def _topology(self) -> None:
        if self.log.failure:
            return
        if len(self.queues) < 2 or self.rng.random() < 0.6:
            number = self.next_queue
            self.next_queue += 1
            self.queues[number] = logged_queue(number)
            self.events.append((self.log.batch, Event("declare", number)))
            self.log.append_definition({"kind": "queue", "number": number})
            return
        number = self.rng.choice(sorted(self.queues))
        self.events.append((self.log.batch, Event("delete", number)))
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
        """After a full disk, what the failed batches said of older messages is in the batch after them."""
        if not self.log.failure or self.refused:
            self.refused = 1 if self.log.failure else 0
            return
        self.refused = 1
        if self.log.stopped:
            return
        durable = self.log.durable
        gone = {e.number for batch, e in self.events if batch > durable and e.kind == "publish"}
        moved = self.log.in_flight or self.log.batch
        self.events = [
            (batch if batch <= durable else moved, event)
            for batch, event in self.events
            if batch <= durable or event.kind != "publish"
        ]
        self.events = [(b, e) for b, e in self.events if not (e.kind == "settle" and e.number in gone)]
        for message, _ in self.held.values():
            assert message.sequence not in gone

    def _crash_or_kill(self) -> None:
        if self.rng.random() < 0.5:
            self._crash()
        else:
            self.disk.kill()
            self._restart()

    def _crash(self) -> None:
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
        self.events = [(min(batch, last), event) for batch, event in self.events]
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

    # --- recovery and what it must give

    def _possible(self) -> list[State]:
        """As of the last durable batch, or with the one that was on its way."""
        if self.fresh:
            return [State()]
        return [self._state(self.log.durable), self._state(self._on_its_way())]

    def _state(self, last: int) -> State:
        state = copy.deepcopy(self.base)
        for batch, event in self.events:
            if batch <= last:
                state.apply(event)
        return state

    def _on_its_way(self) -> int:
        """The batch that may be on the disk without anybody knowing."""
        if self.log.in_flight or not self.log.stopped:
            return self.log.in_flight
        return min((batch for batch, _ in self.events if batch > self.log.durable), default=0)

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
        for message, queues, redelivered in sink.messages:
            assert redelivered == (not report.clean)
            assert message.sequence not in found.messages, "a message comes back once"
            content = message.content or log.load(message)
            found.messages[message.sequence] = (content, set(queues))
        sequences = [message.sequence for message, _, _ in sink.messages]
        assert sequences == sorted(sequences)
        assert any(
            found.described() == state.described() and found.queues == state.queues for state in possible
        ), self._difference(found, possible)
        assert report.clean == clean or (clean and self.interrupted)
        self.log = log
        self.base = found
        self.events = []
        self.queues = {number: logged_queue(number) for number in sink.queues}
        self.held = {}
        for message, taken, _ in sink.messages:
            self.held[-message.sequence] = (message, set(taken))
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

    def _difference(self, found: State, possible: list[State]) -> str:
        lines = [f"after recovery {self.recoveries}: queues {found.queues}"]
        have = {s: (c[:12], q) for s, c, q in found.described()}
        for state in possible:
            want = {s: (c[:12], q) for s, c, q in state.described()}
            lost = {s: want[s] for s in want if have.get(s) != want[s]}
            extra = {s: have[s] for s in have if want.get(s) != have[s]}
            lines.append(f"or: queues {state.queues} lost {lost} extra {extra}")
        return "\n".join(lines)
