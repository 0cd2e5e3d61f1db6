"""`python -m tests.bench flood [--minutes M] [--seed N] [--only KIND ...]`: a mixed flood on all ports.

A broker of its own gets hostile visits of all kinds from eight addresses, hundreds at once. Beside the flood,
from another address, a publisher needs a confirm each second, a consumer takes the messages, and a client
logs in each second. Exit code 1: a confirm took longer than 2 s, or a log-in longer than 1 s; a message is
lost or doubled; the broker's memory is 50 MB larger 30 s after the flood than before, when all were idle for
20 s; the log has a traceback.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from broker.bench.cpu import cpu_seconds
from broker.flavour import FLAVOUR
from tests.bench.attacks import ATTACKS, PLAIN_USER, TAGGED_USER, VHOST, attack
from tests.bench.loop import Figure
from tests.bench.witnesses import Clock, Consumer, LogIns, Publisher
from tests.support.admin.api import Api
from tests.support.daemon.certificates import Certificates
from tests.support.daemon.daemon import Daemon

CONFIRM_S: Final = 2.0
LOG_IN_S: Final = 1.0
GROWTH_MB: Final = 50.0
REST_S: Final = 30.0
QUIET_S: Final = 20.0
MIB: Final = 1 << 20

PORTS: Final = ("amqp", "admin", "amqps", "ws", "wss", "admin-tls")


class Process:
    """The memory and descriptors of the broker's process, watched each second."""

    def __init__(self, pid: int) -> None:
        self._folder = Path(f"/proc/{pid}")
        self.most_descriptors = 0
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def memory(self, line: str = "VmRSS") -> float:
        """MB of resident memory; with VmHWM the most so far."""
        status = (self._folder / "status").read_text(encoding="ascii")
        return int(status.split(f"{line}:")[1].split()[0]) / 1024

    def descriptors(self) -> int:
        """The count of open descriptors."""
        return len(list((self._folder / "fd").iterdir()))

    def end(self) -> None:
        """Watch no more."""
        self._ending.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ending.wait(1.0):
            self.most_descriptors = max(self.most_descriptors, self.descriptors())


def start(folder: Path) -> Daemon:
    """Start a broker that listens for everything."""
    certificate = Certificates(folder / "certificates").server
    options = [f"--tls-certificate={certificate}"]
    for flag in ("tls-listen", "websocket-listen", "websocket-tls-listen", "admin-tls-listen"):
        options += [f"--{flag}", "127.0.0.1:0"]
    return Daemon(folder, options).wait_until_ready().load_api()


def ports_of(daemon: Daemon) -> dict[str, int]:
    """The port of each protocol, as the ready line says."""
    output = daemon.stdout.text()
    found = {name: re.search(rf"(?:^|\s){name}=\S+?:(\d+)", output) for name in PORTS}
    return {name: int(match[1]) for name, match in found.items() if match is not None}


def populate(api: Api) -> None:
    """Make the virtual host and the users of the attackers."""
    api.put("vhosts", VHOST)
    for user, tags in ((PLAIN_USER, ""), (TAGGED_USER, "policymaker")):
        api.put("users", user, password=user, tags=tags)
        api.put("permissions", VHOST, user, configure=".*", write=".*", read=".*")


def flood(minutes: float, seed: int, at_once: int, names: Sequence[str]) -> list[Figure]:
    """Flood a new broker, and measure."""
    with tempfile.TemporaryDirectory() as folder:
        daemon = start(Path(folder))
        try:
            return _flood(daemon, minutes, seed, at_once, list(names))
        finally:
            daemon.kill()


def _flood(daemon: Daemon, minutes: float, seed: int, at_once: int, names: list[str]) -> list[Figure]:
    api = Api(daemon.admin)
    populate(api)
    publisher, consumer, log_ins = _witnesses(daemon)
    time.sleep(QUIET_S)
    idle = [Figure(f"idle: {each.name}, latest", each.worst, "s") for each in (publisher, log_ins)]
    publisher.seconds.clear()
    log_ins.seconds.clear()
    process, clock = Process(daemon.pid), Clock()
    clock.start()
    before, descriptors = process.memory(), process.descriptors()
    lines = len(daemon.log.lines)
    cpu, began = cpu_seconds(daemon.pid), time.monotonic()
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        visits = pool.apply(attack, (ports_of(daemon), minutes * 60, seed, at_once, names))
    cpu, took = cpu_seconds(daemon.pid) - cpu, time.monotonic() - began
    clock.end()
    log_ins.end()
    publisher.end()
    consumer.end(len(publisher.confirmed))
    syncs = _mean(daemon, "amqpd_log_sync_seconds")
    api.close()
    api = Api(daemon.admin)
    api.delete("vhosts", VHOST)  # messages in the attackers' queues are no leak
    time.sleep(REST_S)
    after = process.memory()
    process.end()
    api.close()
    log_lines = daemon.log.lines[lines:]
    _tell(visits, log_lines, [*publisher.failures, *log_ins.failures, consumer.failure])
    wrong = set(publisher.confirmed).symmetric_difference(consumer.received)
    doubled = len(consumer.received) - len(set(consumer.received))
    tracebacks = sum("Traceback" in line for line in log_lines)
    return [
        *idle,
        Figure("visits", visits.total(), ""),
        Figure("visits a second", visits.total() / took, ""),
        Figure("broker CPU", cpu / took, "cores"),
        Figure("a thread beside the broker ran late by at most", clock.latest, "s"),
        Figure("syncs of the log took on average", syncs, "s"),
        Figure("confirms", len(publisher.seconds), ""),
        Figure("confirm: p50", publisher.quantile(0.5), "s"),
        Figure("confirm: p99", publisher.quantile(0.99), "s"),
        Figure("confirm: latest", publisher.worst, "s", CONFIRM_S),
        Figure("confirmed messages not received, received twice", len(wrong) + doubled, "", 0),
        Figure("log-ins", len(log_ins.seconds), ""),
        Figure("log-in: p50", log_ins.quantile(0.5), "s"),
        Figure("log-in: p99", log_ins.quantile(0.99), "s"),
        Figure("log-in: latest", log_ins.worst, "s", LOG_IN_S),
        Figure("memory before", before, "MB"),
        Figure("memory at most", process.memory("VmHWM"), "MB"),
        Figure(f"memory {REST_S:g} s after: more than before", after - before, "MB", GROWTH_MB),
        Figure("descriptors before", descriptors, ""),
        Figure("descriptors at most", process.most_descriptors, ""),
        Figure(f"descriptors {REST_S:g} s after", process.descriptors(), ""),
        Figure("lines in the log", len(log_lines), ""),
        Figure("tracebacks in the log", tracebacks, "", 0),
    ]


def _mean(daemon: Daemon, histogram: str) -> float:
    return daemon.metric(f"{histogram}_sum") / max(1.0, daemon.metric(f"{histogram}_count"))


def _witnesses(daemon: Daemon) -> tuple[Publisher, Consumer, LogIns]:
    at = daemon.address
    publisher, consumer, log_ins = Publisher(at), Consumer(at), LogIns(at)
    publisher.start()
    consumer.start()
    log_ins.start()
    return publisher, consumer, log_ins


def _tell(visits: Counter[str], log_lines: list[str], failures: list[str]) -> None:
    """Print the visits, the commonest log lines, the failures and the tracebacks."""
    print("visits: " + ", ".join(f"{name} {count}" for name, count in visits.most_common()))
    kinds = Counter(
        " ".join(re.sub(r"^\S+ \[\w+ *\] ", "", line).split("  ")[0].split()[:8]) for line in log_lines
    )
    for kind, count in kinds.most_common(12):
        print(f"{count:>8} x {kind[:90]}")
    for failure in filter(None, failures):
        print(f"FAILED {failure}")
    text = "\n".join(log_lines)
    for found in list(re.finditer(r"Traceback .*?\n(?=\S*\d{4}-|\Z)", text, re.DOTALL))[:5]:
        print(found[0][:4000])


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench flood", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--at-once", type=int, default=1200, help="hostile clients")
    parser.add_argument("--only", nargs="+", choices=ATTACKS, default=list(ATTACKS), metavar="KIND")
    chosen = parser.parse_args(arguments)
    load = os.getloadavg()[0]
    print(f"{FLAVOUR}, {os.cpu_count()} cores, load before {load:.1f}, seed {chosen.seed}", flush=True)
    figures = flood(chosen.minutes, chosen.seed, chosen.at_once, chosen.only)
    print(f"load after {os.getloadavg()[0]:.1f}")
    for figure in figures:
        print(figure.line())
    return 1 if any(figure.limit is not None and figure.value > figure.limit for figure in figures) else 0
