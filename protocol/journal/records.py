"""Records of the journal: a record for each operation on a message in a queue. Version 2, little-endian.

    0 seq 8 | 8 microseconds since 1970 8 | 16 uid 8 | 24 qpos 8 | 32 other 8 | 40 queue 4 | 44 place 4
    | 48 actor 4 | 52 size 4 | 56 op 1 | 57 flags 1 | 58 reason 1 | 59 zero 1 | 60 deliveries 2 | 62 heap 2

`seq` grows by 1 from record to record. `uid`: the message, 0 for none. `qpos`: the place in the queue, -1 for
none; smaller places are delivered earlier. In a stream `qpos` is the offset.

`other` depends on the operation. For `enqueue` and `append`: the uid of the message from which the message
was made. For `purge` and `trim`: the first place. For `checkpoint`: the number of unacknowledged messages.
For `rollback`: the number of settlements that were undone. For `gap`: the first seq that may be missing.

`queue`, `place` and `actor` are numbers of names (`names`), 0 for none. `place`: a route, or the other queue.
`actor`: a session, a consumer, an operator, or a consumer of an operator. `size`: the bytes of the body, or
the number of messages of a record for many messages.

`heap`: the bytes of text in the heap of the block. For `enqueue`, `append`, `unroutable` and `refuse`: the
message-id. For `gap` and `rollback`: the cause. For `start`: the version. For `change`: the definition as
JSON. A definition of more than CHANGE_MAX bytes is replaced by its names and `"cut": true`. For `forward`:
the shovel or the link as JSON, of at most CHANGE_MAX bytes.

Version 1 differs in `gap`: `other` and `size` are 0, so the missing events are unknown.
"""

from typing import Final

from mypy_extensions import i64

RECORD_BYTES: Final = 64
FORMAT: Final = "<qqqqqIIIIBBBBHH"
DELIVERIES_MAX: Final[i64] = 0xFFFF
SIZE_MAX: Final[i64] = 0xFFFFFFFF
TEXT_MAX: Final[i64] = 255  # bytes
CHANGE_MAX: Final[i64] = 16_384  # bytes of a definition

OPS: Final[tuple[str, ...]] = (
    "",
    "enqueue",
    "deliver",
    "requeue",
    "ack",
    "reject",
    "expire",
    "dead_letter",
    "drop_overflow",
    "replace",
    "remove",
    "purge",
    "queue_delete",
    "declare",
    "checkpoint",
    "recover",
    "gap",
    "level",
    "unroutable",
    "confirm",
    "end",
    "stage",
    "lost",
    "start",
    "change",
    "refuse",
    "rollback",
    "append",
    "read",
    "trim",
    "forward",
)
"""The operations, by their numbers."""

ENQUEUE: Final[i64] = 1
DELIVER: Final[i64] = 2
REQUEUE: Final[i64] = 3
ACK: Final[i64] = 4
REJECT: Final[i64] = 5
EXPIRE: Final[i64] = 6
DEAD_LETTER: Final[i64] = 7
DROP_OVERFLOW: Final[i64] = 8
REPLACE: Final[i64] = 9
REMOVE: Final[i64] = 10
PURGE: Final[i64] = 11
QUEUE_DELETE: Final[i64] = 12
DECLARE: Final[i64] = 13
CHECKPOINT: Final[i64] = 14
RECOVER: Final[i64] = 15
GAP: Final[i64] = 16
LEVEL: Final[i64] = 17
UNROUTABLE: Final[i64] = 18
CONFIRM: Final[i64] = 19
END: Final[i64] = 20
STAGE: Final[i64] = 21
LOST: Final[i64] = 22
START: Final[i64] = 23
CHANGE: Final[i64] = 24
REFUSE: Final[i64] = 25
ROLLBACK: Final[i64] = 26
APPEND: Final[i64] = 27
READ: Final[i64] = 28
TRIM: Final[i64] = 29
FORWARD: Final[i64] = 30

REASONS: Final[tuple[str, ...]] = (
    "",
    "dead_letter",
    "moved",
    "copied",
    "delayed",
    "own",
    "nack",
    "reject",
    "recover",
    "timeout",
    "crash",
    "released",
    "rejected",
    "expired",
    "maxlen",
    "delivery_limit",
    "immediate",
    "replaced",
    "level",
    "time",
    "shutdown",
    "off",
    "lifecycle",
    "full",
    "edited",
    "redriven",
    "queue_expired",
    "queue_deleted",
    "queue_full",
    "stopped",
    "no_permission",
    "not_found",
    "log_failed",
    "invalid",
    "started",
    "connected",
    "disconnected",
    "paused",
    "resumed",
    "finished",
    "deleted",
)
"""The reasons, by number. The writer decides which reasons an operation can have."""

PERSISTENT: Final[i64] = 1
REDELIVERED: Final[i64] = 2
AUTO_ACK: Final[i64] = 4


def reason_number(name: str) -> int:
    """Return the number of a reason. Raises ValueError for an unknown name."""
    return REASONS.index(name)
