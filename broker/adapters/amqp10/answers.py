"""The frames that a session sends at the end of a turn: dispositions and flows. [amqp-1.0 2.6.7, 2.6.12]

The outcome of a logged delivery is sent after the log has synced its batch. Later outcomes wait for the same
batch, so outcomes stay in order and wait no longer than a sync.
"""

from __future__ import annotations

from collections import deque
from typing import final

from mypy_extensions import i64

from broker.adapters.amqp10.link import Link10
from broker.adapters.amqp10.state import Session10State, SessionPendingFrames
from broker.core.ports import DurableWaiter
from protocol.amqp10.conditions import INTERNAL_ERROR
from protocol.amqp10.outcomes import ACCEPTED_VALUE
from protocol.amqp10.outgoing import disposition
from protocol.amqp10.serials import distance, forward


@final
class UnsettledBySender:
    """The deliveries of a session with an outcome of this side that their sender has not settled, by ids.

    Their links have rcv-settle-mode second. The credit of the links limits their number. [amqp-1.0 2.8.3]
    """

    def __init__(self) -> None:
        self._links: dict[int, Link10] = {}
        self._outcomes: dict[int, bytes] = {}

    def add(self, link: Link10, first: i64, count: i64, outcome: bytes) -> None:
        """Add deliveries whose outcome was sent to the sender."""
        for _ in range(count):
            self._links[first] = link
            self._outcomes[first] = outcome
            first = forward(first, 1)

    def settle(self, first: i64, last: i64) -> i64:
        """Remove the deliveries from `first` to `last`, which the sender has settled.

        Return the number of deliveries that were checked.
        """
        links = self._links
        count = distance(first, last) + 1
        checked_count = min(count, len(links))
        if count > len(links):
            ids = [delivery_id for delivery_id in links if 0 <= distance(first, delivery_id) < count]
        else:
            ids = [int(forward(first, steps)) for steps in range(count)]
        for delivery_id in ids:
            link = links.pop(delivery_id, None)
            if link is not None:
                del self._outcomes[delivery_id]
                link.on_sender_settled(delivery_id)
        return checked_count

    def outcomes_of(self, link: Link10) -> dict[int, bytes]:
        """Return the outcomes of a link's deliveries that its sender has not settled, by delivery-ids."""
        return {
            delivery_id: self._outcomes[delivery_id]
            for delivery_id, owner in self._links.items()
            if owner is link
        }

    def forget(self, link: Link10) -> None:
        """Forget the deliveries of a link that has ended."""
        for delivery_id in self.outcomes_of(link):
            del self._links[delivery_id]
            del self._outcomes[delivery_id]


class _OutcomeRange:
    """Deliveries with consecutive ids and the same outcome, which is sent when the log has synced `batch`.

    `link`: the link on which the peer sent them; None: the peer is their receiver.
    """

    def __init__(self, link: Link10 | None, first: i64, count: i64, state: bytes, batch: i64) -> None:
        self.link = link
        self.first = first
        self.count = count
        self.state = state
        self.batch = batch


@final
class _PendingDetach(_OutcomeRange):
    """The detach of a link, which is sent after the earlier outcomes."""

    def __init__(self, detached: Link10, condition: str, text: str, batch: i64) -> None:
        super().__init__(None, 0, 0, b"", batch)
        self.detached = detached
        self.condition = condition
        self.text = text


@final
class PendingOutcomes(DurableWaiter):
    """The pending outcomes of a session, in the order in which they were added."""

    def __init__(self, session: Session10State) -> None:
        self._session: Session10State | None = session  # None: it has ended
        self._store = session.peer.server.store
        self._ranges: deque[_OutcomeRange] = deque()
        self._last: _OutcomeRange | None = None  # the last of `_ranges`
        self._awaited_batch: i64 = 0  # the latest batch of which the log notifies
        self._next_id: i64 = 0  # the delivery-id that would extend the last range

    def add(self, link: Link10 | None, delivery_id: i64, count: i64, state: bytes, logged: bool) -> None:
        """Add the outcome of `count` deliveries; `logged`: it depends on the batch that is being appended."""
        last = self._last
        batch: i64 = self._store.batch if logged else 0
        if last is not None:
            batch = max(batch, last.batch)  # so that it is not sent before the earlier ranges
            if (
                last.batch == batch
                and last.link is link
                and self._next_id == delivery_id
                and last.state == state
            ):
                last.count += count
                self._next_id = forward(delivery_id, count)
                return
        elif self._session is not None:
            pending_frames_of(self._session).register()
        self._last = last = _OutcomeRange(link, delivery_id, count, state, batch)
        self._ranges.append(last)
        self._next_id = forward(delivery_id, count)

    def detach(self, link: Link10, condition: str, text: str) -> None:
        """Detach a link after all pending outcomes have been sent."""
        self.end_turn()
        last = self._last
        if last is None:
            link.detach(condition, text)
        else:
            self._last = _PendingDetach(link, condition, text, last.batch)
            self._ranges.append(self._last)

    def end_turn(self) -> None:
        """Send the outcomes whose batches are on disk, and wait for the log with the others."""
        self._send_durable(self._store.durable)
        last = self._last
        if last is None:
            return
        if self._store.failure:
            self.on_store_failed(self._store.failure)
        elif last.batch > self._awaited_batch:
            self._awaited_batch = last.batch
            self._store.wait(self)

    def on_durable(self, batch: i64) -> None:
        """Send the outcomes that depend on `batch`, which the log has synced."""
        self._send_durable(batch)
        session = self._session
        if session is not None:
            if self._ranges:
                pending_frames_of(session).register()
            session.peer.end_turn()

    def on_store_failed(self, reason: str) -> None:
        """End the session, if outcomes are pending: the log has failed before their sync."""
        session = self._session
        if self._ranges and session is not None:
            self._forget_ranges()
            session.fail(INTERNAL_ERROR, f"the log has failed: {reason}")
            session.peer.flush()

    def outcomes_for(self, link: Link10) -> tuple[dict[int, bytes], i64]:
        """Return the pending outcomes of a link, by delivery-ids, and the last batch on which they depend."""
        states: dict[int, bytes] = {}
        batch: i64 = 0
        for span in self._ranges:
            if span.link is link:
                batch = span.batch
                for at in range(span.count):
                    states[forward(span.first, at)] = span.state
        return states, batch

    def clear(self) -> None:
        """Forget all outcomes, and the session, which has ended."""
        self._forget_ranges()
        self._session = None

    def _forget_ranges(self) -> None:
        self._ranges.clear()
        self._last = None

    def _send_durable(self, durable: i64) -> None:
        ranges = self._ranges
        while ranges and ranges[0].batch <= durable:
            span = ranges.popleft()
            if not ranges:
                self._last = None
            self._send(span)

    def _send(self, span: _OutcomeRange) -> None:
        if isinstance(span, _PendingDetach):
            span.detached.detach(span.condition, span.text)
            return
        session = self._session
        if session is None:
            return
        link = span.link
        last = forward(span.first, span.count - 1)
        settled = link is None or not link.settles_second
        out = session.peer.out
        out.write(disposition(session.channel, link is not None, span.first, last, settled, span.state))
        if link is None:
            return
        watch = session.confirm_watch
        is_timed = watch.number != 0 and 0 <= distance(span.first, watch.number - 1) < span.count
        if is_timed and span.state != ACCEPTED_VALUE:
            watch.cancel()
        if span.state == ACCEPTED_VALUE:
            if is_timed:
                watch.stop()
            session.traffic.confirmed += span.count
            session.peer.server.counters.confirmed += span.count
            session.vhost.journal.confirmed(session, span.count)
        if settled:
            link.on_settled(span.count)
        elif not link.is_detached:
            pending_frames_of(session).unsettled_by_sender.add(link, span.first, span.count, span.state)


@final
class PendingFrames(SessionPendingFrames):
    """The pending frames of a session, gathered during a turn and sent at its end."""

    def __init__(self, session: Session10State) -> None:
        self.outcomes = PendingOutcomes(session)
        self.unsettled_by_sender = UnsettledBySender()
        self._session: Session10State | None = session  # None: it has ended
        self._unchecked: dict[Link10, None] = {}
        self._draining: dict[Link10, None] = {}
        self._is_registered = False

    def register(self) -> None:
        """Register the session for the end of the turn."""
        session = self._session
        if not self._is_registered and session is not None:
            self._is_registered = True
            session.peer.pending_sessions.append(self)

    def check_credit(self, link: Link10) -> None:
        """Check at the end of the turn whether a link's sender gets more credit."""
        self._unchecked[link] = None
        self.register()

    def note_drained(self, link: Link10) -> None:
        """Note that a draining receiver gets a flow at the end of the turn: no messages are available."""
        self._draining[link] = None
        self.register()

    def send_outcomes(self) -> None:
        """Send the outcomes whose batches are on disk, and wait for the log with the others (SessionOwed)."""
        self.outcomes.end_turn()

    def end_turn(self) -> None:
        """Send all pending frames (SessionOwed)."""
        self._is_registered = False
        if self._session is None or self._session.end_sent:
            return
        self.outcomes.end_turn()
        draining, self._draining = self._draining, {}
        for link in draining:
            if not link.is_detached:
                link.complete_drain()
        unchecked, self._unchecked = self._unchecked, {}
        for link in unchecked:
            link.grant_credit()

    def clear(self) -> None:
        """Forget all pending frames, and the session, which has ended."""
        self.outcomes.clear()
        self.unsettled_by_sender = UnsettledBySender()
        self._session = None
        self._unchecked = {}
        self._draining = {}


def pending_frames_of(session: Session10State) -> PendingFrames:
    """Return the pending frames of a session."""
    pending = session.pending
    assert isinstance(pending, PendingFrames), "a session has PendingFrames"
    return pending
