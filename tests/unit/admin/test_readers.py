"""Reports of readers: the last report of each, for a limited time and up to a limit."""

from broker.admin.readers import KEPT_S, READERS_MAX, Position, Readers

HERE = [Position("q", 0, 3, 10), Position("q", 1, 5, 5), Position("r", 0, 9, 7)]


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_last_report_counts_and_is_forgotten_after_a_while() -> None:
    clock = Clock()
    readers = Readers(clock)
    assert readers.take("/", "lake", "guest", HERE)
    clock.now += KEPT_S
    found = readers.find("/", "lake")
    assert found is not None
    assert (found.lag, [each.lag for each in found.positions]) == (7, [7, 0, 0])
    assert readers.age(found) == KEPT_S
    assert readers.take("/", "lake", "guest", HERE[1:])
    assert [each.lag for each in readers.all()] == [0]
    clock.now += KEPT_S + 1
    assert (readers.all(), readers.find("/", "lake")) == ([], None)


def test_the_number_of_readers_is_limited() -> None:
    clock = Clock()
    readers = Readers(clock)
    assert all(readers.take("/", str(number), "guest", []) for number in range(READERS_MAX))
    assert not readers.take("other", "0", "guest", [])
    assert readers.take("/", "0", "guest", HERE), "that one is there already"
    clock.now += KEPT_S + 1
    assert readers.take("other", "0", "guest", []), "all others are gone"
