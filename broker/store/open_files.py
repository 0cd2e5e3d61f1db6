"""The files of streams that are open: not too many, however many streams and files there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from broker.store.disk import NO_DESCRIPTORS, Disk

if TYPE_CHECKING:
    from broker.store.stream_segment import StreamSegment

OPEN_MAX: Final = 128


@final
class OpenFiles:
    """Of more than `limit`, those that were used longest ago are closed, but for those that are held."""

    def __init__(self, disk: Disk, limit: int = OPEN_MAX) -> None:
        self.disk = disk
        self.limit = limit
        self._open: dict[StreamSegment, None] = {}  # the one used last at the end
        self._held: dict[StreamSegment, None] = {}  # those that are to be synced

    def __len__(self) -> int:
        """How many there are."""
        return len(self._open) + len(self._held)

    def use(self, segment: StreamSegment, path: str) -> int:
        """The descriptor of a segment's file, to be used before another one is asked for. Raises OSError."""
        if segment.fd < 0:
            return self._add(segment, path, False)
        if segment in self._open:
            del self._open[segment]
            self._open[segment] = None
        return segment.fd

    def copy(self, segment: StreamSegment, path: str) -> int:
        """A descriptor of a segment's file that is the caller's, to be closed by it. Raises OSError."""
        fd = self.use(segment, path)
        while True:
            try:
                return self.disk.duplicate(fd)
            except OSError as error:
                if error.errno not in NO_DESCRIPTORS or next(iter(self._open), segment) is segment:
                    raise
                self._close_oldest()

    def create(self, segment: StreamSegment, path: str) -> int:
        """The descriptor of the new file of a segment. Raises OSError."""
        return self._add(segment, path, True)

    def _add(self, segment: StreamSegment, path: str, new: bool) -> int:
        while len(self._open) >= self.limit:
            self._close_oldest()
        while True:
            try:
                segment.fd = self.disk.create(path) if new else self.disk.open(path)
                break
            except OSError as error:
                if error.errno not in NO_DESCRIPTORS or not self._open:
                    raise
                self._close_oldest()
        self._open[segment] = None
        return segment.fd

    def _close_oldest(self) -> None:
        self.shut(next(iter(self._open)))

    def hold(self, segment: StreamSegment) -> None:
        """Leave the file of a segment, which is open, open until it is let go of."""
        self._open.pop(segment, None)
        self._held[segment] = None

    def let_go(self, segment: StreamSegment) -> None:
        """The file of a segment may be closed."""
        if segment in self._held:
            del self._held[segment]
            self._open[segment] = None
        while len(self._open) > self.limit:
            self._close_oldest()

    def shut(self, segment: StreamSegment) -> None:
        """Close the file of a segment, if it is open."""
        if segment.fd >= 0:
            self.disk.close(segment.fd)
            segment.fd = -1
            self._open.pop(segment, None)
            self._held.pop(segment, None)

    def close(self) -> None:
        """Close all."""
        for segment in [*self._open, *self._held]:
            self.shut(segment)
