"""A schedule that the event loop drives."""

import asyncio
import time

from broker.core.schedule import TimedTask
from broker.net.alarm_clock import AlarmClock


class Bell(TimedTask):
    """Notes when it rings, behind the bells that rang before, and sets a future."""

    def __init__(self, notes: list[tuple[str, int]], name: str, clock: AlarmClock) -> None:
        super().__init__()
        self.notes, self.name, self.clock = notes, name, clock
        self.rung = asyncio.get_running_loop().create_future()

    def do_due_work(self) -> None:
        self.notes.append((self.name, self.clock.schedule.now()))
        self.rung.set_result(None)


async def test_alarms_ring_in_order_and_never_early() -> None:
    clock = AlarmClock(asyncio.get_running_loop())
    schedule = clock.schedule
    notes: list[tuple[str, int]] = []
    later, sooner, past = (Bell(notes, name, clock) for name in ("later", "sooner", "past"))
    began = schedule.now()
    schedule.set(later, began + 40)
    schedule.set(sooner, began + 10)
    schedule.set(past, began - 5)
    await later.rung
    names, times = zip(*notes, strict=True)
    assert names == ("past", "sooner", "later")
    assert all(at >= due for at, due in zip(times, (began, began + 10, began + 40), strict=True))


async def test_the_date_is_the_system_s() -> None:
    clock = AlarmClock(asyncio.get_running_loop())
    before = time.time_ns() // 1_000_000
    date = clock.schedule.date()
    assert before <= date <= time.time_ns() // 1_000_000


async def test_no_alarm_rings_after_the_stop() -> None:
    clock = AlarmClock(asyncio.get_running_loop())
    notes: list[tuple[str, int]] = []
    before, after = (Bell(notes, name, clock) for name in ("before", "after"))
    clock.schedule.set(before, clock.schedule.now() + 1)
    clock.stop()
    clock.schedule.set(after, clock.schedule.now())

    await asyncio.sleep(0.02)

    assert notes == []
