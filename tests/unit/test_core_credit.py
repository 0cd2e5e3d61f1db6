"""Windows. [AMQP 0-9-1 basic.qos; Broker-J BasicTest qos*]"""

import pytest

from broker.core.delivery.credit import Credit
from tests.dispatch import Bench


def test_no_limits_means_unlimited() -> None:
    credit = Credit()
    for _ in range(1000):
        credit.use(1 << 40)
    assert credit.has()
    assert credit.fits(1 << 40)


def test_count() -> None:
    credit = Credit(2)
    credit.use(5)
    assert credit.fits(5)
    credit.use(5)
    assert not credit.fits(0)
    assert not credit.has()
    credit.restore(5)
    assert credit.fits(5)


@pytest.mark.parametrize(
    ("out", "size", "fits"), [(4, 6, True), (4, 7, False), (10, 1, False), (11, 1, False)]
)
def test_bytes(out: int, size: int, fits: bool) -> None:
    credit = Credit(0, 10)
    credit.use(out)
    assert credit.fits(size) is fits


def test_the_first_message_always_fits_an_idle_byte_window() -> None:
    credit = Credit(0, 10)
    assert credit.fits(1000)
    credit.use(1000)
    assert not credit.fits(1)
    credit.restore(1000)
    assert credit.fits(1000)


def test_a_window_shrunk_below_what_is_out_stays_exhausted_until_enough_is_back() -> None:
    bench = Bench()
    client = bench.client(5)
    bench.publish(7)
    bench.run()
    assert client.numbers == [1, 2, 3, 4, 5]
    client.credit.resize(2, 0)
    client.ack(1, 2, 3)
    bench.run()
    assert client.numbers == [1, 2, 3, 4, 5]
    client.ack(4)
    bench.run()
    assert client.numbers == [1, 2, 3, 4, 5, 6]


def test_a_window_limited_while_messages_are_out_counts_them() -> None:
    bench = Bench()
    client = bench.client()
    bench.publish(3)
    bench.run()
    client.credit.resize(3, 0)
    bench.publish(2)
    bench.run()
    assert client.numbers == [1, 2, 3]
    client.credit.resize(0, 0)
    bench.run()
    assert client.numbers == [1, 2, 3, 4, 5]


def test_a_shared_window_suspends_and_resumes_all_who_share_it() -> None:
    """[AMQP 0-9-1 basic.qos global=true, RabbitMQ: per channel]"""
    bench = Bench()
    shared = Credit(3)
    first = bench.client(session_credit=shared)
    second = bench.client(session=first.session, session_credit=shared)
    bench.publish(8)
    bench.run()
    assert len(first.held) + len(second.held) == 3
    assert not first.desired
    assert not second.desired
    first.ack()
    second.ack()
    bench.run()
    assert len(first.deliveries) + len(second.deliveries) == 6


def test_both_windows_hold() -> None:
    bench = Bench()
    shared = Credit(4)
    first = bench.client(1, session_credit=shared)
    second = bench.client(10, session=first.session, session_credit=shared)
    bench.publish(9)
    bench.run()
    assert (len(first.held), len(second.held)) == (1, 3)


def test_a_closed_target_gives_its_part_of_a_shared_window_back_with_its_messages() -> None:
    bench = Bench()
    shared = Credit(2)
    leaving = bench.client(session_credit=shared)
    bench.publish(4)
    bench.run()
    staying = bench.client(session=leaving.session, session_credit=shared)
    leaving.cancel()
    bench.run()
    assert staying.numbers == []
    leaving.ack()
    bench.run()
    assert staying.numbers == [3, 4]
