"""Shovels of the broker to and from the RabbitMQ that Debian has."""

from pathlib import Path

import pika
import pytest

from tests.support.admin.api import Api, amqp
from tests.support.daemon.daemon import PATIENCE_S, Address, DaemonStarter
from tests.support.daemon.rabbitmq import running

BODIES = [b"%d" % number for number in range(2000)]


def publish(address: Address, queue: str) -> None:
    with amqp(address, "/") as channel:
        channel.queue_declare(queue, durable=True)
        for body in BODIES:
            properties = pika.BasicProperties(delivery_mode=2, headers={"n": len(body)})
            channel.basic_publish("", queue, body, properties)


def take(address: Address, queue: str, keeps_headers: bool = True) -> list[bytes]:
    found: list[bytes] = []
    with amqp(address, "/") as channel:
        channel.queue_declare(queue, durable=True)
        for _, properties, body in channel.consume(queue, auto_ack=True):
            if keeps_headers:
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


PAIRS = [("amqp091", "amqp10"), ("amqp10", "amqp091"), ("amqp10", "amqp10")]


@pytest.mark.nightly
@pytest.mark.parametrize("mode", ["on-confirm", "on-publish", "no-ack"])
def test_messages_go_to_rabbitmq_over_amqp10_and_come_back(
    start_daemon: DaemonStarter, tmp_path: Path, mode: str
) -> None:
    folder = tmp_path / "rabbitmq"
    folder.mkdir()
    with running(folder, "rabbitmq_amqp1_0") as (_, port):
        other = Address("127.0.0.1", port)
        daemon = start_daemon()
        api = Api(daemon.load_api().admin)
        for number, (source, destination) in enumerate(PAIRS):
            between = f"between{number}"
            for address in (other, daemon.address):
                with amqp(address, "/") as channel:
                    channel.queue_declare(between, durable=True)
                    channel.queue_declare(f"in{number}", durable=True)
            publish(daemon.address, f"out{number}")
            there = end("src", source, "amqp://", f"out{number}", f"/queues/out{number}")
            there |= end("dest", destination, other.url(), between, f"/amq/queue/{between}")
            back = end("src", source, other.url(), between, f"/amq/queue/{between}")
            back |= end("dest", destination, "amqp://", f"in{number}", f"/queues/in{number}")
            api.put("parameters", "shovel", "/", f"there{number}", value=there | {"ack-mode": mode})
            if destination == "amqp091":
                assert take(other, between) == BODIES
                publish(daemon.address, f"out{number}")
            api.put("parameters", "shovel", "/", f"back{number}", value=back | {"ack-mode": mode})
            # RabbitMQ 3 converts no headers from one protocol to the other
            keeps_headers = source == destination
            assert sorted(take(daemon.address, f"in{number}", keeps_headers), key=int) == BODIES
        api.close()


def end(side: str, protocol: str, uri: str, queue: str, address: str) -> dict[str, object]:
    """The fields of one end of a shovel, a queue or a node of AMQP 1.0."""
    place = {f"{side}-address": address} if protocol == "amqp10" else {f"{side}-queue": queue}
    return {f"{side}-protocol": protocol, f"{side}-uri": uri, **place}


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


@pytest.mark.nightly
def test_rabbitmq_selects_no_messages_over_amqp10(start_daemon: DaemonStarter, tmp_path: Path) -> None:
    folder = tmp_path / "rabbitmq"
    folder.mkdir()
    with running(folder, "rabbitmq_amqp1_0") as (_, port):
        other = Address("127.0.0.1", port)
        publish(other, "between")
        daemon = start_daemon()
        api = Api(daemon.load_api().admin)
        value = end("src", "amqp10", other.url(), "between", "/amq/queue/between")
        value |= {"dest-uri": "amqp://", "dest-queue": "in", "src-selector": "n > 3"}
        api.put("parameters", "shovel", "/", "s", value=value)
        daemon.log.wait_for("shovel failed.*the peer ignores the selector: amqp:not-implemented")
        assert take(other, "between") == BODIES
        api.close()


@pytest.mark.nightly
def test_a_receipt_says_that_rabbitmq_has_the_message_and_rabbitmq_returns_none(
    start_daemon: DaemonStarter, tmp_path: Path
) -> None:
    folder = tmp_path / "rabbitmq"
    folder.mkdir()
    with running(folder) as (_, port):
        daemon = start_daemon()
        api = Api(daemon.load_api().admin)
        url = Address("127.0.0.1", port).url()
        value = {"src-uri": "amqp://", "src-queue": "out", "dest-uri": url, "dest-queue": "in"}
        api.put("parameters", "shovel", "/", "s", value=value | {"dest-receipt-queue": "back"})
        daemon.log.wait_for("shovel failed.*no capability 'receipt_paths'")
        with amqp(daemon.address, "/") as channel:
            channel.queue_declare("receipts", durable=True)
            channel.queue_declare("out", durable=True)
            api.put("parameters", "shovel", "/", "plain", value=value)
            headers = {"x-receipt-to": "receipts", "x-receipt-on": "consumed"}
            properties = pika.BasicProperties(delivery_mode=2, message_id="m", headers=headers)
            channel.basic_publish("", "out", b"letter", properties, mandatory=True)
            for _, receipt, _ in channel.consume("receipts", auto_ack=True, inactivity_timeout=PATIENCE_S):
                assert receipt is not None
                assert (receipt.correlation_id, receipt.headers["queue"]) == ("m", "out")
                break
        api.close()
