"""The kinds of queues and of clients in a run."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tests.simulation.queues.model import DROP_HEAD, REJECT, REJECT_DLX, Spec

DEAD = "dead"


@dataclass(frozen=True)
class Profile:
    """`queues`: by a name for all that follow each other; `targets`: the queues that letters go to.

    `fanout`: those that share an exchange. The numbers are shares of consumers, or of messages, out of one.
    """

    queues: dict[str, Spec]
    targets: tuple[str, ...] = ()
    fanout: tuple[str, ...] = ()
    wires: int = 3
    priorities: tuple[int, ...] = (0,)
    selectors: float = 0
    browsers: float = 0
    forgets: float = 0  # the rate of browsers
    no_ack: float = 0
    alone: float = 0
    shared: float = 0
    leases: float = 0
    several: float = 0
    candidates: float = 0
    bytes_max: tuple[int, ...] = (0,)
    persistent: float = 0
    groups: float = 0
    waits: float = 0  # the rate of gets that find nothing
    repeats: float = 0
    delays: float = 0
    expirations: tuple[int | None, ...] = (None,)
    scan_budget: int = 0
    weights: dict[str, int] = field(default_factory=dict)

    @staticmethod
    def arguments(spec: Spec) -> dict[str, object]:
        """A queue's arguments, as clients give them."""
        arguments: dict[str, object] = {
            "x-message-ttl": spec.ttl,
            "x-max-length": spec.max_length,
            "x-max-length-bytes": spec.max_bytes,
            "x-dead-letter-exchange": None if spec.dead_letter is None else "",
            "x-dead-letter-routing-key": spec.dead_letter,
            "x-dead-letter-strategy": "at-least-once" if spec.sure else None,
            "x-delivery-limit": spec.limit,
            "x-max-priority": spec.levels - 1 or None,
            "x-single-active-consumer": spec.single_active or None,
            "x-all-consumers-exclusive": spec.all_exclusive or None,
            "x-exclusive-takeover": spec.takeover or None,
            "x-dispatch": "strict" if spec.strict_dispatch else None,
            "x-strict-order": spec.strict_order or None,
            "x-sort-key": "kind" if spec.sort else None,
            "x-queue-kind": "sorted" if spec.sort else None,
            "x-last-value-key": "kind" if spec.last_value else None,
            "x-volatile": spec.volatile or None,
            "x-non-destructive": spec.keeps or None,
            "x-consumers-before-dispatch": (spec.gate and spec.gate[0]) or None,
            "x-delay-before-dispatch": spec.gate and spec.gate[1],
            "x-retry-min": spec.retry and spec.retry[0],
            "x-retry-max": spec.retry and spec.retry[1],
            "x-overflow": None if spec.overflow == DROP_HEAD else spec.overflow,
        }
        if spec.groups is not None:
            arguments |= spec.groups.arguments()
        if spec.knows is not None:
            arguments |= spec.knows.arguments()
        return {name: value for name, value in arguments.items() if value is not None}


RESTARTS = {"commit": 12, "disk": 12, "restart": 1, "kill": 2}
PLAIN = Profile({"work": Spec()}, shared=0.3, no_ack=0.1)
LOGGED = Profile(
    {"work": Spec(durable=True, dead_letter=DEAD), DEAD: Spec(durable=True), "other": Spec()},
    targets=(DEAD,),
    fanout=("work", "other"),
    persistent=0.8,
    no_ack=0.1,
    weights=RESTARTS,
)

PROFILES: dict[str, Profile] = {
    "plain": PLAIN,
    "several queues": replace(PLAIN, queues={"work": Spec(), "more": Spec(), "rest": Spec()}, several=0.4),
    "priority": replace(PLAIN, queues={"work": Spec(levels=4)}, browsers=0.2, forgets=0.5),
    "consumer priorities": replace(PLAIN, priorities=(0, 0, 1, 5), browsers=0.1),
    "byte windows": replace(
        PLAIN, queues={"work": Spec(levels=3)}, bytes_max=(0, 4, 10), priorities=(0, 1), browsers=0.1
    ),
    "selectors": replace(PLAIN, selectors=0.6, browsers=0.2, priorities=(0, 0, 3)),
    "selectors, priorities, bytes": replace(
        PLAIN,
        queues={"work": Spec(levels=4)},
        selectors=0.6,
        priorities=(0, 1, 2),
        bytes_max=(0, 0, 4, 10),
        scan_budget=2,
    ),
    "exclusive": replace(PLAIN, alone=0.4),
    "single active": replace(
        PLAIN,
        queues={"work": Spec(single_active=True), "more": Spec(single_active=True, levels=3)},
        priorities=(0, 0, 1, 5),
        browsers=0.1,
        selectors=0.2,
        several=0.2,
    ),
    "exclusive consumers": replace(
        PLAIN,
        queues={
            "work": Spec(),
            "more": Spec(takeover="drain"),
            "now": Spec(takeover="immediate"),
            "all": Spec(all_exclusive=True, levels=2),
        },
        priorities=(0, 0, 1, 127),
        candidates=0.4,
        browsers=0.1,
        selectors=0.2,
        several=0.2,
        leases=0.1,
        weights={"stop": 1},
    ),
    "cancelled exclusive consumers": replace(
        PLAIN,
        queues={"work": Spec(), "more": Spec(takeover="drain")},
        priorities=(0, 0, 1, 127),
        candidates=0.7,
        weights={"attach": 12, "cancel": 8, "settle": 3, "pass time": 12, "rest": 2},
    ),
    "strict dispatch": replace(
        PLAIN,
        queues={"work": Spec(strict_dispatch=True), "more": Spec(strict_dispatch=True, levels=3)},
        priorities=(0, 0, 1),
        selectors=0.2,
        bytes_max=(0, 0, 10),
    ),
    "strict order": replace(
        PLAIN,
        queues={"work": Spec(strict_order=True), "more": Spec(strict_order=True, levels=3, ttl=40)},
        selectors=0.2,
        priorities=(0, 0, 1),
        browsers=0.1,
        leases=0.2,
    ),
    "strict order, retry": replace(
        PLAIN,
        queues={"work": Spec(strict_order=True, retry=(5, 20), limit=3, dead_letter=DEAD), DEAD: Spec()},
        targets=(DEAD,),
        leases=0.2,
    ),
    "sorted": replace(
        PLAIN,
        queues={"work": Spec(sort=True), "more": Spec(sort=True, max_length=6)},
        browsers=0.2,
        selectors=0.2,
        priorities=(0, 0, 1),
    ),
    "last value": replace(
        PLAIN,
        queues={"work": Spec(last_value=True), "more": Spec(last_value=True, ttl=40)},
        browsers=0.2,
        selectors=0.2,
        priorities=(0, 0, 1),
        weights={"publish immediate": 0},
    ),
    "log, last value": replace(
        LOGGED,
        queues={
            "work": Spec(durable=True, last_value=True, dead_letter=DEAD),
            DEAD: Spec(durable=True, last_value=True),
            "other": Spec(durable=True, volatile=True),
        },
        weights=RESTARTS | {"publish immediate": 0},
    ),
    "gate": replace(
        PLAIN, queues={"work": Spec(gate=(3, None)), "more": Spec(gate=(0, 20))}, browsers=0.1, several=0.2
    ),
    "stop": replace(
        PLAIN,
        queues={"work": Spec(), "more": Spec(levels=3), "rest": Spec(max_length=5, overflow=REJECT)},
        selectors=0.2,
        priorities=(0, 0, 1),
        browsers=0.1,
        several=0.2,
        weights={"stop": 5},
    ),
    "retry": replace(
        PLAIN,
        queues={"work": Spec(retry=(5, 30)), "more": Spec(retry=(10, 10), limit=2, ttl=40, levels=2)},
        browsers=0.1,
        selectors=0.2,
        leases=0.2,
        weights={"release": 12, "pass time": 10},
    ),
    "ttl": replace(
        PLAIN,
        queues={"work": Spec(ttl=30, dead_letter=DEAD), "more": Spec(levels=3), DEAD: Spec(ttl=40)},
        targets=(DEAD,),
        expirations=(None, None, 0, 5, 20),
        browsers=0.1,
        leases=0.3,
    ),
    "ring": replace(
        PLAIN,
        queues={"work": Spec(max_length=5), "more": Spec(max_bytes=40, levels=3), "none": Spec(max_length=0)},
        priorities=(0, 0, 2),
        bytes_max=(0, 0, 10),
    ),
    "overflow": replace(
        PLAIN,
        queues={
            "work": Spec(max_length=6, dead_letter="next", levels=2),
            "next": Spec(max_length=4, overflow=REJECT_DLX, dead_letter=DEAD),
            "more": Spec(max_bytes=30, overflow=REJECT),
            DEAD: Spec(max_length=6),
        },
        targets=("next", DEAD),
        several=0.2,
        selectors=0.1,
        leases=0.2,
    ),
    "cycle": replace(
        PLAIN,
        queues={
            "again": Spec(dead_letter="wait", limit=4),
            "wait": Spec(ttl=15, dead_letter="again"),
            "loop": Spec(ttl=10, dead_letter="loop"),
        },
        targets=("again", "wait", "loop"),
        leases=0.2,
    ),
    "delivery limit": replace(
        PLAIN,
        queues={"work": Spec(limit=1, dead_letter=DEAD), "more": Spec(limit=0), DEAD: Spec()},
        targets=(DEAD,),
        leases=0.2,
        priorities=(0, 1),
    ),
    "log": LOGGED,
    "log, priority, ttl": replace(
        LOGGED,
        queues={
            "work": Spec(durable=True, dead_letter=DEAD, levels=3, ttl=60),
            DEAD: Spec(durable=True, ttl=80),
            "other": Spec(durable=True),
        },
        expirations=(None, None, 5, 30),
    ),
    "log, limits": replace(
        LOGGED,
        queues={
            "work": Spec(durable=True, dead_letter=DEAD, limit=2),
            DEAD: Spec(durable=True, max_length=5),
            "other": Spec(durable=True, single_active=True, limit=1),
        },
        leases=0.2,
        priorities=(0, 1),
    ),
    "log, kinds": replace(
        LOGGED,
        queues={
            "work": Spec(durable=True, sort=True, retry=(5, 20), dead_letter=DEAD),
            DEAD: Spec(durable=True, strict_order=True),
            "other": Spec(durable=True, takeover="drain", gate=(2, 30)),
        },
        candidates=0.3,
        leases=0.1,
        weights=RESTARTS | {"stop": 2},
    ),
    "everything": Profile(
        {
            "work": Spec(durable=True, levels=3, dead_letter="next", limit=3),
            "next": Spec(durable=True, max_length=5, overflow=REJECT_DLX, dead_letter=DEAD),
            "other": Spec(ttl=50, single_active=True),
            DEAD: Spec(durable=True),
        },
        targets=("next", DEAD),
        fanout=("work", "other"),
        priorities=(0, 0, 1, 5),
        selectors=0.3,
        browsers=0.15,
        no_ack=0.1,
        shared=0.3,
        leases=0.2,
        several=0.2,
        bytes_max=(0, 0, 10),
        persistent=0.6,
        expirations=(None, None, None, 20),
        weights={"commit": 8, "disk": 8, "restart": 1, "kill": 1},
    ),
}
