"""AMQP 1.0: a link whose queue is made for it waits for the disk. The world may change meanwhile."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from pamqp.commands import Queue

from protocol.amqp10.composites import Source, Target
from protocol.amqp10.performatives import Attach, Flow, Open
from tests.support.admin.api import Api
from tests.support.amqp091.peer import Connector, PeerChannel
from tests.support.amqp10.peer import Meet
from tests.support.amqp10.peer_session import PeerSession10, receiver, sender
from tests.support.daemon.daemon import PATIENCE_S, Daemon, DaemonStarter
from tests.support.daemon.stopped_disk import stopped_disk, wait_for_queue

pytestmark = pytest.mark.amqpd_only("RabbitMQ before version 4 has it in a plugin")

ROLES = pytest.mark.parametrize("receives", [False, True], ids=["sender", "receiver"])
NEVER = "never"


@pytest.fixture
def own(start_daemon: DaemonStarter) -> Daemon:
    """A daemon of the test's own."""
    return start_daemon()


@pytest.fixture
def api(own: Daemon) -> Iterator[Api]:
    """The HTTP API of the daemon."""
    client = Api(own.admin)
    yield client
    client.close()


@pytest.fixture
def operator(own: Daemon, connect: Connector) -> PeerChannel:
    """A channel to it."""
    return connect(own.address).channel()


def session_of(meet: Meet, own: Daemon, container: str) -> PeerSession10:
    """A session of a container."""
    peer = meet(own.address)
    peer.open(container_id=container)
    return PeerSession10(peer)


def link(address: str, receives: bool) -> Attach:
    """The attach of a link that makes its queue."""
    return receiver(address) if receives else sender(address)


def expect_refusal(session: PeerSession10, receives: bool, condition: str) -> None:
    """The link that waited is refused."""
    answer = session.expect(Attach)
    assert (answer.source if receives else answer.target) is None
    session.expect_detach(0, condition)


def wait_for_permissions(api: Api, user: str, rights: dict[str, str]) -> None:
    """Wait until a user has these permissions in the default virtual host."""
    late = time.monotonic() + PATIENCE_S
    while not rights.items() <= api.get("permissions", "/", user).items():
        assert time.monotonic() < late, rights
        time.sleep(0.01)


@pytest.mark.spec("amqp-1.0", "2.6.3")
@ROLES
@pytest.mark.parametrize(
    ("again", "condition"),
    [(False, "amqp:not-found"), (True, "amqp:resource-locked")],
    ids=["gone", "locked"],
)
def test_attach_is_refused_if_its_new_queue_is_deleted_before_the_sync(
    own: Daemon, api: Api, operator: PeerChannel, meet: Meet, receives: bool, again: bool, condition: str
) -> None:
    session = session_of(meet, own, "test")
    with stopped_disk(own):
        session.write(link("/queue/new", receives))
        wait_for_queue(api, "new")
        operator.write(Queue.Delete(queue="new", nowait=True))
        if again:
            operator.write(Queue.Declare(queue="new", exclusive=True, nowait=True))
        operator.round_trip()
    expect_refusal(session, receives, condition)
    consumers = [queue["consumers"] for queue in api.get("queues", "/")]
    assert consumers == ([0] if again else [])


@pytest.mark.spec("amqp-1.0", "2.6.3")
def test_attach_is_refused_if_its_new_queue_is_deleted_and_declared_again_before_the_sync(
    own: Daemon, api: Api, operator: PeerChannel, meet: Meet
) -> None:
    session = session_of(meet, own, "test")
    with stopped_disk(own):
        session.write(link("/queue/new", receives=True))
        wait_for_queue(api, "new")
        operator.write(Queue.Delete(queue="new", nowait=True))
        operator.write(Queue.Declare(queue="new", nowait=True))
        operator.round_trip()
    expect_refusal(session, True, "amqp:not-found")
    session.receives("/queue/new", 1, 1)
    operator.publish(b"x", "new")
    session.delivery(1)


@pytest.mark.spec("amqp-1.0", "2.6.3")
@ROLES
def test_attach_is_refused_if_the_permission_is_revoked_before_the_sync(
    own: Daemon, api: Api, meet: Meet, receives: bool
) -> None:
    api.put("users", "someone", password="secret", tags="")
    rights = {"configure": ".*", "write": ".*", "read": ".*"}
    api.put("permissions", "/", "someone", body=rights)
    peer = meet(own.address)
    peer.log_in("someone", "secret")
    peer.write(Open(container_id="test"))
    peer.expect(Open)
    session = PeerSession10(peer)
    rights["read" if receives else "write"] = "^$"
    with ThreadPoolExecutor(1) as threads:
        with stopped_disk(own):
            session.write(link("/queue/new", receives))
            wait_for_queue(api, "new")
            change = threads.submit(api.put, "permissions", "/", "someone", status=204, body=rights)
            wait_for_permissions(api, "someone", rights)  # in force at once, answered when it is on disk
        change.result(PATIENCE_S)
    expect_refusal(session, receives, "amqp:unauthorized-access")


@pytest.mark.spec("amqp-1.0", "2.6.1")
@pytest.mark.parametrize("lasts", [True, False])
def test_a_later_durable_receiver_of_the_name_steals_the_waiting_link(
    own: Daemon, api: Api, meet: Meet, lasts: bool
) -> None:
    first, second = session_of(meet, own, "twin"), session_of(meet, own, "twin")
    source = Source(address="/queue/new", durable=2 if lasts else 0)
    with stopped_disk(own):
        first.write(receiver(None, name="sub", source=source))
        wait_for_queue(api, "new")
        second.write(receiver(None, name="sub", source=source))
        assert second.expect(Attach).source is not None
    if lasts:
        expect_refusal(first, True, "amqp:link:stolen")
    else:  # fleets of clients use the same names
        assert first.expect(Attach).source is not None
    assert api.get("queues", "/", "new")["consumers"] == (1 if lasts else 2)


@pytest.mark.spec("amqp-1.0", "2.6.1")
def test_a_later_subscriber_of_the_name_steals_the_waiting_link(own: Daemon, api: Api, meet: Meet) -> None:
    first, second = session_of(meet, own, "twin"), session_of(meet, own, "twin")
    source = Source(address="/exchanges/amq.topic/k", durable=2, expiry_policy=NEVER)
    with stopped_disk(own):
        first.write(receiver(None, name="sub", source=source))
        wait_for_queue(api, "sub.twin.sub")
        second.write(receiver(None, name="sub", source=source))
        assert second.expect(Attach).source is not None
    expect_refusal(first, True, "amqp:link:stolen")
    assert api.get("queues", "/", "sub.twin.sub")["consumers"] == 1
    first.write(receiver(None, 1, name="sub", source=source))  # and the other way round
    second.expect_detach(0, "amqp:link:stolen")
    assert first.expect(Attach).source is not None


@pytest.mark.spec("amqp-1.0", "2.6.1")
def test_a_later_sender_of_the_name_steals_the_waiting_link(own: Daemon, api: Api, meet: Meet) -> None:
    first, second = session_of(meet, own, "twin"), session_of(meet, own, "twin")
    attach = sender("/queue/new", name="pub")
    assert isinstance(attach.target, Target)
    attach.target.durable = 2
    with stopped_disk(own):
        first.write(attach)
        wait_for_queue(api, "new")
        second.write(attach)
        assert second.expect(Attach).target is not None
        second.expect(Flow)
    expect_refusal(first, False, "amqp:link:stolen")
    second.publish(0, 1)
