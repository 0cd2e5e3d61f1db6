"""Requests about a queue whose bodies no client should send: each is refused, and changes nothing."""

import pytest

from tests.support.admin.api import Api, amqp
from tests.support.daemon.daemon import Address

DIGITS = b"9" * 4300  # as many as Python's reader takes

ODD = [
    ("messages/delete", b'{"ids": ["\\ud800"]}', "ids[0] is not valid UTF-8"),
    ("messages/delete", b'{"ids": [{}]}', "'ids' is not a list of strings"),
    ("messages/delete", b'{"selector": "x = \'\\udfff\'"}', "selector is not valid UTF-8"),
    ("messages/delete", b'{"selector": "x = 1e400"}', "position 5: '1e400' is out of range"),
    ("messages/delete", b'{"selector": "x = %s"}' % DIGITS[:4000], "is out of range"),
    ("messages/delete", b'{"selector": ["x"]}', "'selector' is not a string"),
    ("messages/delete", b'{"all": true, "limit": 1e400}', "limit is inf, a number that JSON does not have"),
    ("messages/delete", b'{"all": true, "limit": 1.5}', "'limit' is not a whole number: 1.5"),
    ("messages/delete", b'{"all": true, "limit": %s}' % DIGITS, "is not from 1 to 2000"),
    ("messages/delete", b'{"all": true, "limit": 9%s}' % DIGITS, "not JSON: Exceeds the limit (4300 digits)"),
    ("messages/delete", b'{"all": true, "limit": "9%s"}' % DIGITS, "'limit' is not a whole number"),
    ("messages/delete", b'{"all": 1}', "'all' is not a boolean: 1"),
    ("messages/delete", b"[" * 100_000, "nested more than 128 levels deep"),
    ("messages/delete", b"\xff\xfe", "not valid UTF-8 at byte 0"),
    ("messages/move", b'{"all": true, "to": {"queue": "\\ud800"}}', "to.queue is not valid UTF-8"),
    ("messages/move", b'{"all": true, "to": {"queue": 5}}', "'queue' is not a string: 5"),
    ("messages/move", b'{"all": true, "to": "q"}', "'to' is not an object"),
    (
        "messages/copy",
        b'{"all": true, "to": {"exchange": "amq.fanout", "routing_key": "%s"}}' % DIGITS[:256],
        "routing key is 256 bytes long, at most 255 are allowed",
    ),
    (
        "messages/edit",
        b'{"all": true, "properties": {"headers": {"\\ud800": null}}}',
        "a name in properties.headers is not valid UTF-8",
    ),
    ("messages/edit", b'{"all": true, "properties": {"headers": {"": 1}}}', "a name of not 1 to 255 bytes"),
    (
        "messages/edit",
        b'{"all": true, "properties": {"headers": {"a": %s}}}' % DIGITS,
        "does not fit into 64 bits",
    ),
    (
        "messages/edit",
        b'{"all": true, "properties": {"headers": {"a": %s}}}' % (b"[" * 100 + b"]" * 100),
        "nested more than 100 levels deep",
    ),
    ("messages/edit", b'{"all": true, "properties": {"priority": 256}}', "is not a number from 0 to 255"),
    ("messages/edit", b'{"all": true, "properties": {"expiration": "x"}}', "invalid expiration 'x'"),
    ("messages/edit", b'{"all": true, "properties": {"expiration": "%s"}}' % DIGITS, "cannot be encoded"),
    ("messages/edit", b'{"all": true, "payload": "\xc3\xa4", "payload_encoding": "base64"}', "not base 64"),
    ("messages/redrive", b'{"all": true, "via": "x"}', "via 'x' is not known"),
    ("actions", b'{"action": {}}', "'action' is not a string"),
    ("actions", b'{"action": "stop"}', "unknown action: stop, allowed: stop-enqueue"),
    ("get", b'{"count": %s, "ackmode": "ack_requeue_true", "encoding": "auto"}' % DIGITS, "count 99"),
    ("delayed/1", b'{"delay": %s}' % DIGITS, "'delay' is 99"),
    ("delayed/1", b'{"delay": -1}', "'delay' is -1, not from 0 to 315360000000"),
    ("delayed/1", b'{"delivery_time": 0}', "'delivery_time' is 0, not from 1 to "),
    ("delayed/1", b'{"delivery_time": %s}' % DIGITS, "'delivery_time' is 99"),
    ("delayed/1", b"{}", "either delay or delivery_time"),
    ("", b'{"arguments": {"x-max-length": %s}}' % DIGITS, "does not fit into 64 bits"),
    ("", b'{"arguments": {"\\ud800": 1}}', "a name in arguments is not valid UTF-8"),
    ("", b'{"arguments": {"x-max-length": "5"}}', "invalid arg 'x-max-length' for queue 'q'"),
    ("", b'{"name": "%s"}' % DIGITS[:256], "queue name is 256 bytes long"),
    ("", b'{"exclusive": "maybe"}', "'exclusive' is not a boolean"),
]
METHODS = {"": "PATCH", "delayed/1": "PUT"}


@pytest.mark.parametrize("count", [0, 1])
def test_odd_bodies_are_refused(api: Api, vhost: str, address: Address, count: int) -> None:
    api.put("queues", vhost, "q")
    with amqp(address, vhost) as channel:
        for _ in range(count):  # some of it might be looked at only where there are messages
            channel.basic_publish("", "q", b"x")
    before = api.get("queues", vhost, "q", "messages")
    for path, body, why in ODD:
        url = api.url("queues", vhost, "q", *path.split("/")).rstrip("/")
        answer = api.client.request(METHODS.get(path, "POST"), url, content=body)
        assert answer.status_code == 400, (path, body[:100], answer.text)
        assert why in answer.json()["reason"], (path, body[:100], answer.text)
    assert api.get("queues", vhost, "q", "messages") == before


@pytest.mark.parametrize(("levels", "limit"), [(101, 100), (127, 100), (128, 128), (940, 128)])
def test_values_too_deep_to_be_shown_are_not_stored(api: Api, name: str, levels: int, limit: int) -> None:
    deep = "[" * levels + "]" * levels
    definitions = f'{{"global_parameters": [{{"name": "{name}", "value": {deep}}}]}}'
    put = api.client.put(api.url("global-parameters", name), content=f'{{"value": {deep}}}')
    assert (put.status_code, f"nested more than {limit} levels deep" in put.text) == (400, True), put.text
    imported = api.client.post(api.url("definitions"), content=definitions)
    assert (imported.status_code, "levels deep" in imported.text) == (400, True), imported.text
    api.refused(404, "GET", "global-parameters", name)


def test_stored_values_may_have_100_levels(api: Api, name: str) -> None:
    deep: list[object] = []
    for _ in range(99):
        deep = [deep]
    api.put("global-parameters", name, value=deep)
    assert api.get("global-parameters", name)["value"] == deep
    exported = api.get("definitions")
    api.delete("global-parameters", name)
    parameters = [each for each in exported["global_parameters"] if each["name"] == name]
    api.post("definitions", status=204, body={"global_parameters": parameters})
    assert api.get("global-parameters", name)["value"] == deep
    api.delete("global-parameters", name)
