"""Events of shovels and federation links in the journal, by the hand clock."""

import json
from typing import Any

import pytest

from broker.adapters.formats.either import view_of
from broker.forwarding.shovel import CARRIED_MS, RUNNING
from broker.journal.recorder import Recorder
from protocol.journal.decoder import Decoder
from protocol.journal.encoder import Encoder
from protocol.journal.rows import rows
from tests.support.forwarding import Sites

Event = tuple[str | None, int | None, dict[str, Any]]


class Journaled(Sites):
    """Two brokers; the events of this one are recorded."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = Encoder("n", 1)
        broker = self.here.broker
        self.recorder = Recorder(
            "lifecycle", self.encoder, lambda: 1, broker.store, view_of, lambda: None, lambda: None
        )
        self.recorder.started = True
        broker.journal = self.recorder
        self.queue("out")
        self.queue("in", "other")

    def events(self) -> list[Event]:
        """The events of forwarding since the last call: the reason, the messages, and the text."""
        header = self.encoder.header(0)
        found = rows(Decoder(header + self.encoder.take()))
        return [
            (row.reason, row.quantity, json.loads(row.text or "{}")) for row in found if row.op == "forward"
        ]

    def steps(self) -> list[tuple[str | None, int | None]]:
        return [(reason, count) for reason, count, _ in self.events()]


@pytest.fixture
def sites() -> Journaled:
    return Journaled()


def test_a_shovel_starts_connects_loses_its_link_and_connects_again(sites: Journaled) -> None:
    sites.define(reconnect_delay=1)
    sites.publish("out", [b"1", b"2"])
    names = {"kind": "shovel", "shovel": "s", "vhost": "/"}
    places = {"source": "this broker", "destination": "other:5672"}
    assert sites.events() == [("started", 0, names), ("connected", 0, names | places)]
    sites.down["other"] = "Connection refused"
    sites.vhost("other").declarations.delete_queue("in", False, False, None)
    sites.publish("out", [b"3"])
    sites.run(1000)
    lost, refused = sites.events()
    assert lost[:2] == ("disconnected", 2)
    assert lost[2].pop("reason").startswith("destination other:5672: a message was returned: 312 NO_ROUTE")
    assert lost[2] == names | places
    reason = "destination other:5672: Connection refused"
    assert refused == ("disconnected", 0, names | places | {"reason": reason})
    sites.run(5000)
    assert sites.events() == [], "the same failure again"
    del sites.down["other"]
    sites.run(1000)
    assert sites.steps() == [("connected", 0)]


def test_a_running_shovel_counts_its_messages_each_minute(sites: Journaled) -> None:
    shovel = sites.define(dest_uri="amqp://")
    sites.run()
    sites.events()
    sites.publish("out", [b"1", b"2", b"3"])
    assert sites.events() == []
    sites.run(CARRIED_MS)
    assert sites.steps() == [("moved", 3)]
    sites.run(CARRIED_MS)
    assert sites.steps() == []
    sites.publish("out", [b"4"])
    sites.run(CARRIED_MS)
    sites.publish("out", [b"5"])
    sites.shovels.stop()
    assert sites.steps() == [("moved", 1), ("stopped", 1)]
    assert shovel.confirmed == 5


def test_a_pause_a_resumption_a_restart_and_a_deletion(sites: Journaled) -> None:
    sites.define()
    sites.publish("out", [b"1"])
    sites.shovels.set_paused("/", "s", True)
    sites.shovels.set_paused("/", "s", False)
    sites.run()
    sites.shovels.existing("/", "s").restart()
    sites.define(rate=9)
    sites.vhost().parameters.delete("shovel", "s")
    assert sites.steps() == [
        ("started", 0),
        ("connected", 0),
        ("paused", 1),
        ("resumed", 0),
        ("connected", 0),
        ("stopped", 0),
        ("started", 0),
        ("stopped", 0),
        ("started", 0),
        ("deleted", 0),
    ]


def test_a_paused_shovel_has_no_event_when_it_or_the_broker_restarts(sites: Journaled) -> None:
    shovel = sites.define(paused=True)
    shovel.restart()
    sites.define(paused=True, rate=5)
    sites.shovels.stop()
    assert sites.steps() == []


def test_a_shovel_that_finishes_and_its_virtual_host(sites: Journaled) -> None:
    sites.publish("out", [b"1", b"2"])
    sites.define(src_delete_after="queue-length")
    sites.run()
    sites.define("gone")
    sites.run()
    sites.here.broker.delete_vhost("/")
    sites.run()
    assert [step for step in sites.steps() if step[0] != "connected"] == [
        ("started", 0),
        ("finished", 2),
        ("deleted", 0),
        ("started", 0),
        ("deleted", 0),
    ]


def test_a_long_reason_is_cut_and_the_text_stays_json(sites: Journaled) -> None:
    sites.down["other"] = "x" * 30_000
    sites.define(reconnect_delay=0)
    sites.run()
    events = sites.events()
    assert events[-1][0] == "disconnected"
    assert len(events[-1][2]["reason"]) == 1024


def test_no_text_has_a_password(sites: Journaled) -> None:
    sites.define(dest_uri="amqp://guest:s3cret@other/%2F")
    sites.run()
    assert "s3cret" not in json.dumps(sites.events())


def test_a_silent_journal_sets_no_timer(sites: Journaled) -> None:
    sites.recorder.on = False
    shovel = sites.define()
    sites.run()
    assert shovel.state == RUNNING
    assert sites.steps() == []
