"""Random histories of a broker whose definitions are described meanwhile, a few objects at a time.

What was described, with what changed in between, makes the same broker again; and so does a log that begins
segments and is read again while a description is under way.
"""

import random

from hypothesis import event, given, settings
from hypothesis import strategies as st

from broker.core.vhosts.changes import queue_change
from broker.store.definition_text import DefinitionText
from broker.store.restore import close
from tests.simulation.broker_life import Life
from tests.simulation.sim_disk import SimDisk
from tests.support.core.definition_histories import (
    CHANGE,
    DROP,
    MAKE,
    NAMES,
    SOURCES,
    USERS,
    VHOST,
    VHOSTS,
    ChangeStore,
    Step,
    World,
    applied,
    durable_changes,
    new_world,
)
from tests.support.core.topology import definitions_of
from tests.support.effort import cases


def steps(*others: str) -> st.SearchStrategy[Step]:
    """Draw a step: the action, its virtual host, its objects, and its options."""
    return st.tuples(
        st.sampled_from([*MAKE, *MAKE, *CHANGE, *DROP, *VHOST, *others]),
        st.sampled_from(VHOSTS),
        st.sampled_from(NAMES),
        st.sampled_from(SOURCES),
        st.integers(0, 11),
    )


@settings(max_examples=cases(300))
@given(
    st.lists(steps(*USERS), min_size=10, max_size=40),
    st.lists(steps(*USERS, *["take"] * 20), min_size=20, max_size=80),
    st.integers(1, 4),
)
def test_a_description_with_the_changes_meanwhile_makes_the_same_broker(
    before: list[Step], meanwhile: list[Step], objects: int
) -> None:
    store = ChangeStore()
    live = new_world(store)
    for step in before:
        live.follow(step)
    complete = 0
    for step in meanwhile:
        if step[0] != "take":
            live.follow(step)
        elif store.take(live.broker, objects):
            complete += 1
            assert durable_changes(applied(store.text).broker) == durable_changes(live.broker)
    while not store.take(live.broker, 1):
        pass
    assert durable_changes(applied(store.text).broker) == durable_changes(live.broker)
    event(f"{min(complete, 3)} descriptions came to an end")


def settled(life: Life) -> None:
    """Make everything durable."""
    for _ in range(2):
        life.commit()


def begun(disk: SimDisk) -> tuple[Life, World]:
    """A process whose log describes everything anew all the time, an object or two in each batch."""
    life = Life(disk)
    life.log.appender.definitions = DefinitionText(life.broker.describe, changes_min=100, step=2)
    life.log.appender.definitions.text()
    return life, World(life.broker, life.clock)


@settings(max_examples=cases(150))
@given(st.lists(steps(*["commit"] * 20, "kill", "stop", "segment"), min_size=30, max_size=100), st.randoms())
def test_a_log_that_ends_in_the_middle_makes_the_same(history: list[Step], rng: random.Random) -> None:
    disk = SimDisk(rng)
    life, live = begun(disk)
    for step in [*history, ("kill", "", "", "", 0)]:
        if step[0] == "commit":
            life.commit()
        elif step[0] == "segment":
            life.log.filling.segment.limit = 0  # the next batch is the last one in this segment
        elif step[0] in ("kill", "stop"):
            settled(life)
            changes = definitions_of(life.broker)
            if step[0] == "stop":
                for vhost in life.broker.vhosts.values():
                    changes += [
                        queue_change(vhost.name, q, True)
                        for q in vhost.topology.queues.values()
                        if q.volatile
                    ]
                close(life.broker, life.log)
            expected = applied(changes).broker
            expected.count_lost()
            disk.kill()
            life, live = begun(disk)
            assert durable_changes(life.broker) == durable_changes(expected)
        else:
            live.follow(step)
    life.log.release()
