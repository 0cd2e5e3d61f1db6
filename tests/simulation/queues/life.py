"""A process of the broker, from start to end: the real core and the real log on a simulated disk."""

from __future__ import annotations

import itertools
import json

from broker.core.broker import Broker
from broker.core.counters import Counters
from broker.core.entries.entry import EntryFilter, QueueEntry
from broker.core.message import NEVER, Message
from broker.core.message_view import MessageView, Views
from broker.core.ports import DurableWaiter, MessageStore
from broker.core.queues.death import LetterWriter
from broker.core.routing.graph import Route
from broker.core.selector.selector import Selector
from broker.store.restore import Recovered, close
from broker.store.sync import DiskSyncer
from tests.simulation.queues.journal import Journal
from tests.simulation.queues.ledger import Ledger
from tests.simulation.queues.model import DRAIN
from tests.simulation.queues.notes import Note
from tests.simulation.queues.recall import MESSAGE_ID
from tests.simulation.sim_disk import SimDisk
from tests.support.core.hand_clock import HandClock
from tests.support.store.hand_log import DeferredWork, file_log

FOLDER = "/data"


def content_of(note: Note) -> bytes:
    """Return a message's content: number, kind and headers."""
    headers = json.dumps(note.headers).encode() if note.headers else b""
    return b"%d;%d;%s;%s" % (note.number, note.kind, headers, b"." * (note.size % 97))


def message_of(note: Note, route: Route) -> Message:
    """The message of a note."""
    content = content_of(note)
    message = Message(route.address, content, note.size, note.persistent, note.priority)
    message.expiration = NEVER if note.expiration is None else note.expiration
    return message


class NoteView(MessageView):
    """The view of a message that selectors and queues have."""

    def __init__(self, message: Message, store: MessageStore) -> None:
        content = message.content
        self.fields = (store.load(message) if content is None else content).split(b";")

    def headers(self) -> dict[str, object]:
        headers = json.loads(self.fields[2]) if self.fields[2] else {}
        return {"number": int(self.fields[0]), "kind": int(self.fields[1])} | headers

    def property(self, name: str) -> object | None:
        return self.headers().get(MESSAGE_ID) if name == "message_id" else None


class KindFilter(EntryFilter):
    """The messages of a kind below a number, by a selector."""

    def __init__(self, below: int, store: MessageStore) -> None:
        self.condition = Selector(f"kind < {below}")
        super().__init__(self.condition.canonical)
        self.store = store

    def passes(self, entry: QueueEntry) -> bool:
        return self.condition.matches(NoteView(entry.message, self.store))


class Mark(DurableWaiter):
    """The journal learns how far the disk is."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.position = journal.position

    def on_durable(self, batch: int) -> None:
        self.journal.reached(self.position)

    def on_store_failed(self, reason: str) -> None:
        raise AssertionError(reason)


class Life:
    """A life of the broker; `numbers`: of messages, as far as they were read."""

    def __init__(
        self, disk: SimDisk, clock: HandClock, write_letter: LetterWriter, views: Views = NoteView
    ) -> None:
        clock.restart()
        self.deferred = DeferredWork()
        self.numbers: dict[Message, int] = {}
        self.log = file_log(
            FOLDER,
            disk,
            DiskSyncer(disk, self.deferred.run),
            lambda: 0.0,
            lambda: self.broker.describe(),
            segment_bytes=8192,
            first_segment_bytes=8192,
            reserve_bytes=8192,
            memory_budget=4096,
        )
        names = itertools.count(1)
        self.broker = Broker(
            self.log, Counters(), lambda: str(next(names)), clock.schedule, views, write_letter
        )
        self.broker.exclusive_drain = DRAIN
        self.ledger = Ledger(self.broker, clock, views)
        self.clean = self.log.recover(Recovered(self.broker)).clean
        self.vhost = self.broker.declare_vhost("/")
        self.ledger.begin(list(self.vhost.topology.queues.values()))

    def number(self, message: Message) -> int:
        """The number of a message, from memory or from the disk."""
        number = self.numbers.get(message)
        if number is None:
            content = message.content
            content = self.log.load(message) if content is None else content
            number = self.numbers[message] = int(content.split(b";")[0])
        return number

    def sync(self) -> None:
        """Make everything durable."""
        for _ in range(2):  # a batch may have been on its way
            self.log.commit()
            self.deferred.run_all()

    def forget(self) -> None:
        """End the life: break the cycles of references between entries, which are not collected."""
        for queue in self.vhost.topology.queues.values():
            for entry in list(queue.entries):
                entry.prev = entry.next = None
                entry.owner = entry.timer = entry.group = None
        for segment in self.log.segments.all():
            segment.forget_all()

    def close(self) -> None:
        """A clean stop."""
        self.sync()
        close(self.broker, self.log)
