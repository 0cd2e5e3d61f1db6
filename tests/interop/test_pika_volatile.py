"""Volatile queues as a pika user sees them."""

import pika
import pytest

from tests.interop.pika_connection import connected
from tests.support.admin.api import Api
from tests.support.daemon.daemon import Daemon, DaemonStarter


def shown_losses(daemon: Daemon) -> tuple[object, float]:
    """Return the losses that the API and the metrics show."""
    api = Api(daemon.admin)
    shown = api.get("queues", "/", "q")["lost_at_restart"]
    api.close()
    return shown, daemon.metric('amqpd_queue_messages_lost_at_restart{queue="q",vhost="/"}')


@pytest.mark.parametrize("clean", [True, False])
def test_a_volatile_queue_survives_a_restart_and_shows_how_many_messages_were_lost(
    start_daemon: DaemonStarter, clean: bool
) -> None:
    daemon = start_daemon()
    connection = connected(daemon.address)
    channel = connection.channel()
    channel.queue_declare("q", durable=True, arguments={"x-volatile": True})
    channel.confirm_delivery()
    for _ in range(5):
        channel.basic_publish("", "q", b"", pika.BasicProperties(delivery_mode=2), mandatory=True)
    assert shown_losses(daemon)[0] == {"messages": 0, "estimated": False}
    connection.close()
    if clean:
        daemon.stop()
    else:
        daemon.kill()
    daemon = start_daemon()
    connection = connected(daemon.address)
    declared = connection.channel().queue_declare("q", durable=True, arguments={"x-volatile": True})
    assert declared.method.message_count == 0
    shown, metric = shown_losses(daemon)
    connection.close()
    if clean:
        assert shown == {"messages": 5, "estimated": False}
        assert metric == 5
    else:
        assert shown == {"messages": 0, "estimated": True}, "it was not there for ten seconds"
