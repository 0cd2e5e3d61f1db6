"""Shovels with ends of AMQP 1.0 between two brokers in memory, by the hand clock."""

import struct

import pytest

from broker.forwarding.ports import Window
from broker.forwarding.shovel import RUNNING, TERMINATED, Shovel
from protocol.amqp091 import properties as p
from protocol.amqp091.content import body
from protocol.amqp091.properties import Properties
from protocol.amqp10.encoding import encode
from protocol.amqp10.performatives import Transfer
from protocol.amqp10.sections import scan_preamble
from protocol.amqp10.types import Long
from protocol.conversion.to091 import content091
from tests.support.adapters.connection10_without_socket import Client10
from tests.support.amqp091.frames import BODY, HEADER, METHOD, frame_bytes
from tests.support.amqp10.contents import bare10, content10
from tests.support.amqp10.peer import amqp
from tests.support.amqp10.reference_codec import described
from tests.support.forwarding import OTHER, Sites

PAIRS = [("amqp091", "amqp10"), ("amqp10", "amqp091"), ("amqp10", "amqp10")]
MODES = ["on-confirm", "on-publish", "no-ack"]
OTHER10 = "amqp://guest:guest@other"


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


@pytest.fixture
def sites() -> Sites:
    sites = Sites()
    sites.queue("out")
    sites.queue("in", "other")
    return sites


def define(sites: Sites, source: str = "amqp10", destination: str = "amqp10", **fields: object) -> Shovel:
    """Define a shovel with these protocols at its ends."""
    ends: dict[str, object] = {"src_protocol": source, "dest_protocol": destination}
    if source == "amqp10":
        ends |= {"src_queue": None, "src_address": "/queues/out"}
    if destination == "amqp10":
        ends |= {"dest_queue": None, "dest_address": "/queues/in", "dest_uri": OTHER10}
    return sites.define(**(ends | fields))  # type: ignore[arg-type]


def publish10(sites: Sites, *messages: bytes, message_format: int = 0) -> None:
    """Put messages of AMQP 1.0 into the queue `out`."""
    client = Client10(sites.here)
    client.sends("out")
    for number, message in enumerate(messages):
        tag = b"%d" % number
        transfer = Transfer(handle=0, delivery_id=number, delivery_tag=tag, message_format=message_format)
        client.connection.receive(amqp(transfer, 0, message))
    sites.run()
    client.connection.on_lost("")
    sites.run()


def contents(sites: Sites, queue: str = "in", host: str = "other") -> list[bytes]:
    """The contents of the messages in a queue, as they are stored."""
    return [entry.message.content or b"" for entry in sites.vhost(host).topology.queues[queue].entries]


def bodies(sites: Sites, queue: str = "in", host: str = "other") -> list[bytes]:
    """The bodies of the messages in a queue, of either protocol."""
    found = contents(sites, queue, host)
    return [body(content if content[0] != 0 else content091(content)) for content in found]


def data(payload: bytes) -> bytes:
    return described(0x75, b"\xb0" + len(payload).to_bytes(4, "big") + payload)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("source", "destination"), PAIRS)
def test_messages_arrive_in_order_and_leave_the_source(
    sites: Sites, source: str, destination: str, mode: str
) -> None:
    shovel = define(sites, source, destination, ack_mode=mode, src_prefetch_count=3)
    sites.publish("out", numbered(30))
    assert shovel.state == RUNNING, shovel.reason
    assert bodies(sites) == numbered(30)
    assert sites.bodies("out") == []
    assert (shovel.forwarded, shovel.confirmed, shovel.in_flight) == (30, 30, 0)
    publish10(sites, content10(durable=True, body=data(b"of 1.0")))
    assert bodies(sites)[30:] == [b"of 1.0"]


@pytest.mark.parametrize(("source", "destination"), PAIRS)
def test_a_message_stays_in_the_source_until_the_destination_has_it_on_disk(
    sites: Sites, source: str, destination: str
) -> None:
    shovel = define(sites, source, destination)
    sites.run()
    sites.syncs["other"] = False
    sites.publish("out", numbered(3))
    assert bodies(sites) == numbered(3)
    assert sites.bodies("out") == numbered(3)
    assert shovel.in_flight == 3
    sites.syncs["other"] = True
    sites.run()
    assert sites.bodies("out") == []


@pytest.mark.parametrize(("source", "destination"), PAIRS)
def test_refused_messages_are_returned_and_sent_again(sites: Sites, source: str, destination: str) -> None:
    sites.queue("full", "other", max_length=2, overflow="reject-publish")
    place = {"dest_address": "/queues/full"} if destination == "amqp10" else {"dest_queue": "full"}
    shovel = define(sites, source, destination, **place)
    sites.publish("out", numbered(5))
    assert bodies(sites, "full") == numbered(2)
    assert shovel.refused == 3
    assert sites.bodies("out") == numbered(5)[2:]
    sites.run(5_000)
    assert bodies(sites, "full") == numbered(2)
    assert sites.bodies("out") == numbered(5)[2:]
    sites.empty("full", "other")
    sites.run(1_000)
    assert sorted(bodies(sites, "full")) == [b"2", b"3"]
    assert sites.bodies("out") == [b"4"]


@pytest.mark.parametrize("mode", ["on-confirm", "on-publish"])
@pytest.mark.parametrize(("source", "destination"), PAIRS)
def test_a_shovel_that_counts_forwards_no_more_than_its_number(
    sites: Sites, source: str, destination: str, mode: str
) -> None:
    sites.publish("out", numbered(10))
    define(sites, source, destination, src_delete_after=4, ack_mode=mode)
    sites.run()
    assert bodies(sites) == numbered(4)
    assert sites.bodies("out") == numbered(10)[4:]
    assert sites.shovels.all() == []


@pytest.mark.parametrize("mode", MODES)
def test_messages_wait_for_credit_of_the_destination(sites: Sites, mode: str) -> None:
    shovel = define(sites, "amqp091", "amqp10", ack_mode=mode)
    sites.run()
    sites.there.server.shortage.set_shortages(True, False)
    sites.publish("out", numbered(2000))
    arrived = len(bodies(sites))
    assert arrived < 2000
    assert shovel.shown_state == "flow"
    assert shovel.confirmed <= arrived, "a message that waits is not done"
    sites.there.server.shortage.set_shortages(False, False)
    sites.run()
    assert bodies(sites) == numbered(2000)
    assert (shovel.shown_state, shovel.confirmed) == (RUNNING, 2000)


@pytest.mark.parametrize(("source", "destination"), PAIRS)
def test_large_messages_pass(sites: Sites, source: str, destination: str) -> None:
    large = bytes(range(256)) * 12_000
    define(sites, source, destination)
    sites.publish("out", [large, b"small"])
    queue = sites.vhost("other").topology.queues["in"]
    assert queue.depth == 2
    assert len(large) + 5 <= queue.ready_bytes < len(large) + 30, "the data section has a head"
    assert bodies(sites)[1:] == [b"small"]


def test_a_large_body_waits_in_the_source_while_the_destination_takes_nothing(sites: Sites) -> None:
    shovel = define(sites, "amqp091", "amqp10")
    sites.run()
    sites.there.server.shortage.set_shortages(True, False)
    large = bytes(range(256)) * 40_000
    sites.publish("out", [b"first", large, b"last", *numbered(500)])
    sites.there.server.shortage.set_shortages(False, False)
    sites.run()
    assert shovel.state == RUNNING, shovel.reason
    assert (shovel.forwarded, shovel.confirmed) == (503, 503)
    assert shovel.forwarded_bytes >= len(large)
    assert [len(each) for each in bodies(sites)[-500:]] == [len(each) for each in numbered(500)]


def test_between_nodes_of_amqp10_the_bare_message_keeps_its_bytes(sites: Sites) -> None:
    define(sites)
    bare = bare10({"n": 1, "list": True}, described(0x77, encode({"a": [1, "b"]})), message_id="m", to="x")
    footer = described(0x78, b"\xc1\x01\x00")
    delivery = described(0x71, b"\xc1\x05\x02\xa3\x01h\x42")
    annotations = described(0x72, b"\xc1\x05\x02\xa3\x01a\x41")
    publish10(sites, delivery + annotations + bare + footer)
    [content] = contents(sites)
    assert content.endswith(bare + footer)
    assert b"\xa3\x01a\x41" in content
    assert delivery not in content


def test_a_payload_of_another_format_keeps_its_format(sites: Sites) -> None:
    define(sites)
    publish10(sites, b"batch", message_format=0x80013700)
    [content] = contents(sites)
    assert b"x-basic-format\x70\x80\x01\x37\x00" in content
    assert content.endswith(b"\xa0\x05batch")


def test_headers_become_application_properties_and_back(sites: Sites) -> None:
    define(sites, "amqp091", "amqp10")
    client = sites.here.open()
    properties = struct.pack(">HHQH", 60, 0, 4, 0x1000 | 0x2000 | 0x80)
    table = b"\x01nS\x00\x00\x00\x02ab" + b"\x03x-yI\x00\x00\x00\x05"
    properties += len(table).to_bytes(4, "big") + table + b"\x02" + b"\x01m"
    frames = frame_bytes(METHOD, 1, struct.pack(">HHH", 60, 40, 0) + b"\x00\x03out\x00")
    frames += frame_bytes(HEADER, 1, properties) + frame_bytes(BODY, 1, b"body")
    client.connection.receive(frames)
    sites.run()
    [content] = contents(sites)
    assert content[0] == 0, "sections"
    converted = Properties(content091(content))
    assert converted.octets(p.MESSAGE_ID) == b"m"
    fields = dict(converted.fields())
    assert (fields[b"n"], fields[b"x-y"]) == (b"S\x00\x00\x00\x02ab", b"I\x00\x00\x00\x05")
    assert b"\xa1\x01n\xa1\x02ab" in content


def test_a_pulled_message_goes_to_the_exchange_and_key_of_its_annotations(sites: Sites) -> None:
    there = sites.vhost("other")
    there.declarations.declare_exchange("e", "topic", True, False, False, {})
    there.declarations.bind_queue("in", "e", "k.#", {})
    here = sites.vhost()
    here.declarations.declare_exchange("e", "topic", True, False, False, {})
    here.declarations.bind_queue("out", "e", "k.#", {})
    define(sites, "amqp10", "amqp091", dest_queue=None)
    client = sites.here.open()
    frames = frame_bytes(METHOD, 1, struct.pack(">HHH", 60, 40, 0) + b"\x01e\x03k.1\x00")
    frames += frame_bytes(HEADER, 1, struct.pack(">HHQH", 60, 0, 4, 0)) + frame_bytes(BODY, 1, b"body")
    client.connection.receive(frames)
    sites.run()
    assert bodies(sites) == [b"body"]
    [entry] = there.topology.queues["in"].entries
    assert (entry.message.address.exchange, entry.message.address.routing_key) == ("e", "k.1")


def test_fields_of_the_definition_change_messages(sites: Sites) -> None:
    define(
        sites,
        dest_properties={"content_type": "text/plain", "subject": "s", "creation-time": 5},
        dest_application_properties={"n": 7, "old": "new"},
        dest_message_annotations={"x-opt-note": "yes"},
        dest_add_forward_headers=True,
        dest_add_timestamp_header=True,
    )
    publish10(sites, content10({"x-opt-note": "no", "x-opt-kept": 1}, {"old": "o", "kept": 1}, to="t"))
    [content] = contents(sites)
    date = Long(sites.clock.schedule.date())
    for part in (
        b"\xa3\x0ax-opt-note\xa1\x03yes",
        b"\xa3\x0ax-opt-kept",
        b"\xa3\x12x-opt-shovelled-by\xa1\x05amqpd",
        b"\xa3\x11x-opt-shovel-type\xa1\x07dynamic",
        b"\xa3\x11x-opt-shovel-name\xa1\x01s",
        b"\xa3\x19x-opt-shovelled-timestamp" + encode(date),
        b"\xa1\x01n\x55\x07",
        b"\xa1\x03old\xa1\x03new",
        b"\xa1\x04kept",
        b"\xa3\x0atext/plain",
        b"\xa1\x01s",
        b"\xa1\x01t",
        b"\x83\x00\x00\x00\x00\x00\x00\x00\x05",
    ):
        assert part in content, part
    assert b"\xa1\x02no" not in content
    scan_preamble(content)


def test_a_message_loses_the_origin_of_an_earlier_shovel(sites: Sites) -> None:
    define(sites)
    origin = {"x-origin": "o", "x-origin-position": 5, "x-kept": "yes"}
    publish10(sites, content10(origin), content10(body=data(b"about x-origin")), b"x-origin of no sections")
    first, second, *_ = contents(sites)
    assert b"x-kept" in first
    assert b"x-origin" not in first
    assert second.endswith(b"about x-origin")


def test_headers_of_the_forwarding_name_an_address(sites: Sites) -> None:
    define(sites, "amqp10", "amqp091", dest_add_forward_headers=True)
    sites.publish("out", [b"x"])
    [content] = contents(sites)
    shovelled = dict(Properties(content).fields())[b"x-shovelled"]
    assert b"\x0bsrc-addressS\x00\x00\x00\x0b/queues/out" in shovelled


def test_a_missing_node_is_the_reason(sites: Sites) -> None:
    shovel = define(sites, dest_address="/queues/missing")
    sites.run()
    assert shovel.state == TERMINATED
    assert shovel.reason.startswith(
        "destination other:5672: the peer has detached the link: amqp:not-found: no queue 'missing'"
    )
    sites.queue("missing", "other")
    sites.run(5_000)
    assert shovel.state == RUNNING


def test_a_deleted_queue_ends_the_attempt(sites: Sites) -> None:
    shovel = define(sites)
    sites.run()
    sites.vhost().declarations.delete_queue("out", False, False)
    sites.run()
    assert "source this broker: the peer has detached the link: amqp:resource-deleted" in shovel.reason


def test_a_refused_log_in_is_the_reason(sites: Sites) -> None:
    shovel = define(sites, dest_uri="amqp://guest:wrong@other")
    sites.run()
    assert "destination other:5672: the log-in has failed: amqp:unauthorized-access: PLAIN" in shovel.reason


def test_a_missing_virtual_host_is_the_reason(sites: Sites) -> None:
    remote = define(sites, dest_uri=f"{OTHER10}/none")
    sites.run()
    assert "the peer has closed the connection: amqp:unauthorized-access: " in remote.reason
    local = define(sites, src_uri="amqp:///none")
    sites.run()
    assert local.reason == "source this broker: no vhost 'none'"


def test_a_local_uri_with_a_user_logs_in(sites: Sites) -> None:
    shovel = define(sites, src_uri="amqp://guest:guest@/%2F")
    sites.publish("out", numbered(3))
    assert shovel.state == RUNNING, shovel.reason
    assert bodies(sites) == numbered(3)


def test_a_lost_connection_repeats_what_was_not_confirmed(sites: Sites) -> None:
    shovel = define(sites)
    sites.run()
    sites.syncs["other"] = False
    sites.publish("out", numbered(3))
    for line in list(sites.lines):
        line.finish()
    sites.syncs["other"] = True
    sites.run()
    shovel.restart()
    sites.run()
    assert shovel.state == RUNNING, shovel.reason
    assert sites.bodies("out") == []
    assert sorted(set(bodies(sites))) == numbered(3)


def test_a_message_larger_than_the_destination_takes_is_the_reason(sites: Sites) -> None:
    sites.there.server.body_bytes_max = 1000
    shovel = define(sites, "amqp091", "amqp10")
    sites.publish("out", [b"x" * 2000])
    assert "message 1 from the source cannot be forwarded: the message has 2" in shovel.reason
    assert len(sites.bodies("out")) == 1


def test_a_silent_broker_is_noticed(sites: Sites) -> None:
    shovel = define(sites, dest_uri=f"{OTHER10}?idle_time_out=2000")
    sites.run()
    assert shovel.state == RUNNING
    sites.run(60_000)
    assert shovel.state == RUNNING, "empty frames keep both sides awake"


def test_a_dead_broker_is_noticed_by_its_silence(sites: Sites) -> None:
    sites.there.server.heartbeat = 0
    shovel = define(sites, dest_uri=f"{OTHER10}?idle_time_out=4000", reconnect_delay=60)
    sites.run()
    assert shovel.state == RUNNING
    for line in sites.lines:
        line.hold()
    sites.run(20_000)
    assert shovel.reason == "destination other:5672: missed heartbeats, the interval is 4 s"


def test_the_other_protocol_of_each_end_is_not_mixed_up(sites: Sites) -> None:
    plain = sites.define("plain", dest_uri=OTHER)
    define(sites)
    sites.publish("out", numbered(20))
    assert sorted(bodies(sites), key=int) == numbered(20)
    assert plain.state == RUNNING


def test_a_window_takes_ranges_in_any_order() -> None:
    window = Window()
    window.sent = 20
    assert window.confirm_between(4, 6) == [(4, 6)]
    assert window.confirm_between(5, 8) == [(7, 8)]
    assert not window.has_all(4)
    assert window.confirm_between(1, 2) == [(1, 2)]
    assert (window.has_all(2), window.has_all(3), window.count()) == (True, False, 13)
    assert window.confirm_between(3, 5) == [(3, 3)]
    assert (window.has_all(8), window.count()) == (True, 12)
    assert window.confirm_between(2, 8) == []
    assert window.confirm_between(10, 12) == [(10, 12)]
    assert window.confirm_between(1, 20) == [(9, 9), (13, 20)]
    assert window.count() == 0


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("destination", ["amqp091", "amqp10"])
def test_a_source_with_a_selector_gets_only_matching_messages(
    sites: Sites, destination: str, mode: str
) -> None:
    shovel = define(sites, "amqp10", destination, src_selector="number >= 7", ack_mode=mode)
    sites.run()
    assert shovel.state == RUNNING, shovel.reason
    publish10(sites, *(bare10({"number": number}, data(b"%d" % number)) for number in range(10)))
    assert bodies(sites) == [b"7", b"8", b"9"]
    assert len(contents(sites, "out", "")) == 7
