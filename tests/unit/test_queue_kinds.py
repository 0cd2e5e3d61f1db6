"""Which kinds of queues there are, and which arguments go together."""

import pytest

from broker.core.arguments.equivalence import assert_same_queue_arguments
from broker.core.arguments.queue import KINDS, check_queue_arguments, kind_of
from broker.core.entries.last_value import LastValueEntryList
from broker.core.entries.list import FifoEntryList
from broker.core.entries.priority import PriorityEntryList
from broker.core.entries.sorted import SortedEntryList
from broker.core.errors import PreconditionFailed
from tests.topology import new_vhost

QUEUE = "queue 'q' in vhost '/'"


@pytest.mark.parametrize(
    ("arguments", "kind", "ranks"),
    [
        ({}, FifoEntryList, 1),
        ({"x-queue-kind": "standard"}, FifoEntryList, 1),
        ({"x-max-priority": 3}, PriorityEntryList, 4),
        ({"x-queue-kind": "priority"}, PriorityEntryList, 10),
        ({"x-priority-mapping": "amqp"}, PriorityEntryList, 10),
        ({"x-queue-kind": "priority", "x-max-priority": 255}, PriorityEntryList, 256),
        ({"x-queue-kind": "sorted", "x-sort-key": "due"}, SortedEntryList, 1),
        ({"x-sort-key": "due"}, SortedEntryList, 1),
        ({"x-queue-kind": "last-value", "x-last-value-key": "id"}, LastValueEntryList, 1),
        ({"x-last-value-key": "id", "x-non-destructive": True}, LastValueEntryList, 1),
        ({"x-non-destructive": True}, FifoEntryList, 1),
        ({"x-non-destructive": False, "x-single-active-consumer": True}, FifoEntryList, 1),
        ({"x-queue-type": "quorum", "x-queue-kind": "sorted", "x-sort-key": "due"}, SortedEntryList, 1),
    ],
)
def test_the_list_follows_the_arguments(arguments: dict[str, object], kind: type, ranks: int) -> None:
    entries = new_vhost().declarations.declare_queue("q", True, None, False, arguments).entries
    assert isinstance(entries, kind)
    assert entries.ranks == ranks


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"x-queue-kind": "stack"}, f"'stack' of type 'longstr' is not one of {', '.join(KINDS)}"),
        ({"x-priority-mapping": "jms"}, "'jms' of type 'longstr' is not one of rabbitmq, amqp"),
        ({"x-queue-kind": 1}, "'1' of type 'signedint' is not a string"),
        ({"x-queue-kind": "sorted"}, "arg 'x-queue-kind' for .*'sorted' of type 'longstr' needs x-sort-key"),
        ({"x-queue-kind": "sorted", "x-sort-key": ""}, "'' of type 'longstr' is not a string of 1 to 255"),
        ({"x-queue-kind": "sorted", "x-sort-key": "k" * 256}, "is not a string of 1 to 255 bytes"),
        ({"x-queue-kind": "sorted", "x-sort-key": 5}, "'5' of type 'signedint' is not a string"),
        (
            {"x-queue-kind": "sorted", "x-sort-key": "k", "x-max-priority": 5},
            "arg 'x-max-priority' for .* cannot be with x-queue-kind 'sorted'",
        ),
        ({"x-sort-key": "k", "x-max-priority": 5}, "arg 'x-sort-key' for .* cannot be with x-max-priority"),
        ({"x-queue-kind": "last-value"}, "'last-value' of type 'longstr' needs x-last-value-key"),
        ({"x-last-value-key": 1.5}, "'1.5' of type 'double' is not a string"),
        (
            {"x-queue-kind": "last-value", "x-last-value-key": "k", "x-max-priority": 5},
            "arg 'x-max-priority' for .* cannot be with x-queue-kind 'last-value'",
        ),
        (
            {"x-queue-kind": "last-value", "x-last-value-key": "k", "x-sort-key": "k"},
            "arg 'x-sort-key' for .* cannot be with x-queue-kind 'last-value'",
        ),
        ({"x-non-destructive": "yes"}, "'yes' of type 'longstr' is not a boolean"),
        (
            {"x-non-destructive": True, "x-sort-key": "k"},
            "arg 'x-non-destructive' for .* cannot be with x-sort-key",
        ),
        (
            {"x-non-destructive": True, "x-queue-kind": "priority"},
            "arg 'x-non-destructive' for .* cannot be with x-queue-kind 'priority'",
        ),
        (
            {"x-non-destructive": True, "x-single-active-consumer": True},
            "arg 'x-single-active-consumer' for .* does not go with x-non-destructive",
        ),
        (
            {"x-non-destructive": True, "x-all-consumers-exclusive": True},
            "arg 'x-all-consumers-exclusive' for .* does not go with x-non-destructive",
        ),
        (
            {"x-queue-kind": "standard", "x-max-priority": 5},
            "arg 'x-max-priority' for .* cannot be with x-queue-kind 'standard'",
        ),
        (
            {"x-queue-kind": "priority", "x-sort-key": "k"},
            "arg 'x-sort-key' for .* cannot be with x-queue-kind 'priority'",
        ),
    ],
)
def test_refused(arguments: dict[str, object], text: str) -> None:
    with pytest.raises(PreconditionFailed, match=text):
        check_queue_arguments(arguments, QUEUE)


def test_a_redeclaration_compares_the_kind() -> None:
    current: dict[str, object] = {"x-queue-kind": "sorted", "x-sort-key": "k"}
    assert_same_queue_arguments(current, dict(current), QUEUE)
    for other in ({"x-sort-key": "k"}, {"x-queue-kind": "sorted", "x-sort-key": "K"}, {}):
        with pytest.raises(PreconditionFailed, match="inequivalent arg 'x-"):
            assert_same_queue_arguments(current, dict(other), QUEUE)


def test_an_argument_that_only_one_kind_has_tells_the_kind() -> None:
    """So what every kind needs as an argument of its own is no argument of another."""
    assert kind_of({"x-max-length": 5}) == "standard"
    for name, kind in KINDS.items():
        if kind.needs:
            assert kind_of({kind.needs: "k"}) == name
