"""Clients of AMQP 1.0 for Python that want an environment of their own: RabbitMQ's 2.x, Azure's."""

from pathlib import Path

import pytest

from tests.interop import suite_sources
from tests.interop.scenario import FULL, LETTERS, PROGRAMS, Scenario, play
from tests.support.daemon.daemon import DaemonStarter

pytestmark = pytest.mark.nightly

PACKAGES = ("rabbitmq-amqp-python-client==2.0.0b2", "azure-eventhub==5.15.1", "azure-servicebus==7.15.0")
COMMANDS = {
    "rabbitmq": ("rabbitmq_python.py",),
    "eventhub": ("azure_pyamqp.py", "eventhub"),
    "servicebus": ("azure_pyamqp.py", "servicebus"),
}
RABBITMQ = ("rabbitmq",)
AZURE = ("eventhub", "servicebus")
ALL = (*RABBITMQ, *AZURE)
NOT_THERE = ["amqp:not-found"] * 3


def carried(identifier: object) -> dict[str, object]:
    """Return the expected report of a large message with this message-id."""
    return {
        "same": True,
        "said": [identifier, "subject", "replies", "text/plain"],
        "properties": {"text": "a", "number": 7, "truth": True},
        "header": [True, 6],
        "annotations": ["mine", "", "queue"],
    }


SCENARIOS = {
    "sends": [Scenario(ALL, {"accepted": 200}, 200)],
    "receives": [Scenario(ALL, {"inOrder": True}, 0)],
    "receives_settled": [Scenario(ALL, {"inOrder": True}, 0)],
    "says_outcomes": [
        Scenario(RABBITMQ, [[1, 0], [2, 1]], 1, 1, LETTERS),
        Scenario(AZURE, [[2, 0], [3, 1], [5, 0]], 1, 1, LETTERS),
    ],
    "settles_ranges": [Scenario(AZURE, {"settled": 7}, 3)],
    "settles_second": [Scenario(("servicebus",), {"settled": 4}, 2, 1, LETTERS)],
    "carries": [Scenario(RABBITMQ, carried(7), 0), Scenario(AZURE, carried("one"), 0)],
    "is_rejected": [Scenario(AZURE, "amqp:resource-limit-exceeded", 2, arguments=FULL)],
    "is_refused": [
        Scenario(AZURE, [*NOT_THERE, "SASL negotiation failed."], 0, arguments=LETTERS),
        Scenario(
            RABBITMQ,
            {
                "codes": [409, 409, 400, 404, 403],
                "links": ["PublisherError", "ConsumerError"],
                "rejected": ["rejected", "amqp:not-found"],
                "accepted": 1,
                "stranger": "AuthenticationError",
            },
            1,
            arguments=LETTERS,
        ),
    ],
    "manages": [
        Scenario(
            RABBITMQ,
            {
                "limited": ["limited", True, 7],
                "exclusive": [True, True],
                "bindings": [{"x-match": "all", "colour": "red"}],
                "states": ["accepted", "released", "released"],
                "counts": [1, 1],
                "unbound": [True, False],
                "gone": 404,
            },
            0,
            arguments=LETTERS,
        )
    ],
    "answers_directly": [Scenario(RABBITMQ, ["accepted", "answer", "7"], 0)],
    "reconnects": [
        Scenario(RABBITMQ, {"inOrder": True}, 0, all_accepted=True),
        Scenario(AZURE, {"lost": [True, True], "all": True}, 0),
    ],
}
CASES = [
    pytest.param(client, name, scenario, id=f"{client}-{name}")
    for name, scenarios in SCENARIOS.items()
    for scenario in scenarios
    for client in scenario.clients
]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has the clients."""
    return suite_sources.environment(tmp_path_factory.mktemp("python"), PACKAGES)


@pytest.mark.parametrize(("client", "name", "scenario"), CASES)
def test_scenario(
    client: str, name: str, scenario: Scenario, start_daemon: DaemonStarter, python: Path, tmp_path: Path
) -> None:
    program, *arguments = COMMANDS[client]
    play((python, PROGRAMS / program, *arguments), name, scenario, start_daemon, tmp_path)
