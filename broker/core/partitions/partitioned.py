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
from broker.core.arguments.queue import (
    CONSUMERS_BEFORE_DISPATCH,
    DELAY_BEFORE_DISPATCH,
    DISPATCH,
    has_single_active_consumer,
    is_non_destructive,
)
from broker.core.arguments.rule import Arguments
from broker.core.counters import Flows
from broker.core.entries.entry import QueueEntry
from broker.core.errors import BrokerError, InUse, PreconditionFailed
from broker.core.message import NOWHERE, Message
from broker.core.message_view import NO_READER, MessageView
from broker.core.partitions.history import History, SentMessages
from broker.core.partitions.mapping import NO_MEMBER, TO, Mapping, member_name, read_mapping, slot_of_key
from broker.core.partitions.runs import Elsewhere, MemberRuns, Place, Runs
from broker.core.queues import gate
from broker.core.queues.attach import attach, detach, get_one, remove_consumer
from broker.core.queues.consumer import (
    BLOCKED_BY_MEMBERS,
    BLOCKED_BY_STANDBY,
    NOT_INTERESTED,
    REMOVED,
    ConsumerTarget,
    QueueConsumer,
)
from broker.core.queues.consumers import clear_blocker
from broker.core.queues.election import Election
from broker.core.queues.hooks import MemberHook, PartitionsHook
from broker.core.queues.queue import Queue, queue_of
from broker.core.queues.state import QueueState, add_flows
from broker.core.queues.virtual_host import QueueHost
from broker.core.remotes.consumption import Consumption
from broker.core.remotes.remote import RemoteQueue, refuse_remote, remote_of
from broker.core.schedule import TimedTask

SERVICE: Final = (DISPATCH, CONSUMERS_BEFORE_DISPATCH, DELAY_BEFORE_DISPATCH)
"""The arguments of a partitioned queue that concern the consumers of its members."""

LOOK_MS: Final[i64] = 1000  # the interval of looks at leaving members
NO_VIEW: Final = MessageView()  # the view of a message that does not decode, or cannot be read
_NO_MESSAGE: Final = Message(NOWHERE, b"", 0, False, 0)


@final
class Totals(Flows):
    """The counts of all members of a partitioned queue together, as of a single queue."""

    def __init__(self) -> None:
        super().__init__()
        self.ready: i64 = 0
        self.ready_bytes: i64 = 0
        self.unacked: i64 = 0
        self.unacked_bytes: i64 = 0
        self.held: i64 = 0
        self.held_bytes: i64 = 0
        self.dead: i64 = 0
        self.dead_bytes: i64 = 0

    @property
    def messages(self) -> int:
        """The messages that are in the queues."""
        return int(self.ready + self.unacked + self.held + self.dead)

    @property
    def bytes(self) -> int:
        """The bytes of the bodies of these messages."""
        return int(self.ready_bytes + self.unacked_bytes + self.held_bytes + self.dead_bytes)

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
        add_flows(self, queue, 1)

    def add_totals(self, other: Totals) -> None:
        """Add the counts of other queues."""
        self.ready += other.ready
        self.ready_bytes += other.ready_bytes
        self.unacked += other.unacked
        self.unacked_bytes += other.unacked_bytes
        self.held += other.held
        self.held_bytes += other.held_bytes
        self.dead += other.dead
        self.dead_bytes += other.dead_bytes
        self.add_past(other)

    def add_remote(self, queue: QueueState, remote: RemoteQueue) -> None:
        """Add the counts of a remote queue. A message that is on its way to the other broker is ready."""
        inlet = remote.inlet
        self.ready += queue.ready + queue.unacked + inlet.ready + remote.ready
        self.ready_bytes += queue.ready_bytes + queue.unacked_bytes + inlet.ready_bytes
        self.unacked += inlet.unacked
        self.unacked_bytes += inlet.unacked_bytes
        self.held += queue.held
        self.held_bytes += queue.held_bytes
        self.add_remote_flows(queue, remote, 1)

    def add_remote_flows(self, queue: QueueState, remote: RemoteQueue, factor: i64) -> None:
        """Add, or with -1 subtract, the counters of a remote queue since its start."""
        add_flows(self, remote.inlet, factor)
        self.published += factor * (queue.published - remote.inlet.published)


@final
class Got:
    """The answer to a request for a message: the `entry`, and the `consumer` that owns it."""

    def __init__(self, consumer: QueueConsumer, entry: QueueEntry) -> None:
        self.consumer = consumer
        self.entry = entry


@final
class Membership(MemberHook):
    """The membership of `queue` in the partitioned queue `front`.

    `runs`: the order of its messages. `reserved`: messages that are on their way into the queue. `owner`: the
    consumer of the partitioned queue that is served alone, if consumers share the members. `has_election`:
    the membership began the election of the queue.

    `remote`, `elsewhere`: of a member in another broker, whose messages `queue` sends there. `served`: the
    queue whose consumers get the messages, the inlet of a member in another broker.
    """

    def __init__(self, front: Partitioned, queue: Queue) -> None:
        super().__init__()
        self.front = front
        self.queue = queue
        self.served = queue
        self.remote = remote_of(queue)
        self.elsewhere: Elsewhere | None = None
        if self.remote is not None:
            self.served = self.remote.inlet
            self.remote.consumption = Consumption(front.host.schedule, self.remote.is_new)
            self.elsewhere = Elsewhere(front.runs, self.remote.consumption)
        self.runs = MemberRuns(front.runs, queue, self.elsewhere)
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
        self.runs.add(entry, self.front.place_of(entry.message))

    def note_departure(self, entry: QueueEntry) -> None:
        """Remove the entry from its run."""
        self.runs.remove(entry)

    def take_back(self, entry: QueueEntry) -> None:
        """Make the entry AVAILABLE if it is HELD by its run."""
        self.runs.take_back(entry)

    def postpone_expiry(self, entry: QueueEntry) -> bool:
        """Let the entry expire unless a consumer takes it after its release, if its run holds it."""
        return self.runs.postpone_expiry(entry)

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
        """Whether the queue has no message, and none is on its way, delayed, or in another broker."""
        queue = self.queue
        if queue.depth > 0 or self.served.depth > 0 or self.reserved > 0:
            return False
        if self.elsewhere is not None and not self.elsewhere.is_empty:
            return False
        timetable = None if queue.limits is None else queue.limits.timetable
        return timetable is None or len(timetable) == 0


@final
class Partitioned(PartitionsHook):
    """The members of the partitioned `queue`, and its consumers.

    `members`: the memberships in the order of the `mapping`. `leaving`: the members that the mapping does not
    name any more. `leaving_found`: their names from the queue's definition, until the members are joined.
    `runs`: the order of the messages. `history`: former mappings with messages in other brokers.
    `former_found`: their arguments from the queue's definition, until the members are joined.
    """

    def __init__(self, queue: Queue, host: QueueHost) -> None:
        self.queue = queue
        self.host = host
        self.mapping = Mapping("", [], {})
        self.members: list[Membership] = []
        self.leaving: list[Membership] = []
        self.leaving_found: list[str] = []
        self.runs = Runs(host.schedule)
        self.history = History()
        self.runs.former = self.history
        self.former_found: list[Arguments] = []
        self._is_shared_out = has_single_active_consumer(queue.arguments)
        self._candidates: i64 = 0
        self._is_stopped = False
        self._task = _Leaving(self)
        self._flows = Totals()  # the counters of earlier members, and less those before queues were members
        self._gets: i64 = 0
        self._reader = NO_READER  # for the format of the last message
        self._message = _NO_MESSAGE  # the message whose place was found last,
        self._place = Place("", NO_MEMBER)  # and its place

    # ---- the mapping

    def open(self, queues: dict[str, Queue]) -> list[str]:
        """Join the members that the arguments name, and those that are leaving.

        Return the names of absent members, which are removed from the mapping and from the arguments.
        """
        mapping = self._read(self.queue.arguments)
        absent = [member.name for member in mapping.members if member.name not in queues]
        self.mapping = mapping.without(absent)
        for name in absent:
            self._remove_argument(name)
        self.members = [self._join(queues[member.name]) for member in self.mapping.members]
        for name in self.leaving_found:
            queue = queues.get(name)
            if queue is not None and queue.member is None:
                member = self._join(queue)
                member.is_leaving = True
                self.leaving.append(member)
        self.leaving_found = []
        for arguments in self.former_found:
            former = self._read(self.queue.arguments | arguments)
            self.history.add(former, arguments, self._sent_by(former, True))
        self.former_found = []
        self._look_later()
        return absent

    def change(self, mapping: Mapping, arguments: Arguments, queues: dict[str, Queue]) -> None:
        """Use another mapping, whose members are all among the `queues`, for later messages.

        `arguments`: those of the present mapping.
        """
        self.history.add(self.mapping, arguments, self._sent_by(self.mapping, False))
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
    def former_arguments(self) -> list[Arguments]:
        """The arguments of the former mappings, for the queue's definition."""
        return self.former_found or self.history.describe()

    @property
    def has_members_elsewhere(self) -> bool:
        """Whether a member is in another broker."""
        return any(member.remote is not None for member in [*self.members, *self.leaving])

    @property
    def leaving_names(self) -> list[str]:
        """The names of the leaving members, for the queue's definition."""
        return self.leaving_found or [member.queue.name for member in self.leaving]

    def member_queues(self) -> list[QueueState]:
        """Return the queues of all members, the leaving ones last."""
        return [member.queue for member in [*self.members, *self.leaving]]

    def rename_member(self, old: str, new: str) -> None:
        """Change the name of a member in the mapping, and in the definition of the queue."""
        arguments = renamed(self.queue.arguments, old, new)  # only members here can be renamed
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
        self.history.forget_member(queue.name)
        if member.elsewhere is not None:
            member.elsewhere.abandon()
        self._keep_flows(member)
        if member in self.leaving:
            self.leaving.remove(member)
        else:
            self.members.remove(member)
            mapping = self.mapping.without([queue.name])
            self._separate(self.mapping, mapping)  # pinned values and selectors have other slots now
            self._set_mapping(mapping)
            self._remove_argument(queue.name)
            self.warn_of_no_members()
        self._balance(None)
        self._note()

    def warn_of_no_members(self) -> None:
        """Warn if the queue has no members: the last one was deleted."""
        if not self.members:
            self.host.warn(
                f"queue '{self.queue.name}' in vhost '{self.queue.vhost}' has no members, because the last "
                "one was deleted: messages to it are unroutable until its members are changed"
            )

    def end_leaving(self) -> None:
        """Remove the leaving members that are empty; look again later if there are others.

        The queues here for members in other brokers are deleted.
        """
        changed = self.history.forget_consumed()
        empty = [member for member in self.leaving if member.is_empty()]
        for member in empty:
            self._leave(member)
        if empty:
            self._balance(None)
        if empty or changed:
            self._note()
        for member in empty:
            self._delete_own(member)
        self._look_later()

    # ---- messages

    def choose(self, message: Message, view: MessageView | None) -> Queue | None:
        """Return the member for a message; None if no member takes it. `view`: its view, if there is one."""
        if view is None:
            place = self._find_place(message)
            self._message = message
            self._place = place
        else:
            try:
                place = self.mapping.find_place(view)
            except Exception:
                place = self.mapping.find_place(NO_VIEW)
        return self.members[place.member].queue if place.member >= 0 else None

    def place_of(self, message: Message) -> Place:
        """Return the place of a message, which `choose` has found if the message comes from there."""
        if message is self._message:
            self._message = _NO_MESSAGE  # a reference would keep a large body
            return self._place
        return self._find_place(message)

    def _find_place(self, message: Message) -> Place:
        """Return the place of a message. A message that does not decode has the place of the empty key."""
        content = message.content
        try:
            if content is not None:
                place = self.mapping.find_place_in(content, self._reader)
                if place is not None:
                    return place
            view = self.host.views(message, self.host.store)
            self._reader = view.reader()
            return self.mapping.find_place(view)
        except Exception:
            return self.mapping.find_place(NO_VIEW)

    def get_next(self, target: ConsumerTarget, no_ack: bool) -> Got | None:
        """Acquire the next message of the next member here that has one for `target`. [basic.get]

        The search is round-robin.

        Raises the error of `get_one` if all members here refuse.
        """
        members = [member for member in [*self.members, *self.leaving] if member.remote is None]
        refusal: BrokerError | None = None
        refusals = 0
        for number in range(len(members)):
            queue = members[(self._gets + number) % len(members)].queue
            try:
                got = get_alone(queue, target, no_ack)
            except BrokerError as error:
                refusal = error
                refusals += 1
                continue
            if got is not None:
                self._gets += number + 1
                return got
        if refusal is not None and refusals == len(members) and not self.has_members_elsewhere:
            raise refusal
        return None

    def totals(self) -> Totals:
        """Return the counts of all members together."""
        totals = Totals()
        for member in [*self.members, *self.leaving]:
            if member.remote is None:
                totals.add(member.queue)
            else:
                totals.add_remote(member.queue, member.remote)
        totals.add_past(self._flows)
        totals.got_empty += self.queue.got_empty
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
        if consumer.state == REMOVED:  # the browser of a snapshot ends with its last part
            return
        if consumer.candidate:
            self._candidates -= 1
        queue.manager.remove(consumer)
        consumer.target.consumers.remove(consumer)
        if queue.limits is not None:
            queue.limits.touch()

    def apply(self) -> None:
        """Apply the arguments that concern consumers to all members."""
        for member in [*self.members, *self.leaving]:
            self._apply_to(member)

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
        members = [*self.members, *self.leaving]
        self.members = []
        self.leaving = []
        for member in members:
            self._end_membership(member)
            self._delete_own(member)

    # ---- steps

    def _join(self, queue: Queue) -> Membership:
        """Make `queue` a member. Its present messages are not among those whose order is kept."""
        member = Membership(self, queue)
        queue.member = member
        if member.remote is None:
            add_flows(self._flows, queue, -1)
        else:
            self._flows.add_remote_flows(queue, member.remote, -1)
        served = member.served
        if self._is_shared_out and served.election is None:
            served.election = Election(served)
            member.has_election = True
        self._apply_to(member)
        return member

    def _apply_to(self, member: Membership) -> None:
        """Apply the arguments that concern consumers to a member."""
        if member.remote is not None:
            effective = self.queue.effective
            member.served.effective = {name: effective[name] for name in SERVICE if name in effective}
        gate.apply(member.served, self.host)

    def _sent_by(self, mapping: Mapping, is_restored: bool) -> dict[str, SentMessages]:
        """Return what the members of a mapping have sent to other brokers, by their names.

        `is_restored`: recovery is yet to restore the messages of the members.
        """
        members = {member.queue.name: member for member in [*self.members, *self.leaving]}
        sent: dict[str, SentMessages] = {}
        for mapped in mapping.members:
            member = members.get(mapped.name)
            if member is not None and member.elsewhere is not None and not member.is_empty():
                sent[mapped.name] = SentMessages(member.queue, member.elsewhere, is_restored)
        return sent

    def _delete_own(self, member: Membership) -> None:
        """Delete the queue here for a former member in another broker."""
        remote = member.remote
        if remote is not None and remote.front and not member.queue.deleted:
            self.host.delete_unused_queue(member.queue)

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
            chosen = member.served.election
            if owner is None or chosen is None:
                continue
            for part in owner.parts:
                if part.queue is member.served:
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

    def _remove_argument(self, name: str) -> None:
        """Remove the member of this name from the queue's arguments."""
        self.queue.arguments = without_member(self.queue.arguments, name, self.queue.name)
        self.queue.effective = self.queue.effect.queue_arguments_of(self.queue.arguments)

    def _set_mapping(self, mapping: Mapping) -> None:
        self.mapping = mapping
        self._message = _NO_MESSAGE

    def _reread(self) -> None:
        """Use the mapping of the arguments, with the same members."""
        mapping = self._read(self.queue.arguments)
        names = {member.queue.name for member in self.members}
        self._set_mapping(mapping.without([each.name for each in mapping.members if each.name not in names]))

    def _read(self, arguments: Arguments) -> Mapping:
        """Return the mapping in these arguments, which were checked before."""
        where = f"queue '{self.queue.name}' in vhost '{self.queue.vhost}'"
        return read_mapping(arguments, where, self.queue.name)

    def _leave(self, member: Membership) -> None:
        """End the membership of an empty queue."""
        queue = member.queue
        served = member.served
        for consumer in [*served.manager.all, *served.manager.gets]:
            front = consumer.front
            if front is None or front.queue is not self.queue:
                continue
            if front.extent is not None and front.extent.snapshot:
                consumer.target.on_snapshot_end(consumer)
            else:
                detach(served, consumer, [])
        self.leaving.remove(member)
        self.runs.forget_queue(queue)
        self._keep_flows(member)
        self._end_membership(member)

    def _end_membership(self, member: Membership) -> None:
        queue = member.queue
        if queue.deleted:
            return
        queue.member = None
        served = member.served
        if member.has_election:
            served.election = None
            clear_blocker(served, served.manager.acquiring_consumers(), BLOCKED_BY_STANDBY)
        if member.remote is None:
            gate.apply(queue, self.host)
        else:
            member.remote.consumption = None

    def _keep_flows(self, member: Membership) -> None:
        if member.remote is None:
            add_flows(self._flows, member.queue, 1)
        else:
            self._flows.add_remote_flows(member.queue, member.remote, 1)

    def _look_later(self) -> None:
        if (self.leaving or len(self.history)) and self._task.due == 0:
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


def share_out(
    owners: list[QueueConsumer | None], consumers: list[QueueConsumer]
) -> list[QueueConsumer | None]:
    """Return the new owner of each member, given the present `owners`; None without consumers.

    The numbers of members of two consumers differ by 1 at most, and as few members as possible get another
    owner. `consumers`: in the order of attaching; of equals the first one gets more.
    """
    if not consumers:
        return [None] * len(owners)
    held = dict.fromkeys(consumers, 0)
    for owner in owners:
        if owner is not None and owner in held:
            held[owner] += 1
    least, more = divmod(len(owners), len(consumers))
    room = dict.fromkeys(consumers, least)
    for consumer in sorted(consumers, key=lambda each: -held[each])[:more]:
        room[consumer] += 1
    shared: list[QueueConsumer | None] = []
    for owner in owners:
        if owner is not None and room.get(owner, 0) > 0:
            room[owner] -= 1
            shared.append(owner)
        else:
            shared.append(None)
    free = [consumer for consumer in consumers for _ in range(room[consumer])]
    return [free.pop(0) if owner is None else owner for owner in shared]


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


def whole_count(queue: Queue) -> i64:
    """Return the count of messages that are ready in a queue or may become ready without a publish.

    These are ready, unacknowledged, waiting for a retry, or delayed. Messages that wait to be dead-lettered
    do not count.
    """
    partitions = partitions_of(queue)
    delayed: i64 = 0
    for each in [queue] if partitions is None else partitions.member_queues():
        assert isinstance(each, Queue), "every QueueState is a Queue"
        timetable = None if each.limits is None else each.limits.timetable
        delayed += 0 if timetable is None else len(timetable)
    totals = totals_of(queue)
    return totals.ready + totals.unacked + totals.held + delayed


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


def get_next(queue: Queue, target: ConsumerTarget, no_ack: bool = False) -> Got | None:
    """Acquire the next message of a queue, or of the members of a partitioned queue, for `target`.

    `no_ack`: the caller settles the message at once. None: no message is ready. Raises the errors of
    `get_one`.
    """
    partitions = partitions_of(queue)
    if partitions is None:
        return get_alone(queue, target, no_ack)
    if queue.limits is not None:
        queue.limits.touch()
    return partitions.get_next(target, no_ack)


def get_alone(queue: Queue, target: ConsumerTarget, no_ack: bool) -> Got | None:
    """Acquire the next message of a queue that is not partitioned, as `get_next`."""
    consumer = QueueConsumer(target, queue, not is_non_destructive(queue.arguments), no_ack=no_ack)
    entry = get_one(queue, consumer)
    return None if entry is None else Got(consumer, entry)


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


def without_member(arguments: Arguments, name: str, front: str) -> Arguments:
    """Return the arguments of the partitioned queue `front` without one of its members."""
    members = arguments[PARTITION_MEMBERS]
    pins = arguments.get(PARTITION_PINS)
    assert isinstance(members, list), "the arguments have been read"
    left = [
        each
        for each in members
        if member_name(str(each.get(TO)) if isinstance(each, dict) else str(each), front) != name
    ]
    arguments = arguments | {PARTITION_MEMBERS: left}
    if isinstance(pins, dict):
        arguments[PARTITION_PINS] = {
            value: to for value, to in pins.items() if member_name(str(to), front) != name
        }
    return arguments
