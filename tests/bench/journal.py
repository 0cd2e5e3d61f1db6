"""`python -m tests.bench.journal`: the cost of the journal for an event, and for a broker under load.

The load is that of S3: 1 KiB, durable, 1,000 unconfirmed and 1,000 unacknowledged, on two brokers in turns,
one with everything journaled and one without a journal. Limits are for compiled modules.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from broker.adapters.formats.either import view_of
from broker.core.arguments.queue import FULL
from broker.core.entries.entry import QueueEntry
from broker.core.ports import MessageStore
from broker.core.queues.consumer import QueueConsumer, make_holder
from broker.core.queues.queue import Queue
from broker.core.queues.source import BROKER
from broker.flavour import FLAVOUR
from broker.journal.journal import current_time_us
from broker.journal.recorder import Recorder
from broker.journal.writer import JournalWriter
from tests.bench.loop import Figure
from tests.support.core.topology import add_queue, new_broker, publish
from tests.support.daemon.daemon import Daemon

EVENTS: Final = 100_000
ROUNDS: Final = 7
EVENT_US: Final = 0.2
SHARE: Final = 1 / 3
S3: Final = ("--durable", "--persistent", "--confirm", "1000", "--prefetch", "1000", "--size", "1024")


def events() -> list[Figure]:
    """CPU microseconds for an event, its being written and the call from a loop of Python's included."""
    with tempfile.TemporaryDirectory() as folder:
        writer = JournalWriter(Path(folder), "bench", current_time_us, 1 << 30, 3600, 0)
        recorder = Recorder(
            FULL, writer.encoder, current_time_us, MessageStore(), view_of, writer.flush, lambda: None
        )
        queue, holder, entries = _filled(recorder)
        journal = queue.journal
        assert journal is not None
        kinds: dict[str, Callable[[QueueEntry], None]] = {
            "enqueue": lambda entry: journal.enqueued(entry, BROKER),
            "deliver": lambda entry: journal.delivered(entry, holder),
            "ack": lambda entry: journal.settled(entry, holder),
        }
        figures = []
        for name, tell in kinds.items():
            empty: Callable[[QueueEntry], None] = lambda entry: None  # noqa: E731
            took = [_each(tell, entries) - _each(empty, entries) for _ in range(ROUNDS)]
            figures.append(Figure(f"an event of {name}", statistics.median(took), "us", EVENT_US))
        writer.close()
    return figures


def _filled(recorder: Recorder) -> tuple[Queue, QueueConsumer, list[QueueEntry]]:
    """Return a journaled queue and its entries, each with a message of its own."""
    broker = new_broker()
    broker.journal = recorder
    vhost = broker.declare_vhost("/")
    queue = add_queue(vhost, "q", durable=True)
    for _ in range(EVENTS):
        publish(vhost, "", "q", persistent=True)
    return queue, make_holder(queue, "tag"), list(queue.entries)


def _each(tell: Callable[[QueueEntry], None], entries: list[QueueEntry]) -> float:
    began = time.thread_time()
    for entry in entries:
        tell(entry)
    return (time.thread_time() - began) * 1e6 / len(entries)


def load(seconds: float, rounds: int) -> list[Figure]:
    """CPU of a broker without and with a journal, in microseconds for a message, and the ratio."""
    with tempfile.TemporaryDirectory() as folder:
        brokers = [
            Daemon(Path(folder, level), ("--journal", level)).wait_until_ready() for level in ("off", "full")
        ]
        costs = [[_cost(broker, seconds) for broker in brokers] for _ in range(rounds + 1)][1:]
        for broker in brokers:
            broker.stop()
    off, full = (statistics.median(each) for each in zip(*costs, strict=True))
    return [
        Figure("broker CPU per message of S3, journal off", off, "us"),
        Figure("full", full, "us"),
        Figure("what it adds, as a share", full / off - 1, "", SHARE),
    ]


def _cost(daemon: Daemon, seconds: float) -> float:
    command = [sys.executable, "-m", "broker", "bench", "--url", daemon.address.url(), *S3, "--json"]
    measured = ("--duration", str(seconds), "--broker-pid", str(daemon.pid))
    done = subprocess.run([*command, *measured], check=True, capture_output=True, text=True)
    return float(json.loads(done.stdout)["broker_cpu_us_per_message"])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.journal", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3, help="of each load")
    parser.add_argument("--rounds", type=int, default=9, help="loads on each broker")
    chosen = parser.parse_args()
    print(f"{FLAVOUR}, Python {platform.python_version()}, {platform.machine()}", flush=True)
    missed = 0
    for figure in (*events(), *load(chosen.seconds, chosen.rounds)):
        print(figure.line(), flush=True)
        missed += figure.limit is not None and figure.value > figure.limit
    return 2 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
