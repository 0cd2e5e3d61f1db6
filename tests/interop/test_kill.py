"""kill -9 at a random instant under load: nothing that was confirmed is lost, nothing comes from nowhere."""

import random
import threading
import time
from pathlib import Path

import pytest
from pamqp.commands import Basic, Exchange, Queue

from tests.interop.kill_ledger import Ledger, body_of
from tests.interop.kill_load import Consumer, Load, Party, Publisher
from tests.support.amqp091.peer import Peer
from tests.support.daemon.daemon import PATIENCE_S, Address, Daemon

PERSISTENT = Basic.Properties(delivery_mode=2)
ROUTES = {0: ["direct"], 1: ["shared"], 2: ["shared"], 3: ["fan.0", "fan.1", "fan.2"], 4: ["backlog"]}
"""The queues of each publisher; `backlog` and `fan.2` have consumers only sometimes."""
SMALL = {"AMQPD_SEGMENT_BYTES": "1MiB", "AMQPD_MEMORY_BUDGET": "1MiB"}
"""Settings under which files are dropped, copied and read back all the time."""


def declare(address: Address) -> None:
    """Declare everything durable; each life of the broker must find it unchanged."""
    peer = Peer(address).open()
    channel = peer.channel()
    channel.call(Exchange.Declare(exchange="fan", exchange_type="fanout", durable=True), Exchange.DeclareOk)
    for queue in ("direct", "shared", "backlog", "fan.0", "fan.1", "fan.2", "fence"):
        channel.declare(queue, durable=True)
        if queue.startswith("fan."):
            channel.call(Queue.Bind(queue=queue, exchange="fan"), Queue.BindOk)
    peer.close()


def load(address: Address, ledger: Ledger, chance: random.Random) -> Load:
    """Start every publisher, and the consumers that chance picks."""
    parties: list[Party] = []
    for publisher, route in ROUTES.items():
        exchange = "fan" if len(route) > 1 else ""
        parties.append(Publisher(address, ledger, publisher, exchange, "" if exchange else route[0]))
    for queue in ledger.queues:
        seldom = queue in ("backlog", "fan.2")
        if chance.random() < (0.3 if seldom else 0.9):
            parties.append(Consumer(address, ledger, queue, chance.randrange(1 << 30)))
    return Load(parties)


def drain(address: Address, ledger: Ledger) -> None:
    """Empty and check every queue, until the broker has that on disk."""
    peer = Peer(address).open()
    channel = peer.channel()
    channel.confirm_select()
    found: dict[str, set[tuple[int, int]]] = {}
    for queue in ledger.queues:
        ready, consumers = channel.counts(queue)
        assert consumers == 0
        channel.consume(queue, queue)
        messages = channel.deliveries(ready)
        channel.expect_silence()
        found[queue] = {ledger.delivered(queue, message.body, message.redelivered) for message in messages}
        channel.ack(0, multiple=True)
        channel.cancel(queue)
    channel.publish(b"", "fence", properties=PERSISTENT)
    channel.expect_confirms(1)
    for queue in ledger.queues:
        ledger.drained(queue, found[queue])
        assert channel.counts(queue) == (0, 0)
    peer.close()


def await_confirm(ledger: Ledger) -> None:
    """Wait until a publisher has a confirm."""
    late = time.monotonic() + PATIENCE_S
    while not ledger.totals()["confirmed"]:
        assert time.monotonic() < late
        time.sleep(0.01)


def rounds(folder: Path, count: int, seed: int, settings: dict[str, str]) -> Ledger:
    """Start, load and kill the daemon `count` times, then check the rest."""
    chance = random.Random(seed)
    ledger = Ledger(ROUTES)
    never = threading.Event()
    for number in range(count):
        if chance.random() < 0.2:  # a kill while it starts
            starting = Daemon(folder / f"{number}.starting", environment=settings, data_dir=folder / "data")
            never.wait(chance.uniform(0, 2))
            starting.kill()
        daemon = Daemon(folder / str(number), environment=settings, data_dir=folder / "data")
        daemon.wait_until_ready()
        declare(daemon.address)
        if number and chance.random() < 0.3:
            drain(daemon.address, ledger)
        busy = load(daemon.address, ledger, chance)
        if number == 0:
            await_confirm(ledger)
        never.wait(chance.uniform(0.05, 2))  # the instant of the kill is meant to be anywhere
        busy.expect_the_end()
        daemon.kill()
        busy.end()
        ledger.crashed()
        assert ledger.violations == [], f"seed {seed}, round {number}"
    daemon = Daemon(folder / "last", environment=settings, data_dir=folder / "data").wait_until_ready()
    drain(daemon.address, ledger)
    daemon.stop()
    assert ledger.violations == [], f"seed {seed}, at the end"
    daemon = Daemon(folder / "empty", environment=settings, data_dir=folder / "data").wait_until_ready()
    drain(daemon.address, ledger)
    daemon.stop()
    assert ledger.violations == [], f"seed {seed}, after a clean restart"
    totals = ledger.totals()
    print(f"seed {seed}: {count} kills, {totals}")
    assert totals["confirmed"] > 0
    return ledger


@pytest.mark.parametrize("settings", [{}, SMALL], ids=["defaults", "small"])
def test_kill_under_load(tmp_path: Path, settings: dict[str, str]) -> None:
    rounds(tmp_path, 2, random.randrange(1 << 30), settings)


@pytest.mark.nightly
@pytest.mark.parametrize("settings", [{}, SMALL], ids=["defaults", "small"])
def test_fifty_kills_under_load(tmp_path: Path, settings: dict[str, str]) -> None:
    rounds(tmp_path, 50, random.randrange(1 << 30), settings)


def ledger_after_a_crash() -> Ledger:
    """Message 0 confirmed, 1 published, 2 confirmed and acknowledged on disk; then a crash."""
    ledger = Ledger({0: ["q"], 1: ["other"]})
    publications = ledger.publications[0]
    publications.sending(3)
    publications.confirm(0, 0)
    publications.confirm(2, 2)
    message = ledger.delivered("q", body_of(0, 2), redelivered=False)
    ledger.handled("q", ledger.acknowledging("q", [message]), when=1.0)
    ledger.fence = 2.0
    ledger.crashed()
    return ledger


@pytest.mark.parametrize(
    ("queue", "body", "redelivered", "fault"),
    [
        ("q", body_of(0, 2), True, "comes back although its acknowledgement was on disk"),
        ("q", body_of(0, 3), True, "was never published"),
        ("q", body_of(9, 0), True, "was never published"),
        ("other", body_of(0, 0), True, "is off its route"),
        ("q", body_of(0, 0) + b"x", True, "has another body"),
        ("q", body_of(0, 0), False, "has redelivered=False"),
    ],
)
def test_the_checker_sees_every_fault(queue: str, body: bytes, redelivered: bool, fault: str) -> None:
    ledger = ledger_after_a_crash()
    ledger.delivered(queue, body, redelivered)
    (violation,) = ledger.violations
    assert fault in violation


def test_the_checker_sees_loss_doubles_and_disorder() -> None:
    ledger = ledger_after_a_crash()
    ledger.drained("q", set())
    assert ledger.violations == ["life 1, queue q: (0, 0) was confirmed and is lost"]
    ledger = ledger_after_a_crash()
    ledger.delivered("q", body_of(0, 1), redelivered=True)
    ledger.delivered("q", body_of(0, 1), redelivered=True)
    ledger.delivered("q", body_of(0, 0), redelivered=True)
    assert [text.rpartition(": ")[2] for text in ledger.violations] == [
        "was delivered twice",
        "comes after 1",
    ]


def test_the_checker_bears_an_acknowledgement_under_way() -> None:
    ledger = Ledger({0: ["q"]})
    ledger.publications[0].sending(1)
    ledger.publications[0].confirm(0, 0)
    ledger.acknowledging("q", [ledger.delivered("q", body_of(0, 0), redelivered=False)])
    ledger.fence = 2.0
    ledger.crashed()
    ledger.delivered("q", body_of(0, 0), redelivered=True)
    ledger.drained("q", set())
    assert ledger.violations == []
