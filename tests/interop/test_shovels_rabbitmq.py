"""Shovels of the broker to and from the RabbitMQ that Debian has."""

from pathlib import Path

import pika
import pytest

from tests.support.admin.api import Api, amqp
from tests.support.daemon.daemon import Address, DaemonStarter
from tests.support.daemon.rabbitmq import running

BODIES = [b"%d" % number for number in range(2000)]


def publish(address: Address, queue: str) -> None:
    with amqp(address, "/") as channel:
        channel.queue_declare(queue, durable=True)
        for body in BODIES:
            properties = pika.BasicProperties(delivery_mode=2, headers={"n": len(body)})
            channel.basic_publish("", queue, body, properties)


def take(address: Address, queue: str) -> list[bytes]:
    found: list[bytes] = []
    with amqp(address, "/") as channel:
        channel.queue_declare(queue, durable=True)
        for _, properties, body in channel.consume(queue, auto_ack=True):
            assert properties.headers["n"] == len(body)
            found.append(body)
            if len(found) == len(BODIES):
                return found
    raise AssertionError("the consumer has ended")


@pytest.mark.nightly
@pytest.mark.parametrize("mode", ["on-confirm", "on-publish", "no-ack"])
def test_messages_go_to_rabbitmq_and_come_back(
    start_daemon: DaemonStarter, tmp_path: Path, mode: str
) -> None:
    folder = tmp_path / "rabbitmq"
    folder.mkdir()
    with running(folder) as (_, port):
        other = Address("127.0.0.1", port)
        daemon = start_daemon()
        api = Api(daemon.load_api().admin)
        publish(daemon.address, "out")
        there = {"src-uri": "amqp://", "src-queue": "out", "dest-uri": other.url(), "dest-queue": "between"}
        back = {"src-uri": other.url(), "src-queue": "between", "dest-uri": "amqp://", "dest-queue": "in"}
        api.put("parameters", "shovel", "/", "there", value=there | {"ack-mode": mode})
        api.put("parameters", "shovel", "/", "back", value=back | {"ack-mode": mode})
        assert sorted(take(daemon.address, "in"), key=int) == BODIES
        api.close()


@pytest.mark.nightly
def test_rabbitmq_is_refused_as_a_destination_of_exactly_once(
    start_daemon: DaemonStarter, tmp_path: Path
) -> None:
    folder = tmp_path / "rabbitmq"
    folder.mkdir()
    with running(folder) as (_, port):
        daemon = start_daemon()
        api = Api(daemon.load_api().admin)
        url = Address("127.0.0.1", port).url()
        value = {"src-uri": "amqp://", "src-queue": "out", "dest-uri": url, "dest-queue": "in"}
        api.put("parameters", "shovel", "/", "s", value=value | {"ack-mode": "exactly-once"})
        daemon.log.wait_for("shovel failed.*no capability 'message_origins'")
        api.close()
