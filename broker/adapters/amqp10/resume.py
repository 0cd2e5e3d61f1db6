"""Unsettled deliveries of an earlier link of the same name. [amqp-1.0 2.6.13]

The peer sends: its attach lists its unsettled deliveries, and the answer has the outcomes. Deliveries that
the sender settles, or does not list, are forgotten. A resumed delivery keeps its outcome.

The peer receives: its attach lists its unsettled deliveries. A delivery that the receiver does not list is
released. A delivery with an outcome is settled. All other deliveries are sent again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final, final

from mypy_extensions import i64

from broker.adapters.amqp10.link import NOTHING_RECEIVED, send_more
from broker.adapters.amqp10.names import SentDelivery, SuspendedLink10, release_deliveries
from broker.adapters.amqp10.settle import apply_outcome
from broker.adapters.amqp10.target import Resumption, Target10
from broker.core.arguments.queue import TIMEOUT
from broker.core.queues.consumer import QueueConsumer
from broker.core.queues.queue import Queue, queue_of
from broker.core.queues.state import owns
from protocol.amqp10.conditions import ILLEGAL_STATE, PeerError
from protocol.amqp10.descriptors import RECEIVED, TRANSACTIONAL_STATE
from protocol.amqp10.outgoing import SplitTransfer
from protocol.amqp10.states import DeliveryState, read_state
from protocol.amqp10.unsettled import encoded_state


@final
class ResumedOutcomes:
    """The encoded outcomes of received deliveries by their tags; NOTHING_RECEIVED for incomplete deliveries.

    `incomplete`: the unsettled map of either side does not have all deliveries. [amqp-1.0 2.7.3]
    """

    def __init__(self, outcomes: dict[bytes, bytes], incomplete: bool) -> None:
        self.outcomes = outcomes
        self.incomplete = incomplete

    def keep_known(self, tags: Mapping[bytes, object]) -> None:
        """Forget all deliveries except `tags`, which the sender still has."""
        self.outcomes = {tag: outcome for tag, outcome in self.outcomes.items() if tag in tags}

    def check_new_tag(self, tag: bytes) -> None:
        """Check the tag of a new delivery, and forget an incomplete one with this tag. Raises PeerError."""
        if self.incomplete:
            raise PeerError(ILLEGAL_STATE, "a new delivery on a link whose unsettled map is incomplete")
        outcome = self.outcomes.get(tag)
        if outcome is not None and outcome != NOTHING_RECEIVED:
            text = f"a new delivery has the delivery-tag of an unsettled delivery: {tag.hex()}"
            raise PeerError(ILLEGAL_STATE, text)
        self.outcomes.pop(tag, None)


DELIVERIES_PER_TURN: Final[i64] = 256


@final
class ResumedDeliveries(Resumption):
    """The unsettled deliveries of an earlier link that the link of a target resumes.

    The link sends these deliveries before all others. Deliveries that are not sent before the link's lease
    ends are released.

    `is_partial`: the receiver's unsettled map is incomplete. The deliveries that it does not list are then
    `unlisted`, and left to a link that resumes this link. `incomplete`: this side's unsettled map is
    incomplete. In either case the link sends no new deliveries. [amqp-1.0 2.7.3]
    """

    def __init__(self, target: Target10, is_partial: bool, incomplete: bool) -> None:
        super().__init__()
        self.unlisted: dict[bytes, SentDelivery] = {}
        self._target = target
        self._link = target.link
        self._is_partial = is_partial
        self._incomplete = incomplete or is_partial
        self._to_settle: deque[tuple[bytes, bytes]] = deque()  # tags and outcomes of deliveries to be settled
        self._to_resend: deque[tuple[bytes, SentDelivery]] = deque()
        self._is_sending = False

    def compare(
        self, suspended: SuspendedLink10, consumers: dict[Queue, QueueConsumer], known: Mapping[bytes, object]
    ) -> None:
        """Compare the sent deliveries with the receiver's unsettled map, whose states have been checked.

        `consumers`: the link's consumers by their queues, which include all queues of the earlier link.
        """
        states = {tag: _state(value) for tag, value in known.items() if tag in suspended.sent}
        suspended.end_suspension()
        absent: list[SentDelivery] = []
        settled: dict[bytes, tuple[DeliveryState, list[SentDelivery]]] = {}
        for tag, delivery in suspended.sent.items():
            own = consumers[queue_of(delivery[0])]
            delivery[0].target = own.target
            delivery[0].lease = own.lease
            if not owns(delivery[0], delivery[1], delivery[0].queue):
                continue  # the consumer no longer owns the entry
            if tag in states:
                state = states[tag]
                if state is None:
                    self._to_resend.append((tag, delivery))
                else:
                    outcome = encoded_state(known[tag])
                    self._to_settle.append((tag, outcome))
                    settled.setdefault(outcome, (state, []))[1].append(delivery)
            elif self._is_partial:
                self.unlisted[tag] = delivery
            else:
                absent.append(delivery)
        release_deliveries(absent, suspended.default_outcome)
        session = self._link.session
        for state, deliveries in settled.values():
            apply_outcome(session, [(consumer, [entry]) for consumer, entry in deliveries], state.code, state)
        leases = [own.lease.milliseconds for own in consumers.values() if own.lease is not None]
        if leases and (self._to_resend or self.unlisted):
            schedule = session.vhost.schedule
            schedule.set(self, schedule.after(min(leases)))

    def do_due_work(self) -> None:
        """Release the deliveries that were not sent again before their lease ended."""
        link = self._link
        if link.is_detached or self._target.resumption is not self:
            return
        late = list(self.unsent().values())
        self._to_resend.clear()
        self.unlisted = {}
        link.session.peer.server.counters.timed_out += len(late)
        release_deliveries(late, TIMEOUT)
        link.continue_sending()
        link.session.peer.end_turn()

    def is_complete(self) -> bool:
        """Whether no deliveries are left."""
        return not self._incomplete and not self._to_settle and not self._to_resend

    def is_stuck(self) -> bool:
        """Whether nothing more can be sent on this link."""
        return self._incomplete and not self._to_settle and not self._to_resend

    def unsent(self) -> dict[bytes, SentDelivery]:
        """Return the deliveries that have not been sent again, by tag."""
        left = dict(self._to_resend)
        left.update(self.unlisted)
        return left

    def send_more(self) -> None:
        """Send as many deliveries as credit and window allow; `continue_sending` of the link sends more."""
        if self._is_sending:
            return
        self._is_sending = True
        try:
            self._send_some()
        finally:
            self._is_sending = False

    def _send_some(self) -> None:
        link = self._link
        session = link.session
        left: i64 = DELIVERIES_PER_TURN
        while link.credit.left > 0 and link.sending is None and (self._to_settle or self._to_resend):
            if left == 0:
                session.peer.full = True
            left -= 1
            if session.outgoing.left <= 0 or session.peer.blocked or session.peer.full:
                session.sending[link] = None  # so that `send_more` is called again
                session.peer.schedule()
                break
            if self._to_settle:
                link.credit.use()
                self._settle(*self._to_settle.popleft())
                continue
            tag, delivery = self._to_resend.popleft()
            if owns(delivery[0], delivery[1], delivery[0].queue):  # unless its queue was deleted meanwhile
                link.credit.use()
                self._resend(tag, delivery)

    def _settle(self, tag: bytes, outcome: bytes) -> None:
        """Settle a resumed delivery with the outcome of its receiver, by a settled transfer."""
        link = self._link
        delivery_id = link.session.unsettled.skip() - 1 & 0xFFFFFFFF
        try:
            sending = SplitTransfer(link.template, delivery_id, tag, True, [], state=outcome, resume=True)
        except PeerError:  # the receiver's frames are too small for its outcome
            sending = SplitTransfer(link.template, delivery_id, tag, True, [], resume=True)
        link.sending = sending
        send_more(link.session, link)

    def _resend(self, tag: bytes, delivery: SentDelivery) -> None:
        """Send a resumed delivery from its beginning."""
        consumer, entry = delivery
        self._target.deliver_again(consumer, entry, tag)


def check_states(known: Mapping[bytes, object] | None) -> None:
    """Raise DecodeError if a state in a receiver's unsettled map is malformed."""
    for value in () if known is None else known.values():
        _state(value)


def _state(value: object) -> DeliveryState | None:
    """Return the outcome in a receiver's unsettled map; None without an outcome, or in a transaction only."""
    if value is None:
        return None
    data = encoded_state(value)
    state = read_state(data, 0, len(data), "attach.unsettled")
    return None if state.code in (RECEIVED, TRANSACTIONAL_STATE) else state


def resumed_deliveries_of(target: Target10) -> ResumedDeliveries | None:
    """Return the deliveries that the link of `target` resumes; None without any."""
    resumed = target.resumption
    assert resumed is None or isinstance(resumed, ResumedDeliveries), "a target has ResumedDeliveries"
    return resumed
