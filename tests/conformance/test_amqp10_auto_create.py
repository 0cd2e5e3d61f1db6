"""AMQP 1.0: links make the queues that they name, where that is allowed."""

from collections.abc import Callable, Iterator

import pytest

from protocol.amqp10.composites import Accepted, Rejected, Source, Target
from protocol.amqp10.performatives import Attach, Open
from protocol.amqp10.types import Symbol
from tests.support.admin.api import Api
from tests.support.amqp091.peer import Connector
from tests.support.amqp10.contents import bare10
from tests.support.amqp10.peer import Meet, Peer10
from tests.support.amqp10.peer_session import PeerSession10, receiver, sender
from tests.support.daemon.daemon import Daemon, DaemonStarter
from tests.support.daemon.endings import Ending, both_endings

pytestmark = [
    pytest.mark.amqpd_only("RabbitMQ before version 4 has it in a plugin"),
    pytest.mark.spec("amqp-1.0", "2.6.3"),
]

ROLES = pytest.mark.parametrize("role", [False, True], ids=["sender", "receiver"])
MADE = ("/queue/new", "queue://new", "amqp://host/queue/new")
NOT_MADE = ("new", "/queues/new", "/amq/queue/new", "/exchange/new/k", "new/k")


@pytest.fixture
def guest(meet: Meet, vhost: str, user: Callable[..., Api]) -> PeerSession10:
    """A session in an empty virtual host, of a user who may do everything there."""
    user("")
    return session_of(meet, vhost)


def session_of(meet: Meet, vhost: str, name: str = "0") -> PeerSession10:
    """A session of a user of the virtual host."""
    peer = meet()
    peer.log_in(f"{vhost}.{name}", "secret")
    peer.write(Open(container_id="test", hostname=f"vhost:{vhost}"))
    peer.expect(Open)
    return PeerSession10(peer)


def attach(session: PeerSession10, role: bool, address: str, **fields: object) -> None:
    """Attach a link that the broker takes."""
    if role:
        session.receives(address, **fields)  # type: ignore[arg-type]
    else:
        session.sends(address, **fields)  # type: ignore[arg-type]


def expect_refusal(session: PeerSession10, role: bool, address: str, condition: str) -> None:
    """A link that the broker does not take."""
    session.write(receiver(address) if role else sender(address))
    answer = session.expect(Attach)
    assert (answer.source if role else answer.target) is None
    session.expect_detach(0, condition)


def names(api: Api, vhost: str) -> list[str]:
    """The queues of a virtual host."""
    return [queue["name"] for queue in api.get("queues", vhost)]


@ROLES
@pytest.mark.parametrize("where", MADE, ids=["older", "ActiveMQ", "URI"])
def test_attach_to_a_queue_address_declares_the_missing_queue(
    guest: PeerSession10, api: Api, vhost: str, role: bool, where: str
) -> None:
    attach(guest, role, where)
    queue = api.get("queues", vhost, "new")
    assert (queue["durable"], queue["exclusive"], queue["auto_delete"]) == (True, False, False)
    assert queue["arguments"] == {}
    guest.detach(0)
    attach(guest, not role, where)  # the queue exists
    assert names(api, vhost) == ["new"]


@ROLES
@pytest.mark.parametrize("where", NOT_MADE, ids=["name", "queues", "amq", "exchange", "key"])
def test_attach_to_other_addresses_declares_no_queue(
    guest: PeerSession10, api: Api, vhost: str, role: bool, where: str
) -> None:
    expect_refusal(guest, role, where, "amqp:not-found")
    assert names(api, vhost) == []


@ROLES
def test_a_reserved_name_is_not_made(guest: PeerSession10, role: bool) -> None:
    expect_refusal(guest, role, "/queue/amq.new", "amqp:not-found")


def test_a_message_to_a_queue_address_declares_the_missing_queue(
    guest: PeerSession10, api: Api, vhost: str
) -> None:
    guest.sends(None)
    guest.transfer(0, bare10(to="/queue/new"), 0)
    assert guest.outcome(0) == Accepted()
    guest.transfer(0, bare10(to="new.other"), 1)
    assert isinstance(guest.outcome(1), Rejected)
    assert names(api, vhost) == ["new"]
    guest.receives("new", 1, 1)
    guest.settle(guest.delivery(1).id)


@ROLES
def test_a_user_who_may_not_configure_the_queue_is_refused(
    meet: Meet, api: Api, vhost: str, user: Callable[..., Api], role: bool
) -> None:
    user("", configure="^mine")
    session = session_of(meet, vhost)
    expect_refusal(session, role, "/queue/new", "amqp:unauthorized-access")
    attach(session, role, "/queue/mine")
    assert names(api, vhost) == ["mine"]


def test_a_user_without_permission_on_the_queue_does_not_declare_it(
    meet: Meet, api: Api, vhost: str, user: Callable[..., Api]
) -> None:
    user("", write="^$")
    user("", read="^$", write="nothing")
    expect_refusal(session_of(meet, vhost, "1"), True, "/queue/new", "amqp:unauthorized-access")
    expect_refusal(session_of(meet, vhost, "1"), False, "/queue/new", "amqp:unauthorized-access")
    assert names(api, vhost) == []


@ROLES
def test_a_virtual_host_has_no_more_queues_than_it_may(
    guest: PeerSession10, api: Api, vhost: str, role: bool
) -> None:
    api.put("vhost-limits", vhost, "max-queues", status=204, value=1)
    attach(guest, role, "/queue/one", handle=5)
    guest.write(receiver("/queue/two") if role else sender("/queue/two"))
    guest.expect(Attach)
    guest.expect_detach(0, "amqp:resource-limit-exceeded", "queue limit")


@ROLES
def test_policies_say_which_names_make_queues(guest: PeerSession10, api: Api, vhost: str, role: bool) -> None:
    api.put("policies", vhost, "jobs", pattern="^jobs", definition={"auto-create": True, "max-length": 2})
    api.put("policies", vhost, "none", pattern="", priority=-1, definition={"auto-create": False})
    for handle, address in enumerate(("jobs.1", "/queues/jobs.2", "/queue/jobs.3")):
        attach(guest, role, address, handle=handle + 1)
    for address in ("new", "/queue/new", "queue://new", "/amq/queue/jobs.4"):
        expect_refusal(guest, role, address, "amqp:not-found")
    assert names(api, vhost) == ["jobs.1", "jobs.2", "jobs.3"]
    assert api.get("queues", vhost, "jobs.1")["effective_policy_definition"]["max-length"] == 2


@ROLES
@pytest.mark.parametrize("where", ["/queue/new\r\n.er", "/queues/new%0A.er", "\nnew.er", "queue://new.er\r"])
def test_line_breaks_are_removed_from_names_of_created_queues(
    guest: PeerSession10, api: Api, vhost: str, connect: Connector, role: bool, where: str
) -> None:
    api.put("policies", vhost, "all", pattern="", definition={"auto-create": True})
    attach(guest, role, where, handle=1)  # makes the queue
    assert names(api, vhost) == ["new.er"]
    guest.detach(1)
    attach(guest, False, where, handle=2)  # finds it
    attach(guest, True, where, handle=3, credit=1)
    guest.publish(2, 1)
    guest.settle(guest.delivery(3).id)
    guest.sends(None, 4)
    guest.transfer(4, bare10(to=where), 1)
    assert guest.outcome(1) == Accepted()
    assert names(api, vhost) == ["new.er"]


def test_a_topic_is_no_queue(guest: PeerSession10, api: Api, vhost: str) -> None:
    api.put("policies", vhost, "all", pattern="", definition={"auto-create": True})
    guest.write(sender(None, target=Target(address="new", capabilities=("topic",))))
    assert guest.expect(Attach).target is None
    guest.expect_detach(0, "amqp:not-found")
    guest.write(receiver(None, source=Source(address="new", capabilities=("topic",))))
    assert guest.expect(Attach).source is None
    guest.expect_detach(0, "amqp:not-found")
    assert names(api, vhost) == []


@pytest.mark.parametrize(
    ("asked", "condition"),
    [
        ({"x-priority": "high"}, "amqp:invalid-field"),
        ({"exclusive": "x"}, "amqp:invalid-field"),
        ({"x-also-consume": ["nowhere"]}, "amqp:not-found"),
        ({"x-also-consume": ["new"]}, "amqp:invalid-field"),
        ({"x-notify-active": "nowhere"}, "amqp:precondition-failed"),
        ({"x-browse": True, "exclusive": True}, "amqp:invalid-field"),
    ],
)
@pytest.mark.parametrize(
    "source",
    [
        Source(address="/queue/new"),
        Source(address="/exchanges/amq.topic/k", durable=2, expiry_policy="never"),
        Source(address="/exchanges/amq.topic/k"),
        Source(dynamic=True),
        Source(dynamic=True, capabilities=("rabbitmq:volatile-queue",)),
    ],
    ids=["queue", "durable", "subscription", "dynamic", "volatile"],
)
def test_a_link_that_is_refused_leaves_no_queue(
    guest: PeerSession10, api: Api, vhost: str, source: Source, asked: dict[str, object], condition: str
) -> None:
    properties = {Symbol(name): value for name, value in asked.items()}
    if asked.get("x-also-consume") == ["new"] and source.address != "/queue/new":
        condition = "amqp:not-found"
    guest.write(receiver(None, source=source, properties=properties))
    assert guest.expect(Attach).source is None
    guest.expect_detach(0, condition)
    assert names(api, vhost) == []


def test_a_link_is_notified_as_active_in_the_queue_that_it_declares(
    guest: PeerSession10, api: Api, vhost: str
) -> None:
    guest.receives("/queue/new", 0, 1, properties={Symbol("x-notify-active"): "new"})
    assert b"attached" in guest.delivery(0).payload
    assert names(api, vhost) == ["new"]


def test_a_refused_change_of_a_subscription_keeps_its_old_binding(
    guest: PeerSession10, api: Api, vhost: str
) -> None:
    def subscribe(key: str, properties: dict[str, object] | None = None) -> None:
        source = Source(address=f"/exchanges/amq.topic/{key}", durable=2, expiry_policy="never")
        guest.write(receiver(None, name="sub", source=source, properties=properties))

    subscribe("old")
    guest.expect(Attach)
    guest.detach(0, closed=False)
    subscribe("new", properties={Symbol("x-priority"): "high"})
    assert guest.expect(Attach).source is None
    guest.expect_detach(0, "amqp:invalid-field")
    bindings = api.get("queues", vhost, "sub.test.sub", "bindings")
    assert [binding["routing_key"] for binding in bindings if binding["source"]] == ["old"]


def test_a_policy_with_a_value_that_is_none_is_refused(api: Api, vhost: str) -> None:
    body = {"pattern": "", "definition": {"auto-create": "yes"}}
    assert "auto-create" in api.refused(400, "PUT", "policies", vhost, "p", body=body)["reason"]


@both_endings
@ROLES
def test_a_queue_that_a_link_has_made_is_there_after_a_restart(
    start_daemon: DaemonStarter, connect: Connector, end: Ending, role: bool
) -> None:
    daemon = start_daemon("--auto-create", "^jobs$", "--auto-create", r"^work\.")
    bystander = connect(daemon.address)
    peer = Peer10(daemon.address)
    peer.open()
    session = PeerSession10(peer)
    attach(session, role, "jobs", handle=1)
    attach(session, role, "/queues/work.1", handle=2)
    expect_refusal(session, role, "other", "amqp:not-found")
    peer.socket.close()
    end(daemon, bystander)
    again = connect(start_daemon().address).channel()
    assert [again.counts(queue) for queue in ("jobs", "work.1")] == [(0, 0), (0, 0)]


def test_transfers_behind_the_attach_are_accepted(start_daemon: DaemonStarter, connect: Connector) -> None:
    daemon = start_daemon("--auto-create", ".*")
    peer = Peer10(daemon.address)
    peer.open()
    session = PeerSession10(peer)
    peer.send(session.encode(sender("jobs")) + session.encode_transfer(0, bare10(), 0))
    assert isinstance(session.expect(Attach).target, Target)
    session.read()  # the credit
    assert session.outcome(0) == Accepted()
    assert connect(daemon.address).channel().counts("jobs") == (1, 0)
    peer.socket.close()


@pytest.fixture
def refused(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Daemon]]:
    """Start brokers that do not come up."""
    started: list[Daemon] = []

    def start(*options: str) -> Daemon:
        started.append(Daemon(tmp_path_factory.mktemp("refused"), options))
        return started[-1]

    yield start
    for daemon in started:
        daemon.kill()


def test_an_invalid_auto_create_pattern_is_named_at_the_start(refused: Callable[..., Daemon]) -> None:
    daemon = refused("--auto-create", "fine", "--auto-create", "(")
    daemon.log.wait_for(r"^amqpd: auto_create: the pattern '\(' is not a regular expression")
    daemon.expect_exit(1)
