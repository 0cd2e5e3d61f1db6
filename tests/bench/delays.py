"""Delayed messages in a real broker: how late they are when many are due, after a restart, beside others."""

import json
import re
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from pamqp.commands import Basic, Confirm, Queue

from tests.bench.loop import Figure
from tests.support.amqp091.frames import publish_bytes
from tests.support.amqp091.peer import Peer
from tests.support.daemon.daemon import ROOT, Address, Daemon

DUE_PER_SECOND: Final = 10_000
CHUNK: Final = 1000
BODY: Final = re.compile(rb"\x03\x00\x01\x00\x00\x00\x0d(\d{13})\xce")  # a frame with the time when it is due


def delays(scale: float) -> list[Figure]:
    """10^6 held messages survive a restart and become due at 10,000/s beside half of the load."""
    count = int(1_000_000 * scale)
    with tempfile.TemporaryDirectory() as folder:
        first = Daemon(Path(folder)).wait_until_ready()
        began = time.monotonic()
        start = time.time_ns() // 1_000_000 + int(20_000 + 60_000 * scale)
        _publish(first.address, start, count)
        published = time.monotonic() - began
        first.stop()
        began = time.monotonic()
        daemon = Daemon(Path(folder)).wait_until_ready()
        ready = time.monotonic() - began
        rate = _rate(daemon)
        assert time.time_ns() // 1_000_000 < start, "everything is ready before the first is due"
        seconds = count / DUE_PER_SECOND
        wait = start / 1000 - time.time()
        load = _bench(daemon, "--rate", str(rate), "--duration", str(wait + seconds + 1))
        late = sorted(_consume(daemon.address, count))
        load.communicate()
        daemon.stop()
    return [
        Figure(f"publishing {count:,}", published, "s"),
        Figure("ready after the restart", ready, "s"),
        Figure("other messages meanwhile", rate, "1/s"),
        Figure("earliest", late[0], "ms"),
        Figure("late, p50", late[len(late) // 2], "ms"),
        Figure("late, p99", late[len(late) * 99 // 100], "ms", 20),
        Figure("late, at most", late[-1], "ms"),
    ]


def _publish(address: Address, start: int, count: int) -> None:
    peer = Peer(address).open()
    channel = peer.channel(1)
    channel.call(Queue.Declare(queue="held", durable=True), Queue.DeclareOk)
    channel.call(Confirm.Select(), Confirm.SelectOk)
    for first in range(0, count, CHUNK):
        data = bytearray()
        for n in range(first, min(first + CHUNK, count)):
            due = start + n * 1000 // DUE_PER_SECOND
            properties = Basic.Properties(headers={"x-delivery-time": due}, delivery_mode=2)
            data += publish_bytes("held", str(due).encode(), properties=properties)
        peer.send(bytes(data))
    confirmed = 0
    while confirmed < count:
        answer = channel.expect(Basic.Ack)
        assert answer.delivery_tag is not None
        confirmed = answer.delivery_tag if answer.multiple else confirmed + 1
    peer.close()


def _rate(daemon: Daemon) -> float:
    """Return half of the possible rate, by the broker's CPU and by the load generator's limit."""
    output, _ = _bench(daemon, "--duration", "3").communicate()
    result = json.loads(output)
    half: float = min(0.5e6 / result["broker_cpu_us_per_message"], 0.5 * result["received_per_s"])
    return half


def _bench(daemon: Daemon, *options: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "broker", "bench", "--url", daemon.address.url(), "--prefetch", "1000"]
    command += ["--broker-pid", str(daemon.pid), "--json", *options]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def _consume(address: Address, count: int) -> list[int]:
    """Return the lateness of each message at the socket, in milliseconds."""
    peer = Peer(address).open()
    channel = peer.channel(1)
    channel.call(Basic.Consume(queue="held", no_ack=True), Basic.ConsumeOk)
    late: list[int] = []
    buffer = bytearray()
    peer.socket.settimeout(None)
    peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
    while len(late) < count:
        buffer += peer.socket.recv(1 << 18)
        now = time.time_ns() // 1_000_000
        end = 0
        for match in BODY.finditer(buffer):
            late.append(now - int(match[1]))
            end = match.end()
        del buffer[:end]
    peer.close()
    return late
