"""A step of a staged reader that the full disk refuses, and its messages when there is room again."""

import random

from broker.core.queues.returns import settle_all
from tests.simulation.broker_life import Life
from tests.simulation.sim_disk import SimDisk
from tests.support.store.hand_log import RecordingWaiter

ROOM: int = 1 << 40


def turn(life: Life) -> None:
    life.commit()
    life.clock.advance(1000)
    life.tidy()


def test_a_step_that_failed_is_not_there_after_a_restart() -> None:
    disk = SimDisk(random.Random(1))
    life = Life(disk)
    life.declare("q")
    for number in range(8):
        life.publish("q", b"%d" % number * 50)
    staging, queue = life.broker.staging, life.vhost.topology.queues["q"]
    stage = staging.attach(queue, "r", 1)
    for _ in range(3):
        assert stage.take_one() >= 0
    staging.append(stage, stage.step(0, 0))
    turn(life)
    stage.note_durable()

    disk.capacity = disk.used()
    for _ in range(4):
        assert stage.take_one() >= 0
    waiter = RecordingWaiter()
    staging.append(stage, stage.step(2, 0))
    life.log.wait(waiter)
    turn(life)
    assert waiter.failed
    staging.undo(stage)

    disk.capacity = ROOM
    turn(life)
    assert life.log.failure == ""
    consumer, taken = life.take("q")
    settle_all(taken, consumer)  # others get what was not staged
    turn(life)
    disk.kill()

    again = Life(disk)
    again.broker.resume()
    back = again.broker.staging.existing(again.vhost.topology.queues["q"], "r")
    assert (back.first, back.next, back.lost) == (0, 3, [])
    assert [back.entry(offset) is not None for offset in range(3)] == [True] * 3
    assert len(taken) == 5
