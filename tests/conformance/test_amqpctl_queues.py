"""Commands of `amqpctl` on queues in use, and on their messages."""

import pika
import pytest

from tests.support.admin.api import Api, amqp
from tests.support.daemon.amqpctl import Amqpctl
from tests.support.daemon.daemon import Address


@pytest.fixture
def control(api: Api) -> Amqpctl:
    return Amqpctl(api.base)


def test_a_queue_is_stopped_and_started(control: Amqpctl, api: Api, vhost: str) -> None:
    control("declare_queue", "q", "-p", vhost)
    for command, expected in (
        (("stop_queue",), ["enqueue", "dequeue"]),
        (("start_queue", "--dequeue"), ["enqueue"]),
        (("stop_queue", "--dequeue"), ["enqueue", "dequeue"]),
        (("start_queue", "--enqueue"), ["dequeue"]),
        (("start_queue",), []),
    ):
        control(command[0], "q", *command[1:], "-p", vhost)
        assert api.get("queues", vhost, "q")["stopped"] == expected
    refused = control("stop_queue", "none", "-p", vhost, status=1)
    assert refused.stderr.startswith(f"amqpctl: no queue 'none' in vhost '{vhost}'; ")


def test_a_queue_is_altered(control: Amqpctl, api: Api, vhost: str) -> None:
    control("declare_queue", "q", "-p", vhost)
    control("alter_queue", "q", "--arguments", '{"x-max-length": 3}', "--name", "r", "-p", vhost)
    assert api.get("queues", vhost, "r")["arguments"] == {"x-max-length": 3}
    control("alter_queue", "r", "--arguments", "{", "-p", vhost, status=2)
    refused = control("alter_queue", "r", "--arguments", '{"x-max-priority": 3}', "-p", vhost, status=1)
    assert "arg 'x-max-priority' of queue 'r'" in refused.stderr


def test_messages_in_the_middle(control: Amqpctl, vhost: str, address: Address) -> None:
    for queue in ("q", "r"):
        control("declare_queue", queue, "-p", vhost)
    with amqp(address, vhost) as channel:
        for number in range(6):
            properties = pika.BasicProperties(headers={"n": number})
            channel.basic_publish("", "q", b"%d" % number, properties)
    listed = control.json("list_messages", "q", "--selector", "n >= 4", "-p", vhost)
    assert [(each["place"], each["payload"]) for each in listed] == [(0, "4"), (1, "5")]
    ids = [option for each in listed for option in ("--id", each["id"])]
    assert control("delete_messages", "q", *ids, "-p", vhost).stdout == "2\n"
    move = ("move_messages", "q", "--queue", "r", "--selector", "n < 3", "-p", vhost)
    assert control(*move, "--limit", "2").stdout == "2\n"
    assert control(*move).stdout == "1\n"
    assert control("copy_messages", "r", "--exchange", "", "--all", "-p", vhost).stdout == "3\n"
    edit = ("edit_messages", "q", "--properties", '{"headers": {"n": 7}}', "--payload", "x")
    assert control(*edit, "--selector", "n = 3", "-p", vhost).stdout == "1\n"
    assert control("count_messages", "q", "--selector", "n = 7", "-p", vhost).stdout == "1\n"
    assert control("redrive_messages", "q", "--all", "-p", vhost).stdout == "0\n"
    table = control("list_messages", "q", "--from", "2", "-p", vhost).stdout.splitlines()
    assert [line.split()[-1] for line in table] == ["payload", "2", "x"]
    refused = control("delete_messages", "q", "-p", vhost, status=1)
    assert "no messages are selected" in refused.stderr


def test_an_operation_stops_at_its_size_limit(control: Amqpctl, vhost: str, address: Address) -> None:
    for queue in ("q", "r"):
        control("declare_queue", queue, "-p", vhost)
    with amqp(address, vhost) as channel:
        for _ in range(10):
            channel.basic_publish("", "q", b"x" * 1_000_000)
    edit = ("edit_messages", "q", "--properties", '{"priority": 1}')
    for command in (("copy_messages", "q", "--queue", "r"), edit):
        once = control(*command, "--all", "-p", vhost)
        assert once.stdout == "9\n"
        assert "messages are left" in once.stderr
    assert control("count_messages", "r", "-p", vhost).stdout == "9\n"
    assert control("move_messages", "r", "--queue", "r", "--all", "-p", vhost).stdout == "9\n"
    control("copy_messages", "q", "--queue", "r", "--all", "--limit", "2001", "-p", vhost, status=2)
    assert control("delete_messages", "r", "--all", "-p", vhost).stdout == "9\n"
    assert control("count_messages", "r", "-p", vhost).stdout == "0\n"


def test_members_are_listed_and_changed(control: Amqpctl, api: Api, vhost: str) -> None:
    for member in ("m1", "m2"):
        control("declare_queue", member, "-p", vhost)
    arguments = '{"x-partition-by": "key", "x-partition-members": ["m1"]}'
    control("declare_queue", "q", "--arguments", arguments, "-p", vhost)
    members = '["m1", {"to": "m2", "weight": 3}]'
    control("change_members", "q", members, "--pins", '{"k": "m2"}', "-p", vhost)
    listed = control.json("list_members", "q", "-p", vhost)
    assert [(each["name"], each["weight"], each["pins"]) for each in listed] == [
        ("m1", 1, []),
        ("m2", 3, ["k"]),
    ]
    table = control("list_members", "q", "-p", vhost).stdout.splitlines()
    assert [line.split()[0] for line in table] == ["name", "m1", "m2"]
    refused = control("change_members", "q", '["none"]', "-p", vhost, status=1)
    assert "queue 'none' cannot be a member of queue 'q'" in refused.stderr
    control("change_members", "q", "[", "-p", vhost, status=2)
