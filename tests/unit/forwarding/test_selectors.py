"""Shovels with a selector: other messages stay in the source, for a queue here and in another broker."""

from typing import Any

import pytest
from pamqp.commands import Basic

from broker.core.errors import PreconditionFailed
from broker.forwarding.definition import parse_definition
from broker.forwarding.shovel import RUNNING
from tests.support.amqp091.frames import publish_bytes
from tests.support.forwarding import OTHER, Sites

PUSHED = {"src_uri": "amqp://", "dest_uri": OTHER}
PULLED = {"src_uri": OTHER, "dest_uri": "amqp://"}
RED = "color = 'red'"
COLORS = ["red", "blue", "red", "green", "red", "blue"]


def publish(sites: Sites, host: str, colors: list[str]) -> None:
    """Publish a message of each color, whose body is its number and color."""
    client = sites.hosts[host].open()
    for number, color in enumerate(colors):
        properties = Basic.Properties(headers={"color": color}, delivery_mode=2)
        data = publish_bytes("out", f"{number} {color}".encode(), properties=properties)
        client.connection.receive(data)
    client.connection.on_lost("")
    sites.run()


def of_color(*colors: str) -> list[bytes]:
    return [f"{number} {color}".encode() for number, color in enumerate(COLORS) if color in colors]


@pytest.mark.parametrize("mode", ["on-confirm", "no-ack", "exactly-once"])
@pytest.mark.parametrize(("ends", "source"), [(PUSHED, ""), (PULLED, "other")], ids=["push", "pull"])
def test_only_selected_messages_are_forwarded_in_order(ends: Any, source: str, mode: str) -> None:
    sites = Sites()
    sites.queue("out", source)
    shovel = sites.define(**ends, src_selector=RED, ack_mode=mode, src_prefetch_count=2)
    sites.run()
    publish(sites, source, COLORS)
    assert shovel.state == RUNNING, shovel.reason
    assert sites.bodies("in", "" if source else "other") == of_color("red")
    assert sites.bodies("out", source) == of_color("blue", "green")


@pytest.mark.parametrize(("ends", "source"), [(PUSHED, ""), (PULLED, "other")], ids=["push", "pull"])
def test_messages_that_wait_are_selected_when_an_exact_shovel_gets_another_selector(
    ends: Any, source: str
) -> None:
    sites = Sites()
    sites.queue("out", source)
    publish(sites, source, COLORS)
    for selector in (RED, "color = 'blue'", None):
        sites.define(**ends, src_selector=selector, ack_mode="exactly-once")
        sites.run()
    expected = [*of_color("red"), *of_color("blue"), *of_color("green")]
    assert sites.bodies("in", "" if source else "other") == expected
    assert sites.bodies("out", source) == []


def test_a_broker_without_selectors_is_refused() -> None:
    sites = Sites()
    sites.queue("out", "other")
    capabilities = sites.there.server.properties["capabilities"]
    assert isinstance(capabilities, dict)
    del capabilities["message_selectors"]
    shovel = sites.define(**PULLED, src_selector=RED)
    sites.run()
    assert shovel.reason == (
        "source other:5672: the broker selects no messages: no capability 'message_selectors'"
    )


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"src-selector": 5}, "'src-selector' is '5', allowed: a selector"),
        ({"src-selector": "color = "}, "'src-selector' is not a selector: "),
        (
            {"src-selector": RED, "src-queue": None, "src-exchange": "e"},
            "'src-selector' needs a 'src-queue', 'src-exchange' is 'e': its binding selects",
        ),
        (
            {"src-selector": RED, "src-consumer-args": {"x-filter-jms-selector": RED}},
            "'src-selector' and 'x-filter-jms-selector' in 'src-consumer-args' cannot be together",
        ),
        (
            {"src-selector": RED, "src-delete-after": "queue-length"},
            "'src-selector' and 'src-delete-after' = 'queue-length' cannot be together",
        ),
    ],
    ids=lambda value: "" if isinstance(value, dict) else None,
)
def test_refusals_name_the_field_and_its_value(fields: dict[str, Any], reason: str) -> None:
    value = {"src-uri": "amqp://", "src-queue": "a", "dest-uri": "amqp://", "dest-queue": "b"} | fields
    with pytest.raises(PreconditionFailed) as refused:
        parse_definition("/", "s", value)
    assert refused.value.text.startswith(reason)
