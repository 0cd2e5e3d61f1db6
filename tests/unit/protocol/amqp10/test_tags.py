"""Delivery-tags that are claimed and free again, against a model."""

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from broker.adapters.amqp10.receive import FREE_MAX, Tags

few = st.integers(0, 5).map(lambda number: b"%d" % number)


@given(st.lists(st.one_of(few, st.integers(0, 3)), max_size=60))
def test_tags_are_freed_in_order(steps: list[bytes | int]) -> None:
    tags, waiting = Tags(), deque[bytes]()
    for step in steps:
        if isinstance(step, bytes):
            assert tags.claim(step) == (step not in waiting)
            if step not in waiting:
                waiting.append(step)
        else:
            count = min(step, len(waiting))
            tags.free(count)
            for _ in range(count):
                waiting.popleft()


@given(st.lists(st.tuples(few, st.integers(0, 3)), max_size=60))
def test_a_tag_is_free_when_its_delivery_is(steps: list[tuple[bytes, int]]) -> None:
    tags, waiting = Tags(), dict[int, bytes]()
    for number, (tag, freed) in enumerate(steps):
        assert tags.claim_by_id(tag, number) == (tag not in waiting.values())
        if tag not in waiting.values():
            waiting[number] = tag
        for delivery in list(waiting)[:freed]:
            del waiting[delivery]
            tags.free_by_id(delivery)
        tags.free_by_id(1000)


def test_many_tags_of_which_some_are_always_waited_for() -> None:
    tags = Tags()
    for number in range(100_000):
        assert tags.claim(number.to_bytes(4, "big"))
        if number >= 700:
            tags.free(1)
            assert len(tags._numbers) <= 2 * (700 + FREE_MAX) + 1
    assert not tags.claim((99_400).to_bytes(4, "big"))
    assert tags.claim((99_000).to_bytes(4, "big"))
    tags.free(701)
    assert tags._numbers == {}
