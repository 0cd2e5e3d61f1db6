"""A broker that has objects of all kinds, and clients of both protocols that use them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pika

from tests.support.admin.api import Api
from tests.support.amqp10.peer import Peer10
from tests.support.amqp10.peer_session import PeerSession10
from tests.support.daemon.daemon import Daemon

QUEUES = ("classic", "quorum", "stream")


def _declare_objects(api: Api) -> None:
    """Declare an object of every kind in the virtual host `/`."""
    for kind in QUEUES:
        api.put("queues", "/", kind, durable=True, arguments={"x-queue-type": kind})
    api.put("queues", "/", "watched")
    api.put("queues", "/", "there")
    api.put("exchanges", "/", "events", type="topic", durable=True)
    api.put("exchanges", "/", "fed", type="fanout", durable=True)
    for body in ({"routing_key": "a.#"}, {"routing_key": "", "arguments": {"x-binding": "b", "n": 1}}):
        api.post("bindings", "/", "e", "events", "q", "classic", status=201, body=body)
    api.post("bindings", "/", "e", "amq.topic", "e", "events", status=201, body={"routing_key": "#"})
    limit = {"pattern": "^classic|^quorum", "definition": {"max-length": 1000}, "apply-to": "queues"}
    api.put("policies", "/", "limit", body=limit)
    api.put("operator-policies", "/", "bound", body={"pattern": "", "definition": {"max-length": 5000}})
    upstream = {"uri": "amqp://127.0.0.1:1"}
    api.put("parameters", "federation-upstream", "/", "up", body={"value": upstream})
    federate = {"pattern": "^fed$", "definition": {"federation-upstream": "up"}}
    api.put("policies", "/", "federate", body=federate)
    shovel = {"src-queue": "watched", "dest-queue": "there", "src-uri": "amqp://", "dest-uri": "amqp://"}
    api.put("parameters", "shovel", "/", "s", body={"value": shovel})
    api.put("queues", "/", "called")
    api.put("dispatchers", "/", "d", queue="called", command="/usr/bin/tee")
    api.put("global-parameters", "mine", value={"any": 1})
    api.put("users", "seller", password="secret", tags="management")
    api.put("users", "nobody", password="secret", tags="")
    api.put("permissions", "/", "seller", configure="", write="", read=".*")
    api.put("topic-permissions", "/", "seller", exchange="events", write="^a", read=".*")
    api.put("user-limits", "seller", "max-connections", status=204, value=9)
    api.put("vhost-limits", "/", "max-queues", status=204, value=500)


@contextmanager
def running_estate(folder: Path) -> Iterator[Daemon]:
    """Run a broker with an object of every kind, clients and messages."""
    quiet = ("--heartbeat", "0")  # else the idle clients were disconnected after a while
    daemon = Daemon(folder, ("--dispatch-allow", "/usr/bin/tee", *quiet))
    daemon.wait_until_ready().load_api()
    api = Api(daemon.admin)
    _declare_objects(api)
    api.close()
    peer = Peer10(daemon.address)
    peer.open()
    PeerSession10(peer).receives("/queues/quorum", credit=10)
    parameters = pika.ConnectionParameters(daemon.address.host, daemon.address.port)
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=7)
        channel.confirm_delivery()
        for _ in range(3):
            for queue in QUEUES:
                channel.basic_publish("", queue, b"x", pika.BasicProperties(timestamp=1_700_000_000))
        channel.queue_declare("own", exclusive=True)
        channel.basic_get("classic", auto_ack=True)
        timeout = {"x-priority": 2, "x-consumer-timeout": 60_000}
        channel.basic_consume("classic", lambda *_: None, arguments=timeout)
        channel.basic_consume("quorum", lambda *_: None)
        channel.basic_consume("stream", lambda *_: None, arguments={"x-stream-offset": "first"})
        connection.process_data_events()
        yield daemon
    peer.socket.close()
    daemon.stop()
