"""The served consumers of a queue that does not serve all: the plain rules of an Election."""

from broker.core.arguments.queue import ALL_CONSUMERS_EXCLUSIVE, EXCLUSIVE_TAKEOVER
from broker.core.queues.consumer import QueueConsumer
from broker.core.queues.election import Election, StartGate, declared_election
from broker.core.queues.queue import Queue
from tests.support.core.hand_clock import HandClock

EVERYBODY, SINGLE, ALL, SOME = "everybody", "single active", "all exclusive", "some exclusive"
DRAINING_ALL, DRAINING_SOME = "all exclusive, drain", "some exclusive, drain"
IN_ORDER, GATED = "strict", "gated"
WANTED = 2  # consumers that open the gate
SERVINGS = (EVERYBODY, IN_ORDER, GATED, SINGLE, ALL, SOME, DRAINING_ALL, DRAINING_SOME)


class Serving:
    """The consumers and the acquired items of a queue, and the last elected consumer."""

    def __init__(self, queue: Queue, kind: str) -> None:
        self.queue = queue
        self.kind = kind
        self.active: QueueConsumer | None = None
        self.open = kind != GATED
        self.ending = False  # nobody is to be elected, but what is out is waited for
        self.drains = kind in (SINGLE, DRAINING_ALL, DRAINING_SOME)
        queue.arguments[EXCLUSIVE_TAKEOVER] = "drain" if self.drains else "immediate"
        if kind == SINGLE:
            queue.election = Election(queue)
        elif kind == GATED:
            queue.manager.gate = StartGate(queue, HandClock().schedule)
            queue.manager.gate.apply(WANTED, -1)
        elif kind == IN_ORDER:
            queue.manager.strict = True
        elif kind in (ALL, DRAINING_ALL):
            queue.arguments[ALL_CONSUMERS_EXCLUSIVE] = True
            queue.election = declared_election(queue)

    def is_candidate(self, consumer: QueueConsumer) -> bool:
        if not consumer.acquires or self.kind in (EVERYBODY, IN_ORDER, GATED):
            return False
        return consumer.candidate or self.kind not in (SOME, DRAINING_SOME)

    def attached(self, newcomer: QueueConsumer) -> None:
        if not self.is_candidate(newcomer):
            return
        active = self.active
        equal = active is not None and newcomer.priority == active.priority
        if (
            active is None
            or newcomer.priority > active.priority
            or (equal and newcomer.priority == 127 and self.kind != SINGLE)
        ):
            self.active = newcomer

    def look(self) -> None:
        """Follow the changes since the last call: consumers may have left or returned their deliveries."""
        if self.kind == GATED:
            taking = sum(consumer.acquires for consumer in self.queue.manager.all)
            self.open = taking >= WANTED or (self.open and taking > 0)
        if self.active is not None and self.active not in self.queue.manager.all:
            candidates = [consumer for consumer in self.queue.manager.all if self.is_candidate(consumer)]
            self.active = max(candidates, key=lambda consumer: consumer.priority, default=None)
            self.ending = self.active is None and self.drains
        if self.active is not None or not self.queue.unacked:
            self.ending = False

    def may_be_served(self, consumer: QueueConsumer, owners: set[QueueConsumer]) -> bool:
        """Whether the consumer may be served; `owners` are the consumers with deliveries."""
        self.look()
        if not consumer.acquires or (self.active is None and not self.ending):
            return True
        return consumer is self.active and (not self.drains or owners <= {consumer})

    def lets_in(self, consumer: QueueConsumer) -> bool:
        """Whether the gate is open to it."""
        self.look()
        return self.open or consumer.getting

    def refuses_get(self) -> bool:
        self.look()
        return self.kind == SINGLE or self.active is not None or self.ending

    def refuses_exclusive(self) -> bool:
        """Whether a consumer is refused that wants to be alone, also if it is."""
        return self.kind in (SINGLE, ALL, DRAINING_ALL)
