"""A real broker's journal as `amqpd journal` tells of it, and clients that give it something to tell."""

import json
from pathlib import Path
from typing import Any

from pamqp.commands import Basic
from pamqp.common import FieldTable
from typer.testing import CliRunner

from broker.journal.command import app
from broker.journal.reader import JournalReader
from tests.support.admin.api import Api
from tests.support.amqp091.peer import Connector, PeerChannel
from tests.support.daemon.daemon import Daemon
from tests.support.journal.handmade_journal import OF_THE_BROKER, out_of_turn

LIFECYCLE = ("--journal", "lifecycle")
PERSISTENT = Basic.Properties(delivery_mode=2)
ALL = {"all": True}


def cat(folder: Path, *ops: str) -> list[dict[str, Any]]:
    """The events of these operations, or all but the broker's own; the journal must be whole and add up."""
    done = CliRunner().invoke(app, ["verify", str(folder)])
    assert done.exit_code == 0, done.output
    assert done.output.endswith(": 0 findings\n")
    assert out_of_turn(JournalReader(folder).rows()) == []
    lines = CliRunner().invoke(app, ["cat", str(folder), "--json"]).output.splitlines()
    left_out = ("end", "gap", *OF_THE_BROKER)
    return [row for row in map(json.loads, lines) if (row["op"] in ops if ops else row["op"] not in left_out)]


def summaries(events: list[dict[str, Any]]) -> list[str]:
    """Operation, queue and reason, or how many."""
    return [
        " ".join(str(event[name]) for name in ("op", "queue", "reason", "quantity") if event.get(name))
        for event in events
    ]


def channel_with_queues(daemon: Daemon, connect: Connector, *queues: str, **arguments: object) -> PeerChannel:
    """A channel, with durable queues."""
    channel = connect(daemon.address).channel()
    for name in queues:
        table: FieldTable = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}  # type: ignore[misc]
        channel.declare(name, durable=True, arguments=table)
    return channel


def publish(channel: PeerChannel, queue: str, count: int) -> None:
    for number in range(count):
        channel.publish(b"%d" % number, queue, properties=PERSISTENT)
    channel.round_trip()


def run_operation(daemon: Daemon, queue: str, what: str, **body: object) -> None:
    """Have an operator do something to all messages of a queue."""
    api = Api(daemon.admin)
    api.post("queues", "/", queue, "messages", what, status=200, body=ALL | body)
    api.close()


class Reader:
    """A reader of a queue, over HTTP."""

    def __init__(self, daemon: Daemon, queue: str) -> None:
        self.api = Api(daemon.admin)
        self.path = ("staged", "/", queue, "spark")
        self.attach()

    def attach(self) -> None:
        self.epoch = self.api.post(*self.path, status=200, body={})["epoch"]

    def advance(self, acknowledged: int, rows: int) -> None:
        body = {"epoch": self.epoch, "ack_upto": acknowledged, "want_rows": rows}
        self.api.post(*self.path, "advance", status=200, body=body)
