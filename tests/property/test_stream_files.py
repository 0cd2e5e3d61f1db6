"""The files of a stream against a model: a list of rows."""

import random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker.store.streams.files import Appended, ChunkPosition, OpenFiles, StreamFiles
from protocol.streams.chunk import BASIC, BODY, ChunkWriter
from tests.simulation.sim_disk import SimDisk
from tests.support.effort import cases

FOLDER = "streams"
SEGMENT = 4096
MARK = 600
INCARNATION = 77


class StreamHistories(RuleBasedStateMachine):
    """`rows` are all that there have been, with the offset of each; `durable` is how many are on disk."""

    @initialize(seed=st.integers(0, 1000))
    def start(self, seed: int) -> None:
        self.disk = SimDisk(random.Random(seed))
        self.disk.make_directory(FOLDER)
        self.rows: list[tuple[int, bytes]] = []  # time, body
        self.durable = 0
        self.kept = 0  # the first offset that is kept, as far as that is on disk
        self.time = 1000
        self.open()

    def open(self) -> None:
        self.files = StreamFiles(FOLDER, OpenFiles(self.disk, 2), 3, INCARNATION, SEGMENT, MARK)
        self.files.recover(self.kept, self.durable)
        del self.rows[self.durable :]
        self.unsynced: list[Appended] = []
        assert (self.files.first, self.files.next) == (self.kept, self.durable)

    @rule(
        count=st.integers(1, 12),
        length=st.integers(0, 900),
        step=st.sampled_from([0, 0, 1, 5]),
        full=st.sampled_from([False, False, False, True]),
        taken_back=st.sampled_from([False, False, False, True]),
    )
    def append(self, count: int, length: int, step: int, full: bool, taken_back: bool) -> None:
        writer = ChunkWriter()
        first = len(self.rows)
        for _ in range(count):
            self.time += step
            body = b"%d " % len(self.rows) + b"x" * length
            writer.add(self.time, BASIC, b"", b"key", b"", body)
            self.rows.append((self.time, body))
        data = writer.take(first, INCARNATION)
        if full:
            self.disk.capacity = self.disk.used() + min(len(data) // 2, 300)
            del self.rows[first:]
            with pytest.raises(OSError, match="space"):
                self.files.append(data)
            self.disk.capacity = 1 << 40
            return
        appended = self.files.append(data)
        if taken_back:
            del self.rows[first:]
            self.files.take_back(appended)
            return
        assert appended.segment.fd >= 0
        self.unsynced.append(appended)

    @rule()
    def sync(self) -> None:
        for appended in self.unsynced:
            self.disk.sync(appended.segment.fd)
        self.disk.sync_directory(FOLDER)
        for appended in self.unsynced:
            self.files.note_synced(appended)
        self.unsynced = []
        self.durable = len(self.rows)
        self.kept = int(self.files.first)

    @rule()
    def power_fails(self) -> None:
        self.disk.crash()
        self.open()

    @rule(data=st.data())
    def let_go(self, data: Any) -> None:
        self.sync()
        if data.draw(st.booleans()):
            gone = self.files.apply_retention(data.draw(st.integers(1, 4 * SEGMENT)), 0)
        else:
            gone = self.files.apply_retention(0, self.time - data.draw(st.integers(0, 40)))
        self.kept = int(self.files.first)
        for name in gone:
            self.disk.unlink(f"{FOLDER}/{name}")
        self.disk.sync_directory(FOLDER)

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def find(self, data: Any) -> None:
        offset = data.draw(st.integers(0, len(self.rows) + 2))
        place = self.files.find(offset)
        if offset >= len(self.rows):
            assert place is None
        else:
            assert place is not None
            wanted = max(offset, int(self.files.first))
            assert place.header.first <= wanted < place.header.behind
            self.check(place)

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def at_time(self, data: Any) -> None:
        time = data.draw(st.integers(990, self.time + 5))
        later = [offset for offset, row in enumerate(self.rows) if row[0] >= time]
        wanted = max(later[0], int(self.files.first)) if later else len(self.rows)
        assert self.files.at_time(time) == wanted

    @precondition(lambda self: self.rows)
    @rule()
    def read_all(self) -> None:
        place = self.files.find(0)
        offset = int(self.files.first)
        while place is not None:
            assert place.header.first <= offset
            self.check(place)
            offset = place.header.behind
            place = self.files.following(place)
        assert offset == len(self.rows)

    def check(self, place: ChunkPosition) -> None:
        chunk = self.files.load(place)
        for index in range(chunk.rows):
            row = (chunk.time(index), chunk.value(BODY, index))
            assert row == self.rows[place.header.first + index]

    @invariant()
    def accounts_are_right(self) -> None:
        if hasattr(self, "files"):
            files = self.files
            assert files.bytes == sum(segment.end for segment in files.segments)
            assert files.next == len(self.rows)
            assert len(files.open_files) <= 2 + len({appended.segment for appended in self.unsynced})


TestStreamHistories = StreamHistories.TestCase
TestStreamHistories.settings = settings(max_examples=cases(60), stateful_step_count=50, deadline=None)
