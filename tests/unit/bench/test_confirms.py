"""Confirms may come singly, multiply and in any order; each tag counts once, with its own batch's latency."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.bench.publisher import Confirms
from broker.bench.traffic import Histogram


def confirms_of(*batches: tuple[int, int]) -> tuple[Confirms, Histogram]:
    """Confirms after publishing batches of (count, time)."""
    histogram = Histogram()
    confirms = Confirms(histogram)
    for count, time in batches:
        confirms.note_sent(count, time)
    return confirms, histogram


def test_multiple_settles_everything_up_to_the_tag_with_the_latency_of_each_batch() -> None:
    confirms, histogram = confirms_of((10, 0), (10, 50))

    confirms.settle(0, 15, nack=False, now=100)

    assert confirms.outstanding == 5
    assert histogram.count == 15
    assert histogram.percentile(30) == 50
    assert histogram.greatest == 100


def test_multiple_with_tag_zero_settles_all() -> None:
    confirms, _ = confirms_of((10, 0))

    confirms.settle(0, 0, nack=False, now=1)

    assert confirms.outstanding == 0


def test_single_confirms_in_any_order() -> None:
    confirms, histogram = confirms_of((2, 0), (2, 10))

    for tag in (3, 1, 4, 2):
        confirms.settle(tag, tag, nack=False, now=30)

    assert (confirms.outstanding, confirms.wrong) == (0, 0)
    assert (histogram.percentile(50), histogram.greatest) == (20, 30)


def test_multiple_counts_what_came_singly_before_only_once() -> None:
    confirms, histogram = confirms_of((5, 0))

    confirms.settle(2, 2, nack=False, now=1)
    confirms.settle(4, 4, nack=False, now=1)
    confirms.settle(0, 5, nack=False, now=1)

    assert (confirms.settled, confirms.wrong, histogram.count) == (5, 0, 5)


def test_nacks_are_counted() -> None:
    confirms, _ = confirms_of((5, 0))

    confirms.settle(0, 3, nack=True, now=1)

    assert (confirms.outstanding, confirms.nacked) == (2, 3)


@pytest.mark.parametrize(("tag", "multiple"), [(1, False), (2, True), (6, False), (6, True)])
def test_a_tag_that_is_settled_or_was_never_published_is_wrong(tag: int, multiple: bool) -> None:
    confirms, _ = confirms_of((5, 0))
    confirms.settle(0, 2, nack=False, now=1)

    confirms.settle(0 if multiple else tag, tag, nack=False, now=2)

    assert (confirms.wrong, confirms.settled) == (1, 2)


@given(st.lists(st.integers(1, 300), min_size=20, max_size=60), st.data())
def test_every_tag_is_settled_once_however_the_confirms_come(batches: list[int], data: st.DataObject) -> None:
    confirms, histogram = confirms_of()
    settled: set[int] = set()
    for time, count in enumerate(batches):
        confirms.note_sent(count, time)
        open_tags = [tag for tag in range(1, confirms.published + 1) if tag not in settled]
        tag = data.draw(st.sampled_from(open_tags))
        multiple = data.draw(st.booleans())
        confirms.settle(0 if multiple else tag, tag, nack=False, now=time)
        settled |= set(range(1, tag + 1)) if multiple else {tag}
        assert confirms.settled == histogram.count == len(settled)
        if len(settled) == confirms.published:
            break
    assert confirms.wrong == 0


def test_long_runs_do_not_gather_memory() -> None:
    confirms, histogram = confirms_of()

    for time in range(20_000):
        confirms.note_sent(2, time)
        confirms.settle(2 * time + 1, 2 * time + 1, nack=False, now=time)
        confirms.settle(2 * time + 2, 2 * time + 2, nack=False, now=time)

    assert len(confirms._firsts) < 5000
    assert (confirms.outstanding, confirms.wrong, histogram.greatest) == (0, 0, 0)
