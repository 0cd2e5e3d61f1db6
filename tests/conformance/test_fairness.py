"""Equal consumers get equal shares, whether they share a connection or not, and few are woken for nothing."""

from collections.abc import Iterator

import pytest

from tests.bench.crowd import jain
from tests.bench.fairness import CASES, EMPTY_MAX, Case, share, woken_for
from tests.support.daemon.daemon import Daemon

pytestmark = pytest.mark.amqpd_only("amqpd's own promise, and its metrics")
MESSAGES = 1_000
CONSUMERS = 10  # on one connection, and as many on connections of their own
PAUSE_S = 0.02  # the interpreted broker answers all consumers in less, on a busy machine too


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A broker whose metrics count nothing else."""
    daemon = Daemon(tmp_path_factory.mktemp("fairness")).wait_until_ready()
    yield daemon
    daemon.stop()


@pytest.mark.parametrize("flood", [False, True], ids=["backlog", "flood"])
@pytest.mark.parametrize("prefetch", [0, 1, 2])
def test_consumers_that_share_a_connection_get_equal_shares(
    daemon: Daemon, prefetch: int, flood: bool
) -> None:
    shares = share(daemon, MESSAGES, prefetch, flood, consumers=CONSUMERS, pause=PAUSE_S)
    assert jain(shares) >= 0.98, shares


@pytest.mark.parametrize("prefetch", [0, 2])
def test_consumers_of_both_protocols_get_equal_shares(daemon: Daemon, prefetch: int) -> None:
    shares = share(daemon, MESSAGES, prefetch, False, mixed=True, consumers=CONSUMERS, pause=PAUSE_S)
    assert jain(shares) >= 0.98, shares


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_few_wakeups_of_consumers_are_in_vain(daemon: Daemon, case: Case) -> None:
    woken, empty, _ = woken_for(daemon, case, 300, rate=0)
    assert empty <= EMPTY_MAX
    assert woken <= 1 + EMPTY_MAX
