"""Shovels that save messages up: batches by size and interval, and windows of time, by the hand clock."""

from typing import Any

import pytest

from broker.admin.api.shovels import show_shovel
from broker.core.errors import PreconditionFailed
from broker.forwarding.bulk import BYTES_MAX
from broker.forwarding.definition import Definition, parse_definition
from broker.forwarding.shovel import RUNNING, TERMINATED, WAITING
from tests.support.forwarding import OTHER, Sites

MODES = ["on-confirm", "on-publish", "no-ack", "exactly-once"]
ANSWERED = [mode for mode in MODES if mode != "no-ack"]
QUIET = f"{OTHER}?heartbeat=0"  # nobody sends heartbeats in this world
PUSHED = {"src_uri": "amqp://", "dest_uri": QUIET}
PULLED = {"src_uri": QUIET, "dest_uri": "amqp://"}
HOUR = 3_600_000
NIGHTLY = {"cron": "0 23 * * *", "duration": 3600}


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


@pytest.fixture
def sites() -> Sites:
    sites = Sites()
    sites.queue("out")
    sites.queue("out", "other")
    return sites


@pytest.mark.parametrize("mode", ANSWERED)
@pytest.mark.parametrize(("ends", "source"), [(PUSHED, ""), (PULLED, "other")], ids=["push", "pull"])
def test_messages_wait_until_there_are_enough(sites: Sites, ends: Any, source: str, mode: str) -> None:
    there = "" if source else "other"
    shovel = sites.define(**ends, batch_size=4, ack_mode=mode)
    sites.run()
    first = 1 if mode == "exactly-once" else 0  # the first message of an attempt goes alone
    sites.publish("out", numbered(first), source)
    assert sites.bodies("in", there) == numbered(first)
    sites.publish("out", numbered(3, first), source)
    sites.run(HOUR)
    assert sites.bodies("in", there) == numbered(first)
    assert (shovel.saved, show_shovel(shovel, "n")["saved"]) == (3, 3)
    sites.publish("out", numbered(1, first + 3), source)
    assert sites.bodies("in", there) == numbered(first + 4)
    assert (sites.bodies("out", source), shovel.saved) == ([], 0)
    sites.publish("out", numbered(5, first + 4), source)
    assert sites.bodies("in", there) == numbered(first + 8)


def test_the_first_message_of_a_batch_waits_no_longer_than_the_interval(sites: Sites) -> None:
    sites.define(batch_size=1000, batch_interval=2500)
    sites.run()
    sites.publish("out", numbered(2))
    sites.run(1000)
    sites.publish("out", numbered(3, 2))
    sites.run(1_499)
    assert sites.bodies("in", "other") == []
    sites.run(1)
    assert sites.bodies("in", "other") == numbered(5)
    sites.publish("out", numbered(1, 5))
    sites.run(2_499)
    assert sites.bodies("in", "other") == numbered(5)
    sites.run(1)
    assert sites.bodies("in", "other") == numbered(6)


def test_a_failure_returns_saved_messages_to_the_source(sites: Sites) -> None:
    shovel = sites.define(batch_size=4, reconnect_delay=1)
    sites.run()
    sites.publish("out", numbered(3))
    for connection in list(sites.there.server.connections.all):
        connection.force_close("maintenance")
    sites.run()
    assert (shovel.state, shovel.saved) == (TERMINATED, 0)
    assert sites.bodies("out") == numbered(3)
    sites.run(1000)
    sites.publish("out", numbered(1, 3))
    assert sites.bodies("in", "other") == numbered(4)


def test_a_large_message_and_the_last_wanted_message_complete_a_batch(sites: Sites) -> None:
    large = b"x" * 3_000_000
    sites.define(batch_size=100)
    sites.run()
    sites.publish("out", [*numbered(2), large, b"2"])
    assert sites.bodies("in", "other")[:2] == numbered(2)
    assert len(sites.bodies("in", "other")) == 3
    sites.empty("in", "other")
    sites.queue("list")
    sites.publish("list", numbered(3))
    sites.define("once", src_queue="list", batch_size=100, src_delete_after=2)
    sites.run()
    assert sites.bodies("in", "other") == numbered(2)
    assert sites.bodies("list") == [b"2"]


def test_a_batch_never_has_more_than_some_bytes(sites: Sites) -> None:
    size = 100_000
    sites.define(batch_size=1000)
    sites.run()
    count = BYTES_MAX // size - 10  # frames take some bytes too
    sites.publish("out", [b"x" * size] * count)
    assert sites.bodies("in", "other") == []
    sites.publish("out", [b"x" * size] * 10)
    assert len(sites.bodies("in", "other")) > count


@pytest.mark.parametrize("mode", ["on-confirm", "exactly-once"])
def test_saved_messages_follow_refused_ones(sites: Sites, mode: str) -> None:
    arguments = {"x-max-length": 3, "x-overflow": "reject-publish"}
    shovel = sites.define(
        batch_size=4, ack_mode=mode, batch_interval=500, dest_queue_args=arguments, dest_uri=QUIET
    )
    sites.run()
    sites.publish("out", numbered(11))
    found: list[bytes] = []
    for _ in range(30):
        found += sites.bodies("in", "other")
        sites.empty("in", "other")
        sites.run(1000)
    assert sorted(found, key=int) == numbered(11)
    if mode == "exactly-once":
        assert found == numbered(11)
    assert (shovel.attempts, sites.bodies("out")) == (1, [])


def test_a_batch_keeps_the_rate(sites: Sites) -> None:
    sites.define(batch_size=50, rate=10)
    sites.run()
    sites.publish("out", numbered(50))
    sites.run(2000)
    assert 15 < len(sites.bodies("in", "other")) < 25
    sites.run(3000)
    assert sites.bodies("in", "other") == numbered(50)


def test_a_shovel_runs_in_its_windows_only(sites: Sites) -> None:
    shovel = sites.define(window=NIGHTLY, dest_uri=QUIET)
    sites.publish("out", numbered(5))
    assert shovel.state == WAITING
    shown = show_shovel(shovel, "n")
    assert (shown["source_ready"], shown["next_window"]) == (5, "2023-11-14T23:00:00+00:00")
    assert sites.lines == set(), "there is no connection outside the window"
    minutes = 46 * 60_000 + 40_000  # from 22:13:20 to 23:00
    sites.run(minutes - 1)
    assert shovel.state == WAITING
    sites.run(1)
    assert shovel.state == RUNNING
    assert sites.bodies("in", "other") == numbered(5)
    sites.run(HOUR - 1)
    sites.publish("out", numbered(1, 5))
    assert sites.bodies("in", "other") == numbered(6)
    sites.run(1)
    assert (shovel.state, shovel.reason) == (WAITING, "")
    sites.publish("out", numbered(2, 6))
    sites.run(22 * HOUR)
    assert sites.bodies("in", "other") == numbered(6)
    sites.run(HOUR)
    assert sites.bodies("in", "other") == numbered(8)
    assert shovel.attempts == 2


@pytest.mark.parametrize("mode", MODES)
def test_messages_on_their_way_are_answered_before_the_window_closes(sites: Sites, mode: str) -> None:
    sites.clock.offset += 60 * 60_000  # into the window, with 46 minutes and 40 seconds left
    shovel = sites.define(window=NIGHTLY, dest_uri=QUIET, ack_mode=mode, reconnect_delay=0)
    sites.publish("out", numbered(1))
    sites.syncs["other"] = False
    sites.publish("out", numbered(3, 1))
    sites.run(47 * 60_000)
    sites.publish("out", numbered(2, 4))
    answered = mode in ("on-publish", "no-ack")
    assert shovel.state == (WAITING if answered else RUNNING), shovel.reason
    sites.syncs["other"] = True
    sites.run()
    assert shovel.state == WAITING
    assert sites.bodies("in", "other") == numbered(4)
    assert sites.bodies("out") == numbered(2, 4)
    sites.run(24 * HOUR)
    assert sites.bodies("in", "other") == numbered(6)
    assert sites.here.broker.counters.duplicate == sites.there.broker.counters.duplicate == 0


def test_a_window_that_begins_before_the_last_answer_is_used(sites: Sites) -> None:
    sites.clock.offset += 60 * 60_000
    shovel = sites.define(window=NIGHTLY, dest_uri=QUIET, reconnect_delay=0)
    sites.run()
    sites.syncs["other"] = False
    sites.publish("out", numbered(1))
    sites.run(24 * HOUR)
    sites.syncs["other"] = True
    sites.publish("out", numbered(1, 1))
    assert (shovel.state, shovel.attempts) == (RUNNING, 1)
    assert sites.bodies("in", "other") == numbered(2)


def test_a_calendar_that_is_set_moves_the_window(sites: Sites) -> None:
    shovel = sites.define(window=NIGHTLY, dest_uri=QUIET)
    sites.run(HOUR // 4)
    assert shovel.state == WAITING
    sites.clock.offset += HOUR
    sites.run(60_000)
    assert shovel.state == RUNNING
    sites.clock.offset -= HOUR
    sites.run(60_000)
    assert shovel.state == WAITING


def parsed(**fields: object) -> Definition:
    value: dict[str, object] = {
        "src-uri": "amqp://",
        "src-queue": "a",
        "dest-uri": "amqp://u:p@host",
        "dest-queue": "b",
    }
    return parse_definition("/", "s", value | {name.replace("_", "-"): each for name, each in fields.items()})


def test_the_prefetch_count_has_room_for_a_batch() -> None:
    assert parsed(batch_size=5000).source.prefetch == 5000
    assert parsed(batch_size=5).source.prefetch == 1000
    assert parsed(batch_size=50, rate=10).source.prefetch == 50
    assert parsed(batch_size=50, src_prefetch_count=0).source.prefetch == 0
    assert parsed(batch_size=5000, src_prefetch_count=0, ack_mode="exactly-once").source.prefetch == 5000


def test_a_source_of_amqp10_has_room_for_two_batches() -> None:
    fields = {"src_protocol": "amqp10", "src_queue": None, "src_address": "/queues/a"}
    assert parsed(batch_size=600, **fields).source.prefetch == 1200
    with pytest.raises(PreconditionFailed, match="needs at least 1200 messages on their way"):
        parsed(batch_size=600, src_prefetch_count=1000, **fields)
    with pytest.raises(PreconditionFailed, match="from 0 to 32767"):
        parsed(batch_size=40_000, **fields)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"batch_size": -1}, "'batch-size' is '-1', allowed: a whole number from 0 to 65535"),
        ({"batch_size": 65536}, "'batch-size' is '65536', allowed: a whole number from 0 to 65535"),
        (
            {"batch_size": 50, "src_prefetch_count": 20},
            "'batch-size' is 50, and needs at least 50 messages on their way, the source has at most 20",
        ),
        ({"batch_size": 5, "ack_mode": "no-ack"}, "'batch-size' and 'batch-interval' need"),
        (
            {"batch_interval": 5, "ack_mode": "no-ack"},
            "'batch-size' and 'batch-interval' need",
        ),
        ({"batch_interval": "1 s"}, "'batch-interval' is '1 s', allowed: a whole number from 0 to "),
        ({"window": "0 23 * * *"}, "'window' is '0 23 * * *', allowed: an object"),
        (
            {"window": {"cron": "0 23 * * *"}},
            "'window' has 'duration' = 'undefined', allowed: 1 to 2678400 seconds",
        ),
        (
            {"window": {"cron": "0 23 * *", "duration": 1}},
            "'window' has 'cron' = '0 23 * *': a cron expression",
        ),
        (
            {"window": {"duration": 1}},
            "'window' has 'cron' = 'undefined': not a text of up to 255 characters",
        ),
        (
            {"window": {"cron": "0 0 30 2 *", "duration": 1}},
            "'window' has 'cron' = '0 0 30 2 *': Bad day-of-month",
        ),
        (
            {"window": {"cron": "0 23 * * *", "duration": 1, "zone": "CET"}},
            "'window' has 'zone', which is not known, allowed: cron, duration",
        ),
    ],
    ids=lambda value: "" if isinstance(value, dict) else None,
)
def test_refusals_name_the_field_and_its_value(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(PreconditionFailed) as refused:
        parsed(**fields)
    assert refused.value.text.startswith(reason)
