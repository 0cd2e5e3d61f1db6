"""Shovels between two brokers in memory, by the hand clock: acknowledgements, failures, pauses, ends."""

from collections.abc import Callable
from itertools import pairwise

import pytest

from broker.core.errors import NotFound, PreconditionFailed
from broker.core.schedule import TimedTask
from broker.forwarding.attempt import HOLD_BLOCKED
from broker.forwarding.ends import Destination
from broker.forwarding.ports import Window
from broker.forwarding.shovel import PAUSED, RUNNING, STARTING, TERMINATED
from protocol.amqp091.content import body
from tests.support.forwarding import OTHER, Sites


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


@pytest.fixture
def sites() -> Sites:
    sites = Sites()
    sites.queue("out")
    sites.queue("in", "other")
    return sites


def test_messages_arrive_in_order_and_leave_the_source(sites: Sites) -> None:
    shovel = sites.define(src_prefetch_count=3)
    assert shovel.state == STARTING
    sites.publish("out", numbered(10))
    assert shovel.state == RUNNING
    assert sites.bodies("in", "other") == numbered(10)
    assert sites.bodies("out") == []
    assert (shovel.forwarded, shovel.confirmed, shovel.in_flight) == (10, 10, 0)


def test_a_message_stays_in_the_source_until_the_destination_has_it_on_disk(sites: Sites) -> None:
    shovel = sites.define()
    sites.run()
    sites.syncs["other"] = False
    sites.publish("out", numbered(3))
    assert sites.bodies("in", "other") == numbered(3)
    assert sites.bodies("out") == numbered(3)
    assert shovel.in_flight == 3
    sites.syncs["other"] = True
    sites.run()
    assert sites.bodies("out") == []


def test_a_message_that_only_was_published_leaves_the_source_with_on_publish(sites: Sites) -> None:
    shovel = sites.define(ack_mode="on-publish")
    sites.run()
    sites.syncs["other"] = False
    sites.publish("out", numbered(3))
    assert sites.bodies("out") == []
    assert shovel.confirmed == 3


def test_missing_queues_are_declared_and_predeclared_ones_must_exist() -> None:
    sites = Sites()
    sites.define(src_queue_args={"x-max-priority": 3}, dest_queue_args={"x-max-length": 9})
    missing = sites.define("missing", src_queue="none", src_predeclared=True, dest_queue="elsewhere")
    sites.run()
    assert sites.vhost().topology.queues["out"].arguments == {"x-max-priority": 3}
    assert sites.vhost("other").topology.queues["in"].arguments == {"x-max-length": 9}
    assert missing.state == TERMINATED
    assert missing.reason.startswith(
        "source this broker: the broker has closed the channel: 404 NOT_FOUND - no queue 'none'"
    )


def test_a_broker_that_cannot_be_reached_is_tried_again_after_the_delay(sites: Sites) -> None:
    sites.down["other"] = "Connection refused"
    shovel = sites.define(reconnect_delay=7)
    sites.run()
    assert (shovel.state, shovel.reason, shovel.attempts) == (
        TERMINATED,
        "destination other:5672: Connection refused",
        1,
    )
    sites.run(6_999)
    assert shovel.attempts == 1
    del sites.down["other"]
    sites.run(1)
    assert (shovel.state, shovel.reason, shovel.attempts) == (RUNNING, "", 2)


def test_without_a_delay_a_failed_shovel_stays_ended(sites: Sites) -> None:
    sites.down["other"] = "Connection refused"
    shovel = sites.define(reconnect_delay=0)
    sites.run(3_600_000)
    assert (shovel.state, shovel.attempts) == (TERMINATED, 1)
    del sites.down["other"]
    shovel.restart()
    sites.run()
    assert shovel.state == RUNNING


def test_several_addresses_are_tried_in_their_order(sites: Sites) -> None:
    sites.down["first"] = "No route to host"
    shovel = sites.define(dest_uri=["amqp://first", OTHER], reconnect_delay=1)
    sites.run()
    assert shovel.reason == "destination first:5672: No route to host"
    sites.run(1000)
    assert shovel.state == RUNNING


def test_a_connection_that_is_not_ready_in_time_has_failed(sites: Sites) -> None:
    sites.down["other"] = ""
    shovel = sites.define(dest_uri=f"{OTHER}?connection_timeout=2500")
    sites.run(2_499)
    assert shovel.state == STARTING
    sites.run(1)
    assert shovel.reason == (
        "destination other:5672: not ready 2.5 s after the attempt to connect: waiting for connection.start"
    )


def test_a_refused_log_in_is_the_reason(sites: Sites) -> None:
    shovel = sites.define(dest_uri="amqp://guest:wrong@other")
    sites.run()
    assert "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN" in shovel.reason


def test_a_local_uri_without_a_user_needs_no_log_in_and_one_with_a_user_does(sites: Sites) -> None:
    sites.here.door.at_once = False
    first = sites.define("first", dest_uri="amqp://", dest_queue="a")
    second = sites.define("second", dest_uri="amqp://guest:guest@/%2F", dest_queue="b")
    sites.run()
    assert (first.state, second.state) == (RUNNING, STARTING)
    [answer] = sites.here.door.asked
    answer(True)
    sites.run()
    assert second.state == RUNNING


def test_a_missing_virtual_host_is_the_reason(sites: Sites) -> None:
    shovel = sites.define(src_uri="amqp:///none")
    sites.run()
    assert shovel.reason == "source this broker: no vhost 'none'"


def test_a_dead_broker_is_noticed_by_its_silence(sites: Sites) -> None:
    shovel = sites.define(dest_uri=f"{OTHER}?heartbeat=4", reconnect_delay=60)
    sites.run()
    assert shovel.state == RUNNING
    sites.run(12_000)
    assert shovel.reason == "destination other:5672: missed heartbeats, the interval is 4 s"


def test_without_heartbeats_a_silent_broker_is_not_dead(sites: Sites) -> None:
    shovel = sites.define(dest_uri=f"{OTHER}?heartbeat=0", reconnect_delay=60)
    sites.run(600_000)
    assert (shovel.state, shovel.attempts) == (RUNNING, 1)


def test_a_source_that_is_not_read_is_not_taken_for_dead(sites: Sites) -> None:
    sites.queue("out", "other")
    shovel = sites.define(src_uri=f"{OTHER}?heartbeat=4", dest_uri="amqp://")
    sites.run()
    sites.here.server.shortage.set_shortages(True, False)
    sites.publish("out", numbered(3), "other")
    assert shovel.shown_state == "blocked"
    sites.run(60_000)
    assert (shovel.shown_state, shovel.attempts) == ("blocked", 1)
    sites.here.server.shortage.set_shortages(False, False)
    sites.run(12_000)
    assert shovel.reason == "source other:5672: missed heartbeats, the interval is 4 s"


def test_unconfirmed_messages_return_to_their_places_and_are_sent_again(sites: Sites) -> None:
    shovel = sites.define(reconnect_delay=1)
    sites.run()
    sites.syncs["other"] = False
    sites.publish("out", numbered(4))
    assert shovel.in_flight == 4
    for connection in list(sites.there.server.connections.all):
        connection.force_close("maintenance")
    sites.run()
    assert "CONNECTION_FORCED - maintenance" in shovel.reason
    assert shovel.in_flight == 0
    sites.syncs["other"] = True
    sites.run(1000)
    assert sites.bodies("out") == []
    assert sites.bodies("in", "other") == [*numbered(4), *numbered(4)], "at least once"


def test_a_deleted_source_ends_the_attempt(sites: Sites) -> None:
    shovel = sites.define()
    sites.run()
    sites.vhost().declarations.force_delete(sites.vhost().topology.queues["out"])
    sites.run()
    assert shovel.reason == "source this broker: the broker has cancelled the consumer: its queue was deleted"


def test_a_deleted_destination_loses_no_message(sites: Sites) -> None:
    shovel = sites.define(reconnect_delay=1)
    sites.run()
    sites.vhost("other").declarations.force_delete(sites.vhost("other").topology.queues["in"])
    sites.publish("out", [b"kept"])
    assert shovel.reason == "destination other:5672: a message was returned: 312 NO_ROUTE, queue 'in'"
    assert sites.bodies("out") == [b"kept"]
    sites.run(1000)
    assert sites.bodies("in", "other") == [b"kept"], "the shovel has declared the queue again"


def test_refused_messages_wait_and_keep_their_order(sites: Sites) -> None:
    sites.queue("small", "other", max_length=2, overflow="reject-publish")
    shovel = sites.define(dest_queue="small", src_prefetch_count=2)
    sites.publish("out", numbered(5))
    assert sites.bodies("small", "other") == numbered(2)
    assert shovel.refused == 2
    sites.run(999)
    assert shovel.refused == 2, "the source is not read meanwhile"
    small = sites.vhost("other").topology.queues["small"]
    sites.empty("small", "other")
    sites.run(1)
    assert sites.bodies("small", "other") == [b"2", b"3"]
    assert small.ready == 2


def test_a_shortage_at_the_destination_blocks_the_shovel(sites: Sites) -> None:
    shovel = sites.define()
    sites.run()
    sites.there.server.shortage.set_shortages(True, False)
    sites.publish("out", numbered(3))
    assert shovel.shown_state == "blocked"
    assert (shovel.forwarded, shovel.in_flight) == (3, 2), "the first one was taken"
    sites.publish("out", numbered(3))
    assert shovel.forwarded == 3, "the source is not read"
    sites.there.server.shortage.set_shortages(False, False)
    sites.run()
    assert shovel.shown_state == RUNNING
    assert sites.bodies("in", "other") == [*numbered(3), *numbered(3)]


def test_messages_wait_until_none_of_three_reasons_is_left(sites: Sites) -> None:
    shovel = sites.define()
    sites.run()
    attempt = shovel.attempt
    assert attempt is not None
    destination = attempt.destination
    assert isinstance(destination, Destination)
    shown = []
    notes: list[Callable[[], None]] = [
        lambda: destination.on_writable(False),
        lambda: destination.on_flow(False),
        lambda: destination.on_blocked("low on memory"),
        lambda: destination.on_writable(True),
        lambda: destination.on_blocked(""),
        lambda: destination.on_blocked("low on disk"),
        lambda: destination.on_flow(True),
    ]
    for note in notes:
        note()
        shown.append(attempt.blocked)
        sites.publish("out", [b""])
    stopped = "the broker has stopped the flow of the channel"
    assert shown == [
        "flow",
        stopped,
        "low on memory",
        "low on memory",
        stopped,
        "low on disk",
        "low on disk",
    ]
    assert (shovel.shown_state, shovel.forwarded) == ("blocked", 0)
    destination.on_blocked("")
    sites.run()
    assert (shovel.shown_state, shovel.forwarded) == (RUNNING, 7)


LARGE = bytes(range(256)) * 4096 * 6  # six pieces


def bodies(sites: Sites, queue: str, host: str) -> list[bytes]:
    """The bodies in a queue, also those in pieces."""
    entries = sites.vhost(host).topology.queues[queue].entries
    found = []
    for entry in entries:
        message = entry.message
        pieces = [] if message.body is None else message.body.pieces
        content = b"".join([message.content or b"", *[piece.content or b"" for piece in pieces]])
        found.append(body(content))
    return found


@pytest.mark.parametrize("mode", ["on-confirm", "on-publish", "no-ack", "exactly-once"])
@pytest.mark.parametrize("pulls", [True, False])
def test_a_large_body_passes_a_shovel_in_pieces(mode: str, pulls: bool) -> None:
    sites = Sites()
    source, destination = ("other", "") if pulls and mode != "exactly-once" else ("", "other")
    ends = {"src_uri": OTHER, "dest_uri": "amqp://"} if source else {}
    lines = sites.stuck["other"] = []
    sites.queue("out", source)
    sites.publish("out", [LARGE, b"small", LARGE[:2_000_000]], source)
    shovel = sites.define(ack_mode=mode, **ends)
    sites.run()
    assert bodies(sites, "in", destination) == [LARGE, b"small", LARGE[:2_000_000]]
    assert sites.bodies("out", source) == []
    assert shovel.forwarded_bytes >= len(LARGE) + 2_000_005
    if not source:
        assert lines[0].largest < 3_000_000


def test_a_large_body_ends_while_refused_messages_wait(sites: Sites) -> None:
    sites.queue("small", "other", max_length=1, overflow="reject-publish")
    sites.queue("out", "other")
    shovel = sites.define(src_uri=OTHER, dest_queue="small")
    sites.publish("out", [b"0", b"1", LARGE, b"3"], "other")
    found = []
    for _ in range(8):
        found += bodies(sites, "small", "other")
        sites.empty("small", "other")
        sites.run(1000)
    assert sorted(found, key=len) == [b"0", b"1", b"3", LARGE]
    assert (shovel.attempts, sites.bodies("out", "other")) == (1, [])


def test_a_large_body_that_is_cut_off_is_sent_again(sites: Sites) -> None:
    lines = sites.stuck["other"] = []
    shovel = sites.define(reconnect_delay=1)
    sites.run()
    lines[0].room = 2_500_000
    sites.publish("out", [LARGE])
    for connection in list(sites.there.server.connections.all):
        connection.force_close("maintenance")
    sites.run()
    assert shovel.state == TERMINATED
    assert sites.bodies("in", "other") == []
    sites.run(4000)
    assert bodies(sites, "in", "other") == [LARGE]


def test_a_shovel_ends_after_the_wanted_number(sites: Sites) -> None:
    sites.publish("out", numbered(10))
    shovel = sites.define(src_delete_after=4)
    sites.run()
    assert sites.bodies("in", "other") == numbered(4)
    assert sites.bodies("out") == numbered(10)[4:]
    assert shovel.state == TERMINATED
    assert sites.vhost().parameters.items() == []
    with pytest.raises(NotFound, match="no shovel 's' in vhost '/'"):
        sites.shovels.existing("/", "s")


def test_an_empty_queue_ends_a_shovel_of_its_length_at_once(sites: Sites) -> None:
    sites.define(src_delete_after="queue-length")
    sites.run()
    assert sites.shovels.all() == []
    assert sites.vhost().topology.queues["out"].consumer_count == 0


def test_the_wanted_number_counts_over_a_failure(sites: Sites) -> None:
    shovel = sites.define(src_delete_after=5, reconnect_delay=1)
    sites.publish("out", numbered(3))
    for connection in list(sites.there.server.connections.all):
        connection.force_close("maintenance")
    sites.run(1000)
    assert shovel.remaining == 2
    sites.publish("out", numbered(3))
    assert sites.shovels.all() == []
    assert len(sites.bodies("in", "other")) == 5
    assert sites.bodies("out") == [b"2"]


def test_a_changed_parameter_replaces_the_shovel_and_an_equal_one_does_not(sites: Sites) -> None:
    first = sites.define()
    sites.run()
    assert sites.define() is first
    second = sites.define(dest_queue="elsewhere")
    sites.run()
    assert second is not first
    assert (first.state, second.state) == (TERMINATED, RUNNING)
    assert sites.vhost().topology.queues["out"].consumer_count == 1


@pytest.mark.parametrize("mode", ["on-confirm", "exactly-once"])
def test_a_rate_limits_the_messages_of_each_second(mode: str) -> None:
    sites = Sites()
    sites.queue("out")
    sites.publish("out", numbered(100))
    shovel = sites.define(rate=20, ack_mode=mode)
    sites.run()
    counts = []
    for _ in range(6):
        counts.append(int(shovel.forwarded))
        sites.run(1000)
    assert counts[0] <= 20
    assert all(later - earlier <= 40 for earlier, later in pairwise(counts)), counts
    assert counts[-1] <= 20 + 5 * 20
    assert counts[-1] >= 4 * 20
    sites.run(2000)
    assert sites.bodies("in", "other") == numbered(100)


def test_a_paused_shovel_waits_until_it_is_resumed(sites: Sites) -> None:
    sites.define()
    sites.run()
    sites.shovels.set_paused("/", "s", True)
    sites.publish("out", numbered(3))
    shovel = sites.shovels.existing("/", "s")
    shovel.restart()
    sites.run(60_000)
    assert (shovel.shown_state, shovel.attempts) == (PAUSED, 0)
    assert sites.bodies("out") == numbered(3)
    assert sites.vhost().topology.queues["out"].consumer_count == 0
    sites.shovels.set_paused("/", "s", False)
    sites.run()
    assert sites.bodies("in", "other") == numbered(3)
    assert "paused" not in str(sites.vhost().parameters.get("shovel", "s"))


@pytest.mark.parametrize("after", [5, "queue-length"])
@pytest.mark.parametrize("paused", [True, False])
def test_a_shovel_that_counts_is_neither_paused_nor_resumed(
    sites: Sites, after: object, paused: bool
) -> None:
    sites.define(src_delete_after=after)
    with pytest.raises(PreconditionFailed, match="shovel 's' in vhost '/' counts its messages"):
        sites.shovels.set_paused("/", "s", paused)


@pytest.mark.parametrize("host", ["broken", "unknown"])
def test_an_error_of_the_broker_ends_the_attempt_and_not_the_event_loop(sites: Sites, host: str) -> None:
    shovel = sites.define(dest_uri=f"amqp://{host}", reconnect_delay=1)
    sites.define("t", dest_queue="x")
    sites.run()
    assert (shovel.state, shovel.reason) == (TERMINATED, "internal error, see the broker's log")
    assert sites.shovels.existing("/", "t").state == RUNNING
    sites.run(1000)
    assert shovel.attempts == 2


def test_stopped_shovels_leave_nothing_behind(sites: Sites) -> None:
    sites.define()
    sites.define("again", dest_uri="amqp://", dest_queue="x")
    sites.publish("out", numbered(2))
    sites.shovels.stop()
    sites.run(5_000)
    assert sites.lines == set()
    assert sites.vhost().topology.queues["out"].consumer_count == 0
    assert list(sites.here.server.connections.all) == []
    assert list(sites.there.server.connections.all) == []


@pytest.mark.parametrize("is_ready", [True, False])
def test_a_line_whose_output_nobody_takes_is_aborted(sites: Sites, is_ready: bool) -> None:
    stuck = sites.stuck["other"] = []
    sites.there.door.at_once = is_ready
    shovel = sites.define()
    sites.run()
    assert shovel.state == (RUNNING if is_ready else STARTING)
    stuck[0].jams = True
    sites.shovels.stop()
    sites.run(2_999)
    assert len(sites.lines) == 1
    sites.run(1)
    assert sites.lines == set()


class Holding(TimedTask):
    """A reason for taking no messages that comes while the source connects."""

    def __init__(self, sites: Sites) -> None:
        super().__init__()
        self.sites = sites

    def do_due_work(self) -> None:
        attempt = self.sites.shovels.existing("/", "s").attempt
        assert attempt is not None
        attempt.hold(HOLD_BLOCKED)


@pytest.mark.parametrize("moment", ["before the source is opened", "in the handshake of the source"])
def test_a_hold_takes_effect_when_the_source_is_ready(sites: Sites, moment: str) -> None:
    sites.queue("out", "other")
    holding = Holding(sites)
    if moment.startswith("in"):
        sites.dialed = lambda name: sites.clock.schedule.set(holding, sites.clock.now)
    shovel = sites.define(src_uri=OTHER, dest_uri="amqp://", dest_queue="x")
    if moment.startswith("before"):
        holding.do_due_work()
    sites.publish("out", numbered(3), "other")
    sites.run(60_000)
    assert (shovel.state, shovel.attempts, shovel.forwarded) == (RUNNING, 1, 0)
    assert shovel.attempt is not None
    shovel.attempt.release(HOLD_BLOCKED)
    sites.run()
    assert sites.bodies("x") == numbered(3)


def test_lines_of_a_broker_that_stops_end_at_once(sites: Sites) -> None:
    sites.define(dest_uri="amqp://", dest_queue="x")
    sites.run()
    sites.shovels.stop()
    for line in list(sites.lines):
        line.finish()
    assert list(sites.here.server.connections.all) == []


def test_a_window_counts_confirms_in_any_order() -> None:
    window = Window()
    window.sent = 10
    assert window.confirm(3, False) == [(3, 3)]
    assert window.confirm(3, False) == []
    assert window.confirm(5, True) == [(1, 2), (4, 5)]
    assert window.count() == 5
    assert window.confirm(4, True) == []
    assert window.confirm(6, False) == [(6, 6)]
    assert window.confirm(10, True) == [(7, 10)]
    assert window.count() == 0
