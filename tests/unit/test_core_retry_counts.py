"""Which ways of coming back count, what the log is told of them, and which arguments make no sense."""

from typing import Any

import pytest

from broker.core.arguments.queue import CRASH, NACK, RECOVER, REJECT, RELEASED, TIMEOUT
from broker.core.entries.entry import AVAILABLE
from broker.core.errors import PreconditionFailed
from broker.core.message import Message
from broker.core.queues.returns import annotate, deliver_again
from broker.core.vhosts.definitions import restore_message
from tests.dispatch import MemoryStore, message
from tests.retrying import waits
from tests.yard import Yard, delivered, entry_of, numbers


def lasts(counted: str, outcome: int) -> bool:
    """Whether a message survives any number of returns of this kind."""
    yard = Yard()
    queue = yard.queue(delivery_limit=2, delivery_count_on=counted)
    client = yard.client(queue)
    yard.publish()
    for _ in range(10):
        yard.run()
        client.nack(outcome=outcome)
    return bool(numbers(queue))


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        ("nack", NACK),
        ("reject", REJECT),
        ("recover", RECOVER),
        ("timeout", TIMEOUT),
        ("crash", CRASH),
        ("released", RELEASED),
    ],
)
def test_only_what_was_chosen_counts(name: str, outcome: int) -> None:
    others = {"nack", "reject", "recover", "timeout", "crash", "released"} - {name}
    assert not lasts(name, outcome)
    assert not lasts(f"{name}, {others.copy().pop()}", outcome)
    assert lasts(",".join(sorted(others)), outcome)


def test_sending_again_counts_if_recovering_does() -> None:
    for counted, limit in (("nack", 9), ("recover", 1)):
        _, queue, client = delivered(delivery_limit=1, delivery_count_on=counted)
        again = [deliver_again(queue, client.held[0], client.consumer) for _ in range(9)]
        assert again.count(True) == limit


def logged(number: int) -> Message:
    new = message(number)
    new.sequence = number
    return new


def counted_by_log(counted: str, outcomes: list[int]) -> list[int]:
    """The counts that the log is told."""
    yard = Yard(store := MemoryStore())
    queue = yard.queue(durable=True, delivery_limit=99, delivery_count_on=counted)
    client = yard.client(queue)
    queue.enqueue(logged(1))
    for outcome in outcomes:
        yard.run()
        client.nack(outcome=outcome)
    return [count for _, _, count in store.counted]


def test_what_did_not_count_is_not_in_the_log_with_what_is_added_either() -> None:
    yard = Yard(store := MemoryStore())
    queue = yard.queue(durable=True, delivery_limit=99, delivery_count_on="nack")
    client = yard.client(queue)
    queue.enqueue(logged(1))
    for outcome, count in ((RELEASED, 0), (NACK, 1), (RELEASED, 1)):
        yard.run()
        annotate(queue, client.held[0], b"why")
        client.nack(outcome=outcome)
        assert store.counted[-1][2] == count
        assert store.added[-1] == b"why"


def test_the_log_takes_back_what_did_not_count() -> None:
    assert counted_by_log("reject,crash", [REJECT, NACK, NACK, REJECT]) == [1, 2, 1, 2, 1, 2]
    assert counted_by_log("nack", [NACK, REJECT, CRASH, NACK]) == [1, 2], "a crash leaves no count behind"


def test_what_was_counted_before_a_restart_says_how_long_it_waits_after_it() -> None:
    yard = Yard()
    queue = yard.queue(retry_min=10)
    restore_message(queue, message(1), True, 2)
    assert entry_of(queue, 1).state == AVAILABLE
    client = yard.client(queue)
    yard.run()
    assert waits(yard, queue, client) == 40


# --- arguments


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"retry_min": 0}, "x-retry-min.*'0'.*at least 1|x-retry-min.*'0'.*from 1"),
        ({"retry_min": 1, "retry_multiplier": 0.5}, "x-retry-multiplier.*'0.5'.*from 1"),
        ({"retry_min": 1, "retry_multiplier": float("nan")}, "x-retry-multiplier.*'nan'"),
        ({"retry_min": 1, "retry_jitter": 1.1}, "x-retry-jitter.*'1.1'.*from 0 to 1"),
        ({"retry_min": 1, "retry_jitter": "x"}, "x-retry-jitter.*'x'"),
        ({"retry_max": 1}, "x-retry-max.*needs x-retry-min"),
        ({"retry_jitter": 1}, "x-retry-jitter.*needs x-retry-min"),
        ({"retry_min": 5, "retry_max": 4}, "x-retry-max.*'4'.*less than x-retry-min"),
        ({"delayed_retry_min": 5, "delayed_retry_max": 4}, "x-delayed-retry-max.*less than"),
        ({"retry_min": 5, "delayed_retry_type": "all"}, "x-retry-min.*does not go with x-delayed-retry-type"),
        ({"delivery_count_on": "nack,ack"}, "x-delivery-count-on.*'nack,ack'.*some of nack, reject"),
        ({"delivery_count_on": ""}, "x-delivery-count-on"),
        ({"delivery_count_on": 1}, "x-delivery-count-on"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: dict[str, Any], why: str) -> None:
    with pytest.raises(PreconditionFailed, match=why):
        Yard().queue(**arguments)
