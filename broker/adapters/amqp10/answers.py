"""The frames that a session sends at the end of a turn: dispositions and flows. [amqp-1.0 2.6.7, 2.6.12]

The outcome of a logged delivery is sent after the log has synced its batch. Later outcomes wait for the same
batch, so outcomes stay in order and wait no longer than a sync.
"""

from __future__ import annotations

from collections import deque
from typing import final

from mypy_extensions import i64

from broker.adapters.amqp10.link import Link10
from broker.adapters.amqp10.state import Session10State, SessionOwed
from broker.core.ports import DurableWaiter
from protocol.amqp10.conditions import INTERNAL_ERROR
from protocol.amqp10.outcomes import ACCEPTED_VALUE
from protocol.amqp10.outgoing import disposition
from protocol.amqp10.serials import distance, forward


@final
class Halves:
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
        looked = min(count, len(links))
        if count > len(links):
            ids = [each for each in links if 0 <= distance(first, each) < count]
        else:
            ids = [int(forward(first, each)) for each in range(count)]
        for each in ids:
            link = links.pop(each, None)
            if link is not None:
                del self._outcomes[each]
                link.settled_last(each)
        return looked

    def told(self, link: Link10) -> dict[int, bytes]:
        """Return the outcomes of a link's deliveries that its sender has not settled, by delivery-ids."""
        return {each: self._outcomes[each] for each, its in self._links.items() if its is link}

    def forget(self, link: Link10) -> None:
        """Forget the deliveries of a link that has ended."""
        for each in [each for each, its in self._links.items() if its is link]:
            del self._links[each]
            del self._outcomes[each]


class _Run:
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
class _Ending(_Run):
    """The detach of a link, which is sent after the earlier outcomes."""

    def __init__(self, leaving: Link10, condition: str, text: str, batch: i64) -> None:
        super().__init__(None, 0, 0, b"", batch)
        self.leaving = leaving
        self.condition = condition
        self.text = text


@final
class Answers(DurableWaiter):
    """The pending outcomes of a session, in the order in which they were added."""

    def __init__(self, session: Session10State) -> None:
        self._session: Session10State | None = session  # None: it has ended
        self._store = session.peer.server.store
        self._runs: deque[_Run] = deque()
        self._last: _Run | None = None  # the last of `_runs`
        self._waited: i64 = 0  # the latest batch of which the log notifies
        self._next: i64 = 0  # the delivery-id that would extend the last run

    def add(self, link: Link10 | None, delivery_id: i64, count: i64, state: bytes, logged: bool) -> None:
        """Add the outcome of `count` deliveries; `logged`: it depends on the batch that is being appended."""
        last = self._last
        batch: i64 = self._store.batch if logged else 0
        if last is not None:
            batch = max(batch, last.batch)  # so that it is not sent before the earlier runs
            if (
                last.batch == batch
                and last.link is link
                and self._next == delivery_id
                and last.state == state
            ):
                last.count += count
                self._next = forward(delivery_id, count)
                return
        elif self._session is not None:
            owed_by(self._session).owe()
        self._last = last = _Run(link, delivery_id, count, state, batch)
        self._runs.append(last)
        self._next = forward(delivery_id, count)

    def detach(self, link: Link10, condition: str, text: str) -> None:
        """Detach a link after all pending outcomes have been sent."""
        self.end_turn()
        last = self._last
        if last is None:
            link.detach(condition, text)
        else:
            self._last = _Ending(link, condition, text, last.batch)
            self._runs.append(self._last)

    def end_turn(self) -> None:
        """Send the outcomes whose batches are on disk, and wait for the log with the others."""
        self._give(self._store.durable)
        last = self._last
        if last is None:
            return
        if self._store.failure:
            self.on_store_failed(self._store.failure)
        elif last.batch > self._waited:
            self._waited = last.batch
            self._store.wait(self)

    def on_durable(self, batch: i64) -> None:
        """Send the outcomes that depend on `batch`, which the log has synced."""
        self._give(batch)
        session = self._session
        if session is not None:
            if self._runs:
                owed_by(session).owe()
            session.peer.end_turn()

    def on_store_failed(self, reason: str) -> None:
        """End the session, if outcomes are pending: the log has failed before their sync."""
        session = self._session
        if self._runs and session is not None:
            self._forget_runs()
            session.fail(INTERNAL_ERROR, f"the log has failed: {reason}")
            session.peer.flush()

    def owed_to(self, link: Link10) -> tuple[dict[int, bytes], i64]:
        """Return the pending outcomes of a link, by delivery-ids, and the last batch on which they depend."""
        states: dict[int, bytes] = {}
        batch: i64 = 0
        for run in self._runs:
            if run.link is link:
                batch = run.batch
                for at in range(run.count):
                    states[forward(run.first, at)] = run.state
        return states, batch

    def clear(self) -> None:
        """Forget all outcomes, and the session, which has ended."""
        self._forget_runs()
        self._session = None

    def _forget_runs(self) -> None:
        self._runs.clear()
        self._last = None

    def _give(self, durable: i64) -> None:
        runs = self._runs
        while runs and runs[0].batch <= durable:
            run = runs.popleft()
            if not runs:
                self._last = None
            self._say(run)

    def _say(self, run: _Run) -> None:
        if isinstance(run, _Ending):
            run.leaving.detach(run.condition, run.text)
            return
        session = self._session
        if session is None:
            return
        link = run.link
        last = forward(run.first, run.count - 1)
        settled = link is None or not link.second
        out = session.peer.out
        out.write(disposition(session.channel, link is not None, run.first, last, settled, run.state))
        if link is None:
            return
        if run.state == ACCEPTED_VALUE:
            session.peer.server.counters.confirmed += run.count
            session.vhost.journal.confirmed(session, run.count)
        if settled:
            link.answered(run.count)
        elif not link.leaving:
            owed_by(session).halves.add(link, run.first, run.count, run.state)


@final
class Owed(SessionOwed):
    """The pending frames of a session, gathered during a turn and sent at its end."""

    def __init__(self, session: Session10State) -> None:
        self.answers = Answers(session)
        self.halves = Halves()
        self._session: Session10State | None = session  # None: it has ended
        self._touched: dict[Link10, None] = {}
        self._drained: dict[Link10, None] = {}
        self._owes = False

    def owe(self) -> None:
        """Register the session for the end of the turn."""
        session = self._session
        if not self._owes and session is not None:
            self._owes = True
            session.peer.owing.append(self)

    def touch(self, link: Link10) -> None:
        """Check at the end of the turn whether a link's sender gets more credit."""
        self._touched[link] = None
        self.owe()

    def drained(self, link: Link10) -> None:
        """Note that a draining receiver gets a flow at the end of the turn: no messages are available."""
        self._drained[link] = None
        self.owe()

    def say_answers(self) -> None:
        """Send the outcomes whose batches are on disk, and wait for the log with the others (SessionOwed)."""
        self.answers.end_turn()

    def end_turn(self) -> None:
        """Send all pending frames (SessionOwed)."""
        self._owes = False
        if self._session is None or self._session.ending:
            return
        self.answers.end_turn()
        drained, self._drained = self._drained, {}
        for link in drained:
            if not link.leaving:
                link.drained()
        touched, self._touched = self._touched, {}
        for each in touched:
            each.top_up()

    def clear(self) -> None:
        """Forget all pending frames, and the session, which has ended."""
        self.answers.clear()
        self.halves = Halves()
        self._session = None
        self._touched = {}
        self._drained = {}


def owed_by(session: Session10State) -> Owed:
    """Return the pending frames of a session."""
    owed = session.owed
    assert isinstance(owed, Owed), "sessions have these"
    return owed
