"""Queues that dead-letter at least once.

These profiles have seeds of their own: a seed that names no profile goes on choosing among the others.
"""

from __future__ import annotations

from dataclasses import replace

from tests.simulation.queues.model import REJECT, Spec
from tests.simulation.queues.profiles import DEAD, LOGGED, PLAIN, RESTARTS, Profile

SURE: dict[str, Profile] = {
    "at least once": replace(
        PLAIN,
        queues={
            "work": Spec(sure=True, max_length=8, overflow=REJECT, ttl=40, dead_letter=DEAD),
            "more": Spec(sure=True, overflow=REJECT, levels=3, limit=1, dead_letter=DEAD),
            DEAD: Spec(sure=True, max_length=3, overflow=REJECT, ttl=90, dead_letter="last"),
            "last": Spec(max_length=2, overflow=REJECT),
        },
        targets=(DEAD, "last"),
        priorities=(0, 0, 1),
        several=0.2,
        leases=0.1,
        weights={
            "discard": 12,
            "begin operation": 3,
            "begin on dead": 6,
            "end operation": 6,
            "pass time": 8,
            "purge": 5,
            "publish immediate": 0,
        },
    ),
    "at least once, in the log": replace(
        LOGGED,
        queues={
            "work": Spec(durable=True, sure=True, max_length=8, overflow=REJECT, ttl=90, dead_letter=DEAD),
            "other": Spec(durable=True, sure=True, overflow=REJECT, limit=1, dead_letter=DEAD),
            DEAD: Spec(durable=True, sure=True, max_length=3, overflow=REJECT, dead_letter="last"),
            "last": Spec(durable=True, max_length=2, overflow=REJECT),
        },
        targets=(DEAD, "last"),
        fanout=("work", "other"),
        weights=RESTARTS
        | {
            "restart": 3,
            "kill": 4,
            "discard": 14,
            "begin operation": 1,
            "begin on dead": 3,
            "end operation": 4,
            "pass time": 8,
            "publish immediate": 0,
        },
    ),
}
