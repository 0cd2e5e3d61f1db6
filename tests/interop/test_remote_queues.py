"""Remote queues between two broker processes, and with RabbitMQ, with a real client at both sides."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker, NackError

from tests.support.admin.api import Api, amqp
from tests.support.daemon.daemon import PATIENCE_S, Address, Daemon, DaemonStarter
from tests.support.daemon.rabbitmq import lasting_port, running

PERSISTENT = pika.BasicProperties(delivery_mode=2)
SECRET = "s3cret-pass"
READ_BYTES = 65536


def hang_up(end: socket.socket) -> None:
    """Shut a connection down, unless its peer has reset it."""
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)


class Wire:
    """A relay to a broker whose connections can be cut at any time."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._lock = threading.Lock()
        self._ends: list[socket.socket] = []
        self._far: set[socket.socket] = set()  # the ends at the other broker
        self._relays: list[threading.Thread] = []
        self._lost: list[socket.socket] = []  # ends of connections that a peer has left without a close
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.is_open = True
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                if not self.is_open:
                    near.close()
                    continue
                try:
                    far = socket.create_connection(("127.0.0.1", self._port))
                except OSError:
                    near.close()
                    continue
                self._ends += [near, far]
                self._far.add(far)
            for source, target in ((near, far), (far, near)):
                relay = threading.Thread(target=self._relay, args=(source, target), daemon=True)
                self._relays.append(relay)
                relay.start()

    def _relay(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(READ_BYTES):
                target.sendall(data)
        except OSError:
            pass
        finally:
            for end in (source, target):
                with self._lock:
                    if end in self._ends:
                        end.close()
                        self._ends.remove(end)

    def cut(self) -> None:
        """Cut all connections, whatever is on its way."""
        with self._lock:
            for end in self._ends:
                hang_up(end)

    def lose(self) -> None:
        """End all connections at this broker alone: the other one does not notice."""
        with self._lock:
            self._lost += [end for end in self._ends if end in self._far]
            self._ends = [end for end in self._ends if end not in self._far]
            for end in self._ends:
                hang_up(end)

    def end_lost(self) -> None:
        """End the lost connections at the other broker, as its heartbeats would."""
        for end in self._lost:
            hang_up(end)

    def close(self) -> None:
        """Take no further connections, and cut those that are there."""
        with self._lock:
            self.is_open = False
        self.cut()

    def open(self) -> None:
        """Take connections again."""
        with self._lock:
            self.is_open = True

    def end(self) -> None:
        """End for good."""
        self.close()
        self._listener.close()
        for end in self._lost:
            hang_up(end)
        for relay in self._relays:
            relay.join(PATIENCE_S)
        for end in self._lost:
            end.close()


class Sites:
    """A broker with the remote queue `near`, and another one with its messages in `far`."""

    def __init__(self, start: DaemonStarter, folder: Path) -> None:
        self._start = start
        self._data = folder / "far"
        self._port = lasting_port()
        self.far = self._start_far()
        self.near = start(data_dir=folder / "near", port=lasting_port())
        self.api = Api(self.near.load_api().admin)
        self.wire = Wire(self._port)

    def _start_far(self) -> Daemon:
        return self._start(data_dir=self._data, port=self._port)

    def restart_far(self) -> None:
        """Start the other broker, which was stopped."""
        self.far = self._start_far()

    @property
    def uri(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.wire.port}/%2F/far"

    def declare(self, mode: str = "direct", **far: Any) -> None:
        """Declare both queues."""
        with self.there() as channel:
            channel.queue_declare("far", durable=True, arguments={"x-dedup-producers": 10, **far})
        with self.here() as channel:
            channel.queue_declare(
                "near", durable=True, arguments={"x-remote": self.uri, "x-remote-mode": mode}
            )

    @contextmanager
    def here(self) -> Iterator[BlockingChannel]:
        with amqp(self.near.address, "/") as channel:
            yield channel

    @contextmanager
    def there(self) -> Iterator[BlockingChannel]:
        with amqp(self.far.address, "/") as channel:
            yield channel

    def status(self) -> Any:
        return self.api.get("queues", "/", "near")["remote"]

    def wait_for(self, state: str) -> None:
        """Wait until the link is in this state."""
        while self.status()["state"] != state:
            pass

    def end(self) -> None:
        self.wire.end()
        self.api.close()


@pytest.fixture
def sites(start_daemon: DaemonStarter, tmp_path: Path) -> Iterator[Sites]:
    sites = Sites(start_daemon, tmp_path)
    yield sites
    sites.end()


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


def take(channel: BlockingChannel, queue: str, count: int) -> list[tuple[Any, Any, bytes]]:
    """Consume and acknowledge so many messages, however long they take to come."""
    found = []
    for delivery in channel.consume(queue):
        channel.basic_ack(delivery[0].delivery_tag)
        found.append(delivery)
        if len(found) == count:
            break
    channel.cancel()
    return found


def test_confirms_come_from_the_other_broker_also_over_its_restart(sites: Sites) -> None:
    sites.declare()
    with sites.here() as channel:
        for body in numbered(5):
            channel.basic_publish("", "near", body, PERSISTENT, mandatory=True)
    sites.far.stop()

    def restart() -> None:
        sites.wait_for("waiting")
        sites.restart_far()

    restarting = threading.Thread(target=restart)
    restarting.start()
    with sites.here() as channel:
        for body in numbered(5, 5):
            channel.basic_publish("", "near", body, PERSISTENT)
    restarting.join()
    with sites.there() as channel:
        assert [body for _, _, body in take(channel, "far", 10)] == numbered(10)


def test_a_refusal_of_the_other_broker_is_a_nack(sites: Sites) -> None:
    limit: dict[str, Any] = {"x-max-length": 1, "x-overflow": "reject-publish"}
    sites.declare(**limit)
    with sites.here() as channel:
        channel.basic_publish("", "near", b"1", PERSISTENT)
        with pytest.raises(NackError):
            channel.basic_publish("", "near", b"2", PERSISTENT)


def test_consumers_settle_requeue_and_reject_there(sites: Sites) -> None:
    with sites.there() as channel:
        channel.queue_declare("dead", durable=True)
    letters: dict[str, Any] = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    sites.declare(**letters)
    with sites.there() as channel:
        for body in numbered(3):
            channel.basic_publish("", "far", body, pika.BasicProperties(message_id=body.decode()))
    with sites.here() as channel:
        channel.basic_qos(prefetch_count=2)
        messages = channel.consume("near")
        first, properties, body = next(messages)
        assert (first.redelivered, properties.message_id, body) == (False, "0", b"0")
        channel.basic_nack(first.delivery_tag, requeue=True)
        bodies: dict[bytes, bool] = {}
        while len(bodies) < 3:
            method, _, body = next(messages)
            bodies[body] = method.redelivered
            if body == b"1":
                channel.basic_reject(method.delivery_tag, requeue=False)
            else:
                channel.basic_ack(method.delivery_tag)
        assert bodies[b"0"] is True
        channel.cancel()
    with sites.there() as channel:
        assert [body for _, _, body in take(channel, "dead", 1)] == [b"1"]
        assert channel.queue_declare("far", passive=True).method.message_count == 0


def test_get_transactions_counts_and_purge(sites: Sites) -> None:
    sites.declare()
    with sites.here() as confirming:
        channel = confirming.connection.channel()
        channel.tx_select()
        channel.basic_publish("", "near", b"rolled back", PERSISTENT)
        channel.tx_rollback()
        for body in numbered(3):
            channel.basic_publish("", "near", body, PERSISTENT)
        channel.tx_commit()
        method, _, body = channel.basic_get("near")
        assert body == b"0"
        channel.basic_ack(method.delivery_tag)
        channel.tx_rollback()
    with sites.there() as channel:
        assert [body for _, _, body in take(channel, "far", 3)] == numbered(3)
        channel.basic_publish("", "far", b"x")
    with sites.here() as channel:
        while channel.queue_declare("near", durable=True, passive=True).method.message_count != 1:
            channel.connection.process_data_events()
        assert channel.queue_purge("near").method.message_count == 1
        assert channel.basic_get("near") == (None, None, None)


def test_browsers_see_the_messages_there_and_take_none(sites: Sites) -> None:
    sites.declare("hybrid")
    with sites.here() as channel:
        for body in numbered(500):
            channel.basic_publish("", "near", body, PERSISTENT)
        snapshot: dict[str, Any] = {"x-browse": "snapshot"}
        for _ in range(2):
            copies = channel.consume("near", auto_ack=True, arguments=snapshot)
            assert [body for _, _, body in copies] == numbered(500)
        channel.basic_qos(prefetch_count=3)
        some: dict[str, Any] = {"x-browse": "snapshot", "x-browse-from": 490}
        copied = []
        for method, _, body in channel.consume("near", arguments=some):
            copied.append(body)
            channel.basic_ack(method.delivery_tag)
        assert copied == numbered(10, 490)
        for _, _, body in channel.consume("near", auto_ack=True, arguments={"x-browse": True}):
            if body == b"499":
                break
        channel.cancel()
        assert [body for _, _, body in take(channel, "near", 500)] == numbered(500)


def test_two_remote_queues_that_name_each_other_say_so(sites: Sites) -> None:
    sites.declare("hybrid")
    address = sites.near.address
    back = f"amqp://guest:guest@{address.host}:{address.port}/%2F/near"
    with sites.there() as channel:
        channel.queue_delete("far")
        channel.queue_declare("far", durable=True, arguments={"x-remote": back, "x-remote-mode": "hybrid"})
    other = Api(sites.far.load_api().admin)
    circle = "would go round in a circle"

    def statuses() -> tuple[Any, Any]:
        return sites.status(), other.get("queues", "/", "far")["remote"]

    def refused() -> int | None:
        """Return which link is refused while the other one runs; None: the links are not so far yet."""
        both = statuses()
        for number in (0, 1):
            if circle in both[number].get("reason", "") and both[1 - number]["state"] == "running":
                return number
        return None

    while (waiting := refused()) is None:
        pass
    with sites.here() as channel:
        channel.basic_publish("", "near", b"waits", PERSISTENT)
    # The message waits at the link that is refused: in `near`, or in `far` after a single way.
    while statuses()[waiting]["messages_waiting"] != 1:
        pass
    target, session = ("far", sites.there) if waiting == 0 else ("near", sites.here)
    with session() as channel:
        channel.queue_delete(target)
        channel.queue_declare(target, durable=True)
        assert [body for _, _, body in take(channel, target, 1)] == [b"waits"]
    other.close()


def test_large_messages_pass_both_ways(sites: Sites) -> None:
    sites.declare()
    large = bytes(range(256)) * 20_000
    with sites.here() as channel:
        channel.basic_publish("", "near", large, PERSISTENT)
        channel.basic_publish("", "near", b"small", PERSISTENT)
        assert [body for _, _, body in take(channel, "near", 2)] == [large, b"small"]


def test_a_remote_queue_outlives_a_restart_and_the_api_shows_no_password(
    start_daemon: DaemonStarter, tmp_path: Path, sites: Sites
) -> None:
    sites.api.put("users", "ann", password=SECRET, tags="")
    port = lasting_port()
    daemon = start_daemon(data_dir=tmp_path / "again", port=port)
    uri = f"amqp://guest:{SECRET}@127.0.0.1:{sites.wire.port}/%2F/far"
    with amqp(daemon.address, "/") as channel:
        channel.queue_declare("q", durable=True, arguments={"x-remote": uri, "x-remote-mode": "hybrid"})
        channel.basic_publish("", "q", b"kept", PERSISTENT)
    daemon.kill()
    daemon = start_daemon(data_dir=tmp_path / "again", port=port)
    api = Api(daemon.load_api().admin)
    while "reason" not in (shown := api.get("queues", "/", "q"))["remote"]:
        pass
    assert "ACCESS_REFUSED" in shown["remote"]["reason"]
    assert shown["remote"]["messages_waiting"] == 1
    assert SECRET not in str(shown)
    assert shown["arguments"]["x-remote"] == f"amqp://127.0.0.1:{sites.wire.port}/%2F/far"
    assert SECRET in str(api.get("definitions")), "an import must be able to log in"
    wrong = {"name": "w", "durable": True, "auto_delete": False, "arguments": {"x-remote": "amqp://"}}
    queues = [{"name": "r", "durable": True, "auto_delete": False, "arguments": {}}, wrong]
    refused = api.ask("POST", "definitions", "/", body={"queues": queues})
    assert refused.status_code == 400
    assert "has no host" in refused.text
    assert api.ask("GET", "queues", "/", "r").status_code == 404, "nothing was imported"
    api.close()


def test_a_user_without_a_tag_declares_no_remote_queue(sites: Sites) -> None:
    sites.api.put("users", "ann", password="ann", tags="")
    sites.api.put("permissions", "/", "ann", configure=".*", write=".*", read=".*")
    address = sites.near.address
    credentials = pika.PlainCredentials("ann", "ann")
    parameters = pika.ConnectionParameters(address.host, address.port, credentials=credentials)
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        with pytest.raises(ChannelClosedByBroker, match="policymaker"):
            channel.queue_declare("near", durable=True, arguments={"x-remote": sites.uri})


def test_a_queue_moves_to_another_broker_over_a_crash_and_back(
    start_daemon: DaemonStarter, tmp_path: Path
) -> None:
    port = lasting_port()
    near = start_daemon(data_dir=tmp_path / "one", port=port)
    far = start_daemon(data_dir=tmp_path / "two", port=lasting_port())
    with amqp(far.address, "/") as channel:
        channel.queue_declare("far", durable=True, arguments={"x-dedup-producers": 10})
    with amqp(near.address, "/") as channel:
        channel.queue_declare("q", durable=True)
        for body in numbered(100):
            channel.basic_publish("", "q", body, PERSISTENT)
    api = Api(near.load_api().admin)
    uri = f"amqp://guest:guest@{far.address.host}:{far.address.port}/%2F/far"
    api.post("queues", "/", "q", "reroute", status=204, body={"to": uri})
    api.close()
    near.kill()
    near = start_daemon(data_dir=tmp_path / "one", port=port)
    with amqp(near.address, "/") as channel:
        channel.queue_declare("q", durable=True)
        for body in numbered(100, 100):
            channel.basic_publish("", "q", body, PERSISTENT)
        with amqp(far.address, "/") as there:
            while there.queue_declare("far", passive=True).method.message_count < 200:
                pass
    api = Api(near.load_api().admin)
    shown = api.get("queues", "/", "q", "reroute")
    assert shown["to"] == uri.replace("guest:guest@", "")
    assert (shown["returns"], shown["mode"]) == (False, "hybrid")
    assert "guest" not in str(shown)
    assert api.ask("POST", "queues", "/", "q", "reroute", body={"to": 5}).status_code == 400
    api.post("queues", "/", "q", "reroute", status=204, body={"to": None})
    with amqp(near.address, "/") as channel:
        for body in numbered(100, 200):
            channel.basic_publish("", "q", body, PERSISTENT)
        assert [body for _, _, body in take(channel, "q", 300)] == numbered(300)
    while api.get("queues", "/", "q", "reroute")["to"] is not None:
        pass
    api.close()


def test_a_return_leaves_no_message_of_a_lost_connection_there(sites: Sites) -> None:
    with sites.there() as channel:
        channel.queue_declare("far", durable=True, arguments={"x-dedup-producers": 10})
    with sites.here() as channel:
        channel.queue_declare("q", durable=True)
        sites.api.post("queues", "/", "q", "reroute", status=204, body={"to": sites.uri})
        for body in numbered(3):
            channel.basic_publish("", "q", body, PERSISTENT)
        messages = channel.consume("q")
        assert [next(messages)[2] for _ in range(3)] == numbered(3)
        before = sites.api.get("queues", "/", "q", "reroute")["attempts"]
        sites.wire.lose()
        while sites.api.get("queues", "/", "q", "reroute")["attempts"] == before:
            channel.connection.process_data_events()
        sites.api.post("queues", "/", "q", "reroute", status=204, body={"to": None})
        channel.basic_publish("", "q", b"3", PERSISTENT)
        while sites.api.get("queues", "/", "q", "reroute")["state"] != "running":
            channel.connection.process_data_events()
        channel.connection.process_data_events(1)  # several looks at the counts of the other queue
        assert sites.api.get("queues", "/", "q", "reroute")["to"] is not None
        sites.wire.end_lost()
        again = [next(messages) for _ in range(3)]
        assert sorted((method.redelivered, body) for method, _, body in again) == [
            (True, body) for body in numbered(3)
        ]
        for method, _, _ in again:
            channel.basic_ack(method.delivery_tag)
        assert next(messages)[2] == b"3"
        channel.cancel()
    assert sites.api.get("queues", "/", "q", "reroute")["to"] is None
    with sites.there() as channel:
        assert channel.queue_declare("far", passive=True).method.message_count == 0


CUTS = [pytest.param(3), pytest.param(50, marks=pytest.mark.nightly)]


@pytest.mark.parametrize("cuts", CUTS)
def test_cut_links_lose_double_and_reorder_nothing(sites: Sites, cuts: int) -> None:
    """Publish here and consume there while the link is cut: the sequence has neither gaps nor repetitions."""
    sites.declare("hybrid")
    count = 2000 * cuts
    failures: list[BaseException] = []

    def publish() -> None:
        try:
            with sites.here() as confirming:
                channel = confirming.connection.channel()
                for body in numbered(count):
                    channel.basic_publish("", "near", body, PERSISTENT)
        except BaseException as error:
            failures.append(error)

    publishing = threading.Thread(target=publish)
    publishing.start()
    seen: list[bytes] = []
    with sites.there() as channel:
        for _, _, body in channel.consume("far", auto_ack=True):
            seen.append(body)
            if len(seen) % 1500 == 0 and len(seen) // 1500 <= cuts:
                sites.wire.cut()
            if len(seen) == count:
                break
        channel.cancel()
        publishing.join()
        assert failures == []
        assert seen == numbered(count)
        assert channel.queue_declare("far", passive=True).method.message_count == 0


@pytest.mark.parametrize("cuts", CUTS)
def test_consumers_over_cut_links_get_everything_and_repetitions_are_flagged(sites: Sites, cuts: int) -> None:
    """Publish there and consume here while the link is cut."""
    sites.declare()
    count = 300 * cuts
    with sites.there() as channel:
        for body in numbered(count):
            channel.basic_publish("", "far", body, PERSISTENT)
    first: list[bytes] = []
    known: set[bytes] = set()
    cut = 0
    with sites.here() as channel:
        channel.basic_qos(prefetch_count=50)
        for method, _, body in channel.consume("near"):
            if body in known:
                assert method.redelivered
            else:
                known.add(body)
                first.append(body)
            channel.basic_ack(method.delivery_tag)
            if len(first) > 250 * (cut + 1) and cut < cuts:
                cut += 1
                sites.wire.cut()
            if len(first) == count:
                break
        channel.cancel()
    assert first == numbered(count)


@pytest.mark.nightly
@pytest.mark.parametrize("mode", ["direct", "hybrid"])
@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_the_other_broker_is_rabbitmq(
    start_daemon: DaemonStarter, tmp_path: Path, mode: str, kind: str
) -> None:
    folder = tmp_path / "rabbitmq"
    folder.mkdir()
    with running(folder) as (_, port):
        other = Address("127.0.0.1", port)
        daemon = start_daemon()
        with amqp(other, "/") as channel:
            channel.queue_declare("far", durable=True, arguments={"x-queue-type": kind})
        with amqp(daemon.address, "/") as channel:
            arguments = {"x-remote": f"{other.url()}/far", "x-remote-mode": mode}
            channel.queue_declare("near", durable=True, arguments=arguments)
            for body in numbered(50):
                channel.basic_publish("", "near", body, PERSISTENT)
            method, _, body = channel.basic_get("near")
            while method is None:
                method, _, body = channel.basic_get("near")
            assert body == b"0"
            channel.basic_nack(method.delivery_tag, requeue=True)
            channel.basic_qos(prefetch_count=7)
            found = take(channel, "near", 50)
            bodies = [body for _, _, body in found]
            assert [body for body in bodies if body != b"0"] == numbered(49, 1)
            if kind == "classic":
                assert bodies[0] == b"0"
            assert found[bodies.index(b"0")][0].redelivered
            channel.queue_purge("near")
            with pytest.raises(ChannelClosedByBroker, match=r"is RabbitMQ .*, and only amqpd has browsers"):
                next(channel.consume("near", arguments={"x-browse": True}))
