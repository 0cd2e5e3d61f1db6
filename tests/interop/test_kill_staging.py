"""kill -9 during the steps of a reader: each is done whole or not at all, and offsets stay.

The reader does what a Spark query does: it asks again for what it got no answer to, and reads again.
"""

import random
import threading

import httpx
import pytest

from protocol.streams.chunk import BODY, Chunk
from tests.conformance.test_http_operations import publish
from tests.support.admin.api import Api
from tests.support.daemon.daemon import DaemonStarter

MESSAGES = 3000
STEP = 20
READER = ("staged", "/", "q", "r")


class Reader:
    """A reader that continues on the next broker after a kill.

    `read`: by offset, all that it has ever been given with it.
    """

    def __init__(self) -> None:
        self.first = 0
        self.next = 0
        self.whole = True  # the reader has all before `next`, so it may have acknowledged that
        self.over = False
        self.steps = 0
        self.read: dict[int, set[bytes]] = {}
        self.failure: BaseException | None = None

    def run(self, base: str) -> None:
        """Read from a broker."""
        api = Api(base)
        try:
            state = api.post(*READER, status=200, body={})
            epoch = state["epoch"]
            if state["next"] > self.next:  # the answer to a step was lost
                self.first, self.next, self.whole = state["first"], state["next"], False
            if not self.whole:
                self._fetch(api, self.first, self.next)
            while not self.over:
                body = {"epoch": epoch, "ack_upto": self.next, "want_rows": STEP, "expect_next": self.next}
                found = api.post(*READER, "advance", status=200, body=body)
                assert found["first"] == self.next
                self.first, self.next = found["first"], found["next"]
                self.whole = False
                self.over = self.first == self.next
                self._fetch(api, self.first, self.next)
                self.steps += 1
        except httpx.TransportError:
            pass  # the broker was killed
        except BaseException as failure:
            self.failure = failure
        finally:
            api.close()

    def _fetch(self, api: Api, offset: int, end: int) -> None:
        if offset == end:
            return
        answer = api.ask("GET", *READER, "rows", **{"from": str(offset), "to": str(end)})
        assert answer.status_code == 200, answer.text
        content = answer.content
        position = 0
        while position < len(content):
            chunk = Chunk(content, position)
            for row in range(chunk.rows):
                self.read.setdefault(chunk.header.first + row, set()).add(chunk.value(BODY, row))
            position += chunk.header.size
        self.whole = True


def killed(start_daemon: DaemonStarter, rounds: int) -> None:
    """Kill the broker so often, then have the reader come to an end."""
    chance = random.Random(1)
    daemon = start_daemon().load_api()
    api = Api(daemon.admin)
    api.put("queues", "/", "q", durable=True)
    api.close()
    publish(daemon.address, "/", "q", MESSAGES)
    reader = Reader()
    for _ in range(rounds):
        running = threading.Thread(target=reader.run, args=(daemon.admin,))
        running.start()
        running.join(chance.uniform(0.02, 0.4))
        daemon.kill()
        running.join()
        assert reader.failure is None, reader.failure
        daemon = start_daemon().load_api()  # the instant of the kill is meant to be among steps
    reader.run(daemon.admin)
    assert reader.failure is None, reader.failure
    assert reader.over
    assert reader.steps > 0
    assert reader.read == {number: {b"%d" % number} for number in range(MESSAGES)}


def test_kill_among_steps(start_daemon: DaemonStarter) -> None:
    killed(start_daemon, 4)


@pytest.mark.nightly
def test_kill_among_steps_for_long(start_daemon: DaemonStarter) -> None:
    killed(start_daemon, 40)
