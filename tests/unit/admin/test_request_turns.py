"""Turns of HTTP requests: a thousand at once leave room for the event loop's other work."""

import asyncio
from contextlib import suppress

from broker.admin.app import TURN_SECONDS, Turns


class Clock:
    """Time that passes as requests are answered."""

    now = 0.0


async def test_requests_begin_in_order_and_other_work_comes_between() -> None:
    clock = Clock()
    turns = Turns(lambda: clock.now)
    done: list[object] = []

    async def answer(number: int) -> None:
        await turns.take()
        clock.now += TURN_SECONDS / 4
        done.append(number)

    def other_work() -> None:
        done.append("other")
        if len(done) < 30:
            asyncio.get_running_loop().call_soon(other_work)

    asyncio.get_running_loop().call_soon(other_work)
    await asyncio.gather(*(answer(number) for number in range(12)))
    begun = [each for each in done if each != "other"]
    assert begun == list(range(12))
    start = done.index(0)
    assert done[start : start + 4] == [0, 1, 2, 3]
    for number in range(4, 11):
        assert "other" in done[done.index(number) : done.index(number + 1)]


async def test_requests_that_are_given_up_take_no_turn() -> None:
    clock = Clock()
    turns = Turns(lambda: clock.now)
    await turns.take()
    clock.now += TURN_SECONDS
    waiting = [asyncio.create_task(turns.take()) for _ in range(3)]
    waiting[0].cancel()
    await asyncio.wait_for(asyncio.gather(*waiting[1:]), 1)
    with suppress(asyncio.CancelledError):
        await waiting[0]
    assert waiting[0].cancelled()
    await asyncio.wait_for(turns.take(), 1)
