"""Definitions of shovels, and URIs of brokers: RabbitMQ's forms, defaults, and refusals."""

from typing import Any

import pytest

from broker.core.errors import PreconditionFailed
from broker.forwarding.definition import (
    NEVER,
    ON_CONFIRM,
    QUEUE_LENGTH,
    Definition,
    parse_definition,
    shown_value,
)
from broker.forwarding.uri import parse_uri, show_uri
from protocol.amqp091.table import encode_table
from tests.support.core.topology import RecordingStore, new_broker

MINIMAL = {"src-uri": "amqp://", "src-queue": "a", "dest-uri": "amqp://u:p@host", "dest-queue": "b"}

SOURCE10 = {"src_protocol": "amqp10", "src_address": "/queues/a"}
DESTINATION10 = {"dest_protocol": "amqp10", "dest_address": "/queues/b", "dest_queue": "absent"}


def parsed(**fields: object) -> Definition:
    named = {name.replace("_", "-"): value for name, value in fields.items()}
    value = {name: each for name, each in {**MINIMAL, **named}.items() if each != "absent"}
    return parse_definition("/", "s", value)


def test_the_defaults_are_those_of_rabbitmq() -> None:
    definition = parsed()
    source, destination = definition.source, definition.destination
    assert (definition.ack_mode, definition.reconnect_delay) == (ON_CONFIRM, 5)
    assert (source.queue, source.prefetch, source.delete_after) == ("a", 1000, NEVER)
    assert (destination.exchange, destination.key) == ("", "b")
    assert not destination.adds_headers
    assert source.uris[0].is_local
    assert destination.uris[0].place == "host:5672"


def test_fields_of_earlier_versions_have_their_present_meaning() -> None:
    value = MINIMAL | {"prefetch-count": 7, "delete-after": "queue-length", "add-forward-headers": True}
    definition = parse_definition("/", "s", value)
    assert (definition.source.prefetch, definition.source.delete_after) == (7, QUEUE_LENGTH)
    assert definition.destination.adds_headers


def test_an_exchange_without_a_key_keeps_the_keys_of_messages() -> None:
    destination = parsed(dest_queue="absent", dest_exchange="e").destination
    assert (destination.exchange, destination.key) == ("e", None)
    destination = parsed(dest_queue="absent").destination
    assert (destination.exchange, destination.key) == (None, None)


def test_a_local_shovel_needs_no_uri() -> None:
    definition = parsed(src_protocol="local", src_uri="absent", dest_protocol="local", dest_uri="amqp:///v")
    assert definition.source.uris[0].vhost == "/"
    assert definition.destination.uris[0].vhost == "v"


def test_properties_are_encoded() -> None:
    wanted = {"delivery_mode": 2, "app_id": "x", "timestamp": 5, "headers": {"a": 1}}
    assert dict(parsed(dest_publish_properties=wanted).destination.properties) == {
        3: b"\x02",
        12: b"\x01x",
        9: b"\0\0\0\0\0\0\0\x05",
        2: encode_table({"a": 1}),
    }


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"src_uri": "absent"}, "'src-uri' is missing"),
        ({"src_uri": []}, "'src-uri' is an empty list, at least one URI is needed"),
        ({"src_uri": 5}, "'src-uri' is not a URI: it is not a string"),
        ({"src_queue": "absent"}, "one of 'src-queue' and 'src-exchange' is required, both are missing"),
        ({"src_exchange": "e"}, "one of 'src-queue' and 'src-exchange' is required, both are present"),
        ({"src_queue": "q" * 256}, "'src-queue' is 256 bytes long, at most 255 are allowed"),
        ({"src_queue": 5}, "'src-queue' is '5', allowed: a string"),
        ({"dest_exchange": "e"}, "'dest-queue' and 'dest-exchange' cannot be together"),
        ({"src_protocol": "amqp1"}, "'src-protocol' is 'amqp1', allowed: amqp091, amqp10, local"),
        ({"src_protocol": "amqp10"}, "'src-address' is missing"),
        ({"dest_protocol": "amqp10"}, "'dest-address' is missing"),
        (SOURCE10, "'src-queue' is not known, allowed: "),
        (
            SOURCE10 | {"src_address": ""},
            "'src-address' is '', allowed: an address of 1 to 4096 bytes",
        ),
        (
            SOURCE10 | {"src_queue": "absent", "src_delete_after": "queue-length"},
            "'src-delete-after' is 'queue-length', allowed: 'never' or 1 to 2147483647",
        ),
        (
            SOURCE10 | {"src_queue": "absent", "src_prefetch_count": 0},
            "'src-prefetch-count' is '0', allowed: a whole number from 1 to 65535",
        ),
        (
            SOURCE10 | {"src_queue": "absent", "src_uri": "amqp://h?sasl=x"},
            "the parameter 'sasl' of 'src-uri' is 'x', allowed: plain, anon, external",
        ),
        (
            SOURCE10 | {"src_queue": "absent", "src_uri": "amqp://h?auth_mechanism=amqplain"},
            "the parameter 'auth_mechanism' of 'src-uri' is 'amqplain', allowed: plain, external, anonymous",
        ),
        (
            SOURCE10 | {"src_queue": "absent", "src_uri": "amqp://h?max_frame_size=100"},
            "the parameter 'max_frame_size' of 'src-uri' is '100', allowed: 0 for the limit of the peer, or ",
        ),
        (
            {"src_uri": "amqp://h?hostname=x"},
            "'src-uri' has the parameter 'hostname', which is not known: ",
        ),
        (
            DESTINATION10 | {"dest_properties": {"size": "1"}},
            "'dest-properties' has 'size', which is not known",
        ),
        (
            DESTINATION10 | {"dest_properties": {"subject": 1}},
            "'dest-properties' has 'subject' = '1', which is not a string",
        ),
        (
            DESTINATION10 | {"dest_properties": {"creation-time": "now"}},
            "'dest-properties' has 'creation-time' = 'now', allowed: 0 to 9223372036854775807",
        ),
        (
            DESTINATION10 | {"dest_properties": {"content-type": "ä"}},
            "'dest-properties' has 'content-type' = 'ä', which is not ASCII",
        ),
        (
            DESTINATION10 | {"dest_application_properties": {"a": [1]}},
            "'dest-application-properties' has 'a' = '[1]', allowed: a string, a number, true or false",
        ),
        (
            DESTINATION10 | {"dest_message_annotations": {"ä": "1"}},
            "'dest-message-annotations' has 'ä', which is not ASCII",
        ),
        (
            DESTINATION10 | {"ack_mode": "exactly-once"},
            "'ack-mode' = 'exactly-once' needs ends of AMQP 0-9-1, 'dest-protocol' is 'amqp10'",
        ),
        (
            SOURCE10 | {"src_queue": "absent", "ack_mode": "exactly-once"},
            "'ack-mode' = 'exactly-once' needs ends of AMQP 0-9-1, 'src-protocol' is 'amqp10'",
        ),
        (
            {"dest_protocol": "local"},
            "'dest-uri' has a host, and protocol 'local' means this broker: 'amqp://'",
        ),
        ({"src_prefetch_count": -1}, "'src-prefetch-count' is '-1', allowed: a whole number from 0 to 65535"),
        ({"src_prefetch_count": True}, "'src-prefetch-count' is 'true', allowed: a whole number"),
        ({"src_delete_after": 0}, "'src-delete-after' is '0', allowed: 'never', 'queue-length' or 1 to"),
        ({"ack_mode": "on_confirm"}, "'ack-mode' is 'on_confirm', allowed: on-confirm, on-publish, no-ack"),
        ({"ack_mode": "no-ack", "src_delete_after": 5}, "'ack-mode' = 'no-ack' and 'src-delete-after'"),
        ({"paused": True, "src_delete_after": "queue-length"}, "'paused' and 'src-delete-after' cannot be"),
        ({"dest_add_forward_headers": "yes"}, "'dest-add-forward-headers' is 'yes', allowed: true or false"),
        ({"dest_queue_args": [1]}, "'dest-queue-args' is '[1]', allowed: an object"),
        ({"dest_queue_args": {"x": 2**70}}, "'dest-queue-args' cannot be encoded: "),
        (
            {"dest_publish_properties": {"mode": 2}},
            "'dest-publish-properties' has 'mode', which is not known",
        ),
        (
            {"dest_publish_properties": {"delivery_mode": 3}},
            "'dest-publish-properties' has 'delivery_mode' = '3', allowed: 1 to 2",
        ),
        (
            {"prefetch_count": 1, "src_prefetch_count": 1},
            "'prefetch-count' and 'src-prefetch-count' are the same",
        ),
        (
            {"ack_mode": "exactly-once", "src_queue": "absent", "src_exchange": "e"},
            "'ack-mode' = 'exactly-once' needs a 'src-queue', 'src-exchange' is 'e'",
        ),
        (
            {"ack_mode": "exactly-once", "src_uri": ["amqp://", "amqp:///v"]},
            "'ack-mode' = 'exactly-once' needs a single 'src-uri', there are 2: amqp://, amqp:///v",
        ),
        (
            {"ack_mode": "exactly-once", "dest_predeclared": True},
            "'ack-mode' = 'exactly-once' needs a 'd",
        ),
        (
            {"ack_mode": "exactly-once", "src_delete_after": 5},
            "'ack-mode' = 'exactly-once' and 'src-delete-after' cannot be together",
        ),
        (
            {"ack_mode": "exactly-once", "src_consumer_args": {"x-priority": 1}},
            "'ack-mode' = 'exactly-once' and 'src-consumer-args' cannot be together",
        ),
        (
            {"ack_mode": "exactly-once", "dest_publish_properties": {"headers": {"a": 1}}},
            "'ack-mode' = 'exactly-once' and 'headers' in 'dest-publish-properties' cannot be together",
        ),
        ({"src_prefetch": 1}, "'src-prefetch' is not known, allowed: ack-mode, "),
    ],
    ids=lambda value: "" if isinstance(value, dict) else None,
)
def test_refusals_name_the_field_and_its_value(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(PreconditionFailed) as refused:
        parsed(**fields)
    assert refused.value.text.startswith(reason)


def test_a_value_that_is_no_object_is_refused() -> None:
    with pytest.raises(PreconditionFailed, match="the value of shovel 's' is not an object"):
        parse_definition("/", "s", [])


def test_uris_are_read_with_all_their_parameters() -> None:
    uri = parse_uri(
        "amqps://me%40x:p%2Fw@[::1]:99/my%2Fhost?heartbeat=7&connection_timeout=5&channel_max=3&frame_max=9000"
        "&auth_mechanism=external&auth_mechanism=plain&cacertfile=/ca.pem&certfile=/c.pem&keyfile=/k.pem"
        "&password=secret&verify=verify_none&server_name_indication=broker&depth=2&fail_if_no_peer_cert=true",
        "/",
        "src-uri",
    )
    assert (uri.tls, uri.host, uri.port, uri.vhost) == (True, "::1", 99, "my/host")
    assert (uri.user, uri.password, uri.mechanisms) == ("me@x", "p/w", ("EXTERNAL", "PLAIN"))
    assert (uri.heartbeat, uri.connection_timeout, uri.channel_max, uri.frame_max) == (7, 5, 3, 9000)
    assert uri.files == {"cacertfile": "/ca.pem", "certfile": "/c.pem", "keyfile": "/k.pem"}
    assert (uri.key_password, uri.verifies, uri.server_name) == ("secret", False, "broker")
    assert uri.place == "[::1]:99"
    assert "secret" not in uri.shown
    assert "p%2Fw" not in uri.shown
    assert uri.shown.startswith("amqps://[::1]:99/my%2Fhost?heartbeat=7&")


@pytest.mark.parametrize(
    ("text", "host", "port", "vhost", "user"),
    [
        ("amqp://", "", 5672, "v", "guest"),
        ("amqp:///", "", 5672, "v", "guest"),
        ("amqp:///other", "", 5672, "other", "guest"),
        ("amqp://host", "host", 5672, "v", "guest"),
        ("amqps://host", "host", 5671, "v", "guest"),
        ("amqp://host/%2F", "host", 5672, "/", "guest"),
        ("amqp://u@host:1", "host", 1, "v", "u"),
    ],
)
def test_parts_that_a_uri_leaves_out_have_defaults(
    text: str, host: str, port: int, vhost: str, user: str
) -> None:
    uri = parse_uri(text, "v", "src-uri")
    assert (uri.host, uri.port, uri.vhost, uri.user) == (host, port, vhost, user)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("http://u:topsecret@host", "'dest-uri' has the scheme 'http', allowed: amqp, amqps: 'http://host'"),
        (
            "amqp://u:topsecret@host/a/b",
            "'dest-uri' has more than one part behind the host: 'amqp://host/a/b'",
        ),
        ("amqp://host?heartbeat=ten", "the parameter 'heartbeat' of 'dest-uri' is 'ten', allowed: a whole"),
        (
            "amqp://host?connection_timeout=0",
            "the parameter 'connection_timeout' of 'dest-uri' is '0', allowed: a whole number from 1 to",
        ),
        (
            f"amqp://host?heartbeat={'9' * 5000}",
            f"the parameter 'heartbeat' of 'dest-uri' is '{'9' * 20}', allowed: a whole number from 0 to",
        ),
        ("amqp://host?frame_max=4095", "the parameter 'frame_max' of 'dest-uri' is '4095', allowed: 0 for"),
        ("amqp://host?verify=yes", "the parameter 'verify' of 'dest-uri' is 'yes', allowed: verify_peer or"),
        ("amqp://host?auth_mechanism=gssapi", "the parameter 'auth_mechanism' of 'dest-uri' is 'gssapi'"),
        ("amqp://host?shoes=1", "'dest-uri' has the parameter 'shoes', which is not known: auth_mechanism, "),
        (
            "amqp://host?cacertfile=x",
            "'dest-uri' has the parameter 'cacertfile', which needs the scheme 'amqps'",
        ),
        ("amqps://", "'dest-uri' has the scheme 'amqps' and no host: 'amqps://'"),
    ],
)
def test_refusals_of_uris_name_the_field_and_its_value(text: str, reason: str) -> None:
    with pytest.raises(PreconditionFailed) as refused:
        parse_uri(text, "/", "dest-uri")
    assert refused.value.text.startswith(reason)
    assert "topsecret" not in refused.value.text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("u:topsecret@host", "it does not begin with a scheme, such as 'amqp://'"),
        ("topsecret", "it does not begin with a scheme"),
        ("amqp:u:topsecret@host", "it does not begin with a scheme"),
        ("u:topsecret@host://x", "it does not begin with a scheme"),
        ("amqp://u:7#topsecret@host", "it has a fragment; write # as %23"),
        ("amqp://host/v#topsecret", "it has a fragment"),
        ("amqp://u:7/topsecret@host", "it has an @ behind the host; write / as %2F"),
        ("amqp://u:7?topsecret@host", "it has an @ behind the host"),
        ("amqp://host/v?topsecret@x=1", "it has an @ behind the host"),
        ("amqp://u:topsecret", "its host or its port is malformed"),
        ("amqp://u:topsecret@host:topsecret", "its host or its port is malformed"),
        ("amqp://u:topsecret@[::1", "its host or its port is malformed"),
        ("amqp://u:topsecret\u2100@host\u2100", "its host or its port is malformed"),
    ],
)
def test_nothing_of_a_text_that_is_no_uri_is_shown(text: str, reason: str) -> None:
    with pytest.raises(PreconditionFailed) as refused:
        parse_uri(text, "/", "dest-uri")
    assert refused.value.text.startswith(f"'dest-uri' is not a valid URI: {reason}")
    assert "topsecret" not in refused.value.text
    assert refused.value.__cause__ is None
    assert show_uri(text) == "(not a URI)"


@pytest.mark.parametrize(
    "query", ["password=topsecret", "passw%6Frd=topsecret", "%70assword=topsecret&heartbeat=5", "x=topsecret"]
)
def test_the_password_of_a_key_is_never_shown(query: str) -> None:
    assert "topsecret" not in show_uri(f"amqps://host?{query}")


def test_a_broken_parameter_of_the_log_is_refused_without_its_value() -> None:
    parameters = new_broker(RecordingStore()).declare_vhost("/").parameters
    for change in (
        {"kind": "component", "component": "shovel", "value": "topsecret"},
        {"kind": "component.other", "component": "shovel", "name": "s", "value": "topsecret"},
    ):
        with pytest.raises(ValueError, match="shovel") as refused:
            parameters.apply(dict(change))
        assert "topsecret" not in str(refused.value)


def test_shown_values_have_no_log_ins() -> None:
    value = {"src-uri": ["amqp://a:b@c", "amqps://d:e@f?password=g&verify=verify_peer"], "src-queue": "a:b@c"}
    assert shown_value(value) == {
        "src-uri": ["amqp://c", "amqps://f?verify=verify_peer"],
        "src-queue": "a:b@c",
    }
    assert show_uri("amqp://[") == "(not a URI)"
    assert shown_value({"src-uri": [{"x": "amqp://a:b@c"}]}) == {"src-uri": ["(not a URI)"]}


def test_the_examples_of_rabbitmqs_documentation_for_amqp10_are_taken() -> None:
    value = {
        "src-protocol": "amqp10",
        "src-uri": "amqp://remote-server?sasl=anon",
        "src-address": "remote-queue",
        "dest-protocol": "amqp091",
        "dest-uri": "amqp://",
        "dest-queue": "another-queue",
    }
    source = parse_definition("/", "s", value).source
    assert (source.address, source.prefetch, source.delete_after) == ("remote-queue", 1000, NEVER)
    [uri] = source.uris
    assert (uri.protocol, uri.hostname, uri.mechanisms) == ("amqp10", "remote-server", ("ANONYMOUS",))


def test_uris_of_amqp10_have_their_own_parameters() -> None:
    text = (
        "amqps://fred:passw@proxy:9876?hostname=my_host&container_id=c&max_frame_size=512&idle_time_out=60000"
    )
    uri = parse_uri(text, "/", "src-uri", "amqp10")
    assert (uri.host, uri.port, uri.hostname, uri.container) == ("proxy", 9876, "my_host", "c")
    assert (uri.frame_max, uri.idle_ms, uri.mechanisms) == (512, 60_000, ("PLAIN",))
    assert uri.shown == text.replace("fred:passw@", "")
    named = parse_uri("amqp://u:p@host/a%2Fb?heartbeat=3", "/", "src-uri", "amqp10")
    assert (named.hostname, named.vhost, named.idle_ms) == ("vhost:a/b", "a/b", 3000)
    local = parse_uri("amqp://", "v", "src-uri", "amqp10")
    assert (local.hostname, local.is_local) == ("vhost:v", True)
