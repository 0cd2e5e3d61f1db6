"""The plan of a query: the seqs at which its batches begin and end, and the ranges of its tasks."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Final

from pyspark.sql.datasource import InputPartition

from pipeline.connector.choices import OptionError
from pipeline.connector.offsets import EARLIEST, LATEST, VERSION, share_messages
from pipeline.connector.streams import DataLossError
from pipeline.errors import PipelineError
from pipeline.journal.journals import Journal, find_journal
from pipeline.journal.options import Bound, JournalOptions
from pipeline.journal.raw import Seqs, find_ends
from pipeline.poll import Poll

EVENTS_OF_TASK: Final = 65_536  # at least, so that many small files are one task
LOG: Final = logging.getLogger("amqpd.pipeline")


class Slice(InputPartition):
    """The events of a node from the seq `start` up to `end`, exclusively, which a task reads."""

    def __init__(self, node: str, start: int, end: int) -> None:
        super().__init__(0)
        self.node = node
        self.start = start
        self.end = end


def json_of(seqs: Seqs) -> dict[str, Any]:
    """Return the JSON for the checkpoint; equal seqs have equal JSON."""
    return {"v": VERSION, "nodes": dict(sorted(seqs.items()))}


def seqs_of(found: Mapping[str, Any]) -> Seqs:
    """Return the seqs of a checkpoint. Raises PipelineError: another program or version wrote it."""
    if found.get("v") != VERSION:
        raise PipelineError(
            f"the checkpoint has offsets of version {found.get('v')!r}, this program reads {VERSION}"
        )
    nodes = found.get("nodes")
    if not isinstance(nodes, dict) or not all(type(seq) is int for seq in nodes.values()):
        raise PipelineError(f"the checkpoint has malformed offsets: {found}")
    return dict(nodes)


def find_first_seqs(journal: Journal) -> Seqs:
    """Return the begin of each node's journal. Raises PipelineError."""
    return {node: extent.first for node, extent in journal.extents().items()}


def resolve_bound(bound: Bound, journal: Journal, size: int) -> Seqs:
    """Return a seq for each node. Raises OptionError: the bound names other nodes; PipelineError."""
    known = {EARLIEST: find_first_seqs(journal), LATEST: find_ends(journal, size)}
    if bound.time is not None:
        from pipeline.journal.events import find_seq_at

        return {
            node: find_seq_at(journal, node, bound.time, end, size) for node, end in known[LATEST].items()
        }
    if not bound.seqs:
        return known[bound.word]
    seqs = dict(bound.seqs)
    for node in seqs.keys() - known[LATEST].keys():
        raise OptionError(f"a seq is given for node '{node}', which has no journal in {journal.where}")
    for node in known[LATEST].keys() - seqs.keys():
        raise OptionError(f"no seq is given for node '{node}', which has a journal in {journal.where}")
    return {node: known[seq][node] if seq < 0 else seq for node, seq in seqs.items()}


def plan_slices(journal: Journal, start: Seqs, end: Seqs, fail_on_loss: bool, size: int) -> list[Slice]:
    """Return the slices from `start` up to `end`, checked against the events that are there.

    A node that `start` does not have begins with its first event. Raises DataLossError, PipelineError.
    """
    there, behinds = journal.extents(), find_ends(journal, size)
    slices: list[Slice] = []

    def lose(what: str) -> None:
        if fail_on_loss:
            raise DataLossError(f"{what}; failOnDataLoss=false continues without them")
        LOG.warning("%s", what)

    for node, behind in sorted(end.items()):
        at = start.get(node, there[node].first if node in there else behind)
        name = f"the journal of node '{node}'"
        if at > behind:
            lose(
                f"{name}: events up to {behind - 1} were planned by a run whose beginning is not known, and "
                f"this one would begin with {at}: a new checkpoint and startingTimestamp help"
            )
            continue
        if node not in there:
            lose(f"{name} is not in {journal.where} any more, with events {at} to {behind - 1}")
            continue
        if behind > behinds[node]:
            lose(f"{name} ends before event {behinds[node]}, not {behind}")
            behind = max(behinds[node], at)
        first = there[node].first
        if at < min(first, behind):
            lose(f"{name} begins with event {first} now: those from {at} on are lost")
            at = min(first, behind)
        if at < behind:
            slices += _cut(journal, node, at, behind)
    return slices


def _cut(journal: Journal, node: str, start: int, end: int) -> list[Slice]:
    """Cut a range into slices of whole files, as far as possible, with several small files in one slice."""
    bounds = [start]
    for first in sorted({file.first for file in journal.files(node, start, end) if file.first > start}):
        if first - bounds[-1] >= EVENTS_OF_TASK:
            bounds.append(first)
    return [Slice(node, a, b) for a, b in pairwise([*bounds, end])]


def plan_batch(options: JournalOptions) -> list[Slice]:
    """Return the slices of a batch, fixed now. Raises OptionError, DataLossError, PipelineError."""
    journal = find_journal(options)
    start = resolve_bound(options.starting, journal, options.fetch_bytes)
    end = resolve_bound(options.ending, journal, options.fetch_bytes)
    known = {node: (start[node], seq) for node, seq in end.items() if node in start}
    for node, (first, behind) in known.items():
        if first > behind and options.starting.seqs:
            raise OptionError(
                f"startingOffsets has {first} for node '{node}', whose reading ends before {behind}"
            )
    begin = {node: min(pair) for node, pair in known.items()}
    return plan_slices(journal, begin, end, options.fail_on_loss, options.fetch_bytes)


class Progress:
    """Plans the batches of a stream, in the process that plans. All functions raise PipelineError."""

    def __init__(self, options: JournalOptions) -> None:
        self._options = options
        self._journal = find_journal(options)
        self._initial: Seqs | None = None
        self._end: Seqs | None = None  # only with the trigger AvailableNow
        self._seen: Seqs | None = None
        self._poll = Poll(options.poll)

    def initial(self) -> Seqs:
        """Return the begin of the first batch: always the same in this process."""
        if self._initial is None:
            self._initial = resolve_bound(self._options.starting, self._journal, self._options.fetch_bytes)
        return self._initial

    def fix_end(self) -> None:
        """Limit the query to the events that exist now."""
        self._end = find_ends(self._journal, self._options.fetch_bytes)

    def end_seen(self) -> Seqs | None:
        """Return the ends of the journals at the last look-up."""
        return self._seen

    def next_batch(self, start: Seqs, rows: int | None) -> Seqs:
        """Return the end of the next batch; `start` itself if there is nothing to read."""
        if not self._poll.is_due():
            return start
        tails = find_ends(self._journal, self._options.fetch_bytes) if self._end is None else self._end
        self._seen = dict(tails)
        new = tails.keys() - start.keys()
        if new:
            first = find_first_seqs(self._journal)
            start = start | {node: first.get(node, tails[node]) for node in new}
        for node, seq in start.items():
            if seq > tails.get(node, seq):
                self._step_back(node, seq, tails[node])
        backlogs = {node: max(tails.get(node, seq) - seq, 0) for node, seq in start.items()}
        shares = backlogs if rows is None else share_messages(backlogs, rows)
        end = {node: min(seq, tails.get(node, seq)) + shares[node] for node, seq in start.items()}
        if end == start:
            self._poll.found_nothing()
        return end

    def slices(self, start: Seqs, end: Seqs) -> list[Slice]:
        """Return the slices of a batch, which an earlier process may have planned."""
        return plan_slices(self._journal, start, end, self._options.fail_on_loss, self._options.fetch_bytes)

    def _step_back(self, node: str, seq: int, behind: int) -> None:
        what = (
            f"the journal of node '{node}' ends before event {behind}, and events up to {seq - 1} were read"
        )
        if self._options.fail_on_loss:
            raise DataLossError(f"{what}: it was replaced; failOnDataLoss=false continues with new events")
        LOG.warning("%s", what)
