"""The index of a queue: its entries by header values, so that a selector need not scan the whole queue."""

from __future__ import annotations

import math
from typing import final

from mypy_extensions import i64

from broker.core.arguments.queue import INDEX
from broker.core.arguments.rule import Arguments
from broker.core.entries.cursor import Posting, PostingList
from broker.core.entries.entry import EntryFilter, QueueEntry
from broker.core.entries.list import QueueEntryList
from broker.core.message_view import Views, bare_view
from broker.core.ports import MessageStore


@final
class PostingListEntries(QueueEntryList):
    """The entries of a single posting list, for the cursors that walk over the list."""

    def __init__(self, index: Index, postings: PostingList) -> None:
        super().__init__(True)
        self._index = index
        self._postings = postings

    def next(self, entry: QueueEntry) -> QueueEntry | None:
        """The next entry with the value."""
        after = (
            self._postings.first if entry is self.head else self._index.posting(entry, self._postings).after
        )
        return None if after is None else after.entry

    def before(self, entry: QueueEntry) -> QueueEntry:
        """The entry with the value before this one."""
        before = self._index.posting(entry, self._postings).before
        return self.head if before is None else before.entry


@final
class Index:
    """The posting lists of a queue, by the headers that its argument `x-index` names and by their values.

    A name may be any identifier of a selector, so a property is possible too. A value is a string or a
    number; entries without such a value are in no posting list.
    `served`: the posting lists that have consumers.
    """

    def __init__(self, names: list[str], store: MessageStore, views: Views) -> None:
        self.names = names
        self.served: dict[PostingList, None] = {}
        self._store = store
        self._views = views
        self.posting_lists: list[dict[object, PostingList]] = [{} for _ in names]
        self._by_entry: dict[QueueEntry, Posting] = {}

    # ---- entries

    def add(self, entry: QueueEntry) -> None:
        """Add `entry`, which is new, and the last one."""
        try:
            view = self._views(entry.message, self._store)
        except Exception:  # the disk cannot read the message: an enqueue must not fail for this
            return
        posting: Posting | None = None
        for header, name in enumerate(self.names):
            value = view.lookup(name)
            if is_value(value):
                postings = self._posting_list(header, value)
                posting = Posting(entry, postings, posting)
                last = postings.last
                posting.before = last
                if last is None:
                    postings.first = posting
                else:
                    last.after = posting
                postings.last = posting
        if posting is not None:
            self._by_entry[entry] = posting

    def offer(self, entries: list[QueueEntry], depth: i64) -> None:
        """Offer `entries`, which are AVAILABLE again, to the cursors of their posting lists."""
        if not self.served:
            return
        for entry in entries:
            posting = self._by_entry.get(entry)
            while posting is not None:
                for context in posting.postings.contexts:
                    context.offer(entry, depth)
                posting = posting.other

    def remove(self, entry: QueueEntry, depth: i64) -> None:
        """Remove `entry`, which is about to be unlinked.

        No browser stands on it, and `depth` entries are left then.
        """
        posting = self._by_entry.get(entry)
        first = posting
        while posting is not None:
            for context in posting.postings.contexts:
                context.forget(entry, depth)
            posting = posting.other
        posting = first
        while posting is not None:
            postings = posting.postings
            before, after = posting.before, posting.after
            if before is None:
                postings.first = after
            else:
                before.after = after
            if after is None:
                postings.last = before
            else:
                after.before = before
            posting.before = None
            posting.after = None
            self._drop_if_empty(postings)
            posting = posting.other
        if first is not None:
            del self._by_entry[entry]

    def posting(self, entry: QueueEntry, postings: PostingList) -> Posting:
        """Return the posting of an entry in a posting list that contains it."""
        posting: Posting | None = self._by_entry[entry]
        while posting is not None and posting.postings is not postings:
            posting = posting.other
        assert posting is not None, "a cursor of a posting list stands on entries of the list"
        return posting

    # ---- posting lists for cursors

    def postings_for(self, entry_filter: EntryFilter | None) -> PostingList | None:
        """Return the posting list of all entries that a filter may let pass.

        None if it demands no value of an indexed header.

        The caller must call `release` once for each posting list that this returns.
        """
        if entry_filter is None:
            return None
        for name, value in entry_filter.demands:
            if name in self.names:
                postings = self._posting_list(self.names.index(name), value)
                postings.users += 1
                if postings.entries is None:
                    postings.entries = PostingListEntries(self, postings)
                return postings
        return None

    def release(self, postings: PostingList) -> None:
        """Release the posting list for one of its users."""
        postings.users -= 1
        self._drop_if_empty(postings)

    def served_postings(self, entry: QueueEntry) -> list[PostingList]:
        """Return the posting lists of `entry`, or nothing if no posting list has consumers."""
        served: list[PostingList] = []
        posting = self._by_entry.get(entry) if self.served else None
        while posting is not None:
            served.append(posting.postings)
            posting = posting.other
        return served

    def _posting_list(self, header: i64, value: object) -> PostingList:
        postings = self.posting_lists[header].get(value)
        if postings is None:
            postings = self.posting_lists[header][value] = PostingList(header, value)
        return postings

    def _drop_if_empty(self, postings: PostingList) -> None:
        if postings.users == 0 and postings.first is None:
            del self.posting_lists[postings.header][postings.value]


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
