"""New messages of a queue as they arrive, shown by a browser of the broker's own: nothing is taken. [amqpd]

The browser sees what a consumer with `x-browse` sees, also messages that consumers take at once. The answer
has a line of JSON for each message and does not end. An empty line keeps an idle connection alive.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Final, final

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from broker.adapters.access import QUEUE
from broker.admin.api.answers import ApiError, bad_request
from broker.admin.api.inspection import USUAL_BYTES, Selected, Truncated, describe_message
from broker.admin.api.management import Managed
from broker.admin.api.queues import find_readable_queue
from broker.admin.api.requests import Asker, Name, tags_of
from broker.admin.api.selection import make_filter
from broker.auth.terms import READ
from broker.core.arguments.consumer import BEGINNINGS, NEXT, BrowseRange
from broker.core.delivery.credit import Credit
from broker.core.delivery.session import Connection, PullingTarget, Scheduler, Session
from broker.core.entries.entry import QueueEntry
from broker.core.errors import BrokerError
from broker.core.queues.attach import attach, detach
from broker.core.queues.consumer import REMOVED, QueueConsumer
from broker.core.queues.queue import Queue, queue_of

LINES_MAX: Final = 200  # written lines that wait for the client; the browser waits beyond that
TURN_MESSAGES: Final = 50
IDLE_SECONDS: Final = 10.0
TAG: Final = "follow"

router = APIRouter(tags=["messages"])


@final
class _Turns(Scheduler):
    """Runs each requested turn in the next turn of the event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def schedule(self, connection: Connection) -> None:
        """Request one call of `connection.pump`."""
        self._loop.call_soon(connection.pump, TURN_MESSAGES)


@final
class _Follower(PullingTarget):
    """The target of the browser: each delivery becomes a line of text.

    `refusal` returns why the user may not read the queue any more, "" while the user may.
    """

    def __init__(
        self, session: Session, describe: Callable[[Queue, QueueEntry], str], refusal: Callable[[], str]
    ) -> None:
        self.lines: list[str] = []  # first: the base class checks at once whether the target wants work
        self.news = asyncio.Event()
        self.has_ended = False
        self._describe = describe
        self._refusal = refusal
        super().__init__(session, Credit())

    def is_sized(self) -> bool:
        """Whether windows limit the size of a message: never."""
        return False

    def wants_work(self) -> bool:
        """Whether the client has read enough of the written lines."""
        return not self.closed and len(self.lines) < LINES_MAX

    def deliver(self, consumer: QueueConsumer, entry: QueueEntry) -> None:
        """Write the line of a message."""
        self.lines.append(self._describe(queue_of(consumer), entry))
        self.news.set()
        self.update()

    def on_consumer_cancelled(self, consumer: QueueConsumer) -> None:
        """Note that the queue was deleted: no more lines follow."""
        self.has_ended = True
        self.news.set()

    async def text(self) -> AsyncIterator[str]:
        """Yield the lines as they come, until the queue is deleted or the user may not read it any more."""
        yield "\n"  # the client learns that the browser is attached
        while self.lines or not self.has_ended:
            try:
                await asyncio.wait_for(self.news.wait(), IDLE_SECONDS)
            except TimeoutError:
                yield "\n"
            refusal = self._refusal()
            if refusal:
                yield json.dumps({"error": refusal}) + "\n"
                return
            self.news.clear()
            text = "".join(self.lines)
            self.lines.clear()
            self.update()
            if text:
                yield text


@final
class _Answer(StreamingResponse):
    """The answer that ends the browser, however the answer ends."""

    def __init__(self, follower: _Follower, consumer: QueueConsumer) -> None:
        super().__init__(follower.text(), media_type="application/x-ndjson")
        self._follower = follower
        self._consumer = consumer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the lines (ASGI)."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._follower.close()
            if self._consumer.state != REMOVED:
                detach(queue_of(self._consumer), self._consumer, [])
            self._follower.session.close_targets()


@router.get("/queues/{vhost}/{name}/messages/follow")
async def follow_messages(
    management: Managed,
    visitor: Asker,
    vhost: Name,
    name: Name,
    selector: Selected = "",
    begin: Annotated[
        str, Query(alias="from", description="first, last or next: `next` shows later arrivals only.")
    ] = NEXT,
    truncate: Truncated = USUAL_BYTES,
) -> StreamingResponse:
    """Return the messages of a queue as they arrive, a line of JSON for each; no message is taken.

    The answer ends when the queue is deleted, the client closes the connection, or the user loses the right
    to read the queue. `selector` restricts the messages. A queue that is followed does not expire. The
    follower counts as no consumer.
    """
    virtual_host, queue = find_readable_queue(visitor, vhost, name)
    if begin not in BEGINNINGS:
        raise bad_request(f"from '{begin}' is not known here, allowed: {', '.join(BEGINNINGS)}")

    def describe(where: Queue, entry: QueueEntry) -> str:
        try:
            return json.dumps(describe_message(management.server, where, entry, truncate)) + "\n"
        except (BrokerError, ApiError) as error:  # a body that cannot be read, or not shown
            return json.dumps({"error": str(error)}) + "\n"

    def refusal() -> str:
        if not tags_of(management, visitor.name):
            return f"user '{visitor.name}' may not use the management interface any more"
        try:
            visitor.rights(virtual_host).require(READ, QUEUE, name)
        except BrokerError as error:
            return str(error)
        return ""

    connection = Connection(_Turns())
    connection.user = visitor.name
    follower = _Follower(Session(connection), describe, refusal)
    sieve = make_filter({"selector": selector}, virtual_host.store)
    consumer = QueueConsumer(follower, queue, acquires=False, tag=TAG, no_ack=True, entry_filter=sieve)
    consumer.extent = BrowseRange(begin)
    consumer.getting = True
    try:
        attach(queue, consumer)
    except BrokerError:
        follower.close()
        raise
    return _Answer(follower, consumer)
