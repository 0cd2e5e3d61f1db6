"""Deliveries that an earlier link of the same name sent, and that its receiver has not settled.

[amqp-1.0 2.6.13] The receiver says with its attach which of them it has. One that it does not have goes back
to its queue; one of which it has said what becomes of it is settled; all others are sent once more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from broker.adapters.amqp10.sending import send_on
from broker.adapters.amqp10.settling import apply, numbers_of
from broker.adapters.amqp10.suspended import KEPT_MAX, Expiry, Held, Suspended, give_back
from broker.core.arguments.queue import TIMEOUT
from broker.core.queues.consumer import QueueConsumer
from broker.core.queues.queue import Queue
from broker.core.schedule import Alarm
from protocol.amqp10.conditions import PeerError
from protocol.amqp10.constructors import NONE
from protocol.amqp10.descriptors import RECEIVED, TRANSACTIONAL_STATE
from protocol.amqp10.outgoing import SplitTransfer
from protocol.amqp10.states import DeliveryState, read_state
from protocol.amqp10.unsettled import encoded_state

if TYPE_CHECKING:
    from broker.adapters.amqp10.outgoing import OutgoingLink

TURN: Final[i64] = 256  # so many are sent, then others have their turn


@final
class Resuming(Alarm):
    """Those of one link. Nothing else is sent before they are; what the link's lease ends before goes back.

    `doubts`: the receiver has not said all that it knows, so that what it does not mention is `doubtful`, and
    is for the link that resumes this one. `incomplete`: this side has not said all. In either case the link
    sends nothing new.
    """

    def __init__(self, link: OutgoingLink, doubts: bool, incomplete: bool) -> None:
        super().__init__()
        self.doubtful: dict[bytes, Held] = {}
        self._link = link
        self._doubts = doubts
        self._incomplete = incomplete or doubts
        self._told: deque[tuple[bytes, bytes]] = deque()  # settled: tag and outcome
        self._again: deque[tuple[bytes, Held]] = deque()
        self._going = False

    def take_over(
        self, suspended: Suspended, consumers: dict[Queue, QueueConsumer], known: Mapping[bytes, object]
    ) -> None:
        """Compare what was sent with what the receiver knows, the states of which have been checked.

        `consumers`: the link's, by their queues, which are all that the earlier link has left.
        """
        states = {tag: _state(value) for tag, value in known.items() if tag in suspended.sent}
        suspended.resumed()
        absent: list[Held] = []
        settled: dict[bytes, tuple[DeliveryState, list[Held]]] = {}
        for tag, held in suspended.sent.items():
            mine = consumers[held[0].queue]
            held[0].target = mine.target
            held[0].lease = mine.lease
            if not held[1].is_with(held[0]):
                continue  # its queue has taken it back
            if tag in states:
                state = states[tag]
                if state is None:
                    self._again.append((tag, held))
                else:
                    outcome = encoded_state(known[tag])
                    self._told.append((tag, outcome))
                    settled.setdefault(outcome, (state, []))[1].append(held)
            elif self._doubts:
                self.doubtful[tag] = held
            else:
                absent.append(held)
        give_back(absent, suspended.abandoned)
        session = self._link.session
        for state, its in settled.values():
            apply(session, [(consumer, [entry]) for consumer, entry in its], state.code, state)
        leases = [mine.lease.milliseconds for mine in consumers.values() if mine.lease is not None]
        if leases and (self._again or self.doubtful):
            schedule = session.vhost.schedule
            schedule.set(self, schedule.after(min(leases)))

    def ring(self) -> None:
        """The lease of what has not been sent again is over (Alarm)."""
        link = self._link
        if link.leaving or link.resuming is not self:
            return
        late = list(self.left().values())
        self._again.clear()
        self.doubtful = {}
        link.session.peer.server.counters.timed_out += len(late)
        give_back(late, TIMEOUT)
        link.sent_on()
        link.session.peer.end_turn()

    def is_over(self) -> bool:
        """Whether there is nothing left of it."""
        return not self._incomplete and not self._told and not self._again

    def is_stuck(self) -> bool:
        """Whether nothing more can be sent on this link."""
        return self._incomplete and not self._told and not self._again

    def left(self) -> dict[bytes, Held]:
        """What has not been sent, by tag."""
        left = dict(self._again)
        left.update(self.doubtful)
        return left

    def go_on(self) -> None:
        """Send of them what the receiver takes now; `sent_on` of the link calls this again."""
        if self._going:
            return
        self._going = True
        link = self._link
        session = link.session
        left: i64 = TURN
        while link.credit.left > 0 and link.sending is None and (self._told or self._again):
            if left == 0:
                session.peer.full = True
            left -= 1
            if session.outgoing.left <= 0 or session.peer.blocked or session.peer.full:
                session.sending[link] = None  # to be asked again
                session.peer.schedule()
                break
            if self._told:
                link.credit.use()
                self._tell(*self._told.popleft())
                continue
            tag, held = self._again.popleft()
            if held[1].is_with(held[0]):  # its queue has not been deleted meanwhile
                link.credit.use()
                self._send(tag, held)
        self._going = False

    def _tell(self, tag: bytes, outcome: bytes) -> None:
        """A delivery has the outcome that its receiver has said: a transfer says that it is settled."""
        link = self._link
        delivery_id = link.session.unsettled.skip() - 1 & 0xFFFFFFFF
        try:
            sending = SplitTransfer(link.template, delivery_id, tag, True, [], state=outcome, resume=True)
        except PeerError:  # the frames that the receiver takes are smaller than what it has said itself
            sending = SplitTransfer(link.template, delivery_id, tag, True, [], resume=True)
        link.sending = sending
        send_on(link.session, link)

    def _send(self, tag: bytes, held: Held) -> None:
        """Send a delivery from its beginning."""
        consumer, entry = held
        self._link.target.deliver_again(consumer, entry, tag)


def check_states(known: Mapping[bytes, object] | None) -> None:
    """Raise DecodeError if what a receiver says of deliveries makes no sense."""
    for value in () if known is None else known.values():
        _state(value)


def keep(link: OutgoingLink, expiry: Expiry, cut_off: i64) -> None:
    """Have what a link has sent, and its receiver has not settled, wait for a link that resumes it.

    `cut_off`: a delivery that the receiver has in part, and knows to be taken back.
    """
    session = link.session
    suspended = session.peer.server.link_names.suspend(session, link.name, False, expiry)
    left = {} if link.resuming is None else link.resuming.left()
    if suspended is None:
        give_back(list(left.values()), link.target.abandoned)
        return
    sent = suspended.sent
    unsettled = session.unsettled
    for number in numbers_of(session, link.target):
        if len(sent) + len(left) >= KEPT_MAX:
            break
        entry = unsettled.find(number)
        consumer = unsettled.holder
        if entry is None or consumer is None or consumer.target is not link.target or not consumer.acquires:
            continue
        if cut_off == NONE or number - 1 & 0xFFFFFFFF != cut_off:
            unsettled.take(number)
            sent[link.tag_of(number)] = consumer, entry
    sent.update(left)  # which has not been sent again, and so comes after what has
    suspended.abandoned = link.target.abandoned
    if sent:
        lease = next(iter(sent.values()))[0].lease  # the link's, as that of all of them is
        suspended.lease = 0 if lease is None else lease.milliseconds
        suspended.wait(session)
    else:
        suspended.resumed()


def _state(value: object) -> DeliveryState | None:
    """The outcome that a receiver has come to; None if it has come to none, or only in a transaction."""
    if value is None:
        return None
    data = encoded_state(value)
    state = read_state(data, 0, len(data), "attach.unsettled")
    return None if state.code in (RECEIVED, TRANSACTIONAL_STATE) else state
