"""Places in a queue that is deleted while the API looks for them."""

import asyncio

import pytest

from broker.admin.api import selection
from broker.admin.api.selection import entry_at, entry_before
from tests.support.core.timed_vhost import VhostBench


@pytest.mark.parametrize("deleted_after", [1, 2])
def test_a_place_in_a_queue_that_is_deleted_meanwhile_is_not_found(
    monkeypatch: pytest.MonkeyPatch, deleted_after: int
) -> None:
    monkeypatch.setattr("broker.core.queues.purge.CLEARING_SLICE", 3)  # in several turns
    monkeypatch.setattr(selection, "LOOK", 4)
    bench = VhostBench()
    breaths: list[int] = []

    async def breathe(slices: object) -> None:
        breaths.append(1)
        bench.clock.advance(0)
        if len(breaths) == deleted_after:
            bench.vhost.declarations.delete_queue("q", False, False)

    monkeypatch.setattr("broker.admin.api.slices.Slices.breathe", breathe)
    for by_mark in (False, True):
        queue = bench.queue()
        bench.publish(count=30)
        *_, last = queue.entries
        breaths.clear()
        if by_mark:
            assert asyncio.run(entry_before(queue, queue.entries.mark(last))) is queue.entries.head
        else:
            assert asyncio.run(entry_at(queue, 29, True)) is None
        assert len(breaths) == deleted_after
        assert queue.places is None
        bench.clock.advance(1)
