"""The daemon as its connections see it: the broker, its limits, and its access control."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from broker.adapters.access import Access
from broker.adapters.formats.either import Conversions
from broker.adapters.peers.connections import Connections
from broker.adapters.peers.notices import ActivityNotices
from broker.adapters.peers.shortage import Shortage
from broker.core.broker import Broker
from broker.core.counters import Counters
from broker.core.message import Message
from broker.core.ports import MessageStore
from broker.core.queues.queue import Queue
from broker.core.selector.selector import Selector
from broker.core.vhosts.vhost import AutoCreation, VirtualHost


class LinkRegister:
    """The links of AMQP 1.0 that clients may resume after the end of their connection."""

    def on_user_deleted(self, user: str) -> None:
        """Forget the links of a user who no longer exists."""
        raise NotImplementedError

    def on_vhost_deleted(self, vhost: str) -> None:
        """Forget the links in a virtual host that no longer exists."""
        raise NotImplementedError


class ReplyReceiver:
    """The receiver of direct replies: clients of either protocol publish to its name. [RabbitMQ]"""

    def deliver(self, message: Message, counters: Counters) -> None:
        """Send a reply, or drop the reply if the requester cannot take it; it counts as routed."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class StagedReader:
    """The reader of a queue on a channel, which gets each message with its origin and position.

    `tag`: the consumer tag. The methods take the numbers of deliveries, which are the delivery tags.
    """

    def __init__(self, tag: str) -> None:
        self.tag = tag

    def open(self) -> None:
        """Begin to deliver."""
        raise NotImplementedError

    def acknowledge(self, number: i64, multiple: bool) -> None:
        """Move past a message, or all messages up to this one."""
        raise NotImplementedError

    def refuse(self, number: i64, multiple: bool) -> None:
        """Deliver a message, or all up to this one, again when all messages on their way are answered."""
        raise NotImplementedError

    def resume(self) -> None:
        """Deliver again: the client reads again."""
        raise NotImplementedError

    def close(self) -> None:
        """End with the channel. The messages stay staged for the reader."""
        raise NotImplementedError

    def give_up(self) -> None:
        """End for good: the staged messages return to the queue. Raises StoreFailed."""
        raise NotImplementedError


MakeReader = Callable[[object, Queue, str, str, Selector | None], StagedReader]
"""Returns a reader of a queue on a channel, by its name, consumer tag and selector.

Raises PreconditionFailed.
"""


@final
class Server:
    """The broker, its limits and its access control. The daemon has a single Server.

    `link_names`: the register of links, which the adapter of AMQP 1.0 provides. `make_reader`: the maker of
    readers that forward exactly once; None: there are none.
    """

    def __init__(
        self,
        broker: Broker,
        store: MessageStore,
        access: Access,
        version: str,
        generate_name: Callable[[str], str],
        link_names: LinkRegister,
        frame_max: int = 131072,
        channel_max: int = 2047,
        heartbeat: int = 60,
        handshake_seconds: float = 10.0,
        body_bytes_max: int = 134217728,
        consumer_timeout: int = 0,
        transaction_bytes_max: int = 134217728,
        transaction_timeout: int = 0,
        value_as_text: bool = False,
        auto_create: Sequence[str] = (),
    ) -> None:
        self.broker = broker
        self.counters: Counters = broker.counters
        self.store = store
        self.access = access
        self.connections = Connections(broker.schedule)
        self.shortage = Shortage(self.connections)
        self.notices = ActivityNotices(broker.schedule)
        self.replies: dict[tuple[VirtualHost, bytes], ReplyReceiver] = {}  # by encoded name
        self.conversions = Conversions(broker.schedule, value_as_text)
        self.link_names = link_names
        self.auto_creation = AutoCreation(auto_create)
        self.make_reader: MakeReader | None = None
        self.generate_name = generate_name  # a unique name that begins with the given prefix
        self.frame_max: i64 = frame_max
        self.channel_max: i64 = channel_max
        self.heartbeat: i64 = heartbeat
        self.handshake_seconds = handshake_seconds
        self.body_bytes_max: i64 = body_bytes_max
        self.consumer_timeout: i64 = consumer_timeout  # milliseconds, 0: none
        self.transaction_bytes_max: i64 = transaction_bytes_max
        self.transaction_timeout: i64 = transaction_timeout  # milliseconds, 0: none
        self.properties: dict[str, object] = {
            "product": PRODUCT,
            "version": version,
            "platform": "Python",
            "information": "Apache-2.0",
            "capabilities": dict.fromkeys(CAPABILITIES, True),
        }
        self.open_properties = {name: self.properties[name] for name in ("product", "version", "platform")}

    def on_user_deleted(self, user: str) -> None:
        """Close the connections of a deleted user, and forget the user's suspended links."""
        self.connections.on_user_deleted(user)
        self.link_names.on_user_deleted(user)

    def on_vhost_deleted(self, vhost: str) -> None:
        """Close the connections of a deleted virtual host, and forget its suspended links."""
        self.connections.on_vhost_deleted(vhost)
        self.link_names.on_vhost_deleted(vhost)

    def set_product(self, product: str | None, version: str | None) -> None:
        """Set the product name and version that clients of both protocols see. None: unchanged."""
        for shown, rabbitmq_version in (
            (self.properties, RABBITMQ_VERSION_091),
            (self.open_properties, RABBITMQ_VERSION_10),
        ):
            shown["product"] = product or shown["product"]
            shown["version"] = version or (rabbitmq_version if product == RABBITMQ else shown["version"])


PRODUCT: Final = "amqpd"  # also the container-id of the broker, whatever product name clients see
RABBITMQ: Final = "RabbitMQ"
RABBITMQ_VERSION_091: Final = "3.13.7"  # later versions: Kombu shares no prefetch window among queues
RABBITMQ_VERSION_10: Final = "4.2.0"  # earlier versions have another AMQP 1.0
IDENTITY: Final = "identity"
"""The server-property of amqpd that no other broker has, so that a link notices that it leads back."""

MESSAGE_ORIGINS: Final = "message_origins"
"""The capability of amqpd: queues that remember producers read the origin and position of a message."""

MESSAGE_SELECTORS: Final = "message_selectors"
"""The capability of amqpd: consumers have selectors."""

RECEIPT_PATHS: Final = "receipt_paths"
"""The capability of amqpd: receipts of forwarded messages have the path back to the publisher."""

QUEUE_LINKS: Final = "queue_links"
"""The capability of amqpd: passive declarations take the arguments of links of remote queues."""

CAPABILITIES = (
    "publisher_confirms",
    "exchange_exchange_bindings",
    "basic.nack",
    "consumer_cancel_notify",
    "connection.blocked",
    "consumer_priorities",
    "authentication_failure_close",
    "per_consumer_qos",
    "direct_reply_to",
    MESSAGE_ORIGINS,
    MESSAGE_SELECTORS,
    RECEIPT_PATHS,
    QUEUE_LINKS,
)
"""The capabilities by which clients enable features. [RabbitMQ server-properties]"""
