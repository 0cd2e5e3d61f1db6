"""A change of policies reaches what is there already, in slices."""

from broker.core.broker import Broker
from broker.core.counters import Counters
from broker.core.message import Address, Message
from broker.core.schedule import Schedule
from broker.core.vhosts.policies import SLICE
from broker.store.restore import Recovered
from tests.clock import HandClock
from tests.policies import put
from tests.topology import RecordingStore, add_queue, new_broker


def test_changes_reach_many_queues_in_slices_and_tell_when_they_have() -> None:
    clock = HandClock()
    broker = Broker(RecordingStore(), Counters(), lambda: "", clock.schedule)
    vhost = broker.declare_vhost("/")
    queues = [add_queue(vhost, f"q{number}") for number in range(SLICE)]
    put(vhost, "p", "", now=False, max_length=1)
    done: list[int] = []

    def reached() -> int:
        return sum("x-max-length" in queue.effective for queue in queues)

    vhost.policies.call_when_applied(lambda: done.append(reached()))
    assert reached() == 0
    assert done == []
    clock.schedule.run()
    assert 0 < reached() < len(queues)
    assert done == []
    doomed = next(queue for queue in queues if "x-max-length" not in queue.effective)
    vhost.declarations.delete_queue(doomed.name, if_unused=False, if_empty=False)
    while not done:
        clock.schedule.run()
    assert done == [len(queues) - 1]
    assert "x-max-length" not in doomed.effective
    vhost.policies.call_when_applied(lambda: done.append(0))
    assert done[-1] == 0, "at once when there is nothing to be done"


def test_a_change_during_another_one_reaches_everything_too() -> None:
    clock = HandClock()
    vhost = Broker(RecordingStore(), Counters(), lambda: "", clock.schedule).declare_vhost("/")
    queues = [add_queue(vhost, f"q{number}") for number in range(SLICE)]
    put(vhost, "p", "", now=False, max_length=1)
    clock.schedule.run()
    for number in range(20):
        put(vhost, f"r{number}", f"^q{number}$", priority=1, now=False, max_length=number)
    done: list[bool] = []
    vhost.policies.call_when_applied(lambda: done.append(True))
    while not done:
        clock.schedule.run()
    held = [queue.effective["x-max-length"] for queue in queues]
    assert held == [*range(20), *[1] * (SLICE - 20)]


def test_a_deleted_virtual_host_ends_the_change() -> None:
    broker = new_broker()
    vhost = broker.declare_vhost("v")
    add_queue(vhost, "q")
    put(vhost, "p", "", now=False, max_length=1)
    done: list[bool] = []
    vhost.policies.call_when_applied(lambda: done.append(True))
    broker.delete_vhost("v")
    assert done == [True]


def test_a_turn_ends_when_it_has_taken_its_time_however_few_patterns_that_were() -> None:
    time = 0

    def slow() -> int:
        nonlocal time
        time += 1_000_000
        return time

    schedule = Schedule(slow, lambda: 0, lambda due: None)
    vhost = Broker(RecordingStore(), Counters(), lambda: "", schedule).declare_vhost("/")
    queues = [add_queue(vhost, f"q{number}") for number in range(100)]
    put(vhost, "p", "", now=False, max_length=1)
    for _ in range(20):
        schedule.run()
    assert 0 < sum("x-max-length" in queue.effective for queue in queues) < 60
    for _ in range(200):
        schedule.run()
    assert all("x-max-length" in queue.effective for queue in queues)


def test_messages_come_back_into_queues_as_their_policies_want_them() -> None:
    clock = HandClock()
    broker = new_broker(clock=clock)
    store = RecordingStore()
    old = new_broker(store).declare_vhost("/")
    old.declarations.declare_queue("q", True, None, False, {})
    put(old, "p", "", message_ttl=1000)
    sink = Recovered(broker)
    for change in store.changes:
        sink.apply(change)
    sink.defined()
    queue = broker.vhosts["/"].topology.queues["q"]
    message = Message(Address("", "q"), b"", 0, True, 0)
    message.date = clock.date()
    message.sequence = 1
    assert sink.message(message, [int(queue.number)], True, {}) == 1
    broker.resume()
    clock.advance(999)
    assert queue.ready == 1
    clock.advance(1)
    assert queue.ready == 0
