"""Profiles of queues with message groups."""

from __future__ import annotations

from dataclasses import replace

from tests.simulation.queues.model import REJECT, Grouping, Spec
from tests.simulation.queues.profiles import DEAD, LOGGED, PLAIN, RESTARTS, Profile

STICKY, SHARED = Grouping("sticky"), Grouping("shared")
GROUPED = replace(PLAIN, groups=0.8, browsers=0.05, waits=0.4)

PROFILES: dict[str, Profile] = {
    "groups": replace(
        GROUPED, queues={"work": Spec(groups=STICKY), "more": Spec(groups=SHARED)}, leases=0.1, several=0.2
    ),
    "groups, one queue": replace(GROUPED, queues={"work": Spec(groups=SHARED)}),
    "groups, own header": replace(
        GROUPED,
        queues={
            "work": Spec(groups=Grouping(header="team")),
            "more": Spec(groups=Grouping("shared", "team")),
        },
    ),
    "groups, rebalanced": replace(
        GROUPED,
        queues={"work": Spec(groups=Grouping("sticky", rebalances=True))},
        weights={"attach": 14, "cancel": 6},
    ),
    "groups, few remembered": replace(
        GROUPED,
        queues={
            "work": Spec(groups=Grouping(header="x-group-id", limit=1)),
            "more": Spec(groups=Grouping(limit=0, rebalances=True, kind="sticky"), levels=2),
        },
        weights={"settle": 24, "purge": 2},
    ),
    "groups, selectors": replace(
        GROUPED,
        queues={"work": Spec(groups=STICKY), "more": Spec(groups=SHARED)},
        selectors=0.6,
        priorities=(0, 0, 3),
    ),
    "groups, selectors, priorities, bytes": replace(
        GROUPED,
        queues={"work": Spec(groups=SHARED, levels=3)},
        selectors=0.5,
        priorities=(0, 1, 2),
        bytes_max=(0, 0, 4, 10),
        scan_budget=2,
    ),
    "groups, sticky, priorities, bytes": replace(
        GROUPED,
        queues={"work": Spec(groups=STICKY)},
        selectors=0.2,
        priorities=(0, 1, 2),
        bytes_max=(0, 4, 10),
    ),
    "groups, strict order": replace(
        GROUPED,
        queues={
            "work": Spec(groups=STICKY, strict_order=True),
            "more": Spec(groups=SHARED, strict_order=True, levels=3),
        },
        selectors=0.2,
        priorities=(0, 0, 1),
        bytes_max=(0, 0, 10),
        leases=0.2,
    ),
    "groups, retry": replace(
        GROUPED,
        queues={
            "work": Spec(groups=STICKY, strict_order=True, retry=(5, 20), limit=3, dead_letter=DEAD),
            "more": Spec(groups=SHARED, retry=(5, 20), ttl=60),
            DEAD: Spec(groups=SHARED, strict_order=True, retry=(5, 5)),
        },
        targets=(DEAD,),
        leases=0.2,
        weights={"release": 12, "pass time": 10},
    ),
    "groups, limits": replace(
        GROUPED,
        queues={
            "work": Spec(groups=STICKY, max_length=5, levels=2, dead_letter=DEAD),
            "more": Spec(groups=SHARED, ttl=30, limit=1, dead_letter=DEAD),
            DEAD: Spec(groups=Grouping("sticky", rebalances=True), max_length=6, overflow=REJECT),
        },
        targets=(DEAD,),
        selectors=0.1,
        priorities=(0, 0, 1),
    ),
    "groups, one consumer": replace(
        GROUPED,
        queues={
            "work": Spec(groups=STICKY, single_active=True),
            "more": Spec(groups=STICKY, takeover="drain"),
            "last": Spec(groups=STICKY),
            "all": Spec(groups=SHARED, all_exclusive=True),
            "open": Spec(groups=Grouping("sticky", rebalances=True), gate=(2, 20)),
        },
        candidates=0.4,
        priorities=(0, 0, 1, 127),
        weights={"stop": 2},
    ),
    "groups, kinds": replace(
        GROUPED,
        queues={
            "work": Spec(groups=STICKY, sort=True),
            "more": Spec(groups=Grouping("sticky", limit=1), last_value=True),
            "rest": Spec(groups=SHARED, strict_dispatch=True),
        },
        selectors=0.2,
        priorities=(0, 0, 1),
        weights={"publish immediate": 0},
    ),
    "groups, log": replace(
        LOGGED,
        queues={
            "work": Spec(durable=True, groups=STICKY, dead_letter=DEAD, limit=0),
            DEAD: Spec(durable=True, groups=SHARED, strict_order=True),
            "other": Spec(
                durable=True, groups=Grouping("sticky", rebalances=True), strict_order=True, levels=2
            ),
        },
        groups=0.8,
        selectors=0.1,
        weights=RESTARTS,
    ),
    "groups, everything": replace(
        LOGGED,
        queues={
            "work": Spec(durable=True, levels=3, groups=STICKY, dead_letter=DEAD, retry=(5, 20), limit=1),
            DEAD: Spec(durable=True, groups=Grouping("sticky", rebalances=True)),
            "other": Spec(groups=SHARED, strict_order=True, ttl=50, strict_dispatch=True),
        },
        groups=0.8,
        priorities=(0, 0, 1, 5),
        selectors=0.3,
        browsers=0.1,
        alone=0.02,
        shared=0.3,
        leases=0.2,
        several=0.3,
        candidates=0.05,
        bytes_max=(0, 0, 10),
        expirations=(None, None, None, 20),
        weights=RESTARTS | {"stop": 1},
    ),
    "groups, operations": replace(
        GROUPED,
        queues={
            "work": Spec(groups=STICKY, ttl=60, dead_letter=DEAD),
            "more": Spec(groups=SHARED, strict_order=True),
            "rest": Spec(groups=Grouping("shared"), levels=2),
            DEAD: Spec(groups=STICKY),
        },
        targets=(DEAD,),
        selectors=0.2,
        priorities=(0, 0, 1),
        bytes_max=(0, 0, 4, 10),
        weights={"begin operation": 6, "begin redrive": 4, "end operation": 8, "publish immediate": 0},
    ),
}
