"""Clients of AMQP 1.0 for Node.js: programs in `clients10/` go through scenarios and say what they see."""

import json
from pathlib import Path
from typing import NamedTuple

import pytest
from pamqp.common import FieldTable

from tests.daemon import Daemon, DaemonStarter
from tests.interop import suite_sources
from tests.interop.program import Program
from tests.peer import Peer
from tests.peer_channel import PeerChannel

pytestmark = pytest.mark.nightly

PROGRAMS = Path(__file__).with_name("clients10")
PACKAGES = ("rhea@3.0.5", "rhea-promise@3.0.3", "amqp10@3.6.0")
NUMBERS = list(range(5))
NOT_THERE = ["amqp:not-found"] * 3


class Scenario(NamedTuple):
    """What each of `clients` is to see; `left` messages are then in the queue, `dead` are dead letters."""

    clients: tuple[str, ...]
    seen: object
    left: int
    dead: int = 0


ALL = ("rhea", "rhea_promise", "node_amqp10")
RHEA = ("rhea", "rhea_promise")
SCENARIOS = {
    "sends": Scenario(ALL, {"accepted": 3000}, 3000),
    "sends_settled": Scenario(("rhea",), {"sent": 100}, 100),
    "receives": Scenario(ALL, {"inOrder": True}, 0),
    "says_outcomes": Scenario(ALL, [[1, 0], [2, 1], [4, 0]], 1, 1),
    "settles_second": Scenario(("rhea",), {"settled": 5}, 0),
    "drains": Scenario(RHEA, [0, 3, 2, 0], 0),
    "browses": Scenario(("rhea",), {"mode": "copy", "seen": [NUMBERS, NUMBERS]}, 5),
    "detaches": Scenario(ALL, {"bodies": [0, 1, 2], "inSession": 0}, 3),
    "carries": Scenario(
        ("rhea",),
        {
            "same": True,
            "said": ["subject", "replies", "one", "text/plain"],
            "properties": {"text": "a", "number": 7, "truth": True},
            "header": [True, 6, True, 0],
            "annotations": ["mine", "", "queue"],
        },
        1,
    ),
    "is_refused": Scenario(RHEA, [*NOT_THERE, "amqp:unauthorized-access"], 0),
    "reconnects": Scenario(ALL, {"accepted": 500, "inOrder": True}, 501),
}
CASES = [(client, name) for name, scenario in SCENARIOS.items() for client in scenario.clients]


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the clients are installed."""
    return suite_sources.from_npm(tmp_path_factory.mktemp("npm"), PACKAGES)


def channel_of(daemon: Daemon) -> PeerChannel:
    """A channel of a client of 0-9-1."""
    return Peer(daemon.address).open().channel()


@pytest.mark.parametrize(("client", "name"), CASES)
def test_scenario(client: str, name: str, start_daemon: DaemonStarter, modules: Path, tmp_path: Path) -> None:
    scenario = SCENARIOS[name]
    daemon = start_daemon()
    channel = channel_of(daemon)
    letters: FieldTable = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    channel.declare("queue", durable=True, arguments=letters)
    channel.declare("dead", durable=True)
    if name == "receives":
        fill(daemon, modules, tmp_path)
    program = started(client, name, daemon, modules, tmp_path)
    if name == "reconnects":
        program.wait_for("restart the broker")
        channel.peer.drop()
        daemon.kill()
        daemon = start_daemon(port=daemon.address.port)
        channel = channel_of(daemon)
        program.go_on()
    program.expect_success()

    assert json.loads(program.steps.lines[-1]) == scenario.seen, program.told()
    assert channel.counts("queue") == (scenario.left, 0)
    assert channel.counts("dead") == (scenario.dead, 0)
    channel.peer.close()


def started(client: str, name: str, daemon: Daemon, modules: Path, folder: Path) -> Program:
    """A client's program, which has begun with a scenario."""
    command = ("env", f"NODE_PATH={modules}", "node", PROGRAMS / f"{client}.js", name, "queue")
    place = folder / f"{client}.{name}"
    place.mkdir()
    return Program(command, daemon, place)


def fill(daemon: Daemon, modules: Path, folder: Path) -> None:
    """Have numbers be sent."""
    started("rhea", "sends", daemon, modules, folder).expect_success()
