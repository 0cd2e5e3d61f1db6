"""`python -m tests.bench.streams`: the cost of a long stream in memory, at a restart, and in bulk reads.

A broker of its own, on this machine, with `--messages` in one stream. Exit code 2: messages take memory.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from urllib.request import Request, urlopen

from broker.flavour import FLAVOUR
from pipeline.connector.choices import Choices
from pipeline.connector.publisher import Publisher
from pipeline.connector.rows import OutgoingMessage
from pipeline.connector.server import make_server
from tests.support.pipeline.broker import Broker

STREAM = "long"
BYTES_EACH = 1.0  # memory for each message: no list, index or cache of messages can keep to it
PERSISTENT = b"\x10\x00\x02"  # properties: only delivery-mode 2
READ_AT_ONCE = 1 << 20


def memory(broker: Broker) -> int:
    """Bytes of the broker's process in memory."""
    status = Path(f"/proc/{broker.daemon.pid}/status").read_text(encoding="ascii")
    return int(status.split("VmRSS:")[1].split()[0]) * 1024


def cpu(broker: Broker) -> float:
    """Seconds of CPU that the broker's process has used."""
    fields = Path(f"/proc/{broker.daemon.pid}/stat").read_text(encoding="ascii").rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def fill(broker: Broker, messages: int, size: int) -> float:
    """Publish and have confirmed so many messages: the seconds that it takes."""
    publisher = Publisher(make_server(Choices(broker.options_of_spark)), True, 2000, 60)
    body = bytes(size)
    started = time.perf_counter()
    for _ in range(messages):
        publisher.publish(OutgoingMessage("", STREAM, PERSISTENT, body))
    publisher.finish()
    return time.perf_counter() - started


def fetch(broker: Broker, messages: int) -> tuple[float, int]:
    """Read all chunks over HTTP: seconds and bytes."""
    where = f"{broker.daemon.admin}/api/streams/%2F/{STREAM}/0/chunks?from=0&to={messages}"
    request = Request(where, headers={"Authorization": "Basic Z3Vlc3Q6Z3Vlc3Q="})
    started, taken = time.perf_counter(), 0
    with urlopen(request, timeout=60) as answer:
        while piece := answer.read(READ_AT_ONCE):
            taken += len(piece)
    return time.perf_counter() - started, taken


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.streams", description=__doc__)
    parser.add_argument("--messages", type=int, default=10_000_000)
    parser.add_argument("--size", type=int, default=64, help="bytes of a body")
    chosen = parser.parse_args()
    warm = chosen.messages // 10
    more = chosen.messages - warm
    with tempfile.TemporaryDirectory() as folder:
        broker = Broker(Path(folder))
        broker.declare_stream(STREAM)
        fill(broker, warm, chosen.size)
        before = memory(broker)
        print(f"{FLAVOUR}: {warm:,} messages of {chosen.size} B, {before / 1e6:.0f} MB of memory", flush=True)
        used, took = cpu(broker), fill(broker, more, chosen.size)
        each, spent = (memory(broker) - before) / more, (cpu(broker) - used) / more * 1e6
        print(
            f"{chosen.messages:,} messages, {memory(broker) / 1e6:.0f} MB: {each:.2f} B each (at most "
            f"{BYTES_EACH:g}); {more / took:,.0f} messages/s, {spent:.2f} us each",
            flush=True,
        )
        started = time.perf_counter()
        broker.restart(kill=True)
        took, at_start = time.perf_counter() - started, memory(broker)
        print(f"ready {took:.1f} s after kill -9 and a start, {at_start / 1e6:.0f} MB", flush=True)
        used = cpu(broker)
        took, taken = fetch(broker, chosen.messages)
        spent = (cpu(broker) - used) / chosen.messages * 1e6
        print(
            f"read {taken / 1e6:,.0f} MB in {took:.1f} s, {chosen.messages / took:,.0f} messages/s, "
            f"{spent:.3f} us each; {memory(broker) / 1e6:.0f} MB"
        )
        broker.stop()
    return 0 if each <= BYTES_EACH else 2


if __name__ == "__main__":
    sys.exit(main())
