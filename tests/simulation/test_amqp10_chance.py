"""Random clients of AMQP 1.0 cause no internal error, and all their deliveries return in the end."""

from collections import Counter

import pytest

from tests.support.adapters.chance_client10 import ChanceClient

STEPS = 40
COMMON = ("Attach", "Transfer", "Disposition", "Flow", "Detach", "amqp:transaction:unknown-id")


def lives(seeds: range) -> Counter[str]:
    """Run a client for each seed, and return the counts of received performatives."""
    heard: Counter[str] = Counter()
    for seed in seeds:
        client = ChanceClient(seed)
        client.live(STEPS)
        assert client.heard["amqp:internal-error"] == 0, f"seed {seed}"
        for queue in client.vhost.topology.queues.values():
            assert (queue.unacked, queue.unacked_bytes) == (0, 0), f"seed {seed}"
            assert queue.ready == len(list(queue.entries)), f"seed {seed}"
        heard += client.heard
    return heard


def test_a_few_lives() -> None:
    heard = lives(range(150))

    assert all(heard[name] > 50 for name in COMMON), heard


@pytest.mark.nightly
def test_many_lives() -> None:
    lives(range(4000))
