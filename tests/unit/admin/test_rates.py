"""Rates: the differences between two reads, for any number of queues."""

import gc

from broker.admin.api.management import SUMS_MAX, Rates, Sample
from tests.support.core.topology import add_queue, new_vhost


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def rate(shown: dict[str, object], name: str = "publish") -> float:
    details = shown[f"{name}_details"]
    assert isinstance(details, dict)
    return float(details["rate"])


def test_the_first_sample_has_no_rate_and_the_next_has_the_change() -> None:
    clock = Clock()
    rates, queue = Rates(clock), add_queue(new_vhost(), "q")
    assert rates.of_queue(queue, {"publish": 10, "ack": 1}) == {
        "publish": 10,
        "publish_details": {"rate": 0.0},
        "ack": 1,
        "ack_details": {"rate": 0.0},
    }
    clock.now += 10
    shown = rates.of_queue(queue, {"publish": 60, "ack": 1})
    assert (rate(shown), rate(shown, "ack")) == (5.0, 0.0)
    clock.now += 1
    shown = rates.of_queue(queue, {"publish": 90, "ack": 1})
    assert (shown["publish"], rate(shown)) == (90, 5.0), "too soon for another rate"
    clock.now += 9
    assert rate(rates.of_queue(queue, {"publish": 40, "ack": 1})) == 0.0, "it cannot shrink"


def test_rates_are_right_for_very_many_queues() -> None:
    clock, vhost = Clock(), new_vhost()
    rates = Rates(clock)
    queues = [add_queue(vhost, f"q{number}") for number in range(21_000)]
    for queue in queues:
        rates.of_queue(queue, {"publish": 0})
    clock.now += 10
    assert {rate(rates.of_queue(queue, {"publish": 20})) for queue in queues} == {2.0}


def test_the_rates_of_a_deleted_queue_are_dropped() -> None:
    rates, vhost = Rates(Clock()), new_vhost()
    rates.of_queue(add_queue(vhost, "q"), {"publish": 12345})

    def kept() -> int:
        return sum(isinstance(found, Sample) and found.counters == (12345,) for found in gc.get_objects())

    assert kept() == 1
    vhost.declarations.delete_queue("q", False, False)
    gc.collect()
    assert kept() == 0


def test_sums_of_different_things_do_not_mix() -> None:
    clock = Clock()
    rates = Rates(clock)
    rates.of_sum("a", {"publish": 0})
    rates.of_sum("b", {"publish": 1000})
    clock.now += 10
    assert rate(rates.of_sum("a", {"publish": 10})) == 1.0
    assert rate(rates.of_sum("b", {"publish": 2000})) == 100.0
    for number in range(SUMS_MAX):
        rates.of_sum(number, {"publish": 0})
    clock.now += 10
    assert rate(rates.of_sum("a", {"publish": 500})) == 0.0, "the one not looked at for longest is forgotten"
