"""AMQP 1.0: permissions of a user, and links whose permission is revoked. [amqp-1.0 2.8.15]"""

import time
from collections.abc import Callable, Mapping

import pytest

from protocol.amqp10.composites import Accepted, Rejected, Released, Source, Target
from protocol.amqp10.performatives import Attach, Open
from tests.support.admin.api import Api
from tests.support.amqp10.contents import bare10
from tests.support.amqp10.controller import Controller, within
from tests.support.amqp10.peer import Meet
from tests.support.amqp10.peer_session import PeerSession10, receiver, sender
from tests.support.amqp10.unsettled_maps import unsettled, unsettled_map_of
from tests.support.daemon.daemon import PATIENCE_S

pytestmark = pytest.mark.amqpd_only("RabbitMQ before version 4 has it in a plugin")

REFUSED = "amqp:unauthorized-access"


class Guest:
    """A user of the test's virtual host, with a session, and an administrator who changes the rights."""

    def __init__(self, meet: Meet, api: Api, vhost: str, name: str) -> None:
        self.api = api
        self.vhost = vhost
        self.name = name
        peer = meet()
        peer.log_in(name, "secret")
        peer.write(Open(container_id="test", hostname=f"vhost:{vhost}"))
        peer.expect(Open)
        self.session = PeerSession10(peer)

    def may(self, configure: str = ".*", write: str = ".*", read: str = ".*") -> None:
        """Change the user's permissions, effective with the next request."""
        self.api.put(
            "permissions", self.vhost, self.name, status=204, configure=configure, write=write, read=read
        )

    def ready(self, queue: str = "q") -> int:
        """Return the number of ready messages."""
        return int(self.api.get("queues", self.vhost, queue)["messages_ready"])


@pytest.fixture
def guest(meet: Meet, api: Api, vhost: str, user: Callable[..., Api]) -> Guest:
    """A user who may do everything."""
    api.put("queues", vhost, "q")
    api.put("exchanges", vhost, "x", type="topic")
    user("")
    return Guest(meet, api, vhost, f"{vhost}.0")


def expect_refusal(session: PeerSession10, attach_frame: Attach, words: str = "") -> None:
    """A link that may not be."""
    session.write(attach_frame)
    answer = session.expect(Attach)
    assert (answer.source, answer.target) == (None, None)
    session.expect_detach(attach_frame.handle, REFUSED, words)


@pytest.mark.spec("amqp-1.0", "2.6.3")
def test_attach_without_permission_is_refused(guest: Guest) -> None:
    guest.may(read="nothing", write="nothing")
    expect_refusal(guest.session, receiver("q"))
    expect_refusal(guest.session, sender("q"))
    expect_refusal(guest.session, sender("/exchanges/x/k"))
    expect_refusal(guest.session, receiver("/exchanges/x/k"))
    guest.session.end()


@pytest.mark.spec("amqp-1.0", "2.6.5")
def test_revoking_read_permission_detaches_receivers_and_requeues_their_deliveries(guest: Guest) -> None:
    session = guest.session
    session.sends("q", 0)
    session.publish(0, 3)
    session.receives("q", 1, 2)
    session.delivery(1)
    session.delivery(1)
    guest.may(read="nothing")
    session.expect_detach(1, REFUSED, "q")
    session.publish(0, 1, first=3)  # publishing is still permitted
    assert guest.ready() == 4
    expect_refusal(session, receiver("q", 1))
    guest.may()
    session.receives("q", 1, 4)
    assert len([session.delivery(1) for _ in range(4)]) == 4


@pytest.mark.spec("amqp-1.0", "2.6.5")
@pytest.mark.parametrize(
    ("where", "write"), [("q", "x"), ("/exchanges/x/k", r"amq\.default")], ids=["queue", "exchange"]
)
def test_revoking_write_permission_detaches_senders(guest: Guest, where: str, write: str) -> None:
    session = guest.session
    session.sends(where, 0)
    session.sends("q" if where != "q" else "/exchanges/x/k", 1)
    guest.may(write=write)
    session.expect_detach(0, REFUSED)
    session.transfer(1, None, 0)
    assert session.outcome(0) in (Accepted(), Released())
    expect_refusal(session, sender(where, 0))
    guest.may()
    session.sends(where, 0)


@pytest.mark.spec("anonterm-1.0", "2.2.2")
def test_on_a_link_to_anywhere_each_message_is_looked_at(guest: Guest) -> None:
    session = guest.session
    session.sends(None, 0)
    session.transfer(0, bare10(to="q"), 0)
    assert session.outcome(0) == Accepted()
    guest.may(write="x")
    session.transfer(0, bare10(to="q"), 1)
    state = session.outcome(1)
    assert isinstance(state, Rejected)
    assert state.error is not None
    assert state.error.condition == REFUSED
    session.transfer(0, bare10(to="/exchanges/x/k"), 2)
    assert type(session.outcome(2)).__name__ == "Rejected"  # no queue, but permitted
    guest.may()
    session.transfer(0, bare10(to="q"), 3)
    assert session.outcome(3) == Accepted()


@pytest.mark.spec("amqp-1.0", "2.6.5")
def test_rights_to_topics_are_withdrawn(guest: Guest) -> None:
    session = guest.session
    session.sends("/exchanges/x/a.b", 0)
    session.sends("/exchanges/x/c.d", 1)
    session.sends("x", 2)  # by each message's subject
    guest.api.put("topic-permissions", guest.vhost, guest.name, exchange="x", write="^c", read=".*")
    session.expect_detach(0, REFUSED, "a.b")
    session.transfer(1, None, 0)
    assert session.outcome(0) == Released()
    session.transfer(2, bare10(subject="c.d"), 1)
    assert session.outcome(1) == Released()
    session.detach(2)
    session.sends("x", 2)  # further messages may still be allowed
    session.transfer(2, bare10(subject="a.b"), 2)
    state = session.outcome(2)
    assert isinstance(state, Rejected)
    assert state.error is not None
    assert state.error.condition == REFUSED


@pytest.mark.spec("amqp-1.0", "2.6.5")
def test_all_rights_are_withdrawn(guest: Guest) -> None:
    session = guest.session
    session.sends("q", 0)
    session.receives("q", 1, 1)
    guest.api.delete("permissions", guest.vhost, guest.name)
    for handle in (0, 1):
        session.expect_detach(handle, REFUSED)


@pytest.mark.spec("amqp-1.0", "4.3")
def test_earlier_posts_are_committed(guest: Guest) -> None:
    session = guest.session
    controller = Controller(session)
    session.sends("q", 0)
    txn_id = controller.declare()
    session.transfer(0, None, 0, state=within(txn_id))
    assert session.outcome(0) == within(txn_id, Accepted())
    guest.may(write="nothing")
    session.expect_detach(0, REFUSED)
    controller.commit(txn_id)
    assert guest.ready() == 1


@pytest.mark.spec("amqp-1.0", "2.6.5")
def test_a_subscription_whose_queue_may_not_be_read(guest: Guest) -> None:
    session = guest.session
    session.receives("/exchanges/x/k", 0, 1)
    session.sends("/exchanges/x/k", 1)
    guest.may(read="^x$")
    session.expect_detach(0, REFUSED)
    session.transfer(1, None, 0)
    assert session.outcome(0) in (Accepted(), Released())


@pytest.mark.spec("amqp-1.0", "3.2.4")
def test_a_message_in_the_name_of_another(guest: Guest) -> None:
    session = guest.session
    session.sends("q", 0, source=Source())
    session.publish(0, 1, bare10(user_id=guest.name.encode()))
    session.transfer(0, bare10(user_id=b"guest"), 1)
    state = session.outcome(1)
    assert isinstance(state, Rejected)
    assert state.error is not None
    assert state.error.condition == REFUSED


@pytest.mark.spec("amqp-1.0", "2.6.13")
def test_deleting_a_user_requeues_the_deliveries_of_its_suspended_links(guest: Guest) -> None:
    session = guest.session
    session.sends("/queues/q")
    session.publish(0, 2)
    for handle in (1, 2):
        source = Source(address="/queues/q", timeout=3600, expiry_policy="never")
        session.receives(None, handle, credit=1, source=source)
        session.delivery(handle)
    session.detach(1, closed=False)
    assert guest.ready() == 0
    guest.api.delete("users", guest.name)
    deadline = time.monotonic() + PATIENCE_S
    while guest.ready() != 2:
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.spec("amqp-1.0", "2.6.13")
def test_deleting_a_virtual_host_forgets_its_suspended_links(
    guest: Guest, meet: Meet, user: Callable[..., Api]
) -> None:
    def attach(session: PeerSession10, known: Mapping[bytes, None] | None) -> Attach:
        target = Target(address="/queues/q", timeout=3600, expiry_policy="never")
        states = None if known is None else unsettled(known)
        return session.sends(None, 3, target=target, unsettled=states, rcv_settle_mode=1)[0]

    attach(guest.session, {})
    guest.session.transfer(3, delivery_id=0, delivery_tag=b"once")
    guest.session.outcome(0, settled=False)
    guest.session.detach(3, closed=False)
    assert unsettled_map_of(attach(guest.session, {b"once": None})) == {b"once": Accepted()}
    guest.session.detach(3, closed=False)
    guest.api.delete("vhosts", guest.vhost)
    guest.api.put("vhosts", guest.vhost)
    guest.api.put("queues", guest.vhost, "q")
    guest.api.put("permissions", guest.vhost, guest.name, configure=".*", write=".*", read=".*")
    again = Guest(meet, guest.api, guest.vhost, guest.name)
    assert not unsettled_map_of(attach(again.session, {b"once": None}))


@pytest.mark.spec("amqp-1.0", "2.4.1")
def test_a_refused_open_says_by_its_condition_whether_retrying_helps(
    meet: Meet, api: Api, vhost: str, user: Callable[..., Api]
) -> None:
    user("")
    user("", permitted=False)
    for name, hostname, condition, words in (
        ("0", "nowhere", REFUSED, "vhost nowhere not found"),
        ("1", vhost, REFUSED, "access to vhost"),
        ("0", vhost, "amqp:resource-limit-exceeded", "connection limit (0) is reached"),
    ):
        if condition != REFUSED:
            api.put("vhost-limits", vhost, "max-connections", status=204, value=0)
        peer = meet()
        peer.log_in(f"{vhost}.{name}", "secret")
        peer.write(Open(container_id="test", hostname=f"vhost:{hostname}"))
        opened = peer.expect(Open)
        assert opened.properties is not None
        assert opened.properties["amqp:connection-establishment-failed"] is True
        peer.expect_close(condition, words)
