"""The numbers of incarnations, which a broker never repeats."""

from broker.core.broker import Broker
from tests.support.core.topology import RecordingStore, definitions_of, new_broker


def restarted(changes: list[dict[str, object]]) -> Broker:
    broker = new_broker(RecordingStore())
    for change in changes:
        broker.apply(change)
    return broker


def test_a_broker_never_repeats_an_incarnation_whatever_the_calendar_says() -> None:
    store = RecordingStore()
    broker = new_broker(store)
    broker.declare_vhost("/")
    found = [int(broker.new_incarnation()) for _ in range(3)]
    from_log = restarted(store.changes)  # as after a kill, with the same date again
    found.append(int(from_log.new_incarnation()))
    from_head = restarted(definitions_of(from_log))  # as after the log has dropped its first segments
    found.append(int(from_head.new_incarnation()))
    assert found == sorted(set(found))
