"""Publishers wait while the log is behind: first who fills it, and when it is far behind, all of them."""

import pytest

from broker.adapters.peers.connections import HELD_FOR_LOG
from broker.adapters.peers.log_throttle import FAR_BEHIND_BYTES, UNSYNCED_BYTES_MAX
from tests.support.adapters.connection_without_socket import BrokerBench, Client091, HandStore


class BrakeBench:
    """Clients of a broker whose log is as far behind as the test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.behind = 0
        monkeypatch.setattr(HandStore, "unsynced_bytes", property(lambda _: self.behind))
        self.broker_bench = BrokerBench()
        self.busy, self.idle, self.reader = (self.broker_bench.open() for _ in range(3))
        for client in (self.busy, self.idle):
            client.publish("q")
        self.broker_bench.open().connection.on_lost("")

    def held(self) -> list[bool]:
        """Whether the broker has stopped reading from the busy client, the idle client and the reader."""
        return [client.edge.holds == HELD_FOR_LOG for client in (self.busy, self.idle, self.reader)]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> BrakeBench:
    return BrakeBench(monkeypatch)


def test_too_many_unsynced_bytes_pause_publishing_connections(bench: BrakeBench) -> None:
    bench.behind = UNSYNCED_BYTES_MAX + 1
    bench.busy.publish("q")
    assert bench.held() == [True, False, False]
    bench.broker_bench.store.complete()
    assert bench.held() == [False, False, False]


def test_a_log_that_is_far_behind_holds_all_publishers_at_once(bench: BrakeBench) -> None:
    """Each connection may publish a message as large as its gathered bytes."""
    bench.behind = FAR_BEHIND_BYTES + 1
    bench.busy.publish("q")
    assert bench.held() == [True, True, False]
    newcomer: Client091 = bench.broker_bench.open()
    newcomer.publish("q")
    assert newcomer.edge.holds == HELD_FOR_LOG
    bench.broker_bench.store.complete()
    assert bench.held() == [False, False, False]
    bench.busy.publish("q")
    bench.broker_bench.store.fail("the disk is gone")
    assert bench.held() == [False, False, False]
