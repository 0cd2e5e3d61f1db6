"""Policies over HTTP, and their effect on clients."""

from collections.abc import Callable

import pytest

from tests.support.admin.api import Api, amqp
from tests.support.daemon.daemon import Address, DaemonStarter

POLICY = {"pattern": "^q", "definition": {"max-length": 10}, "priority": 1, "apply-to": "queues"}


@pytest.mark.parametrize("kind", ["policies", "operator-policies"])
def test_a_policy_is_set_shown_and_deleted(api: Api, vhost: str, kind: str) -> None:
    api.put(kind, vhost, "p/1", body=POLICY)
    api.put(kind, vhost, "p/1", status=204, body=POLICY)
    shown = api.get(kind, vhost, "p/1")
    assert shown == {**POLICY, "vhost": vhost, "name": "p/1"}
    assert api.get(kind, vhost) == [shown]
    assert shown in api.get(kind)
    api.delete(kind, vhost, "p/1")
    api.refused(404, "DELETE", kind, vhost, "p/1")
    api.refused(404, "GET", kind, vhost, "p/1")
    assert api.get(kind, vhost) == []


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"definition": {"max-length": 1}}, "'pattern' is missing"),
        ({"pattern": ""}, "'definition' is missing"),
        ({"pattern": "(", "definition": {"max-length": 1}}, "is not a regular expression"),
        ({"pattern": "((a?){99}){99}", "definition": {"max-length": 1}}, "invalid repetition size: {99}"),
        ({"pattern": "[ -\U0010ffff]{700}", "definition": {"max-length": 1}}, "could take too long to match"),
        ({"pattern": r"^(\w)\1", "definition": {"max-length": 1}}, "a back reference, '\\1' at character 6"),
        ({"pattern": "^a(?!b)c", "definition": {"max-length": 1}}, "a look-ahead in the middle of a branch"),
        ({"pattern": "", "definition": {"max-length": "1"}}, "'max-length' = '1' in policy 'p' in vhost"),
        ({"pattern": "", "definition": {"mystery": 1}}, "is not a key of policies"),
        ({"pattern": "", "definition": {"expires": 0}}, "is not an integer from 1 to"),
        ({"pattern": "", "definition": {"max-length": 1}, "priority": "x"}, "the priority 'x'"),
        ({"pattern": "", "definition": {"max-length": 1}, "apply-to": "x"}, "apply-to 'x'"),
    ],
)
def test_errors_of_a_policy_are_explained(api: Api, vhost: str, body: object, reason: str) -> None:
    refusal = api.refused(400, "PUT", "policies", vhost, "p", body=body)
    assert refusal["error"] == "bad_request"
    assert reason in refusal["reason"]
    assert api.get("policies", vhost) == []


def test_a_queue_shows_its_effective_settings_and_their_origins(api: Api, vhost: str) -> None:
    api.put("queues", vhost, "q", arguments={"x-message-ttl": 5000})
    api.put("policies", vhost, "high", pattern="", priority=9, definition={"max-length": 100})
    api.put("policies", vhost, "low", pattern="", definition={"max-length": 7, "message-ttl": 9000})
    api.put("operator-policies", vhost, "cap", pattern="", definition={"max-length": 50})
    queue = api.get("queues", vhost, "q")
    assert (queue["policy"], queue["policies"]) == ("high", ["high", "low"])
    assert (queue["operator_policy"], queue["operator_policies"]) == ("cap", ["cap"])
    assert queue["effective_policy_definition"] == {"max-length": 50, "message-ttl": 9000}
    assert api.get("queues", vhost, "q", "effective") == {
        "max-length": {
            "value": 50,
            "source": {"kind": "operator_policy", "name": "cap"},
            "overrides": [
                {"kind": "policy", "name": "high", "value": 100},
                {"kind": "policy", "name": "low", "value": 7},
            ],
        },
        "message-ttl": {
            "value": 5000,
            "source": {"kind": "argument", "name": "x-message-ttl"},
            "overrides": [{"kind": "policy", "name": "low", "value": 9000}],
        },
    }
    api.refused(404, "GET", "queues", vhost, "nope", "effective")


def test_values_that_change_nothing_are_marked(api: Api, vhost: str) -> None:
    api.put("queues", vhost, "q", arguments={"x-queue-mode": "lazy"})
    idle = {"max-in-memory-length": 1, "queue-leader-locator": "balanced"}
    api.put("policies", vhost, "p", pattern="", definition={"max-length": 5} | idle)
    effective = api.get("queues", vhost, "q", "effective")
    marked = {key for key, each in effective.items() if each.get("no_effect") is True}
    assert marked == set(effective) - {"max-length"} == set(idle) | {"queue-mode"}


def test_keys_only_for_streams_and_keys_not_for_streams_are_marked(api: Api, vhost: str) -> None:
    definition = {"max-length-bytes": 5000, "max-age": "7D", "message-ttl": 5, "dead-letter-exchange": "x"}
    api.put("policies", vhost, "p", pattern="", definition=definition)
    for kind, idle in (("stream", {"message-ttl", "dead-letter-exchange"}), ("classic", {"max-age"})):
        api.put("queues", vhost, kind, durable=True, arguments={"x-queue-type": kind})
        effective = api.get("queues", vhost, kind, "effective")
        assert set(effective) == set(definition)
        assert {key for key, each in effective.items() if "no_effect" in each} == idle


def test_an_alternate_exchange_comes_and_goes_with_its_policy(api: Api, vhost: str, address: Address) -> None:
    with amqp(address, vhost) as channel:
        channel.exchange_declare("x", "direct")
        channel.queue_declare("unrouted")
        channel.queue_bind("unrouted", "amq.fanout")

        def taken() -> bool:
            channel.basic_publish("x", "nowhere", b"x")
            return channel.basic_get("unrouted", auto_ack=True)[0] is not None

        assert not taken()
        api.put("policies", vhost, "p", pattern="^x$", definition={"alternate-exchange": "amq.fanout"})
        assert taken()
        assert api.get("exchanges", vhost, "x", "effective") == {
            "alternate-exchange": {
                "value": "amq.fanout",
                "source": {"kind": "policy", "name": "p"},
                "overrides": [],
            }
        }
        assert api.get("exchanges", vhost, "x")["policy"] == "p"
        api.delete("policies", vhost, "p")
        assert not taken()


def test_operator_policies_are_parameters_too(api: Api, vhost: str) -> None:
    value = {"pattern": "^q", "definition": {"max-length": 10}, "priority": 0, "apply-to": "all"}
    api.put("parameters", "operator_policy", vhost, "o", value=value)
    shown = {"component": "operator_policy", "vhost": vhost, "name": "o", "value": value}
    assert api.get("parameters", "operator_policy", vhost, "o") == shown
    assert api.get("parameters", "operator_policy", vhost) == [shown]
    assert shown in api.get("parameters", "operator_policy")
    assert shown in api.get("parameters")
    assert api.get("operator-policies", vhost, "o")["definition"] == {"max-length": 10}
    api.delete("parameters", "operator_policy", vhost, "o")
    assert api.get("operator-policies", vhost) == []


def test_limits_of_a_virtual_host(api: Api, vhost: str, address: Address) -> None:
    api.put("vhost-limits", vhost, "max-queues", status=204, value=1)
    api.put("vhost-limits", vhost, "max-connections", status=204, value=5)
    limits = {"max-queues": 1, "max-connections": 5}
    assert api.get("vhost-limits", vhost) == [{"vhost": vhost, "value": limits}]
    assert {"vhost": vhost, "value": limits} in api.get("vhost-limits")
    assert api.get("parameters", "vhost-limits", vhost)[0]["value"] == limits
    api.put("queues", vhost, "q")
    refusal = api.refused(400, "PUT", "queues", vhost, "r", body={})
    assert refusal["reason"] == f"cannot declare queue 'r': queue limit in vhost '{vhost}' (1) is reached"
    api.delete("vhost-limits", vhost, "max-queues")
    api.put("queues", vhost, "r")
    api.delete("parameters", "vhost-limits", vhost, "limits")
    assert api.get("vhost-limits", vhost) == []
    api.refused(400, "PUT", "vhost-limits", vhost, "max-shoes", body={"value": 1})
    api.refused(400, "PUT", "vhost-limits", vhost, "max-queues", body={"value": "1"})
    api.refused(400, "PUT", "parameters", "vhost-limits", vhost, "limits", body={"value": {"shoes": 1}})


def test_limits_of_a_user(api: Api, vhost: str, user: Callable[..., Api]) -> None:
    name = user("management").get("whoami")["name"]
    api.put("user-limits", name, "max-connections", status=204, value=3)
    api.put("user-limits", name, "max-channels", status=204, value=4)
    assert api.get("user-limits", name)[0]["value"] == {"max-connections": 3, "max-channels": 4}
    api.delete("user-limits", name, "max-channels")
    api.put("user-limits", name, "max-connections", status=204, value=-1)
    assert api.get("user-limits", name) == []
    api.refused(400, "PUT", "user-limits", name, "max-queues", body={"value": 1})
    api.refused(404, "PUT", "user-limits", "nobody", "max-channels", body={"value": 1})


def test_components_of_plugins_are_not_known(api: Api, vhost: str) -> None:
    refusal = api.refused(400, "PUT", "parameters", "federation", vhost, "s", body={"value": {}})
    assert refusal["reason"].startswith("component federation not found")
    api.refused(404, "GET", "parameters", "federation", vhost, "s")


def test_global_parameters(api: Api, name: str) -> None:
    api.put("global-parameters", name, value={"any": ["thing", None]})
    shown = {"name": name, "value": {"any": ["thing", None]}}
    assert api.get("global-parameters", name) == shown
    assert shown in api.get("global-parameters")
    api.put("global-parameters", name, status=204, value=1)
    api.refused(400, "PUT", "global-parameters", name, body={})
    api.delete("global-parameters", name)
    api.refused(404, "DELETE", "global-parameters", name)
    api.refused(404, "GET", "global-parameters", name)


def test_a_pattern_that_could_go_on_for_ever_holds_no_one_up(start_daemon: DaemonStarter) -> None:
    daemon = start_daemon()
    api = Api(daemon.admin)
    name = "a" * 254 + "!"
    api.put("queues", "/", name, durable=True)
    api.put("policies", "/", "p", pattern="^(a+)+$", definition={"max-length": 1})
    api.put("queues", "/", "a" * 255, durable=True)
    assert [api.get("queues", "/", each)["policy"] for each in (name, "a" * 255)] == [None, "p"]
    daemon.kill()
    api.close()
    api = Api(start_daemon().admin)
    assert [api.get("queues", "/", each)["policy"] for each in (name, "a" * 255)] == [None, "p"]
    api.close()


def test_look_aheads_at_the_ends_of_branches_decide_which_queues_a_policy_holds_for(
    api: Api, vhost: str
) -> None:
    names = ["orders", "orders.dlq", "orders.eu", "tmp.orders", "x"]
    for name in names:
        api.put("queues", vhost, name)
    for pattern, expected in (
        (r"^(?!tmp\.).*", ["orders", "orders.dlq", "orders.eu", "x"]),
        (r"^(?!.*dlq$)(?=.*orders)", ["orders", "orders.eu", "tmp.orders"]),
        (r"^orders(?!\.)|^(?!orders|tmp)", ["orders", "x"]),
        ("(?!x$)", names),  # matches at the end of x, too
        ("(?!)", []),
        ("^(?!x$)", names[:-1]),
    ):
        api.put("policies", vhost, "p", pattern=pattern, definition={"max-length": 1})
        found = [queue["name"] for queue in api.get("queues", vhost) if queue["policy"] == "p"]
        assert found == expected, pattern
        api.delete("policies", vhost, "p")
