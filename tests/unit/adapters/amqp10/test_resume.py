"""Links of AMQP 1.0 that resume, and the deliveries that the earlier link has sent. [amqp-1.0 2.6.13]"""

import dataclasses

import pytest

from broker.adapters.amqp10.answers import pending_frames_of
from broker.adapters.amqp10.names import KEPT_MAX
from protocol.amqp10.composites import Accepted, DeliveryState, Error, Modified, Rejected
from protocol.amqp10.performatives import Attach, Detach, Disposition, Flow
from protocol.amqp10.types import Composite
from tests.support.adapters.connection10_without_socket import Client10
from tests.support.adapters.connection_without_socket import BrokerBench
from tests.support.adapters.resumed_links10 import (
    RECEIVES,
    SENDS,
    bench_with_queues,
    counts_of_q,
    credit_flow,
    delivered,
    performative_types,
    receiver_attach,
    sender_attach,
    transfers,
)


@pytest.fixture
def bench() -> BrokerBench:
    return bench_with_queues()


@pytest.fixture
def client(bench: BrokerBench) -> Client10:
    return Client10(bench)


def test_two_links_that_wait_for_a_sync_resume_the_sender_link_in_turn(
    bench: BrokerBench, client: Client10
) -> None:
    """The second takes from the first, which has published meanwhile, and so waits once more."""
    client.send(sender_attach())
    client.publish(0, durable=True)
    client.send(Detach(handle=SENDS, closed=False))
    first, second = Client10(bench), Client10(bench)
    first.send(sender_attach(b"0"))
    first.publish(1, durable=True)
    second.send(sender_attach(b"0"))
    second.publish(2, durable=True)
    assert performative_types(first) == performative_types(second) == []
    bench.store.complete()

    assert performative_types(first) == [Attach, Flow, Detach]
    assert performative_types(second) == []
    bench.store.complete()
    assert performative_types(second) == [Attach, Flow]
    bench.store.complete()
    assert performative_types(second) == [Disposition]


def test_frames_behind_a_detach_are_not_waited_for(bench: BrokerBench, client: Client10) -> None:
    """The sender settles the delivery on the resuming link, or never."""
    client.send(sender_attach())
    client.publish(0, 1, 2, durable=True)
    client.send(Detach(handle=SENDS, closed=False))
    bench.store.complete()

    assert performative_types(client) == [Attach, Flow, Detach, Disposition]
    [session] = client.connection.mapped.all()
    assert pending_frames_of(session).unsettled_by_sender.settle(0, 9) == 0, "none is left to look at"


MANY = 1000
SUSPEND = Detach(handle=RECEIVES, closed=False)


def written_later(client: Client10) -> list[Composite]:
    """Return the performatives that the broker writes after all waiting work."""
    client.bench.clock.advance(0)
    return [each.performative for each in client.written()]


def test_very_many_go_in_several_turns() -> None:
    bench = bench_with_queues()
    client = Client10(bench)
    tags = delivered(client, MANY)
    settled = {tag: Accepted() for tag in tags[: MANY // 2]}
    client.send(SUSPEND, receiver_attach({**dict.fromkeys(tags), **settled}))
    performative_types(client)
    client.send(credit_flow(MANY))

    sent = len(client.written())
    assert 0 < sent < MANY // 2
    turns = 0
    while bench.turns.waiting:
        bench.turns.waiting.popleft().pump(MANY)
        turns += 1
    assert turns > 2
    assert sent + len(client.written()) == MANY


@pytest.mark.parametrize("state", [None, Accepted(), Modified(delivery_failed=True)])
def test_all_kept_deliveries_fit_in_one_complete_unsettled_map(state: DeliveryState | None) -> None:
    """Frames of the size that the broker accepts have room for the map, whatever the usual outcome."""
    bench = bench_with_queues()
    client = Client10(bench)
    tags = delivered(client, KEPT_MAX + 1)
    client.send(SUSPEND, receiver_attach(dict.fromkeys(tags[:KEPT_MAX], state)))
    detached, answer, *_ = written_later(client)
    assert isinstance(detached, Detach)
    assert isinstance(answer, Attach)
    assert list(answer.unsettled or ()) == tags[:KEPT_MAX]
    assert answer.incomplete_unsettled is False

    client.send(credit_flow(KEPT_MAX))
    bench.clock.advance(0)
    again = transfers(client)
    assert [transfer.delivery_tag for transfer in again] == tags[:KEPT_MAX]
    assert all(transfer.resume for transfer in again)
    assert all(transfer.settled == (state is not None) for transfer in again)
    failed = isinstance(state, Modified)
    assert counts_of_q(bench) == (KEPT_MAX + 1 if failed else 1, KEPT_MAX if state is None else 0)


def test_an_invalid_state_in_a_long_unsettled_map_detaches_only_the_link() -> None:
    bench = bench_with_queues()
    client = Client10(bench)
    tags = delivered(client, MANY)
    wrong = dataclasses.replace(receiver_attach({}), unsettled=dict.fromkeys(tags, "x" * 50))
    client.send(SUSPEND, wrong)
    detached, refused, text = written_later(client)
    assert isinstance(detached, Detach)
    assert isinstance(refused, Attach)
    assert isinstance(text, Detach)
    assert (refused.source, text.error and text.error.condition) == (None, "amqp:decode-error")
    assert client.connection.is_open()
    assert counts_of_q(bench) == (0, MANY)


def test_deliveries_of_a_deleted_queue_are_not_sent() -> None:
    """The link ends with its queue, after the answers that the peer waits for."""
    bench = bench_with_queues()
    client = Client10(bench)
    tags = delivered(client, 3)
    client.send(SUSPEND, receiver_attach(dict.fromkeys(tags)))
    client.send(sender_attach())
    client.publish(0, durable=True)
    bench.broker.vhosts["/"].declarations.delete_queue("q", False, False, None)
    performative_types(client)
    client.send(credit_flow(3, sent=1))

    assert transfers(client) == []
    bench.store.complete()
    assert Detach in performative_types(client)
    client.publish(1, handle=SENDS)
    assert client.connection.is_open()


def test_an_outcome_that_is_larger_than_a_frame_is_not_repeated() -> None:
    """The receiver knows it, and hears that it is settled."""
    bench = bench_with_queues()
    client = Client10(bench, 512)
    tags = delivered(client, 2)
    long = Rejected(error=Error(condition="test:long", description="x" * 600))
    client.send(SUSPEND, receiver_attach({tags[0]: long, tags[1]: None}))
    performative_types(client)
    client.send(credit_flow(2))

    first_transfer, again = transfers(client)
    assert (
        first_transfer.delivery_tag,
        first_transfer.settled,
        first_transfer.resume,
        first_transfer.state,
    ) == (tags[0], True, True, None)
    assert (again.delivery_tag, again.settled, again.resume) == (tags[1], False, True)


@pytest.mark.parametrize(("count", "window"), [(3, 0), (300, 100_000)])
def test_a_link_may_be_detached_before_all_its_deliveries_are_resumed(count: int, window: int) -> None:
    """The remaining deliveries wait for the window, or for a later turn of the connection."""
    bench = bench_with_queues()
    first = Client10(bench)
    tags = delivered(first, count)
    first.connection.on_lost("gone")
    client = Client10(bench)
    flow = credit_flow(count)
    flow.incoming_window = window
    opening = Flow(next_incoming_id=0, incoming_window=window, next_outgoing_id=0, outgoing_window=100)
    client.send(opening, receiver_attach(dict.fromkeys(tags)), flow, Detach(handle=RECEIVES, closed=True))
    client.connection.schedule()
    bench.turns.run()
    assert performative_types(client)[-1] is Detach
    assert client.connection.is_open()
    assert counts_of_q(bench) == (count, 0)
