"""The arguments of queues and exchanges: names, allowed values, and how they are read.

Each kind of queue has a line in the table `KINDS` here and a list class in `broker.core.streams.list.LISTS`.

A refusal begins with RabbitMQ's words and names the argument and the value. Arguments of RabbitMQ that have
no effect here are checked, kept and shown all the same; README.md lists them. Arguments that RabbitMQ does
not know are kept unchecked.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from broker.core.arguments.partition import PARTITION_BY, PARTITION_MEMBERS, PARTITIONED_ARGUMENTS
from broker.core.arguments.remote import REMOTE_ARGUMENTS, check_remote, is_remote
from broker.core.arguments.rule import ANY_SIZE, MILLISECONDS_MAX, ArgumentRule, Arguments, invalid
from broker.core.errors import PreconditionFailed
from broker.core.values import show, type_name

# bits, so that a queue can name several
NACK: Final[i64] = 1  # the client requeued the delivery with basic.nack
REJECT: Final[i64] = 2  # the client rejected the delivery and requeued it
RECOVER: Final[i64] = 4  # the client sent basic.recover
TIMEOUT: Final[i64] = 8  # the client did not settle the delivery in time
CRASH: Final[i64] = 16  # the channel, connection or broker was lost
RELEASED: Final[i64] = 32  # the client did not try to process the message
ALL: Final[i64] = 63
FAILURES: Final[i64] = 31  # all but RELEASED [amqp-1.0 3.4.4]

OUTCOMES: Final[tuple[str, ...]] = ("nack", "reject", "recover", "timeout", "crash", "released")
"""The names of outcomes in arguments, in the order of the bits."""


def outcomes_of(text: str) -> i64:
    """Return the bits of the outcomes that `text` names, with commas between them."""
    bits: i64 = 0
    for name in text.split(","):
        bits |= 1 << OUTCOMES.index(name.strip())
    return bits


JOURNAL: Final = "x-journal"
OFF: Final = "off"
LIFECYCLE: Final = "lifecycle"
FULL: Final = "full"
LEVELS: Final[tuple[str, ...]] = (OFF, LIFECYCLE, FULL)

INDEX: Final = "x-index"
STANDARD_ARGUMENTS: Final[dict[str, ArgumentRule]] = {
    INDEX: ArgumentRule(
        "headers",
        high=16,
        description="Names of headers or properties, with commas between them, that the queue indexes. "
        "A selector that compares an indexed one with a value is a look-up.",
    )
}

MAX_PRIORITY: Final = "x-max-priority"
PRIORITY_MAPPING: Final = "x-priority-mapping"
AMQP: Final = "amqp"
MAPPINGS: Final[tuple[str, ...]] = ("rabbitmq", AMQP)
PRIORITY_ARGUMENTS: Final = {
    MAX_PRIORITY: ArgumentRule(
        "int",
        0,
        255,
        description="Highest priority level of a priority queue. A message without a priority has level "
        "0, and a higher priority counts as the highest level.",
    ),
    PRIORITY_MAPPING: ArgumentRule(
        "str",
        choices=MAPPINGS,
        description="Mapping of priorities to levels. With `amqp` a message without a priority has 4, "
        "and the ten priorities of JMS and AMQP 1.0 are spread over fewer levels. "
        "`rabbitmq` is the default.",
    ),
}

LEVELS_MAX: Final = 256
HIGHEST: Final = 9  # priority of a queue that says no other: those of AMQP 0-9-1 are 0 to 9
NORMAL: Final[i64] = 4  # for a message without a priority, where priorities are mapped [amqp-1.0 3.2.1]

SORT_KEY: Final = "x-sort-key"
SORTED_ARGUMENTS: Final = {
    SORT_KEY: ArgumentRule(
        "header",
        description="Name of the header by which a sorted queue orders messages: the smallest value "
        "first, messages without the header before all others.",
    )
}

LAST_VALUE_KEY: Final = "x-last-value-key"
LAST_VALUE_ARGUMENTS: Final = {
    LAST_VALUE_KEY: ArgumentRule(
        "header",
        description="Name of the header of a last-value queue. The queue keeps the latest of the "
        "messages that have the same value of this header.",
    )
}

STRICT_ORDER: Final = "x-strict-order"
GROUP_KIND: Final = "x-group-kind"
GROUP_KEY: Final = "x-group-key"
GROUP_LIMIT: Final = "x-group-limit"
GROUP_REBALANCE: Final = "x-group-rebalance"
STICKY: Final = "sticky"
SHARED: Final = "shared"


def discipline_rules() -> dict[str, ArgumentRule]:
    """The rules for the arguments of strict order and message groups."""
    return {
        GROUP_KIND: ArgumentRule(
            "str",
            choices=(STICKY, SHARED),
            description="Message groups: messages with the same key go to one consumer at a time, in their "
            "order. A `sticky` group (default) stays with its consumer until the consumer ends. "
            "A `shared` group is free when none of its messages is unsettled.",
        ),
        GROUP_KEY: ArgumentRule(
            "header",
            description="Name of the header whose value is the group of a message. The default is "
            "`x-group-id`, else `JMSXGroupID`.",
        ),
        GROUP_LIMIT: ArgumentRule(
            "int",
            0,
            ANY_SIZE,
            description="Number of sticky groups without messages whose owners the queue remembers: 1024 by "
            "default.",
        ),
        GROUP_REBALANCE: ArgumentRule(
            "bool",
            description="Whether sticky groups become free when a consumer attaches, as soon as their "
            "deliveries are settled or returned.",
        ),
        STRICT_ORDER: ArgumentRule(
            "bool",
            description="Whether the queue delivers a message only while no other message is unsettled, so "
            "that a returned message is never overtaken. In a queue with groups this holds "
            "within each group.",
        ),
    }


def check_discipline(arguments: Arguments, queue: str) -> None:
    """Check that arguments, each of which is allowed by itself, go together.

    Raises:
        PreconditionFailed: an argument is for sticky groups, which the queue does not have.
    """
    for name in (GROUP_LIMIT, GROUP_REBALANCE):
        if name not in arguments:
            continue
        if not has_groups(arguments):
            raise invalid(name, queue, arguments[name], f"needs {GROUP_KIND} or {GROUP_KEY}")
        if arguments.get(GROUP_KIND) == SHARED:
            raise invalid(name, queue, arguments[name], f"does not go with {GROUP_KIND}, {SHARED}")


def has_groups(arguments: Arguments) -> bool:
    """Whether a queue has message groups."""
    return GROUP_KIND in arguments or GROUP_KEY in arguments


DELIVERY_COUNT_ON: Final = "x-delivery-count-on"
RETRY_MIN: Final = "x-retry-min"
RETRY_MAX: Final = "x-retry-max"
RETRY_MULTIPLIER: Final = "x-retry-multiplier"
RETRY_JITTER: Final = "x-retry-jitter"
DELAYED_RETRY_TYPE: Final = "x-delayed-retry-type"
DELAYED_RETRY_MIN: Final = "x-delayed-retry-min"
DELAYED_RETRY_MAX: Final = "x-delayed-retry-max"
DISABLED: Final = "disabled"


def retry_rules() -> dict[str, ArgumentRule]:
    """The rules for the arguments of retries: amqpd's own, then RabbitMQ's."""
    return {
        DELIVERY_COUNT_ON: ArgumentRule(
            "set",
            choices=OUTCOMES,
            description="Kinds of returns that count towards `x-delivery-limit`, with commas between them. "
            "All kinds but `released` count by default.",
        ),
        RETRY_MIN: ArgumentRule(
            "int",
            1,
            MILLISECONDS_MAX,
            description="Milliseconds that a message waits at its place after its first return, while other "
            "messages are delivered.",
        ),
        RETRY_MAX: ArgumentRule(
            "int",
            1,
            MILLISECONDS_MAX,
            description="Longest wait before a retry, in milliseconds. The argument needs `x-retry-min`.",
        ),
        RETRY_MULTIPLIER: ArgumentRule(
            "number",
            1,
            1000,
            description="Factor by which the wait grows with each return: 2 by default. The argument needs "
            "`x-retry-min`.",
        ),
        RETRY_JITTER: ArgumentRule(
            "number",
            0,
            1,
            description="Largest share of the wait that is added to the wait by chance: 0 by default. The "
            "argument needs `x-retry-min`.",
        ),
        DELAYED_RETRY_TYPE: ArgumentRule(
            "str",
            choices=(DISABLED, "all", "failed", "returned"),
            description="Returns after which a message waits before its retry, as RabbitMQ names them. The "
            "wait grows linearly. Does not go with `x-retry-min`.",
        ),
        DELAYED_RETRY_MIN: ArgumentRule(
            "int",
            0,
            MILLISECONDS_MAX,
            description="Milliseconds of the wait after the first return, where `x-delayed-retry-type` asks "
            "for one.",
        ),
        DELAYED_RETRY_MAX: ArgumentRule(
            "int",
            0,
            MILLISECONDS_MAX,
            description="Longest wait in milliseconds, where `x-delayed-retry-type` asks for one.",
        ),
    }


def check_retry(arguments: Arguments, queue: str) -> None:
    """Refuse retry arguments that contradict each other; each one is allowed by itself.

    Raises:
        PreconditionFailed: the refusal names both arguments.
    """
    for name in (RETRY_MAX, RETRY_MULTIPLIER, RETRY_JITTER):
        if name in arguments and RETRY_MIN not in arguments:
            raise invalid(name, queue, arguments[name], f"needs {RETRY_MIN}")
    if RETRY_MIN in arguments and arguments.get(DELAYED_RETRY_TYPE, DISABLED) != DISABLED:
        raise invalid(RETRY_MIN, queue, arguments[RETRY_MIN], f"does not go with {DELAYED_RETRY_TYPE}")
    for least, most in ((RETRY_MIN, RETRY_MAX), (DELAYED_RETRY_MIN, DELAYED_RETRY_MAX)):
        shortest, longest = arguments.get(least, 0), arguments.get(most, MILLISECONDS_MAX)
        assert isinstance(shortest, int), "its own rule has been asked"
        assert isinstance(longest, int), "its own rule has been asked"
        if shortest > longest:
            raise invalid(most, queue, longest, f"is less than {least}")


QUEUE_KIND: Final = "x-queue-kind"
STANDARD: Final = "standard"
PRIORITY_KIND: Final = "priority"
SORTED_KIND: Final = "sorted"
LAST_VALUE_KIND: Final = "last-value"

PARTITIONED_KIND: Final = "partitioned"

NON_DESTRUCTIVE: Final = "x-non-destructive"
QUEUE_TYPE: Final = "x-queue-type"
STREAM: Final = "stream"

Rules = dict[str, ArgumentRule]


@final
class Kind:
    """A kind of queues.

    `rules`: the arguments that only this kind may have. `needs`: the arguments that this kind must have.
    `LISTS` has the class of the list of this kind.
    """

    def __init__(self, rules: Rules, *needs: str) -> None:
        self.rules = rules
        self.needs = needs


_KEEPING: Final[Rules] = {
    NON_DESTRUCTIVE: ArgumentRule(
        "bool",
        description="Whether consumers see the messages of the queue without removing them, as browsers "
        "do. Messages leave by expiry, limits, replacement, purge or deletion.",
    )
}

KINDS: Final[dict[str, Kind]] = {
    STANDARD: Kind(STANDARD_ARGUMENTS | _KEEPING),
    PRIORITY_KIND: Kind(PRIORITY_ARGUMENTS),
    SORTED_KIND: Kind(SORTED_ARGUMENTS, SORT_KEY),
    LAST_VALUE_KIND: Kind(LAST_VALUE_ARGUMENTS | _KEEPING, LAST_VALUE_KEY),
    PARTITIONED_KIND: Kind(PARTITIONED_ARGUMENTS, PARTITION_BY, PARTITION_MEMBERS),
}


def kind_rules() -> Rules:
    """The rules for `x-queue-kind` itself and for the arguments of all kinds."""
    rules: Rules = {
        QUEUE_KIND: ArgumentRule(
            "str",
            choices=tuple(KINDS),
            description="Kind of the queue: `standard` (first in, first out), `priority`, `sorted`, "
            "`last-value` or `partitioned`. An argument that only one kind has chooses that kind too.",
        )
    }
    for kind in KINDS.values():
        rules |= kind.rules
    return rules


def kind_of(arguments: Arguments) -> str:
    """Return the kind in `x-queue-kind`, or else the kind that one of the other arguments implies."""
    named = arguments.get(QUEUE_KIND)
    if isinstance(named, str):
        return named
    telling = [name for name in arguments if name not in KINDS[STANDARD].rules]
    for name, kind in KINDS.items():
        if any(argument in kind.rules for argument in telling):
            return name
    return STANDARD


def check_kind(arguments: Arguments, queue: str) -> None:
    """Check that arguments, each of which is allowed by itself, are all for one kind of queue.

    Raises:
        PreconditionFailed: an argument is for another kind, or the argument that the kind needs is missing.
    """
    name = kind_of(arguments)
    kind = KINDS[name]
    for other in KINDS.values():
        for argument in other.rules:
            if argument in arguments and argument not in kind.rules:
                raise invalid(
                    argument, queue, arguments[argument], f"cannot be with {_describe_kind(arguments)}"
                )
    for needed in kind.needs:
        if needed not in arguments:
            raise invalid(QUEUE_KIND, queue, name, f"needs {needed}")


def _describe_kind(arguments: Arguments) -> str:
    """Return the argument that decides the queue's kind, for refusals."""
    if QUEUE_KIND in arguments:
        return f"{QUEUE_KIND} '{arguments[QUEUE_KIND]}'"
    kind = KINDS[kind_of(arguments)]
    return next(name for name in kind.rules if name in arguments and name not in KINDS[STANDARD].rules)


def is_non_destructive(arguments: Arguments) -> bool:
    """Whether consumers read the queue's messages without removing them. [Artemis non-destructive queues]"""
    return arguments.get(NON_DESTRUCTIVE) is True or is_stream(arguments)


def is_stream(arguments: Arguments) -> bool:
    """Whether a queue is a stream: all consumers read its messages from any offset. [RabbitMQ streams]"""
    return arguments.get(QUEUE_TYPE) == STREAM


def is_partitioned(arguments: Arguments) -> bool:
    """Whether a queue has no messages of its own: each message goes to one of its members."""
    return kind_of(arguments) == PARTITIONED_KIND


ALTERNATE_EXCHANGE: Final = "alternate-exchange"
EXPIRES: Final = "x-expires"
EXPIRES_IF_EMPTY: Final = "x-expires-if-empty"
MESSAGE_TTL: Final = "x-message-ttl"
MAX_LENGTH: Final = "x-max-length"
MAX_LENGTH_BYTES: Final = "x-max-length-bytes"
OVERFLOW: Final = "x-overflow"
MAX_AGE: Final = "x-max-age"
SEGMENT_BYTES: Final = "x-stream-max-segment-size-bytes"
PARTITIONS: Final = "x-partitions"
PARTITIONS_MAX: Final = 256
DELAYED_TYPE: Final = "x-delayed-type"
DEAD_LETTER_EXCHANGE: Final = "x-dead-letter-exchange"
DEAD_LETTER_ROUTING_KEY: Final = "x-dead-letter-routing-key"
DEAD_LETTER_REASONS: Final = "x-dead-letter-reasons"
DEAD_LETTER_STRATEGY: Final = "x-dead-letter-strategy"
AT_MOST_ONCE: Final = "at-most-once"
AT_LEAST_ONCE: Final = "at-least-once"
DROP_HEAD: Final = "drop-head"
MAXLEN: Final = "maxlen"
DEATHS: Final[tuple[str, ...]] = ("rejected", "expired", MAXLEN, "delivery_limit")
DEATHS_WITH_QUEUE: Final[tuple[str, ...]] = ("queue_expired", "queue_deleted")
REJECT_PUBLISH_DLX: Final = "reject-publish-dlx"
DEFAULT_QUEUE_TYPE: Final = "classic"
QUORUM: Final = "quorum"
DELIVERY_LIMIT: Final = "x-delivery-limit"
SINGLE_ACTIVE_CONSUMER: Final = "x-single-active-consumer"
CONSUMER_TIMEOUT: Final = "x-consumer-timeout"
ALL_CONSUMERS_EXCLUSIVE: Final = "x-all-consumers-exclusive"
EXCLUSIVE_TAKEOVER: Final = "x-exclusive-takeover"
DRAIN: Final = "drain"
DISPATCH: Final = "x-dispatch"
GET_WAIT: Final = "x-get-wait"
CONSUMERS_BEFORE_DISPATCH: Final = "x-consumers-before-dispatch"
DELAY_BEFORE_DISPATCH: Final = "x-delay-before-dispatch"
STRICT: Final = "strict"
VOLATILE: Final = "x-volatile"
DEDUP_WINDOW: Final = "x-dedup-window"
DEDUP_LIMIT: Final = "x-dedup-limit"
DEDUP_PRODUCERS: Final = "x-dedup-producers"

_LEADER_LOCATORS: Final[tuple[str, ...]] = (
    "client-local",
    "balanced",
    "random",
    "least-leaders",
    "min-masters",
)


QUEUE_RULES: Final[dict[str, ArgumentRule]] = {
    EXPIRES: ArgumentRule(
        "int",
        1,
        MILLISECONDS_MAX,
        description="Milliseconds without consumers, basic.get and redeclaration after which the broker "
        "deletes the queue. Messages that wait to be dead-lettered keep the queue.",
    ),
    EXPIRES_IF_EMPTY: ArgumentRule(
        "bool", description="Whether `x-expires` deletes the queue only while the queue has no messages."
    ),
    MESSAGE_TTL: ArgumentRule(
        "int",
        0,
        MILLISECONDS_MAX,
        description="Milliseconds that a message may wait in the queue, also while the broker is down. "
        "The smaller of this value and the message's `expiration` counts. With 0 a message "
        "is delivered at once or never.",
    ),
    DEAD_LETTER_EXCHANGE: ArgumentRule(
        "short",
        description="Name of the exchange that gets the dead letters of the queue: messages that are "
        "rejected, expire, exceed a limit or are delivered too often.",
    ),
    DEAD_LETTER_ROUTING_KEY: ArgumentRule(
        "short",
        description="Routing key of dead letters. A dead letter keeps its own routing keys without this "
        "argument. The argument needs `x-dead-letter-exchange`.",
    ),
    DEAD_LETTER_REASONS: ArgumentRule(
        "set",
        choices=DEATHS + DEATHS_WITH_QUEUE,
        description="Reasons for which the queue dead-letters a message, with commas between them. The "
        "queue discards a message that dies for another reason. The default is all but "
        "`queue_expired` and `queue_deleted`, which dead-letter the messages of a queue "
        "that ends.",
    ),
    DEAD_LETTER_STRATEGY: ArgumentRule(
        "str",
        choices=(AT_MOST_ONCE, AT_LEAST_ONCE),
        description="Fate of a dead letter that no queue takes. With `at-least-once` the message waits "
        "until all queues of the route take it. With `at-most-once` the broker drops and "
        "counts the message. The default is `at-least-once` for quorum queues that refuse "
        "publishes, else `at-most-once`. `at-least-once` has no effect with `x-overflow` = "
        "`drop-head`.",
    ),
    MAX_LENGTH: ArgumentRule(
        "int",
        0,
        ANY_SIZE,
        description="Largest number of ready messages. `x-overflow` decides what happens to one more. "
        "Messages that wait to be dead-lettered count too.",
    ),
    MAX_LENGTH_BYTES: ArgumentRule(
        "int",
        0,
        ANY_SIZE,
        description="Largest sum of the bodies of ready messages, in bytes. For a stream: the bytes of "
        "files that the stream keeps.",
    ),
    "x-max-in-memory-length": ArgumentRule(
        "int",
        0,
        ANY_SIZE,
        description="Checked, kept and shown for RabbitMQ's clients, without effect: message bodies "
        "leave memory when memory is short.",
    ),
    "x-max-in-memory-bytes": ArgumentRule(
        "int",
        0,
        ANY_SIZE,
        description="Checked, kept and shown for RabbitMQ's clients, without effect: message bodies "
        "leave memory when memory is short.",
    ),
    OVERFLOW: ArgumentRule(
        "str",
        choices=(DROP_HEAD, "reject-publish", REJECT_PUBLISH_DLX),
        description="Fate of a message for a full queue. `drop-head` (default) drops the oldest message "
        "of the lowest priority. `reject-publish` refuses the new message with basic.nack, "
        "and no queue gets it. `reject-publish-dlx` refuses and dead-letters the new "
        "message.",
    ),
    **kind_rules(),
    SINGLE_ACTIVE_CONSUMER: ArgumentRule(
        "bool",
        description="Whether the queue serves a single consumer at a time: the first one of the highest "
        "`x-priority`. The next consumer starts when the deliveries of the one before are "
        "settled or returned. basic.get is refused.",
    ),
    ALL_CONSUMERS_EXCLUSIVE: ArgumentRule(
        "bool",
        description="Whether each consumer of the queue asks for exclusive service, as with "
        "`x-exclusive-consumer`.",
    ),
    CONSUMERS_BEFORE_DISPATCH: ArgumentRule(
        "int",
        1,
        1_000_000,
        description="Number of consumers that must be attached before the queue delivers messages. "
        "Browsers do not count. The wait begins anew when no consumer is left.",
    ),
    DELAY_BEFORE_DISPATCH: ArgumentRule(
        "int",
        0,
        MILLISECONDS_MAX,
        description="Milliseconds after the first consumer attached at which the queue delivers, even "
        "if `x-consumers-before-dispatch` is not reached.",
    ),
    GET_WAIT: ArgumentRule(
        "int",
        0,
        MILLISECONDS_MAX,
        description="Milliseconds that basic.get on the empty queue waits for a message. Later requests "
        "on the same channel wait too. A client property of the same name comes first.",
    ),
    DISPATCH: ArgumentRule(
        "str",
        choices=("round-robin", STRICT),
        description="Order in which consumers of one priority are served. `round-robin` (default) gives "
        "equal shares. With `strict` the consumer that attached first gets each message, as "
        "long as the consumer has credit.",
    ),
    EXCLUSIVE_TAKEOVER: ArgumentRule(
        "str",
        choices=("immediate", DRAIN),
        description="Start of the next exclusive consumer. `drain` waits until all deliveries of the "
        "other consumers are settled. `immediate` does not wait. The default waits for the "
        "deliveries of a cancelled consumer only, up to the setting `exclusive_drain_ms`.",
    ),
    QUEUE_TYPE: ArgumentRule(
        "str",
        choices=(DEFAULT_QUEUE_TYPE, QUORUM, STREAM),
        description="Type of the queue. `classic` is the default. `quorum` must be durable and has a "
        "delivery limit of 20 by default. `stream` keeps messages, and every consumer reads "
        "all of them.",
    ),
    "x-queue-mode": ArgumentRule(
        "str",
        choices=("default", "lazy"),
        description="Checked, kept and shown for RabbitMQ's clients, without effect: message bodies "
        "leave memory when memory is short.",
    ),
    "x-queue-version": ArgumentRule(
        "int",
        1,
        2,
        description="Checked, kept and shown for RabbitMQ's clients, without effect: there is a single "
        "format of queues.",
    ),
    "x-queue-master-locator": ArgumentRule(
        "str",
        description="Checked, kept and shown for RabbitMQ's clients, without effect: the broker is a "
        "single node.",
    ),
    "x-queue-leader-locator": ArgumentRule(
        "str",
        choices=_LEADER_LOCATORS,
        description="Checked, kept and shown for RabbitMQ's clients, without effect: the broker is a "
        "single node.",
    ),
    "x-quorum-initial-group-size": ArgumentRule(
        "int",
        1,
        ANY_SIZE,
        description="Checked, kept and shown for RabbitMQ's clients, without effect: the broker is a "
        "single node.",
    ),
    CONSUMER_TIMEOUT: ArgumentRule(
        "int",
        1,
        MILLISECONDS_MAX,
        description="Milliseconds in which a delivery must be settled. A late delivery goes back to the "
        "queue, while consumer and channel live on. A consumer's value comes first, the "
        "setting `consumer_timeout_ms` last.",
    ),
    DELIVERY_LIMIT: ArgumentRule(
        "int",
        -1,
        ANY_SIZE,
        description="Number of returns after which a message is dead-lettered, or dropped without a "
        "dead-letter exchange. -1 means no limit. `x-delivery-count-on` says which returns "
        "count. Counts survive a restart.",
    ),
    **retry_rules(),
    "x-member-placement-tag": ArgumentRule(
        "name",
        description="Checked, kept and shown for RabbitMQ's clients, without effect: the broker is a "
        "single node.",
    ),
    MAX_AGE: ArgumentRule(
        "age",
        description="Age after which a stream drops messages, such as `7D`, file by file. The units are "
        "Y, M, D, h, m and s. Without effect on other queues.",
    ),
    SEGMENT_BYTES: ArgumentRule(
        "int",
        1,
        ANY_SIZE,
        description="Size of one file of a stream, in bytes: 64 MiB by default, at least 1 MiB and at "
        "most 1 GiB. A new value counts from the next start of the broker. Without effect "
        "on other queues.",
    ),
    PARTITIONS: ArgumentRule(
        "int",
        1,
        PARTITIONS_MAX,
        description="Number of partitions of a stream. Each partition has an order and offsets of its "
        "own. The header `x-partition-key`, or else the routing key, chooses the partition "
        "of a message.",
    ),
    "x-stream-filter-size-bytes": ArgumentRule(
        "int",
        16,
        255,
        description="Checked, kept and shown for RabbitMQ's clients, without effect: filters look at "
        "each message and never err.",
    ),
    "x-initial-cluster-size": ArgumentRule(
        "int",
        1,
        ANY_SIZE,
        description="Checked, kept and shown for RabbitMQ's clients, without effect: the broker is a "
        "single node.",
    ),
    VOLATILE: ArgumentRule(
        "bool",
        description="Whether the messages of the queue stay out of the log. A confirm then does not "
        "wait for the disk, and a restart loses the messages. The queue itself may be "
        "durable.",
    ),
    JOURNAL: ArgumentRule(
        "str",
        choices=LEVELS,
        description="Amount of the queue's events that the journal has: `off`, `lifecycle` (in and out) "
        "or `full` (deliveries and confirms too). A policy comes before the argument, the "
        "argument before the setting `journal`.",
    ),
    DEDUP_WINDOW: ArgumentRule(
        "int",
        1,
        MILLISECONDS_MAX,
        description="Milliseconds for which the queue remembers the `message-id` of a message. The "
        "broker acknowledges a duplicate to its publisher, and the queue does not get it. A "
        "mandatory duplicate is returned.",
    ),
    DEDUP_LIMIT: ArgumentRule(
        "int",
        1,
        ANY_SIZE,
        description="Largest number of message ids that the queue remembers: 100,000 by default. The "
        "argument needs `x-dedup-window`.",
    ),
    DEDUP_PRODUCERS: ArgumentRule(
        "int",
        1,
        ANY_SIZE,
        description="Number of producers whose highest `x-sequence` the queue remembers. A message "
        "whose `x-sequence` is not above the highest one of its `x-producer` is a "
        "duplicate.",
    ),
    **discipline_rules(),
    **REMOTE_ARGUMENTS,
}
"""The arguments of queues, in the order in which the broker checks and compares them."""

STREAM_ARGUMENTS: Final = (
    QUEUE_TYPE,
    MAX_AGE,
    MAX_LENGTH_BYTES,
    SEGMENT_BYTES,
    PARTITIONS,
    "x-stream-filter-size-bytes",
    "x-initial-cluster-size",
    "x-queue-leader-locator",
    "x-queue-version",
)


FRONT_ARGUMENTS: Final = (
    QUEUE_KIND,
    *PARTITIONED_ARGUMENTS,
    QUEUE_TYPE,
    SINGLE_ACTIVE_CONSUMER,
    DISPATCH,
    CONSUMERS_BEFORE_DISPATCH,
    DELAY_BEFORE_DISPATCH,
    CONSUMER_TIMEOUT,
    GET_WAIT,
    EXPIRES,
    "x-queue-mode",
    "x-queue-version",
    "x-queue-master-locator",
    "x-queue-leader-locator",
    "x-quorum-initial-group-size",
    "x-member-placement-tag",
    "x-initial-cluster-size",
)
"""The arguments of partitioned queues: what concerns messages belongs to the members."""


def queue_argument_objection(name: str, value: object) -> str:
    """Return what a queue argument `name` allows instead of `value`; "" if `value` is allowed."""
    return QUEUE_RULES[name].objection(value)


def check_queue_arguments(arguments: Arguments, queue: str) -> None:
    """Check the arguments of a queue; `queue` is its description for the refusal, `queue 'q' in vhost '/'`.

    Raises:
        PreconditionFailed: an argument has a value that it cannot have, or cannot be with another.
    """
    for name, rule in QUEUE_RULES.items():
        if name in arguments:
            allowed = rule.objection(arguments[name])
            if allowed:
                raise invalid(name, queue, arguments[name], f"is not {allowed}")
    for name in (DEAD_LETTER_ROUTING_KEY, DEAD_LETTER_REASONS):
        if name in arguments and DEAD_LETTER_EXCHANGE not in arguments:
            raise invalid(name, queue, arguments[name], f"needs {DEAD_LETTER_EXCHANGE}")
    if arguments.get(OVERFLOW) == REJECT_PUBLISH_DLX and MAXLEN not in dead_letter_reasons(arguments):
        reasons = arguments[DEAD_LETTER_REASONS]
        raise invalid(
            DEAD_LETTER_REASONS, queue, reasons, f"does not go with {OVERFLOW}, {REJECT_PUBLISH_DLX}"
        )
    _check_stream(arguments, queue)
    check_kind(arguments, queue)
    _check_partitioned(arguments, queue)
    check_remote(arguments, QUEUE_RULES, queue)
    check_discipline(arguments, queue)
    check_retry(arguments, queue)
    if is_non_destructive(arguments):
        for name in (
            SINGLE_ACTIVE_CONSUMER,
            ALL_CONSUMERS_EXCLUSIVE,
            EXCLUSIVE_TAKEOVER,
            STRICT_ORDER,
            GROUP_KIND,
            GROUP_KEY,
        ):
            if arguments.get(name, False) is not False:
                why = f"does not go with {NON_DESTRUCTIVE}: everybody sees everything"
                raise invalid(name, queue, arguments[name], why)
    if has_single_active_consumer(arguments):
        for name in (ALL_CONSUMERS_EXCLUSIVE, EXCLUSIVE_TAKEOVER, GET_WAIT):
            if arguments.get(name, False) is not False:
                why = f"does not go with {SINGLE_ACTIVE_CONSUMER}"
                raise invalid(name, queue, arguments[name], why)
    if is_volatile(arguments) and is_quorum(arguments):
        raise invalid(VOLATILE, queue, True, f"does not go with {QUEUE_TYPE}, {QUORUM}")
    if DEDUP_LIMIT in arguments and DEDUP_WINDOW not in arguments:
        raise invalid(DEDUP_LIMIT, queue, arguments[DEDUP_LIMIT], f"needs {DEDUP_WINDOW}")


def _check_stream(arguments: Arguments, queue: str) -> None:
    """Refuse arguments that mean nothing to a stream, which keeps every message for all consumers."""
    if not is_stream(arguments):
        if PARTITIONS in arguments:
            raise invalid(PARTITIONS, queue, arguments[PARTITIONS], f"needs {QUEUE_TYPE} '{STREAM}'")
        return
    for name in arguments:
        if name in QUEUE_RULES and name not in STREAM_ARGUMENTS:
            raise invalid(name, queue, arguments[name], f"does not go with {QUEUE_TYPE} '{STREAM}'")


def _check_partitioned(arguments: Arguments, queue: str) -> None:
    """Refuse arguments of a partitioned queue that concern messages, which its members have."""
    if not is_partitioned(arguments):
        return
    for name in arguments:
        if name in QUEUE_RULES and name not in FRONT_ARGUMENTS:
            why = f"does not go with {QUEUE_KIND} '{PARTITIONED_KIND}': it belongs to the members"
            raise invalid(name, queue, arguments[name], why)


def check_exchange_arguments(arguments: Arguments, exchange: str) -> None:
    """Check the arguments of an exchange; `exchange` is its description, `exchange 'x' in vhost '/'`.

    Raises:
        PreconditionFailed: the alternate exchange is not named by a string.
    """
    if ALTERNATE_EXCHANGE in arguments:
        value = arguments[ALTERNATE_EXCHANGE]
        if not isinstance(value, str):
            raise PreconditionFailed(
                f"invalid type '{type_name(value)}' for arg '{ALTERNATE_EXCHANGE}' in {exchange}: "
                f"'{show(value)}'"
            )


def number_argument(arguments: Arguments, name: str, default: i64) -> i64:
    """Return a checked integer argument of a queue, or `default`."""
    value = arguments.get(name)
    if value is None:
        return default
    assert isinstance(value, int), "arguments are checked before a queue is made"
    return value


def text_argument(arguments: Arguments, name: str) -> str | None:
    """Return a checked string argument of a queue; None if the queue does not have this argument."""
    value = arguments.get(name)
    assert value is None or isinstance(value, str), "arguments are checked before a queue is made"
    return value


def dead_letter_reasons(arguments: Arguments) -> list[str]:
    """Return the reasons for which a queue dead-letters messages, DEATHS by default.

    The arguments are checked.
    """
    reasons = text_argument(arguments, DEAD_LETTER_REASONS)
    return list(DEATHS) if reasons is None else [name.strip() for name in reasons.split(",")]


def requested_strategy(effective: Arguments, declared: Arguments) -> str:
    """Return the dead-letter strategy that a queue asks for; `declared` has its queue type.

    A quorum queue without an explicit strategy that rejects publishes when it is full asks for at-least-once.
    """
    strategy = text_argument(effective, DEAD_LETTER_STRATEGY)
    if strategy is not None:
        return strategy
    return AT_LEAST_ONCE if is_quorum(declared) and not _drops_head(effective) else AT_MOST_ONCE


def is_dead_lettered_at_least_once(effective: Arguments, declared: Arguments) -> bool:
    """Whether a queue dead-letters at least once. With drop-head it never does.

    [RabbitMQ dead-letter-strategy]
    """
    return requested_strategy(effective, declared) == AT_LEAST_ONCE and not _drops_head(effective)


def strategy_warning(effective: Arguments, declared: Arguments) -> str:
    """Return why a queue that asks for at-least-once dead-letters at most once.

    "" without such a conflict.
    """
    if requested_strategy(effective, declared) == AT_MOST_ONCE or not _drops_head(effective):
        return ""
    return (
        f"{DEAD_LETTER_STRATEGY} '{AT_LEAST_ONCE}' has no effect with {OVERFLOW} '{DROP_HEAD}': "
        f"dead letters that no queue takes are dropped; set {OVERFLOW} to 'reject-publish'"
    )


def _drops_head(effective: Arguments) -> bool:
    return effective.get(OVERFLOW, DROP_HEAD) == DROP_HEAD


def is_volatile(arguments: Arguments) -> bool:
    """Whether the messages of a queue are never written to the log."""
    return arguments.get(VOLATILE) is True


def is_quorum(arguments: Arguments) -> bool:
    """Whether a queue behaves as RabbitMQ's quorum queues do."""
    return arguments.get(QUEUE_TYPE) == QUORUM


def check_lifetime(
    arguments: Arguments, durable: bool, exclusive: bool, auto_delete: bool, queue: str
) -> None:
    """Refuse a quorum queue, stream or remote queue that is not durable, is exclusive, or is auto-delete.

    Raises:
        PreconditionFailed: the refusal names the property that the queue cannot have.
    """
    if is_quorum(arguments) or is_stream(arguments) or is_remote(arguments):
        for wrong, name in (
            (auto_delete, "auto-delete"),
            (exclusive, "exclusive-owner"),
            (not durable, "non-durable"),
        ):
            if wrong:
                raise PreconditionFailed(f"invalid property '{name}' for {queue}")


def has_single_active_consumer(arguments: Arguments) -> bool:
    """Whether a queue serves one consumer at a time."""
    return arguments.get(SINGLE_ACTIVE_CONSUMER) is True
