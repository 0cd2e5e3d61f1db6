"""Answers to deliveries: when they are given, in which order, and how many at once."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.adapters.amqp10.answers import pending_frames_of
from broker.adapters.amqp10.receive import IncomingLink
from protocol.amqp10.composites import Accepted, Rejected
from protocol.amqp10.performatives import Detach, Disposition, End, Flow
from tests.support.adapters.connection10_without_socket import Client10
from tests.support.adapters.connection_without_socket import BrokerBench


@pytest.fixture
def client(bench: BrokerBench) -> Client10:
    return publisher(bench)


def publisher(bench: BrokerBench, **fields: object) -> Client10:
    """Sends to the queue `kept` on handle 0, and to `volatile` on handle 1."""
    vhost = bench.broker.vhosts["/"]
    vhost.declarations.declare_queue("kept", True, None, False, {})
    vhost.declarations.declare_queue(
        "volatile", False, None, False, {"x-max-length": 4, "x-overflow": "reject-publish"}
    )
    client = Client10(bench)
    client.sends("kept", 0, **fields)
    client.sends("volatile", 1, **fields)
    return client


def answers(client: Client10) -> list[tuple[int, int, str, bool]]:
    """First and last delivery, outcome, and whether it is settled, of each answer since the last call."""
    found = []
    for sent_frames in client.written():
        made = sent_frames.performative
        if isinstance(made, Disposition):
            assert made.role
            assert made.last is not None
            found.append((made.first, made.last, type(made.state).__name__, made.settled))
        else:
            assert isinstance(made, Flow)
    return found


def test_consecutive_deliveries_with_the_same_outcome_have_a_single_answer(client: Client10) -> None:
    client.publish(0, 1, 2, handle=1)

    assert answers(client) == [(0, 2, "Accepted", True)]


def test_another_link_or_outcome_or_a_gap_is_another_answer(client: Client10, bench: BrokerBench) -> None:
    client.publish(0, 1, handle=1)
    client.publish(4, 5, 6, 7, handle=1)
    client.publish(9)
    found = answers(client)

    assert found == [
        (0, 1, "Accepted", True),
        (4, 5, "Accepted", True),
        (6, 7, "Rejected", True),  # the queue is full
        (9, 9, "Accepted", True),
    ]
    assert bench.broker.vhosts["/"].topology.queues["volatile"].ready == 4


def test_durable_deliveries_wait_for_their_batch(client: Client10, bench: BrokerBench) -> None:
    client.publish(0, 1, durable=True)
    assert answers(client) == []
    bench.store.seal()
    client.publish(2, durable=True)
    assert answers(client) == []
    bench.store.sync()

    assert answers(client) == [(0, 1, "Accepted", True)]
    bench.store.complete()
    assert answers(client) == [(2, 2, "Accepted", True)]


def test_transient_deliveries_do_not_overtake_durable_ones(client: Client10, bench: BrokerBench) -> None:
    client.publish(0, durable=True)
    client.publish(1, 2, handle=1)
    assert answers(client) == []
    bench.store.complete()

    assert answers(client) == [(0, 0, "Accepted", True), (1, 2, "Accepted", True)]


def test_ids_that_wrap_are_one_answer(client: Client10) -> None:
    client.publish(0xFFFFFFFF, 0, 1, handle=1)

    assert answers(client) == [(0xFFFFFFFF, 1, "Accepted", True)]


def test_a_store_failure_ends_the_session_without_an_accepted_delivery(
    client: Client10, bench: BrokerBench
) -> None:
    client.publish(0, durable=True)
    bench.store.fail("the disk is gone")
    sent_frames = [made.performative for made in client.written()]

    assert [type(made) for made in sent_frames] == [End]
    assert isinstance(sent_frames[0], End)
    assert sent_frames[0].error is not None
    assert sent_frames[0].error.condition == "amqp:internal-error"


def test_an_ended_session_sends_no_dispositions(client: Client10, bench: BrokerBench) -> None:
    client.publish(0, durable=True)
    client.send(End())
    bench.store.complete()

    assert [type(made.performative) for made in client.written()] == [End]


@settings(deadline=None, max_examples=50)
@given(st.lists(st.sampled_from(["kept", "volatile", "sync", "seal"]), max_size=12))
def test_each_delivery_has_one_answer_and_all_are_in_order(steps: list[str]) -> None:
    bench = BrokerBench()
    client = publisher(bench)
    sent: list[bool] = []
    found: list[tuple[int, int, str, bool]] = []
    sealed = False
    for step in steps:
        if step == "sync" and sealed:
            bench.store.sync()
            sealed = False
        elif step == "seal" and not sealed:
            bench.store.seal()
            sealed = True
        elif step in ("kept", "volatile"):
            client.publish(len(sent), handle=int(step == "volatile"), durable=True)
            sent.append(step == "kept" or sent.count(False) < 4)
        found += answers(client)
    if sealed:
        bench.store.sync()
    bench.store.complete()
    found += answers(client)

    named_numbers = [(number, name) for first, last, name, _ in found for number in range(first, last + 1)]
    accepted, rejected = Accepted.__name__, Rejected.__name__
    assert [number for number, _ in named_numbers] == list(range(len(sent)))
    assert {name for _, name in named_numbers} <= {accepted, rejected}
    assert [name for _, name in named_numbers].count(rejected) == max(0, steps.count("volatile") - 4)


# -- deliveries of which the sender settles last


def second(bench: BrokerBench) -> Client10:
    return publisher(bench, rcv_settle_mode=1)


def unanswered(client: Client10) -> int:
    [session] = client.connection.mapped.all()
    return sum(int(link.unsettled_count) for link in session.links.values() if isinstance(link, IncomingLink))


def settled(first: int, last: int | None = None) -> Disposition:
    return Disposition(role=False, first=first, last=last, settled=True, state=Accepted())


def test_halves_wait_until_the_sender_settles_them(bench: BrokerBench) -> None:
    client = second(bench)
    client.publish(0, 1, 2)

    assert answers(client) == [(0, 2, "Accepted", False)]
    assert unanswered(client) == 3
    client.send(settled(1))
    assert unanswered(client) == 2
    client.send(settled(1), settled(0, 0xFFFF), settled(7))
    assert unanswered(client) == 0


@settings(deadline=None, max_examples=50)
@given(
    st.integers(0, 0xFFFFFFFF) | st.integers(0xFFFFFFF0, 0xFFFFFFFF),
    st.lists(st.tuples(st.integers(0, 11), st.integers(0, 40)), max_size=8),
)
def test_ranges_settle_the_halves_in_them_over_the_wrap_too(base: int, ranges: list[tuple[int, int]]) -> None:
    bench = BrokerBench()
    client = second(bench)
    ids = [base + at & 0xFFFFFFFF for at in range(10)]
    client.publish(*ids[:5], handle=0)
    client.publish(*ids[5:], handle=0)
    assert unanswered(client) == 10
    left = set(range(10))
    for first, more in ranges:
        client.send(settled(base + first & 0xFFFFFFFF, base + first + more & 0xFFFFFFFF))
        left -= set(range(first, first + more + 1))
        assert unanswered(client) == len(left)


def test_detaching_a_link_forgets_its_half_settled_deliveries(bench: BrokerBench) -> None:
    client = second(bench)
    client.publish(0, 1)
    client.publish(2, handle=1)
    [session] = client.connection.mapped.all()
    client.send(Detach(handle=0, closed=True))

    assert unanswered(client) == 1
    assert pending_frames_of(session).unsettled_by_sender.settle(0, 2) == 1, "one is left to look at"
    assert unanswered(client) == 0
