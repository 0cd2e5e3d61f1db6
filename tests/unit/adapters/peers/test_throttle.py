"""Publishers wait while the log is behind: first who fills it, and when it is far behind, all of them."""

import pytest

from broker.adapters.peers.connections import HELD_FOR_LOG
from broker.adapters.peers.throttle import FAR_BEHIND_BYTES, UNSYNCED_BYTES_MAX
from tests.support.adapters.connection_without_socket import HandStore, House, Wired


class Yard:
    """Clients of a broker whose log is as far behind as the test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.behind = 0
        monkeypatch.setattr(HandStore, "unsynced_bytes", property(lambda _: self.behind))
        self.house = House()
        self.busy, self.idle, self.reader = (self.house.open() for _ in range(3))
        for client in (self.busy, self.idle):
            client.publish("q")
        self.house.open().connection.lost("")

    def held(self) -> list[bool]:
        """Who is not read from."""
        return [client.edge.holds == HELD_FOR_LOG for client in (self.busy, self.idle, self.reader)]


@pytest.fixture
def yard(monkeypatch: pytest.MonkeyPatch) -> Yard:
    return Yard(monkeypatch)


def test_a_log_that_is_behind_holds_who_publishes(yard: Yard) -> None:
    yard.behind = UNSYNCED_BYTES_MAX + 1
    yard.busy.publish("q")
    assert yard.held() == [True, False, False]
    yard.house.store.complete()
    assert yard.held() == [False, False, False]


def test_a_log_that_is_far_behind_holds_all_publishers_at_once(yard: Yard) -> None:
    """Each may bring a message that is as large as its connection has gathered."""
    yard.behind = FAR_BEHIND_BYTES + 1
    yard.busy.publish("q")
    assert yard.held() == [True, True, False]
    newcomer: Wired = yard.house.open()
    newcomer.publish("q")
    assert newcomer.edge.holds == HELD_FOR_LOG
    yard.house.store.complete()
    assert yard.held() == [False, False, False]
    yard.busy.publish("q")
    yard.house.store.fail("the disk is gone")
    assert yard.held() == [False, False, False]
