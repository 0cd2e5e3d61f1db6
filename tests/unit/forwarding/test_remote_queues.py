"""Remote queues between two brokers in memory: publishes, consumers, gets, broken links."""

from typing import Any

import pytest
from pamqp import base
from pamqp.body import ContentBody
from pamqp.commands import Basic, Channel, Confirm, Queue, Tx
from pamqp.frame import marshal
from pamqp.header import ContentHeader

from broker.core.errors import AccessRefused, Inequivalent, PreconditionFailed
from broker.core.policies.policy import parse_policy
from broker.core.queues import limits
from broker.core.queues.queue import Queue as CoreQueue
from broker.core.remotes.remote import RemoteQueue, remote_of
from broker.core.vhosts.alteration import alter_queue, stop_queue
from broker.dispatch.dispatcher import objection_to
from broker.forwarding.remote_queues import RETRY_MS, RETRY_MS_MAX, RUNNING, WAITING, Link, link_of
from protocol.amqp091.content import body
from protocol.amqp091.properties import Properties
from protocol.amqp10.composites import Accepted, Released
from protocol.amqp10.performatives import Disposition
from tests.support.adapters.connection10_without_socket import Client10
from tests.support.adapters.connection_without_socket import Client091
from tests.support.forwarding import Sites

SECRET = "s3cret"
FAR = f"amqp://guest:{SECRET}@other/%2F/far"
ADDRESS = f"amqp://u:{SECRET}@h/v/q"
FAR_OPEN = "amqp://guest:guest@other/%2F/far"


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


def make_sites(mode: str = "direct", **far: Any) -> Sites:
    sites = Sites()
    sites.queue("far", "other", **far)
    sites.queue("near", remote=FAR_OPEN, remote_mode=mode)
    sites.run()
    return sites


@pytest.fixture
def sites() -> Sites:
    return make_sites(dedup_producers=10)


@pytest.fixture
def hybrid() -> Sites:
    return make_sites("hybrid", dedup_producers=10)


def near(sites: Sites) -> CoreQueue:
    return sites.vhost().topology.queues["near"]


def remote(sites: Sites) -> RemoteQueue:
    found = remote_of(near(sites))
    assert found is not None
    return found


def link(sites: Sites) -> Link:
    found = link_of(remote(sites))
    assert found is not None
    return found


def far(sites: Sites) -> CoreQueue:
    return sites.vhost("other").topology.queues["far"]


def cut(sites: Sites) -> None:
    """End the connections of the other broker."""
    for connection in list(sites.there.server.connections.all):
        connection.force_close("maintenance")
    sites.run()


def go_down(sites: Sites) -> None:
    sites.down["other"] = "connection refused"
    cut(sites)


def come_up(sites: Sites) -> None:
    sites.down.clear()
    sites.run(20_000)


def publisher(sites: Sites) -> Client091:
    client = sites.here.open()
    client.send(Confirm.Select(), 1)
    client.frames()
    return client


def publish(sites: Sites, client: Client091, bodies: list[bytes], persistent: bool = True) -> None:
    for each in bodies:
        client.publish("near", each, persistent=persistent)
    sites.run()


def consumer(sites: Sites, prefetch: int = 10, no_ack: bool = False) -> Client091:
    client = sites.here.open()
    client.send(Basic.Qos(0, prefetch, False), 1)
    client.send(Basic.Consume(0, "near", "c", no_ack=no_ack), 1)
    sites.run()
    return client


def deliveries(client: Client091) -> list[tuple[int, bool, bytes]]:
    return [
        (int(frame.delivery_tag or 0), frame.redelivered, body(content))
        for frame, content in client.contents()
        if isinstance(frame, Basic.Deliver)
    ]


def found(client: Client091) -> list[bytes]:
    return [each for _, _, each in deliveries(client)]


def named(frames: list[base.Frame]) -> list[str]:
    return [frame.name for frame in frames]


# -- publishing


def test_a_publish_goes_to_the_other_broker_and_is_confirmed_when_it_is_on_its_disk(sites: Sites) -> None:
    assert link(sites).state == RUNNING, link(sites).reason
    client = publisher(sites)
    sites.syncs["other"] = False
    publish(sites, client, [b"a"])
    assert sites.bodies("far", "other") == [b"a"]
    assert client.confirms() == []
    sites.syncs["other"] = True
    sites.run()
    assert client.confirms() == [("Ack", 1, False)]
    assert sites.bodies("near") == []


def test_messages_arrive_in_order_and_each_is_confirmed(sites: Sites) -> None:
    client = publisher(sites)
    publish(sites, client, numbered(300))
    assert sites.bodies("far", "other") == numbered(300)
    assert sorted(tag or 0 for _, tag, _ in client.confirms()) == list(range(1, 301))


def test_transient_messages_go_too(sites: Sites) -> None:
    client = publisher(sites)
    publish(sites, client, [b"t"], persistent=False)
    assert sites.bodies("far", "other") == [b"t"]
    assert client.confirms() == [("Ack", 1, False)]


def test_confirms_for_other_queues_do_not_confirm_a_publish_that_waits(sites: Sites) -> None:
    sites.queue("here")
    client = publisher(sites)
    go_down(sites)
    client.publish("here", b"1", persistent=True)
    client.publish("near", b"2", persistent=True)
    client.publish("here", b"3", persistent=True)
    sites.run()
    assert client.confirms() == [("Ack", 1, False), ("Ack", 3, False)]
    client.publish("here", b"4", persistent=True)
    sites.run()
    assert client.confirms() == [("Ack", 4, False)]
    come_up(sites)
    assert client.confirms() == [("Ack", 2, False)]
    client.publish("here", b"5", persistent=True)
    client.publish("here", b"6", persistent=True)
    sites.run()
    assert client.confirms() == [("Ack", 6, True)]


def test_publishes_wait_unconfirmed_while_the_other_broker_is_away_and_then_follow_in_order(
    sites: Sites,
) -> None:
    client = publisher(sites)
    publish(sites, client, numbered(3))
    client.confirms()
    go_down(sites)
    sites.run(300)
    assert link(sites).state == WAITING
    assert "connection refused" in link(sites).reason
    publish(sites, client, numbered(5, 3))
    assert client.confirms() == []
    come_up(sites)
    assert sites.bodies("far", "other") == numbered(8)
    assert [tag for _, tag, _ in client.confirms()] == [4, 5, 6, 7, 8]


def test_publishes_beyond_the_limit_of_waiting_messages_are_refused() -> None:
    sites = Sites()
    sites.queue("far", "other")
    sites.queue("near", remote=FAR_OPEN, max_length=2, overflow="reject-publish")
    sites.run()
    go_down(sites)
    client = publisher(sites)
    publish(sites, client, numbered(2))
    assert client.confirms() == []
    publish(sites, client, [b"too many"])
    assert client.confirms() == [("Nack", 3, False)]
    come_up(sites)
    assert sites.bodies("far", "other") == numbered(2)


@pytest.mark.parametrize("dedup", [{}, {"dedup_producers": 10}])
def test_a_message_that_the_other_broker_refuses_is_nacked_and_dropped(dedup: dict[str, Any]) -> None:
    sites = make_sites(max_length=2, overflow="reject-publish", **dedup)
    client = publisher(sites)
    publish(sites, client, numbered(4))
    sites.run(5000)
    answers = client.confirms()
    assert sorted(answers, key=lambda each: each[1] or 0) == [
        ("Ack", 1, False),
        ("Ack", 2, False),
        ("Nack", 3, False),
        ("Nack", 4, False),
    ]
    assert sites.bodies("near") == []
    sites.empty("far", "other")
    publish(sites, client, [b"later"])
    sites.run(5000)
    assert sites.bodies("far", "other") == [b"later"]


def test_a_refused_message_without_a_waiting_publisher_is_sent_again_in_its_order() -> None:
    sites = make_sites("hybrid", max_length=2, overflow="reject-publish", dedup_producers=10)
    client = publisher(sites)
    publish(sites, client, numbered(6))
    assert client.confirms() != []
    sites.run(3000)
    seen = []
    for _ in range(10):
        seen += sites.bodies("far", "other")
        sites.empty("far", "other")
        sites.run(3000)
    assert seen == numbered(6)


def test_a_commit_is_answered_when_the_other_broker_has_the_messages(sites: Sites) -> None:
    client = sites.here.open()
    client.send(Tx.Select(), 1)
    client.frames()
    sites.syncs["other"] = False
    client.publish("near", b"a", persistent=True)
    client.publish("near", b"b", persistent=True)
    client.send(Tx.Commit(), 1)
    sites.run()
    assert client.frames() == []
    sites.syncs["other"] = True
    sites.run()
    assert named(client.frames()) == ["Tx.CommitOk"]
    assert sites.bodies("far", "other") == [b"a", b"b"]


def test_a_rolled_back_publish_never_leaves(sites: Sites) -> None:
    client = sites.here.open()
    client.send(Tx.Select(), 1)
    client.publish("near", b"a", persistent=True)
    client.send(Tx.Rollback(), 1)
    sites.run()
    assert sites.bodies("far", "other") == []


def test_an_unroutable_mandatory_message_is_returned_and_a_remote_queue_counts_as_a_route(
    sites: Sites,
) -> None:
    client = publisher(sites)
    client.publish("near", b"a", persistent=True, mandatory=True)
    sites.run()
    assert named(client.frames()) == ["Basic.Ack"]


def test_large_bodies_pass_both_ways(sites: Sites) -> None:
    large = bytes(range(256)) * 12_000
    client = publisher(sites)
    client.connection.frame_max = 131072
    publish(sites, client, [large, b"small"])
    assert [len(each) for each in bodies_there(sites)] == [len(large), 5]
    taker = consumer(sites)
    assert [len(each) for each in found(taker)] == [len(large), 5]


def bodies_there(sites: Sites) -> list[bytes]:
    client = sites.there.open()
    client.send(Basic.Consume(0, "far", "peek"), 1)
    sites.run()
    bodies = [body(content) for _, content in client.contents()]
    client.connection.on_lost("")
    sites.run()
    return bodies


def test_a_message_that_a_policy_drops_here_is_nacked(sites: Sites) -> None:
    policy = parse_policy("/", "p", "near", {"max-length": 2}, 0, "queues", False)
    sites.vhost().policies.put(policy)
    sites.vhost().policies.apply_all()
    go_down(sites)
    client = publisher(sites)
    publish(sites, client, numbered(4))
    assert client.confirms() == [("Nack", 1, False), ("Nack", 2, False)]
    sites.vhost().policies.put(parse_policy("/", "p", "near", {"max-length": 0}, 0, "queues", False))
    sites.vhost().policies.apply_all()
    publish(sites, client, [b"new"])
    assert ("Nack", 5, False) in client.confirms()


def test_publishers_of_a_deleted_queue_are_nacked(sites: Sites) -> None:
    client = publisher(sites)
    go_down(sites)
    publish(sites, client, numbered(2))
    sites.vhost().declarations.delete_queue("near", False, False)
    sites.run()
    assert sorted(tag or 0 for name, tag, _ in client.confirms() if name == "Nack") == [1, 2]


# -- AMQP 1.0


def outcomes(client: Client10) -> list[tuple[int, int, str]]:
    """The first and last deliveries of the dispositions that were written, and their outcomes."""
    found = []
    for frame, _ in client.written():
        if isinstance(frame, Disposition):
            found.append((frame.first, frame.last or frame.first, type(frame.state).__name__))
    return found


def test_outcomes_come_from_the_other_broker_in_the_order_of_the_deliveries(sites: Sites) -> None:
    client = Client10(sites.here)
    client.sends("near")
    sites.syncs["other"] = False
    client.publish(0, 1, 2, durable=True)
    sites.run()
    assert outcomes(client) == []
    sites.syncs["other"] = True
    sites.run()
    answered = [number for first, last, kind in outcomes(client) for number in range(first, last + 1)]
    assert answered == [0, 1, 2]
    assert len(sites.bodies("far", "other")) == 3


def test_a_refusal_of_the_other_broker_is_the_outcome_rejected() -> None:
    sites = make_sites(max_length=1, overflow="reject-publish")
    client = Client10(sites.here)
    client.sends("near")
    client.publish(0, 1, durable=True)
    sites.run(3000)
    assert outcomes(client) == [(0, 0, "Accepted"), (1, 1, "Rejected")]


def test_a_receiver_gets_the_messages_there_and_settles_them_there(sites: Sites) -> None:
    sites.publish("far", numbered(3), "other")
    client = Client10(sites.here)
    client.receives("near", credit=2)
    sites.run()
    assert (far(sites).unacked, far(sites).ready) == (2, 1)
    client.send(Disposition(role=True, first=0, last=0, settled=True, state=Accepted()))
    client.send(Disposition(role=True, first=1, last=1, settled=True, state=Released()))
    sites.run()
    assert (far(sites).unacked, far(sites).ready) == (0, 2)


# -- hybrid


def test_in_hybrid_mode_a_message_is_confirmed_here_and_follows_later(hybrid: Sites) -> None:
    client = publisher(hybrid)
    go_down(hybrid)
    publish(hybrid, client, numbered(5))
    assert client.confirms() == [("Ack", 5, True)]
    assert hybrid.bodies("near") == numbered(5)
    come_up(hybrid)
    assert hybrid.bodies("far", "other") == numbered(5)
    assert hybrid.bodies("near") == []


def test_a_link_that_breaks_often_loses_doubles_and_reorders_nothing(hybrid: Sites) -> None:
    client = publisher(hybrid)
    for turn in range(50):
        for each in numbered(20, 20 * turn):
            client.publish("near", each, persistent=True)
        if turn % 2:
            hybrid.syncs["other"] = False
        hybrid.run()
        cut(hybrid)
        hybrid.syncs["other"] = True
        hybrid.run(turn * 7)
    hybrid.run(20_000)
    assert hybrid.bodies("far", "other") == numbered(1000)
    assert hybrid.bodies("near") == []


# -- consuming


def test_after_a_message_got_through_the_next_failure_is_a_first_one(sites: Sites) -> None:
    near_link = link(sites)
    near_link._delay = RETRY_MS_MAX  # as after many failures
    publish(sites, publisher(sites), [b"there"])
    assert near_link._delay == RETRY_MS
    near_link._delay = RETRY_MS_MAX
    consumer(sites)
    assert near_link._delay == RETRY_MS, "a message came back"


def test_a_consumer_here_gets_the_messages_there_and_settles_them_there(sites: Sites) -> None:
    sites.publish("far", numbered(5), "other")
    client = consumer(sites)
    assert deliveries(client) == [(number + 1, False, each) for number, each in enumerate(numbered(5))]
    assert far(sites).unacked == 5
    client.send(Basic.Ack(2, True), 1)
    sites.run()
    assert (far(sites).unacked, far(sites).acked) == (3, 2)


def test_messages_keep_their_properties_and_address(sites: Sites) -> None:
    client = publisher(sites)
    publish(sites, client, [b"x"])
    [entry] = far(sites).entries
    assert "x-origin" in Properties(entry.message.content or b"").headers()
    taker = consumer(sites)
    [(frame, content)] = taker.contents()
    assert isinstance(frame, Basic.Deliver)
    assert (frame.exchange, frame.routing_key) == ("", "far")
    assert "x-origin" not in Properties(content).headers()


def test_no_more_messages_come_than_consumers_have_credit_for(sites: Sites) -> None:
    sites.publish("far", numbered(20), "other")
    client = consumer(sites, 3)
    assert len(found(client)) == 3
    assert (far(sites).unacked, far(sites).ready) == (3, 17)
    other = consumer(sites, 4)
    assert len(found(other)) == 4
    assert (far(sites).unacked, far(sites).ready) == (7, 13)
    client.send(Basic.Ack(3, True), 1)
    sites.run()
    assert len(found(client)) == 3
    assert (far(sites).unacked, far(sites).ready) == (7, 10)


def test_an_unlimited_consumer_gets_everything(sites: Sites) -> None:
    sites.publish("far", numbered(5000), "other")
    client = consumer(sites, 0)
    sites.run(100)
    assert found(client) == numbered(5000)


def test_a_consumer_without_acknowledgements_gets_everything(sites: Sites) -> None:
    sites.publish("far", numbered(3000), "other")
    client = consumer(sites, 0, no_ack=True)
    sites.run(100)
    assert found(client) == numbered(3000)
    assert far(sites).messages == 0


def test_nack_and_reject_requeue_there_with_the_flag_redelivered(sites: Sites) -> None:
    sites.publish("far", numbered(2), "other")
    client = consumer(sites, 1)
    assert deliveries(client) == [(1, False, b"0")]
    client.send(Basic.Nack(1, False, True), 1)
    sites.run()
    assert deliveries(client) == [(2, True, b"0")]
    client.send(Basic.Reject(2, True), 1)
    sites.run()
    assert deliveries(client) == [(3, True, b"0")]


def test_a_rejected_message_is_dead_lettered_there() -> None:
    sites = Sites()
    sites.queue("dead", "other")
    sites.queue("far", "other", dead_letter_exchange="", dead_letter_routing_key="dead")
    sites.queue("near", remote=FAR_OPEN)
    sites.publish("far", numbered(2), "other")
    client = consumer(sites)
    client.send(Basic.Reject(1, False), 1)
    client.send(Basic.Nack(2, False, False), 1)
    sites.run()
    assert sites.bodies("dead", "other") == numbered(2)
    assert far(sites).messages == 0


def test_a_consumer_that_ends_returns_its_messages(sites: Sites) -> None:
    sites.publish("far", numbered(4), "other")
    client = consumer(sites)
    assert len(found(client)) == 4
    client.connection.on_lost("")
    sites.run()
    assert (far(sites).unacked, far(sites).ready) == (0, 4)
    other = consumer(sites)
    assert deliveries(other) == [(number + 1, True, each) for number, each in enumerate(numbered(4))]


def test_without_consumers_messages_stay_there(sites: Sites) -> None:
    client = consumer(sites, 2)
    client.send(Basic.Cancel("c"), 1)
    sites.run()
    sites.publish("far", numbered(3), "other")
    assert (far(sites).unacked, far(sites).ready) == (0, 3)
    assert far(sites).consumer_count == 0


def test_a_broken_link_makes_deliveries_stale_and_a_late_ack_has_no_effect(sites: Sites) -> None:
    sites.publish("far", numbered(3), "other")
    client = consumer(sites, 3)
    assert found(client) == numbered(3)
    cut(sites)
    sites.run(1000)
    client.send(Basic.Ack(1, False), 1)
    sites.run(1000)
    assert deliveries(client) == [(4, True, b"0")], "credit comes back with each late answer"
    client.send(Basic.Nack(3, True, True), 1)
    sites.run(1000)
    assert deliveries(client) == [(5, True, b"1"), (6, True, b"2")]
    client.send(Basic.Ack(6, True), 1)
    sites.run()
    assert far(sites).messages == 0
    assert client.frames() == []


def test_acknowledgements_in_a_transaction_count_there_from_the_commit_on(sites: Sites) -> None:
    sites.publish("far", numbered(2), "other")
    client = sites.here.open()
    client.send(Tx.Select(), 1)
    client.send(Basic.Consume(0, "near", "c"), 1)
    sites.run()
    client.frames()
    client.send(Basic.Ack(2, True), 1)
    sites.run()
    assert far(sites).unacked == 2
    client.send(Tx.Commit(), 1)
    sites.run()
    assert named(client.frames()) == ["Tx.CommitOk"]
    assert far(sites).messages == 0


def test_deletion_cancels_consumers_and_leaves_the_other_queue(sites: Sites) -> None:
    sites.publish("far", numbered(2), "other")
    client = consumer(sites)
    client.frames()
    sites.vhost().declarations.delete_queue("near", False, False)
    sites.run()
    assert named(client.frames()) == ["Basic.Cancel"]
    assert (far(sites).ready, far(sites).unacked) == (2, 0)


def test_a_missing_queue_is_shown_and_found_when_it_comes() -> None:
    sites = Sites()
    sites.queue("near", remote=FAR_OPEN)
    sites.run()
    assert link(sites).state == WAITING
    assert "404 NOT_FOUND - no queue 'far'" in link(sites).reason
    sites.queue("far", "other")
    sites.run(20_000)
    assert link(sites).state == RUNNING


# -- basic.get


def test_get_takes_one_message_there(sites: Sites) -> None:
    sites.publish("far", numbered(2), "other")
    client = sites.here.open()
    client.send(Basic.Get(0, "near"), 1)
    sites.run()
    [(frame, content)] = client.contents()
    assert isinstance(frame, Basic.GetOk)
    assert (frame.delivery_tag, frame.redelivered, body(content)) == (1, False, b"0")
    assert (far(sites).unacked, far(sites).ready) == (1, 1)
    client.send(Basic.Ack(1), 1)
    sites.run()
    assert far(sites).messages == 1


def test_get_from_an_empty_queue_and_without_a_link(sites: Sites) -> None:
    client = sites.here.open()
    client.send(Basic.Get(0, "near"), 1)
    sites.run()
    assert named(client.frames()) == ["Basic.GetEmpty"]
    go_down(sites)
    client.send(Basic.Get(0, "near"), 1)
    client.send(Basic.Get(0, "near"), 1)
    sites.run()
    assert named(client.frames()) == ["Basic.GetEmpty"] * 2


# -- counts, purge, declarations


def test_counts_come_from_the_other_broker(sites: Sites) -> None:
    sites.publish("far", numbered(7), "other")
    sites.run(6000)
    client = sites.here.open()
    client.send(Queue.Declare(0, "near", passive=True), 1)
    sites.run()
    [answer] = client.frames()
    assert isinstance(answer, Queue.DeclareOk)
    assert (answer.message_count, answer.consumer_count) == (7, 0)


def test_a_purge_empties_both_sides(hybrid: Sites) -> None:
    hybrid.publish("far", numbered(3), "other")
    client = hybrid.here.open()
    client.send(Queue.Purge(0, "near"), 1)
    hybrid.run()
    [answer] = client.frames()
    assert isinstance(answer, Queue.PurgeOk)
    assert answer.message_count == 3
    assert far(hybrid).messages == 0
    go_down(hybrid)
    client.send(Queue.Purge(0, "near"), 1)
    hybrid.run()
    [refused] = client.frames()
    assert isinstance(refused, Channel.Close)
    assert "cannot be purged" in str(refused.reply_text)


def declare(
    sites: Sites, name: str = "q", durable: bool = True, auto_delete: bool = False, **more: Any
) -> None:
    arguments = {f"x-{key.replace('_', '-')}": value for key, value in more.items()}
    sites.vhost().declarations.declare_queue(name, durable, None, auto_delete, arguments)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"remote": "here"}, "does not begin with a scheme"),
        ({"remote": f"http://u:{SECRET}@h/"}, "has the scheme 'http'"),
        ({"remote": f"amqp://u:{SECRET}@h/v/q?queue=r"}, "names more than one queue: 'amqp://h/v/q'"),
        ({"remote": "amqp://"}, "has no host"),
        ({"remote": ADDRESS, "queue_type": "stream"}, "x-remote"),
        (
            {"remote": ADDRESS, "message_ttl": 1},
            "belongs to the queue in the other broker",
        ),
        (
            {"remote": ADDRESS, "max_priority": 3},
            "belongs to the queue in the other broker",
        ),
        ({"remote": ADDRESS, "max_length": 3}, "needs x-overflow 'reject-publish'"),
        ({"remote": ADDRESS, "remote_mode": "x"}, "is not one of direct, hybrid"),
        ({"remote_mode": "hybrid"}, "needs x-remote"),
        ({"remote": 5}, "is not a string"),
        ({"remote": ADDRESS, "durable": False}, "'non-durable'"),
        ({"remote": ADDRESS, "auto_delete": True}, "'auto-delete'"),
    ],
)
def test_a_declaration_that_makes_no_sense_is_refused(
    sites: Sites, arguments: dict[str, Any], text: str
) -> None:
    with pytest.raises(PreconditionFailed) as refusal:
        declare(sites, **arguments)
    assert text in refusal.value.text
    assert SECRET not in refusal.value.text


def test_a_redeclaration_does_not_tell_whether_a_password_was_guessed(sites: Sites) -> None:
    declare(sites, "near", remote=FAR_OPEN)
    declare(sites, "near", remote=FAR)


def test_a_redeclaration_need_not_know_the_address(sites: Sites) -> None:
    declare(sites, "near")
    declare(sites, "near", remote=FAR_OPEN)
    with pytest.raises(Inequivalent) as refusal:
        declare(sites, "near", remote=FAR.replace("other", "elsewhere"))
    assert SECRET not in refusal.value.text
    assert "guest" not in refusal.value.text


def test_only_policymakers_declare_remote_queues(sites: Sites) -> None:
    client = sites.here.open()
    rights = client.connection.rights
    rights.require_remote("q", {"x-remote": FAR})
    client.connection.rights.user = "app"
    with pytest.raises(AccessRefused, match="who needs the tag 'policymaker'"):
        rights.require_remote("q", {"x-remote": FAR})
    rights.require_remote("q", {})


def test_selecting_and_exclusive_consumers_are_refused(sites: Sites) -> None:
    refused_arguments: list[dict[str, Any]] = [
        {"x-filter-jms-selector": "a = 1"},
        {"x-exclusive-consumer": True},
    ]
    for arguments in refused_arguments:
        client = sites.here.open()
        client.send(Basic.Consume(0, "near", "c", arguments=arguments), 1)
        sites.run()
        [refused] = client.frames()
        assert isinstance(refused, Channel.Close)
        assert refused.reply_code == 406, refused.reply_text


def test_a_remote_queue_is_no_member_and_is_not_staged_renamed_or_stopped(sites: Sites) -> None:
    with pytest.raises(PreconditionFailed, match="it is remote"):
        declare(sites, "p", queue_kind="partitioned", partition_by="k", partition_members=["near"])
    with pytest.raises(PreconditionFailed, match="cannot be staged"):
        sites.here.broker.staging.attach(near(sites), "r", 1)
    topology = sites.vhost().topology
    with pytest.raises(PreconditionFailed, match="cannot be renamed"):
        alter_queue(topology, near(sites), "other", near(sites).arguments, False)
    with pytest.raises(PreconditionFailed, match="cannot be stopped or started"):
        stop_queue(topology, near(sites), ["dequeue"])
    assert "is remote" in objection_to(near(sites))


def test_an_immediate_message_has_no_consumer_in_a_remote_queue(sites: Sites) -> None:
    client = publisher(sites)
    client.send(Basic.Publish(0, "", "near", immediate=True), 1)
    header = ContentHeader(body_size=1, properties=Basic.Properties(delivery_mode=2))
    client.connection.receive(marshal(header, 1) + marshal(ContentBody(b"x"), 1))
    sites.run(1000)
    assert "Basic.Return" in named(client.frames())
    assert near(sites).depth == 0
    publish(sites, client, [b"later"])
    assert sites.bodies("far", "other") == [b"later"]


def test_a_message_that_was_nacked_is_not_sent_with_an_older_one() -> None:
    sites = make_sites(max_length=2, overflow="reject-publish", dedup_producers=10)
    client = publisher(sites)
    publish(sites, client, [b"a"])
    sites.publish("far", [b"fill"], "other")
    sites.here.open().publish("near", b"older", persistent=True)  # nobody waits for a confirm
    client.frames()
    for each in (b"refused", b"refused too"):
        client.publish("near", each, persistent=True)
    sites.run(3000)
    assert {name for name, _, _ in client.confirms()} == {"Nack"}
    sites.vhost("other").topology.queues["far"].arguments["x-max-length"] = 100
    limits.apply(far(sites), sites.vhost("other"))
    sites.run(15_000)
    assert sites.bodies("far", "other") == [b"a", b"fill", b"older"]
    assert link(sites).state == RUNNING
    assert link(sites).attempts == 1


def test_a_link_counts_its_messages_for_metrics() -> None:
    sites = make_sites(max_length=2, overflow="reject-publish")
    publish(sites, publisher(sites), numbered(3))
    each = link(sites)
    assert (each.forwarded, each.confirmed, each.refused, each.in_flight) == (3, 2, 1, 0)
    assert (each.labels, each.is_running, each.source_ready, each.attempts) == (("near", "/"), True, 0, 1)


def test_a_link_of_a_deleted_queue_has_no_metrics(sites: Sites) -> None:
    links = sites.remotes.links
    assert links() == [link(sites)]
    sites.vhost().declarations.delete_queue("near", False, False)
    sites.run()
    assert links() == []


# -- brokers with a limit for each consumer, and unacknowledged gets


def limit_each_consumer(sites: Sites) -> None:
    """Make the link take the other broker for one without a limit that consumers share."""
    link(sites).shares_window = False
    cut(sites)
    sites.run(1000)
    assert link(sites).state == RUNNING


def get(sites: Sites, client: Client091, count: int) -> list[bytes]:
    """Get messages, which stay unacknowledged."""
    bodies = []
    for _ in range(count):
        client.send(Basic.Get(0, "near"), 1)
        sites.run()
        bodies += [body(content) for _, content in client.contents()]
    return bodies


@pytest.mark.parametrize("shares", [True, False])
def test_unacknowledged_gets_do_not_fetch_messages_without_demand(sites: Sites, shares: bool) -> None:
    if not shares:
        limit_each_consumer(sites)
    sites.publish("far", numbered(30), "other")
    getter = sites.here.open()
    assert get(sites, getter, 5) == numbered(5)
    client = consumer(sites, 3)
    assert found(client) == numbered(3, 5)
    sites.run(3000)
    assert (far(sites).unacked, far(sites).ready) == (8, 22)
    client.send(Basic.Ack(1, False), 1)
    sites.run(3000)
    assert found(client) == [b"8"]
    getter.send(Basic.Ack(0, True), 1)
    sites.run(3000)
    assert (far(sites).unacked, far(sites).ready, far(sites).redelivered) == (3, 21, 0)
    assert far(sites).delivered == 9


def test_a_limit_for_each_consumer_follows_the_demand(sites: Sites) -> None:
    limit_each_consumer(sites)
    sites.publish("far", numbered(300), "other")
    clients = [consumer(sites, prefetch) for prefetch in (1, 5, 20)]
    sites.run(5000)
    assert (far(sites).unacked, far(sites).redelivered) == (26, 0)
    seen: list[bytes] = []
    while len(seen) < 300:
        for client in clients:
            for tag, _, each in deliveries(client):
                seen.append(each)
                client.send(Basic.Ack(tag), 1)
            sites.run(100)
            assert far(sites).unacked <= 26
    assert sorted(seen) == sorted(numbered(300))
    assert far(sites).redelivered == 0
    clients[2].send(Basic.Cancel("c"), 1)
    sites.publish("far", numbered(30), "other")
    sites.run(3000)
    assert (far(sites).unacked, far(sites).ready) == (6, 24)
    assert far(sites).redelivered == 0


def test_large_messages_count_in_the_limit_while_they_arrive(sites: Sites) -> None:
    limit_each_consumer(sites)
    client = publisher(sites)
    client.connection.frame_max = 131072
    publish(sites, client, [bytes(3_000_000)] * 5)
    taker = consumer(sites, 2)
    attempt = link(sites).attempt
    assert attempt is not None
    for _ in range(100):
        attempt.intake.look()
        sites.here.turns.run()
        sites.there.turns.run()
    sites.run(3000)
    assert len(found(taker)) == 2
    assert (far(sites).unacked, far(sites).ready, far(sites).redelivered) == (2, 3, 0)


def test_a_message_that_waits_for_room_in_a_window_of_bytes_stays_here(sites: Sites) -> None:
    sites.publish("far", [b"x" * 60, b"y" * 60], "other")
    client = sites.here.open()
    client.send(Basic.Qos(100, 0, False), 1)
    client.send(Basic.Consume(0, "near", "c"), 1)
    sites.run(3000)
    assert found(client) == [b"x" * 60]
    assert far(sites).redelivered == 0
    client.send(Basic.Ack(1), 1)
    sites.run()
    assert deliveries(client) == [(2, False, b"y" * 60)]


# -- purge over a broken link


def test_a_purge_whose_link_breaks_is_an_error(sites: Sites) -> None:
    client = sites.here.open()
    attempt = link(sites).attempt
    assert attempt is not None
    attempt.intake.hold()
    client.send(Queue.Purge(0, "near"), 1)
    attempt.intake.on_lost("no route to host")
    sites.run()
    [refused] = client.frames()
    assert isinstance(refused, Channel.Close)
    assert (refused.reply_code, "broke before its answer" in str(refused.reply_text)) == (406, True)
    sites.run(1000)
    client = sites.here.open()
    client.send(Queue.Purge(0, "near"), 1)
    sites.run()
    assert named(client.frames()) == ["Queue.PurgeOk"]
