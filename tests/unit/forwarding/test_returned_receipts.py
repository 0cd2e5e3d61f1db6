"""Receipts that return from the destination of a shovel to the publisher, by the hand clock."""

import json
from typing import Any

import pytest
from pamqp.commands import Basic, Tx
from pamqp.common import FieldTable

from broker.adapters.formats.amqp091 import write_receipt
from broker.core.errors import PreconditionFailed
from broker.forwarding.definition import parse_definition
from broker.forwarding.shovel import RUNNING, TERMINATED
from protocol.amqp091.content import body
from protocol.amqp091.properties import Properties
from tests.support.adapters.connection_without_socket import Client091
from tests.support.amqp091.frames import publish_bytes
from tests.support.forwarding import OTHER, Sites

PUSHED = {"src_uri": "amqp://", "dest_uri": OTHER}
PULLED = {"src_uri": OTHER, "dest_uri": "amqp://"}
Receipt = tuple[object, object, object]


class Posts(Sites):
    """Two brokers that write receipts as the daemon does; the other one is the cluster `far`."""

    def __init__(self) -> None:
        super().__init__()
        for host, bench in self.hosts.items():
            bench.broker.node = "far" if host else "near"
            self.vhost(host).receipts.write = write_receipt

    def send(self, queue: str, host: str = "", on: str = "arrival,consumed", **properties: Any) -> None:
        """Publish the message `m`, whose receipts go to the queue `receipts`."""
        client = self.hosts[host].open()
        headers: FieldTable = {"x-receipt-to": "receipts", "x-receipt-on": on}
        fields = Basic.Properties(headers=headers, delivery_mode=2, message_id="m", **properties)
        client.connection.receive(publish_bytes(queue, b"letter", properties=fields))
        client.connection.on_lost("")
        self.run()

    def receipts(self, host: str = "", queue: str = "receipts") -> list[Receipt]:
        """Take the receipts from a queue: the event, the queue of the event, and the cluster."""
        found = [json.loads(each) for each in self.bodies(queue, host)]
        for entry in self.vhost(host).topology.queues[queue].entries:
            properties = Properties(entry.message.content or b"")
            assert json.loads(body(entry.message.content or b"")).items() <= properties.headers().items()
            assert entry.message.persistent
        self.empty(queue, host)
        return [(each["what"], each["queue"], each.get("cluster")) for each in found]

    def take(self, queue: str, host: str) -> Client091:
        """A client that has got a message and not acknowledged it."""
        client = self.hosts[host].open()
        client.send(Basic.Get(0, queue), 1)
        self.run()
        return client


@pytest.fixture
def sites() -> Posts:
    sites = Posts()
    sites.queue("out")
    sites.queue("receipts")
    return sites


@pytest.mark.parametrize("mode", ["on-confirm", "exactly-once"])
@pytest.mark.parametrize(
    ("ends", "source", "target"), [(PUSHED, "", "other"), (PULLED, "other", "")], ids=["push", "pull"]
)
def test_the_publisher_learns_of_arrival_and_consumption_at_the_destination(
    ends: Any, source: str, target: str, mode: str
) -> None:
    sites = Posts()
    sites.queue("out", source)
    sites.queue("receipts", source)
    shovel = sites.define(**ends, ack_mode=mode, dest_receipt_queue="back")
    sites.send("out", source)
    assert shovel.state == RUNNING, shovel.reason
    cluster = "far" if target else "near"
    first, *others = sites.receipts(source)
    assert first == ("arrival", "out", None)
    assert sorted(others) == [("arrival", "in", cluster), ("consumed", "out", None)]
    client = sites.take("in", target)
    assert sites.receipts(source) == []
    client.send(Basic.Ack(1), 1)
    sites.run()
    assert sites.receipts(source) == [("consumed", "in", cluster)]
    assert sites.bodies("back", target) == []


def test_an_acknowledgement_in_a_transaction_counts_when_it_commits(sites: Posts) -> None:
    sites.define(dest_receipt_queue="back")
    sites.run()
    sites.send("out", on="consumed")
    assert sites.receipts() == [("consumed", "out", None)]
    client = sites.hosts["other"].open()
    client.send(Tx.Select(), 1)
    client.send(Basic.Get(0, "in"), 1)
    client.send(Basic.Ack(1), 1)
    sites.run()
    assert sites.receipts() == []
    client.send(Tx.Commit(), 1)
    sites.run()
    assert sites.receipts() == [("consumed", "in", "far")]


def test_receipts_wait_at_the_destination_while_the_link_is_down(sites: Posts) -> None:
    shovel = sites.define(dest_receipt_queue="back", reconnect_delay=1)
    sites.send("out", on="consumed")
    sites.receipts()
    sites.down["other"] = "Connection refused"
    for connection in list(sites.there.server.connections.all):
        connection.force_close("maintenance")
    sites.take("in", "other").send(Basic.Ack(1), 1)
    sites.run(3000)
    assert (sites.receipts(), len(sites.bodies("back", "other"))) == ([], 1)
    del sites.down["other"]
    sites.run(1000)
    assert sites.receipts() == [("consumed", "in", "far")]
    assert sites.bodies("back", "other") == []
    assert shovel.receipts is not None
    assert (shovel.receipts.confirmed, shovel.confirmed) == (1, 1)


def test_a_receipt_leaves_the_destination_when_it_is_on_disk_here(sites: Posts) -> None:
    sites.define(dest_receipt_queue="back")
    sites.send("out", on="arrival")
    sites.receipts()
    sites.syncs[""] = False
    client = sites.hosts["other"].open()
    path: list[Any] = ["receipts"]
    headers: FieldTable = {"x-receipt-to": "back", "x-receipt-on": "arrival", "x-receipt-path": path}
    fields = Basic.Properties(headers=headers, delivery_mode=2)
    client.connection.receive(publish_bytes("in", b"", properties=fields))
    sites.run()
    assert len(sites.bodies("back", "other")) == 1
    sites.syncs[""] = True
    sites.run()
    assert len(sites.bodies("back", "other")) == 0
    assert sites.receipts() == [("arrival", "in", "far")]


def test_receipts_return_over_two_shovels(sites: Posts) -> None:
    sites.define("first", dest_uri="amqp://", dest_queue="mid", dest_receipt_queue="back-1")
    sites.define("second", src_queue="mid", dest_receipt_queue="back-2")
    sites.send("out", on="consumed")
    assert sites.receipts() == [("consumed", "out", None), ("consumed", "mid", "near")]
    sites.take("in", "other").send(Basic.Ack(1), 1)
    sites.run()
    assert sites.receipts() == [("consumed", "in", "far")]


def test_receipts_without_a_queue_or_a_path_are_dropped_and_block_no_others(sites: Posts) -> None:
    sites.define(dest_receipt_queue="back")
    sites.run()
    sites.publish("back", [b"no receipt"], "other")
    sites.vhost().declarations.delete_queue("receipts", False, False, None)
    sites.send("out", on="arrival")
    assert sites.bodies("back", "other") == []
    sites.queue("receipts")
    sites.send("out", on="arrival")
    assert sites.receipts() == [("arrival", "out", None), ("arrival", "in", "far")]


def test_messages_without_a_request_and_other_shovels_keep_their_headers(sites: Posts) -> None:
    sites.define(dest_receipt_queue="back")
    sites.define("plain", src_queue="other-out", dest_queue="other-in")
    sites.queue("other-out")
    sites.run()
    client = sites.here.open()
    fields = Basic.Properties(headers={"about": "x-receipt-to"}, delivery_mode=2)
    client.connection.receive(publish_bytes("out", b"", properties=fields))
    sites.run()
    sites.send("other-out")
    [entry] = sites.vhost("other").topology.queues["in"].entries
    assert Properties(entry.message.content or b"").headers() == {"about": "x-receipt-to"}
    [entry] = sites.vhost("other").topology.queues["other-in"].entries
    assert Properties(entry.message.content or b"").headers()["x-receipt-to"] == "receipts"


def test_a_pause_a_restart_and_a_deletion_also_concern_the_way_back(sites: Posts) -> None:
    shovel = sites.define(dest_receipt_queue="back")
    sites.run()
    back = shovel.receipts
    assert back is not None
    shovel.restart()
    sites.run()
    assert (back.state, back.attempts) == (RUNNING, 2)
    sites.shovels.set_paused("/", "s", True)
    assert back.state == TERMINATED
    assert sites.shovels.existing("/", "s").receipts is None
    sites.shovels.set_paused("/", "s", False)
    sites.run()
    again = sites.shovels.existing("/", "s").receipts
    assert again is not None
    assert again.state == RUNNING
    sites.vhost().parameters.delete("shovel", "s")
    assert again.state == TERMINATED
    assert again.attempt is None


def test_a_destination_that_returns_no_receipts_is_refused(sites: Posts) -> None:
    capabilities = sites.there.server.properties["capabilities"]
    assert isinstance(capabilities, dict)
    del capabilities["receipt_paths"]
    shovel = sites.define(dest_receipt_queue="back")
    sites.run()
    assert shovel.reason == (
        "destination other:5672: the broker returns no receipts: no capability 'receipt_paths'"
    )


FIELDS = {"src-uri": "amqp://", "src-queue": "out", "dest-uri": OTHER, "dest-queue": "in"}


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"dest-receipt-queue": 5}, "'dest-receipt-queue' is '5', allowed: a string"),
        (
            {"dest-receipt-queue": "in"},
            "'dest-receipt-queue' and 'dest-queue' are both 'in'",
        ),
        (
            {"src-delete-after": 5},
            "'dest-receipt-queue' and 'src-delete-after' cannot be together: receipts may follow after the "
            "last message",
        ),
        (
            {"dest-uri": [OTHER, "amqp://third"]},
            "'dest-receipt-queue' needs a single 'dest-uri', there are 2: amqp://other/%2F, amqp://third",
        ),
        (
            {"src-queue": None, "src-protocol": "amqp10", "src-address": "/queues/out"},
            "'dest-receipt-queue' needs ends of AMQP 0-9-1, 'src-protocol' is 'amqp10'",
        ),
        (
            {"dest-publish-properties": {"headers": {}}},
            "'dest-receipt-queue' and 'headers' in 'dest-publish-properties' cannot be together: they would "
            "replace the headers that ask for receipts",
        ),
    ],
)
def test_ends_without_a_way_back_are_refused(fields: Any, reason: str) -> None:
    with pytest.raises(PreconditionFailed) as caught:
        parse_definition("/", "s", {**FIELDS, "dest-receipt-queue": "back", **fields})
    assert caught.value.text == reason
