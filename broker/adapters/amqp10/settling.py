"""What the receiver of deliveries says of them, and what their queues do. [amqp-1.0 2.6.12, 3.4]"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from broker.adapters.amqp10.modifying import modification
from broker.adapters.amqp10.target import Target10
from broker.adapters.amqp10.undeliverable import may_die, send_away
from broker.core.arguments.queue import CRASH, NACK, RELEASED
from broker.core.delivery.session import ConsumerTarget
from broker.core.entries.entry import QueueEntry
from broker.core.queues import returns
from broker.core.queues.consumer import QueueConsumer
from broker.core.queues.returns import discard_all, settle_one, settle_runs
from broker.core.queues.undeliverable import Reach
from broker.core.schedule import ENTRIES, MODIFICATION
from broker.core.transactions.transaction import DISCARD, RELEASE, SETTLE
from protocol.amqp10 import descriptors as d
from protocol.amqp10.conditions import PeerError
from protocol.amqp10.dispositions import Disposition
from protocol.amqp10.outcomes import ACCEPTED_VALUE, RELEASED_VALUE, modified, rejected
from protocol.amqp10.serials import distance
from protocol.amqp10.states import DeliveryState

if TYPE_CHECKING:
    from broker.adapters.amqp10.session import Session10

_HELD: Final[dict[int, int]] = {d.ACCEPTED: SETTLE, d.REJECTED: DISCARD}
"""What a transaction does with deliveries of these outcomes; those of all others go back."""


def settle(session: Session10, said: Disposition) -> None:
    """Take the disposition of a receiver; deliveries that are not known are none of its business."""
    state = said.state
    unsettled = session.unsettled
    last = session.number_of(said.last)
    first = last - distance(said.first, said.last)  # which may be far from any that there is
    code: i64 = d.RECEIVED if state is None else state.code
    if code == d.TRANSACTIONAL_STATE and state is not None:
        _retire(session, said, state, first, last)
        return
    if code == d.RECEIVED and not said.settled:
        return  # not the end of it
    if code == d.ACCEPTED and first == last:  # the hot path
        entry = unsettled.take(first)
        consumer = unsettled.holder
        if entry is None or consumer is None:
            return
        settle_one(entry, consumer)
    else:
        runs = taken(session, first, last)
        if not runs:
            return
        apply(session, runs, code, state)
    if not said.settled:
        session.owed.answers.add(None, said.first, last - first + 1, _echoed(state), True)


def taken(session: Session10, first: i64, last: i64) -> list[tuple[QueueConsumer, list[QueueEntry]]]:
    """The deliveries of these numbers that are not settled, oldest first, in runs that one consumer had."""
    unsettled = session.unsettled
    runs: list[tuple[QueueConsumer, list[QueueEntry]]] = []
    holder: QueueConsumer | None = None
    run: list[QueueEntry] = []
    numbers = unsettled.between(first, last)
    for number in numbers:
        entry = unsettled.take(number)
        consumer = unsettled.holder
        if entry is None or consumer is None:
            continue
        if consumer is not holder:
            holder = consumer
            run = []
            runs.append((consumer, run))
        run.append(entry)
    session.vhost.schedule.allowance.use(len(numbers) // ENTRIES)
    return runs


def apply(
    session: Session10,
    runs: list[tuple[QueueConsumer, list[QueueEntry]]],
    code: i64,
    state: DeliveryState | None,
) -> None:
    """Have the queues do what the outcome says; none at all is each link's own."""
    virtual_host = session.vhost
    if code == d.ACCEPTED:
        settle_runs(runs, session, virtual_host)
    elif code == d.REJECTED:
        for consumer, entries in runs:
            discard_all(consumer.queue, entries, consumer)
    elif code == d.RELEASED:
        returns.give_back(runs, RELEASED, session, virtual_host)
    elif code == d.MODIFIED and state is not None:
        outcome = NACK if state.delivery_failed else RELEASED
        addition = modification(state)
        if addition is not None:
            count = sum([len(entries) for _, entries in runs])
            virtual_host.schedule.allowance.use(count * (MODIFICATION + addition.cost // ENTRIES))
        if state.undeliverable_here:
            send_away(session, runs, outcome, addition)
            return
        returns.give_back(runs, outcome, session, virtual_host, addition)
    else:
        for run in runs:
            returns.give_back([run], abandoned(run[0]), session, virtual_host)


def _retire(session: Session10, said: Disposition, state: DeliveryState, first: i64, last: i64) -> None:
    """Deliveries have an outcome if their transaction is committed. [amqp-1.0 4.4.2]"""
    unsettled = session.unsettled
    transaction = session.peer.transactions.known(state.txn_id)
    outcome = state.outcome
    code: i64 = d.RECEIVED if outcome is None else outcome.code
    addition = None if outcome is None else modification(outcome)
    echoed = _echoed(outcome)
    numbers = unsettled.between(first, last)
    session.vhost.schedule.allowance.use(len(numbers) // ENTRIES)
    for number in numbers:
        if transaction is None:
            unsettled.find(number)
            _unknown(unsettled.holder, session.peer.transactions.missing(state.txn_id))
            continue
        entry = unsettled.take(number)
        consumer = unsettled.holder
        if entry is None or consumer is None:
            continue
        failed = outcome is not None and outcome.delivery_failed
        returned = _returned(code, failed, consumer)
        held: i64 = _HELD.get(code, RELEASE)
        if code == d.MODIFIED and outcome is not None and outcome.undeliverable_here and consumer.acquires:
            if may_die(consumer) and not Reach(consumer.queue, consumer.target).could_take(entry):
                held = DISCARD
            else:
                transaction.exclude(entry, consumer)
        transaction.retire(number, entry, consumer, held, returned, addition)
        if said.settled:
            transaction.settled_by_receiver(session, number)
        else:
            transaction.owe(session, number, echoed)


def _unknown(consumer: QueueConsumer | None, why: PeerError) -> None:
    """A receiver retires in a transaction that there is not: its link ends."""
    if consumer is not None and isinstance(consumer.target, Target10):
        consumer.target.link.detach(why.condition, why.text)


def _returned(code: i64, failed: bool, consumer: QueueConsumer) -> i64:
    """In which way a delivery comes back that has this outcome."""
    if code == d.RELEASED:
        return RELEASED
    if code == d.MODIFIED:
        return NACK if failed else RELEASED
    return abandoned(consumer)


def by_target(session: Session10) -> dict[ConsumerTarget, list[i64]]:
    """The numbers of all deliveries that are not settled, oldest first, by who has them."""
    unsettled = session.unsettled
    numbers = unsettled.up_to(0)
    session.vhost.schedule.allowance.use(len(numbers) // ENTRIES)
    found: dict[ConsumerTarget, list[i64]] = {}
    for number in numbers:
        unsettled.find(number)
        consumer = unsettled.holder
        if consumer is not None:
            found.setdefault(consumer.target, []).append(number)
    return found


def numbers_of(session: Session10, target: ConsumerTarget) -> list[i64]:
    """The numbers of deliveries among which are all that `target` has and that are not settled."""
    if session.let_go_of is not None:
        return session.let_go_of.get(target, [])
    numbers = session.unsettled.up_to(0)
    session.vhost.schedule.allowance.use(len(numbers) // ENTRIES)
    return numbers


def held_by(session: Session10, target: ConsumerTarget) -> dict[QueueConsumer, list[QueueEntry]]:
    """What a link's receiver has not settled, oldest first, which nobody can settle from now on."""
    unsettled = session.unsettled
    held: dict[QueueConsumer, list[QueueEntry]] = {}
    for number in numbers_of(session, target):
        entry = unsettled.find(number)
        consumer = unsettled.holder
        if entry is not None and consumer is not None and consumer.target is target:
            unsettled.take(number)
            held.setdefault(consumer, []).append(entry)
    return held


def abandoned(consumer: QueueConsumer) -> i64:
    """How deliveries come back whose receiver does not say how."""
    target = consumer.target
    return target.abandoned if isinstance(target, Target10) else CRASH


def _echoed(state: DeliveryState | None) -> bytes:
    """The outcome that this side has come to as well."""
    if state is None:
        return modified(True, False)
    if state.code == d.REJECTED:
        return rejected()
    if state.code == d.RELEASED:
        return RELEASED_VALUE
    if state.code == d.MODIFIED:
        return modified(state.delivery_failed, state.undeliverable_here)
    return ACCEPTED_VALUE if state.code == d.ACCEPTED else modified(True, False)
