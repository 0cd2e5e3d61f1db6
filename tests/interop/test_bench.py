"""`amqpd bench` against a running broker: its output, its queues afterwards, and its end."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.support.admin.api import Api
from tests.support.daemon.daemon import PATIENCE_S, Address, Daemon, DaemonStarter, clean_environment

ROOT = Path(__file__).resolve().parents[2]


def bench(address: Address, *options: str, user: str = "guest") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "broker", "bench", "--url", address.url(user), *options]
    return subprocess.run(
        command, cwd=ROOT, env=clean_environment(), capture_output=True, text=True, timeout=300, check=False
    )


def wait_for_messages(daemon: Daemon) -> None:
    """Wait until the broker has taken messages."""
    api = Api(daemon.admin)
    until = time.monotonic() + PATIENCE_S
    while not api.get("overview").get("message_stats", {}).get("publish"):
        assert time.monotonic() < until
        time.sleep(0.1)
    api.close()


@pytest.mark.parametrize("protocol", ["0-9-1", "1.0"])
@pytest.mark.parametrize(
    "options",
    [
        ("--auto-ack", "--size", "16"),
        ("--confirm", "100", "--prefetch", "100", "--persistent", "--durable"),
        ("--confirm", "50", "--prefetch", "64", "--ack-every", "32", "--publishers", "3", "--consumers", "2"),
        ("--publishers", "2", "--consumers", "5", "--queues", "3", "--prefetch", "10"),
        ("--stream", "--confirm", "100", "--prefetch", "100", "--queues", "2", "--ack-every", "10"),
        ("--size", "200000", "--in-flight", "50", "--queues", "2"),
        ("--consumers", "0", "--confirm", "10"),
        ("--rate", "4000", "--confirm", "1"),
        ("--bindings", "50", "--keys", "7", "--queues", "2"),
        ("--bindings", "50", "--queues", "2"),
    ],
    ids=" ".join,
)
def test_every_message_arrives_once_and_in_order(
    address: Address, options: tuple[str, ...], protocol: str
) -> None:
    done = bench(address, "--count", "2000", "--json", "--protocol", protocol, *options)

    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = done.stdout.splitlines()
    document = json.loads(line)
    assert document["ok"]
    assert document["protocol"] == protocol
    assert document["published"] == 2000
    assert document["received"] == (0 if "0" in options else 2000)
    assert document["confirmed"] == (2000 if "--confirm" in options else 0)
    assert not any(document["checks"].values())
    if "--confirm" in options:
        assert (
            0
            < document["confirm_us"]["p50"]
            <= document["confirm_us"]["p99.9"]
            <= document["confirm_us"]["max"]
        )


def test_the_table_names_every_figure(address: Address) -> None:
    done = bench(address, "--count", "500", "--confirm", "10", "--broker-pid", str(os.getpid()))

    assert done.returncode == 0, done.stdout + done.stderr
    for text in (
        "published",
        "confirmed",
        "received",
        "publish to receipt",
        "publish to confirm",
        "broker CPU",
    ):
        assert text in done.stdout


@pytest.mark.parametrize("protocol", ["0-9-1", "1.0"])
def test_the_bench_measures_the_cpu_time_of_the_broker(daemon: Daemon, protocol: str) -> None:
    options = ("--protocol", protocol, "--broker-pid", str(daemon.pid))
    done = bench(daemon.address, "--duration", "1", "--auto-ack", "--json", *options)

    assert 0.01 < json.loads(done.stdout)["broker_cpu_us_per_message"] < 10_000


def test_the_bench_leaves_no_queue_behind(daemon: Daemon) -> None:
    before = bench(daemon.address, "--count", "10", "--queues", "4", "--durable")
    assert before.returncode == 0, before.stderr

    with urlopen(f"{daemon.admin}/metrics", timeout=60) as answer:
        metrics = answer.read().decode()
    assert "amqpd_queues" in metrics
    assert "amqpd-bench-" not in metrics


@pytest.mark.parametrize(
    ("options", "user", "reason"),
    [
        ((), "nobody", "403"),
        (("--size", "3"), "guest", "--size"),
        (("--protocol", "1.1"), "guest", "--protocol: 0-9-1 or 1.0"),
        (("--broker-pid", "999999999"), "guest", "999999999"),
    ],
)
def test_an_impossible_run_ends_with_status_2_and_the_reason(
    address: Address, options: tuple[str, ...], user: str, reason: str
) -> None:
    done = bench(address, "--count", "1", "--json", *options, user=user)

    assert done.returncode == 2
    assert reason in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("protocol", ["0-9-1", "1.0"])
def test_the_bench_ends_when_losses_leave_nothing_to_publish(daemon: Daemon, protocol: str) -> None:
    api = Api(daemon.admin)
    refusing = {"max-length": 0, "overflow": "reject-publish"}
    api.put("policies", "/", "short", pattern="^amqpd-bench-", definition=refusing)
    done = bench(daemon.address, "--count", "1000", "--in-flight", "50", "--json", "--protocol", protocol)
    api.delete("policies", "/", "short")
    api.close()

    assert done.returncode == 1, done.stdout + done.stderr
    document = json.loads(done.stdout)
    assert (document["published"], document["received"], document["checks"]["lost"]) == (50, 0, 50)


@pytest.mark.parametrize(
    "options",
    [
        (),
        pytest.param(("--consumers", "0"), marks=pytest.mark.nightly),
        pytest.param(("--rate", "1000"), marks=pytest.mark.nightly),
    ],
    ids=" ".join,
)
def test_the_bench_ends_when_the_broker_stands_still(
    start_daemon: DaemonStarter, options: tuple[str, ...]
) -> None:
    daemon = start_daemon()
    command = [sys.executable, "-m", "broker", "bench", "--url", daemon.address.url(), "--count", "100000000"]
    running = subprocess.Popen(
        [*command, "--json", *options],
        cwd=ROOT,
        env=clean_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_for_messages(daemon)
        os.kill(daemon.pid, signal.SIGSTOP)
        output = running.communicate(timeout=PATIENCE_S)
    finally:
        running.kill()
        os.kill(daemon.pid, signal.SIGCONT)
    assert running.returncode == 2, output
    assert "no answer to Queue.Declare" in output[1]


@pytest.mark.nightly
def test_the_bench_ends_though_the_broker_keeps_blocking_it(start_daemon: DaemonStarter) -> None:
    """The blocked connection is no reason to wait after the time is over."""
    daemon = start_daemon("--disk-free-min", "1000000GB")
    daemon.log.wait_for("publishers are held back.*low on disk")
    done = bench(daemon.address, "--duration", "1", "--confirm", "100", "--json")
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["checks"]["unconfirmed"] > 0
