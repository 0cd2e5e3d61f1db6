"""Deliveries of earlier links of the same name that are not settled. [amqp-1.0 2.6.13]

[amqp-1.0 2.6.13] The sender says with its attach which of them it knows, and is told what became of each.
What it settles, or does not know any more, is forgotten; what it resumes has the outcome that it had.

[amqp-1.0 2.6.13] The receiver says with its attach which of them it has. One that it does not have goes back
to its queue; one of which it has said what becomes of it is settled; all others are sent once more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from broker.adapters.amqp10.link import NOTHING_RECEIVED, send_on
from broker.adapters.amqp10.names import KEPT_MAX, Expiry, Held, Suspended, give_back
from broker.adapters.amqp10.settle import apply, numbers_of
from broker.core.arguments.queue import TIMEOUT
from broker.core.queues.consumer import QueueConsumer
from broker.core.queues.queue import Queue, queue_of
from broker.core.queues.state import owns
from broker.core.schedule import Alarm
from protocol.amqp10.conditions import ILLEGAL_STATE, PeerError
from protocol.amqp10.constructors import NONE
from protocol.amqp10.descriptors import RECEIVED, TRANSACTIONAL_STATE
from protocol.amqp10.outgoing import SplitTransfer
from protocol.amqp10.states import DeliveryState, read_state
from protocol.amqp10.unsettled import encoded_state

if TYPE_CHECKING:
    from broker.adapters.amqp10.receive import IncomingLink
    from broker.adapters.amqp10.send import OutgoingLink


_TRANSACTIONAL: Final = bytes((0x00, 0x53, TRANSACTIONAL_STATE))


@final
class Remembered:
    """By their tags the outcomes, encoded, or NOTHING_RECEIVED of what has not come as a whole.

    `incomplete`: the sender does not know of all of them, or has not said all that it knows.
    """

    def __init__(self, outcomes: dict[bytes, bytes], incomplete: bool) -> None:
        self.outcomes = outcomes
        self.incomplete = incomplete

    def keep_known(self, tags: Mapping[bytes, object]) -> None:
        """The sender has said which deliveries it has: all others are settled."""
        self.outcomes = {tag: outcome for tag, outcome in self.outcomes.items() if tag in tags}

    def admit(self, tag: bytes) -> None:
        """A delivery that is new. Raises PeerError."""
        if self.incomplete:
            raise PeerError(
                ILLEGAL_STATE, "a new delivery on a link whose unsettled deliveries are not all known"
            )
        outcome = self.outcomes.get(tag)
        if outcome is not None and outcome != NOTHING_RECEIVED:
            text = f"a new delivery has the delivery-tag of one that is unsettled: {tag.hex()}"
            raise PeerError(ILLEGAL_STATE, text)
        self.outcomes.pop(tag, None)


def remember(link: IncomingLink, expiry: Expiry) -> None:
    """Have what a link has received, and its sender has not settled, wait for a link that resumes it.

    Of a transaction nothing is left when its session ends; and a receiver that settles first has nothing
    unsettled but what has not come as a whole.
    """
    session = link.session
    suspended = session.peer.server.link_names.suspend(session, link.name, True, expiry)
    if suspended is None:
        return
    received = suspended.received
    if link.remembered is not None:
        received.update(link.remembered.outcomes)
    if link.second:
        outcomes, suspended.batch = session.owed.answers.owed_to(link)
        outcomes.update(session.halves.told(link))
        for delivery_id, tag in link.tags.named():
            outcome = outcomes.get(delivery_id)
            if outcome is not None and not outcome.startswith(_TRANSACTIONAL):
                received[tag] = outcome
    if link.is_under_way():
        received[link.tag] = NOTHING_RECEIVED
    if received:
        suspended.wait(session)
    else:
        suspended.resumed()


def resume(link: IncomingLink) -> bool:
    """The sender resumes a delivery; whether it is one that has yet to come as a whole.

    Any other has its outcome, or is none of this side's business: what comes with it is dropped.
    """
    remembered = link.remembered
    if remembered is None or remembered.outcomes.get(link.tag) != NOTHING_RECEIVED:
        return False
    del remembered.outcomes[link.tag]
    return True


def conclude(link: IncomingLink, settled: bool) -> None:
    """Say once more what became of a delivery that has been resumed, unless the sender has settled it.

    Raises PeerError.
    """
    remembered = link.remembered
    outcome = None if remembered is None else remembered.outcomes.pop(link.tag, None)
    if outcome is not None and not settled:
        link.claim()
        link.owe(link.delivery_id, outcome, False)


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
            mine = consumers[queue_of(held[0])]
            held[0].target = mine.target
            held[0].lease = mine.lease
            if not owns(held[0], held[1], held[0].queue):
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
            if owns(held[0], held[1], held[0].queue):  # its queue has not been deleted meanwhile
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
