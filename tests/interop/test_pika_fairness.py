"""Equal consumers of pika get equal shares, and nobody is woken for nothing."""

import pytest

from tests.interop.pika_connection import connected
from tests.interop.pika_worker import Worker
from tests.support.daemon.daemon import Daemon, DaemonStarter

pytestmark = pytest.mark.amqpd_only("amqpd's own promise, and its metrics")


def wakeups(daemon: Daemon) -> tuple[float, float, float]:
    """Return the numbers of messages made ready, of wake-ups, and of empty wake-ups."""
    names = ("messages_made_ready", "consumer_wakeups", "consumer_empty_wakeups")
    made_ready, woken, in_vain = (daemon.metric(f"amqpd_{name}_total") for name in names)
    return made_ready, woken, in_vain


def test_each_message_wakes_one_consumer_and_each_consumer_has_its_turn(start_daemon: DaemonStarter) -> None:
    daemon = start_daemon()
    publisher = connected(daemon.address)
    channel = publisher.channel()
    channel.confirm_delivery()
    channel.queue_declare("q")
    workers = [Worker(lambda: connected(daemon.address), "q", 4) for _ in range(5)]
    assert wakeups(daemon) == (0, 0, 0)
    for number in range(20):
        channel.basic_publish("", "q", b"%d" % number)
        assert sum(worker.look() for worker in workers) == number + 1
        shares = [len(worker.received) for worker in workers]
        assert max(shares) - min(shares) <= 1, shares
    made_ready, woken, in_vain = wakeups(daemon)
    assert (made_ready, woken) == (20, 20)
    assert in_vain <= 20
    for number in range(20, 30):
        channel.basic_publish("", "q", b"%d" % number)
    assert wakeups(daemon) == (30, 20, in_vain), "nobody who has no credit is woken"
    workers[3].channel.basic_ack(0, multiple=True)
    assert [worker.look() for worker in workers] == [4, 4, 4, 8, 4]
    for worker in workers:
        worker.connection.close()
    publisher.close()
    daemon.stop()


def test_a_backlog_is_shared_equally(start_daemon: DaemonStarter) -> None:
    daemon = start_daemon()
    publisher = connected(daemon.address)
    channel = publisher.channel()
    channel.queue_declare("q")
    for _ in range(5_000):
        channel.basic_publish("", "q", b"0")
    workers = [Worker(lambda: connected(daemon.address), "q", 10) for _ in range(10)]
    shares = [0] * len(workers)
    while sum(shares) < 5_000:
        for place, worker in enumerate(workers):
            count = worker.look()
            if count:
                shares[place] += count
                worker.channel.basic_ack(worker.receive(count)[-1][0], multiple=True)
    index = sum(shares) ** 2 / (len(shares) * sum(share * share for share in shares))
    assert index >= 0.99, shares
    made_ready, woken, in_vain = wakeups(daemon)
    assert made_ready == 5_000
    assert in_vain <= woken <= made_ready
    for worker in workers:
        worker.connection.close()
    publisher.close()
    daemon.stop()
