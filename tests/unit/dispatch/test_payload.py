"""The contents of calls: plain, as CloudEvents, signed, and as the input of commands."""

import base64
import hashlib
import hmac
import json
import re
from datetime import UTC, datetime
from typing import Any

import pytest

from broker.core.message import Message
from broker.dispatch.definition import Reference
from broker.dispatch.payload import SecretError, sign
from tests.support.dispatch.dispatch_bench import DispatchBench, content_of


def first_request(bench: DispatchBench) -> tuple[dict[str, str], bytes]:
    request = bench.caller.calls[0].request
    assert request is not None
    headers = dict(request.headers)
    assert len(headers) == len(request.headers), "a header comes twice"
    assert all(name.isascii() and value.isascii() and value.isprintable() for name, value in headers.items())
    return headers, request.body


Request = tuple[dict[str, str], bytes]


def requested(body: str, headers: dict[str, Any] | None = None, **fields: Any) -> Request:
    """Publish a message, and return the request of its call; `properties` are those of the message."""
    properties = fields.pop("properties", {})
    bench = DispatchBench()
    bench.queue()
    bench.secrets[Reference("env", "S")] = b"key\n"
    bench.set(**fields)
    bench.publish(body, headers=headers, **properties)
    return first_request(bench)


def test_plain_is_the_body_with_properties_as_headers() -> None:
    properties = {
        "content_type": "text/plain; charset=utf-8",
        "content_encoding": "identity",
        "message_id": "m 1",
        "correlation_id": "c%é",
        "timestamp": datetime(2026, 1, 2, tzinfo=UTC),
        "priority": 3,
    }
    given = {"n": 7, "t": True, "list": [1, "x"], "sp ace": "ü"}
    headers, body = requested("häppy", given, properties=properties)

    assert body == "häppy".encode()
    assert headers["Content-Type"] == "text/plain; charset=utf-8"
    assert headers["Content-Encoding"] == "identity"
    assert headers["Amqp-Message-Id"] == "m 1"
    assert headers["Amqp-Correlation-Id"] == "c%25%C3%A9"
    assert headers["Amqp-Timestamp"] == "1767312000"
    assert headers["Amqp-Priority"] == "3"
    assert headers["Amqp-Header-n"] == "7"
    assert headers["Amqp-Header-t"] == "true"
    assert headers["Amqp-Header-list"] == '[1, "x"]'
    assert headers["Amqp-Header-sp%20ace"] == "%C3%BC"
    assert headers["Amqp-Routing-Key"] == "q"
    assert headers["Amqp-Queue"] == "q"
    assert headers["Amqp-Dispatcher"] == "d"
    assert headers["Amqp-Delivery-Count"] == "1"
    assert headers["Amqp-Redelivered"] == "false"


def test_a_message_without_properties() -> None:
    headers, body = requested("")

    assert body == b""
    assert headers["Content-Type"] == "application/octet-stream"


@pytest.mark.parametrize("kind", ["a\r\nX-Evil: 1", "nonsense", "text/é"])
def test_a_content_type_that_is_no_header_is_replaced(kind: str) -> None:
    headers, _ = requested("x", properties={"content_type": kind})

    assert headers["Content-Type"] == "application/octet-stream"
    assert "X-Evil" not in headers


def test_values_that_are_too_long_for_http_are_left_out() -> None:
    headers, _ = requested("x", {"long": "x" * 5000, "short": "y"})

    assert "Amqp-Header-long" not in headers
    assert headers["Amqp-Header-short"] == "y"


def test_headers_that_are_too_long_together_are_no_call() -> None:
    bench = DispatchBench()
    bench.queue("dead")
    bench.queue(dead_letter_exchange="", dead_letter_routing_key="dead")
    dispatcher = bench.set()
    bench.publish("some", headers={f"n{number}": "x" * 4000 for number in range(16)})
    assert bench.bodies == ["some"]
    bench.ack()
    bench.publish("many", headers={f"n{number}": "x" * 4000 for number in range(17)})
    bench.wait(0)

    assert bench.bodies == []
    assert bench.vhost.topology.queues["dead"].ready == 1
    assert re.fullmatch(
        r"too-large: HTTP headers of 68\d\d\d bytes, above the limit of 65536", dispatcher.last_failure
    )


def test_a_batch_in_plain_is_an_array_in_the_form_of_the_api() -> None:
    bench = DispatchBench()
    bench.queue()
    bench.publish("one", headers={"a": 1})
    bench.publish("two")
    bench.set(batch=5)
    headers, body = first_request(bench)
    first, second = json.loads(body)

    assert headers["Content-Type"] == "application/json"
    assert headers["Amqp-Messages"] == "2"
    assert first["payload"] == "one"
    assert first["payload_encoding"] == "string"
    assert first["properties"] == {"headers": {"a": 1}}
    assert second["routing_key"] == "q"
    assert second["delivery_count"] == 1


def test_a_body_that_is_no_text_is_base64_in_json() -> None:
    bench = DispatchBench()
    bench.queue()
    bench.set(batch=2, paused=True)
    route = bench.vhost.publisher.route("", "q")
    bench.vhost.publisher.publish(route, Message(route.address, content_of(b"\xff\xfe"), 2, False, 0))
    bench.dispatchers.pause("/", "d", False)
    bench.run()
    _, body = first_request(bench)

    assert json.loads(body)[0]["payload"] == base64.b64encode(b"\xff\xfe").decode()
    assert json.loads(body)[0]["payload_encoding"] == "base64"


def test_a_binary_event_has_attributes_as_headers() -> None:
    properties = {
        "message_id": "id 1",
        "message_type": "order.created",
        "content_type": "application/json",
        "timestamp": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        "correlation_id": "corr",
    }
    headers, body = requested(
        '{"a":1}', {"tenant": "blue", "Not-Allowed": "x"}, format="cloudevents-binary", properties=properties
    )

    assert body == b'{"a":1}'
    assert headers["ce-specversion"] == "1.0"
    assert headers["ce-id"] == "id%201"
    assert headers["ce-type"] == "order.created"
    assert headers["ce-source"] == "/vhosts/%252F/queues/q"
    assert headers["ce-subject"] == "q"
    assert headers["ce-time"] == "2026-01-02T03:04:05Z"
    assert headers["ce-correlationid"] == "corr"
    assert headers["ce-tenant"] == "blue"
    assert headers["Content-Type"] == "application/json"
    assert "ce-datacontenttype" not in headers
    assert not any("llowed" in name for name in headers)


def test_a_structured_event_has_json_as_json() -> None:
    properties = {"content_type": "application/json", "message_id": "1"}
    headers, body = requested('{"a": [1]}', format="cloudevents-structured", properties=properties)
    event = json.loads(body)

    assert headers["Content-Type"] == "application/cloudevents+json"
    assert event["data"] == {"a": [1]}
    assert event["source"] == "/vhosts/%2F/queues/q"
    assert event["datacontenttype"] == "application/json"


@pytest.mark.parametrize(
    ("kind", "body", "member"),
    [
        ("text/plain", "hello", ("data", "hello")),
        ("application/json", "{broken", ("data_base64", base64.b64encode(b"{broken").decode())),
        ("application/json", "NaN", ("data_base64", base64.b64encode(b"NaN").decode())),
        ("application/xml", "<a/>", ("data_base64", base64.b64encode(b"<a/>").decode())),
    ],
)
def test_other_data_in_a_structured_event(kind: str, body: str, member: tuple[str, str]) -> None:
    _, sent = requested(body, format="cloudevents-structured", properties={"content_type": kind})
    event = json.loads(sent)

    assert {name: event[name] for name in ("data", "data_base64") if name in event} == dict([member])


def test_a_batch_of_events() -> None:
    bench = DispatchBench()
    bench.queue()
    bench.publish("one", "two")
    bench.set(batch=5, format="cloudevents-structured")
    headers, body = first_request(bench)

    assert headers["Content-Type"] == "application/cloudevents-batch+json"
    assert [event["subject"] for event in json.loads(body)] == ["q", "q"]
    assert len({event["id"] for event in json.loads(body)}) == 2


@pytest.mark.parametrize("prefix", ["cloudEvents:", "cloudEvents_"])
def test_a_message_that_is_an_event_keeps_its_attributes(prefix: str) -> None:
    given = {"specversion": "1.0", "id": "e1", "source": "/shop", "type": "t", "myext": "z"}
    headers = {prefix + name: value for name, value in given.items()}
    sent, _ = requested("x", headers, format="cloudevents-binary", properties={"message_id": "other"})

    for name, value in given.items():
        assert sent[f"ce-{name}"] == value


def test_a_signature_covers_id_time_and_body() -> None:
    headers, body = requested("hello", secret={"env": "S"})
    signed = f"{headers['Webhook-Id']}.{headers['Webhook-Timestamp']}.".encode() + body
    expected = base64.b64encode(hmac.new(b"key", signed, hashlib.sha256).digest()).decode()

    assert headers["Webhook-Signature"] == f"v1,{expected}"
    assert abs(int(headers["Webhook-Timestamp"]) - 1_700_000_000) < 10


def test_a_signature_of_the_standards_own_example() -> None:
    # [Standard Webhooks] libraries: the secret, id, time and body of their tests
    body = b'{"test": 2432232314}'
    secret = b"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

    assert sign(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body) == (
        "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    )


@pytest.mark.parametrize("secret", [b"", b"\n", b"whsec_!!!"])
def test_an_unusable_secret_is_refused(secret: bytes) -> None:
    with pytest.raises(SecretError, match="secret"):
        sign(secret, "id", 1, b"")


def test_the_id_of_a_call_is_the_same_when_it_is_tried_again() -> None:
    bench = DispatchBench()
    bench.queue()
    bench.secrets[Reference("env", "S")] = b"key"
    bench.set(secret={"env": "S"})
    bench.publish("x")
    first, _ = first_request(bench)
    bench.fail()
    second, _ = first_request(bench)

    assert first["Webhook-Id"] == second["Webhook-Id"]


def test_ids_are_unique_over_queues_restarts_and_brokers() -> None:
    _, body = requested("x", format="cloudevents-structured")
    assert json.loads(body)["id"] == "log-start-q-mem-1"
    bench = DispatchBench()
    bench.vhost.declarations.declare_queue("q", True, None, False, {})
    bench.set(format="cloudevents-structured")
    route = bench.vhost.publisher.route("", "q")
    bench.vhost.publisher.publish(route, Message(route.address, content_of(b"x"), 1, True, 0))
    bench.run()
    _, body = first_request(bench)
    assert json.loads(body)["id"] == "log-log-1"


def test_a_header_may_be_a_secret() -> None:
    bench = DispatchBench()
    bench.queue()
    token = Reference("file", "/run/token")
    bench.secrets[token] = b"Bearer 123\n"
    bench.set(headers={"Authorization": {"file": "/run/token"}, "X-A": "b"})
    bench.publish("x")
    headers, _ = first_request(bench)

    assert headers["Authorization"] == "Bearer 123"
    assert headers["X-A"] == "b"


def test_without_its_secret_a_call_is_not_made_and_the_message_waits() -> None:
    bench = DispatchBench()
    queue = bench.queue()
    dispatcher = bench.set(secret={"env": "S"})
    bench.publish("x")
    bench.wait(0)

    assert bench.caller.begun == []
    assert dispatcher.last_failure == "no secret S"
    assert queue.messages == 1
    bench.secrets[Reference("env", "S")] = b"key"
    bench.wait(60_000)
    assert bench.bodies == ["x"]


def test_a_command_gets_properties_in_its_environment() -> None:
    bench = DispatchBench()
    bench.queue()
    bench.set(command=["/bin/true", "x"])
    bench.publish("body", headers={"my-key": "v\0w", "n": 1}, message_id="m", content_type="text/plain")
    given = bench.caller.calls[0].input
    assert given is not None

    assert given.body == b"body"
    expected = {
        "AMQP_DISPATCHER": "d",
        "AMQP_QUEUE": "q",
        "AMQP_VHOST": "/",
        "AMQP_MESSAGES": "1",
        "AMQP_ROUTING_KEY": "q",
        "AMQP_MESSAGE_ID": "m",
        "AMQP_CONTENT_TYPE": "text/plain",
        "AMQP_HEADER_MY_KEY": "v%00w",
        "AMQP_HEADER_N": "1",
        "AMQP_REDELIVERED": "false",
        "AMQP_DELIVERY_COUNT": "1",
    }
    assert expected.items() <= given.environment.items()


def test_a_command_gets_a_batch_as_json() -> None:
    bench = DispatchBench()
    bench.queue()
    bench.publish("one", "two")
    bench.set(command="/bin/true", batch=2)
    given = bench.caller.calls[0].input
    assert given is not None

    assert [message["payload"] for message in json.loads(given.body)] == ["one", "two"]
    assert given.environment["AMQP_MESSAGES"] == "2"
    assert given.environment["AMQP_CONTENT_TYPE"] == "application/json"


def test_variables_that_are_too_long_for_the_system_are_left_out() -> None:
    bench = DispatchBench()
    bench.queue()
    bench.set(command="/bin/true")
    bench.publish("x", headers={"long": "x" * 40_000, "short": "y"})
    given = bench.caller.calls[0].input
    assert given is not None

    assert "AMQP_HEADER_LONG" not in given.environment
    assert given.environment["AMQP_HEADER_SHORT"] == "y"
