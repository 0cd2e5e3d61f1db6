"""The dispositions of receivers, and their effect on the queues. [amqp-1.0 2.6.12, 3.4]

A delivery that is modified with undeliverable-here is released for other consumers. If no other consumer
could acquire the message, and the queue dead-letters rejected messages, the message is dead-lettered, with
the annotations that the receiver has added. This also happens later, when the last other consumer detaches
(broker.core.queues.undeliverable).
[RabbitMQ rabbit_amqp_session: modified with undeliverable-here discards]
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from broker.adapters.amqp10.answers import pending_frames_of
from broker.adapters.amqp10.entry_filters import exclude_undeliverable
from broker.adapters.amqp10.state import Session10State
from broker.adapters.amqp10.target import Target10, default_outcome_of
from broker.adapters.amqp10.transactions import transactions_of
from broker.adapters.peers.leases import Leases
from broker.core.arguments.queue import NACK, RELEASED, TIMEOUT
from broker.core.entries.entry import QueueEntry
from broker.core.queues import returns
from broker.core.queues.consumer import QueueConsumer
from broker.core.queues.hooks import REJECTED
from broker.core.queues.lease import Lease, lease_milliseconds
from broker.core.queues.queue import Queue, queue_of
from broker.core.queues.returns import (
    DEAR,
    Addition,
    EndedDeliveries,
    Run,
    annotate,
    are_few,
    discard_all,
    settle_one,
    settle_runs,
)
from broker.core.queues.state import owns
from broker.core.queues.undeliverable import OtherConsumers
from broker.core.schedule import ENTRIES, MODIFICATION, TimedTask
from broker.core.transactions.transaction import DISCARD, RELEASE, SETTLE
from protocol.amqp10 import descriptors as d
from protocol.amqp10.annotations import decode_map, encode_map
from protocol.amqp10.conditions import RESOURCE_LIMIT_EXCEEDED, PeerError
from protocol.amqp10.deaths import DEATHS, FIRST, LAST
from protocol.amqp10.dispositions import Disposition
from protocol.amqp10.outcomes import ACCEPTED_VALUE, RELEASED_VALUE, modified, rejected
from protocol.amqp10.outgoing import disposition
from protocol.amqp10.serials import distance
from protocol.amqp10.states import DeliveryState
from protocol.conversion.names import X_CC, is_internal


@final
class SessionLeases(Leases):
    """The leases of a session's deliveries, which are identified by their numbers."""

    def __init__(self, session: Session10State) -> None:
        super().__init__(session.vhost.schedule, session.peer.server.counters)
        self._session = session

    def used_leases(self) -> set[Lease | None]:
        """Return the leases of the session's consumers."""
        return {consumer.lease for target in self._session.targets for consumer in target.consumers}

    def is_unsettled(self, number: i64) -> bool:
        """Whether the delivery of this number is not settled yet."""
        return self._session.unsettled.find(number) is not None

    def end(self, numbers: list[i64]) -> None:
        """Release deliveries, and settle them as released; later dispositions are ignored."""
        session = self._session
        unsettled = session.unsettled
        runs: dict[QueueConsumer, list[QueueEntry]] = {}
        for number in numbers:
            entry = unsettled.take(number)
            consumer = unsettled.holder
            if entry is None or consumer is None:
                continue
            runs.setdefault(consumer, []).append(entry)
            delivery_id = number - 1 & 0xFFFFFFFF
            session.peer.out.write(
                disposition(session.channel, False, delivery_id, delivery_id, True, RELEASED_VALUE)
            )
        returns.requeue_runs(list(runs.items()), TIMEOUT, session, session.vhost)
        session.peer.end_turn()

    def identify(self) -> tuple[str, str, i64]:
        """Return the peer, the user and the channel of the session."""
        session = self._session
        return session.peer.peer, session.peer.user, session.channel


def lease_of(session: Session10State, queue: Queue, requested: object) -> Lease | None:
    """Return the lease of deliveries of `queue` to a new link, None without a time limit.

    `requested`: the checked consumer-timeout of the link, in ms; None: the link has none.
    """
    milliseconds = lease_milliseconds(queue, requested, session.peer.server.consumer_timeout)
    if milliseconds == 0:
        return None
    if session.leases is None:
        session.leases = SessionLeases(session)
    return session.leases.get_lease(milliseconds)


ANNOTATIONS_MAX: Final[i64] = 64  # annotations that may be added to a message
ANNOTATIONS_BYTES_MAX: Final[i64] = 8192  # the size of all annotations that are added to a message
BYTES_PER_COST: Final = 256  # bytes of annotations that cost as much as a release without annotations
_FREE_PREFIX: Final = b"x-"  # the beginning of names that are not reserved [amqp-1.0 3.2.10]
_RESERVED: Final = frozenset(
    (X_CC, DEATHS, b"x-acquired-count", b"x-delivery-count", b"x-delay", b"x-delivery-time")
)
_RESERVED_PREFIXES: Final = (FIRST, LAST, b"x-expired-", b"x-receipt-", b"x-opt-delivery-")


def read_modification(state: DeliveryState) -> Addition | None:
    """Return the annotations that an outcome adds to messages, if any.

    Reserved annotations are left out, and annotations that the broker itself writes or reads.
    """
    if state.annotations is None:
        return None
    added = _allowed_annotations(state.annotations)
    return Modification(added) if added else None


@final
class Modification(Addition):
    """Annotations to add to messages, encoded, by their names.

    A message that would have too many annotations is not changed, and the link is detached.
    """

    def __init__(self, added: dict[bytes, bytes]) -> None:
        size: i64 = sum([len(name) + len(value) for name, value in added.items()])
        super().__init__(1 + len(added) + size // BYTES_PER_COST)
        self._added = added
        self._is_too_much = len(added) > ANNOTATIONS_MAX or size > ANNOTATIONS_BYTES_MAX

    def add(self, entries: list[QueueEntry], consumer: QueueConsumer) -> None:
        """Add the annotations."""
        queue = queue_of(consumer)
        combined: dict[bytes, bytes] = {}  # results by the earlier annotations, which most entries share
        refused = False
        for entry in entries:
            if not owns(consumer, entry, consumer.queue):
                continue
            before = queue.entries.annotations_of(entry)
            after = combined.get(before)
            if after is None:
                after = combined[before] = self._combine(before)
            if after:
                annotate(queue, entry, after)
            else:
                refused = True
        target = consumer.target
        if refused and isinstance(target, Target10) and not target.closed:
            AnnotationLimitAlarm(target, queue)

    def added_to(self, before: bytes) -> bytes:
        """Return the encoded map with the added annotations, or `before` if there are too many."""
        return self._combine(before) or before

    def _combine(self, before: bytes) -> bytes:
        """Return the encoded map with the added annotations; empty if there are too many for a message."""
        if self._is_too_much:
            return b""
        entries = dict(zip(*decode_map(before), strict=True)) if before else {}
        entries.update(self._added)
        after = encode_map(entries)
        return after if len(entries) <= ANNOTATIONS_MAX and len(after) <= ANNOTATIONS_BYTES_MAX else b""


def _allowed_annotations(performative: bytes) -> dict[bytes, bytes]:
    """Return the annotations that may be added, by their names; the last one of each name counts."""
    return {
        key: value
        for key, value in zip(*decode_map(performative), strict=True)
        if key.startswith(_FREE_PREFIX)
        and not (is_internal(key) or key in _RESERVED or key.startswith(_RESERVED_PREFIXES))
    }


@final
class AnnotationLimitAlarm(TimedTask):
    """The timed task that detaches a link that would add too many annotations, in a turn of its own.

    The detach releases deliveries too, so it must not happen while deliveries are being released.
    """

    def __init__(self, target: Target10, queue: Queue) -> None:
        super().__init__()
        self._link = target.link
        self._queue = queue
        schedule = target.link.session.vhost.schedule
        schedule.set(self, schedule.now())
        target.close()  # else the link could get the released entries again

    def do_due_work(self) -> None:
        """Detach the link with the error."""
        link = self._link
        if not link.is_detached:
            link.detach(
                RESOURCE_LIMIT_EXCEEDED,
                f"more than {ANNOTATIONS_MAX} message-annotations, or {ANNOTATIONS_BYTES_MAX} bytes of them, "
                f"would be added to a message of queue '{self._queue.name}'",
            )
            link.session.peer.end_turn()


def dead_letters_undeliverable(consumer: QueueConsumer) -> bool:
    """Whether the queue of a link's consumer dead-letters messages that no other consumer could acquire."""
    limits = queue_of(consumer).limits
    if limits is None or not limits.moves(REJECTED):
        return False
    return consumer.acquires and isinstance(consumer.target, Target10)


def release_elsewhere(
    session: Session10State, runs: list[Run], outcome: i64, addition: Addition | None
) -> None:
    """Release deliveries to other consumers of their queues, or dead-letter them.

    `outcome`: the cause, as NACK. `addition`: the annotations to add to their messages.
    """
    undeliverable = [run for run in runs if dead_letters_undeliverable(run[0])]
    to_release = [run for run in runs if not dead_letters_undeliverable(run[0])]
    for consumer, entries in to_release:
        _exclude_from_link(consumer, entries)
    if to_release:
        returns.requeue_runs(to_release, outcome, session, session.vhost, addition)
    if not undeliverable:
        return
    work = UndeliverableHere(undeliverable, session, outcome, addition)
    if are_few(undeliverable):
        work.process_all()
    else:
        work.begin()


def _exclude_from_link(consumer: QueueConsumer, entries: list[QueueEntry]) -> None:
    """Exclude `entries` from the link that had them."""
    target = consumer.target
    if consumer.acquires and isinstance(target, Target10):
        exclude_undeliverable(consumer, entries, target.link.full_name())


@final
class UndeliverableHere(EndedDeliveries):
    """Deliveries that are undeliverable to their link, and perhaps to every consumer."""

    def __init__(
        self, runs: list[Run], session: Session10State, outcome: i64, addition: Addition | None
    ) -> None:
        super().__init__(runs, session, session.vhost)
        self._virtual_host = session.vhost
        self._outcome = outcome
        self._addition = addition

    def process_all(self) -> None:
        """Release or dead-letter all of them in this turn."""
        runs = self.remaining_runs()
        while runs:
            consumer, entries = runs.pop()
            entries.reverse()
            self.process(entries, consumer)

    def process(self, entries: list[QueueEntry], consumer: QueueConsumer) -> None:
        """Dead-letter the entries that no other consumer could acquire, and release the rest."""
        others = OtherConsumers(queue_of(consumer), consumer.target)
        to_release: list[QueueEntry] = []
        to_dead_letter: list[QueueEntry] = []
        for entry in entries:
            if owns(consumer, entry, consumer.queue):
                (to_release if others.could_take(entry) else to_dead_letter).append(entry)
        if to_release:
            _exclude_from_link(consumer, to_release)
            returns.requeue_runs(
                [(consumer, to_release)], self._outcome, self.session, self._virtual_host, self._addition
            )
        if to_dead_letter:
            if self._addition is not None:
                self._addition.add(to_dead_letter, consumer)
            discard_all(queue_of(consumer), to_dead_letter, consumer)

    def cost(self, entry: QueueEntry, consumer: QueueConsumer) -> i64:
        """Return the cost of a dead letter."""
        return DEAR if self._addition is None else DEAR + self._addition.cost


_EFFECTS: Final[dict[int, int]] = {d.ACCEPTED: SETTLE, d.REJECTED: DISCARD}
"""The effect of outcomes in a transaction; deliveries of other outcomes are released."""


def apply_disposition(session: Session10State, performative: Disposition) -> None:
    """Apply the disposition of a receiver; unknown deliveries are ignored."""
    state = performative.state
    unsettled = session.unsettled
    last = session.number_of(performative.last)
    first = last - distance(
        performative.first, performative.last
    )  # perhaps far from the numbers of all deliveries
    code: i64 = d.RECEIVED if state is None else state.code
    if code == d.TRANSACTIONAL_STATE and state is not None:
        _retire_deliveries(session, performative, state, first, last)
        return
    if code == d.RECEIVED and not performative.settled:
        return  # not a terminal state
    if code == d.ACCEPTED and first == last:  # the hot path
        entry = unsettled.acknowledge(first)
        consumer = unsettled.holder
        if entry is None or consumer is None:
            return
        session.traffic.acked += 1
        settle_one(entry, consumer)
    else:
        if code == d.ACCEPTED:
            unsettled.note_acknowledged(first, last)
        runs = take_unsettled(session, first, last)
        if not runs:
            return
        apply_outcome(session, runs, code, state)
    if not performative.settled:
        pending_frames_of(session).outcomes.add(
            None, performative.first, last - first + 1, _answered_outcome(state), True
        )


def take_unsettled(
    session: Session10State, first: i64, last: i64
) -> list[tuple[QueueConsumer, list[QueueEntry]]]:
    """Remove and return the unsettled deliveries of these numbers, oldest first, in runs of a consumer."""
    unsettled = session.unsettled
    runs: list[tuple[QueueConsumer, list[QueueEntry]]] = []
    holder: QueueConsumer | None = None
    run: list[QueueEntry] = []
    numbers = unsettled.tags_between(first, last)
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


def apply_outcome(
    session: Session10State,
    runs: list[tuple[QueueConsumer, list[QueueEntry]]],
    code: i64,
    state: DeliveryState | None,
) -> None:
    """Apply an outcome to deliveries; without an outcome, each link's default applies."""
    virtual_host = session.vhost
    if code == d.ACCEPTED:
        for _, entries in runs:
            session.traffic.acked += len(entries)
        settle_runs(runs, session, virtual_host)
    elif code == d.REJECTED:
        for consumer, entries in runs:
            discard_all(queue_of(consumer), entries, consumer)
    elif code == d.RELEASED:
        returns.requeue_runs(runs, RELEASED, session, virtual_host)
    elif code == d.MODIFIED and state is not None:
        outcome = NACK if state.delivery_failed else RELEASED
        addition = read_modification(state)
        if addition is not None:
            count = sum([len(entries) for _, entries in runs])
            virtual_host.schedule.allowance.use(count * (MODIFICATION + addition.cost // ENTRIES))
        if state.undeliverable_here:
            release_elsewhere(session, runs, outcome, addition)
            return
        returns.requeue_runs(runs, outcome, session, virtual_host, addition)
    else:
        for run in runs:
            returns.requeue_runs([run], default_outcome_of(run[0]), session, virtual_host)


def _retire_deliveries(
    session: Session10State, performative: Disposition, state: DeliveryState, first: i64, last: i64
) -> None:
    """Hold an outcome until the transaction commits. [amqp-1.0 4.4.2]"""
    unsettled = session.unsettled
    transaction = transactions_of(session.peer).get(state.txn_id)
    outcome = state.outcome
    code: i64 = d.RECEIVED if outcome is None else outcome.code
    addition = None if outcome is None else read_modification(outcome)
    echoed = _answered_outcome(outcome)
    numbers = unsettled.tags_between(first, last)
    session.vhost.schedule.allowance.use(len(numbers) // ENTRIES)
    for number in numbers:
        if transaction is None:
            unsettled.find(number)
            _refuse_transaction(unsettled.holder, transactions_of(session.peer).unknown_error(state.txn_id))
            continue
        entry = unsettled.take(number)
        consumer = unsettled.holder
        if entry is None or consumer is None:
            continue
        failed = outcome is not None and outcome.delivery_failed
        cause = _return_cause(code, failed, consumer)
        effect: i64 = _EFFECTS.get(code, RELEASE)
        if effect == SETTLE:
            session.traffic.acked += 1
        if code == d.MODIFIED and outcome is not None and outcome.undeliverable_here and consumer.acquires:
            if dead_letters_undeliverable(consumer) and not OtherConsumers(
                queue_of(consumer), consumer.target
            ).could_take(entry):
                effect = DISCARD
            else:
                transaction.exclude(entry, consumer)
        transaction.retire(number, entry, consumer, effect, cause, addition)
        if performative.settled:
            transaction.note_settled(session, number)
        else:
            transaction.add_outcome(session, number, echoed)


def _refuse_transaction(consumer: QueueConsumer | None, why: PeerError) -> None:
    """Detach the link of a receiver whose disposition has an unknown txn-id."""
    if consumer is not None and isinstance(consumer.target, Target10):
        consumer.target.link.detach(why.condition, why.text)


def _return_cause(code: i64, failed: bool, consumer: QueueConsumer) -> i64:
    """Return the cause with which a delivery of this outcome is released."""
    if code == d.RELEASED:
        return RELEASED
    if code == d.MODIFIED:
        return NACK if failed else RELEASED
    return default_outcome_of(consumer)


def _answered_outcome(state: DeliveryState | None) -> bytes:
    """Return the encoded outcome for the disposition to the receiver."""
    if state is None:
        return modified(True, False)
    if state.code == d.REJECTED:
        return rejected()
    if state.code == d.RELEASED:
        return RELEASED_VALUE
    if state.code == d.MODIFIED:
        return modified(state.delivery_failed, state.undeliverable_here)
    return ACCEPTED_VALUE if state.code == d.ACCEPTED else modified(True, False)
