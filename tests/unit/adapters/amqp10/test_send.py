"""Deliveries in parts: as many frames as the window allows, and deliveries that cannot continue."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.core.entries.entry import AVAILABLE
from protocol.amqp10.performatives import Close, Detach, Flow, Transfer
from tests.support.adapters.connection10_without_socket import WINDOW, Client10, WrittenFrame
from tests.support.adapters.connection_without_socket import BrokerBench
from tests.support.adapters.queued_messages10 import data, put, put_large
from tests.support.amqp10.contents import content10

FRAME = 512


@pytest.fixture
def client(bench: BrokerBench) -> Client10:
    return consumer(bench)


def consumer(bench: BrokerBench, credit: int = 100) -> Client10:
    """Receives from the queue `q`, on handle 0, in frames of 512 bytes."""
    bench.broker.vhosts["/"].declarations.declare_queue("q", False, None, False, {})
    client = Client10(bench, FRAME)
    client.receives("q", credit=credit)
    return client


def window(client: Client10, received: int, more: int) -> None:
    """The client has had so many transfers, and takes so many more."""
    flow = Flow(incoming_window=more, next_outgoing_id=0, outgoing_window=WINDOW, next_incoming_id=received)
    client.send(flow)
    client.bench.turns.run()


def transfers(sent_frames: list[WrittenFrame]) -> list[Transfer]:
    found = [made.performative for made in sent_frames]
    assert all(isinstance(made, Transfer) for made in found), found
    return [made for made in found if isinstance(made, Transfer)]


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.integers(0, 4000), min_size=1, max_size=3),
    st.integers(50, 2000),
    st.booleans(),
    st.lists(st.integers(0, 5), max_size=10),
)
def test_parts_go_out_as_the_window_allows_and_are_whole_again(
    sizes: list[int], piece_bytes: int, on_disk: bool, windows: list[int]
) -> None:
    bench = BrokerBench()
    client = consumer(bench)
    window(client, 0, 0)
    bodies = [data(bytes([number]) * size) for number, size in enumerate(sizes)]
    for number, body in enumerate(bodies):
        put_large(bench, body, piece_bytes=piece_bytes, on_disk=on_disk and number == 0)
    bench.turns.run()
    sent_frames: list[WrittenFrame] = []
    for more in [*windows, WINDOW]:
        window(client, len(sent_frames), more)
        new = client.written()
        assert len(new) <= more
        sent_frames += new
    made = transfers(sent_frames)
    ends = [at for at, transfer in enumerate(made) if not transfer.more]

    assert len(ends) == len(bodies)
    for number, (start, end) in enumerate(zip([0, *(at + 1 for at in ends)], ends, strict=False)):
        assert {transfer.delivery_id for transfer in made[start : end + 1]} == {number}
        whole = b"".join(part.payload for part in sent_frames[start : end + 1])
        assert whole.endswith(bodies[number])


def test_a_delivery_on_its_way_is_taken_back_when_its_link_ends(client: Client10, bench: BrokerBench) -> None:
    window(client, 0, 3)
    put_large(bench, data(b"x" * 3000))
    bench.turns.run()
    assert [transfer.more for transfer in transfers(client.written())] == [True] * 3
    window(client, 3, 1)
    assert [transfer.more for transfer in transfers(client.written())] == [True]
    flow = Flow(incoming_window=9, next_outgoing_id=0, outgoing_window=WINDOW, next_incoming_id=4)
    client.edge.room = 0
    client.connection.set_blocked(True)
    client.send(flow, Detach(handle=0, closed=True))
    aborted, detached = (made.performative for made in client.written()[-2:])

    assert isinstance(aborted, Transfer)
    assert aborted.aborted
    assert isinstance(detached, Detach)
    [entry] = bench.broker.vhosts["/"].topology.queues["q"].entries
    assert entry.state == AVAILABLE


@pytest.mark.parametrize("settled", [0, 1])
@pytest.mark.parametrize("large", [False, True])
def test_a_message_that_cannot_be_read_goes_back_to_its_queue(
    bench: BrokerBench, large: bool, settled: int
) -> None:
    queue = bench.broker.vhosts["/"].declarations.declare_queue("q", True, None, False, {})
    client = Client10(bench, FRAME)
    if large:
        put_large(bench, data(b"x" * 3000), on_disk=True)
    else:
        message = put(bench, content10())
        message.content = None
    bench.store.unreadable = True
    client.receives("q", snd_settle_mode=settled)
    *_, closed = (made.performative for made in client.written())
    assert isinstance(closed, Close)
    client.connection.on_lost("gone")
    bench.turns.run()

    assert (queue.unacked, queue.ready) == (0, 1)


def test_a_body_that_cannot_be_read_any_more_is_taken_back(client: Client10, bench: BrokerBench) -> None:
    window(client, 0, 3)
    put_large(bench, data(b"x" * 3000), piece_bytes=500, on_disk=True)
    bench.turns.run()
    assert len(transfers(client.written())) == 3
    bench.store.unreadable = True
    window(client, 3, 9)
    *others, last, closed = (made.performative for made in client.written())

    assert all(isinstance(other, Transfer) and other.more for other in others)
    assert isinstance(last, Transfer)
    assert last.aborted
    assert isinstance(closed, Close)
    assert closed.error is not None
    assert closed.error.condition == "amqp:internal-error"
    [entry] = bench.broker.vhosts["/"].topology.queues["q"].entries
    assert entry.state == AVAILABLE
