"""Scenarios for clients of AMQP 1.0, which programs in `clients10/` run and report."""

import json
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from pamqp.commands import Basic
from pamqp.common import FieldTable

from tests.interop.program import Program
from tests.support.admin.api import Api
from tests.support.amqp091.peer import Peer, PeerChannel
from tests.support.daemon.daemon import PATIENCE_S, Daemon, DaemonStarter

PROGRAMS = Path(__file__).with_name("clients10")
LETTERS: FieldTable = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
FULL: FieldTable = {"x-max-length": 2, "x-overflow": "reject-publish"}


class Scenario(NamedTuple):
    """The messages that `clients` must receive; `left` are then in the queue, `dead` are dead letters.

    `arguments`: those of the queue, which is declared beforehand; None: the links of the clients make it.
    `all_accepted`: before the broker is killed, the clients accept all messages.
    """

    clients: tuple[str, ...]
    seen: object
    left: int
    dead: int = 0
    arguments: FieldTable | None = None
    all_accepted: bool = False


def play(
    command: Sequence[str | Path],
    name: str,
    scenario: Scenario,
    start_daemon: DaemonStarter,
    folder: Path,
    filling: Sequence[str | Path] = (),
) -> None:
    """Have a program, which is given the scenario, the queue and the broker, go through a scenario.

    `filling` is a program whose scenario `sends` comes first. In `reconnects` the broker is killed meanwhile.
    """
    daemon = start_daemon("--auto-create", "^queue$")
    channel = channel_of(daemon)
    channel.declare("dead", durable=True)
    if scenario.arguments is not None:
        channel.declare("queue", durable=True, arguments=scenario.arguments)
    if filling:
        started(filling, "sends", daemon, folder / "filling").expect_success()
    program = started(command, name, daemon, folder / "program")
    if name == "reconnects":
        program.wait_for("restart the broker")
        if scenario.all_accepted:
            store_acceptances(daemon, channel)
        channel.peer.drop()
        daemon.kill()
        daemon = start_daemon(port=daemon.address.port)
        channel = channel_of(daemon)
        program.go_on()
    program.expect_success()

    assert json.loads(program.steps.lines[-1]) == scenario.seen, program.output_text()
    assert counts(channel, (scenario.left, scenario.dead)) == (scenario.left, scenario.dead)
    channel.peer.close()


def store_acceptances(daemon: Daemon, channel: PeerChannel) -> None:
    """Wait until the broker has taken all accepts, and the log has them on disk.

    An accept that is not on disk before a kill is lost, and its message is delivered again.
    """
    late = time.monotonic() + PATIENCE_S
    with closing(Api(daemon.admin)) as api:
        while api.get("queues", "/", "queue")["messages"] > 0:
            assert time.monotonic() < late, "not all messages are accepted"
            time.sleep(0.01)
    channel.declare("later", durable=True)
    channel.confirm_select()
    channel.publish(b"", "later", properties=Basic.Properties(delivery_mode=2))
    channel.expect_confirms(1)  # the log has a single order


def channel_of(daemon: Daemon) -> PeerChannel:
    """A channel of a client of 0-9-1."""
    return Peer(daemon.address).open().channel()


def started(command: Sequence[str | Path], name: str, daemon: Daemon, folder: Path) -> Program:
    """A client's program, which has begun with a scenario."""
    folder.mkdir()
    return Program((*command, name, "queue"), daemon, folder)


def counts(channel: PeerChannel, wanted: tuple[int, int]) -> tuple[int, int]:
    """Return the numbers of messages and dead letters, soon: not all clients wait for their close."""
    late = time.monotonic() + PATIENCE_S
    while True:
        found = channel.counts("queue"), channel.counts("dead")
        if found == ((wanted[0], 0), (wanted[1], 0)) or time.monotonic() > late:
            return found[0][0], found[1][0]
