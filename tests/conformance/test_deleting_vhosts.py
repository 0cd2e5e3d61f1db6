"""Deletion of a large virtual host: a single step for clients, and no client waits for it."""

from pamqp.commands import Basic, Exchange, Queue

from tests.conformance.conftest import Bystander
from tests.support.admin.api import Api
from tests.support.amqp091.frames import method_bytes
from tests.support.amqp091.peer import Connector, PeerChannel
from tests.support.daemon.daemon import Daemon, DaemonStarter
from tests.support.daemon.endings import Ending, both_endings

MANY = 5_000
PERSISTENT = Basic.Properties(delivery_mode=2)
FORCED = "CONNECTION_FORCED - vhost '{}' is deleted"


def fill(channel: PeerChannel, durable: bool = False) -> None:
    """Many queues, each with a binding, a message and a consumer."""
    number = channel.number
    for first in range(0, MANY, 500):
        piece = []
        for each in range(first, first + 500):
            name = f"q{each}"
            piece += [
                method_bytes(Queue.Declare(queue=name, durable=durable, nowait=True), number),
                method_bytes(
                    Queue.Bind(queue=name, exchange="amq.topic", routing_key=name, nowait=True), number
                ),
                channel.encode_publish(b"x", name, properties=PERSISTENT),
                method_bytes(Basic.Consume(queue=name, consumer_tag=name, nowait=True), number),
            ]
        channel.peer.send(b"".join(piece))
        channel.deliveries(500)
    channel.round_trip()


def test_deleting_a_large_vhost_delays_no_client_and_the_vhost_can_be_created_again(
    api: Api, vhost: str, connect: Connector, daemon: Daemon, bystander: Bystander
) -> None:
    client = connect(vhost=vhost)
    fill(client.channel())
    before = daemon.metric("amqpd_queues")
    api.delete("vhosts", vhost)
    assert before - daemon.metric("amqpd_queues") == MANY
    api.refused(404, "GET", "queues", vhost)
    assert all(each["vhost"] != vhost for each in api.get("queues"))
    assert all(each["vhost"] != vhost for each in api.get("connections"))
    api.put("vhosts", vhost)
    again = connect(vhost=vhost).channel()
    assert api.get("queues", vhost) == []
    again.declare("q1", durable=True)
    again.publish(b"y", "q1")
    assert again.take("q1").body == b"y"
    bystander.expect_progress()
    assert FORCED.format(vhost) in client.expect_close(320)
    assert [each["name"] for each in api.get("queues", vhost)] == ["q1"]
    again.refused(Exchange.Declare(exchange="q0", passive=True), 404)


@both_endings
def test_a_virtual_host_stays_deleted_after_a_restart_in_the_middle(
    start_daemon: DaemonStarter, connect: Connector, end: Ending
) -> None:
    daemon = start_daemon()
    api = Api(daemon.admin)
    api.put("vhosts", "v")
    client = connect(daemon.address, vhost="v")
    fill(client.channel(), durable=True)
    client.drop()
    other = connect(daemon.address)
    api.delete("vhosts", "v")
    api.put("vhosts", "v")
    api.put("queues", "v", "q7", body={"durable": True})
    api.close()
    end(daemon, other)

    daemon = start_daemon()
    api = Api(daemon.admin)
    assert [each["name"] for each in api.get("queues", "v")] == ["q7"]
    assert api.get("queues", "v", "q7")["messages"] == 0
    api.close()
