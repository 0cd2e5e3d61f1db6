"""A partitioned queue: it has members instead of entries, and its consumers consume from all members.

Each message goes to one member, which the mapping chooses when the queues of the message are known. From then
on the message is an ordinary message of the member. A consumer of the partitioned queue has a consumer of
each member, its part.

A member that the mapping does not name any more is leaving: it gets no further messages, and is consumed from
until it is empty.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from broker.core.arguments.partition import PARTITION_MEMBERS, PARTITION_PINS
from broker.core.arguments.queue import has_single_active_consumer
from broker.core.arguments.rule import Arguments
from broker.core.entries.entry import QueueEntry
from broker.core.errors import BrokerError, InUse, PreconditionFailed
from broker.core.message import NOWHERE, Message
from broker.core.message_view import MessageView
from broker.core.partitions.balance import share_out
from broker.core.partitions.mapping import TO, Mapping, Slot, read_mapping, slot_of_key
from broker.core.partitions.runs import Runs
from broker.core.queues import election
from broker.core.queues.attach import attach, detach, remove_consumer
from broker.core.queues.consumer import (
    BLOCKED_BY_MEMBERS,
    BLOCKED_BY_STANDBY,
    NOT_INTERESTED,
    REMOVED,
    QueueConsumer,
)
from broker.core.queues.consumers import clear_blocker
from broker.core.queues.election import Election
from broker.core.queues.hooks import MemberHook, PartitionsHook
from broker.core.queues.queue import Queue, queue_of
from broker.core.queues.state import QueueState
from broker.core.queues.virtual_host import QueueHost
from broker.core.remotes.remote import RemoteQueue, refuse_remote, remote_of
from broker.core.schedule import TimedTask

LOOK_MS: Final[i64] = 1000  # the interval of looks at leaving members
NO_VIEW: Final = MessageView()  # the view of a message that does not decode, or cannot be read
_NO_MESSAGE: Final = Message(NOWHERE, b"", 0, False, 0)


@final
class Totals:
    """The counts of all members of a partitioned queue together, as of a single queue."""

    def __init__(self) -> None:
        self.ready: i64 = 0
        self.ready_bytes: i64 = 0
        self.unacked: i64 = 0
        self.unacked_bytes: i64 = 0
        self.held: i64 = 0
        self.held_bytes: i64 = 0
        self.dead: i64 = 0
        self.dead_bytes: i64 = 0
        self.published: i64 = 0
        self.delivered: i64 = 0
        self.redelivered: i64 = 0
        self.acked: i64 = 0

    def add(self, queue: QueueState) -> None:
        """Add the counts of a queue."""
        self.ready += queue.ready
        self.ready_bytes += queue.ready_bytes
        self.unacked += queue.unacked
        self.unacked_bytes += queue.unacked_bytes
        self.held += queue.held
        self.held_bytes += queue.held_bytes
        self.dead += queue.dead
        self.dead_bytes += queue.dead_bytes
        self.add_flows(queue, 1)

    def add_remote(self, queue: QueueState, remote: RemoteQueue) -> None:
        """Add the counts of a remote queue. A message that is on its way to the other broker is ready."""
        inlet = remote.inlet
        self.ready += queue.depth + inlet.ready + remote.ready
        self.ready_bytes += queue.ready_bytes + queue.unacked_bytes + inlet.ready_bytes
        self.unacked += inlet.unacked
        self.unacked_bytes += inlet.unacked_bytes
        self.add_flows(inlet, 1)
        self.published += queue.published - inlet.published

    def add_flows(self, queue: QueueState, factor: i64) -> None:
        """Add, or with -1 subtract, the counters of a queue since its start."""
        self.published += factor * queue.published
        self.delivered += factor * queue.delivered
        self.redelivered += factor * queue.redelivered
        self.acked += factor * queue.acked


@final
class Membership(MemberHook):
    """The membership of `queue` in the partitioned queue `front`.

    `reserved`: messages that are on their way into the queue. `owner`: the consumer of the partitioned queue
    that is served alone, if consumers share the members. `has_election`: the membership began the election of
    the queue.
    """

    def __init__(self, front: Partitioned, queue: Queue) -> None:
        super().__init__()
        self.front = front
        self.queue = queue
        self.reserved: i64 = 0
        self.owner: QueueConsumer | None = None
        self.has_election = False

    @property
    def front_name(self) -> str:
        """The name of the partitioned queue."""
        return self.front.queue.name

    @property
    def arguments(self) -> dict[str, object]:
        """The effective arguments of the partitioned queue."""
        return self.front.queue.effective

    def note_arrival(self, entry: QueueEntry) -> None:
        """Add the entry to the last run of its slot."""
        front = self.front
        front.runs.add(entry, front.slot_of(entry.message), self.queue)

    def note_departure(self, entry: QueueEntry) -> None:
        """Remove the entry from its run."""
        self.front.runs.remove(entry)

    def take_back(self, entry: QueueEntry) -> None:
        """Make the entry AVAILABLE if it is HELD by its run."""
        self.front.runs.take_back(entry, self.queue)

    def reserve(self, count: i64) -> None:
        """Count messages that are on their way."""
        self.reserved += count

    def note_renamed(self, name: str) -> None:
        """Change the name in the mapping."""
        self.front.rename_member(name, self.queue.name)

    def note_deleted(self) -> None:
        """Remove the queue from the mapping."""
        self.front.forget_member(self)

    def is_empty(self) -> bool:
        """Whether the queue has no message, and none is on its way or delayed."""
        queue = self.queue
        if queue.depth > 0 or self.reserved > 0:
            return False
        timetable = None if queue.rules is None else queue.rules.timetable
        return timetable is None or len(timetable) == 0


@final
class Partitioned(PartitionsHook):
    """The members of the partitioned `queue`, and its consumers.

    `members`: the memberships in the order of the `mapping`. `leaving`: the members that the mapping does not
    name any more. `leaving_found`: their names from the queue's definition, until the members are joined.
    `runs`: the order of the messages.
    """

    def __init__(self, queue: Queue, host: QueueHost) -> None:
        self.queue = queue
        self.host = host
        self.mapping = Mapping("", [], {})
        self.members: list[Membership] = []
        self.leaving: list[Membership] = []
        self.leaving_found: list[str] = []
        self.runs = Runs(host.schedule)
        self._is_shared_out = has_single_active_consumer(queue.arguments)
        self._candidates: i64 = 0
        self._is_stopped = False
        self._task = _Leaving(self)
        self._flows = Totals()  # the counters of earlier members, and less those before queues were members
        self._gets: i64 = 0
        self._message = _NO_MESSAGE  # the message whose slot was computed last,
        self._slot: Slot = ""  # and its slot

    # ---- the mapping

    def open(self, queues: dict[str, Queue]) -> list[str]:
        """Join the members that the arguments name, and those that are leaving.

        Return the names of absent members, without which the mapping works.
        """
        where = f"queue '{self.queue.name}' in vhost '{self.queue.vhost}'"
        mapping = read_mapping(self.queue.arguments, where)
        absent = [member.name for member in mapping.members if member.name not in queues]
        self.mapping = mapping.without(absent)
        self.members = [self._join(queues[member.name]) for member in self.mapping.members]
        for name in self.leaving_found:
            queue = queues.get(name)
            if queue is not None and queue.member is None:
                member = self._join(queue)
                member.is_leaving = True
                self.leaving.append(member)
        self.leaving_found = []
        self._look_later()
        return absent

    def change(self, mapping: Mapping, queues: dict[str, Queue]) -> None:
        """Use another mapping, whose members are all among the `queues`, for later messages."""
        self._separate(self.mapping, mapping)
        self._set_mapping(mapping)
        known = {member.queue: member for member in [*self.members, *self.leaving]}
        self.members = []
        added: list[Membership] = []
        for mapped in mapping.members:
            queue = queues[mapped.name]
            member = known.pop(queue, None)
            if member is None:
                member = self._join(queue)
                added.append(member)
            member.is_leaving = False
            self.members.append(member)
        self.leaving = list(known.values())
        for member in self.leaving:
            member.is_leaving = True
        for member in added:
            self._attach_all(member)
        self._balance(None)
        self._look_later()

    @property
    def leaving_names(self) -> list[str]:
        """The names of the leaving members, for the queue's definition."""
        return self.leaving_found or [member.queue.name for member in self.leaving]

    def member_queues(self) -> list[QueueState]:
        """Return the queues of all members, the leaving ones last."""
        return [member.queue for member in [*self.members, *self.leaving]]

    def rename_member(self, old: str, new: str) -> None:
        """Change the name of a member in the mapping, and in the definition of the queue."""
        arguments = renamed(self.queue.arguments, old, new)
        self.queue.arguments = arguments
        self.queue.effective = self.queue.effect.queue_arguments_of(arguments)
        self._reread()
        self._note()

    def forget_member(self, member: Membership) -> None:
        """Remove a deleted member."""
        if self._is_stopped or (member not in self.members and member not in self.leaving):
            return
        queue = member.queue
        self.runs.forget_queue(queue)
        self._keep_flows(member)
        if member in self.leaving:
            self.leaving.remove(member)
        else:
            self.members.remove(member)
            self._set_mapping(self.mapping.without([queue.name]))
            if not self.members:
                return  # the arguments must name a member
            self.queue.arguments = without_member(self.queue.arguments, queue.name)
            self.queue.effective = self.queue.effect.queue_arguments_of(self.queue.arguments)
        self._note()

    def end_leaving(self) -> None:
        """Remove the leaving members that are empty; look again later if there are others."""
        empty = [member for member in self.leaving if member.is_empty()]
        for member in empty:
            self._leave(member)
        if empty:
            self._note()
        self._look_later()

    # ---- messages

    def choose(self, message: Message, view: MessageView | None) -> Queue | None:
        """Return the member for a message; None if no member takes it. `view`: its view, if there is one."""
        try:
            place = self.mapping.find_place(
                self.host.views(message, self.host.store) if view is None else view
            )
        except Exception:
            place = self.mapping.find_place(NO_VIEW)
        if view is None:
            self._message = message
            self._slot = place.slot
        return self.members[place.member].queue if place.member >= 0 else None

    def slot_of(self, message: Message) -> Slot:
        """Return the slot of a message, which `choose` has computed if the message comes from there."""
        if message is self._message:
            self._message = _NO_MESSAGE  # a reference would keep a large body
            return self._slot
        try:
            place = self.mapping.find_place(self.host.views(message, self.host.store))
        except Exception:
            place = self.mapping.find_place(NO_VIEW)
        return place.slot

    def next_for_get(self) -> Queue | None:
        """Return the next member, round-robin, that has a ready message; else any member. [basic.get]"""
        members = [*self.members, *self.leaving]
        for number in range(len(members)):
            queue = members[(self._gets + number) % len(members)].queue
            if queue.ready > 0:
                self._gets += number + 1
                return queue
        return members[0].queue if members else None

    def totals(self) -> Totals:
        """Return the counts of all members together."""
        totals = Totals()
        for queue in self.member_queues():
            totals.add(queue)
        flows = self._flows
        totals.published += flows.published
        totals.delivered += flows.delivered
        totals.redelivered += flows.redelivered
        totals.acked += flows.acked
        return totals

    # ---- consumers

    def attach(self, consumer: QueueConsumer) -> None:
        """Attach a consumer to the queue, and a part of it to each member."""
        queue = self.queue
        everyone = queue.manager.all
        if everyone and not consumer.getting and (consumer.exclusive or next(iter(everyone)).exclusive):
            raise InUse(f"queue '{queue.name}' in vhost '{queue.vhost}' in exclusive use")
        consumer.blockers = BLOCKED_BY_MEMBERS
        consumer.parts = []
        queue.manager.add(consumer)
        queue.manager.move(consumer, NOT_INTERESTED)
        consumer.target.consumers.append(consumer)
        if consumer.candidate:
            self._candidates += 1
        try:
            for member in [*self.members, *self.leaving]:
                self._attach_part(consumer, member)
        except Exception:
            self.detach(consumer)
            raise
        self._balance(None)

    def detach(self, consumer: QueueConsumer) -> None:
        """Detach a consumer from the queue, and its parts from the members; its deliveries stay with it."""
        if consumer.state == REMOVED:
            return
        self._balance(consumer)
        for part in list(consumer.parts):
            detach(queue_of(part), part, [])
        queue = self.queue
        if consumer.state == REMOVED:  # a browser ends with its last part
            return
        if consumer.candidate:
            self._candidates -= 1
        queue.manager.remove(consumer)
        consumer.target.consumers.remove(consumer)
        if queue.rules is not None:
            queue.rules.touch()

    def apply(self) -> None:
        """Apply the arguments that concern consumers to all members."""
        for queue in self.member_queues():
            assert isinstance(queue, Queue), "every QueueState is a Queue"
            election.apply(queue, self.host)

    def stop(self) -> None:
        """Cancel all tasks."""
        self._is_stopped = True
        self.host.schedule.cancel(self._task)
        self.host.schedule.cancel(self.runs)

    def end(self) -> None:
        """Detach all parts, and end all memberships."""
        for consumer in [*self.queue.manager.all, *self.queue.manager.gets]:
            for part in list(consumer.parts):
                part.front = None
                queue = queue_of(part)
                if queue.deleted:  # with its virtual host: no other consumer may be notified
                    remove_consumer(queue, part)
                else:
                    detach(queue, part, [])
            consumer.parts = []
        self.runs.release_all()
        for member in [*self.members, *self.leaving]:
            self._end_membership(member)
        self.members = []
        self.leaving = []

    # ---- steps

    def _join(self, queue: Queue) -> Membership:
        """Make `queue` a member. Its present messages are not among those whose order is kept."""
        member = Membership(self, queue)
        queue.member = member
        self._flows.add_flows(queue, -1)
        if self._is_shared_out and queue.election is None:
            queue.election = Election(queue)
            member.has_election = True
        election.apply(queue, self.host)
        return member

    def _attach_all(self, member: Membership) -> None:
        """Attach parts of all consumers to a new member; a consumer that the member refuses goes without."""
        for consumer in [*self.queue.manager.all, *self.queue.manager.gets]:
            if consumer.extent is not None and consumer.extent.snapshot:
                continue  # the new member is no part of the snapshot
            try:
                self._attach_part(consumer, member)
            except BrokerError as error:
                self.host.warn(
                    f"consumer '{consumer.tag}' of queue '{self.queue.name}' in vhost '{self.queue.vhost}' "
                    f"gets nothing from its new member '{member.queue.name}': {error.text}"
                )

    def _attach_part(self, consumer: QueueConsumer, member: Membership) -> None:
        queue = member.queue
        part = QueueConsumer(
            consumer.target,
            queue,
            consumer.acquires,
            consumer.priority,
            consumer.exclusive,
            consumer.tag,
            consumer.no_ack,
            consumer.filter,
        )
        part.extent = consumer.extent
        part.lease = consumer.lease
        part.candidate = consumer.candidate
        part.getting = consumer.getting
        part.front = consumer
        consumer.parts.append(part)
        try:
            attach(queue, part)
        except Exception:
            if part in consumer.parts:
                consumer.parts.remove(part)
            raise

    def _balance(self, left: QueueConsumer | None) -> None:
        """Share the members out among the consumers that are served alone; `left` is about to end."""
        if not self._is_shared_out and self._candidates == 0:
            return
        consumers = [
            consumer
            for consumer in self.queue.manager.all
            if consumer.acquires and consumer is not left and (self._is_shared_out or consumer.candidate)
        ]
        top = max([consumer.priority for consumer in consumers], default=0)
        consumers = [consumer for consumer in consumers if consumer.priority == top]
        members = [*self.members, *self.leaving]
        owners = share_out([member.owner for member in members], consumers)
        for member, owner in zip(members, owners, strict=True):
            member.owner = owner
            chosen = member.queue.election
            if owner is None or chosen is None:
                continue
            for part in owner.parts:
                if part.queue is member.queue:
                    chosen.prefer(part)

    def _separate(self, old: Mapping, new: Mapping) -> None:
        """Keep the order of messages whose slot is another one in the new mapping."""
        if new.by_selector:
            if old.selectors != new.selectors:
                self.runs.separate(self.runs.slots(), list(dict.fromkeys(new.selectors)))
            return
        for value in old.pins:
            if value not in new.pins:
                shared = slot_of_key(value)
                self.runs.separate([shared, value], [shared])
        for value in new.pins:
            if value not in old.pins:
                shared = slot_of_key(value)
                self.runs.separate([shared], [shared, value])

    def _set_mapping(self, mapping: Mapping) -> None:
        self.mapping = mapping
        self._message = _NO_MESSAGE

    def _reread(self) -> None:
        """Use the mapping of the arguments, with the same members."""
        where = f"queue '{self.queue.name}' in vhost '{self.queue.vhost}'"
        mapping = read_mapping(self.queue.arguments, where)
        names = {member.queue.name for member in self.members}
        self._set_mapping(mapping.without([each.name for each in mapping.members if each.name not in names]))

    def _leave(self, member: Membership) -> None:
        """End the membership of an empty queue."""
        queue = member.queue
        for consumer in [*queue.manager.all, *queue.manager.gets]:
            front = consumer.front
            if front is not None and front.queue is self.queue:
                detach(queue, consumer, [])
        self.leaving.remove(member)
        self.runs.forget_queue(queue)
        self._keep_flows(member)
        self._end_membership(member)

    def _end_membership(self, member: Membership) -> None:
        queue = member.queue
        if queue.deleted:
            return
        queue.member = None
        if member.has_election:
            queue.election = None
            clear_blocker(queue, queue.manager.acquiring_consumers(), BLOCKED_BY_STANDBY)
        election.apply(queue, self.host)

    def _keep_flows(self, member: Membership) -> None:
        self._flows.add_flows(member.queue, 1)

    def _look_later(self) -> None:
        if self.leaving and self._task.due == 0:
            self.host.schedule.set(self._task, self.host.schedule.now() + LOOK_MS)

    def _note(self) -> None:
        """Append the definition of a durable queue, which has changed."""
        if self.queue.durable and not self.host.store.failure:
            self.host.note_queue(self.queue)


@final
class _Leaving(TimedTask):
    """The timed task that looks whether leaving members are empty."""

    def __init__(self, partitioned: Partitioned) -> None:
        super().__init__()
        self._partitioned = partitioned

    def do_due_work(self) -> None:
        """Remove empty members."""
        self._partitioned.end_leaving()


def partitions_of(queue: Queue) -> Partitioned | None:
    """Return the members of a partitioned queue; None: the queue is an ordinary one."""
    partitions = queue.partitions
    assert partitions is None or isinstance(partitions, Partitioned), "this module makes all of them"
    return partitions


def totals_of(queue: Queue) -> Totals:
    """Return the counts of a queue, or of all members of a partitioned queue together.

    The counts of a remote queue include the ready messages of the other broker, as last known.
    """
    partitions = partitions_of(queue)
    if partitions is not None:
        return partitions.totals()
    totals = Totals()
    remote = remote_of(queue)
    if remote is None:
        totals.add(queue)
    else:
        totals.add_remote(queue, remote)
    return totals


def refuse_partitioned(queue: Queue, what: str) -> None:
    """Refuse an operation on messages that is for a single queue, if the queue is partitioned or remote.

    `what` completes "cannot be" in the refusal.

    Raises:
        PreconditionFailed: the queue is partitioned or remote; the refusal names its members, or the other
            broker.
    """
    refuse_remote(queue, what)
    partitions = partitions_of(queue)
    if partitions is not None:
        names = ", ".join(member.name for member in partitions.member_queues())
        raise PreconditionFailed(
            f"queue '{queue.name}' in vhost '{queue.vhost}' is partitioned and cannot be {what}: "
            f"name one of its members: {names}"
        )


def queue_for_get(queue: Queue) -> Queue:
    """Return the queue from which a request for a message to `queue` takes it: the next member."""
    partitions = partitions_of(queue)
    if partitions is None:
        return queue
    if queue.rules is not None:
        queue.rules.touch()
    chosen = partitions.next_for_get()
    return queue if chosen is None else chosen


def spread(queues: list[Queue], message: Message, view: MessageView | None = None) -> list[Queue]:
    """Return these queues of a message with the chosen member in place of each partitioned one.

    No queue is there twice. A partitioned queue without a member for the message is left out.
    """
    chosen: dict[Queue, None] = {}
    for queue in queues:
        partitions = partitions_of(queue)
        if partitions is None:
            chosen[queue] = None
        else:
            member = partitions.choose(message, view)
            if member is not None:
                chosen[member] = None
    return list(chosen)


def renamed(arguments: Arguments, old: str, new: str) -> Arguments:
    """Return the arguments of a partitioned queue with another name of a member."""
    members = arguments[PARTITION_MEMBERS]
    pins = arguments.get(PARTITION_PINS)
    assert isinstance(members, list), "the arguments have been read"
    changed: list[object] = []
    for each in members:
        if each == old:
            changed.append(new)
        elif isinstance(each, dict) and each.get(TO) == old:
            changed.append(each | {TO: new})
        else:
            changed.append(each)
    arguments = arguments | {PARTITION_MEMBERS: changed}
    if isinstance(pins, dict):
        arguments[PARTITION_PINS] = {value: new if name == old else name for value, name in pins.items()}
    return arguments


def without_member(arguments: Arguments, name: str) -> Arguments:
    """Return the arguments of a partitioned queue without one of its members."""
    members = arguments[PARTITION_MEMBERS]
    pins = arguments.get(PARTITION_PINS)
    assert isinstance(members, list), "the arguments have been read"
    left = [
        each for each in members if each != name and not (isinstance(each, dict) and each.get(TO) == name)
    ]
    arguments = arguments | {PARTITION_MEMBERS: left}
    if isinstance(pins, dict):
        arguments[PARTITION_PINS] = {value: to for value, to in pins.items() if to != name}
    return arguments
