"""The index of a queue: its entries by header values, so that a selector need not scan the whole queue."""

from __future__ import annotations

import math
from typing import final

from mypy_extensions import i64

from broker.core.arguments.queue import INDEX
from broker.core.arguments.rule import Arguments
from broker.core.entries.cursor import Place, Row
from broker.core.entries.entry import EntryFilter, QueueEntry
from broker.core.entries.list import QueueEntryList
from broker.core.ports import MessageStore
from broker.core.view import Views, bare_view


@final
class RowEntries(QueueEntryList):
    """The list of one row's entries, for the cursors that walk over the row."""

    def __init__(self, index: Index, row: Row) -> None:
        super().__init__(True)
        self._index = index
        self._row = row

    def next(self, entry: QueueEntry) -> QueueEntry | None:
        """The next entry with the value."""
        after = self._row.first if entry is self.head else self._index.place(entry, self._row).after
        return None if after is None else after.entry

    def before(self, entry: QueueEntry) -> QueueEntry:
        """The entry with the value before this one."""
        before = self._index.place(entry, self._row).before
        return self.head if before is None else before.entry


@final
class Index:
    """The rows of a queue, by the headers that its argument `x-index` names and by their values.

    A name may be any identifier of a selector, so a property is possible too. A value is a string or a
    number; entries without such a value are in no row.
    `served`: the rows that have consumers.
    """

    def __init__(self, names: list[str], store: MessageStore, views: Views) -> None:
        self.names = names
        self.served: dict[Row, None] = {}
        self._store = store
        self._views = views
        self.rows: list[dict[object, Row]] = [{} for _ in names]
        self._places: dict[QueueEntry, Place] = {}

    # ---- entries

    def add(self, entry: QueueEntry) -> None:
        """Add `entry`, which is new, and the last one."""
        try:
            view = self._views(entry.message, self._store)
        except Exception:  # the disk cannot read the message: an enqueue must not fail for this
            return
        place: Place | None = None
        for header, name in enumerate(self.names):
            value = view.lookup(name)
            if is_value(value):
                row = self._row(header, value)
                place = Place(entry, row, place)
                last = row.last
                place.before = last
                if last is None:
                    row.first = place
                else:
                    last.after = place
                row.last = place
        if place is not None:
            self._places[entry] = place

    def offer(self, entries: list[QueueEntry], depth: i64) -> None:
        """Offer `entries`, which are AVAILABLE again, to the cursors of their rows."""
        if not self.served:
            return
        for entry in entries:
            place = self._places.get(entry)
            while place is not None:
                for context in place.row.contexts:
                    context.offer(entry, depth)
                place = place.other

    def remove(self, entry: QueueEntry, depth: i64) -> None:
        """Remove `entry`, which is about to be unlinked.

        No browser stands on it, and `depth` entries are left then.
        """
        place = self._places.get(entry)
        first = place
        while place is not None:
            for context in place.row.contexts:
                context.forget(entry, depth)
            place = place.other
        place = first
        while place is not None:
            row = place.row
            before, after = place.before, place.after
            if before is None:
                row.first = after
            else:
                before.after = after
            if after is None:
                row.last = before
            else:
                after.before = before
            place.before = None
            place.after = None
            self._drop_row(row)
            place = place.other
        if first is not None:
            del self._places[entry]

    def place(self, entry: QueueEntry, row: Row) -> Place:
        """Return the place of an entry in a row that contains it."""
        place: Place | None = self._places[entry]
        while place is not None and place.row is not row:
            place = place.other
        assert place is not None, "a cursor of a row stands on entries of the row"
        return place

    # ---- rows for cursors

    def row_for(self, entry_filter: EntryFilter | None) -> Row | None:
        """Return the row of all entries that a filter may let pass.

        None if it demands no value of an indexed header.

        The caller must call `release` once for each row that this returns.
        """
        if entry_filter is None:
            return None
        for name, value in entry_filter.demands:
            if name in self.names:
                row = self._row(self.names.index(name), value)
                row.users += 1
                if row.entries is None:
                    row.entries = RowEntries(self, row)
                return row
        return None

    def release(self, row: Row) -> None:
        """Release the row for one of its users."""
        row.users -= 1
        self._drop_row(row)

    def served_rows(self, entry: QueueEntry) -> list[Row]:
        """Return the rows of `entry`, or nothing if no row has consumers."""
        rows: list[Row] = []
        place = self._places.get(entry) if self.served else None
        while place is not None:
            rows.append(place.row)
            place = place.other
        return rows

    def _row(self, header: i64, value: object) -> Row:
        row = self.rows[header].get(value)
        if row is None:
            row = self.rows[header][value] = Row(header, value)
        return row

    def _drop_row(self, row: Row) -> None:
        if row.users == 0 and row.first is None:
            del self.rows[row.header][row.value]


def is_value(value: object) -> bool:
    """Whether a value can be looked up: a string, or a number that is equal to itself."""
    if isinstance(value, float):
        return not math.isnan(value)
    return isinstance(value, (str, int)) and not isinstance(value, bool)


def new_index(store: MessageStore, arguments: Arguments, views: Views = bare_view) -> Index | None:
    """Return the index that the arguments ask for; None without one."""
    names = arguments.get(INDEX)
    if not isinstance(names, str):
        return None
    return Index([name.strip() for name in names.split(",")], store, views)
