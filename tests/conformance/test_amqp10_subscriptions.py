"""AMQP 1.0: how long subscriptions are there, by durability, expiry, sharing and the way in which they end.

[amqp-1.0 3.5.3; JMS mapping 5.2]
"""

import time

import pytest

from protocol.amqp10.composites import Accepted, Source, Target
from protocol.amqp10.performatives import Attach, Close, Detach
from protocol.amqp10.types import Described, Symbol
from tests.support.admin.api import Api
from tests.support.amqp10.contents import bare10
from tests.support.amqp10.peer import Meet
from tests.support.amqp10.peer_session import PeerSession10
from tests.support.daemon.daemon import PATIENCE_S, Daemon, DaemonStarter
from tests.support.effort import combinations

pytestmark = pytest.mark.amqpd_only("RabbitMQ before version 4 has it in a plugin")

LINK, SESSION, CONNECTION, NEVER = "link-detach", "session-end", "connection-close", "never"
TOPIC = "/exchanges/amq.topic/"
END_OF_LINK, END_OF_SESSION, END_OF_CONNECTION, LOST = "detach", "end", "close", "lost"
ENDS = (END_OF_LINK, END_OF_SESSION, END_OF_CONNECTION, LOST)

GONE_WITH = {
    LINK: ENDS,
    SESSION: (END_OF_SESSION, END_OF_CONNECTION, LOST),
    CONNECTION: (END_OF_CONNECTION, LOST),
    NEVER: (),
}


class Client:
    """A session of a container."""

    def __init__(self, meet: Meet, container: str, daemon: Daemon | None = None) -> None:
        self.peer = meet() if daemon is None else meet(daemon.address)
        self.peer.open(container_id=container)
        self.session = PeerSession10(self.peer)

    def subscribe(
        self, name: str, key: str, durable: int = 0, expiry: str = SESSION, shared: str = "", handle: int = 0
    ) -> Attach:
        """Attach; returns the broker's attach."""
        source = Source(
            address=TOPIC + key,
            durable=durable,
            expiry_policy=expiry,
            capabilities=tuple(Symbol(each) for each in shared.split()),
        )
        return self.attach(name, source, handle)

    def attach(self, name: str, source: Source | None, handle: int = 0) -> Attach:
        """Attach a receiver; without a source it resumes its subscription."""
        self.session.write(Attach(name=name, handle=handle, role=True, source=source, target=Target()))
        return self.session.expect(Attach)

    def post(self, key: str, body: bytes, number: int = 0) -> None:
        """Publish to the topic, on a link of its own."""
        self.session.sends(None, 9, name="posts")
        self.session.transfer(
            9, bare10(to=TOPIC + key, body=b"\0Su\xa0" + bytes((len(body),)) + body), number
        )
        self.session.outcome(number)
        self.session.detach(9)

    def end(self, how: str) -> None:
        """End the link, or more."""
        if how == END_OF_LINK:
            self.session.detach(0, closed=False)
        elif how == END_OF_SESSION:
            self.session.end()
        elif how == END_OF_CONNECTION:
            self.peer.write(Close())
            self.peer.expect(Close)
        else:
            self.peer.socket.close()


def source_of(answer: Attach) -> Source:
    assert answer.source is not None
    return answer.source


def queue_of(container: str, name: str, shared: str) -> str:
    """Return the queue name of a subscription that outlives its link or is shared by several links."""
    container, everywhere = (part.replace("%", "%25").replace(".", "%2E") for part in (container, name))
    return f"sub.{everywhere}" if "global" in shared else f"sub.{container}.{name}"


@pytest.mark.spec("amqp-1.0", "3.5.3")
@pytest.mark.parametrize(
    ("durable", "expiry", "shared", "ending"),
    combinations([0, 1, 2], GONE_WITH, ["", "shared", "shared global"], ENDS),
)
def test_a_subscription_lasts_as_its_durability_and_expiry_policy_say(
    meet: Meet, name: str, durable: int, expiry: str, shared: str, ending: str
) -> None:
    client = Client(meet, name)
    key = name[-60:]
    answer = client.subscribe("sub", key, durable, expiry, shared)
    lasts = durable > 0 or expiry == NEVER
    assert source_of(answer).durable == min(durable, 1)
    assert source_of(answer).expiry_policy == (NEVER if lasts else expiry)
    client.session.flow(echo=True)
    client.session.read()
    client.end(ending)
    other = Client(meet, name + " other")
    stays = lasts or (ending not in GONE_WITH[expiry] and shared != "")
    if lasts:
        other.post(key, b"meanwhile")
        again = Client(meet, name)
        again.subscribe("sub", key, durable, expiry, shared)
        again.session.allow(0, 5)
        assert again.session.delivery(0).payload.endswith(b"meanwhile")
        again.session.detach(0, closed=True)
        stays = False
    if not stays:
        expect_none(other, name, shared)


def expect_none(client: Client, container: str, shared: str) -> None:
    """Wait until the subscription is deleted."""
    place = f"/queues/{queue_of(container, 'sub', shared)}"
    deadline = time.monotonic() + PATIENCE_S
    while client.attach("looks", Source(address=place), 5).source is not None:
        assert time.monotonic() < deadline, f"{place} is still there"
        client.session.detach(5)
    client.session.expect_detach(5, "amqp:not-found")


@pytest.mark.spec("amqp-1.0", "3.5.3")
@pytest.mark.parametrize("shared", ["", "shared", "shared global"], ids=["alone", "shared", "global"])
@pytest.mark.parametrize("crash", [False, True], ids=["stop", "crash"])
def test_a_durable_subscription_survives_a_restart(
    start_daemon: DaemonStarter, meet: Meet, shared: str, crash: bool
) -> None:
    daemon = start_daemon()
    client = Client(meet, "container", daemon)
    client.subscribe("durable", "key", 2, NEVER, shared)
    client.subscribe("volatile", "key", 0, SESSION, "shared", handle=1)
    client.session.detach(0, closed=False)
    if crash:
        daemon.kill()
    else:
        daemon.stop()
    client = Client(meet, "container", start_daemon())
    client.post("key", b"afterwards")
    assert source_of(client.attach("durable", None)).address == TOPIC + "key"
    client.session.allow(0, 1)
    assert client.session.delivery(0).payload.endswith(b"afterwards")
    client.session.detach(0, closed=True)
    for name in ("durable", "volatile"):
        assert client.attach(name, None).source is None
        client.session.expect_detach(0, "amqp:not-found")


@pytest.mark.spec("amqp-1.0", "3.5.3")
@pytest.mark.parametrize("shared", ["shared", "shared global"], ids=["shared", "global"])
def test_closing_a_subscription_with_other_subscribers_is_refused(meet: Meet, name: str, shared: str) -> None:
    first, second = Client(meet, name), Client(meet, name)
    for number, client in enumerate((first, second)):
        client.subscribe(f"{name[-40:]}|{number}", "k", 2, NEVER, shared)
    first.session.write(Detach(handle=0, closed=True))
    detach = first.session.expect(Detach)
    assert detach.error is not None
    assert (detach.closed, detach.error.condition) == (True, "amqp:resource-locked")
    second.session.allow(0, 1)
    first.post("k", b"goes on")
    second.session.settle(second.session.delivery(0).id, state=Accepted())
    second.session.detach(0, closed=True)
    assert first.attach(f"{name[-40:]}|0", None).source is None
    first.session.expect_detach(0, "amqp:not-found")


@pytest.mark.spec("amqp-1.0", "3.5.3")
def test_a_shared_volatile_subscription_is_deleted_with_its_last_link(meet: Meet, name: str) -> None:
    first, second = Client(meet, name), Client(meet, name)
    for number, client in enumerate((first, second)):
        client.subscribe(f"sub|{number}", "k", 0, LINK, "shared global")
    first.session.detach(0, closed=True)
    second.session.allow(0, 1)
    first.post("k", b"goes on")
    second.session.delivery(0)
    second.session.detach(0, closed=True)
    expect_none(first, name, "shared global")


@pytest.mark.spec("amqp-1.0", "2.6.3")
def test_a_subscription_of_another_container_is_not_known(meet: Meet, name: str) -> None:
    client, other = Client(meet, name), Client(meet, name + " other")
    client.subscribe("sub", "k", 2, NEVER)
    client.session.detach(0, closed=False)
    assert other.attach("sub", None).source is None
    other.session.expect_detach(0, "amqp:not-found")
    client.attach("sub", None)
    client.session.detach(0, closed=True)


@pytest.mark.spec("amqp-1.0", "2.6.3")
def test_a_global_subscription_is_known_to_all_containers(meet: Meet, name: str) -> None:
    client, other = Client(meet, name), Client(meet, name + " other")
    subscription = name[-40:]
    client.subscribe(f"{subscription}|1", "k", 2, NEVER, "shared global")
    other.subscribe(f"{subscription}|2", "k", 2, NEVER, "shared global")
    for each in (client, other):
        each.session.allow(0, 1)
    sender = Client(meet, name)
    sender.post("k", b"1", 0)
    sender.post("k", b"2", 1)
    assert {each.session.delivery(0).payload[-1:] for each in (client, other)} == {b"1", b"2"}
    client.session.detach(0, closed=False)
    other.session.detach(0, closed=True)
    assert client.attach(subscription, None).source is None
    client.session.expect_detach(0, "amqp:not-found")


@pytest.mark.spec("amqp-1.0", "3.5.3")
def test_dots_in_names_do_not_mix_up_subscriptions(meet: Meet, name: str) -> None:
    one, other = Client(meet, name), Client(meet, f"{name}.x")
    key = name[-60:]
    one.subscribe("x.sub", key, 1)
    other.subscribe("sub", key, 1)
    one.subscribe(f"{name}.x.sub", key, 1, shared="shared global", handle=1)
    one.post(key, b"once")
    for client, handle in ((one, 0), (other, 0), (one, 1)):
        client.session.allow(handle, 2)
        assert client.session.delivery(handle).payload.endswith(b"once")
        client.session.settle(client.session.received - 1)
        client.session.detach(handle, closed=True)


@pytest.mark.spec("amqp-1.0", "3.5.3")
def test_queues_of_subscriptions_have_no_line_breaks_in_their_names(meet: Meet, api: Api, name: str) -> None:
    key = name[-40:]
    clients = [Client(meet, name), Client(meet, f"{name}\n"), Client(meet, name), Client(meet, name)]
    links = ["sub", "sub", "sub\r\n", "sub%0D%0A"]
    for client, link in zip(clients, links, strict=True):
        client.subscribe(link, key, 1)
    everywhere = Client(meet, name)
    everywhere.subscribe(f"{key}\nx|1", key, 1, shared="shared global")
    queues = [queue["name"] for queue in api.get("queues") if key in queue["name"]]
    assert len(queues) == 5
    assert not any("\r" in queue or "\n" in queue for queue in queues)
    everywhere.post(key, b"once")
    for client in [*clients, everywhere]:
        client.session.allow(0, 2)
        assert client.session.delivery(0).payload.endswith(b"once")
        client.session.settle(0)
        client.session.detach(0, closed=True)


@pytest.mark.spec("amqp-1.0", "3.5.3")
def test_a_binding_filter_is_in_force_only_on_exchanges(meet: Meet, name: str) -> None:
    client = Client(meet, name)
    binding = Described(Symbol("apache.org:legacy-amqp-topic-binding:string"), f"{name[-60:]}.#")
    given: dict[str, object] = {Symbol("binding"): binding}
    bound = client.attach("bound", Source(address="/exchanges/amq.topic", filter=given), 0)
    assert source_of(bound).filter == given
    client.session.flow(echo=True)
    client.session.read()
    unbound = client.attach("unbound", Source(dynamic=True, filter=given), 1)
    assert not source_of(unbound).filter
