"""Messages as the API shows them: those of AMQP 1.0 as clients of AMQP 0-9-1 are given them."""

import base64
from typing import Any

import pytest
from pamqp.commands import Queue

from broker.admin.api.answers import ApiError
from broker.admin.api.message_shapes import BYTES_MAX, shown_message
from protocol.amqp10.types import Symbol
from tests.amqp10_values import described
from tests.contents10 import content10
from tests.conversion import DATA, FOOTER, SEQUENCE, VALUE
from tests.kept10 import data, put, put_large
from tests.wired import House, Wired

FOOT = described(FOOTER, b"\xc1\x01\x00")
TWO = bytes(range(256)) * 8192


@pytest.fixture
def client(house: House) -> Wired:
    """Who has declared the queue."""
    client = house.open()
    client.send(Queue.Declare(queue="q"), 1)
    return client


def shown(house: House, limit: int | None = None, encoding: str = "auto") -> dict[str, Any]:
    queue = house.broker.vhosts["/"].topology.queues["q"]
    [entry] = queue.entries
    return shown_message(house.server, queue, entry, 3, encoding, limit)


def test_a_message_of_amqp_10_is_shown_with_the_names_of_amqp_091(house: House, client: Wired) -> None:
    content = content10(
        {"x-own": ["a"], "x-basic-type": "t", "x-cc": ["k"]},
        {"kind": 1, "blob": b"\xff"},
        True,
        7,
        content_type=Symbol("text/plain"),
        subject="unknown there",
        reply_to="/queues/back",
        group_id="g",
    )
    put(house, content + FOOT)
    assert shown(house) == {
        "payload_bytes": 4,
        "redelivered": False,
        "exchange": "",
        "routing_key": "q",
        "message_count": 3,
        "protocol": "amqp-1.0",
        "properties": {
            "content_type": "text/plain",
            "delivery_mode": 2,
            "priority": 7,
            "reply_to": "back",
            "type": "t",
            "app_id": "g",
            "headers": {"kind": 1, "blob": "\\xff", "x-own": ["a"], "CC": ["k"]},
        },
        "payload": "body",
        "payload_encoding": "string",
    }
    assert shown(house, 2, "base64")["payload"] == "Ym8="


def test_a_message_of_amqp_091_says_so(house: House, client: Wired) -> None:
    client.publish("q", b"hello")
    found = shown(house, 3)
    assert (found["protocol"], found["payload"], found["payload_bytes"]) == ("amqp-0-9-1", "hel", 5)


@pytest.mark.parametrize("on_disk", [False, True])
@pytest.mark.parametrize("limit", [0, 1, 7000, None])
@pytest.mark.parametrize(
    ("sections", "payload", "kind"),
    [
        (data(TWO[:5000]) + data(TWO[5000:]) + FOOT, TWO, None),
        (described(VALUE, b"\xb0\x00\x20\x00\x00" + TWO), None, "amqp-1.0"),
        (described(SEQUENCE, b"\x45") * 300_000, None, "amqp-1.0"),
        (described(DATA, b"\xa1\x00") + TWO, None, "amqp-1.0"),
    ],
)
def test_a_large_body_is_shown_as_consumers_get_it(
    house: House,
    client: Wired,
    sections: bytes,
    payload: bytes | None,
    kind: str | None,
    limit: int | None,
    on_disk: bool,
) -> None:
    put_large(house, sections, content10({"x-own": 1}, body=b""), on_disk=on_disk)
    found = shown(house, limit, "base64")
    assert found["payload_bytes"] == len(sections)
    assert found["properties"].get("type") == kind
    assert found["properties"]["headers"] == {"x-own": 1}
    assert base64.b64decode(found["payload"]) == (payload or sections)[:limit]


def test_a_large_body_of_amqp_091_is_shown_too(house: House, client: Wired) -> None:
    client.publish("q", TWO)
    found = shown(house, 70_000)
    assert (found["payload_bytes"], found["payload_encoding"]) == (len(TWO), "base64")


def test_more_than_an_answer_holds_is_refused(house: House, client: Wired) -> None:
    put_large(house, data(bytes(BYTES_MAX)))
    with pytest.raises(ApiError, match="ask for less with 'truncate'"):
        shown(house)
    assert shown(house, 5)["payload"] == "\0" * 5
