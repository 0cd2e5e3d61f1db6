"""A schedule that the event loop drives."""

import asyncio
import time

from broker.core.schedule import Alarm
from broker.net.alarm_clock import AlarmClock


class Bell(Alarm):
    """Sets a future when it rings."""

    def __init__(self, rung: asyncio.Future[int], clock: AlarmClock) -> None:
        super().__init__()
        self.rung = rung
        self.clock = clock

    def ring(self) -> None:
        self.rung.set_result(self.clock.schedule.now())


async def test_alarms_ring_in_order_and_never_early() -> None:
    loop = asyncio.get_running_loop()
    clock = AlarmClock(loop)
    schedule = clock.schedule
    began = schedule.now()
    later, sooner, past = (Bell(loop.create_future(), clock) for _ in range(3))
    schedule.set(later, began + 40)
    schedule.set(sooner, began + 10)
    schedule.set(past, began - 5)
    assert await past.rung >= began
    assert not sooner.rung.done()
    assert await sooner.rung >= began + 10
    assert not later.rung.done()
    assert await later.rung >= began + 40


async def test_the_date_is_the_system_s() -> None:
    clock = AlarmClock(asyncio.get_running_loop())
    before = time.time_ns() // 1_000_000
    date = clock.schedule.date()
    assert before <= date <= time.time_ns() // 1_000_000
