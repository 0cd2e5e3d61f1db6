"""Addresses of AMQP 1.0, and the nodes that they name."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.amqp10.addresses import (
    ANONYMOUS,
    CREATED_ALWAYS,
    CREATED_IF_ALLOWED,
    CREATED_NEVER,
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

CASES: list[tuple[str | None, str, str, str | None, str]] = [
    (None, ANONYMOUS, "", "", CREATED_NEVER),
    ("", ANONYMOUS, "", "", CREATED_NEVER),
    ("/queues/q", QUEUE, "q", "", CREATED_IF_ALLOWED),
    ("/queues/a%2Fb%20c", QUEUE, "a/b c", "", CREATED_IF_ALLOWED),
    ("/queues/%C3%A9", QUEUE, "\u00e9", "", CREATED_IF_ALLOWED),
    ("/exchanges/x", EXCHANGE, "x", "", CREATED_NEVER),
    ("/exchanges/x/k", EXCHANGE, "x", "k", CREATED_NEVER),
    ("/exchanges/x/a%2Fb", EXCHANGE, "x", "a/b", CREATED_NEVER),
    ("/exchange/x", EXCHANGE, "x", None, CREATED_NEVER),
    ("/exchange/x/a/b", EXCHANGE, "x", "a/b", CREATED_NEVER),
    ("/exchange/amq.default/q", EXCHANGE, "", "q", CREATED_NEVER),
    ("/topic/a.b", EXCHANGE, "amq.topic", "a.b", CREATED_NEVER),
    ("/queue/q", QUEUE, "q", "", CREATED_ALWAYS),
    ("/queue/50%", QUEUE, "50%", "", CREATED_ALWAYS),
    ("/queue", EXCHANGE, "", None, CREATED_NEVER),
    ("/amq/queue/q", QUEUE, "q", "", CREATED_NEVER),
    ("q", NAME, "q", None, CREATED_IF_ALLOWED),
    ("x/k", EXCHANGE, "x", "k", CREATED_NEVER),
    ("queue://q", QUEUE, "q", "", CREATED_ALWAYS),
    ("topic://a.b", EXCHANGE, "amq.topic", "a.b", CREATED_NEVER),
    ("amqps://host:5671/entity", NAME, "entity", None, CREATED_IF_ALLOWED),
    ("amqp://host/queues/q", QUEUE, "q", "", CREATED_IF_ALLOWED),
    ("/management", MANAGEMENT, "", "", CREATED_NEVER),
    ("$management", MANAGEMENT, "", "", CREATED_NEVER),
    ("/queue/a\nb", QUEUE, "ab", "", CREATED_ALWAYS),
    ("/queues/c%0D%0Ad", QUEUE, "cd", "", CREATED_IF_ALLOWED),
    ("/amq/queue/e\rf", QUEUE, "ef", "", CREATED_NEVER),
    ("queue://\ng?consumer.exclusive=true", QUEUE, "g", "", CREATED_ALWAYS),
    ("h\r\n?consumer.exclusive=true", NAME, "h", None, CREATED_IF_ALLOWED),
    ("i\r\nj", NAME, "ij", None, CREATED_IF_ALLOWED),
    ("x\ny/k\nl", EXCHANGE, "xy", "k\nl", CREATED_NEVER),
    ("/exchange/x\ny/k", EXCHANGE, "xy", "k", CREATED_NEVER),
    ("/exchanges/x%0Ay/k%0Al", EXCHANGE, "xy", "k\nl", CREATED_NEVER),
]


@pytest.mark.parametrize(("address", "kind", "name", "key", "creation"), CASES)
def test_an_address_names(address: str | None, kind: str, name: str, key: str | None, creation: str) -> None:
    node = node_of(address)
    assert (node.kind, node.name, node.key, node.creation) == (kind, name, key, creation)


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("/queues/", "no queue name"),
        ("/queues/a/b", "a segment after"),
        ("/queues/%4", "hexadecimal"),
        ("/queues/%zz", "hexadecimal"),
        ("/queues/%FF", "not valid UTF-8"),
        ("/exchanges/", "default exchange"),
        ("/exchanges//q", "default exchange"),
        ("/exchanges/amq.default/q", "default exchange"),
        ("/exchanges/x/k/more", "a segment after"),
        ("/exchange/", "an unknown form"),
        ("/amq/queue/", "an unknown form"),
        ("/nothing/q", "an unknown form"),
        ("/", "an unknown form"),
        ("queue://", "no name"),
        ("amqp://host", "no path"),
        ("amqp://host/", "no path"),
    ],
)
def test_an_invalid_address_is_refused(address: str, why: str) -> None:
    with pytest.raises(AddressError, match=why) as raised:
        node_of(address)
    assert address in str(raised.value)


@pytest.mark.parametrize(
    "address",
    [
        "\n",
        "\r/k",
        "/queue/\n",
        "/queues/%0A",
        "/amq/queue/\n",
        "/exchange/\n/k",
        "/exchanges/%0D",
        "queue://\n",
    ],
)
def test_a_name_of_line_breaks_alone_is_no_name(address: str) -> None:
    with pytest.raises(AddressError, match="line breaks"):
        node_of(address)


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\r\n"), min_size=1))
def test_the_address_of_a_queue_names_it(name: str) -> None:
    address = queue_address(name)
    assert address.isascii()
    assert (node_of(address).kind, node_of(address).name) == (QUEUE, name)
    assert unquote(address, quote(name)) == name


@given(st.text())
def test_any_text_is_a_valid_node_or_refused(address: str) -> None:
    with suppress(AddressError):
        node = node_of(address)
        assert node.kind in {ANONYMOUS, EXCHANGE, MANAGEMENT, NAME, QUEUE}
        assert not {"\r", "\n"} & set(node.name)
