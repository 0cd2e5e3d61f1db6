"""Shovels that forward exactly once, between two brokers in memory, and the gaps that a queue refuses."""

from typing import Any

import pytest
from pamqp.commands import Basic

from broker.core.operators.stage import Stage
from broker.forwarding.shovel import RUNNING, TERMINATED
from protocol.amqp091.properties import Properties
from tests.support.amqp091.frames import publish_bytes
from tests.support.forwarding import OTHER, Sites


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


@pytest.fixture
def sites() -> Sites:
    sites = Sites()
    sites.queue("out")
    return sites


def exactly_once(sites: Sites, **more: Any) -> None:
    sites.define(ack_mode="exactly-once", reconnect_delay=1, **more)
    sites.run()


def cut(sites: Sites) -> None:
    """End the connections of the other broker."""
    for connection in list(sites.there.server.connections.all):
        connection.force_close("maintenance")


def headers(sites: Sites, name: str = "in") -> list[dict[str, object]]:
    queue = sites.vhost("other").topology.queues[name]
    return [Properties(entry.message.content or b"").headers() for entry in queue.entries]


def test_messages_carry_their_origin_and_dense_positions(sites: Sites) -> None:
    exactly_once(sites)
    sites.publish("out", numbered(5))
    shovel = sites.shovels.existing("/", "s")
    assert shovel.state == RUNNING, shovel.reason
    assert sites.bodies("in", "other") == numbered(5)
    assert sites.bodies("out") == []
    found = headers(sites)
    assert [each["x-origin-position"] for each in found] == [0, 1, 2, 3, 4]
    assert [each.get("x-origin-preceding") for each in found] == [None, 0, 1, 2, 3]
    [origin] = {each["x-origin"] for each in found}
    assert str(origin).startswith("origin/")
    assert sites.vhost("other").topology.queues["in"].arguments == {"x-dedup-producers": 1000}


def test_messages_stay_in_the_source_until_the_destination_has_them_on_disk(sites: Sites) -> None:
    exactly_once(sites)
    sites.syncs["other"] = False
    sites.publish("out", numbered(3))
    assert sites.bodies("in", "other") == numbered(1), "the first message goes alone"
    assert sites.bodies("out") == numbered(3)
    sites.syncs["other"] = True
    sites.run()
    assert sites.bodies("in", "other") == numbered(3)
    assert sites.bodies("out") == []


def test_nothing_is_sent_before_its_position_is_on_disk(sites: Sites) -> None:
    exactly_once(sites)
    sites.syncs[""] = False
    client = sites.here.open()
    client.publish("out", b"0", persistent=True)
    sites.run()
    assert sites.bodies("in", "other") == []
    sites.syncs[""] = True
    sites.run()
    assert sites.bodies("in", "other") == [b"0"]


def test_a_lost_confirm_repeats_no_message(sites: Sites) -> None:
    exactly_once(sites)
    sites.publish("out", numbered(2))
    sites.syncs["other"] = False
    sites.publish("out", numbered(4, 2))
    cut(sites)
    sites.there.store.complete()
    sites.syncs["other"] = True
    sites.run()
    shovel = sites.shovels.existing("/", "s")
    assert shovel.state == TERMINATED
    assert sites.bodies("out") == numbered(4, 2), "no confirm has come"
    sites.run(1000)
    assert shovel.state == RUNNING
    assert sites.bodies("in", "other") == numbered(6)
    assert sites.bodies("out") == []
    assert sites.there.broker.counters.duplicate > 0


def test_refused_messages_come_later_once_and_in_order(sites: Sites) -> None:
    sites.queue("in", "other", max_length=3, overflow="reject-publish", dedup_producers=1000)
    arguments = {"x-max-length": 3, "x-overflow": "reject-publish"}
    exactly_once(sites, dest_queue_args=arguments)
    sites.publish("out", numbered(10))
    found: list[bytes] = []
    for _ in range(20):
        found += sites.bodies("in", "other")
        sites.empty("in", "other")
        sites.run(1000)
    assert found == numbered(10)
    assert sites.bodies("out") == []
    assert sites.shovels.existing("/", "s").refused > 0


def test_a_refused_message_is_not_taken_for_a_duplicate_of_its_successor(sites: Sites) -> None:
    arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
    exactly_once(sites, dest_queue_args=arguments)
    sites.publish("out", [b"0"])
    found = sites.bodies("in", "other")
    sites.empty("in", "other")
    sites.syncs["other"] = False  # so that the nack waits behind the confirm of the message before
    sites.publish("out", [b"1"])
    sites.publish("out", [b"refused"])
    found += sites.bodies("in", "other")
    sites.empty("in", "other")
    sites.publish("out", [b"after"])
    shovel = sites.shovels.existing("/", "s")
    assert (shovel.in_flight, shovel.refused) == (3, 0), "the shovel does not know yet"
    sites.syncs["other"] = True
    for _ in range(5):
        sites.run(1000)
        found += sites.bodies("in", "other")
        sites.empty("in", "other")
    assert found == [b"0", b"1", b"refused", b"after"]
    assert sites.bodies("out") == []


def test_a_queue_with_other_arguments_is_refused_with_the_reason(sites: Sites) -> None:
    sites.queue("in", "other")
    exactly_once(sites)
    shovel = sites.shovels.existing("/", "s")
    assert "406 PRECONDITION_FAILED - inequivalent arg 'x-dedup-producers'" in shovel.reason


def test_a_broker_without_the_capability_is_refused(sites: Sites) -> None:
    capabilities = sites.there.server.properties["capabilities"]
    assert isinstance(capabilities, dict)
    del capabilities["message_origins"]
    exactly_once(sites)
    shovel = sites.shovels.existing("/", "s")
    assert "does not store messages exactly once: no capability 'message_origins'" in shovel.reason


def test_a_queue_that_is_not_durable_is_refused(sites: Sites) -> None:
    sites.vhost().declarations.declare_queue("fleeting", False, None, False, {})
    exactly_once(sites, src_queue="fleeting")
    reason = sites.shovels.existing("/", "s").reason
    assert reason.startswith("source queue 'fleeting': it is not durable")


def test_a_deleted_shovel_returns_its_messages_to_their_places(sites: Sites) -> None:
    sites.down["other"] = "Connection refused"
    exactly_once(sites)
    del sites.down["other"]
    sites.syncs["other"] = False
    sites.publish("out", numbered(5))
    sites.run(1000)
    queue = sites.vhost().topology.queues["out"]
    sites.vhost().parameters.delete("shovel", "s")
    sites.run(4000)
    assert sites.bodies("out") == numbered(5)
    assert (queue.ready, queue.consumer_count) == (5, 0)


def test_a_shovel_that_stays_exactly_once_keeps_its_positions(sites: Sites) -> None:
    exactly_once(sites)
    sites.publish("out", numbered(3))
    exactly_once(sites, src_prefetch_count=10)
    sites.publish("out", numbered(3, 3))
    assert sites.bodies("in", "other") == numbered(6)
    assert [each["x-origin-position"] for each in headers(sites)] == [0, 1, 2, 3, 4, 5]


def test_a_paused_shovel_keeps_its_positions(sites: Sites) -> None:
    exactly_once(sites)
    sites.publish("out", numbered(3))
    sites.shovels.set_paused("/", "s", True)
    sites.publish("out", numbered(3, 3))
    assert sites.bodies("in", "other") == numbered(3)
    sites.shovels.set_paused("/", "s", False)
    sites.run()
    assert sites.bodies("in", "other") == numbered(6)
    assert [each["x-origin-position"] for each in headers(sites)] == [0, 1, 2, 3, 4, 5]


def test_a_failed_log_ends_the_attempt_and_repeats_nothing(sites: Sites) -> None:
    exactly_once(sites)
    sites.publish("out", numbered(2))
    sites.syncs[""] = False
    client = sites.here.open()
    client.publish("out", b"2", persistent=True)
    sites.run()
    sites.here.store.fail("no space")
    sites.run()
    shovel = sites.shovels.existing("/", "s")
    assert "no space" in shovel.reason
    assert sites.bodies("in", "other") == numbered(2)


def test_two_shovels_of_one_moment_have_origins_of_their_own(sites: Sites) -> None:
    sites.queue("second")
    for name, queue in (("s", "out"), ("t", "second")):
        sites.define(name, src_queue=queue, ack_mode="exactly-once")
    sites.run()
    sites.publish("out", numbered(3))
    sites.publish("second", numbered(3, 3))
    assert sorted(sites.bodies("in", "other")) == numbered(6)
    assert len({each["x-origin"] for each in headers(sites)}) == 2


def define_in(sites: Sites, vhost: str, name: str) -> None:
    """Define a shovel of the virtual host from the queue `out` of the default one."""
    if vhost not in sites.here.broker.vhosts:
        sites.here.broker.declare_vhost(vhost)
    value = {
        "src-uri": "amqp:///%2F",
        "src-queue": "out",
        "dest-uri": OTHER,
        "dest-queue": "in",
        "ack-mode": "exactly-once",
        "reconnect-delay": 1,
    }
    sites.here.broker.vhosts[vhost].parameters.set("shovel", name, value)


@pytest.mark.parametrize("name", ["s", "s" * 255, "/ä" * 80])
def test_shovels_of_one_name_in_two_virtual_hosts_share_no_stage(sites: Sites, name: str) -> None:
    define_in(sites, "/", name)
    define_in(sites, "v", name)
    sites.run()
    for number in range(0, 40, 8):
        sites.syncs["other"] = False
        sites.publish("out", numbered(4, number))
        sites.publish("out", numbered(4, number + 4))
        sites.syncs["other"] = True
        sites.run()
    assert [sites.shovels.existing(vhost, name).state for vhost in ("/", "v")] == [RUNNING, RUNNING]
    assert [sites.shovels.existing(vhost, name).attempts for vhost in ("/", "v")] == [1, 1]
    if name == "s":
        assert stage_of(sites, "shovel %2F/s") is not stage_of(sites, "shovel v/s")
    assert sorted(sites.bodies("in", "other"), key=int) == numbered(40)


def stage_of(sites: Sites, reader: str) -> Stage:
    stage = sites.here.broker.staging.find_stage(sites.vhost().topology.queues["out"], reader)
    assert stage is not None
    return stage


@pytest.mark.parametrize("released", [True, False])
def test_a_stage_that_another_program_has_taken_ends_the_attempt(sites: Sites, released: bool) -> None:
    exactly_once(sites)
    sites.syncs["other"] = False
    sites.publish("out", numbered(3))
    stage = stage_of(sites, "shovel %2F/s")
    staging = sites.here.broker.staging
    if released:
        staging.release(stage)
        while stage.requeue_some():
            pass
    else:
        staging.attach(stage.queue, stage.reader, 0)
    sites.syncs["other"] = True
    sites.run()
    shovel = sites.shovels.existing("/", "s")
    assert "another program has attached to reader 'shovel %2F/s', or has deleted it" in shovel.reason
    sites.run(1000)
    assert shovel.state == RUNNING
    found = sites.bodies("in", "other")
    assert sorted(set(found)) == numbered(3)
    assert sites.bodies("out") == []


def test_a_message_that_the_disk_does_not_give_back_ends_the_attempt(sites: Sites) -> None:
    exactly_once(sites)
    sites.syncs[""] = False
    client = sites.here.open()
    client.publish("out", b"0", persistent=True)
    sites.run()
    [entry] = sites.vhost().topology.queues["out"].entries
    content, entry.message.content = entry.message.content, None
    sites.syncs[""] = True
    sites.run()
    shovel = sites.shovels.existing("/", "s")
    assert shovel.reason == "internal error, see the broker's log"
    entry.message.content = content
    sites.run(1000)
    assert sites.bodies("in", "other") == [b"0"]


def test_messages_that_a_shovel_has_staged_return_when_its_virtual_host_is_deleted(sites: Sites) -> None:
    define_in(sites, "v", "s")
    sites.run()
    sites.syncs["other"] = False
    sites.publish("out", numbered(5))
    queue = sites.vhost().topology.queues["out"]
    assert queue.ready == 0
    sites.here.broker.delete_vhost("v")
    sites.run(4000)
    assert (queue.ready, sites.bodies("out")) == (5, numbered(5))


def test_a_message_that_goes_back_to_its_destination_is_no_duplicate(sites: Sites) -> None:
    exactly_once(sites)
    sites.publish("out", numbered(3))
    found = headers(sites)
    sites.empty("in", "other")
    client = sites.there.open()
    for number, each in enumerate(found):
        properties = Basic.Properties(headers=each)  # type: ignore[arg-type]
        client.connection.receive(publish_bytes("in", b"%d" % number, properties=properties))
    sites.run()
    assert sites.bodies("in", "other") == numbered(3)


def test_a_message_loses_its_origin_when_a_shovel_of_another_mode_takes_it(sites: Sites) -> None:
    exactly_once(sites)
    sites.publish("out", numbered(3))
    sites.define("t", src_uri=OTHER, src_queue="in", dest_queue="parked")
    sites.run()
    assert sites.bodies("parked", "other") == numbered(3)
    assert headers(sites, "parked") == [{}, {}, {}]


def test_messages_of_shovels_that_are_missing_at_the_start_return(sites: Sites) -> None:
    for name in ("s", "kept", "later"):
        sites.queue(f"out {name}")
        sites.define(name, src_queue=f"out {name}", dest_queue=name, ack_mode="exactly-once")
    sites.run()
    sites.syncs["other"] = False
    for name in ("s", "kept", "later"):
        sites.publish(f"out {name}", numbered(5))
    staging = sites.here.broker.staging
    queues = sites.vhost().topology.queues
    staging.attach(queues["out"], "shovel 5f/%2F/s", 1)
    staging.attach(queues["out"], "shovel of an application", 2)
    sites.shovels.stop()
    parameters = sites.vhost().parameters
    parameters.delete("shovel", "s")
    value = parameters.get("shovel", "later")
    assert isinstance(value, dict)
    value["unknown"] = 5  # the definition of a later version of the broker
    sites.shovels.start()
    sites.run(4000)
    assert {name: queues[f"out {name}"].ready for name in ("s", "kept", "later")} == {
        "s": 5,
        "kept": 0,
        "later": 0,
    }
    assert {stage.reader for stage in staging.all()} == {
        "shovel %2F/kept",
        "shovel %2F/later",
        "shovel 5f/%2F/s",
        "shovel of an application",
    }
    assert sites.bodies("out s") == numbered(5)


def test_a_stage_of_another_queue_returns_at_the_start(sites: Sites) -> None:
    exactly_once(sites)
    sites.syncs["other"] = False
    sites.publish("out", numbered(5))
    sites.shovels.stop()
    sites.define_later(src_queue="other out", ack_mode="exactly-once")
    sites.syncs["other"] = True
    sites.shovels.start()
    sites.run(4000)
    queues = sites.vhost().topology.queues
    assert queues["out"].ready == 5
    assert [stage.queue for stage in sites.here.broker.staging.all()] == [queues["other out"]]
