"""Turns of HTTP requests: how many begin to be answered before the event loop's other work."""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final, final

TURN_SECONDS: Final = 0.01


@final
class Turns:
    """Lets requests begin, in the order in which they have come.

    A thousand requests that arrive together would otherwise be answered in one turn of the event loop, and
    clients of AMQP wait for all of them. Requests begin for TURN_SECONDS in one turn of the loop. From then
    on one request begins in each turn, until no request waits.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._end = 0.0
        self._armed = False

    async def take(self) -> None:
        """Return when a request may begin."""
        if not self._armed:
            self._armed = True
            self._end = self._clock() + TURN_SECONDS
            asyncio.get_running_loop().call_soon(self._turn)
        elif self._waiting or self._clock() >= self._end:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn

    def _turn(self) -> None:
        self._armed = False
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                break
        if self._waiting:
            self._armed = True
            asyncio.get_running_loop().call_soon(self._turn)
