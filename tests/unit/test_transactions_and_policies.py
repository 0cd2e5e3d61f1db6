"""A policy that changes while a commit waits for the disk: what the commit found out holds."""

from pamqp.commands import Basic, Tx

from broker.core.queues.hooks import REJECTED
from tests.policies import put
from tests.wired import House, Wired


def rejecting(house: House) -> Wired:
    """A client whose commit, of one rejected message of the durable queue `work`, waits for the disk."""
    client = house.open()
    client.publish("work", b"1", persistent=True)
    house.store.complete()
    client.send(Tx.Select(), 1)
    client.send(Basic.Get(queue="work"), 1)
    client.send(Basic.Reject(1, requeue=False), 1)
    client.frames()
    client.send(Tx.Commit(), 1)
    assert client.frames() == []
    return client


def new_house() -> House:
    house = House()
    for name in ("work", "dead"):
        house.broker.vhost("/").declarations.declare_queue(name, True, None, False, {})
    return house


def outcome(house: House, client: Wired) -> tuple[int, int, int, int]:
    """How many were dead-lettered, discarded, are dead and left, once the commit is durable."""
    house.store.complete()
    assert [type(frame) for frame in client.frames()] == [Tx.CommitOk]
    queues, counters = house.broker.vhost("/").topology.queues, house.broker.counters
    died = counters.dead_lettered[REJECTED], counters.discarded[REJECTED]
    assert len(house.store.settled) == 1
    return (*died, queues["dead"].ready, queues["work"].ready + queues["work"].unacked)


def test_what_was_to_be_dead_lettered_is() -> None:
    house = new_house()
    vhost = house.broker.vhost("/")
    put(vhost, "p", "work", dead_letter_exchange="", dead_letter_routing_key="dead")
    client = rejecting(house)
    vhost.policies.delete("p")
    vhost.policies.apply_all()
    assert outcome(house, client) == (1, 0, 1, 0)


def test_what_was_to_be_discarded_is() -> None:
    house = new_house()
    client = rejecting(house)
    put(house.broker.vhost("/"), "p", "work", dead_letter_exchange="", dead_letter_routing_key="dead")
    assert outcome(house, client) == (0, 1, 0, 0)
