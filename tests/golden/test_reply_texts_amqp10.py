"""Error descriptions of AMQP 1.0 and of the management node that are RabbitMQ's word for word.

`reply_texts.json` lists them. Each case provokes one over a socket.
"""

from collections.abc import Callable, Iterator
from typing import Final

import pytest

from protocol.amqp10.composing import decode_composite
from protocol.amqp10.performatives import Attach, Begin, Close, Detach, End, Open
from tests.support.adapters.management_client import Response, request
from tests.support.admin.api import Api
from tests.support.amqp091.peer import PeerChannel
from tests.support.amqp10.management_links import pair
from tests.support.amqp10.peer import Peer10
from tests.support.amqp10.peer_session import PeerSession10, receiver, sender
from tests.support.daemon.daemon import Address
from tests.support.reply_texts import Answer, check, listed, unused_name

pytestmark = pytest.mark.amqpd_only("RabbitMQ before version 4 has other texts")

GOLDEN: Final = listed("amqp-1.0")


@pytest.fixture
def guest(address: Address) -> Iterator[PeerSession10]:
    """A session of guest in the virtual host `/`."""
    peer = Peer10(address)
    peer.open()
    yield PeerSession10(peer)
    peer.socket.close()


def described(peer: Peer10) -> Answer:
    """Return condition and description of the next detach, end or close that has an error."""
    while True:
        _, _, body = peer.raw_frame()
        performative = decode_composite(body)[0] if body else None
        if isinstance(performative, (Detach, End, Close)) and performative.error is not None:
            error = performative.error
            return {"condition": str(error.condition), "text": error.description}


LINKS: Final[dict[str, Callable[[str], Attach]]] = {
    "receive from no queue": lambda n: receiver(f"/queues/{n}"),
    "send to no queue": lambda n: sender(f"/queues/{n}"),
    "send to no exchange": lambda n: sender(f"/exchanges/{n}"),
}
"""Links to queues and exchanges that do not exist."""


@pytest.mark.parametrize("case", LINKS)
def test_texts_of_refused_links(guest: PeerSession10, case: str) -> None:
    name = unused_name()
    guest.write(LINKS[case](name))
    check(described(guest.peer), GOLDEN[case], name)


def test_the_text_of_a_locked_queue(channel: PeerChannel, guest: PeerSession10) -> None:
    name = channel.declare(unused_name(), exclusive=True)
    guest.write(receiver(f"/queues/{name}"))
    check(described(guest.peer), GOLDEN["another connection's exclusive queue"], name)


@pytest.fixture
def ann(api: Api) -> Iterator[str]:
    """A user with a virtual host of the same name; the user may open the virtual host, and nothing in it."""
    name = unused_name()
    api.put("vhosts", name)
    api.put("users", name, password="secret", tags="")
    api.put("permissions", name, name, configure="^$", write="^$", read="^$")
    api.put("queues", name, "q", durable=True)
    yield name
    api.ask("DELETE", "vhosts", name)
    api.ask("DELETE", "users", name)


@pytest.fixture
def enter(address: Address) -> Iterator[Callable[[str], Peer10]]:
    """Log in as users; open was sent to the virtual host of the same name."""
    peers: list[Peer10] = []

    def enter(name: str) -> Peer10:
        peers.append(Peer10(address))
        peers[-1].log_in(name, "secret")
        peers[-1].write(Open(container_id="test", hostname=f"vhost:{name}"))
        return peers[-1]

    yield enter
    for peer in peers:
        peer.socket.close()


RIGHTS: Final[dict[str, Attach]] = {
    "read a queue": receiver("/queues/q"),
    "write to the default exchange": sender("/queues/q"),
    "write to an exchange": sender("/exchanges/amq.direct/k"),
}
"""Links for which a user has no permission."""


@pytest.mark.parametrize("case", RIGHTS)
def test_texts_of_missing_permissions(ann: str, enter: Callable[[str], Peer10], case: str) -> None:
    peer = enter(ann)
    peer.write(Begin(next_outgoing_id=0, incoming_window=10, outgoing_window=10))
    peer.write(RIGHTS[case])
    check(described(peer), GOLDEN[case], ann)


def test_the_texts_of_refused_connections(api: Api, ann: str, enter: Callable[[str], Peer10]) -> None:
    api.put("user-limits", ann, "max-connections", value=0, status=204)
    check(described(enter(ann)), GOLDEN["limit of the user's connections"], ann)
    api.delete("user-limits", ann, "max-connections")
    api.put("vhost-limits", ann, "max-connections", value=0, status=204)
    check(described(enter(ann)), GOLDEN["limit of the virtual host's connections"], ann)
    api.delete("vhost-limits", ann, "max-connections")
    api.delete("permissions", ann, ann)
    check(described(enter(ann)), GOLDEN["virtual host of others"], ann)


MANAGEMENT: Final[dict[str, Callable[[str], bytes]]] = {
    "queue that does not exist": lambda n: request("GET", f"/queues/{n}"),
    "queue without a name": lambda n: request("PUT", "/queues/", {}),
    "queue with a line break in its name": lambda n: request("PUT", f"/queues/{n}%0A", {}),
    "queue that is there otherwise": lambda n: request("PUT", "/queues/q", {"durable": False}),
    "exchange that is there otherwise": lambda n: request(
        "PUT", "/exchanges/amq.direct", {"type": "topic", "durable": True}
    ),
    "exchange of no kind": lambda n: request("PUT", f"/exchanges/{n}", {"type": "x-nothing"}),
    "bind to the default exchange": lambda n: request(
        "POST",
        "/bindings",
        {"source": "", "destination_queue": "q", "binding_key": "k", "arguments": {}},
    ),
    "delete the default exchange": lambda n: request("DELETE", "/exchanges/"),
    "bind of no queue": lambda n: request(
        "POST",
        "/bindings",
        {"source": "amq.direct", "destination_queue": n, "binding_key": "k", "arguments": {}},
    ),
    "path of no binding": lambda n: request("DELETE", "/bindings/src=a"),
    "limit of queues": lambda n: request("PUT", f"/queues/{n}.2", {"durable": True}),
    "configure a queue": lambda n: request("PUT", "/queues/other", {"durable": True}),
}
"""Requests to the management node."""


@pytest.mark.parametrize("case", MANAGEMENT)
def test_texts_of_the_management_node(api: Api, ann: str, enter: Callable[[str], Peer10], case: str) -> None:
    allowed = "^$" if case == "configure a queue" else ".*"
    api.put("permissions", ann, ann, status=204, configure=allowed, write=".*", read=".*")
    if case == "limit of queues":
        api.put("vhost-limits", ann, "max-queues", value=1, status=204)
    peer = enter(ann)
    peer.expect(Open)
    session = PeerSession10(peer)
    pair(session)
    session.transfer(0, MANAGEMENT[case](ann), settled=True)
    response = Response(session.delivery(1).payload)
    check({"status": response.status, "text": response.body}, GOLDEN[case], ann)


OTHERS: Final = {
    "another connection's exclusive queue",
    "limit of the user's connections",
    "limit of the virtual host's connections",
    "virtual host of others",
}
"""The cases that have a test of their own."""


def test_every_listed_text_has_its_case() -> None:
    assert set(GOLDEN) == OTHERS | set(LINKS) | set(RIGHTS) | set(MANAGEMENT)
