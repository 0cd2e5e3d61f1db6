"""The command `amqpctl` against a real broker."""

import json
import socket
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pika
import pytest

from tests.support.admin.api import Api, amqp
from tests.support.daemon.amqpctl import Amqpctl
from tests.support.daemon.daemon import PATIENCE_S, Address


@pytest.fixture
def control(api: Api) -> Amqpctl:
    return Amqpctl(api.base)


def test_queues(control: Amqpctl, api: Api, vhost: str, address: Address) -> None:
    control("declare_queue", "q/1", "--arguments", '{"x-max-priority": 3}', "-p", vhost)
    shown = api.get("queues", vhost, "q/1")
    assert (shown["durable"], shown["arguments"]) == (True, {"x-max-priority": 3})
    with amqp(address, vhost) as channel:
        channel.basic_publish("", "q/1", b"x")
    (row,) = control.json("list_queues", "-p", vhost)
    assert (row["name"], row["messages_ready"], row["consumers"]) == ("q/1", 1, 0)
    table = control("list_queues", "name", "messages_ready", "-p", vhost).stdout
    assert [line.split() for line in table.splitlines()] == [["name", "messages_ready"], ["q/1", "1"]]
    refused = control("delete_queue", "q/1", "--if-empty", "-p", vhost, status=1)
    assert "not empty" in refused.stderr
    control("purge_queue", "q/1", "-p", vhost)
    control("delete_queue", "q/1", "--if-empty", "-p", vhost)
    refused = control("purge_queue", "q/1", "-p", vhost, status=1)
    assert refused.stderr == (
        f"amqpctl: no queue 'q/1' in vhost '{vhost}'; 'amqpctl list_queues -p {vhost}' lists what exists\n"
    )


def test_delayed_messages(control: Amqpctl, vhost: str, address: Address) -> None:
    control("declare_queue", "q", "-p", vhost)
    assert control.json("list_delayed", "q", "-p", vhost) == []
    with amqp(address, vhost) as channel:
        for body in (b"1", b"22"):
            delayed = pika.BasicProperties(headers={"x-delay": 60_000})
            channel.basic_publish("", "q", body, delayed)
    first, second = control.json("list_delayed", "q", "-p", vhost)
    assert (first["payload_bytes"], second["payload_bytes"]) == (1, 2)
    control("move_delayed", "q", first["id"], "--delay", "90000", "-p", vhost)
    assert [each["payload_bytes"] for each in control.json("list_delayed", "q", "-p", vhost)] == [2, 1]
    control("cancel_delayed", "q", second["id"], "-p", vhost)
    (left,) = control.json("list_delayed", "q", "-p", vhost)
    control("move_delayed", "q", left["id"], "--at", "1", "-p", vhost)
    assert control.json("list_delayed", "q", "-p", vhost) == []
    (row,) = control.json("list_queues", "-p", vhost)
    assert row["messages_ready"] == 1
    refused = control("cancel_delayed", "q", left["id"], "-p", vhost, status=1)
    assert f"no delayed message '{left['id']}' in queue 'q'" in refused.stderr


def test_users(control: Amqpctl, api: Api, vhost: str, name: str) -> None:
    control("add_user", name, "--tags", "management", stdin="one\n")
    assert {"name": name, "tags": ["management"]} in control.json("list_users")
    assert "exists already" in control("add_user", name, stdin="two\n", status=1).stderr
    assert control("list_vhosts", user=name, password="one").stdout.split() == [
        "name",
        "description",
        "messages",
    ]
    control("change_password", name, stdin="two\n")
    refused = control("list_vhosts", user=name, password="one", status=1)
    assert f"refuses the log-in of user '{name}'" in refused.stderr
    assert "set AMQPCTL_USER (--user) and AMQPCTL_PASSWORD" in refused.stderr
    control("set_user_tags", name, "monitoring", "policymaker")
    assert api.get("users", name)["tags"] == ["monitoring", "policymaker"]
    control("list_vhosts", user=name, password="two")
    control("set_permissions", name, "^a", "", ".*", "-p", vhost)
    expected = {"user": name, "configure": "^a", "write": "", "read": ".*"}
    assert expected in control.json("list_permissions", "-p", vhost)
    control("set_topic_permissions", name, "amq.topic", "^a", "^b", "-p", vhost)
    topic = {"user": name, "exchange": "amq.topic", "write": "^a", "read": "^b"}
    assert control.json("list_topic_permissions", "-p", vhost) == [topic]
    control("clear_topic_permissions", name, "-p", vhost)
    control("clear_permissions", name, "-p", vhost)
    assert api.get("users", name, "permissions") == []
    control("delete_user", name)
    control("set_user_tags", name, status=1)
    api.refused(404, "GET", "users", name)


def test_policies_and_why_a_value_holds(control: Amqpctl, vhost: str) -> None:
    control("declare_queue", "q", "-p", vhost)
    control("set_policy", "p", "^q", '{"max-length": 10}', "--priority", "3", "-p", vhost)
    control("set_policy", "cap", "", '{"max-length": 5}', "--apply-to", "queues", "--operator", "-p", vhost)
    (row,) = control.json("list_policies", "-p", vhost)
    assert row == {
        "name": "p",
        "priority": 3,
        "pattern": "^q",
        "apply-to": "all",
        "definition": {"max-length": 10},
    }
    table = control("explain", "q", "-p", vhost).stdout.splitlines()
    assert table[1].split() == ["max-length", "5", "operator", "policy", "cap", "policy", "p", "(10)"]
    assert control.json("explain", "q", "-p", vhost)["max-length"]["value"] == 5
    control("clear_policy", "cap", "--operator", "-p", vhost)
    assert control.json("explain", "q", "-p", vhost)["max-length"]["value"] == 10
    control("clear_policy", "p", "-p", vhost)
    control("set_policy", "p", "^q", "{", "-p", vhost, status=2)
    for levels in (129, 940, 10_000):
        refused = control("set_policy", "p", "^q", "[" * levels + "]" * levels, "-p", vhost, status=2)
        assert "nested more than 128 levels deep" in " ".join(refused.stderr.replace("│", " ").split())
    refused = control("set_policy", "p", "^q", '{"shoes": 1}', "-p", vhost, status=1)
    assert "is not a key of policies" in refused.stderr
    control("set_policy", "a", "", '{"alternate-exchange": "amq.fanout"}', "-p", vhost)
    control("set_policy", "idle", "", '{"queue-mode": "lazy"}', "-p", vhost)
    assert "queue-mode (no effect)" in control("explain", "q", "-p", vhost).stdout
    control("clear_policy", "idle", "-p", vhost)
    held = control.json("explain", "amq.topic", "--exchange", "-p", vhost)
    assert held["alternate-exchange"]["source"]["name"] == "a"


def test_virtual_hosts_and_lists(control: Amqpctl, api: Api, name: str, address: Address) -> None:
    control("add_vhost", name, "--description", "for tests")
    assert {"name": name, "description": "for tests", "messages": 0} in control.json("list_vhosts")
    with amqp(address, name) as channel:
        channel.queue_declare("q")
        channel.queue_bind("q", "amq.topic", "k")
        channel.basic_consume("q", lambda *_: None, consumer_tag="tag")
        assert "amq.topic" in control("list_exchanges", "-p", name).stdout
        assert {"source": "amq.topic", "routing_key": "k"} in control.json(
            "list_bindings", "source", "routing_key", "-p", name
        )
        assert control.json("list_consumers", "consumer_tag", "-p", name) == [{"consumer_tag": "tag"}]
        assert [row for row in control.json("list_channels") if row["vhost"] == name]
        (connection,) = [row for row in control.json("list_connections") if row["vhost"] == name]
        control("close_connection", connection["name"], "bye\nX-Other: 1", status=2)
        control("close_connection", connection["name"], "bye \u2014 \u00e4")
        with pytest.raises(Exception, match="bye \u2014 \u00e4"):
            channel.queue_declare("q", passive=True)
    control("delete_vhost", name)
    api.refused(404, "GET", "vhosts", name)


def test_definitions(control: Amqpctl, api: Api, vhost: str, tmp_path: Path) -> None:
    api.put("queues", vhost, "q", durable=True)
    file = tmp_path / "definitions.json"
    control("export_definitions", str(file), "-p", vhost)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    api.delete("queues", vhost, "q")
    control("import_definitions", str(file), "-p", vhost)
    assert api.get("queues", vhost, "q")["durable"] is True
    assert "users" in json.loads(control("export_definitions").stdout)
    wrong = '{"queues": [{"name": "q", "vhost": "nope"}, {"name": "r", "vhost": "nope"}]}'
    refused = control("import_definitions", "-", stdin=wrong, status=1)
    assert [line.split(":")[0] for line in refused.stderr.splitlines()] == ["amqpctl", "amqpctl"]
    control("import_definitions", "-", stdin="{", status=2)
    for content, words in ((b'{"a": "\xff"}', "is not valid UTF-8 at byte 7"), (b"[" * 999, "levels deep")):
        file.write_bytes(content)
        refused = control("import_definitions", str(file), status=2)
        output = "".join(refused.stderr.replace("│", " ").split())
        assert str(file) in output
        assert words.replace(" ", "") in output
    control("import_definitions", str(tmp_path / "absent"), status=1)


def test_status(control: Amqpctl) -> None:
    assert control.json("status")["product_name"] == "amqpd"
    assert "product_version" in control("status").stdout


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "shoes", "file:///etc/passwd"])
def test_an_unreachable_broker_ends_with_status_3(url: str) -> None:
    assert Amqpctl(url)("status", status=3).stderr.startswith("amqpctl: ")


def test_credentials_are_required(control: Amqpctl, user: Callable[..., Api]) -> None:
    user("management")
    assert "AMQPCTL_PASSWORD" in control("status", user="somebody", status=2).stderr
    assert "Not_Authorized" in control("status", user="somebody", password="x", status=1).stderr
    control("no_such_command", status=2)


def test_an_empty_name_is_refused_with_status_2(control: Amqpctl, api: Api, vhost: str) -> None:
    api.put("queues", vhost, "q")
    for command in (("delete_queue", ""), ("purge_queue", ""), ("delete_queue", "q", "-p", "")):
        done = control(*command, *(() if "-p" in command else ("-p", vhost)), status=2)
        assert done.stderr == "amqpctl: a name is empty\n"
    done = control("delete_vhost", "", status=2)
    assert [queue["name"] for queue in api.get("queues", vhost)] == ["q"]


@pytest.mark.parametrize(
    "url", ["http://[::1", "ftp://localhost", "localhost:15672", "http://", "http://\u00e4"]
)
def test_an_invalid_address_is_reported(control: Amqpctl, url: str) -> None:
    done = control("list_vhosts", status=3, more={"AMQPCTL_URL": url})
    assert "is not an address like" in done.stderr


def test_arguments_that_are_not_utf_8_are_told(control: Amqpctl, vhost: str) -> None:
    done = control("delete_queue", "\udcff", "-p", vhost, status=2)
    assert done.stderr == "amqpctl: '\\udcff' is not valid UTF-8\n"
    assert control("list_vhosts", status=2, user="\udcff", password="x").stderr.endswith(
        "is not valid UTF-8\n"
    )


def test_the_password_goes_to_the_broker_and_to_nobody_else(control: Amqpctl) -> None:
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        where = f"http://127.0.0.1:{proxy.getsockname()[1]}"
        control("list_vhosts", more={"http_proxy": where, "HTTP_PROXY": where})
        proxy.settimeout(0)
        with pytest.raises(BlockingIOError):
            proxy.accept()


def test_a_redirect_is_not_followed(control: Amqpctl) -> None:
    with socket.create_server(("127.0.0.1", 0)) as first, socket.create_server(("127.0.0.1", 0)) as second:
        target = f"http://127.0.0.1:{second.getsockname()[1]}/"
        answer = f"HTTP/1.1 302 Found\r\nLocation: {target}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

        def redirect() -> None:
            peer, _ = first.accept()
            with peer:
                peer.recv(65536)
                peer.sendall(answer.encode())

        thread = threading.Thread(target=redirect)
        thread.start()
        url = f"http://127.0.0.1:{first.getsockname()[1]}"
        assert "HTTP 302" in control("list_vhosts", status=1, more={"AMQPCTL_URL": url}).stderr
        thread.join()
        second.settimeout(0)
        with pytest.raises(BlockingIOError):
            second.accept()


def test_shovels_are_defined_shown_restarted_and_deleted(control: Amqpctl, api: Api, vhost: str) -> None:
    value = '{"src-uri": "amqp://", "src-queue": "a", "dest-uri": "amqp://", "dest-queue": "b"}'
    control("set_parameter", "shovel", "s", value, "-p", vhost)
    [parameter] = control.json("list_parameters", "-p", vhost)
    assert (parameter["component"], parameter["name"]) == ("shovel", "s")
    [shown] = [each for each in control.json("shovel_status") if each["vhost"] == vhost]
    assert (shown["name"], shown["src_uri"]) == ("s", "amqp://")
    control("restart_shovel", "s", "-p", vhost)
    control("pause_shovel", "s", "-p", vhost)
    assert api.get("shovels", "vhost", vhost, "s")["status"]["state"] == "paused"
    control("resume_shovel", "s", "-p", vhost)
    assert api.get("shovels", "vhost", vhost, "s")["status"]["state"] != "paused"
    control("delete_shovel", "s", "-p", vhost)
    refused = control("restart_shovel", "s", "-p", vhost, status=1)
    assert refused.stderr == (
        f"amqpctl: no shovel 's' in vhost '{vhost}'; 'amqpctl shovel_status' lists what exists\n"
    )
    control("set_parameter", "shovel", "s", value, "-p", vhost)
    control("clear_parameter", "shovel", "s", "-p", vhost)
    assert api.get("parameters", "shovel", vhost) == []
    refused = control("set_parameter", "shovel", "s", "{}", "-p", vhost, status=1)
    assert refused.stderr == "amqpctl: 'src-uri' is missing\n"


def test_links_of_federation_are_shown_and_restarted(control: Amqpctl, api: Api, vhost: str) -> None:
    control("declare_queue", "q", "-p", vhost)
    control("set_parameter", "federation-upstream", "up", '{"uri": "amqp:///none"}', "-p", vhost)
    elements = '[{"upstream": "up", "queue": "theirs"}]'
    control("set_parameter", "federation-upstream-set", "s", elements, "-p", vhost)
    control("set_policy", "p", "^q$", '{"federation-upstream-set": "s"}', "-p", vhost)
    wait_for_statuses(api, vhost, "error")
    [link] = [each for each in control.json("federation_status") if each["vhost"] == vhost]
    assert (link["type"], link["name"], link["upstream"], link["upstream_name"]) == (
        "queue",
        "q",
        "up",
        "theirs",
    )
    [failed] = [each for each in control.json("federation_status", "--only-down") if each["vhost"] == vhost]
    assert failed["error"] == "upstream this broker: no vhost 'none'"
    control("set_parameter", "federation-upstream", "up", json.dumps({"uri": "amqp://"}), "-p", vhost)
    wait_for_statuses(api, vhost, "running")
    control("restart_federation_link", link["id"], "-p", vhost)
    wait_for_statuses(api, vhost, "running")
    refused = control("restart_federation_link", "none", "-p", vhost, status=1)
    assert refused.stderr.startswith(f"amqpctl: no federation link 'none' in vhost '{vhost}'; ")
    refused = control("set_parameter", "federation-upstream", "up", "{}", "-p", vhost, status=1)
    assert refused.stderr == "amqpctl: 'uri' is missing\n"
    refused = control("set_parameter", "federation-upstream-set", "s", "{}", "-p", vhost, status=1)
    assert refused.stderr == "amqpctl: the value of federation upstream set 's' is not a list\n"
    control("clear_policy", "p", "-p", vhost)
    wait_for_statuses(api, vhost)
    assert len(api.get("parameters", "federation-upstream", vhost)) == 1
    control("clear_parameter", "federation-upstream-set", "s", "-p", vhost)


def wait_for_statuses(api: Api, vhost: str, *statuses: str) -> None:
    """Wait until the links of a virtual host have these statuses."""
    until = time.monotonic() + PATIENCE_S
    while [link["status"] for link in api.get("federation-links", vhost)] != [*statuses]:
        assert time.monotonic() < until, api.get("federation-links", vhost)
        time.sleep(0.01)


def test_users_as_rabbitmqctl_names_them(control: Amqpctl, api: Api, vhost: str, name: str) -> None:
    control("add_user", name, "one")
    assert control("authenticate_user", name, "one").stdout == f"user '{name}' may log in\n"
    assert "refuses the password" in control("authenticate_user", name, "two", status=1).stderr
    control("change_password", name, "two")
    control("authenticate_user", name, stdin="two\n")
    control("clear_password", name)
    control("authenticate_user", name, "two", status=1)
    control("set_permissions", "-p", vhost, name, "^a", "", ".*")
    control("set_topic_permissions", "-p", vhost, name, "amq.topic", "^a", "^b")
    own = {"vhost": vhost, "configure": "^a", "write": "", "read": ".*"}
    assert control.json("list_user_permissions", name) == [own]
    topic = {"vhost": vhost, "exchange": "amq.topic", "write": "^a", "read": "^b"}
    assert control.json("list_user_topic_permissions", name) == [topic]
    control("set_user_limits", name, '{"max-connections": 5, "max-channels": 9}')
    limits = {"max-connections": 5, "max-channels": 9}
    assert control.json("list_user_limits", "--user", name) == [{"user": name, "value": limits}]
    control("clear_user_limits", name, "max-channels")
    assert control.json("list_user_limits", "--user", name)[0]["value"] == {"max-connections": 5}
    control("clear_user_limits", name, "all")
    assert control.json("list_user_limits", "--user", name) == []
    control("set_user_limits", name, "[]", status=2)
    stats = {row["protocol"]: row for row in control.json("list_node_auth_attempt_stats")}
    assert stats["http"]["auth_attempts_failed"] >= 1
    control("delete_user", name)


def test_limits_parameters_and_operator_policies(control: Amqpctl, api: Api, vhost: str, name: str) -> None:
    control("set_vhost_limits", "-p", vhost, '{"max-queues": 3, "max-connections": 7}')
    limits = {"max-queues": 3, "max-connections": 7}
    assert control.json("list_vhost_limits", "-p", vhost) == [{"vhost": vhost, "value": limits}]
    control("clear_vhost_limits", "-p", vhost)
    assert control.json("list_vhost_limits", "-p", vhost) == []
    control("set_global_parameter", name, '{"a": [1]}')
    assert {"name": name, "value": {"a": [1]}} in control.json("list_global_parameters")
    control("clear_global_parameter", name)
    refused = control("clear_global_parameter", name, status=1)
    assert "'amqpctl list_global_parameters' lists what exists" in refused.stderr
    control("set_operator_policy", "cap", "^q", '{"max-length": 5}', "--priority", "2", "-p", vhost)
    (row,) = control.json("list_operator_policies", "-p", vhost)
    assert (row["name"], row["priority"], row["definition"]) == ("cap", 2, {"max-length": 5})
    control("clear_operator_policy", "cap", "-p", vhost)
    assert control.json("list_operator_policies", "-p", vhost) == []


def test_exchanges_and_bindings(control: Amqpctl, vhost: str) -> None:
    control("declare_exchange", "e", "--type", "topic", "--internal", "-p", vhost)
    assert {"name": "e", "type": "topic", "internal": True} in control.json(
        "list_exchanges", "name", "type", "internal", "-p", vhost
    )
    control("declare_queue", "q", "-p", vhost)
    bind = ("e", "q", "--routing-key", "a.*", "--arguments", '{"n": 1}', "-p", vhost)
    control("declare_binding", *bind)
    control("declare_binding", "amq.fanout", "e", "--destination-type", "exchange", "-p", vhost)
    columns = ("source_name", "destination_name", "destination_kind", "routing_key")
    rows = control.json("list_bindings", *columns, "-p", vhost)
    expected = dict(zip(columns, ("e", "q", "queue", "a.*"), strict=True))
    assert expected in rows
    assert dict(zip(columns, ("amq.fanout", "e", "exchange", ""), strict=True)) in rows
    refused = control("delete_binding", "e", "q", "--routing-key", "b", "-p", vhost, status=1)
    assert "there are: 'a.*' {\"n\": 1}" in refused.stderr
    control("delete_binding", *bind)
    assert expected not in control.json("list_bindings", *columns, "-p", vhost)
    refused = control("delete_exchange", "amq.fanout", "--if-unused", "-p", vhost, status=1)
    control("delete_exchange", "e", "--if-unused", "-p", vhost)
    control("declare_binding", "e", "q", "--destination-type", "shoe", "-p", vhost, status=2)
