"""Access rights of the HTTP API, by user tag. [RabbitMQ management: tags]"""

from collections.abc import Callable

import pytest

from tests.support.admin.api import Api, fetch

ADMINISTRATORS_ONLY = [
    ("GET", "users"),
    ("GET", "users/guest"),
    ("PUT", "users/x"),
    ("DELETE", "users/x"),
    ("POST", "users/bulk-delete"),
    ("GET", "permissions"),
    ("GET", "topic-permissions"),
    ("GET", "users/guest/permissions"),
    ("PUT", "permissions/%2F/guest"),
    ("DELETE", "permissions/%2F/guest"),
    ("PUT", "topic-permissions/%2F/guest"),
    ("PUT", "vhosts/x"),
    ("DELETE", "vhosts/x"),
    ("PUT", "vhost-limits/%2F/max-queues"),
    ("PUT", "user-limits/guest/max-connections"),
    ("GET", "user-limits"),
    ("PUT", "operator-policies/%2F/x"),
    ("DELETE", "operator-policies/%2F/x"),
    ("GET", "definitions"),
    ("POST", "definitions"),
    ("GET", "definitions/%2F"),
    ("PUT", "cluster-name"),
    ("PUT", "topic-permissions/%2F/guest/amq.topic"),
    ("DELETE", "reset"),
    ("GET", "top/node"),
    ("POST", "queues/quorum/%2F/q/replicas/add"),
    ("DELETE", "queues/quorum/replicas/on/node/shrink"),
    ("GET", "config/effective"),
    ("PUT", "config/effective/log_level"),
    ("POST", "nodes/x/shutdown"),
]


def test_a_request_without_credentials_gets_401_and_a_challenge(api: Api) -> None:
    answer = fetch(api.url("whoami"))
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Basic ")
    assert answer.json()["error"] == "not_authorized"


@pytest.mark.parametrize(
    "header", ["Basic", "Basic !", "Basic Z3Vlc3Q=", "Bearer x", "Basic /////w==", "basic \x7f"]
)
def test_credentials_that_cannot_be_read(api: Api, header: str) -> None:
    answer = fetch(api.url("whoami"), headers={"authorization": header})
    assert (answer.status_code, answer.json()["error"]) == (401, "not_authorized")


def test_a_wrong_password(api: Api) -> None:
    answer = fetch(api.url("whoami"), auth=("guest", "wrong"))
    assert (answer.status_code, answer.json()) == (
        401,
        {"error": "not_authorized", "reason": "Not_Authorized"},
    )


def test_a_user_without_a_tag(user: Callable[..., Api]) -> None:
    assert user("").refused(401, "GET", "whoami") == {
        "error": "not_authorised",
        "reason": "Not management user",
    }
    assert user("impersonator").refused(401, "GET", "overview")["reason"] == "Not management user"


@pytest.mark.parametrize("tag", ["management", "policymaker", "monitoring"])
def test_requests_of_administrators_only(user: Callable[..., Api], tag: str) -> None:
    somebody = user(tag)
    for method, path in ADMINISTRATORS_ONLY:
        answer = somebody.client.request(method, f"{somebody.base}/api/{path}", json={})
        assert (answer.status_code, answer.json()) == (
            401,
            {"error": "not_authorised", "reason": "Not administrator user"},
        ), path


def test_contents_are_shown_to_those_who_may_open_the_virtual_host(
    api: Api, vhost: str, user: Callable[..., Api]
) -> None:
    api.put("queues", vhost, "q")
    insider, outsider = user("management"), user("monitoring", permitted=False)
    assert [queue["name"] for queue in insider.get("queues")] == ["q"]
    assert insider.get("queues", vhost, "q")["vhost"] == vhost
    insider.refused(404, "GET", "queues", "/")
    assert outsider.get("queues") == []
    assert outsider.refused(404, "GET", "queues", vhost)["reason"] == f"no vhost '{vhost}'"
    outsider.refused(404, "PUT", "queues", vhost, "q", body={})
    assert [found["name"] for found in insider.get("vhosts")] == [vhost]
    assert {"/", vhost} <= {found["name"] for found in outsider.get("vhosts")}, "monitoring sees them all"
    assert outsider.get("vhosts", vhost)["name"] == vhost


def test_permissions_are_the_same_over_amqp_and_over_http(
    api: Api, vhost: str, user: Callable[..., Api]
) -> None:
    limited = user("management", configure="^mine", write="^mine", read="^mine")
    limited.put("queues", vhost, "mine")
    api.put("queues", vhost, "theirs", durable=True)
    api.put("exchanges", vhost, "theirs", type="fanout")
    refusal = limited.refused(401, "PUT", "queues", vhost, "yours", body={})
    assert refusal["error"] == "not_authorised"
    assert "configure access to queue 'yours'" in refusal["reason"]
    limited.refused(401, "DELETE", "queues", vhost, "theirs")
    limited.refused(401, "DELETE", "queues", vhost, "theirs", "contents")
    limited.refused(401, "POST", "queues", vhost, "theirs", "get", body={"count": 1, "ackmode": "x"})
    limited.refused(401, "PUT", "exchanges", vhost, "yours", body={"type": "direct"})
    limited.refused(401, "DELETE", "exchanges", vhost, "theirs")
    limited.refused(401, "POST", "bindings", vhost, "e", "theirs", "q", "mine", body={})
    limited.refused(401, "POST", "bindings", vhost, "e", "mine", "q", "theirs", body={})
    dead = {"arguments": {"x-dead-letter-exchange": "theirs"}}
    limited.refused(401, "PUT", "queues", vhost, "mine.too", body=dead)
    alternate = {"type": "direct", "arguments": {"alternate-exchange": "theirs"}}
    limited.refused(401, "PUT", "exchanges", vhost, "mine.too", body=alternate)
    assert {queue["name"] for queue in api.get("queues", vhost)} == {"mine", "theirs"}


def test_policies_are_for_policymakers(api: Api, vhost: str, user: Callable[..., Api]) -> None:
    policy = {"pattern": "", "definition": {"max-length": 1}}
    manager, maker, stranger = user("management"), user("policymaker"), user("policymaker", permitted=False)
    refusal = manager.refused(401, "PUT", "policies", vhost, "p", body=policy)
    assert refusal["reason"] == "User not authorised to access object"
    stranger.refused(404, "PUT", "policies", vhost, "p", body=policy)
    maker.put("policies", vhost, "p", body=policy)
    maker.refused(401, "PUT", "operator-policies", vhost, "p", body=policy)
    maker.refused(401, "PUT", "parameters", "operator_policy", vhost, "p", body={"value": policy})
    assert [found["name"] for found in manager.get("policies", vhost)] == ["p"]
    manager.refused(401, "DELETE", "policies", vhost, "p")
    maker.delete("policies", vhost, "p")
    maker.put("global-parameters", vhost, value=1)
    maker.delete("global-parameters", vhost)
    manager.refused(401, "PUT", "global-parameters", vhost, body={"value": 1})
    manager.refused(401, "GET", "parameters")


def test_the_state_of_the_broker_is_not_for_policymakers(
    api: Api, vhost: str, user: Callable[..., Api]
) -> None:
    maker = user("policymaker")
    named = ("global-parameters", "cluster_name")
    api.put(*named, value="lab")
    assert maker.refused(401, "PUT", *named, body={"value": "x"})["reason"] == "Not administrator user"
    maker.refused(401, "DELETE", *named)
    api.delete(*named)
    own = ("global-parameters", "internal_loaded_definitions")
    for somebody in (maker, api):
        assert "the broker's own" in somebody.refused(400, "PUT", *own, body={"value": "x"})["reason"]
        somebody.refused(400, "DELETE", *own)
    api.post("definitions", status=204, body={"global_parameters": [{"name": own[1], "value": "x"}]})
    api.refused(404, "GET", *own)


def test_only_monitoring_users_may_list_nodes(user: Callable[..., Api]) -> None:
    assert user("management").refused(401, "GET", "nodes")["reason"] == "Not monitor user"
    assert user("monitoring").get("nodes")[0]["running"] is True


def test_each_user_may_read_its_own_whoami_and_limits(api: Api, user: Callable[..., Api]) -> None:
    somebody = user("management, monitoring")
    answer = somebody.get("whoami")
    assert answer["tags"] == ["management", "monitoring"]
    assert somebody.get("user-limits", answer["name"]) == []
    somebody.refused(401, "GET", "user-limits", "guest")
