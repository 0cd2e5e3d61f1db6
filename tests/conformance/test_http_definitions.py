"""Definitions over HTTP: export and import, all or nothing."""

from tests.support.admin.api import Api, amqp, fetch
from tests.support.admin.definitions import definitions_of_rabbitmq
from tests.support.daemon.daemon import DaemonStarter


def test_definitions_go_from_one_broker_to_another_and_last(start_daemon: DaemonStarter) -> None:
    daemon = start_daemon()
    api = Api(daemon.admin)
    document = definitions_of_rabbitmq()
    document["users"].append({"name": "clear", "password": "in the clear", "tags": ["monitoring"]})
    document["users"][0] |= {"password": "guest", "password_hash": None}  # the hash is of another one
    api.post("definitions", status=204, body=document)
    exported = api.get("definitions")
    assert {user["name"] for user in exported["users"]} == {"guest", "shop", "watcher", "clear"}
    assert fetch(api.url("whoami"), auth=("clear", "in the clear")).status_code == 200
    api.post("definitions", status=204, body=exported)
    with amqp(daemon.address, "/") as channel:
        assert channel.is_open
    daemon.kill()
    api.close()
    again = Api(start_daemon().admin)
    survived = again.get("definitions")
    exported["queues"] = [queue for queue in exported["queues"] if queue["durable"]]
    assert survived == exported
    assert again.get("queues", "shop", "orders")["effective_policy_definition"]["max-length"] == 500000
    again.close()


def test_a_single_virtual_host_at_a_time(api: Api, vhost: str, name: str) -> None:
    api.put("queues", vhost, "q", durable=True)
    api.put("policies", vhost, "p", pattern="", definition={"max-length": 1})
    api.post("bindings", vhost, "e", "amq.topic", "q", "q", status=201, body={"routing_key": "k"})
    document = api.get("definitions", vhost)
    copy = name + ".copy"
    api.put("vhosts", copy)
    api.post("definitions", copy, status=204, body=document)
    assert api.get("definitions", copy) == document
    assert api.get("queues", copy, "q")["effective_policy_definition"] == {"max-length": 1}
    api.delete("vhosts", copy)
    api.refused(404, "GET", "definitions", copy)
    api.refused(404, "POST", "definitions", copy, body=document)


def test_line_breaks_are_removed_from_imported_names(api: Api, vhost: str) -> None:
    document = {
        "queues": [{"name": "two\r\nlines", "durable": True}],
        "exchanges": [{"name": "a\nb", "type": "fanout"}],
        "bindings": [
            {
                "source": "a\nb",
                "destination": "two\r\nlines",
                "destination_type": "queue",
                "routing_key": "k\n",
            }
        ],
    }
    api.post("definitions", vhost, status=204, body=document)
    exported = api.get("definitions", vhost)
    assert [queue["name"] for queue in exported["queues"]] == ["twolines"]
    assert [exchange["name"] for exchange in exported["exchanges"]] == ["ab"]
    (binding,) = exported["bindings"]
    assert [binding[key] for key in ("source", "destination", "routing_key")] == ["ab", "twolines", "k\n"]


def test_errors_are_listed_by_object_and_nothing_is_imported(api: Api, vhost: str) -> None:
    document = {
        "queues": [
            {"name": "good", "durable": True},
            {"name": "bad", "durable": True, "arguments": {"x-expires": "soon"}},
        ],
        "bindings": [
            {"source": "nowhere", "destination": "good", "destination_type": "queue", "routing_key": ""}
        ],
    }
    refusal = api.refused(400, "POST", "definitions", vhost, body=document)
    first, second = refusal["reason"].splitlines()
    assert first.startswith(f"queue 'bad' in vhost '{vhost}': invalid arg 'x-expires'")
    assert (
        second
        == f"binding from 'nowhere' to 'good' in vhost '{vhost}': no exchange 'nowhere' in vhost '{vhost}'"
    )
    assert api.get("queues", vhost) == []
    api.refused(400, "POST", "definitions", vhost, body=[])
    api.refused(400, "POST", "definitions", vhost)


def test_an_import_may_pass_over_what_amqpd_does_not_have(api: Api, vhost: str) -> None:
    document = {
        "exchanges": [{"name": "odd", "type": "x-odd"}, {"name": "usual", "type": "fanout"}],
        "queues": [{"name": "q"}],
    }
    api.refused(400, "POST", "definitions", vhost, body=document)
    assert (
        "allowed: skip, refuse"
        in api.refused(400, "POST", "definitions", vhost, body=document, unsupported="maybe")["reason"]
    )
    answer = api.ask("POST", "definitions", vhost, body=document, unsupported="skip")
    assert answer.status_code == 200
    line = f"exchange 'odd' in vhost '{vhost}': unknown exchange type 'x-odd'"
    assert answer.json() == {"skipped": [line]}
    assert api.get("exchanges", vhost, "usual")["type"] == "fanout"
    assert api.get("queues", vhost, "q")["durable"] is True


def test_definitions_arrive_as_a_form(api: Api, vhost: str) -> None:
    content = b'{"queues": [{"name": "sch\xc3\xb6n"}]}'
    url = api.url("definitions", vhost)
    answer = api.client.post(url, files={"file": ("rabbit.json", content, "application/json")})
    assert answer.status_code == 204, answer.text
    assert api.get("queues", vhost, "schön")["name"] == "schön"
    answer = api.client.post(url, files={"other": ("rabbit.json", content, "application/json")})
    assert answer.status_code == 400
    assert "no part 'file'" in answer.json()["reason"]
    answer = api.client.post(url, files={"file": ("rabbit.json", b"{", "application/json")})
    assert answer.status_code == 400


def test_an_export_for_rabbitmq(api: Api, vhost: str) -> None:
    api.put("queues", vhost, "q", durable=True)
    api.put("policies", vhost, "p", pattern="", definition={"retry-max": 5, "max-length": 7})
    document = api.get("definitions", vhost, **{"for": "rabbitmq"})
    assert document["left_out"] == ["policy 'p': retry-max"]
    assert document["policies"][0]["definition"] == {"max-length": 7}
    assert document["rabbitmq_version"] == api.get("overview")["rabbitmq_version"]
    assert "left_out" not in api.get("definitions", vhost)
    assert (
        "allowed: amqpd, rabbitmq"
        in api.refused(400, "GET", "definitions", vhost, **{"for": "kafka"})["reason"]
    )
    assert set(api.get("all-configuration")) == set(api.get("definitions"))
