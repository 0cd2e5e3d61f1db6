"""The names that clients and broker use beyond the specifications, described for the reference.

Arguments of queues, and most arguments of consumers, have rules with descriptions of their own. This module
has all other names: arguments that the code checks where they are read, headers and annotations, filters of
AMQP 1.0, types of exchanges.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from broker.core.arguments.consumer import BROWSE, BROWSE_FROM, SELECTOR
from broker.core.arguments.queue import ALTERNATE_EXCHANGE, DELAYED_TYPE, GET_WAIT
from broker.core.arguments.rule import ArgumentRule
from broker.core.message_view import GROUP_ID, GROUP_SEQUENCE
from broker.core.policies.policy import (
    AUTO_CREATE,
    FEDERATION_UPSTREAM,
    FEDERATION_UPSTREAM_PATTERN,
    FEDERATION_UPSTREAM_SET,
)
from broker.core.publishing.delay import DELIVERY_TIME
from broker.core.publishing.duplicate_check import ORIGIN, POSITION, PRECEDING, PRODUCER, SEQUENCE
from broker.core.publishing.receipts import RECEIPT_ON, RECEIPT_PATH, RECEIPT_TO
from broker.core.routing.bindings import NO_LOCAL
from broker.core.routing.exchanges import DIRECT, FANOUT, HEADERS, TOPIC, X_MATCH
from broker.core.routing.federation import (
    BOUND_FROM,
    DOWNSTREAM_NAME,
    DOWNSTREAM_VHOST,
    FEDERATION_UPSTREAM_KIND,
    INTERNAL_PURPOSE,
    MAX_HOPS,
    RECEIVED_FROM,
)
from broker.core.routing.hashed import (
    CONSISTENT_HASH,
    HASH_HEADER,
    HASH_PROPERTY,
    LOCAL_RANDOM,
    MODULUS_HASH,
    RANDOM,
)
from broker.core.routing.history import HISTORY_LENGTH, NO_STORE, RECENT_HISTORY
from broker.core.routing.kinds import DELAY, DELAYED
from broker.core.streams.offsets import (
    CONSUMER_NAME,
    MATCH_UNFILTERED,
    PARTITION,
    STREAM_FILTER,
    STREAM_OFFSET,
)
from broker.core.streams.stream import FILTER_VALUE, PARTITION_KEY
from broker.core.transactions.transaction import INDEPENDENT


class Extension(NamedTuple):
    """A name with its allowed values and its effect, in words."""

    allowed: str
    description: str


Extensions = dict[str, Extension]


def of_rules(rules: dict[str, ArgumentRule]) -> Extensions:
    """Return the arguments that have rules."""
    return {name: Extension(rule.allowed(), rule.description) for name, rule in rules.items()}


CONSUMER_ARGUMENTS: Final[Extensions] = {
    BROWSE: Extension(
        "a boolean, or snapshot",
        "Whether the consumer is a browser. A browser sees every message in order and removes none. "
        "`snapshot` ends the browser behind the messages that the queue has when the browser begins. "
        "A remote queue can be browsed if the other broker is an amqpd.",
    ),
    BROWSE_FROM: Extension(
        "first, last, next, a number of messages, or a timestamp",
        "Place where a browser begins. A number skips so many messages. A timestamp begins with the first "
        "message of that time or later.",
    ),
    SELECTOR: Extension(
        "a string of at most 4,096 characters",
        "Condition in the SQL of JMS, such as `level >= 3 AND kind IN ('order', 'offer')`. The consumer gets "
        "only messages for which the condition is true. Consumers of one queue may have 64 different "
        "conditions.",
    ),
    STREAM_OFFSET: Extension(
        "first, last, next, an offset, a timestamp, or an age such as 12h",
        "Place in a stream where the consumer begins. The default is `next`. A consumer begins with the "
        "oldest message where the stream has dropped the place.",
    ),
    STREAM_FILTER: Extension(
        "a string, or a list of strings",
        "Values of the header `x-stream-filter-value`. The consumer of a stream gets only messages with one "
        "of these values.",
    ),
    MATCH_UNFILTERED: Extension(
        "a boolean",
        "Whether a consumer with `x-stream-filter` also gets messages without the header "
        "`x-stream-filter-value`.",
    ),
    CONSUMER_NAME: Extension(
        "a string of at most 255 bytes",
        "Name under which a stream keeps the consumer's progress. A consumer of the same name goes on behind "
        "the messages that are settled, whatever its `x-stream-offset`.",
    ),
    PARTITION: Extension(
        "an integer from 0 to 255",
        "Partition of the stream that the consumer reads. A consumer reads all partitions without this "
        "argument. The argument does not go with `x-stream-consumer-name`.",
    ),
}
"""Arguments of basic.consume that have no rule."""

EXCHANGE_ARGUMENTS: Final[Extensions] = {
    ALTERNATE_EXCHANGE: Extension(
        "a string",
        "Name of the exchange that gets messages which no binding of this exchange matches. A policy can set "
        "the key `alternate-exchange` too.",
    ),
    HASH_HEADER: Extension(
        "a string",
        "Name of the header by whose value an exchange of type `x-consistent-hash` chooses, instead of the "
        "routing key.",
    ),
    HASH_PROPERTY: Extension(
        "one of correlation_id, message_id, timestamp",
        "Name of the property by whose value an exchange of type `x-consistent-hash` chooses, instead of the "
        "routing key.",
    ),
    DELAYED_TYPE: Extension(
        "the name of an exchange type",
        "Type by which an exchange of type `x-delayed-message` routes a message when its delay is over.",
    ),
    HISTORY_LENGTH: Extension(
        "an integer from 1 to 100000",
        "Number of messages that an exchange of type `x-recent-history` keeps for new bindings: 20 by "
        "default.",
    ),
    MAX_HOPS: Extension(
        "an integer from 1",
        "Number of federation links that a message may pass, for exchanges of type `x-federation-upstream`, "
        "which need the argument.",
    ),
    DOWNSTREAM_NAME: Extension(
        "a string",
        "Name of the broker to which an exchange of type `x-federation-upstream` passes messages on.",
    ),
    DOWNSTREAM_VHOST: Extension(
        "a string",
        "Virtual host to which an exchange of type `x-federation-upstream` passes messages on.",
    ),
    INTERNAL_PURPOSE: Extension("a string", "Mark `federation` of exchanges and queues of federation links."),
}
"""Arguments of exchange.declare."""

BINDING_ARGUMENTS: Final[Extensions] = {
    X_MATCH: Extension(
        "one of all, any, all-with-x, any-with-x",
        "Comparison of the binding's other arguments with the headers of a message, for exchanges of type "
        "`headers`. Names with `x-` count only in the modes that end in `-with-x`.",
    ),
    SELECTOR: Extension(
        "a string of at most 4,096 characters",
        "Condition in the SQL of JMS. The binding applies only to messages for which the condition is true, "
        "whatever the type of the exchange.",
    ),
    NO_LOCAL: Extension(
        "a string",
        "Name of the connection or container whose messages the bound queue does not get. The broker sets "
        "this argument for subscriptions of AMQP 1.0 with the no-local filter.",
    ),
    BOUND_FROM: Extension(
        "a list of tables",
        "Brokers from which a federation link has repeated the binding, the last one first. Bindings of "
        "headers exchanges do not match by this argument.",
    ),
}
"""Arguments of queue.bind and exchange.bind."""

CLIENT_PROPERTIES: Final[Extensions] = {
    GET_WAIT: Extension(
        "an integer from 0 to 315360000000",
        "Milliseconds that each basic.get of the connection waits for a message. The property comes before "
        "the queue's argument of the same name. 0 means not to wait.",
    ),
}
"""Client properties of connection.start-ok."""

POLICY_KEYS: Final[Extensions] = {
    ALTERNATE_EXCHANGE: EXCHANGE_ARGUMENTS[ALTERNATE_EXCHANGE],
    AUTO_CREATE: Extension(
        "a boolean",
        "Whether a client of AMQP 1.0 makes a queue by naming it in an address. The key comes before the "
        "setting `auto_create`.",
    ),
    FEDERATION_UPSTREAM: Extension(
        "a string", "Name of the upstream from which matching exchanges and queues get messages."
    ),
    FEDERATION_UPSTREAM_SET: Extension(
        "a string",
        "Name of a set of upstreams. The set `all` has all upstreams of the virtual host.",
    ),
    FEDERATION_UPSTREAM_PATTERN: Extension("a regular expression", "Pattern of the names of upstreams."),
}
"""Keys of policies that are no arguments of queues."""

EXCHANGE_TYPES: Final[dict[str, str]] = {
    DIRECT: "Routes a message to the destinations that are bound with its routing key.",
    FANOUT: "Routes a message to all destinations.",
    TOPIC: "Routes a message to the destinations whose binding key, a pattern with `*` and `#`, matches.",
    HEADERS: "Routes a message to the destinations whose binding arguments are among its headers.",
    CONSISTENT_HASH: "Routes a message to one destination, chosen by a hash of the routing key, a header or "
    "a property. The binding key is the weight of the destination.",
    MODULUS_HASH: "Routes a message to one destination, chosen by a hash of the routing key modulo the "
    "number of destinations.",
    RANDOM: "Routes a message to one destination at random.",
    LOCAL_RANDOM: "Routes a message to one queue at random. Bindings have an empty key.",
    RECENT_HISTORY: "Routes a message to all destinations. A new binding first gets the last messages, at "
    "most 16 MiB of them.",
    DELAYED: "Routes a message as the type in `x-delayed-type` does, when the delay in its header `x-delay` "
    "is over.",
    FEDERATION_UPSTREAM_KIND: "Routes a message to all destinations if the broker in `x-downstream-name` "
    "would take the message from a federation link.",
}
"""Types of exchanges."""

PUBLISHED_HEADERS: Final[Extensions] = {
    "CC": Extension("a list of strings", "Further routing keys of the message, which consumers see."),
    "BCC": Extension(
        "a list of strings", "Further routing keys of the message, which the broker removes from the message."
    ),
    DELAY: Extension(
        "an integer from 1 to 4294967295, or its digits",
        "Milliseconds for which the message waits before the queue, or a delayed exchange, delivers the "
        "message. Consumers see the value negated.",
    ),
    DELIVERY_TIME: Extension(
        "a timestamp, or milliseconds since 1970, at most ten years away",
        "Date before which no queue delivers the message.",
    ),
    RECEIPT_TO: Extension(
        "a string of 1 to 255 bytes",
        "Name of the queue, in the same virtual host, that gets receipts for the message. A receipt says "
        "`what`, `queue`, `message_id`, `exchange`, `routing_key` and `time`.",
    ),
    RECEIPT_ON: Extension(
        "arrival, consumed, or both with a comma between them",
        "Events that give a receipt: the message has arrived in a queue, or is acknowledged there.",
    ),
    RECEIPT_PATH: Extension(
        "a list of 1 to 16 strings",
        "Queues through which receipts of a forwarded message return, the next one first. Shovels with the "
        "field `dest-receipt-queue` set the header.",
    ),
    INDEPENDENT: Extension(
        "a boolean",
        "Whether the message is stored at once and stays stored, even if the transaction in which it is "
        "sent is rolled back. Without a transaction the header has no effect.",
    ),
    PRODUCER: Extension(
        "a string of 1 to 255 bytes",
        "Name of the producer, for queues with `x-dedup-producers`.",
    ),
    SEQUENCE: Extension(
        "an integer, at least 0",
        "Number of the message among those of its producer. A number that is not above the highest one so "
        "far marks a duplicate.",
    ),
    ORIGIN: Extension(
        "a string of 1 to 255 bytes",
        "Broker and shovel that forward the message exactly once, for queues with `x-dedup-producers`. The "
        "header takes precedence over `x-producer`, and has no effect from other clients.",
    ),
    POSITION: Extension(
        "an integer, at least 0",
        "Position of the message among those of its origin. A position that is not above the highest one so "
        "far marks a duplicate.",
    ),
    PRECEDING: Extension(
        "an integer, at least 0",
        "Position of the message before this one. A queue that has not had the position refuses the message.",
    ),
    GROUP_ID: Extension(
        "a string or an integer",
        "Group of the message, for queues with message groups.",
    ),
    "JMSXGroupID": Extension(
        "a string or an integer",
        "Group of the message, where the header `x-group-id` is missing.",
    ),
    GROUP_SEQUENCE: Extension(
        "an integer",
        "Place of the message in its group. -1 closes the group: the group is free when this message and "
        "all before it are settled or returned.",
    ),
    "JMSXGroupSeq": Extension(
        "an integer",
        "Place of the message in its group, where the header `x-group-seq` is missing.",
    ),
    PARTITION_KEY: Extension(
        "a string",
        "Key by which a stream with partitions chooses the partition of the message, instead of the routing "
        "key.",
    ),
    FILTER_VALUE: Extension(
        "a string",
        "Value that the `x-stream-filter` of a stream's consumer is compared with.",
    ),
    NO_STORE: Extension(
        "a boolean",
        "Whether an exchange of type `x-recent-history` leaves the message out of its history.",
    ),
}
"""Headers by which publishers ask for something. In AMQP 1.0 they are message annotations."""

DELIVERED_HEADERS: Final[Extensions] = {
    "x-death": Extension(
        "a list of tables",
        "Deaths of the message, the latest first: `queue`, `reason`, `count`, `time`, `exchange`, "
        "`routing-keys` and `original-expiration`.",
    ),
    "x-first-death-queue": Extension("a string", "Queue in which the message died first."),
    "x-first-death-reason": Extension("a string", "Reason of the first death."),
    "x-first-death-exchange": Extension("a string", "Exchange of the message when it died first."),
    "x-last-death-queue": Extension("a string", "Queue in which the message died last."),
    "x-last-death-reason": Extension("a string", "Reason of the last death."),
    "x-last-death-exchange": Extension("a string", "Exchange of the message when it died last."),
    "x-expired-by": Extension(
        "message or queue",
        "Limit that was over when the message expired: its own `expiration`, or the queue's time to live.",
    ),
    "x-expired-while": Extension(
        "ready or held",
        "State of the message when it expired: ready, or held until a retry.",
    ),
    "x-delivery-count": Extension(
        "an integer",
        "Number of returns of the message that count towards `x-delivery-limit`.",
    ),
    "x-acquired-count": Extension(
        "an integer",
        "Number of earlier deliveries of the message, from queues with a delivery limit or retries.",
    ),
    "x-shovelled": Extension(
        "a list of tables",
        "Shovels that have moved the message, the last one first, with their field "
        "`dest-add-forward-headers`.",
    ),
    "x-shovelled-timestamp": Extension(
        "an integer",
        "Time of the last move, in seconds since 1970, by a shovel with its field "
        "`dest-add-timestamp-header`.",
    ),
    RECEIVED_FROM: Extension(
        "a list of tables",
        "Brokers that a federated message has passed, the last one first.",
    ),
    "x-original-exchange": Extension(
        "a string", "Exchange of the publish of a message of a federated queue."
    ),
    "x-original-routing-key": Extension(
        "a string", "Routing key of the publish of a message of a federated queue."
    ),
    "x-original-cc": Extension(
        "a list of strings", "Header `CC` of the publish of a message of a federated queue."
    ),
    "x-stream-offset": Extension("an integer", "Offset of the message in its stream, or in its partition."),
    "x-stream-partition": Extension("an integer", "Partition of the message in its stream."),
}
"""Headers that the broker adds to deliveries and dead letters."""

SPARK_HEADERS: Final[Extensions] = {
    "x-spark-query-id": Extension("a string", "Id of the Spark query that wrote the message."),
    "x-spark-batch-id": Extension("an integer", "Number of the batch in its query."),
    "x-spark-partition": Extension("an integer", "Number of the partition in its batch."),
    "x-spark-row": Extension("an integer", "Number of the row in its partition."),
}
"""Headers that the Spark sink adds to the messages that it publishes."""

ANNOTATIONS: Final[Extensions] = {
    "x-exchange": Extension("a string", "Exchange that the message was published to."),
    "x-routing-key": Extension("a string", "Routing key that the message was published with."),
    "x-cc": Extension("a list of strings", "Further routing keys of the message, as the header `CC`."),
    "x-opt-shovelled-by": Extension("a string", "Name of the broker whose shovel has sent the message."),
    "x-opt-shovel-type": Extension("a string", "`dynamic`, as in RabbitMQ."),
    "x-opt-shovel-name": Extension("a string", "Name of the shovel that has sent the message."),
    "x-opt-shovelled-timestamp": Extension(
        "a timestamp", "Date at which a shovel has sent the message, in milliseconds since 1970."
    ),
    "x-opt-delivery-delay": Extension(
        "an integer", "Milliseconds of delay, as the header `x-delay` of AMQP 0-9-1."
    ),
    "x-opt-delivery-time": Extension(
        "a timestamp, or milliseconds since 1970",
        "Date of delivery, as the header `x-delivery-time` of AMQP 0-9-1.",
    ),
    "x-opt-deaths": Extension(
        "an array of maps", "Deaths of the message, as the header `x-death` of AMQP 0-9-1."
    ),
    "x-message-id": Extension(
        "any type", "Message-id of AMQP 1.0 that no short string of AMQP 0-9-1 can hold, as a header there."
    ),
    "x-correlation-id": Extension(
        "any type",
        "Correlation-id of AMQP 1.0 that no short string of AMQP 0-9-1 can hold, as a header there.",
    ),
    "x-basic-type": Extension("a string", "Property `type` of a message of AMQP 0-9-1."),
    "x-basic-format": Extension(
        "an integer", "Message format of a payload that is no message of AMQP 1.0's own format."
    ),
}
"""Message annotations of AMQP 1.0, and headers of messages that come from the other protocol."""

FILTERS: Final[Extensions] = {
    "apache.org:selector-filter:string": Extension(
        "a string",
        "Condition in the SQL of JMS. The link gets only messages for which the condition is true.",
    ),
    "amqp:sql-filter": Extension(
        "a string",
        "Condition in the SQL of AMQP Filter Expressions. The link gets only messages for which the "
        "condition is true.",
    ),
    "amqp:properties-filter": Extension(
        "a map", "Values that properties of a message must have for the link to get the message."
    ),
    "amqp:application-properties-filter": Extension(
        "a map", "Values that application properties of a message must have for the link to get the message."
    ),
    "apache.org:no-local-filter:list": Extension(
        "a list",
        "Leaves out the messages that the link's own connection sends, for subscriptions to exchanges.",
    ),
    "apache.org:legacy-amqp-direct-binding:string": Extension(
        "a string", "Routing key of a subscription to a direct exchange."
    ),
    "apache.org:legacy-amqp-topic-binding:string": Extension(
        "a string", "Binding key of a subscription to a topic exchange."
    ),
    "apache.org:legacy-amqp-headers-binding:map": Extension(
        "a map", "Binding arguments of a subscription to a headers exchange."
    ),
    "rabbitmq:stream-offset-spec": Extension(
        "as x-stream-offset", "Place in a stream where the link begins, as `x-stream-offset`."
    ),
    "rabbitmq:stream-filter": Extension(
        "a string, or a list of strings", "Filter values of a stream's messages, as `x-stream-filter`."
    ),
    "rabbitmq:stream-match-unfiltered": Extension(
        "a boolean",
        "Whether messages without a filter value come too, as `x-stream-match-unfiltered`.",
    ),
    "amqpd:stream-consumer-name": Extension(
        "a string", "Name under which a stream keeps the link's progress, as `x-stream-consumer-name`."
    ),
    "amqpd:stream-partition": Extension(
        "an integer", "Partition of the stream that the link reads, as `x-stream-partition`."
    ),
}
"""Filters of the source of a link of AMQP 1.0, beside the arguments of consumers."""
