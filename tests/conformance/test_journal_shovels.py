"""Events of shovels and federation links in the journal of a broker process."""

import json
import time
from pathlib import Path
from typing import Any

from tests.support.admin.api import Api
from tests.support.amqp091.peer import Connector
from tests.support.daemon.daemon import DaemonStarter
from tests.support.daemon.endings import stop
from tests.support.daemon.rabbitmq import lasting_port
from tests.support.journal.daemon_journal import LIFECYCLE, cat, channel_with_queues, publish


def test_a_shovel_and_a_link_in_the_journal(
    start_daemon: DaemonStarter, connect: Connector, folder: Path
) -> None:
    daemon = start_daemon(*LIFECYCLE)
    channel = channel_with_queues(daemon, connect, "out", "in")
    api = Api(daemon.load_api().admin)
    value = {"src-uri": "amqp://", "src-queue": "out", "dest-uri": "amqp://", "dest-queue": "in"}
    api.put("parameters", "shovel", "/", "s", value=value)
    daemon.log.wait_for("shovel running")
    publish(channel, "out", 5)
    while api.get("shovels", "vhost", "/", "s")["status"]["confirmed"] < 5:
        time.sleep(0.01)
    api.post("shovels", "vhost", "/", "s", "pause", body={}, status=204)
    api.post("shovels", "vhost", "/", "s", "resume", body={}, status=204)
    api.delete("shovels", "vhost", "/", "s")
    closed = lasting_port()
    api.put("parameters", "federation-upstream", "/", "u", value={"uri": f"amqp://127.0.0.1:{closed}"})
    definition = {"federation-upstream": "u"}
    api.put("policies", "/", "p", body={"pattern": "^in$", "apply-to": "queues", "definition": definition})
    daemon.log.wait_for("federation link failed")
    api.close()
    stop(daemon, channel.peer)

    events = cat(folder, "forward")
    texts: list[dict[str, Any]] = [json.loads(event["text"]) for event in events]
    shovel = [event for event, text in zip(events, texts, strict=True) if text["kind"] == "shovel"]
    steps = [(event["reason"], event["quantity"], event["user"]) for event in shovel]
    assert [step for step in steps if step[0] != "connected"] == [
        ("started", 0, "guest"),
        ("paused", 5, "guest"),
        ("resumed", 0, "guest"),
        ("deleted", 0, "guest"),
    ]
    link = [(event["reason"], text) for event, text in zip(events, texts, strict=True) if event not in shovel]
    assert [reason for reason, _ in link] == ["started", "disconnected", "stopped"]
    assert link[1][1] == {
        "reason": f"upstream 127.0.0.1:{closed}: Connection refused",
        "kind": "federation link",
        "queue": "in",
        "upstream": "u",
        "vhost": "/",
        "source": f"127.0.0.1:{closed}",
        "destination": "this broker",
    }
