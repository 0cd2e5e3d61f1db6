"""Delays after failed log-ins, and log-ins that are not delayed."""

import pytest

from broker.auth import backoff as module
from broker.auth.backoff import DELAY_MAX, FORGOTTEN_SECONDS, FREE_FAILURES, FREE_NAMES, BackOff, network


@pytest.fixture
def backoff() -> BackOff:
    return BackOff()


def test_a_few_mistakes_are_free_then_each_doubles_the_wait(backoff: BackOff) -> None:
    waits = []
    for _ in range(FREE_FAILURES + 6):
        waits.append(backoff.login_delay("10.0.0.1", "ann", 100.0))
        backoff.count_failure("10.0.0.1", "ann", 100.0)
    assert waits == [0.0] * FREE_FAILURES + [0.25, 0.5, 1.0, 2.0, 4.0, DELAY_MAX]


def test_the_wait_counts_from_the_last_failure(backoff: BackOff) -> None:
    for _ in range(FREE_FAILURES + 2):
        backoff.count_failure("10.0.0.1", "ann", 100.0)
    assert [backoff.login_delay("10.0.0.1", "ann", now) for now in (100.0, 100.75, 101.0, 200.0)] == [
        1.0,
        0.25,
        0,
        0,
    ]


def test_failures_delay_only_the_same_user_from_the_same_address(backoff: BackOff) -> None:
    for _ in range(50):
        backoff.count_failure("10.0.0.1", "ann", 100.0)
    assert backoff.login_delay("10.0.0.2", "ann", 100.0) == 0.0
    assert backoff.login_delay("10.0.0.1", "bob", 100.0) == 0.0
    assert backoff.login_delay("10.0.0.1", "ann", 100.0) == DELAY_MAX


def test_many_names_from_one_address_hold_refusals_back_and_delay_no_name(backoff: BackOff) -> None:
    for number in range(FREE_NAMES):
        assert backoff.refusal_delay("10.0.0.1", 100.0) == 0.0
        backoff.count_failure("10.0.0.1", f"user{number}", 100.0)
    assert backoff.refusal_delay("10.0.0.1", 100.0) > 0.0
    assert backoff.refusal_delay("10.0.0.2", 100.0) == 0.0
    assert backoff.login_delay("10.0.0.1", "next", 100.0) == 0.0


def test_a_success_forgets_only_failures_of_its_user_and_address(backoff: BackOff) -> None:
    for address in ("10.0.0.1", "10.0.0.2"):
        for _ in range(FREE_FAILURES):
            backoff.count_failure(address, "ann", 100.0)
    backoff.forget_failures("10.0.0.1", "ann")
    assert backoff.login_delay("10.0.0.1", "ann", 100.0) == 0.0
    assert backoff.login_delay("10.0.0.2", "ann", 100.0) > 0.0


def test_failures_are_forgotten_in_time(backoff: BackOff) -> None:
    for _ in range(10):
        backoff.count_failure("10.0.0.1", "ann", 100.0)
    backoff.count_failure("10.0.0.2", "bob", 100.0 + FORGOTTEN_SECONDS)
    assert len(backoff) == 2  # bob's, and that of his network
    assert backoff.login_delay("10.0.0.1", "ann", 101.0 + FORGOTTEN_SECONDS) == 0.0


def test_memory_is_bounded_and_the_longest_idle_goes_first(
    backoff: BackOff, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ENTRIES_MAX", 100)
    for number in range(1000):
        backoff.count_failure(f"10.0.{number // 250}.{number % 250}", "ann", 100.0)
        backoff.count_failure("10.9.9.9", "bob", 100.0)
        assert len(backoff) <= 102
    assert backoff.login_delay("10.9.9.9", "bob", 100.0) == DELAY_MAX


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("10.0.0.1", "10.0.0.2", False),
        ("2001:db8::1", "2001:db8::ffff:2", True),
        ("2001:db8:0:1::1", "2001:db8:0:2::1", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("fe80::1%eth0", "fe80::2%eth0", True),
        ("", "", True),
    ],
)
def test_networks(one: str, other: str, same: bool) -> None:
    assert (network(one) == network(other)) is same
