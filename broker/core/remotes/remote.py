"""A remote queue: its messages are in a queue of another broker, and its clients need not know this.

A message that is published to the queue waits in its entries until a link has sent the message on. The
consumers of the queue are attached to its inlet, a queue that no client can name. The link brings as many
messages into the inlet as these consumers have credit for. What a consumer does with a delivery happens in
the other broker too: settle, reject and requeue. When the link breaks, the other broker requeues all
deliveries, so the inlet loses its entries, and a late acknowledgement has no effect. [amqpd]

In the mode `direct` a publish is confirmed when the other broker has confirmed the message, in the mode
`hybrid` when this broker has stored the message.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from broker.core.arguments.consumer import BrowseRange
from broker.core.arguments.queue import text_argument
from broker.core.arguments.remote import HYBRID, REMOTE_MODE
from broker.core.arguments.rule import REMOTE, show_address
from broker.core.entries.entry import AVAILABLE, EntryFilter, QueueEntry
from broker.core.entries.list import FifoEntryList
from broker.core.errors import InUse, PreconditionFailed
from broker.core.message import AWAITS_REMOTE, Message
from broker.core.queues.attach import detach
from broker.core.queues.consumer import REMOVED, QueueConsumer
from broker.core.queues.hooks import ABLE, RemoteHook
from broker.core.queues.queue import Queue, take_out
from broker.core.queues.state import QueueState
from broker.core.queues.virtual_host import QueueHost
from broker.core.remotes.consumption import NO_POSITION, Consumption, PositionSource

NO_TAG: Final = 0
NO_DELIVERY: Final = (NO_TAG, -1)


@mypyc_attr(allow_interpreted_subclasses=True)
class RemoteWaiter:
    """A publisher that waits until the other brokers have answered.

    `takes_refusals`: a message that another broker refuses may be dropped, because the publisher learns it.
    """

    takes_refusals = True

    def on_remote_answer(self, accepted: bool) -> None:
        """Note that all other brokers have stored the message, or that one has not."""
        raise NotImplementedError


@final
class RemoteWait:
    """The answers of other brokers to one publish. `left`: the number of missing answers.

    `waiter`: the publisher; None: nobody waits.
    """

    def __init__(self) -> None:
        self.left: i64 = 0
        self.waiter: RemoteWaiter | None = None
        self._accepted = True

    def set_waiter(self, waiter: RemoteWaiter) -> None:
        """Set the publisher, in the step of the publish. The queue may have dropped the message already."""
        self.waiter = waiter
        if self.left == 0:
            waiter.on_remote_answer(self._accepted)

    def answer(self, accepted: bool) -> None:
        """Note the answer of one broker."""
        self.left -= 1
        self._accepted = self._accepted and accepted
        if self.left == 0 and self.waiter is not None:
            self.waiter.on_remote_answer(self._accepted)


@mypyc_attr(allow_interpreted_subclasses=True)
class RemoteLink(PositionSource):
    """The link of a remote queue to the other broker, as the queue sees it. No method calls back.

    `is_up`: the other broker serves the link.
    """

    is_up = False

    def next_position(self) -> i64:
        """Return the position of the next message that the link sends, 0 before the first attempt."""
        raise NotImplementedError

    def settle(self, tag: i64) -> None:
        """Acknowledge a delivery."""
        raise NotImplementedError

    def reject(self, tag: i64) -> None:
        """Reject a delivery, which the other broker dead-letters or drops."""
        raise NotImplementedError

    def requeue(self, tag: i64) -> None:
        """Return a delivery to the queue."""
        raise NotImplementedError

    def note_demand(self) -> None:
        """Look soon how many messages the consumers want, and what the browsers have seen."""
        raise NotImplementedError

    def browse_objection(self) -> str:
        """Return why the other queue cannot be browsed; "" if it can."""
        raise NotImplementedError

    def purge(self, done: Callable[[i64, str], None]) -> None:
        """Purge the queue of the other broker; `done`: as for `RemoteHook.purge`."""
        raise NotImplementedError

    def note_feeders(self, path: list[str]) -> None:
        """Note the remote queues whose messages come to this one, as the link of the nearest names them.

        Raises:
            PreconditionFailed: this queue is among them, so its messages would go round for ever.
        """
        raise NotImplementedError

    def end(self) -> None:
        """End for good. Messages that are not confirmed stay in the queue."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class RemoteLinks:
    """The links of a broker to others, as its remote queues see them. The base class makes none."""

    def check(self, address: object, vhost: str, name: str, where: str) -> None:
        """Check the address of the remote queue `name`. `where`: the field with the address, for errors.

        Raises:
            PreconditionFailed: the address is no URI of a queue; the text has no password.
        """

    def find_objection(self, remote: RemoteQueue) -> str:
        """Return why the other broker cannot have the messages, as last known; "" if it can."""
        return ""

    def open(self, remote: RemoteQueue) -> None:
        """Link a remote queue, which is new."""


@final
class TrialLinks(RemoteLinks):
    """The links of a trial copy of a broker, which makes none and has the same checks as `links`."""

    def __init__(self, links: RemoteLinks) -> None:
        self._links = links

    def check(self, address: object, vhost: str, name: str, where: str) -> None:
        """Check an address. Raises PreconditionFailed."""
        self._links.check(address, vhost, name, where)


@final
class RemoteBrowser(RemoteHook):
    """A browser of a remote queue, and its inlet, into which the link puts copies of the messages.

    `consumer`: the browser, which is attached to the inlet. `extent` and `filter`: the part of the queue and
    the messages that it sees. `newest`: the arrival of the last message that waited here when it began.
    """

    def __init__(self, remote: RemoteQueue, consumer: QueueConsumer) -> None:
        queue = remote.queue
        self.remote = remote
        self.consumer = consumer
        self.extent = consumer.extent or BrowseRange()
        self.filter = consumer.filter
        self.newest: i64 = queue.entries.sequence
        self.inlet = _new_inlet(queue, remote.host)
        self.inlet.origin = self
        consumer.extent = None
        consumer.filter = _SeenFilter(self)

    def note_demand(self) -> None:
        """Inform the link."""
        self.remote.note_demand()

    def show(self, message: Message, redelivered: bool) -> bool:
        """Put a copy into the inlet; false: the browser does not see the message."""
        if self.filter is not None and not self.filter.passes(QueueEntry(message, 0)):
            return False
        self.inlet.enqueue(message).redelivered = redelivered
        return True

    def drop_seen(self) -> i64:
        """Drop the copies that the browser has passed. Return their number."""
        inlet, last = self.inlet, self.consumer.context.last
        entries = inlet.entries
        count: i64 = 0
        entry = None if last is entries.head else entries.next(entries.head)
        while entry is not None:
            following = None if entry is last else entries.next(entry)
            take_out(inlet, entry)
            count += 1
            entry = following
        return count

    def is_over(self) -> bool:
        """Whether the browser has ended."""
        return self.consumer.state == REMOVED

    def finish(self) -> None:
        """End the browser: it has seen its whole snapshot."""
        if not self.is_over():
            self.consumer.target.on_snapshot_end(self.consumer)

    def cancel(self) -> None:
        """End the browser before it has seen everything."""
        if not self.is_over():
            detach(self.inlet, self.consumer, [])
            self.consumer.target.on_consumer_cancelled(self.consumer)


@final
class _SeenFilter(EntryFilter):
    """The filter of a browser's inlet, which lets everything pass, and tells that the browser goes on."""

    def __init__(self, browser: RemoteBrowser) -> None:
        super().__init__("")
        self._browser = browser

    def passes(self, entry: QueueEntry) -> bool:
        """Whether the browser sees `entry`: yes."""
        self._browser.note_demand()
        return True


def _new_inlet(queue: Queue, host: QueueHost) -> Queue:
    """Return a queue without a name of its own, for messages that come from another broker."""
    inlet = Queue(queue.name, queue.store, FifoEntryList(), queue.counters, vhost=queue.vhost)
    inlet.host = host
    return inlet


@final
class RemoteQueue(RemoteHook):
    """The remote `queue`: its link, its inlet, and the publishers that wait for the other broker.

    `address`: the URI of the other broker and its queue. `hybrid`: the mode. `link`: None until the broker
    serves clients. `ready`, `consumers`: the counts of the other queue, as last known. `is_rerouted`: the
    arguments of the queue name no other broker, see `broker.core.vhosts.reroute`. `is_returning`: later
    messages stay here.

    `front`: the partitioned queue that has made the queue for one of its members, "" for other queues.
    `is_new`: the queue has sent nothing before the start of the broker. `consumption`: None for other queues.
    """

    def __init__(self, queue: Queue, host: QueueHost, address: str, hybrid: bool) -> None:
        self.queue = queue
        self.host = host
        self.address = address
        self.hybrid = hybrid
        self.link: RemoteLink | None = None
        self.ready: i64 = 0
        self.consumers: i64 = 0
        self.is_ended = False
        self.is_rerouted = False
        self.is_returning = False
        self.inlet = _new_inlet(queue, host)
        self.inlet.origin = self
        self.front = ""
        self.is_new = False
        self.consumption: Consumption | None = None
        self.browsers: list[RemoteBrowser] = []
        self._waits: dict[Message, RemoteWait] = {}
        self._deliveries: dict[QueueEntry, tuple[int, int]] = {}  # the tag and the position of each

    @property
    def where(self) -> str:
        """The queue in texts for people."""
        return f"queue '{self.queue.name}' in vhost '{self.queue.vhost}'"

    @property
    def shown_address(self) -> str:
        """The address without a log-in."""
        return show_address(self.address)

    # ---- messages for the other broker

    def hold(self, message: Message, wait: RemoteWait) -> None:
        """Let a publisher wait for the other broker's answer to `message`, which the queue has."""
        message.marks |= AWAITS_REMOTE
        wait.left += 1
        self._waits[message] = wait

    def note_stored(self, message: Message) -> None:
        """Note that the other broker has confirmed a message."""
        wait = self._waits.pop(message, None)
        if wait is not None:
            wait.answer(True)

    def note_refused(self, message: Message) -> bool:
        """Note that the other broker has refused a message. Return whether the message can be dropped.

        Otherwise nobody would learn of the refusal, and the message is sent again.
        """
        wait = self._waits.get(message)
        if wait is None or wait.waiter is None or not wait.waiter.takes_refusals:
            return False
        del self._waits[message]
        wait.answer(False)
        return True

    def note_dropped(self, message: Message) -> None:
        """Refuse a message to its publisher: it has left the queue, and is not in the other broker."""
        wait = self._waits.pop(message, None)
        if wait is not None:
            wait.answer(False)

    # ---- messages from the other broker

    def inlet_for(self, consumer: QueueConsumer) -> QueueState:
        """Return the inlet, which serves consumers that acquire messages, in the other broker's order.

        A browser has an inlet of its own.
        """
        if not consumer.acquires:
            return self._inlet_for_browser(consumer)
        wrong = ""
        if consumer.filter is not None:
            wrong = "select messages"
        elif consumer.candidate and self.consumption is None:
            wrong = "be served alone"
        if wrong:
            raise PreconditionFailed(
                f"{self.where} is remote: its consumers cannot {wrong} here, connect to {self.shown_address}"
            )
        if consumer.exclusive and self.browsers:
            raise InUse(f"{self.where} in exclusive use")
        return self.inlet

    def _inlet_for_browser(self, consumer: QueueConsumer) -> QueueState:
        wrong = f"{self.shown_address} cannot be reached, try again"
        if self.link is not None and self.link.is_up:
            wrong = self.link.browse_objection()
        if self.front:
            wrong = f"it is a member of the partitioned queue '{self.front}'"
        if wrong:
            raise PreconditionFailed(f"{self.where} is remote and cannot be browsed: {wrong}")
        consumers = self.inlet.manager.all
        if consumers and next(iter(consumers)).exclusive:
            raise InUse(f"{self.where} in exclusive use")
        browser = RemoteBrowser(self, consumer)
        self.browsers.append(browser)
        return browser.inlet

    def arrive(self, tag: i64, message: Message, redelivered: bool, position: i64 = NO_POSITION) -> None:
        """Put a message into the inlet, which the other broker has delivered with this tag.

        `position`: the position with which this queue has sent the message; NO_POSITION: another publisher
        has sent it.
        """
        entry = self.inlet.enqueue(message)
        entry.redelivered = redelivered
        self._deliveries[entry] = int(tag), int(position)
        if position >= 0 and self.consumption is not None:
            self.consumption.note_delivered(position)

    def demand(self) -> i64:
        """Return how many messages the consumers take now, beyond those that they have."""
        wanted: i64 = 0
        for consumer in self.inlet.manager.all:
            if consumer.state in ABLE:
                wanted += consumer.target.credit_left()
        return wanted

    def waiting_gets(self) -> list[QueueConsumer]:
        """Return the requests for a single message that wait."""
        return [consumer for consumer in self.inlet.manager.gets if consumer.state in ABLE]

    def return_ready(self) -> None:
        """Return the messages that no consumer takes to the other broker."""
        inlet = self.inlet
        for entry in [entry for entry in inlet.entries if entry.state == AVAILABLE]:
            take_out(inlet, entry)
            self.requeue(entry)

    def forget_deliveries(self) -> None:
        """Empty the inlet: the link has broken, and the other broker requeues all deliveries."""
        inlet = self.inlet
        self._deliveries.clear()
        if self.consumption is not None:
            self.consumption.note_broken()
        for entry in list(inlet.entries):
            owner = entry.owner
            take_out(inlet, entry)
            if owner is not None:
                owner.on_acquisition_removed(entry)

    def note_demand(self) -> None:
        """Inform the link."""
        if self.link is not None:
            self.link.note_demand()

    def settle(self, entry: QueueEntry) -> None:
        """Settle in the other broker, unless the delivery is from an earlier link."""
        tag, position = self._deliveries.pop(entry, NO_DELIVERY)
        if self.link is not None and tag != NO_TAG:
            self.link.settle(tag)
        if position >= 0 and self.consumption is not None:
            self.consumption.note_consumed(position)

    def reject(self, entry: QueueEntry) -> None:
        """Reject in the other broker, unless the delivery is from an earlier link."""
        tag, position = self._deliveries.pop(entry, NO_DELIVERY)
        if self.link is not None and tag != NO_TAG:
            self.link.reject(tag)
        if position >= 0 and self.consumption is not None:
            self.consumption.note_consumed(position)

    def requeue(self, entry: QueueEntry) -> None:
        """Requeue in the other broker, unless the delivery is from an earlier link."""
        tag, position = self._deliveries.pop(entry, NO_DELIVERY)
        if self.link is not None and tag != NO_TAG:
            self.link.requeue(tag)
        if position >= 0 and self.consumption is not None:
            self.consumption.note_requeued(position)

    def check_purge(self) -> None:
        """Raise PreconditionFailed if the other broker cannot be reached."""
        if self.link is None or not self.link.is_up:
            raise PreconditionFailed(
                f"{self.where} cannot be purged: {self.shown_address} cannot be reached, nothing was dropped"
            )

    def purge(self, done: Callable[[i64, str], None]) -> None:
        """Purge the queue of the other broker. Raises PreconditionFailed if the broker cannot be reached."""
        self.check_purge()
        assert self.link is not None, "the link has been checked"
        self.link.purge(done)

    def change_address(self, address: str) -> None:
        """Use another log-in for the same queue of the other broker from now on."""
        self.address = address
        link, self.link = self.link, None
        if link is not None:
            link.end()

    # ---- the end

    def consumer_count(self) -> int:
        """Return the number of consumers of the queue here."""
        return len(self.inlet.manager.all) + len(self.browsers)

    def subscription_count(self) -> int:
        """Return the same without the consumers of the partitioned queue that has this member."""
        return len([consumer for consumer in self.inlet.manager.all if consumer.front is None])

    def end(self) -> QueueState:
        """End the link and the waits, and return the inlet. The messages in the other broker stay there."""
        self.is_ended = True
        link, self.link = self.link, None
        self.forget_deliveries()
        if link is not None:
            link.end()
        browsers, self.browsers = self.browsers, []
        for browser in browsers:
            browser.cancel()
        waits = list(self._waits.values())
        self._waits.clear()
        for wait in waits:
            wait.answer(False)
        return self.inlet


def new_remote(queue: Queue, host: QueueHost) -> RemoteQueue:
    """Return the other broker's side of a queue whose arguments name another broker."""
    arguments = queue.arguments
    address = text_argument(arguments, REMOTE)
    assert address is not None, "the arguments have been read"
    return RemoteQueue(queue, host, address, arguments.get(REMOTE_MODE) == HYBRID)


def remote_of(queue: Queue) -> RemoteQueue | None:
    """Return the other broker's side of a remote queue; None: the queue is in this broker."""
    remote = queue.remote
    assert remote is None or isinstance(remote, RemoteQueue), "this module makes all of them"
    return remote


def note_feeders(queue: Queue, path: object) -> None:
    """Note the remote queues whose messages come to a queue, if the queue is remote itself.

    `path`: the names of these queues, as the link of the nearest one gives them; anything else is ignored.

    Raises:
        PreconditionFailed: the queue is among them, so its messages would go round for ever.
    """
    remote = remote_of(queue)
    if remote is not None and remote.link is not None and isinstance(path, list):
        remote.link.note_feeders([name for name in path if isinstance(name, str)])


def is_awaited(queue: Queue) -> bool:
    """Whether the confirms of a queue come from another broker."""
    remote = remote_of(queue)
    return remote is not None and not remote.hybrid


def hold_for_remotes(message: Message, queues: list[Queue]) -> RemoteWait | None:
    """Make the confirm of a message wait for all other brokers of these queues; None: there are none."""
    wait: RemoteWait | None = None
    for queue in queues:
        remote = remote_of(queue)
        if remote is not None and not remote.hybrid and not remote.is_ended:
            wait = wait or RemoteWait()
            remote.hold(message, wait)
    return wait


def consumers_of(queue: Queue) -> list[QueueConsumer]:
    """Return the consumers of a queue, without those of the broker itself if the queue is remote."""
    remote = remote_of(queue)
    if remote is None:
        return list(queue.manager.all)
    return [*remote.inlet.manager.all, *(browser.consumer for browser in remote.browsers)]


def refuse_remote(queue: Queue, what: str) -> None:
    """Refuse an operation on single messages, which are in another broker.

    `what` completes "cannot be" in the refusal.

    Raises:
        PreconditionFailed: the queue is remote; the refusal names the other broker.
    """
    remote = remote_of(queue)
    if remote is not None:
        raise PreconditionFailed(
            f"{remote.where} is remote and cannot be {what}: its messages are in {remote.shown_address}"
        )
