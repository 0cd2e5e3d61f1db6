"""Arguments of queues, exchanges, bindings and stream consumers: kinds, checks and equivalence."""

import pytest

from broker.core.arguments.equivalence import (
    assert_same_exchange_arguments,
    assert_same_field,
    assert_same_queue_arguments,
)
from broker.core.arguments.queue import KINDS, check_exchange_arguments, check_queue_arguments, kind_of
from broker.core.entries.last_value import LastValueEntryList
from broker.core.entries.list import FifoEntryList
from broker.core.entries.priority import PriorityEntryList
from broker.core.entries.sorted import SortedEntryList
from broker.core.errors import PreconditionFailed
from broker.core.streams.offsets import StreamExtent, stream_extent
from tests.support.core.topology import new_vhost

QUEUE = "queue 'q' in vhost '/'"
EXCHANGE = "exchange 'x' in vhost '/'"


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"x-max-priority": 1},
        {"x-max-priority": 255},
        {"x-message-ttl": 0},
        {"x-message-ttl": 315_360_000_000},
        {"x-expires": 1},
        {"x-max-length": 0, "x-max-length-bytes": 2**40, "x-overflow": "reject-publish"},
        {"x-dead-letter-exchange": ""},
        {"x-dead-letter-exchange": "dlx", "x-dead-letter-routing-key": "k"},
        {"x-dead-letter-exchange": "e" * 255, "x-dead-letter-routing-key": "ü" * 127},
        {"x-single-active-consumer": True},
        {"x-queue-type": "quorum", "x-delivery-limit": -1},
        {"x-queue-mode": "lazy", "x-queue-version": 2},
        {"x-max-priority": 0},
        {"x-max-age": "7D"},
        {"x-nobody-knows": object(), "foo": None},
        {"x-message-deduplication": "of a plugin", "x-cache-size": -1},
    ],
)
def test_allowed_arguments(arguments: dict[str, object]) -> None:
    check_queue_arguments(arguments, QUEUE)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"x-max-priority": -1}, "'-1' of type 'signedint' is not an integer from 0 to 255"),
        ({"x-max-priority": 256}, "'256' of type 'signedint' is not an integer from 0 to 255"),
        ({"x-max-priority": "5"}, "'5' of type 'longstr' is not an integer from 0 to 255"),
        ({"x-max-priority": True}, "'true' of type 'bool' is not an integer from 0 to 255"),
        ({"x-max-priority": 5.0}, "'5.0' of type 'double' is not an integer from 0 to 255"),
        ({"x-message-ttl": -1}, "'-1' of type 'signedint' is not an integer from 0 to 315360000000"),
        ({"x-message-ttl": 2**50}, f"'{2**50}' of type 'long' is not an integer from 0 to 315360000000"),
        ({"x-expires": 0}, "'0' of type 'signedint' is not an integer from 1 to 315360000000"),
        ({"x-max-length": -1}, "'-1' of type 'signedint' is not an integer, at least 0"),
        ({"x-overflow": "drop"}, "'drop' of type 'longstr' is not one of drop-head, reject-publish, "),
        ({"x-dead-letter-exchange": 1}, "'1' of type 'signedint' is not a string"),
        ({"x-dead-letter-exchange": b"\xff"}, r"'\xff' of type 'longstr' is not a string"),
        (
            {"x-dead-letter-exchange": "e" * 256},
            f"'{'e' * 256}' of type 'longstr' is not a string of at most",
        ),
        (
            {"x-dead-letter-routing-key": "ü" * 128, "x-dead-letter-exchange": ""},
            f"'{'ü' * 128}' of type 'longstr' is not a string of at most 255 bytes",
        ),
        ({"x-dead-letter-routing-key": "k"}, "'k' of type 'longstr' needs x-dead-letter-exchange"),
        ({"x-single-active-consumer": 1}, "'1' of type 'signedint' is not a boolean"),
        ({"x-queue-type": "heap"}, "'heap' of type 'longstr' is not one of classic, quorum, stream"),
        ({"x-max-age": "D"}, "'D' of type 'longstr' is not a string of digits and a unit"),
        ({"x-max-age": "7d"}, "'7d' of type 'longstr' is not a string of digits and a unit"),
        (
            {"x-max-age": "9" * 5000 + "D"},
            f"'{'9' * 5000}D' of type 'longstr' is not a string of digits and a",
        ),
        ({"x-max-age": "²D"}, "'²D' of type 'longstr' is not a string of digits and a unit"),
    ],
)
def test_refused_arguments_are_named_with_their_value(arguments: dict[str, object], text: str) -> None:
    name = next(iter(arguments))
    with pytest.raises(PreconditionFailed) as refusal:
        check_queue_arguments(arguments, QUEUE)
    assert refusal.value.text.startswith(f"invalid arg '{name}' for {QUEUE}: {text}")


def test_the_alternate_exchange_is_a_name() -> None:
    check_exchange_arguments({"alternate-exchange": "ae"}, EXCHANGE)
    with pytest.raises(PreconditionFailed) as refusal:
        check_exchange_arguments({"alternate-exchange": 7}, EXCHANGE)
    assert (
        refusal.value.text
        == "invalid type 'signedint' for arg 'alternate-exchange' in exchange 'x' in vhost '/': '7'"
    )


def test_an_inequivalent_field_in_the_words_of_rabbitmq() -> None:
    assert_same_field("durable", True, True, QUEUE)
    with pytest.raises(PreconditionFailed) as refusal:
        assert_same_field("durable", False, True, QUEUE)
    assert (
        refusal.value.text
        == "inequivalent arg 'durable' for queue 'q' in vhost '/': received 'true' but current is 'false'"
    )


@pytest.mark.parametrize(
    ("current", "received", "text"),
    [
        ({"x-max-priority": 5}, {"x-max-priority": 7}, "received '7' but current is '5'"),
        ({"x-max-length": 1}, {"x-max-length": True}, "received 'true' but current is '1'"),
        ({"x-max-length": 1}, {"x-max-length": 1.0}, "received '1.0' but current is '1'"),
        (
            {"x-max-priority": 5},
            {},
            "received none but current is the value '5' of type 'signedint'",
        ),
        (
            {},
            {"x-overflow": "drop-head"},
            "received the value 'drop-head' of type 'longstr' but current is none",
        ),
        (
            {"x-queue-type": "quorum"},
            {},
            "received none but current is the value 'quorum' of type 'longstr'",
        ),
    ],
)
def test_inequivalent_arguments_in_the_words_of_rabbitmq(
    current: dict[str, object], received: dict[str, object], text: str
) -> None:
    name = next(iter(current or received))
    with pytest.raises(PreconditionFailed) as refusal:
        assert_same_queue_arguments(current, received, QUEUE)
    assert refusal.value.text == f"inequivalent arg '{name}' for queue 'q' in vhost '/': {text}"


@pytest.mark.parametrize(
    ("current", "received"),
    [
        ({"x-expires": 5, "x-max-length": 1}, {"x-max-length": 1, "x-expires": 5}),
        ({"x-message-ttl": 2**20}, {"x-message-ttl": 2**20}),
        ({"x-queue-type": "classic"}, {}),
        ({}, {"x-queue-type": "classic"}),
        ({"comment": "a"}, {"comment": "b"}),
    ],
)
def test_equivalent_arguments(current: dict[str, object], received: dict[str, object]) -> None:
    assert_same_queue_arguments(current, received, QUEUE)


def test_only_the_alternate_exchange_counts_in_the_equivalence_of_exchanges() -> None:
    assert_same_exchange_arguments({"a": 1}, {"b": 2}, EXCHANGE)
    with pytest.raises(PreconditionFailed, match="inequivalent arg 'alternate-exchange' for exchange 'x'"):
        assert_same_exchange_arguments({"alternate-exchange": "a"}, {"alternate-exchange": "b"}, EXCHANGE)


WHERE = "queue 's' in vhost '/'"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("x-stream-offset", "first"),
        ("x-stream-filter", "a"),
        ("x-stream-partition", 0),
        ("x-stream-consumer-name", "me"),
        ("x-stream-match-unfiltered", True),
    ],
)
def test_a_place_to_browse_from_does_not_go_with_arguments_of_streams(name: str, value: object) -> None:
    arguments = {"x-browse": True, "x-browse-from": "first", name: value}
    with pytest.raises(PreconditionFailed) as refusal:
        stream_extent(arguments, WHERE, 0)
    assert f"does not go with {name}" in refusal.value.text
    assert "x-browse-from" in refusal.value.text


def test_a_place_to_browse_from_alone() -> None:
    extent = stream_extent({"x-browse": True, "x-browse-from": "last"}, WHERE, 0)
    assert extent.beginning == "last"
    assert not isinstance(extent, StreamExtent)


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
    """The own argument of a kind is no argument of another kind."""
    assert kind_of({"x-max-length": 5}) == "standard"
    for name, kind in KINDS.items():
        if kind.needs:
            assert kind_of(dict.fromkeys(kind.needs, "k")) == name
