"""The definitions of upstreams and sets: every field, every refusal, and the choice of a policy."""

import pytest

from broker.core.errors import PreconditionFailed
from broker.core.vhosts.parameters import VhostParameters
from broker.forwarding.upstream import choose_upstreams, parse_upstream, parse_upstream_set
from tests.support.adapters.connection_without_socket import HandStore

URI = "amqp://u:secret@other/v"


def test_an_upstream_has_rabbitmqs_defaults() -> None:
    upstream = parse_upstream("/", "up", {"uri": URI})
    [uri] = upstream.uris
    assert (uri.host, uri.vhost, uri.shown) == ("other", "v", "amqp://other/v")
    assert (upstream.exchange, upstream.queue, upstream.consumer_tag) == ("", "", "federation-link-up")
    assert (upstream.prefetch, upstream.reconnect_delay, upstream.max_hops) == (1000, 5, 1)
    assert (upstream.ack_mode, upstream.queue_type) == ("on-confirm", "classic")
    assert (upstream.expires, upstream.message_ttl) == (None, None)
    assert (upstream.trusts_user_id, upstream.keeps_resources, upstream.waits_for_bind) == (
        False,
        False,
        True,
    )


def test_every_field_is_read() -> None:
    upstream = parse_upstream(
        "/",
        "up",
        {
            "uri": [URI, "amqp://second"],
            "exchange": "x",
            "queue": "q",
            "consumer-tag": "t",
            "prefetch-count": 5,
            "reconnect-delay": 1,
            "ack-mode": "no-ack",
            "max-hops": 3,
            "expires": 1000,
            "message-ttl": 0,
            "trust-user-id": True,
            "queue-type": "quorum",
            "resource-cleanup-mode": "never",
            "bind-nowait": True,
            "channel-use-mode": "single",
            "ha-policy": "all",
        },
    )
    assert [uri.host for uri in upstream.uris] == ["other", "second"]
    assert upstream.uris[1].vhost == "/"
    assert (upstream.exchange, upstream.queue, upstream.consumer_tag) == ("x", "q", "t")
    assert (upstream.prefetch, upstream.reconnect_delay, upstream.max_hops) == (5, 1, 3)
    assert (upstream.ack_mode, upstream.queue_type) == ("no-ack", "quorum")
    assert (upstream.expires, upstream.message_ttl) == (1000, 0)
    assert (upstream.trusts_user_id, upstream.keeps_resources, upstream.waits_for_bind) == (True, True, False)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (5, "the value of federation upstream 'up' is not an object"),
        ({}, "'uri' is missing"),
        ({"uri": []}, "'uri' is an empty list"),
        ({"uri": "http://u:secret@other"}, "'uri' has the scheme 'http', allowed: amqp, amqps"),
        ({"uri": URI, "max-hops": 0}, "'max-hops' is '0', allowed: a whole number from 1 to 32767"),
        ({"uri": URI, "prefetch-count": -1}, "'prefetch-count' is '-1', allowed"),
        ({"uri": URI, "expires": 0}, "'expires' is '0', allowed: a whole number from 1 to"),
        ({"uri": URI, "expires": "1h"}, "'expires' is '1h', allowed: a whole number"),
        (
            {"uri": URI, "ack-mode": "exactly-once"},
            "'ack-mode' is 'exactly-once', allowed: on-confirm, on-pub",
        ),
        ({"uri": URI, "queue-type": "stream"}, "'queue-type' is 'stream', allowed: classic, quorum"),
        ({"uri": URI, "trust-user-id": 1}, "'trust-user-id' is '1', allowed: true or false"),
        (
            {"uri": URI, "resource-cleanup-mode": "x"},
            "'resource-cleanup-mode' is 'x', allowed: default, never",
        ),
        ({"uri": URI, "channel-use-mode": "x"}, "'channel-use-mode' is 'x', allowed: multiple, single"),
        ({"uri": URI, "max-hop": 1}, "'max-hop' is not known, allowed: ack-mode, bind-nowait"),
    ],
)
def test_wrong_values_are_refused_by_name_without_the_password(value: object, text: str) -> None:
    with pytest.raises(PreconditionFailed) as refusal:
        parse_upstream("/", "up", value)
    assert text in refusal.value.text
    assert "secret" not in refusal.value.text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({}, "the value of federation upstream set 's' is not a list"),
        (["up"], "element 1 of federation upstream set 's' is not an object: 'up'"),
        (
            [{"upstream": "up"}, {"exchange": "x"}],
            "element 2 of federation upstream set 's' has no 'upstream'",
        ),
        ([{"upstream": "up", "uri": URI}], "'uri' is not known"),
        ([{"upstream": "up", "max-hops": "2"}], "'max-hops' is '2', allowed"),
    ],
)
def test_wrong_sets_are_refused(value: object, text: str) -> None:
    with pytest.raises(PreconditionFailed) as refusal:
        parse_upstream_set("/", "s", value)
    assert text in refusal.value.text


def chosen(key: str, value: str) -> list[tuple[str, str]]:
    parameters = VhostParameters("/", HandStore())
    for name in ("east", "west"):
        parameters.set("federation-upstream", name, {"uri": URI, "exchange": "e"})
    parameters.set(
        "federation-upstream-set", "s", [{"upstream": "west", "exchange": "x"}, {"upstream": "no"}]
    )
    choices = choose_upstreams("/", parameters, (key, value))
    return [(choice.upstream.name, choice.upstream.exchange) for choice in choices]


def test_a_policy_chooses_an_upstream_a_set_or_a_pattern() -> None:
    assert chosen("federation-upstream", "east") == [("east", "e")]
    assert chosen("federation-upstream", "none") == []
    assert chosen("federation-upstream-set", "s") == [("west", "x")]
    assert chosen("federation-upstream-set", "none") == []
    assert chosen("federation-upstream-set", "all") == [("east", "e"), ("west", "e")]
    assert chosen("federation-upstream-pattern", "^w") == [("west", "e")]
    assert chosen("federation-upstream-pattern", "all") == []
