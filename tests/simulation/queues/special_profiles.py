"""Profiles in which messages ask for more themselves, or operators do."""

from __future__ import annotations

from dataclasses import replace

from tests.simulation.queues.model import REJECT, REJECT_DLX, Grouping, Spec
from tests.simulation.queues.profiles import DEAD, LOGGED, PLAIN, RESTARTS, Profile
from tests.simulation.queues.recall import Knows

MANY = {
    "publish": 50,
    "turn": 24,
    "settle": 4,
    "release": 4,
    "settle many": 10,
    "refuse many": 8,
    "give back many": 10,
    "get": 8,
    "transaction of many": 5,
    "delete queue": 5,
}

PROFILES: dict[str, Profile] = {
    "ids": replace(
        LOGGED,
        queues={
            "work": Spec(durable=True, knows=Knows(window=60), dead_letter=DEAD),
            DEAD: Spec(durable=True, knows=Knows(window=60)),
            "other": Spec(durable=True, knows=Knows(window=200, limit=3), max_length=4, overflow=REJECT),
        },
        repeats=0.8,
        weights=RESTARTS | {"transaction": 8},
    ),
    "numbers": replace(
        LOGGED,
        queues={
            "work": Spec(durable=True, knows=Knows(producers=2), dead_letter=DEAD),
            DEAD: Spec(durable=True, knows=Knows(producers=1)),
            "other": Spec(durable=True, knows=Knows(producers=3, window=50), levels=2),
        },
        repeats=0.8,
        weights=RESTARTS | {"transaction": 8},
    ),
    "delays": replace(
        PLAIN,
        queues={
            "work": Spec(levels=3, ttl=40, dead_letter=DEAD),
            "more": Spec(max_length=3, overflow=REJECT_DLX, dead_letter=DEAD),
            "rest": Spec(max_length=4, overflow=REJECT),
            DEAD: Spec(max_length=5),
        },
        targets=(DEAD,),
        fanout=("work", "more"),
        delays=0.5,
        browsers=0.1,
        weights={"cancel delayed": 2, "move delayed": 3, "pass time": 10},
    ),
    "delays, in the log": replace(
        LOGGED,
        queues={
            "work": Spec(durable=True, dead_letter=DEAD, ttl=50),
            DEAD: Spec(durable=True),
            "other": Spec(durable=True, levels=2, knows=Knows(window=30)),
            "full": Spec(durable=True, max_length=3, overflow=REJECT_DLX, dead_letter=DEAD),
        },
        delays=0.5,
        repeats=0.2,
        weights=RESTARTS | {"cancel delayed": 2, "move delayed": 3, "pass time": 10},
    ),
    "non-destructive": replace(
        PLAIN,
        queues={
            "work": Spec(keeps=True, ttl=50, dead_letter=DEAD),
            "more": Spec(keeps=True, last_value=True),
            "rest": Spec(keeps=True, max_length=4),
            DEAD: Spec(),
        },
        targets=(DEAD,),
        fanout=("work", "more"),
        no_ack=0,
        browsers=0.2,
        selectors=0.2,
        several=0.2,
        bytes_max=(0, 0, 10),
        weights={"publish immediate": 0, "settle": 20},
    ),
    "non-destructive, in the log": replace(
        LOGGED,
        queues={
            "work": Spec(durable=True, keeps=True, last_value=True, dead_letter=DEAD, ttl=200),
            DEAD: Spec(durable=True, keeps=True),
            "other": Spec(durable=True),
        },
        no_ack=0,
        weights=RESTARTS | {"publish immediate": 0, "settle": 20},
    ),
    "operations": replace(
        PLAIN,
        queues={
            "work": Spec(levels=2, ttl=60, dead_letter=DEAD),
            "more": Spec(max_length=4, overflow=REJECT),
            "rest": Spec(last_value=True),
            DEAD: Spec(max_length=6),
        },
        targets=(DEAD,),
        priorities=(0, 0, 1),
        weights={"begin operation": 6, "end operation": 6, "publish immediate": 0},
    ),
    "operations, in the log": replace(
        LOGGED,
        queues={
            "work": Spec(durable=True, dead_letter=DEAD),
            DEAD: Spec(durable=True, last_value=True),
            "other": Spec(durable=True, ttl=300),
        },
        weights=RESTARTS | {"begin operation": 6, "end operation": 6, "publish immediate": 0},
    ),
    "redriven": replace(
        PLAIN,
        queues={
            "work": Spec(limit=1, ttl=60, dead_letter=DEAD, knows=Knows(window=200)),
            "more": Spec(max_length=4, dead_letter=DEAD),
            DEAD: Spec(dead_letter="last", ttl=90),
            "last": Spec(levels=2),
        },
        targets=(DEAD, "last"),
        repeats=0.3,
        weights={"begin redrive": 8, "end operation": 8, "discard": 10, "stop": 1, "publish immediate": 0},
    ),
    "redriven, in the log": replace(
        LOGGED,
        queues={
            "work": Spec(durable=True, dead_letter=DEAD, knows=Knows(window=200), ttl=200),
            DEAD: Spec(durable=True),
            "other": Spec(durable=True, limit=1, dead_letter=DEAD, retry=(5, 20)),
        },
        repeats=0.3,
        weights=RESTARTS
        | {"begin redrive": 8, "end operation": 8, "discard": 10, "rename": 1, "publish immediate": 0},
    ),
    "renamed": replace(
        PLAIN,
        queues={
            "work": Spec(ttl=60, dead_letter=DEAD),
            "more": Spec(levels=3, max_length=5),
            "rest": Spec(single_active=True),
            DEAD: Spec(ttl=20, dead_letter=DEAD),
        },
        targets=(DEAD,),
        fanout=("work", "more"),
        priorities=(0, 0, 1),
        selectors=0.2,
        browsers=0.1,
        several=0.2,
        delays=0.1,
        weights={"rename": 6},
    ),
    "renamed, in the log": replace(
        LOGGED,
        queues={
            "work": Spec(durable=True, dead_letter=DEAD, limit=2, knows=Knows(window=60)),
            DEAD: Spec(durable=True, ttl=90),
            "other": Spec(durable=True, levels=2),
        },
        fanout=("work", "other"),
        repeats=0.3,
        delays=0.2,
        weights=RESTARTS | {"rename": 6, "begin operation": 3, "end operation": 3, "publish immediate": 0},
    ),
    "altered": replace(
        PLAIN,
        queues={"work": Spec(ttl=30), "more": Spec(levels=2), DEAD: Spec()},
        targets=(DEAD,),
        priorities=(0, 0, 1),
        weights={"alter": 6},
    ),
    "altered, in the log": replace(
        LOGGED,
        queues={"work": Spec(durable=True), DEAD: Spec(durable=True), "other": Spec(durable=True, ttl=60)},
        weights=RESTARTS | {"alter": 6},
    ),
    "ids, not in the log": replace(
        PLAIN,
        queues={
            "work": Spec(knows=Knows(window=30, producers=2)),
            "more": Spec(durable=True, volatile=True, knows=Knows(window=500, limit=2)),
        },
        fanout=("work", "more"),
        persistent=0.5,
        repeats=0.8,
        weights={"transaction": 8, "publish immediate": 6, "commit": 4, "disk": 4},
    ),
    "many at once": replace(
        PLAIN,
        queues={
            "work": Spec(retry=(5, 20), dead_letter=DEAD),
            "more": Spec(limit=0, dead_letter=DEAD, levels=2),
            "rest": Spec(single_active=True),
            "all": Spec(),
            DEAD: Spec(),
        },
        targets=(DEAD,),
        several=0.4,
        browsers=0.1,
        selectors=0.1,
        priorities=(0, 0, 1),
        weights=MANY,
    ),
    "many at once, in the log": replace(
        LOGGED,
        queues={
            "work": Spec(durable=True, retry=(5, 20), limit=2, dead_letter=DEAD),
            DEAD: Spec(durable=True),
            "other": Spec(durable=True, limit=0, dead_letter=DEAD, strict_order=True),
        },
        several=0.3,
        weights=RESTARTS | MANY | {"restart": 6, "kill": 6},
    ),
    "gets that wait": replace(
        PLAIN,
        queues={
            "work": Spec(groups=Grouping("sticky", rebalances=True)),
            "more": Spec(groups=Grouping("shared"), gate=(2, 30)),
            "rest": Spec(all_exclusive=True, levels=2),
        },
        groups=0.8,
        waits=0.9,
        alone=0.05,
        priorities=(0, 0, 1),
        selectors=0.1,
        browsers=0.05,
        weights={"get": 14, "attach": 5, "cancel": 4, "publish": 16, "stop": 1, "flow": 4},
    ),
}
