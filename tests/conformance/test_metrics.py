"""Metrics of a real broker: what clients of both protocols do, under amqpd's names and RabbitMQ's."""

import time
from collections.abc import Callable, Mapping

import pytest
from pika.exceptions import NackError
from prometheus_client.parser import text_string_to_metric_families

from protocol.amqp10.composites import Rejected, Released
from protocol.amqp10.performatives import Flow
from tests.support.admin.api import Api, amqp, fetch
from tests.support.amqp10.contents import bare10
from tests.support.amqp10.peer_session import PeerSession10
from tests.support.daemon.daemon import Address, Daemon

pytestmark = pytest.mark.amqpd_only("RabbitMQ's plugin serves its metrics at a port of its own")

Labels = Mapping[str, str]
GLOBAL = "rabbitmq_global_messages"
WAITS = ("time_in_queue", "confirm", "acknowledge")


class Scrape:
    """The samples of a scrape, and how much they have grown in a later one."""

    def __init__(self, daemon: Daemon, path: str = "/metrics") -> None:
        self._url = f"{daemon.admin}{path}"
        self._before = self._samples()

    def _samples(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        text = fetch(self._url).text
        return {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def now(self, name: str, **labels: str) -> float:
        """The present value of a sample."""
        return self._samples()[name, frozenset(labels.items())]

    def growth(self) -> Callable[..., float]:
        """Read the samples again; return a function from a sample to its growth."""
        after = self._samples()

        def grown(name: str, **labels: str) -> float:
            key = name, frozenset(labels.items())
            return after[key] - self._before.get(key, 0)

        return grown


def test_a_client_of_amqp091(daemon: Daemon, vhost: str, address: Address) -> None:
    scrape = Scrape(daemon)
    with amqp(address, vhost) as channel:
        channel.queue_declare("q")
        for _ in range(5):
            channel.basic_publish("", "q", b"x" * 500)
        channel.basic_publish("", "nowhere", b"")
        with pytest.raises(Exception, match="1 unroutable"):
            channel.basic_publish("", "nowhere", b"", mandatory=True)
        got, _, _ = channel.basic_get("q")
        channel.basic_nack(got.delivery_tag)
        again, _, _ = channel.basic_get("q")
        assert again.redelivered
        channel.basic_ack(again.delivery_tag)
        channel.basic_get("q", auto_ack=True)
        taken = channel.consume("q", inactivity_timeout=30)
        for _ in range(3):
            method, _, _ = next(taken)
            channel.basic_ack(method.delivery_tag)
        channel.cancel()
        assert channel.basic_get("q") == (None, None, None)
        grown = scrape.growth()
        live = {name: scrape.now(f"rabbitmq_global_{name}", protocol="amqp091") for name in ("publishers",)}
        assert live["publishers"] >= 1
    for after in (grown, scrape.growth()):  # the counts of a channel that is closed stay
        received = {"protocol": "amqp091"}
        assert after(f"{GLOBAL}_received_total", **received) == 7
        assert after(f"{GLOBAL}_received_confirm_total", **received) == 7
        assert after(f"{GLOBAL}_confirmed_total", **received) == 7
        assert after(f"{GLOBAL}_unroutable_dropped_total", **received) == 1
        assert after(f"{GLOBAL}_unroutable_returned_total", **received) == 1
        sent = {"protocol": "amqp091", "queue_type": "rabbit_classic_queue"}
        assert after(f"{GLOBAL}_delivered_total", **sent) == 6
        assert after(f"{GLOBAL}_delivered_get_manual_ack_total", **sent) == 2
        assert after(f"{GLOBAL}_delivered_get_auto_ack_total", **sent) == 1
        assert after(f"{GLOBAL}_delivered_consume_manual_ack_total", **sent) == 3
        assert after(f"{GLOBAL}_delivered_consume_auto_ack_total", **sent) == 0
        assert after(f"{GLOBAL}_redelivered_total", **sent) == 1
        assert after(f"{GLOBAL}_acknowledged_total", **sent) == 4
        assert after(f"{GLOBAL}_get_empty_total", **sent) == 1
        assert after(f"{GLOBAL}_routed_total") == 5
        assert after("amqpd_messages_unroutable_total") == 1, "a returned message is not dropped"
        assert after("amqpd_messages_returned_total") == 1
        assert after("rabbitmq_message_size_bytes_bucket", le="100.0") == 2
        assert after("rabbitmq_message_size_bytes_bucket", le="1000.0") == 7
        assert after("rabbitmq_message_size_bytes_sum") == 2500


def test_a_client_of_amqp10(daemon: Daemon, session: PeerSession10, node: str) -> None:
    scrape = Scrape(daemon)
    session.sends(f"/queues/{node}")
    session.publish(0, 3)
    session.transfer(0, None, 3, settled=True)
    session.receives(f"/queues/{node}", handle=1, credit=3)
    for _ in range(3):
        delivery = session.delivery(1)
        session.settle(delivery.id)
    session.receives(f"/queues/{node}", handle=2, credit=1, snd_settle_mode=1)
    session.delivery(2)
    session.sends("/exchanges/amq.direct/nowhere", handle=3)
    session.transfer(3, bare10(), 4)
    assert session.outcome(4) == Released()
    grown = scrape.growth()
    received = {"protocol": "amqp10"}
    assert grown(f"{GLOBAL}_received_total", **received) == 5
    assert grown(f"{GLOBAL}_received_confirm_total", **received) == 4
    assert grown(f"{GLOBAL}_confirmed_total", **received) == 3
    assert grown(f"{GLOBAL}_unroutable_returned_total", **received) == 1
    assert grown(f"{GLOBAL}_unroutable_dropped_total", **received) == 0
    sent = {"protocol": "amqp10", "queue_type": "rabbit_classic_queue"}
    assert grown(f"{GLOBAL}_delivered_total", **sent) == 4
    assert grown(f"{GLOBAL}_delivered_consume_manual_ack_total", **sent) == 3
    assert grown(f"{GLOBAL}_delivered_consume_auto_ack_total", **sent) == 1
    assert grown(f"{GLOBAL}_acknowledged_total", **sent) == 3
    assert grown(f"{GLOBAL}_received_total", protocol="amqp091") == 0
    assert scrape.now("rabbitmq_global_publishers", **received) == 2
    assert scrape.now("rabbitmq_global_consumers", **received) == 2
    session.end()
    grown = scrape.growth()
    assert grown(f"{GLOBAL}_received_total", **received) == 5
    assert scrape.now("rabbitmq_global_consumers", **received) == 0


def test_the_first_message_is_timed(daemon: Daemon, vhost: str, address: Address) -> None:
    scrape = Scrape(daemon)
    with amqp(address, vhost) as channel:
        channel.queue_declare("q")
        channel.basic_publish("", "q", b"")
        time.sleep(0.2)
        method, _, _ = channel.basic_get("q")
        time.sleep(0.2)
        channel.basic_ack(method.delivery_tag, multiple=True)
        assert channel.queue_declare("q", passive=True).method.message_count == 0
        grown = scrape.growth()
    for each in WAITS:
        name = f"amqpd_message_{each}_seconds"
        assert grown(f"{name}_count") == 1, name
        quick = grown(f"{name}_bucket", le="0.1")
        assert quick == (1 if each == "confirm" else 0), name
        assert (grown(f"{name}_sum") >= 0.2) == (each != "confirm"), name


def test_a_message_that_leaves_otherwise_is_not_timed(daemon: Daemon, vhost: str, address: Address) -> None:
    scrape = Scrape(daemon)
    with amqp(address, vhost) as channel:
        channel.queue_declare("q")
        channel.basic_publish("", "q", b"")
        channel.queue_purge("q")
        for _ in range(64):
            channel.basic_publish("", "q", b"")
        got = [channel.basic_get("q")[0].delivery_tag for _ in range(64)]
        channel.basic_nack(got[0], requeue=False)
        assert channel.queue_declare("q", passive=True).method.message_count == 0
        grown = scrape.growth()
    assert grown("amqpd_message_time_in_queue_seconds_count") == 1, "the second timed message is delivered"
    assert grown("amqpd_message_confirm_seconds_count") == 2
    assert grown("amqpd_message_acknowledge_seconds_count") == 0


def test_a_refused_message_is_not_confirmed(daemon: Daemon, vhost: str, address: Address) -> None:
    scrape = Scrape(daemon)
    with amqp(address, vhost) as channel:
        channel.queue_declare("full", arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
        channel.queue_declare("q")
        with pytest.raises(NackError):
            channel.basic_publish("", "full", b"")
        channel.basic_publish("", "q", b"")
        grown = scrape.growth()
    received = {"protocol": "amqp091"}
    assert grown(f"{GLOBAL}_received_confirm_total", **received) == 2
    assert grown(f"{GLOBAL}_confirmed_total", **received) == 1
    assert grown("amqpd_message_confirm_seconds_count") == 0, "the message that was timed was refused"


def test_a_settled_message_to_nowhere_is_dropped(daemon: Daemon, session: PeerSession10) -> None:
    scrape = Scrape(daemon)
    session.sends(None)
    session.transfer(0, bare10(to="/exchanges/amq.direct/nowhere"), 0)
    assert isinstance(session.outcome(0), Rejected)
    session.sends("/exchanges/amq.direct/nowhere", handle=1)
    session.transfer(1, bare10(), 1, settled=True)
    session.flow(echo=True)
    session.expect(Flow)
    grown = scrape.growth()
    received = {"protocol": "amqp10"}
    assert grown(f"{GLOBAL}_received_total", **received) == 2
    assert grown(f"{GLOBAL}_received_confirm_total", **received) == 1
    assert grown(f"{GLOBAL}_unroutable_returned_total", **received) == 1
    assert grown(f"{GLOBAL}_unroutable_dropped_total", **received) == 1
    assert grown("amqpd_messages_returned_total") == 1
    assert grown("amqpd_messages_unroutable_total") == 1
    assert grown("amqpd_messages_refused_total") == 0
    assert grown("amqpd_message_confirm_seconds_count") == 0


def test_consumers_by_state_count_each_consumer_once(daemon: Daemon, vhost: str, address: Address) -> None:
    with amqp(address, vhost) as channel:
        before = Scrape(daemon)
        for member in ("one", "two"):
            channel.queue_declare(member, durable=True)
        parts = {
            "x-queue-kind": "partitioned",
            "x-partition-by": "key",
            "x-partition-members": ["one", "two"],
        }
        channel.queue_declare("parts", durable=True, arguments=parts)
        channel.queue_declare("q")
        channel.basic_consume("parts", lambda *_: None)
        channel.basic_qos(prefetch_count=1)
        channel.basic_consume("q", lambda *_: None)
        channel.basic_consume("q", lambda *_: None, arguments={"x-browse": True}, auto_ack=True)
        channel.basic_publish("", "q", b"")
        channel.connection.process_data_events(0.2)
        grown = before.growth()
        states = {
            state: grown("amqpd_consumers_by_state", state=state)
            for state in ("interested", "notified", "not_interested", "browser")
        }
    assert states == {"interested": 1, "notified": 0, "not_interested": 1, "browser": 1}
    assert grown("amqpd_consumers") == 3


def test_each_object_and_chosen_families(daemon: Daemon, api: Api, vhost: str, address: Address) -> None:
    with amqp(address, vhost) as channel:
        channel.queue_declare("q")
        channel.basic_publish("", "q", b"x" * 10)
        channel.basic_consume("q", lambda *_: None, auto_ack=False)
        (connection,) = api.get("vhosts", vhost, "connections")
        labels = {"user": "guest", "vhost": vhost}
        of_queue = {"queue": "q", "vhost": vhost}
        each = Scrape(daemon, "/metrics/per-object")
        for prefix in ("amqpd", "rabbitmq"):
            assert each.now(f"{prefix}_queue_consumers", **of_queue) == 1
            assert each.now(f"{prefix}_queue_messages", **of_queue) == 1
            name = f"{connection['name']} (1)"
            assert each.now(f"{prefix}_channel_messages_published_total", channel=name, **labels) == 1
            at = {"connection": connection["name"], "protocol": "amqp091", **labels}
            assert each.now(f"{prefix}_connection_channels", **at) == 1
        families = "family=queue_consumer_count&family=vhost_status"
        chosen = Scrape(daemon, f"/metrics/detailed?{families}&vhost={vhost}")
        assert chosen.now("rabbitmq_detailed_queue_consumers", **of_queue) == 1
        assert chosen.now("rabbitmq_cluster_vhost_status", vhost=vhost) == 1
        text = fetch(f"{daemon.admin}/metrics/detailed?{families}&vhost={vhost}").text
        assert text.count("queue_consumers{") == 2
        assert "queue_messages" not in text
