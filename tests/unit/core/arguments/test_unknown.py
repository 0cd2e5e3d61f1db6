"""Warnings of unknown arguments that are near to known ones, and of names without effect."""

import pytest

from broker.core.arguments.consumer import BROWSE, CONSUMER_RULES
from broker.core.arguments.queue import QUEUE_RULES
from broker.core.arguments.unknown import EDITS_MAX, WARNED_MAX, UnknownArguments, near_name
from broker.core.routing.kinds import EXCHANGE_NAMES
from broker.core.streams.offsets import CONSUMER_NAMES
from broker.core.vhosts.vhost import VirtualHost
from tests.support.core.topology import new_vhost

QUEUE = "queue 'q' in vhost '/'"


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("x-mesage-ttl", "x-message-ttl"),
        ("x-message-tll", "x-message-ttl"),
        ("x-max-lenght", "x-max-length"),  # two letters are swapped
        ("X-Message-TTL", "x-message-ttl"),
        ("x-max_length", "x-max-length"),
        ("x-max-length-byte", "x-max-length-bytes"),
        ("x-expire", "x-expires"),
        ("x-message", ""),
        ("x-owner", ""),
        ("x-message-ttl" * 9, ""),
    ],
)
def test_a_name_is_near_within_two_edits(name: str, near: str) -> None:
    assert near_name(name, QUEUE_RULES) == near


def test_the_nearest_name_counts() -> None:
    assert near_name("x-max-lengths", ["x-max-lengthy-s", "x-max-length"]) == "x-max-length"
    assert near_name("x-ab", ["x-a", "x-b"]) == "x-a"
    assert near_name("x-abcd", ["x-a"]) == "", f"more than {EDITS_MAX} edits"


@pytest.mark.parametrize("known", [tuple(QUEUE_RULES), CONSUMER_NAMES, EXCHANGE_NAMES], ids=str)
def test_no_known_name_is_warned_of(known: tuple[str, ...]) -> None:
    assert UnknownArguments().warnings(dict.fromkeys(known, 1), known, QUEUE) == []


def test_all_names_of_consumers_are_known() -> None:
    assert set(CONSUMER_RULES) < set(CONSUMER_NAMES)
    assert BROWSE in CONSUMER_NAMES


def test_a_memory_that_is_full_begins_anew() -> None:
    unknown = UnknownArguments()
    for number in range(WARNED_MAX):
        assert len(unknown.warnings({"x-expire": 1}, QUEUE_RULES, f"queue {number}")) == 1
    assert unknown.warnings({"x-expire": 1}, QUEUE_RULES, "queue 0") == []
    assert len(unknown.warnings({"x-expire": 1}, QUEUE_RULES, "queue")) == 1
    assert len(unknown.warnings({"x-expire": 1}, QUEUE_RULES, "queue 0")) == 1


@pytest.fixture
def warned() -> list[str]:
    return []


@pytest.fixture
def vhost(warned: list[str]) -> VirtualHost:
    vhost = new_vhost()
    vhost.warn = warned.append
    return vhost


def test_a_misspelt_argument_of_a_queue_is_warned_of_once(vhost: VirtualHost, warned: list[str]) -> None:
    arguments: dict[str, object] = {"x-mesage-ttl": 5, "x-app": "mine", "mesage": 1, "x-message-ttl": 6}
    for _ in range(3):
        vhost.declarations.declare_queue("q", False, None, False, dict(arguments))
    text = f"arg 'x-mesage-ttl' of {QUEUE} is unknown and has no effect: was 'x-message-ttl' meant?"
    assert warned == [text]
    for _ in range(3):
        vhost.declarations.delete_queue("q", False, False)
        vhost.declarations.declare_queue("q", False, None, False, dict(arguments))
    assert len(warned) == 1
    assert vhost.topology.queues["q"].arguments == arguments
    vhost.declarations.declare_queue("other", False, None, False, dict(arguments))
    assert len(warned) == 2


def test_a_misspelt_argument_of_an_exchange_is_warned_of(vhost: VirtualHost, warned: list[str]) -> None:
    vhost.declarations.declare_exchange("x", "fanout", False, False, False, {"x-delay-type": "direct"})
    vhost.declarations.declare_exchange("y", "fanout", False, False, False, {"alternate-exchange": "x"})
    assert warned == [
        "arg 'x-delay-type' of exchange 'x' in vhost '/' is unknown and has no effect: was "
        "'x-delayed-type' meant?"
    ]
