"""Shovels between two broker processes, and within one, with a real client at both sides."""

import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.support.admin.api import Api, amqp
from tests.support.daemon.certificates import Certificates, secure_address
from tests.support.daemon.daemon import Daemon, DaemonStarter
from tests.support.daemon.rabbitmq import lasting_port

PERSISTENT = pika.BasicProperties(delivery_mode=2)
SECRET = "s3cret-pass"


class Site:
    """A broker process with its API."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.api = Api(daemon.load_api().admin)

    @contextmanager
    def channel(self) -> Iterator[BlockingChannel]:
        with amqp(self.daemon.address, "/") as channel:
            yield channel

    def publish(self, queue: str, bodies: list[bytes], properties: pika.BasicProperties = PERSISTENT) -> None:
        """Publish to a durable queue, which is made if need be."""
        with self.channel() as channel:
            channel.queue_declare(queue, durable=True)
            for body in bodies:
                channel.basic_publish("", queue, body, properties)

    def take(self, queue: str, count: int) -> list[tuple[Any, Any, bytes]]:
        """Consume so many messages, however long they take to come."""
        found = []
        with self.channel() as channel:
            channel.queue_declare(queue, durable=True)
            for delivery in channel.consume(queue, auto_ack=True):
                found.append(delivery)
                if len(found) == count:
                    return found
        raise AssertionError("the consumer has ended")

    def bodies(self, queue: str, count: int) -> list[bytes]:
        return [body for _, _, body in self.take(queue, count)]

    def wait_for_all(self, queue: str, wanted: list[bytes]) -> None:
        """Consume until all these bodies have come. A kill may repeat them, and others before."""
        missing = set(wanted)
        with self.channel() as channel:
            channel.queue_declare(queue, durable=True)
            for _, _, body in channel.consume(queue, auto_ack=True):
                missing.discard(body)
                if not missing:
                    return
        raise AssertionError("the consumer has ended")

    def shovel(self, name: str, **value: object) -> None:
        """Define a shovel; underscores in names of fields are hyphens."""
        fields = {field.replace("_", "-"): each for field, each in value.items()}
        self.api.put("parameters", "shovel", "/", name, value=fields)

    def status(self, name: str) -> Any:
        return self.api.get("shovels", "vhost", "/", name)["status"]


@pytest.fixture
def sites(start_daemon: DaemonStarter, tmp_path: Path) -> Iterator[tuple[Site, Site]]:
    """Two brokers, each with a data folder of its own."""
    pair = tuple(
        Site(start_daemon(data_dir=tmp_path / f"data-{number}", port=lasting_port())) for number in range(2)
    )
    yield pair[0], pair[1]
    for site in pair:
        site.api.close()


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def test_a_local_queue_is_forwarded_to_another_broker_in_order(sites: tuple[Site, Site]) -> None:
    here, there = sites
    here.publish("out", numbered(300))
    here.shovel(
        "push",
        src_uri="amqp://",
        src_queue="out",
        dest_uri=there.daemon.address.url(),
        dest_queue="in",
        src_prefetch_count=50,
    )
    assert there.bodies("in", 300) == numbered(300)
    here.publish("out", [b"later"])
    assert there.bodies("in", 1) == [b"later"]
    status = here.status("push")
    assert status["state"] == "running"
    assert status["forwarded"] == 301
    assert status["src_uri"] == "amqp://"
    assert status["dest_uri"] == f"amqp://{there.daemon.address.host}:{there.daemon.address.port}/%2F"
    [listed] = here.api.get("shovels")
    assert (listed["name"], listed["vhost"], listed["type"]) == ("push", "/", "dynamic")


def test_a_remote_queue_is_pulled_with_its_properties(sites: tuple[Site, Site]) -> None:
    here, there = sites
    properties = pika.BasicProperties(
        delivery_mode=2, message_id="m1", headers={"n": 1, "t": {"x": [1, "a"]}}, priority=3, user_id="guest"
    )
    there.publish("out", [b"x" * 200_000], properties)
    here.shovel(
        "pull", src_uri=[there.daemon.address.url()], src_queue="out", dest_uri="amqp://", dest_queue="in"
    )
    [(method, found, body)] = here.take("in", 1)
    assert body == b"x" * 200_000
    assert (method.exchange, method.routing_key) == ("", "in")
    assert (found.message_id, found.headers, found.priority) == ("m1", {"n": 1, "t": {"x": [1, "a"]}}, 3)
    assert found.user_id == "guest"


def test_large_bodies_pass_in_both_directions(sites: tuple[Site, Site]) -> None:
    here, there = sites
    large = bytes(range(256)) * 20_000
    here.publish("a", [large, b"small", large[:3_000_000]])
    here.shovel("push", src_uri="amqp://", src_queue="a", dest_uri=there.daemon.address.url(), dest_queue="b")
    here.shovel("pull", src_uri=there.daemon.address.url(), src_queue="b", dest_uri="amqp://", dest_queue="c")
    assert here.bodies("c", 3) == [large, b"small", large[:3_000_000]]


def test_exchanges_keys_headers_and_properties(sites: tuple[Site, Site]) -> None:
    here, there = sites
    with there.channel() as channel:
        channel.exchange_declare("topics", "topic", durable=True)
        channel.queue_declare("in", durable=True)
        channel.queue_bind("in", "topics", "orders.#")
    url = there.daemon.address.url()
    here.shovel(
        "topics",
        src_uri="amqp://",
        src_exchange="amq.topic",
        src_exchange_key="orders.*",
        dest_uri=url,
        dest_exchange="topics",
        dest_add_forward_headers=True,
        dest_add_timestamp_header=True,
        dest_publish_properties={"delivery_mode": 2, "app_id": "shovel"},
    )
    wait_until_running(here, "topics")
    with here.channel() as channel:
        channel.basic_publish("amq.topic", "other.new", b"not wanted")
        channel.basic_publish("amq.topic", "orders.new", b"wanted", pika.BasicProperties(headers={"k": "v"}))
    [(method, properties, body)] = there.take("in", 1)
    assert (method.exchange, method.routing_key, body) == ("topics", "orders.new", b"wanted")
    assert (properties.app_id, properties.delivery_mode) == ("shovel", 2)
    headers = properties.headers
    assert headers["k"] == "v"
    assert isinstance(headers["x-shovelled-timestamp"], int)
    [entry] = headers["x-shovelled"]
    assert entry["shovel-name"] == "topics"
    assert entry["src-exchange"] == "amq.topic"
    assert "guest" not in entry["dest-uri"]


def wait_until_running(site: Site, name: str) -> None:
    """Wait for the line of the log that says so."""
    site.daemon.log.wait_for(rf"shovel running.*shovel={name}\b")


PAIRS = [("amqp091", "amqp091"), ("amqp091", "amqp10"), ("amqp10", "amqp091"), ("amqp10", "amqp10")]


def ends(source: str, source_url: str, destination: str, destination_url: str) -> dict[str, str]:
    """The fields of a shovel from the queue `out` to the queue `in`, each with a protocol and a URI."""
    first = {"src_protocol": source, "src_uri": source_url}
    first |= {"src_address": "/queues/out"} if source == "amqp10" else {"src_queue": "out"}
    second = {"dest_protocol": destination, "dest_uri": destination_url}
    second |= {"dest_address": "/queues/in"} if destination == "amqp10" else {"dest_queue": "in"}
    return first | second


@pytest.mark.parametrize("mode", ["on-confirm", "on-publish", "no-ack"])
@pytest.mark.parametrize(("source", "destination"), PAIRS)
def test_all_pairs_of_protocols_push_and_pull(
    sites: tuple[Site, Site], source: str, destination: str, mode: str
) -> None:
    here, there = sites
    properties = pika.BasicProperties(
        delivery_mode=2, message_id="m1", headers={"n": 1, "text": "a"}, priority=3, content_type="text/plain"
    )
    large = bytes(range(256)) * 12_000  # large enough for pieces
    for site in sites:
        site.publish("in", [])
    here.publish("out", [*numbered(300), large], properties)
    url = there.daemon.address.url()
    here.shovel("push", **ends(source, "amqp://", destination, url), ack_mode=mode)
    found = there.take("in", 301)
    assert [body for _, _, body in found] == [*numbered(300), large]
    for _, each, _ in (found[0], found[-1]):
        assert (each.message_id, each.headers["n"], each.headers["text"]) == ("m1", 1, "a")
        assert (each.priority, each.content_type, each.delivery_mode) == (3, "text/plain", 2)
    there.publish("out", numbered(300), properties)
    here.shovel("pull", **ends(source, url, destination, "amqp://"), ack_mode=mode)
    assert here.bodies("in", 300) == numbered(300)
    status = here.status("pull")
    assert (status["src_protocol"], status["dest_protocol"]) == (source, destination)
    assert status.get("src_address") == ("/queues/out" if source == "amqp10" else None)
    assert status.get("dest_address") == ("/queues/in" if destination == "amqp10" else None)


def test_ends_of_amqp10_come_back_when_the_other_broker_does(
    sites: tuple[Site, Site], start_daemon: DaemonStarter, tmp_path: Path
) -> None:
    here, there = sites
    port = there.daemon.address.port
    fields = ends("amqp10", "amqp://", "amqp10", there.daemon.address.url())
    there.publish("in", [])
    here.publish("out", numbered(10))
    here.shovel("push", **fields, reconnect_delay=1)
    assert there.bodies("in", 10) == numbered(10)
    there.daemon.kill()
    later = [b"later %d" % number for number in range(20)]
    here.publish("out", later)
    here.daemon.log.wait_for("shovel failed.*destination")
    again = Site(start_daemon(data_dir=tmp_path / "data-1", port=port))
    again.wait_for_all("in", later)
    again.api.close()


def test_an_end_of_amqp10_uses_tls_and_logs_in(
    start_daemon: DaemonStarter, certificates: Certificates, tmp_path: Path
) -> None:
    here = Site(start_daemon(data_dir=tmp_path / "data-0"))
    there = Site(start_daemon(*certificates.options(), data_dir=tmp_path / "data-1"))
    there.publish("in", [])
    here.publish("out", numbered(20))
    place = f"localhost:{secure_address(there.daemon).port}"
    query = f"cacertfile={certificates.folder / 'ca.pem'}&hostname=vhost:%2F&sasl=plain"
    here.shovel("push", **ends("amqp10", "amqp://", "amqp10", f"amqps://guest:guest@{place}?{query}"))
    assert there.bodies("in", 20) == numbered(20)
    value = ends("amqp10", "amqp://", "amqp10", f"amqps://guest:wrong@{place}?{query}")
    here.shovel("wrong", **value)
    here.daemon.log.wait_for("shovel failed.*the log-in has failed")
    for site in (here, there):
        site.api.close()


def test_fields_of_amqp10_are_checked_over_http(sites: tuple[Site, Site]) -> None:
    here, _ = sites
    value = {"src-protocol": "amqp10", "src-uri": "amqp://", "dest-uri": "amqp://", "dest-queue": "in"}
    refusal = here.api.refused(400, "PUT", "parameters", "shovel", "/", "s", body={"value": value})
    assert refusal["reason"] == "'src-address' is missing"


@pytest.mark.parametrize("mode", ["on-publish", "no-ack"])
def test_other_modes_of_acknowledgement(sites: tuple[Site, Site], mode: str) -> None:
    here, there = sites
    here.publish("out", numbered(100))
    url = there.daemon.address.url()
    here.shovel("m", src_uri="amqp://", src_queue="out", dest_uri=url, dest_queue="in", ack_mode=mode)
    assert there.bodies("in", 100) == numbered(100)


def test_a_shovel_deletes_itself_after_the_length_of_the_queue(sites: tuple[Site, Site]) -> None:
    here, _ = sites
    here.publish("out", numbered(120))
    here.shovel(
        "once",
        src_uri="amqp://",
        src_queue="out",
        dest_uri="amqp://",
        dest_queue="in",
        src_delete_after="queue-length",
        src_prefetch_count=7,
    )
    here.daemon.log.wait_for("shovel has finished.*forwarded=120")
    assert here.api.get("parameters", "shovel") == []
    assert here.api.get("shovels") == []
    assert here.bodies("in", 120) == numbered(120)


def test_a_shovel_takes_no_more_than_the_wanted_number(sites: tuple[Site, Site]) -> None:
    here, there = sites
    there.publish("out", numbered(30))
    here.shovel(
        "some",
        src_uri=there.daemon.address.url(),
        src_queue="out",
        dest_uri="amqp://",
        dest_queue="in",
        src_delete_after=12,
    )
    here.daemon.log.wait_for("shovel has finished.*forwarded=12")
    assert here.bodies("in", 12) == numbered(12)
    assert there.bodies("out", 18) == numbered(30)[12:]


def test_a_shovel_comes_back_when_the_other_broker_does(
    sites: tuple[Site, Site], start_daemon: DaemonStarter, tmp_path: Path
) -> None:
    here, there = sites
    port = there.daemon.address.port
    url = there.daemon.address.url()
    here.shovel("push", src_uri="amqp://", src_queue="out", dest_uri=url, dest_queue="in", reconnect_delay=1)
    here.publish("out", numbered(10))
    assert there.bodies("in", 10) == numbered(10)
    there.daemon.kill()
    later = [b"later %d" % number for number in range(20)]
    here.publish("out", later)
    here.daemon.log.wait_for("shovel failed.*destination")
    status = here.status("push")
    assert "destination 127.0.0.1" in status["reason"]
    again = Site(start_daemon(data_dir=tmp_path / "data-1", port=port))
    again.wait_for_all("in", later)
    again.api.close()


def test_shovels_survive_a_restart(
    start_daemon: DaemonStarter, sites: tuple[Site, Site], tmp_path: Path
) -> None:
    here, there = sites
    here.shovel(
        "push", src_uri="amqp://", src_queue="out", dest_uri=there.daemon.address.url(), dest_queue="in"
    )
    here.daemon.stop()
    again = Site(start_daemon(data_dir=tmp_path / "data-0"))
    again.publish("out", [b"after"])
    assert there.bodies("in", 1) == [b"after"]
    again.api.close()


def test_a_full_queue_refuses_and_gets_the_messages_later(sites: tuple[Site, Site]) -> None:
    here, there = sites
    arguments = {"x-max-length": 5, "x-overflow": "reject-publish"}
    with there.channel() as channel:
        channel.queue_declare("in", durable=True, arguments=arguments)
    here.publish("out", numbered(12))
    here.shovel(
        "push", src_uri="amqp://", src_queue="out", dest_uri=there.daemon.address.url(), dest_queue="in"
    )
    found: list[bytes] = []
    with there.channel() as channel:
        while len(found) < 12:
            method, _, body = channel.basic_get("in", auto_ack=True)
            if method is not None:
                found.append(body)
    assert sorted(found, key=int) == numbered(12)
    assert here.status("push")["refused"] > 0


def test_no_log_line_and_no_status_has_a_password(sites: tuple[Site, Site]) -> None:
    here, there = sites
    there.api.put("users", "mover", password=SECRET, tags="")
    there.api.put("permissions", "/", "mover", configure=".*", write=".*", read=".*")
    url = there.daemon.address.url("mover", SECRET)
    here.shovel("push", src_uri="amqp://", src_queue="out", dest_uri=url, dest_queue="in")
    wait_until_running(here, "push")
    there.api.put("users", "mover", status=204, password="another", tags="")
    here.api.ask("DELETE", "shovels", "vhost", "/", "push", "restart")
    here.daemon.log.wait_for("shovel failed.*ACCESS_REFUSED")
    shown = here.api.get("shovels", "vhost", "/", "push")
    assert SECRET not in str(shown)
    assert SECRET not in here.daemon.log.text()
    assert here.api.get("parameters", "shovel", "/", "push")["value"]["dest-uri"] == url


def test_a_restart_and_a_deletion_over_http(sites: tuple[Site, Site]) -> None:
    here, _ = sites
    here.shovel("s", src_uri="amqp://", src_queue="out", dest_uri="amqp://", dest_queue="in")
    wait_until_running(here, "s")
    here.api.delete("shovels", "vhost", "/", "s", "restart")
    here.daemon.log.wait_for("shovel restarted")
    here.api.delete("shovels", "vhost", "/", "s")
    assert here.api.get("shovels", "/") == []
    assert here.api.refused(404, "DELETE", "shovels", "vhost", "/", "s")["reason"] == (
        "no shovel 's' in vhost '/'"
    )


def test_a_shovel_that_counts_cannot_be_paused(sites: tuple[Site, Site]) -> None:
    here, _ = sites
    here.shovel(
        "s", src_uri="amqp://", src_queue="out", dest_uri="amqp://", dest_queue="in", src_delete_after=5
    )
    for action in ("pause", "resume"):
        refusal = here.api.refused(409, "POST", "shovels", "vhost", "/", "s", action)
        assert refusal["reason"].startswith(
            "shovel 's' in vhost '/' counts its messages ('src-delete-after')"
        )


def test_a_shovel_ends_with_its_virtual_host(sites: tuple[Site, Site]) -> None:
    here, _ = sites
    here.api.put("vhosts", "v")
    here.publish("in", [])
    value = {"src-uri": "amqp://", "src-queue": "out", "dest-uri": "amqp:///%2F", "dest-queue": "in"}
    here.api.put("parameters", "shovel", "v", "s", value=value)
    wait_until_running(here, "s")
    here.api.delete("vhosts", "v")
    assert here.api.get("shovels") == []
    here.api.put("vhosts", "v")
    assert here.api.get("parameters", "shovel", "v") == []


def test_a_receipt_of_consumption_says_that_the_destination_has_the_message(sites: tuple[Site, Site]) -> None:
    here, there = sites
    with here.channel() as channel:
        channel.queue_declare("receipts", durable=True)
    headers = {"x-receipt-to": "receipts", "x-receipt-on": "consumed"}
    here.publish("out", [b"contract"], pika.BasicProperties(delivery_mode=2, message_id="c", headers=headers))
    here.shovel(
        "push", src_uri="amqp://", src_queue="out", dest_uri=there.daemon.address.url(), dest_queue="in"
    )
    [(_, properties, _)] = here.take("receipts", 1)
    assert (properties.correlation_id, properties.headers["queue"]) == ("c", "out")
    with there.channel() as channel:
        assert channel.queue_declare("in", passive=True).method.message_count == 1


@pytest.mark.parametrize("mode", ["on-confirm", "exactly-once"])
@pytest.mark.parametrize("pulls", [False, True], ids=["push", "pull"])
def test_a_publisher_learns_of_arrival_and_consumption_in_another_process(
    sites: tuple[Site, Site], start_daemon: DaemonStarter, tmp_path: Path, pulls: bool, mode: str
) -> None:
    here, there = sites
    source, target = (there, here) if pulls else (here, there)
    url = there.daemon.address.url()
    uris = {"src_uri": url, "dest_uri": "amqp://"} if pulls else {"src_uri": "amqp://", "dest_uri": url}
    more = {"ack_mode": mode, "reconnect_delay": 1, "dest_receipt_queue": "back"}
    with source.channel() as channel:
        channel.queue_declare("out", durable=True)
        channel.queue_declare("receipts", durable=True)
    here.shovel("s", **uris, src_queue="out", dest_queue="in", **more)
    headers = {"x-receipt-to": "receipts", "x-receipt-on": "arrival,consumed"}
    source.publish("out", [b"x"], pika.BasicProperties(delivery_mode=2, message_id="m", headers=headers))

    def receipts(count: int) -> list[tuple[str, str, bool]]:
        found = [json.loads(body) for body in source.bodies("receipts", count)]
        return sorted((each["what"], each["queue"], "cluster" in each) for each in found)

    local = [("arrival", "out", False), ("consumed", "out", False)]
    assert receipts(3) == [("arrival", "in", True), *local]
    with target.channel() as confirming:
        channel = confirming.connection.channel()
        channel.tx_select()
        method, _, _ = channel.basic_get("in")
        assert method is not None
        channel.basic_ack(method.delivery_tag)
        assert source.api.get("queues", "/", "receipts")["messages"] == 0
        if not pulls:  # the receipt waits in the other broker, also over its crash
            here.daemon.kill()
        channel.tx_commit()
    if not pulls:
        there.daemon.kill()
        again = Site(start_daemon(data_dir=tmp_path / "data-1", port=there.daemon.address.port))
        source = Site(start_daemon(data_dir=tmp_path / "data-0", port=here.daemon.address.port))
        again.api.close()
    assert receipts(1) == [("consumed", "in", True)]
    if not pulls:
        source.api.close()


def test_shovels_use_tls_and_check_the_certificate(
    start_daemon: DaemonStarter, certificates: Certificates, tmp_path: Path
) -> None:
    here = Site(start_daemon(data_dir=tmp_path / "data-0"))
    there = Site(start_daemon(*certificates.options(), data_dir=tmp_path / "data-1"))
    place = secure_address(there.daemon)
    authority = certificates.folder / "ca.pem"
    url = f"amqps://guest:guest@localhost:{place.port}/%2F"
    here.publish("out", numbered(20))
    fields = {"src_uri": "amqp://", "src_queue": "out", "dest_queue": "in", "reconnect_delay": 1}
    here.shovel("strict", **fields, dest_uri=url)
    here.daemon.log.wait_for("shovel failed.*certificate is refused")
    here.api.delete("shovels", "vhost", "/", "strict")
    here.shovel("missing", **fields, dest_uri=f"{url}?cacertfile=/none.pem")
    here.daemon.log.wait_for("shovel failed.*/none.pem cannot be used")
    here.api.delete("shovels", "vhost", "/", "missing")
    here.shovel("trusting", **fields, dest_uri=f"{url}?cacertfile={authority}")
    assert there.bodies("in", 20) == numbered(20)
    here.api.close()
    there.api.close()


@pytest.mark.parametrize("mode", ["on-confirm", "exactly-once"])
def test_selected_messages_are_pulled_from_another_process(sites: tuple[Site, Site], mode: str) -> None:
    here, there = sites
    for number in range(20):
        there.publish("out", [b"%d" % number], pika.BasicProperties(delivery_mode=2, priority=number % 10))
    here.shovel(
        "urgent",
        src_uri=there.daemon.address.url(),
        src_queue="out",
        src_selector="JMSPriority >= 8",
        dest_uri="amqp://",
        dest_queue="in",
        ack_mode=mode,
    )
    wait_until_running(here, "urgent")
    with here.channel() as channel:
        found = [body for _, _, body in itertools.islice(channel.consume("in", auto_ack=True), 4)]
    assert found == [b"8", b"9", b"18", b"19"]
    assert there.bodies("out", 16) == [b"%d" % number for number in range(20) if number % 10 < 8]


def test_batches_and_windows(sites: tuple[Site, Site]) -> None:
    here, there = sites
    ends = {"src_uri": "amqp://", "dest_uri": there.daemon.address.url(), "dest_queue": "in"}
    here.publish("batched", numbered(4))
    here.shovel("b", **ends, src_queue="batched", batch_size=5, batch_interval=3_600_000)
    wait_until_running(here, "b")
    here.publish("batched", [b"4", b"5"])
    assert there.bodies("in", 5) == numbered(5)
    here.publish("windowed", numbered(3))
    here.shovel("w", **ends, src_queue="windowed", window={"cron": "0 0 29 2 *", "duration": 1})
    here.daemon.log.wait_for("shovel waits for its window.*shovel=w")
    status = here.status("w")
    assert (status["state"], status["source_ready"]) == ("waiting", 3)
    assert status["next_window"].endswith("-02-29T00:00:00+00:00")
    here.api.delete("shovels", "vhost", "/", "w")
    here.shovel("w", **ends, src_queue="windowed", window={"cron": "* * * * *", "duration": 3600})
    assert there.bodies("in", 3) == numbered(3)


def test_a_shovel_logs_in_by_scram_and_by_its_certificate(
    start_daemon: DaemonStarter, certificates: Certificates, tmp_path: Path
) -> None:
    here = Site(start_daemon(data_dir=tmp_path / "data-0"))
    options = certificates.options("--tls-verify", "required", "--tls-login-from", "common_name")
    there = Site(start_daemon(*options, data_dir=tmp_path / "data-1"))
    there.api.put("users", "robot", password="unknown", tags="")
    there.api.put("permissions", "/", "robot", configure=".*", write=".*", read=".*")
    authority, certificate = certificates.folder / "ca.pem", certificates.client("robot")
    tls = f"cacertfile={authority}&certfile={certificate}&server_name_indication=localhost"
    url = f"amqps://127.0.0.1:{secure_address(there.daemon).port}/%2F?verify=verify_peer&{tls}"
    here.publish("out", numbered(20))
    fields = {"src_uri": "amqp://", "src_queue": "out", "dest_queue": "in", "reconnect_delay": 1}
    here.shovel("external", **fields, dest_uri=f"{url}&auth_mechanism=external")
    assert there.bodies("in", 20) == numbered(20)
    there.daemon.log.wait_for("connection opened.*Shovel external.*user=robot")
    here.api.delete("shovels", "vhost", "/", "external")
    there.api.put("users", "robot", status=204, password=SECRET, tags="")
    here.publish("out", numbered(20))
    scram = there.daemon.address.url("robot", SECRET, "?auth_mechanism=scram-sha-256")
    here.shovel("scram", **fields, dest_uri=scram)
    assert there.bodies("in", 20) == numbered(20)
    mechanisms = {each["auth_mechanism"] for each in there.api.get("connections") if each["user"] == "robot"}
    assert mechanisms == {"SCRAM-SHA-256"}
    here.shovel("wrong", **fields, dest_uri=scram.replace(SECRET, "other"))
    here.daemon.log.wait_for("shovel failed.*ACCESS_REFUSED.*SCRAM-SHA-256.*shovel=wrong")
    here.api.close()
    there.api.close()


def test_messages_are_pulled_exactly_once_from_another_process(sites: tuple[Site, Site]) -> None:
    here, there = sites
    there.publish("out", [*numbered(500), b"x" * 3_000_000])
    url = there.daemon.address.url()
    fields = {"dest_uri": "amqp://", "dest_queue": "in", "ack_mode": "exactly-once"}
    here.shovel("once", src_uri=url, src_queue="out", src_prefetch_count=100, **fields)
    here.daemon.log.wait_for("shovel running")
    found: list[tuple[Any, Any, bytes]] = []
    with here.channel() as channel:
        channel.queue_declare("in", durable=True, arguments={"x-dedup-producers": 1000})
        for delivery in channel.consume("in", auto_ack=True):
            found.append(delivery)
            if len(found) == 501:
                break
    assert [body for _, _, body in found] == [*numbered(500), b"x" * 3_000_000]
    assert [properties.headers["x-origin-position"] for _, properties, _ in found] == list(range(501))


def test_exactly_once_between_two_processes(sites: tuple[Site, Site]) -> None:
    here, there = sites
    here.publish("out", [*numbered(500), b"x" * 3_000_000])
    here.shovel(
        "once",
        src_uri="amqp://",
        src_queue="out",
        dest_uri=there.daemon.address.url(),
        dest_queue="in",
        ack_mode="exactly-once",
        src_prefetch_count=100,
    )
    here.daemon.log.wait_for("shovel running")
    found: list[tuple[Any, Any, bytes]] = []
    with there.channel() as channel:
        channel.queue_declare("in", durable=True, arguments={"x-dedup-producers": 1000})
        for delivery in channel.consume("in", auto_ack=True):
            found.append(delivery)
            if len(found) == 501:
                break
    assert [body for _, _, body in found] == [*numbered(500), b"x" * 3_000_000]
    assert [properties.headers["x-origin-position"] for _, properties, _ in found] == list(range(501))
