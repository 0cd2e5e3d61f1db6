"""Policies: checks, matching, priority, the effect on live queues and exchanges, and recovery."""

import json

import pytest

from broker.core.broker import Broker
from broker.core.counters import Counters
from broker.core.errors import NotFound, PreconditionFailed, StoreFailed
from broker.core.message import Address, Message
from broker.core.policies.policy import Policy, parse_policy
from broker.core.schedule import Schedule
from broker.core.vhosts.policies import SLICE
from broker.store.restore import Recovered
from tests.support.core.hand_clock import HandClock
from tests.support.core.policies import effective_keys, set_policy
from tests.support.core.topology import (
    RecordingStore,
    add_exchange,
    add_queue,
    definitions_of,
    new_broker,
    new_vhost,
    routed,
)


def test_a_policy_holds_for_queues_that_are_there_and_for_new_ones() -> None:
    vhost = new_vhost()
    old = add_queue(vhost, "orders.1")
    other = add_queue(vhost, "invoices")
    set_policy(vhost, "p", r"^orders\.", message_ttl=1000)
    new = add_queue(vhost, "orders.2")
    assert old.effective == new.effective == {"x-message-ttl": 1000}
    assert old.arguments == {}, "what was declared stays what was declared"
    assert other.effective == {}
    assert other.effective is other.arguments
    vhost.policies.delete("p")
    vhost.policies.apply_all()
    assert old.effective == new.effective == {}


def test_a_pattern_matches_anywhere_unless_it_is_anchored() -> None:
    vhost = new_vhost()
    queue = add_queue(vhost, "an.order.queue")
    set_policy(vhost, "p", "order", max_length=1)
    assert queue.effective == {"x-max-length": 1}
    set_policy(vhost, "p", "^order", max_length=1)
    assert queue.effective == {}


@pytest.mark.parametrize(
    ("apply_to", "reached"),
    [
        ("all", "classic none quorum stream exchange"),
        ("queues", "classic none quorum stream"),
        ("classic_queues", "classic none"),
        ("quorum_queues", "quorum"),
        ("streams", "stream"),
        ("exchanges", "exchange"),
    ],
)
def test_apply_to_selects_queues_and_exchanges(apply_to: str, reached: str) -> None:
    vhost = new_vhost()
    for kind in ("classic", "quorum", "stream"):
        vhost.topology.add_queue(kind, False, None, False, {"x-queue-type": kind}, 0)
    add_queue(vhost, "none")
    add_exchange(vhost, "exchange")
    set_policy(vhost, "p", "", apply_to=apply_to, max_age="1D", alternate_exchange="amq.fanout")
    found = {name for name, queue in vhost.topology.queues.items() if "x-max-age" in queue.effective}
    found |= {"exchange"} & {
        exchange.name for exchange in vhost.topology.exchanges.values() if exchange.alternate
    }
    assert found == set(reached.split())


def test_policies_add_up_and_the_higher_priority_wins_key_by_key() -> None:
    vhost = new_vhost()
    queue = add_queue(vhost, "q")
    set_policy(vhost, "low", "", priority=-1, message_ttl=1, max_length=1, expires=1)
    set_policy(vhost, "high", "", priority=5, message_ttl=500)
    set_policy(vhost, "middle", "", priority=0, message_ttl=5, max_length=50)
    assert queue.effective == {"x-message-ttl": 500, "x-max-length": 50, "x-expires": 1}
    assert effective_keys(vhost.policies.explain_queue(queue)) == {
        "message-ttl": (500, "policy", "high"),
        "max-length": (50, "policy", "middle"),
        "expires": (1, "policy", "low"),
    }
    won_over = vhost.policies.explain_queue(queue)["message-ttl"].others
    assert [(claim.name, claim.value) for claim in won_over] == [("middle", 5), ("low", 1)]


def test_the_first_by_name_wins_of_two_policies_with_the_same_priority() -> None:
    vhost = new_vhost()
    queue = add_queue(vhost, "q")
    set_policy(vhost, "b", "", overflow="drop-head")
    set_policy(vhost, "a", "", overflow="reject-publish")
    assert queue.effective == {"x-overflow": "reject-publish"}


def test_operator_policies_cap() -> None:
    vhost = new_vhost()
    queue = add_queue(vhost, "q")
    set_policy(vhost, "p", "", max_length=100, message_ttl=10, overflow="drop-head", dead_letter_exchange="d")
    set_policy(
        vhost, "cap", "", operator=True, max_length=50, message_ttl=20, overflow="reject-publish", expires=7
    )
    assert effective_keys(vhost.policies.explain_queue(queue)) == {
        "dead-letter-exchange": ("d", "policy", "p"),
        "expires": (7, "operator_policy", "cap"),
        "max-length": (50, "operator_policy", "cap"),
        "message-ttl": (10, "policy", "p"),
        "overflow": ("reject-publish", "operator_policy", "cap"),
    }


def test_an_operator_policy_of_higher_priority_may_lift_a_general_cap() -> None:
    vhost = new_vhost()
    queue = add_queue(vhost, "special")
    set_policy(vhost, "general", "", operator=True, max_length=10)
    set_policy(vhost, "special", "^special$", priority=1, operator=True, max_length=1000)
    assert queue.effective == {"x-max-length": 1000}


def test_a_negative_delivery_limit_is_no_limit() -> None:
    vhost = new_vhost()
    queue = add_queue(vhost, "q")
    set_policy(vhost, "p", "", delivery_limit=-1)
    set_policy(vhost, "cap", "", operator=True, delivery_limit=30)
    assert queue.effective == {"x-delivery-limit": 30}
    set_policy(vhost, "p", "", delivery_limit=5)
    assert queue.effective == {"x-delivery-limit": 5}


@pytest.mark.parametrize(
    ("key", "argument", "policy", "held"),
    [
        ("message-ttl", 10, 20, 10),
        ("message-ttl", 20, 10, 10),
        ("max-length", 7, 0, 0),
        ("delivery-limit", -1, 3, 3),
        ("dead-letter-exchange", "mine", "theirs", "mine"),
        ("overflow", "drop-head", "reject-publish", "drop-head"),
    ],
)
def test_arguments_win_but_the_least_of_a_limit_holds(
    key: str, argument: object, policy: object, held: object
) -> None:
    vhost = new_vhost()
    queue = vhost.declarations.declare_queue("q", False, None, False, {f"x-{key}": argument})
    set_policy(vhost, "p", "", definition={key: policy})
    assert queue.effective == {f"x-{key}": held}
    source = vhost.policies.explain_queue(queue)[key].source
    assert (source.kind, source.value) == ("argument" if held == argument else "policy", held)


def test_policies_win_over_the_overflow_of_quorum_queues_and_over_what_streams_keep() -> None:
    vhost = new_vhost()
    quorum = {"x-queue-type": "quorum", "x-overflow": "drop-head"}
    stream = {"x-queue-type": "stream", "x-max-age": "1D", "x-max-length-bytes": 1}
    vhost.declarations.declare_queue("quorum", True, None, False, dict(quorum))
    vhost.topology.add_queue("stream", False, None, False, dict(stream), 0)
    set_policy(vhost, "p", "", overflow="reject-publish", max_age="2D", max_length_bytes=5)
    assert vhost.topology.queues["quorum"].effective["x-overflow"] == "reject-publish"
    held = vhost.topology.queues["stream"].effective
    assert (held["x-max-age"], held["x-max-length-bytes"]) == ("2D", 5)


def test_a_policy_keeps_arguments_that_it_does_not_set() -> None:
    vhost = new_vhost()
    queue = vhost.declarations.declare_queue("q", False, None, False, {"x-max-priority": 3, "mine": "x"})
    set_policy(vhost, "p", "", max_length=1)
    assert queue.effective == {"x-max-priority": 3, "mine": "x", "x-max-length": 1}
    assert set(vhost.policies.explain_queue(queue)) == {"max-length"}


def test_an_alternate_exchange_by_policy_takes_effect_and_ends_with_the_policy() -> None:
    vhost = new_vhost()
    add_queue(vhost, "unrouted")
    vhost.declarations.bind_queue("unrouted", "amq.fanout", "", {})
    add_exchange(vhost, "x")
    route = vhost.publisher.route("x", "nowhere")
    epoch = vhost.topology.epoch
    set_policy(vhost, "p", "^x$", alternate_exchange="amq.fanout")
    assert vhost.topology.epoch > epoch, "routes that were resolved before are stale"
    vhost.publisher.refresh(route)
    assert [queue.name for queue in route.queues] == ["unrouted"]
    add_exchange(vhost, "y", alternate_exchange="amq.direct")
    set_policy(vhost, "p", "^[xy]$", alternate_exchange="amq.fanout")
    assert routed(vhost, "y", "nowhere") == [], "the argument wins"
    assert effective_keys(vhost.policies.explain_exchange(vhost.topology.exchanges["x"])) == {
        "alternate-exchange": ("amq.fanout", "policy", "p")
    }
    assert effective_keys(vhost.policies.explain_exchange(vhost.topology.exchanges["y"])) == {
        "alternate-exchange": ("amq.direct", "argument", "alternate-exchange")
    }
    vhost.policies.delete("p")
    vhost.policies.apply_all()
    assert routed(vhost, "x", "nowhere") == []


def test_a_change_that_concerns_no_exchange_leaves_routes_alone() -> None:
    vhost = new_vhost()
    add_queue(vhost, "q")
    epoch = vhost.topology.epoch
    set_policy(vhost, "p", "", max_length=1)
    set_policy(vhost, "a", "nothing has this name", alternate_exchange="amq.fanout")
    assert vhost.topology.epoch == epoch


def test_the_default_exchange_has_no_policies() -> None:
    vhost = new_vhost()
    set_policy(vhost, "p", "", alternate_exchange="amq.fanout")
    add_queue(vhost, "q")
    vhost.declarations.bind_queue("q", "amq.fanout", "", {})
    assert routed(vhost, "", "nowhere") == []


def test_policies_are_appended_and_come_back() -> None:
    store = RecordingStore()
    broker = new_broker(store)
    vhost = broker.declare_vhost("/")
    set_policy(vhost, "p", "^q", priority=3, apply_to="queues", message_ttl=5)
    set_policy(vhost, "p", "^q", priority=3, apply_to="queues", message_ttl=5)  # the same again is no change
    set_policy(vhost, "cap", "", operator=True, max_length=5)
    set_policy(vhost, "gone", "", expires=5)
    vhost.policies.delete("gone")
    assert store.kinds() == ["vhost", "policy", "operator_policy", "policy", "policy.delete"]
    vhost.declarations.declare_queue("q", True, None, False, {})
    for changes in (store.changes, definitions_of(broker)):
        again = new_broker()
        for change in reversed(changes) if changes is store.changes else changes:
            if change["kind"] != "policy.delete":
                again.apply(json.loads(json.dumps(change)))
        again.apply({"kind": "policy.delete", "vhost": "/", "name": "gone"})
        again.apply_policies()
        assert again.vhosts["/"].topology.queues["q"].effective == {"x-message-ttl": 5, "x-max-length": 5}
        assert definitions_of(again) == definitions_of(broker)


def test_a_policy_that_the_log_cannot_have_held_ends_recovery() -> None:
    change = Policy("p", "", {"max-length": 1}).change("/") | {"priority": "high"}
    with pytest.raises(ValueError, match="is not an integer"):
        new_broker().apply(change)


def test_a_pattern_that_cannot_be_used_comes_back_from_the_log_and_matches_nothing() -> None:
    broker = new_broker()
    broker.apply(Policy("p", "(?<=a)b|a", {"max-length": 1}).change("/"))
    queue = add_queue(broker.vhosts["/"], "a")
    broker.apply_policies()
    assert queue.effective == {}
    [objection] = broker.objections()
    assert "the pattern '(?<=a)b|a' of policy 'p' in vhost '/' has a look-behind" in objection


def test_without_a_log_policies_stay_as_they_are() -> None:
    store = RecordingStore()
    vhost = new_vhost(store)
    set_policy(vhost, "p", "", max_length=1)
    store.failure = "disk full"
    with pytest.raises(StoreFailed, match="disk full"):
        set_policy(vhost, "p", "", max_length=2)
    with pytest.raises(StoreFailed, match="disk full"):
        vhost.policies.delete("p")
    assert vhost.policies.policies["p"].definition == {"max-length": 1}


def test_absent_policies_cannot_be_deleted() -> None:
    vhost = new_vhost()
    with pytest.raises(NotFound, match="no policy 'p' in vhost '/'"):
        vhost.policies.delete("p")
    set_policy(vhost, "p", "", max_length=1)
    with pytest.raises(NotFound, match="no operator policy 'p' in vhost '/'"):
        vhost.policies.delete("p", operator=True)


def test_the_highest_policy_with_a_key_of_federation_federates() -> None:
    vhost = new_vhost()
    queue = add_queue(vhost, "q")
    add_exchange(vhost, "x", "topic")
    exchange = vhost.topology.exchanges["x"]
    set_policy(vhost, "low", "", priority=1, federation_upstream_set="all", max_length=9)
    set_policy(vhost, "high", "", priority=2, federation_upstream="up")
    set_policy(vhost, "highest", "", priority=3, message_ttl=5)
    assert queue.effect.federation == exchange.effect.federation == ("federation-upstream", "up")
    assert queue.effective == {"x-max-length": 9, "x-message-ttl": 5}
    explained = effective_keys(vhost.policies.explain_queue(queue))
    assert explained["federation-upstream"] == ("up", "policy", "high")
    assert "federation-upstream-set" not in explained
    assert effective_keys(vhost.policies.explain_exchange(exchange)) == {
        "federation-upstream": ("up", "policy", "high")
    }
    vhost.policies.delete("high")
    vhost.policies.apply_all()
    assert queue.effect.federation == ("federation-upstream-set", "all")
    vhost.policies.delete("low")
    vhost.policies.apply_all()
    assert queue.effect.federation == ("", "")


def test_policies_for_mirrored_queues_are_kept_to_no_effect() -> None:
    vhost = new_vhost()
    queue = add_queue(vhost, "q")
    set_policy(vhost, "ha", "", ha_mode="exactly", ha_params=2, ha_sync_mode="automatic", max_length=9)
    assert queue.effective == {"x-max-length": 9}


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"name": ""}, "a policy in vhost 'v' needs a name"),
        ({"name": "n" * 256}, "policy name is 256 bytes long"),
        ({"pattern": "("}, "the pattern '(' of policy 'p' in vhost 'v' is not a regular expression"),
        ({"pattern": None}, "the pattern of policy 'p' in vhost 'v' is not a string: undefined"),
        ({"priority": "high"}, "the priority 'high' of policy 'p'"),
        ({"priority": True}, "the priority 'true' of policy 'p'"),
        ({"apply_to": "shoes"}, "apply-to 'shoes' of policy 'p' in vhost 'v' is not one of all, queues"),
        ({"definition": {}}, "the definition of policy 'p' in vhost 'v' is not an object with at least one"),
        ({"definition": []}, "the definition of policy 'p' in vhost 'v' is not an object"),
        ({"definition": {"message-ttl": "1"}}, "'message-ttl' = '1' in policy 'p' in vhost 'v' is not an"),
        ({"definition": {"message-ttl": -1}}, "an integer from 0 to 315360000000"),
        ({"definition": {"overflow": "explode"}}, "is not one of drop-head, reject-publish"),
        ({"definition": {"dead-letter-routing-key": "k" * 256}}, "is not a string of at most 255 bytes"),
        ({"definition": {"alternate-exchange": 1}}, "'alternate-exchange' = '1' in policy 'p'"),
        ({"definition": {"nonsense": 1}}, "'nonsense' = '1' in policy 'p' in vhost 'v' is not a key of"),
        (
            {"definition": {"federation-upstream": ""}},
            "'federation-upstream' = '' in policy 'p' in vhost 'v' is",
        ),
        ({"definition": {"federation-upstream-set": 1}}, "is not a string with at least one character"),
        ({"definition": {"federation-upstream-pattern": "("}}, "'(' in policy 'p' in vhost 'v' is not a reg"),
        (
            {"definition": {"federation-upstream": "a", "federation-upstream-set": "b"}},
            "policy 'p' in vhost 'v' has federation-upstream and federation-upstream-set, only one of them",
        ),
        ({"definition": {"federation-upstream": "a"}, "operator": True}, "is not a key of operator policies"),
        ({"definition": {"max-age": "1D"}, "operator": True}, "is not a key of operator policies"),
        ({"definition": {"max-length": -1}, "operator": True}, "in operator policy 'p' in vhost 'v' is not"),
    ],
)
def test_errors_of_a_policy_are_explained(wrong: dict[str, object], words: str) -> None:
    good: dict[str, object] = {
        "name": "p",
        "pattern": "",
        "definition": {"max-length": 1},
        "priority": 0,
        "apply_to": "all",
        "operator": False,
    }
    parse_policy("v", **good)  # type: ignore[arg-type]
    with pytest.raises(PreconditionFailed) as refused:
        parse_policy("v", **(good | wrong))  # type: ignore[arg-type]
    assert words in refused.value.text


def test_changes_reach_many_queues_in_slices_and_tell_when_they_have() -> None:
    clock = HandClock()
    broker = Broker(RecordingStore(), Counters(), lambda: "", clock.schedule)
    vhost = broker.declare_vhost("/")
    queues = [add_queue(vhost, f"q{number}") for number in range(SLICE)]
    set_policy(vhost, "p", "", now=False, max_length=1)
    done: list[int] = []

    def reached() -> int:
        return sum("x-max-length" in queue.effective for queue in queues)

    vhost.policies.call_when_applied(lambda: done.append(reached()))
    assert reached() == 0
    assert done == []
    clock.schedule.run()
    assert 0 < reached() < len(queues)
    assert done == []
    doomed = next(queue for queue in queues if "x-max-length" not in queue.effective)
    vhost.declarations.delete_queue(doomed.name, if_unused=False, if_empty=False)
    while not done:
        clock.schedule.run()
    assert done == [len(queues) - 1]
    assert "x-max-length" not in doomed.effective
    vhost.policies.call_when_applied(lambda: done.append(0))
    assert done[-1] == 0, "at once when there is nothing to be done"


def test_a_policy_change_during_another_change_reaches_all_queues() -> None:
    clock = HandClock()
    vhost = Broker(RecordingStore(), Counters(), lambda: "", clock.schedule).declare_vhost("/")
    queues = [add_queue(vhost, f"q{number}") for number in range(SLICE)]
    set_policy(vhost, "p", "", now=False, max_length=1)
    clock.schedule.run()
    for number in range(20):
        set_policy(vhost, f"r{number}", f"^q{number}$", priority=1, now=False, max_length=number)
    done: list[bool] = []
    vhost.policies.call_when_applied(lambda: done.append(True))
    while not done:
        clock.schedule.run()
    held = [queue.effective["x-max-length"] for queue in queues]
    assert held == [*range(20), *[1] * (SLICE - 20)]


def test_a_deleted_virtual_host_ends_the_change() -> None:
    broker = new_broker()
    vhost = broker.declare_vhost("v")
    add_queue(vhost, "q")
    set_policy(vhost, "p", "", now=False, max_length=1)
    done: list[bool] = []
    vhost.policies.call_when_applied(lambda: done.append(True))
    broker.delete_vhost("v")
    assert done == [True]


def test_a_turn_of_a_policy_change_ends_after_its_time_limit() -> None:
    time = 0

    def slow() -> int:
        nonlocal time
        time += 1_000_000
        return time

    schedule = Schedule(slow, lambda: 0, lambda due: None)
    vhost = Broker(RecordingStore(), Counters(), lambda: "", schedule).declare_vhost("/")
    queues = [add_queue(vhost, f"q{number}") for number in range(100)]
    set_policy(vhost, "p", "", now=False, max_length=1)
    for _ in range(20):
        schedule.run()
    assert 0 < sum("x-max-length" in queue.effective for queue in queues) < 60
    for _ in range(200):
        schedule.run()
    assert all("x-max-length" in queue.effective for queue in queues)


def test_messages_come_back_into_queues_as_their_policies_want_them() -> None:
    clock = HandClock()
    broker = new_broker(clock=clock)
    store = RecordingStore()
    old = new_broker(store).declare_vhost("/")
    old.declarations.declare_queue("q", True, None, False, {})
    set_policy(old, "p", "", message_ttl=1000)
    sink = Recovered(broker)
    for change in store.changes:
        sink.apply(change)
    sink.on_definitions_end()
    queue = broker.vhosts["/"].topology.queues["q"]
    message = Message(Address("", "q"), b"", 0, True, 0)
    message.date = clock.date()
    message.sequence = 1
    assert sink.message(message, [int(queue.number)], True, {}) == 1
    broker.resume()
    clock.advance(999)
    assert queue.ready == 1
    clock.advance(1)
    assert queue.ready == 0
