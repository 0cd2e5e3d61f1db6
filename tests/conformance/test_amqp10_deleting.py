"""AMQP 1.0: links to queues and exchanges that are deleted. [amqp-1.0 2.6.5, 2.8.15]"""

import re
from collections.abc import Callable, Iterator

import pytest
from pamqp.commands import Queue

from protocol.amqp10.composing import encode_composite
from protocol.amqp10.composites import Accepted, Header, Released, Source, Target
from protocol.amqp10.performatives import Attach, Close, Detach, Disposition, Flow, Transfer
from tests.support.adapters.management_client import request
from tests.support.admin.api import Api
from tests.support.amqp091.peer import Connector, PeerChannel
from tests.support.amqp091.topology_commands import declare_exchange, delete_exchange
from tests.support.amqp10.contents import bare10
from tests.support.amqp10.management_links import pair
from tests.support.amqp10.peer import Meet
from tests.support.amqp10.peer_session import Begins, PeerSession10, sender

pytestmark = pytest.mark.amqpd_only("RabbitMQ before version 4 has it in a plugin")

DURABLE = encode_composite(Header(durable=True)) + bare10()
WAYS = ("0-9-1", "HTTP", "management", "expiry", "auto-delete", "exclusive", "dynamic")
REQUESTS, RESPONSES = 8, 9

Undo = Callable[[], object]


class Doomed:
    """A queue, and the way in which it will go. `delete`: have it go; it may take a moment."""

    def __init__(self, name: str, delete: Undo) -> None:
        self.name = name
        self.delete = delete


@pytest.fixture
def doomed(
    request: pytest.FixtureRequest,
    channel: PeerChannel,
    connect: Connector,
    api: Api,
    begin: Begins,
    name: str,
) -> Iterator[Doomed]:
    """Declare it for the way that is the test's parameter."""
    way = str(request.param)
    name = name[-40:]
    if way == "dynamic":
        other = begin()
        answer = attach_dynamic(other)
        yield Doomed(answer, other.detach)
        return
    if way == "exclusive":
        owner = connect().channel()
        owner.declare(name, exclusive=True)
        yield Doomed(name, owner.peer.drop)
        return
    channel.declare(name, auto_delete=way == "auto-delete")
    if way == "0-9-1":
        yield Doomed(name, lambda: channel.call(Queue.Delete(queue=name), Queue.DeleteOk))
    elif way == "HTTP":
        yield Doomed(name, lambda: api.delete("queues", "/", name))
    elif way == "management":
        yield Doomed(name, lambda: delete_by_request(begin(), name))
    elif way == "auto-delete":
        tag = channel.consume(name)
        yield Doomed(name, lambda: channel.cancel(tag))
    else:
        pattern, effect = f"^{re.escape(name)}$", {"expires": 1}
        yield Doomed(name, lambda: api.put("policies", "/", name, pattern=pattern, definition=effect))
        api.delete("policies", "/", name)


def attach_dynamic(session: PeerSession10) -> str:
    """A queue that goes with the link; returns its address."""
    session.write(Attach(name="own", handle=0, role=True, source=Source(dynamic=True), target=Target()))
    answer = session.expect(Attach)
    assert answer.source is not None
    assert answer.source.address is not None
    return answer.source.address


def delete_by_request(session: PeerSession10, name: str) -> None:
    """Ask the node of management for it."""
    pair(session, handles=(REQUESTS, RESPONSES))
    session.transfer(REQUESTS, request("DELETE", f"/queues/{name}"), 0, settled=True)
    assert b"200" in session.delivery(RESPONSES).payload


@pytest.mark.spec("amqp-1.0", "2.6.5")
@pytest.mark.parametrize("doomed", WAYS, indirect=True)
def test_the_queue_of_a_sender_goes(session: PeerSession10, doomed: Doomed) -> None:
    session.sends(doomed.name, 0)
    session.publish(0, 2)
    session.sends("/exchanges/amq.direct/k", 1)  # an unrelated link
    session.sends(None, 2)
    doomed.delete()
    session.expect_detach(0, "amqp:resource-deleted", "was deleted")
    for handle, state in ((1, "Released"), (2, "Rejected")):
        session.transfer(handle, bare10(to="/queues/none"), 2 + handle)
        assert type(session.outcome(2 + handle)).__name__ == state
    session.end()


@pytest.mark.spec("amqp-1.0", "2.6.5")
def test_the_queue_of_a_receiver_goes(session: PeerSession10, channel: PeerChannel, name: str) -> None:
    queue = channel.declare(name + ".gone")
    for _ in range(3):
        channel.publish(b"x", queue)
    session.receives(queue, 0, 2)
    session.delivery()
    session.delivery()
    channel.call(Queue.Delete(queue=queue), Queue.DeleteOk)
    session.settle(0, 1)  # the client had the delivery before it knew
    session.expect_detach(0, "amqp:resource-deleted", queue)
    session.settle(0, 1, Released())
    session.expect_silence()


@pytest.mark.spec("amqp-1.0", "2.6.5")
@pytest.mark.parametrize("form", ["/exchanges/{}/key", "/exchanges/{}", "{}"], ids=["key", "subject", "name"])
def test_the_exchange_of_a_sender_is_deleted(
    session: PeerSession10, channel: PeerChannel, name: str, node: str, form: str
) -> None:
    declare_exchange(channel, name[-40:] + ".x")
    session.sends(form.format(name[-40:] + ".x"), 0)
    session.sends(node, 1)
    delete_exchange(channel, name[-40:] + ".x")
    session.expect_detach(0, "amqp:resource-deleted", "exchange")
    session.publish(1, 1)


@pytest.mark.spec("amqp-1.0", "2.6.5")
def test_another_queue_of_the_name_needs_another_link(
    session: PeerSession10, channel: PeerChannel, name: str
) -> None:
    queue = channel.declare(name)
    session.sends(queue, 0)
    channel.write(Queue.Delete(queue=queue, nowait=True))
    channel.declare(name, exclusive=True)
    session.expect_detach(0, "amqp:resource-deleted", name)
    session.sends(queue, 0)
    session.publish(0, 1)
    channel.call(Queue.Delete(queue=queue), Queue.DeleteOk)
    session.expect_detach(0, "amqp:resource-deleted", name)


@pytest.mark.spec("amqp-1.0", "2.6.5")
def test_a_link_that_has_ended_is_not_ended_again(
    session: PeerSession10, channel: PeerChannel, name: str
) -> None:
    queue = channel.declare(name)
    session.sends(queue, 0)
    session.sends(queue, 1)
    session.detach(0)
    channel.call(Queue.Delete(queue=queue), Queue.DeleteOk)
    session.expect_detach(1, "amqp:resource-deleted")
    session.expect_silence()


# ---- open links and deliveries


@pytest.mark.spec("amqp-1.0", "2.6.5")
def test_earlier_transfers_are_answered_before_the_detach(
    session: PeerSession10, channel: PeerChannel, name: str
) -> None:
    queue = channel.declare(name, durable=True)
    pair(session, handles=(REQUESTS, RESPONSES))
    session.sends(queue, 0)
    before = [session.encode_transfer(0, DURABLE, at) for at in range(50)]
    delete = session.encode_transfer(REQUESTS, request("DELETE", f"/queues/{name}"), 50, settled=True)
    behind = [session.encode_transfer(0, DURABLE, at) for at in range(51, 60)]
    session.peer.send(b"".join([*before, delete, *behind]))  # deleted while the log is yet to sync
    answered = 0
    while True:
        frame, _ = session.read()
        if isinstance(frame, Detach):
            break
        if isinstance(frame, Disposition):
            assert (frame.first, frame.state, frame.settled) == (answered, Accepted(), True)
            assert frame.last is not None
            answered = frame.last + 1
        else:
            assert isinstance(frame, Transfer | Flow)
    assert answered == 50
    assert frame.error is not None
    assert (frame.handle, frame.error.condition) == (0, "amqp:resource-deleted")
    session.expect_silence()


@pytest.mark.spec("amqp-1.0", "2.6.5")
def test_earlier_settlements_are_answered_before_the_detach(
    session: PeerSession10, channel: PeerChannel, name: str
) -> None:
    queue = channel.declare(name, durable=True)
    pair(session, handles=(REQUESTS, RESPONSES))
    session.sends(queue, 0)
    session.publish(0, 3, DURABLE)
    session.receives(queue, 1, 3, rcv_settle_mode=1)
    ids = [session.delivery(1).id for _ in range(3)]
    settle = Disposition(role=True, first=ids[0], last=ids[1], settled=False, state=Accepted())
    delete = session.encode_transfer(REQUESTS, request("DELETE", f"/queues/{name}"), 3, settled=True)
    session.peer.send(session.encode(settle) + delete)
    detached: list[tuple[str, int | None]] = []
    while len(detached) < 3:
        frame, _ = session.read()
        if isinstance(frame, Disposition):
            assert (frame.first, frame.last, frame.settled) == (ids[0], ids[1], True)
            detached.append(("settled", None))
        elif isinstance(frame, Detach):
            detached.append(("gone", frame.handle))
    assert detached[0] == ("settled", None)
    assert set(detached[1:]) == {("gone", 0), ("gone", 1)}


@pytest.mark.spec("amqp-1.0", "2.6.14")
def test_half_a_delivery_goes_with_its_link(session: PeerSession10, channel: PeerChannel, name: str) -> None:
    queue = channel.declare(name)
    session.sends(queue, 0)
    session.transfer(0, bare10(), 0, more=True)
    session.flow(echo=True)
    session.expect(Flow)
    channel.call(Queue.Delete(queue=queue), Queue.DeleteOk)
    detach = session.expect(Detach)
    assert (detach.error is not None and detach.error.condition) == "amqp:resource-deleted"
    session.transfer(0, b"", None)
    session.transfer(0, bare10(), 1)
    session.write(Detach(handle=0, closed=True))
    channel.declare(name, exclusive=True)
    session.sends(queue, 0)
    session.publish(0, 1, first=2)
    assert channel.counts(name)[0] == 1


@pytest.mark.spec("amqp-1.0", "2.6.5")
def test_a_peer_that_detaches_at_the_same_time(
    session: PeerSession10, channel: PeerChannel, name: str
) -> None:
    queue = channel.declare(name)
    session.sends(queue, 0)
    channel.call(Queue.Delete(queue=queue), Queue.DeleteOk)
    session.write(Detach(handle=0, closed=True))  # an answer, whether the client knows or not
    session.expect(Detach)
    session.expect_silence()
    session.end()


@pytest.mark.spec("amqp-1.0", "2.6.5")
def test_very_many_links_of_one_queue(begin: Begins, channel: PeerChannel, name: str) -> None:
    queue = channel.declare(name)
    sessions = [begin() for _ in range(2)]
    for session in sessions:
        session.peer.send(b"".join(session.encode(sender(queue, handle)) for handle in range(200)))
        for _ in range(400):
            session.read()
    channel.call(Queue.Delete(queue=queue), Queue.DeleteOk)
    for session in sessions:
        gone = {session.expect(Detach).handle for _ in range(200)}
        assert gone == set(range(200))


@pytest.mark.spec("amqp-1.0", "2.4.3")
def test_a_virtual_host_goes_with_its_queues(meet: Meet, api: Api, vhost: str) -> None:
    api.put("queues", vhost, "q")
    peer = meet()
    peer.open(hostname=f"vhost:{vhost}")
    session = PeerSession10(peer)
    session.sends("q", 0)
    session.receives("q", 1, 1)
    api.delete("vhosts", vhost)
    gone = []
    while not isinstance(frame := session.read()[0], Close):
        assert isinstance(frame, Detach)
        gone.append(frame.handle)
    assert set(gone) <= {0, 1}
    assert len(gone) == len(set(gone))
    assert frame.error is not None
    assert frame.error.condition == "amqp:connection:forced"
