"""Clients of AMQP 1.0 for Node.js."""

from pathlib import Path

import pytest

from tests.interop import suite_sources
from tests.interop.scenario import LETTERS, PROGRAMS, Scenario, play
from tests.support.daemon.daemon import DaemonStarter

pytestmark = pytest.mark.nightly

PACKAGES = ("rhea@3.0.5", "rhea-promise@3.0.3", "amqp10@3.6.0")
NUMBERS = list(range(5))
NOT_THERE = ["amqp:not-found"] * 3
ALL = ("rhea", "rhea_promise", "node_amqp10")
RHEA = ("rhea", "rhea_promise")
SCENARIOS = {
    "sends": Scenario(ALL, {"accepted": 3000}, 3000),
    "sends_settled": Scenario(("rhea",), {"sent": 100}, 100),
    "receives": Scenario(ALL, {"inOrder": True}, 0),
    "says_outcomes": Scenario(ALL, [[1, 0], [2, 1], [4, 0]], 1, 1, LETTERS),
    "settles_second": Scenario(("rhea",), {"settled": 5}, 0),
    "drains": Scenario(RHEA, [0, 3, 2, 0], 0),
    "browses": Scenario(ALL, {"mode": "copy", "seen": [NUMBERS, NUMBERS]}, 5),
    "selects": Scenario(ALL, {"selected": [1, 3, 5], "refused": "amqp:invalid-field"}, 3),
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
    "is_refused": Scenario(RHEA, [*NOT_THERE, "amqp:unauthorized-access"], 0, arguments=LETTERS),
    "reconnects": Scenario(ALL, {"accepted": 500, "inOrder": True}, 501),
}
CASES = [(client, name) for name, scenario in SCENARIOS.items() for client in scenario.clients]


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the installed clients."""
    return suite_sources.from_npm(tmp_path_factory.mktemp("npm"), PACKAGES)


@pytest.mark.parametrize(("client", "name"), CASES)
def test_scenario(client: str, name: str, start_daemon: DaemonStarter, modules: Path, tmp_path: Path) -> None:
    filling = command_of("rhea", modules) if name == "receives" else ()
    play(command_of(client, modules), name, SCENARIOS[name], start_daemon, tmp_path, filling)


def command_of(client: str, modules: Path) -> tuple[str | Path, ...]:
    """Return the command that runs a client's program."""
    return ("env", f"NODE_PATH={modules}", "node", PROGRAMS / f"{client}.js")
