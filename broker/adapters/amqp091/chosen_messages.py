"""basic.consume of chosen messages: by id, by place, or by number; then the consumer is cancelled. [amqpd]

The messages are searched first, over several turns if the search is long. Meanwhile the frames after the
basic.consume wait. So consume-ok means that such messages exist, and 406 that none exists.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from broker.adapters.access import QUEUE
from broker.adapters.amqp091.deliver import Target091
from broker.adapters.amqp091.state import ChannelState, PendingRequest
from broker.adapters.formats.either import SelectorFilter
from broker.auth.terms import READ
from broker.core.arguments.consumer import GET_COUNT, GET_MESSAGE_ID, GET_POSITION
from broker.core.delivery.credit import Credit
from broker.core.entries.entry import QueueEntry
from broker.core.errors import BrokerError, PreconditionFailed
from broker.core.queues.attach import attach, begin_get, detach, get_chosen
from broker.core.queues.consumer import INTERESTED, QueueConsumer
from broker.core.queues.queue import queue_of
from broker.core.queues.search import FirstSearch, IdSearch, PlaceSearch, Search, is_message_id, may_take
from broker.core.schedule import TimedTask
from broker.core.selector.selector import Selector
from protocol.amqp091 import constants as c
from protocol.amqp091 import methods
from protocol.errors import ProtocolError

SEARCH_STEP: Final[i64] = 5000  # entries that are checked in a turn
CHECK_INTERVAL_MS: Final[i64] = 500  # between checks of a counted consumer that may be served
KEPT_FRAMES_BYTES_MAX: Final = (
    1048576  # the most bytes of frames after the request: more bytes close the channel
)


@final
class CountedTarget(Target091):
    """A target that is cancelled after a number of deliveries, or as soon as there is no more work for it."""

    def __init__(
        self, channel: ChannelState, credit: Credit, window: Credit | None, tag: str, no_ack: bool
    ) -> None:
        super().__init__(channel, credit, window, tag, no_ack)
        self.remaining: i64 = 0
        self._end_alarm = EndAlarm(self)

    def deliver(self, consumer: QueueConsumer, entry: QueueEntry) -> None:
        """Write a basic.deliver with its content."""
        super().deliver(consumer, entry)
        self.remaining -= 1
        if self.remaining == 0:
            self.schedule_end()

    def update(self) -> None:
        """Recompute whether the target wants work, and schedule the check for its end."""
        super().update()
        if self.remaining > 0 and self.desired:
            self._end_alarm.set()

    def on_no_messages(self, consumer: QueueConsumer) -> None:
        """Cancel the target: the queue has no more messages for it."""
        if self.remaining > 0:
            self.schedule_end()

    def schedule_end(self) -> None:
        """Take no more messages, and cancel the target in a turn of its own."""
        self.remaining = 0
        self.close()
        self._end_alarm.set()


@final
class EndAlarm(TimedTask):
    """The timed task that cancels the consumer of a counted target."""

    def __init__(self, target: CountedTarget) -> None:
        super().__init__()
        self._target = target

    def set(self) -> None:
        """Check for the end in a later turn."""
        schedule = self._target.channel.virtual_host.schedule
        schedule.set(self, schedule.now())

    def do_due_work(self) -> None:
        """Cancel the consumer, unless there is work for it or it waits for its client.

        A queue that does not serve, as during a purge, does not notify its consumers that no messages are
        left.
        """
        target = self._target
        for consumer in list(target.consumers):
            if target.closed or consumer.state == INTERESTED:
                queue = queue_of(consumer)
                detach(queue, consumer, [])
                target.on_consumer_cancelled(consumer)
                target.channel.virtual_host.declarations.delete_if_unused(queue)
        if target.consumers and target.desired:
            schedule = target.channel.virtual_host.schedule
            schedule.set(self, schedule.now() + CHECK_INTERVAL_MS)


@final
class ChosenConsume(TimedTask, PendingRequest):
    """A basic.consume of chosen messages of `queue` that is not answered yet.

    `consumer` is made for this request and not attached. The channel's next frames wait for the answer.
    """

    def __init__(
        self, channel: ChannelState, target: Target091, consumer: QueueConsumer, nowait: bool
    ) -> None:
        super().__init__()
        self.queue = queue_of(consumer)
        self._channel = channel
        self._target = target
        self._consumer = consumer
        self._nowait = nowait
        self._search = _search_for(channel, target, consumer)
        self._abandoned = False

    def begin(self) -> None:
        """Search, and answer at once if the search takes no longer than a turn may take.

        Raises PreconditionFailed if no such message is ready.
        """
        if self._search.step(SEARCH_STEP):
            self._search.end()
            self._answer()
            return
        channel = self._channel
        channel.pending_consume = self
        channel.hold()
        channel.virtual_host.schedule.set(self, channel.virtual_host.schedule.now())

    def do_due_work(self) -> None:
        """Continue the search, or let the channel continue."""
        channel = self._channel
        if not self._abandoned:
            if not self.queue.deleted and not self._search.step(SEARCH_STEP):
                channel.virtual_host.schedule.set(self, channel.virtual_host.schedule.now())
                return
            self._end_search()
            try:
                self._answer_or_refuse()
            except ProtocolError as error:
                channel.connection.fail(error)
            except Exception:  # perhaps the message cannot be read back
                channel.connection.internal_error()
        connection = channel.connection
        frames = channel.end_hold()
        if connection.is_open() and connection.wire.channel(channel.number) is channel:
            connection.wire.put_back(frames)
            connection.receive(b"")

    def _answer_or_refuse(self) -> None:
        """Answer in a turn of the search. Raises ProtocolError, and what the disk raises."""
        try:
            self._answer()
        except BrokerError as error:
            self._channel.refuse(error, c.BASIC_CONSUME)

    def frame_kept(self, method: i64) -> None:
        """Close the channel if the kept frames have too many bytes."""
        if self._channel.kept_bytes > KEPT_FRAMES_BYTES_MAX:
            text = (
                f"{self._channel.kept_bytes} bytes arrived after a basic.consume that is not answered yet, "
                f"at most {KEPT_FRAMES_BYTES_MAX} are kept"
            )
            self._channel.refuse(PreconditionFailed(text), c.BASIC_CONSUME)

    def on_rights_changed(self) -> None:
        """Continue: the answer checks the rights."""

    def abandon(self) -> None:
        """End the search without an answer: the channel ends."""
        self._end_search()
        self._abandoned = True
        schedule = self._channel.virtual_host.schedule
        schedule.set(self, schedule.now())  # the kept frames may contain the client's close

    def _end_search(self) -> None:
        self._search.end()
        self._channel.pending_consume = None

    def _answer(self) -> None:
        """Deliver the messages that were found. Raises PreconditionFailed, and what `begin_get` raises."""
        channel, target, consumer, queue = self._channel, self._target, self._consumer, self.queue
        entry = None if queue.deleted else self._search.entry
        if entry is not None:
            channel.connection.rights.require(READ, QUEUE, queue.name)  # the search may have taken a while
        if consumer.acquires and entry is not None:
            begin_get(queue)
            if not may_take(queue, entry):
                entry = None
        if entry is None:
            raise PreconditionFailed(
                f"no such message is ready in queue '{queue.name}' in vhost '{queue.vhost}': "
                f"{_describe(target.arguments)}"
            )
        if isinstance(target, CountedTarget):
            channel.targets[target.tag] = target
            attach(queue, consumer)
            self._send_ok()
            target.update()
            return
        self._send_ok()
        get_chosen(queue, consumer, entry)
        target.deliver(consumer, entry)
        if consumer.no_ack and consumer.acquires:
            queue.settle(entry)
        target.on_consumer_cancelled(consumer)

    def _send_ok(self) -> None:
        if not self._nowait:
            channel = self._channel
            channel.reply(methods.consumer_tag(channel.number, c.BASIC_CONSUME_OK, self._target.tag))


def _describe(arguments: dict[str, object]) -> str:
    names = (GET_MESSAGE_ID, GET_POSITION, GET_COUNT)
    return ", ".join(f"{name} '{arguments[name]}'" for name in names if name in arguments)


def _search_for(channel: ChannelState, target: Target091, consumer: QueueConsumer) -> Search:
    """Return the search that the checked arguments of a consumer ask for."""
    queue, arguments = queue_of(consumer), target.arguments
    wanted = arguments.get(GET_MESSAGE_ID)
    if isinstance(wanted, str):
        if is_message_id(wanted):
            return IdSearch(queue, wanted)
        quoted = wanted.replace("'", "''")
        selector = Selector(f"JMSMessageID = '{quoted}'")
        return FirstSearch(queue, SelectorFilter(selector, queue.store, channel.virtual_host.trouble))
    place = arguments.get(GET_POSITION)
    if isinstance(place, int):
        return PlaceSearch(queue, place - 1)
    count = arguments[GET_COUNT]
    assert isinstance(count, int), "arguments have been checked"
    assert isinstance(target, CountedTarget), "a search by number has a CountedTarget"
    target.remaining = count
    consumer.getting = True
    return FirstSearch(queue, consumer.filter)
