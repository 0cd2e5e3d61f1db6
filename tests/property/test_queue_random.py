"""Long random runs of the queue core against the oracle. A failing seed replays with the same arguments."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from broker.core.message import NEVER
from tests.property.queue_checks import check_structure
from tests.property.queue_rules import (
    ALL,
    DRAINING_ALL,
    DRAINING_SOME,
    EVERYBODY,
    GATED,
    IN_ORDER,
    SINGLE,
    SOME,
)
from tests.property.queue_world import World
from tests.support.effort import cases

EXPIRATIONS = (NEVER, NEVER, 5, 20)


def publish(world: World, choice: random.Random, some: int) -> None:
    for _ in range(choice.choice((1, 1, 1, 4))):
        size, priority = choice.choice((1, 1, 1, 3, 7, 30)), choice.randrange(world.levels + 1)
        world.publish(some, size, priority, choice.choice(EXPIRATIONS))


def publish_immediate(world: World, choice: random.Random, some: int) -> None:
    world.publish_immediate(
        some, choice.choice((1, 3, 30)), choice.randrange(world.levels), choice.choice(EXPIRATIONS)
    )


def attach(world: World, choice: random.Random, some: int) -> None:
    world.attach(
        some,
        queues=choice.randrange(6),
        priority=choice.choice(
            (0, 0, 1, 5) if world.serving in (EVERYBODY, GATED, IN_ORDER) else (0, 0, 5, 127)
        ),
        prefetch=choice.choice((0, 1, 2, 5)),
        prefetch_bytes=choice.choice((0, 0, 0, 4, 10)),
        kind=choice.choice((0, 0, 4, 4, 5, 5, 6, 7)),
        shared=choice.random() < 0.4,
        lease=choice.choice((0, 0, 10, 50)),
        divisor=choice.choice((0, 2, 2, 3)) if world.filtering else 0,
    )


def request(world: World, choice: random.Random, some: int) -> None:
    for _ in range(4):
        world.get(some % 2, some, choice.random() < 0.2)


def purge(world: World, choice: random.Random, some: int) -> None:
    if choice.random() < 0.5:
        world.purge(some)
    else:
        world.begin_purge(some, choice.randint(1, 3))


Operation = Callable[[World, random.Random, int], None]
OPERATIONS: list[tuple[int, Operation]] = [
    (28, publish),
    (3, publish_immediate),
    (9, attach),
    (3, lambda w, c, some: w.cancel(some)),
    (1, lambda w, c, some: w.lose_connection(some)),
    (4, lambda w, c, some: w.block(some, c.random() < 0.4)),
    (2, lambda w, c, some: w.flow(some, c.random() < 0.6)),
    (3, lambda w, c, some: w.resize(some, c.random() < 0.5, c.choice((0, 1, 3)), c.choice((0, 0, 5)))),
    (3, lambda w, c, some: w.get(some, c.randrange(6), c.random() < 0.5)),
    (15, lambda w, c, some: w.settle(some, c.randrange(8), c.choice((1, 1, 2, 100)))),
    (8, lambda w, c, some: w.release(some, c.randrange(8), c.choice((1, 1, 2, 100)))),
    (3, lambda w, c, some: w.settle(some, c.randrange(8), c.choice((1, 2)), True)),
    (4, lambda w, c, some: w.promise(some, c.randrange(8), c.choice((1, 1, 2, 100)))),
    (1, lambda w, c, some: w.roll_back(some)),
    (4, lambda w, c, some: w.pass_time(c.choice((1, 9, 10, 60)))),
    (1, purge),
    (3, lambda w, c, some: w.run_due()),
    (1, lambda w, c, some: w.delete(some) if c.random() < 0.3 else None),
    (1, lambda w, c, some: w.switch(some, c.random() < 0.2)),
    (1, lambda w, c, some: w.begin_operation(some, c.randrange(8), c.choice((1, 2, 100)))),
    (2, lambda w, c, some: w.end_operation(some, c.random() < 0.5)),
    (12, lambda w, c, some: w.step(c.choice((1, 2, 16)))),
    (6, lambda w, c, some: w.run(c.choice((1, 2, 4, 64)))),
]
WEIGHTS = [weight for weight, _ in OPERATIONS]

SHAPES: dict[str, dict[str, Any]] = {
    "fifo": {"levels": 1, "queues": 1},
    "priority": {"levels": 4, "queues": 1},
    "several queues": {"levels": 1, "queues": 3},
    "several priority queues, short scans": {"levels": 3, "queues": 2, "scan_budget": 1},
    "fifo, short scans": {"levels": 1, "queues": 1, "scan_budget": 2},
    "fifo, expiring": {"levels": 1, "queues": 1, "ttl": NEVER},
    "several priority queues, expiring": {"levels": 3, "queues": 2, "ttl": 15},
    "single active, expiring": {"levels": 1, "queues": 1, "serving": SINGLE, "ttl": 15},
    "index": {"levels": 1, "queues": 1, "filtering": True, "rule": "index by 2, by 3"},
    "index, short scans": {
        "levels": 1,
        "queues": 1,
        "filtering": True,
        "rule": "index by 2",
        "scan_budget": 2,
    },
    "several queues with an index, expiring": {
        "levels": 1,
        "queues": 2,
        "filtering": True,
        "rule": "index by 2",
        "ttl": 15,
    },
    "fifo, selectors": {"levels": 1, "queues": 1, "filtering": True},
    "priority, selectors, short scans": {"levels": 4, "queues": 1, "filtering": True, "scan_budget": 2},
    "several queues, selectors, expiring": {"levels": 2, "queues": 2, "filtering": True, "ttl": 15},
    "single active, selectors": {"levels": 1, "queues": 1, "serving": SINGLE, "filtering": True},
    "fifo, strict": {"levels": 1, "queues": 1, "rule": "strict"},
    "several priority queues, strict, selectors, expiring": {
        "levels": 3,
        "queues": 2,
        "rule": "strict",
        "filtering": True,
        "ttl": 15,
    },
    "fifo, strict, selectors, short scans": {
        "levels": 1,
        "queues": 1,
        "rule": "strict",
        "filtering": True,
        "scan_budget": 1,
    },
    "single active, strict, expiring": {
        "levels": 1,
        "queues": 1,
        "serving": SINGLE,
        "rule": "strict",
        "ttl": 15,
    },
    "fifo, retries": {"levels": 1, "queues": 1, "retry": 10},
    "several priority queues, retries, selectors, expiring": {
        "levels": 3,
        "queues": 2,
        "retry": 7,
        "filtering": True,
        "ttl": 25,
    },
    "fifo, strict, retries, expiring": {"levels": 1, "queues": 1, "rule": "strict", "retry": 5, "ttl": 30},
    "single active, retries": {"levels": 1, "queues": 1, "serving": SINGLE, "retry": 10},
    "fifo, sticky groups": {"levels": 1, "queues": 1, "rule": "sticky, forgetful"},
    "fifo, shared groups": {"levels": 1, "queues": 1, "rule": "shared"},
    "fifo, rebalancing groups, short scans": {
        "levels": 1,
        "queues": 1,
        "rule": "rebalancing",
        "scan_budget": 2,
    },
    "fifo, sticky groups, selectors, short scans": {
        "levels": 1,
        "queues": 1,
        "rule": "sticky",
        "filtering": True,
        "scan_budget": 1,
    },
    "several priority queues, shared groups, selectors": {
        "levels": 3,
        "queues": 2,
        "rule": "shared",
        "filtering": True,
    },
    "fifo, sticky groups, freed slowly": {"levels": 1, "queues": 1, "rule": "sticky, slow"},
    "priority, shared groups, selectors, freed slowly": {
        "levels": 3,
        "queues": 1,
        "rule": "shared, slow",
        "filtering": True,
        "ttl": 15,
    },
    "some exclusive, rebalancing groups, freed slowly": {
        "levels": 1,
        "queues": 2,
        "serving": SOME,
        "rule": "rebalancing, slow",
    },
    "priority, sticky groups, selectors, expiring": {
        "levels": 4,
        "queues": 1,
        "rule": "sticky",
        "filtering": True,
        "ttl": 15,
    },
    "fifo, strict and sticky groups, expiring": {
        "levels": 1,
        "queues": 1,
        "rule": "strict, sticky",
        "ttl": 15,
    },
    "priority, strict and shared groups, selectors": {
        "levels": 3,
        "queues": 1,
        "rule": "strict, shared",
        "filtering": True,
    },
    "fifo, strict and shared groups, selectors, retries, expiring": {
        "levels": 1,
        "queues": 1,
        "rule": "strict, shared",
        "filtering": True,
        "retry": 20,
        "ttl": 15,
    },
    "strict groups, requests only": {"levels": 1, "queues": 1, "rule": "strict, shared", "requests": True},
    "strict, requests only": {"levels": 2, "queues": 1, "rule": "strict", "requests": True},
    "single active, sticky groups": {"levels": 1, "queues": 1, "serving": SINGLE, "rule": "sticky"},
    "some exclusive, rebalancing groups, selectors": {
        "levels": 2,
        "queues": 1,
        "serving": SOME,
        "rule": "rebalancing",
        "filtering": True,
    },
    "all exclusive": {"levels": 1, "queues": 1, "serving": ALL},
    "all exclusive, draining": {"levels": 2, "queues": 1, "serving": DRAINING_ALL, "ttl": 15},
    "gated": {"levels": 1, "queues": 2, "serving": GATED},
    "strict": {"levels": 1, "queues": 2, "serving": IN_ORDER},
    "strict, selectors": {"levels": 2, "queues": 1, "serving": IN_ORDER, "filtering": True},
    "some exclusive": {"levels": 1, "queues": 2, "serving": SOME},
    "some exclusive, draining, selectors": {
        "levels": 1,
        "queues": 1,
        "serving": DRAINING_SOME,
        "filtering": True,
    },
    "sorted": {"levels": 5, "queues": 1, "order": "sorted"},
    "several sorted queues, selectors, expiring": {
        "levels": 3,
        "queues": 2,
        "order": "sorted",
        "filtering": True,
        "ttl": 15,
    },
    "sorted, single active, short scans": {
        "levels": 9,
        "queues": 1,
        "order": "sorted",
        "serving": SINGLE,
        "scan_budget": 2,
    },
    "sorted, strict": {"levels": 3, "queues": 1, "order": "sorted", "rule": "strict"},
    "last value": {"levels": 9, "queues": 1, "order": "last value"},
    "several last-value queues, selectors, expiring": {
        "levels": 5,
        "queues": 2,
        "order": "last value",
        "filtering": True,
        "ttl": 15,
    },
    "last value, some exclusive, short scans": {
        "levels": 7,
        "queues": 1,
        "order": "last value",
        "serving": SOME,
        "scan_budget": 2,
    },
    "last value, retrying": {"levels": 7, "queues": 1, "order": "last value", "retry": 7},
    "sorted, retrying": {"levels": 7, "queues": 1, "order": "sorted", "retry": 7, "ttl": 40},
    "last value, strict": {"levels": 9, "queues": 1, "order": "last value", "rule": "strict"},
    "single active": {"levels": 1, "queues": 1, "serving": SINGLE},
    "single active, several priority queues": {"levels": 3, "queues": 2, "serving": SINGLE},
}


def run(shape: str, seed: int, operations: int) -> int:
    """Returns how many messages were delivered."""
    choice = random.Random(f"{shape} {seed}")
    options = dict(SHAPES[shape])
    requests = options.pop("requests", False)  # basic.gets instead of consumers
    world = World(**options)
    budget = choice.choice((1, 3, 16))
    for n in range(operations):
        try:
            operation = choice.choices(OPERATIONS, WEIGHTS)[0][1]
            if requests and operation is attach:
                operation = request
            operation(world, choice, choice.randrange(1 << 16))
            check_structure(world)
        except AssertionError as error:
            raise AssertionError(f"{error}: shape {shape!r}, seed {seed}, operation {n}") from error
    world.run(budget)
    check_structure(world)
    return world.deliveries


@pytest.mark.parametrize("shape", SHAPES)
def test_random_operations(shape: str) -> None:
    seeds = cases(40)
    delivered = sum(run(shape, seed, 170) for seed in range(seeds))
    enough = 533 if SHAPES[shape].get("rule") else 1067  # in 40 seeds
    enough = 400 if SHAPES[shape].get("requests") else enough
    assert delivered * 40 > seeds * enough, "the run exercises deliveries"


@pytest.mark.nightly
@pytest.mark.parametrize("shape", SHAPES)
def test_many_random_operations(shape: str) -> None:
    delivered = sum(run(shape, seed, 200) for seed in range(1000, 1400))
    assert delivered > (4_000 if SHAPES[shape].get("requests") else 10_000)
