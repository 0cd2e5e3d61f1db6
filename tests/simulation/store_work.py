"""Random work of queues on a log, and the model of its content."""

import random

from broker.core.message import piece_of
from tests.simulation.store_deaths import Deaths
from tests.simulation.store_model import Event, is_stream, published
from tests.simulation.store_state import WorkState
from tests.simulation.store_transactions import Transaction
from tests.support.store.hand_log import annotations_of_count, chunks_of, content_of, logged_queue

UPLOADS_MAX = 3


class Work(WorkState):
    """Queues and their content in memory. Each operation is one that a queue would do."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self.deaths = Deaths(self)

    def publish(self) -> None:
        if self.log.failure or not self.queues:
            return
        count = min(len(self.queues), self.rng.choice([1, 1, 1, 2, 3]))
        chosen = self.rng.sample(sorted(self.queues), count)
        message = self.new_message()
        batch = self.log.batch
        self.log.append_message(message, [self.queues[number] for number in chosen])
        self.held[self.next_message - 1] = (message, set(chosen))
        self.model.add(batch, published(message, chosen, self.load(message)))

    def upload(self) -> None:
        """Add a piece of a body, or abandon an upload."""
        if len(self.uploads) == UPLOADS_MAX and self.rng.random() < 0.1:
            del self.uploads[self.rng.randrange(UPLOADS_MAX)]
        elif len(self.uploads) < UPLOADS_MAX:
            self.uploads.append(self.log.new_body())
        body = self.rng.choice(self.uploads)
        length = self.rng.choice([10, 300, 2500])
        self.log.append_piece(piece_of(body, content_of(self.rng.randrange(1 << 20), length), length))

    def settle(self) -> None:
        if not self.held:
            return
        keys = list(self.held)
        # mostly the oldest, sometimes any: both whole segments and holes appear
        key = keys[0] if self.rng.random() < 0.6 else self.rng.choice(keys)
        message, queues = self.held[key]
        number = self.rng.choice(sorted(queues))
        if (key, number) in self.reserved:
            return
        sequence = message.sequence
        if sequence > 0 and self.rng.random() < 0.1:
            assert self.load(message) == self.model.content(sequence)
        if sequence > 0 and not self.log.stopped:
            self.model.add(self.log.batch, Event("settle", sequence, (number,)))
        self.let_go(key, number)
        if sequence:
            self.log.append_settle(message, self.queues[number])

    def count(self) -> None:
        """Count a delivery, sometimes a redelivery."""
        if not self.held:
            return
        keys = list(self.held)
        key = keys[0] if self.rng.random() < 0.5 else self.rng.choice(keys)
        message, queues = self.held[key]
        number = self.rng.choice(sorted(queues))
        if (key, number) in self.reserved:
            return
        count = self.counts.get((key, number), 0) + 1
        self.counts[key, number] = count
        if message.sequence > 0 and not self.log.failure:
            self.model.add(self.log.batch, Event("count", message.sequence, (number,), count=count))
        elif message.sequence > 0 and not self.log.stopped:
            self.waiting[message.sequence, number] = count
        self.log.append_count(message, self.queues[number], count, annotations_of_count(count))

    def stream(self) -> None:
        """Append a row to a stream, and seldom remove old rows of all streams."""
        if self.log.failure or not self.streams:
            return
        if self.rng.random() < 0.05:
            for number, stream in self.streams.items():
                first = chunks_of(stream).first
                batch = self.log.batch
                self.log.streams.apply_retention(stream, self.rng.choice([1, 3000]), 0)
                if chunks_of(stream).first != first:
                    self.model.add(batch, Event("trim", number, count=int(chunks_of(stream).first)))
            return
        self.append_row(self.rng.choice(sorted(self.streams)), self.rng.choice([0, 20, 300, 2000]))

    def make_room(self) -> None:
        """The disk is full no more, and takes the counts."""
        for (sequence, number), count in self.waiting.items():
            self.model.add(self.log.batch, Event("count", sequence, (number,), count=count))
        self.waiting = {}

    def transact(self) -> None:
        if self.queues and not self.log.stopped:
            Transaction(self, self.deaths).append()

    def let_go(self, key: int, queue: int) -> None:
        super().let_go(key, queue)
        self.deaths.let_go(key)

    def topology(self) -> None:
        if self.log.failure:
            return
        if len(self.queues) < 2 or self.rng.random() < 0.6:
            number = self.next_queue
            self.next_queue += 1
            self.queues[number] = logged_queue(number)
            if is_stream(number):
                self.streams[number] = self.log.streams.open(number)
            self.model.add(self.log.batch, Event("declare", number))
            self.log.append_definition({"kind": "queue", "number": number})
            return
        number = self.rng.choice(sorted(self.queues))
        self.model.add(self.log.batch, Event("delete", number))
        self.log.append_definition({"kind": "queue.delete", "number": number})
        deleted = self.queues.pop(number)
        if self.streams.pop(number, None) is not None:
            self.log.streams.drop(number)
        for key in [key for key, (_, queues) in self.held.items() if number in queues]:
            message = self.held[key][0]
            self.let_go(key, number)
            self.log.forget(message, deleted)

    def definitions(self) -> list[dict[str, object]]:
        return [{"kind": "queue", "number": number} for number in sorted(self.queues)]
