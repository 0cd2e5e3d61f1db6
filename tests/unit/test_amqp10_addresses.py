"""What addresses of AMQP 1.0 name."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.amqp10.addresses import (
    ANONYMOUS,
    EXCHANGE,
    MANAGEMENT,
    NAME,
    QUEUE,
    AddressError,
    node_of,
    queue_address,
    quote,
    unquote,
)

CASES: list[tuple[str | None, str, str, str | None, bool]] = [
    (None, ANONYMOUS, "", "", False),
    ("", ANONYMOUS, "", "", False),
    ("/queues/q", QUEUE, "q", "", False),
    ("/queues/a%2Fb%20c", QUEUE, "a/b c", "", False),
    ("/queues/%C3%A9", QUEUE, "\u00e9", "", False),
    ("/exchanges/x", EXCHANGE, "x", "", False),
    ("/exchanges/x/k", EXCHANGE, "x", "k", False),
    ("/exchanges/x/a%2Fb", EXCHANGE, "x", "a/b", False),
    ("/exchange/x", EXCHANGE, "x", None, False),
    ("/exchange/x/a/b", EXCHANGE, "x", "a/b", False),
    ("/exchange/amq.default/q", EXCHANGE, "", "q", False),
    ("/topic/a.b", EXCHANGE, "amq.topic", "a.b", False),
    ("/queue/q", QUEUE, "q", "", True),
    ("/queue/50%", QUEUE, "50%", "", True),
    ("/queue", EXCHANGE, "", None, False),
    ("/amq/queue/q", QUEUE, "q", "", False),
    ("q", NAME, "q", None, True),
    ("x/k", EXCHANGE, "x", "k", False),
    ("queue://q", QUEUE, "q", "", False),
    ("topic://a.b", EXCHANGE, "amq.topic", "a.b", False),
    ("amqps://host:5671/entity", NAME, "entity", None, True),
    ("amqp://host/queues/q", QUEUE, "q", "", False),
    ("/management", MANAGEMENT, "", "", False),
    ("$management", MANAGEMENT, "", "", False),
]


@pytest.mark.parametrize(("address", "kind", "name", "key", "declared"), CASES)
def test_an_address_names(address: str | None, kind: str, name: str, key: str | None, declared: bool) -> None:
    node = node_of(address)
    assert (node.kind, node.name, node.key, node.declared) == (kind, name, key, declared)


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("/queues/", "no queue name"),
        ("/queues/a/b", "a part too many"),
        ("/queues/%4", "hexadecimal"),
        ("/queues/%zz", "hexadecimal"),
        ("/queues/%FF", "not UTF-8"),
        ("/exchanges/", "default exchange"),
        ("/exchanges//q", "default exchange"),
        ("/exchanges/amq.default/q", "default exchange"),
        ("/exchanges/x/k/more", "a part too many"),
        ("/exchange/", "no kind that is known"),
        ("/amq/queue/", "no kind that is known"),
        ("/nothing/q", "no kind that is known"),
        ("/", "no kind that is known"),
        ("queue://", "no name"),
        ("amqp://host", "no path"),
        ("amqp://host/", "no path"),
    ],
)
def test_an_address_that_names_nothing(address: str, why: str) -> None:
    with pytest.raises(AddressError, match=why) as raised:
        node_of(address)
    assert address in str(raised.value)


@given(st.text(alphabet=st.characters(codec="utf-8"), min_size=1))
def test_the_address_of_a_queue_names_it(name: str) -> None:
    address = queue_address(name)
    assert address.isascii()
    assert (node_of(address).kind, node_of(address).name) == (QUEUE, name)
    assert unquote(address, quote(name)) == name


@given(st.text())
def test_whatever_it_is_it_is_refused_or_names_something(address: str) -> None:
    with suppress(AddressError):
        assert node_of(address).kind in {ANONYMOUS, EXCHANGE, MANAGEMENT, NAME, QUEUE}
