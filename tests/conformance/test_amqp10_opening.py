"""AMQP 1.0: open and close. [amqp-1.0 2.4]"""

import time

import pytest

from protocol.amqp10.frames import frame
from protocol.amqp10.performatives import (
    Close,
    Open,
)
from tests.support.amqp10.peer import Meet, amqp
from tests.support.daemon.daemon import DaemonStarter

pytestmark = pytest.mark.amqpd_only("RabbitMQ before version 4 has it in a plugin")


@pytest.mark.spec("amqp-1.0", "5.3.2")
@pytest.mark.spec("amqp-1.0", "2.4.1")
@pytest.mark.spec("amqp-1.0", "2.4.3")
def test_a_peer_logs_in_opens_and_closes(meet: Meet) -> None:
    peer = meet()
    opened = peer.open(hostname="localhost")
    assert opened.properties is not None
    assert opened.properties["product"] == "amqpd"
    assert (opened.max_frame_size, opened.channel_max) == (131072, 255)
    assert opened.idle_time_out == 60_000
    peer.write(Close())
    assert peer.expect(Close).error is None
    peer.expect_end()


@pytest.mark.spec("amqp-1.0", "2.7.1")
@pytest.mark.parametrize("size", [0, 256, 511])
def test_frames_of_the_peer_that_are_too_small(meet: Meet, size: int) -> None:
    peer = meet()
    peer.open(max_frame_size=size)
    peer.expect_close("amqp:connection:framing-error", f"max-frame-size is {size}")


@pytest.mark.spec("amqp-1.0", "2.7.1")
@pytest.mark.spec("amqp-1.0", "2.8.19")
def test_the_smallest_frames_of_the_peer(meet: Meet) -> None:
    peer = meet()
    peer.open(max_frame_size=512)
    peer.write(Close())
    peer.expect(Close)


@pytest.mark.spec("amqp-1.0", "2.4.1")
@pytest.mark.parametrize(
    ("data", "condition"),
    [
        (bytes.fromhex("0000000c02000000 00531045"), "amqp:decode-error"),  # no container-id
        (amqp(Close()), "amqp:illegal-state"),
        (amqp(Open(container_id="c"), 1), "amqp:connection:framing-error"),
        (amqp(Open(container_id="c" * 256)), "amqp:invalid-field"),
        (amqp(Open(container_id="c", hostname="vhost:nowhere")), "amqp:unauthorized-access"),
        (amqp(Open(container_id="c", idle_time_out=99)), "amqp:not-allowed"),
        (bytes.fromhex("0000000c02000000 00539945"), "amqp:decode-error"),  # nobody knows it
    ],
    ids=["empty", "close", "channel 1", "long name", "virtual host", "idle", "unknown"],
)
def test_an_invalid_open_closes_the_connection(meet: Meet, data: bytes, condition: str) -> None:
    peer = meet()
    peer.log_in()
    peer.send(data)
    opened = peer.expect(Open)
    assert opened.properties is not None
    peer.expect_close(condition)


@pytest.mark.spec("amqp-1.0", "2.3.1")
@pytest.mark.parametrize(
    "header",
    ["0000000702000000", "0002000102000000", "0000000c01000000", "0000000c04000000", "0000000c02010000"],
    ids=["too small", "too large", "offset in it", "offset behind it", "of SASL"],
)
def test_a_malformed_frame_header_closes_the_connection(meet: Meet, header: str) -> None:
    peer = meet()
    peer.open()
    peer.send(bytes.fromhex(header))
    peer.expect_close("amqp:connection:framing-error", "frame")


@pytest.mark.spec("amqp-1.0", "2.7")
@pytest.mark.parametrize(
    ("data", "condition"),
    [
        (amqp(Close(), payload=b"\x40"), "amqp:decode-error"),
        (frame(0, b"\x40"), "amqp:decode-error"),
        (frame(0, b"\x00\x53\x10" + b"\xc0\x00\x00" * 30), "amqp:decode-error"),
        (frame(0, b"\x00\x53\x17" + bytes(40_000)), "amqp:resource-limit-exceeded"),
    ],
    ids=["bytes behind it", "null", "garbage", "large"],
)
def test_a_performative_that_is_refused(meet: Meet, data: bytes, condition: str) -> None:
    peer = meet()
    peer.open()
    peer.send(data)
    peer.expect_close(condition)


@pytest.mark.spec("amqp-1.0", "2.4.1")
def test_a_second_open(meet: Meet) -> None:
    peer = meet()
    peer.open()
    peer.write(Open(container_id="again"))
    peer.expect_close("amqp:not-allowed", "open")


@pytest.mark.spec("amqp-1.0", "2.4.1")
def test_the_virtual_host_is_named(api: object, vhost: str, meet: Meet) -> None:
    for hostname in (f"vhost:{vhost}", vhost):
        peer = meet()
        peer.open(hostname=hostname)
        peer.write(Close())
        peer.expect(Close)


@pytest.mark.spec("amqp-1.0", "2.4.5")
def test_the_peer_is_not_left_in_silence(meet: Meet) -> None:
    peer = meet()
    peer.open(idle_time_out=400)
    began = time.monotonic()
    assert peer.raw_frame() == (0, 0, b"")
    assert peer.raw_frame() == (0, 0, b"")
    assert time.monotonic() - began < 15  # a broker that goes by its own heartbeat takes a minute
    peer.send(bytes.fromhex("0000000802000000"))
    peer.write(Close())
    peer.expect(Close)


@pytest.mark.spec("amqp-1.0", "2.4.5")
def test_a_peer_that_is_silent_is_told_and_left(start_daemon: DaemonStarter, meet: Meet) -> None:
    daemon = start_daemon(environment={"AMQPD_HEARTBEAT": "1"})
    peer = meet(daemon.address)
    assert peer.open().idle_time_out == 1000
    began = time.monotonic()
    close = peer.expect(Close)
    assert time.monotonic() - began >= 1
    assert close.error is not None
    assert close.error.condition == "amqp:resource-limit-exceeded"
    peer.expect_end()


@pytest.mark.spec("amqp-1.0", "2.4.5")
def test_a_peer_that_sends_empty_frames_is_not_silent(start_daemon: DaemonStarter, meet: Meet) -> None:
    daemon = start_daemon(environment={"AMQPD_HEARTBEAT": "1"})
    peer = meet(daemon.address)
    peer.open()
    for _ in range(8):
        time.sleep(0.5)
        peer.send(bytes.fromhex("0000000802000000"))
    peer.write(Close())
    peer.expect(Close)


@pytest.mark.spec("amqp-1.0", "2.4.3")
def test_frames_behind_a_close_are_ignored(meet: Meet) -> None:
    peer = meet()
    peer.open()
    peer.write(Open(container_id="again"))
    assert peer.expect(Close).error is not None
    peer.send(amqp(Open(container_id="again")) + amqp(Close()))
    peer.expect_end()


@pytest.mark.spec("amqp-1.0", "2.4.3")
@pytest.mark.spec("amqp-1.0", "2.8.16")
def test_the_broker_says_that_it_stops(start_daemon: DaemonStarter, meet: Meet) -> None:
    daemon = start_daemon()
    peer = meet(daemon.address)
    peer.open()
    daemon.terminate()
    close = peer.expect(Close)
    assert close.error is not None
    assert close.error.condition == "amqp:connection:forced"
    peer.write(Close())
    peer.expect_end()
