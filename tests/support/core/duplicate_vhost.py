"""A virtual host whose messages have ids, producers and sequences."""

from typing import Any

from broker.core.message import Message
from broker.core.message_view import HeaderReader, MessageView, Origin
from broker.core.ports import MessageStore
from broker.core.publishing.publisher import Outcome
from broker.core.queues.queue import Queue
from broker.core.queues.source import PUBLISHED, Source
from tests.support.core.timed_vhost import VhostBench


class IdentityView(MessageView):
    """A view of a message whose content is `id/producer/sequence`, or a part of that.

    `@ORIGIN` as the producer is an origin; the sequence is `position` or `position>preceding` then.
    """

    def __init__(self, message: Message) -> None:
        assert message.content is not None
        self.id, self.producer, self.sequence = [*message.content.decode().split("/"), "", "", ""][:3]

    def property(self, name: str) -> object | None:
        return (self.id or None) if name == "message_id" else None

    def headers(self) -> dict[str, object]:
        if not self.producer:
            return {}
        if self.producer.startswith("@"):
            position, _, preceding = self.sequence.partition(">")
            headers: dict[str, object] = {"x-origin": self.producer, "x-origin-position": int(position)}
            return {**headers, "x-origin-preceding": int(preceding)} if preceding else headers
        number = self.sequence.lstrip("-").isdigit()
        return {"x-producer": self.producer, "x-sequence": int(self.sequence) if number else self.sequence}


class OriginReader(HeaderReader):
    """A reader that finds the headers of an origin where they are the last ones: in two of three messages."""

    def read_origin(self, content: bytes, origin: Origin) -> bool:
        _, producer, sequence = [*content.decode().split("/"), "", "", ""][:3]
        if not producer.startswith("@"):
            return False
        position, _, preceding = sequence.partition(">")
        origin.producer, origin.position, origin.preceding = producer, int(position), int(preceding or -1)
        return int(position) % 3 != 0


class OriginView(IdentityView):
    """A view whose reader finds the origin of a message."""

    def reader(self) -> HeaderReader:
        return OriginReader()


class DuplicateBench(VhostBench):
    """A virtual host in which the content of messages is their identity."""

    def __init__(self, store: MessageStore | None = None) -> None:
        super().__init__(store)
        self.vhost.views = lambda message, store: IdentityView(message)

    def message(self, identity: str, persistent: bool = False, key: str = "q", exchange: str = "") -> Message:
        address = self.vhost.publisher.route(exchange, key).address
        return Message(address, identity.encode(), 1, persistent, 0)

    def say(self, identity: str, key: str = "q", immediate: bool = False, **options: Any) -> Outcome:
        """Publish a message with this identity; return the result of `publish`."""
        exchange = options.get("exchange", "")
        message = self.message(identity, options.get("persistent", False), key, exchange)
        source = Source(PUBLISHED)
        source.names_origins = options.get("names_origins", True)
        return self.vhost.publisher.publish(
            self.vhost.publisher.route(exchange, key), message, source, immediate=immediate
        )


def contents_of(queue: Queue) -> list[str]:
    """Return the bodies of the queue's entries, in order."""
    return [(entry.message.content or b"").decode() for entry in queue.entries]
