"""What is described object by object, while anything may happen in between."""

import pytest

from tests.effort import THOROUGH
from tests.topology_history import NAMES, SOURCES, VHOSTS, Noting, Step, applied, durable, world

FULL: list[Step] = [
    *[("queue", name, queue, "", number) for name in VHOSTS for number, queue in enumerate(NAMES, 1)],
    *[
        ("exchange", name, exchange, "", number)
        for name in VHOSTS
        for number, exchange in enumerate(NAMES, 1)
    ],
    *[("bind", name, queue, source, 1) for name in VHOSTS for queue in NAMES[:2] for source in SOURCES[:2]],
    *[("bind", name, "p", "q", 2) for name in VHOSTS],
    *[("bind exchange", name, exchange, "q", 1) for name in VHOSTS for exchange in NAMES],
    *[("policy", name, policy, "", number) for name in VHOSTS for policy in NAMES[:2] for number in (1, 2)],
    *[("user", "", user, "", 1) for user in NAMES],
    *[("permit", name, user, "", 5) for name in VHOSTS for user in NAMES[:2]],
    *[("publish", "a", "r", "", 0), ("wait", "", "", "", 0), ("publish", "a", "r", "", 0)],
]
"""Makes something of everything."""

TURNS: list[tuple[Step, ...]] = [
    (("no queue", "a", "p", "", 0),),
    (("no queue", "a", "s", "", 0), ("queue", "a", "s", "", 1), ("bind", "a", "s", "p", 2)),
    (("rename", "a", "q", "t", 1), ("queue", "a", "q", "", 1), ("unbind", "a", "t", "p", 1)),
    (("rename", "a", "s", "t", 1), ("rename", "a", "p", "s", 1), ("rename", "a", "t", "p", 1)),
    (("no exchange", "a", "q", "", 0),),
    (("no exchange", "a", "s", "", 0), ("exchange", "a", "s", "", 2), ("bind", "a", "p", "s", 2)),
    (("unbind", "a", "p", "q", 1), ("unbind exchange", "b", "s", "q", 1)),
    (("unbind", "a", "p", "q", 2),),
    (("unbind", "a", "p", "q", 1), ("bind", "a", "p", "q", 1), ("bind", "a", "r", "amq.topic", 1)),
    (("no policy", "a", "q", "", 1), ("no policy", "b", "p", "", 2)),
    (("no policy", "a", "q", "", 1), ("policy", "a", "q", "", 3), ("policy", "a", "p", "", 4)),
    (("stop", "a", "q", "", 2), ("wait", "", "", "", 0), ("publish", "a", "r", "", 0)),
    (("no vhost", "a", "", "", 0),),
    (("no vhost", "b", "", "", 0),),
    (("vhost again", "a", "", "", 0), ("queue", "a", "p", "", 2), ("permit", "a", "p", "", 3)),
    (("limit", "b", "", "", 3), ("tell", "b", "t", "d", 0), ("parameter", "", "p", "", 1)),
    (("no user", "", "p", "", 0), ("forbid", "a", "q", "", 0)),
    (("no user", "", "q", "", 0), ("user", "", "q", "", 2), ("permit", "b", "q", "", 3)),
]
"""What may happen between two objects."""


@pytest.mark.parametrize("turn", TURNS)
def test_wherever_the_description_stands(turn: tuple[Step, ...]) -> None:
    stands = 0
    going = True
    stride = 1 if THOROUGH else 3  # of the places where the description may stand
    while going:
        store = Noting()
        live = world(store)
        for step in FULL:
            live.follow(step)
        going = not store.take(live.broker, stands)
        if going:
            for step in turn:
                live.follow(step)
            while not store.take(live.broker, 1):
                pass
        assert durable(applied(store.text).broker) == durable(live.broker), stands
        stands += stride
    assert stands > 60
