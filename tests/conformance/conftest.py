"""A connection that goes on working while others misbehave."""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from pamqp.commands import Basic, Queue
from websockets.sync.client import ClientConnection

from tests.support.admin.api import Api
from tests.support.amqp091.peer import Peer, PeerChannel
from tests.support.amqp091.topology_commands import delete_exchange
from tests.support.amqp10.peer import Meet, Peer10
from tests.support.amqp10.peer_session import Begins, PeerSession10, begins
from tests.support.daemon.daemon import PATIENCE_S, Address, Daemon
from tests.support.daemon.websocket_bridge import Bridge, Bridger, Visit, open_websocket, websocket_url


def logged(daemon: Daemon | None, peer: Peer, what: str) -> None:
    """A line of the daemon's log must name the peer and match `what`; nothing to look at without a daemon."""
    if daemon is not None:
        daemon.log.wait_for(rf"(?i)^(?=.*\b{re.escape(peer.name)}\b)(?=.*(?:{what}))")


class Bystander:
    """A client that publishes with confirms and consumes its messages, one by one, until it is stopped."""

    def __init__(self, address: Address, queue: str) -> None:
        self._peer = Peer(address).open()
        self._queue = queue
        self._rounds = 0
        self._stopping = False
        self._failure: BaseException | None = None
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def expect_progress(self) -> None:
        """Messages that were published after this call began must go all the way."""
        with self._changed:
            goal = self._rounds + 2
            while self._rounds < goal and self._failure is None:
                assert self._changed.wait(PATIENCE_S), "the bystander hangs"
        assert self._failure is None, self._failure

    def stop(self) -> None:
        """End; fails if anything ever went wrong."""
        self._stopping = True
        self._thread.join(PATIENCE_S)
        self._peer.drop()
        assert self._failure is None, self._failure

    def _run(self) -> None:
        try:
            channel = self._peer.channel()
            channel.declare(self._queue, exclusive=True)
            channel.confirm_select()
            channel.consume(self._queue)
            while not self._stopping:
                body = b"message %d" % self._rounds
                channel.publish(body, self._queue)
                confirmed, message = False, None  # either may come first
                while not confirmed or message is None:
                    command = channel.peer.expect_any((Basic.Ack, Basic.Deliver), channel.number)
                    if isinstance(command, Basic.Ack):
                        assert command.delivery_tag == self._rounds + 1
                        confirmed = True
                    else:
                        assert isinstance(command, Basic.Deliver)
                        message = channel.peer.expect_content(command, channel.number)
                assert message.body == body
                assert not message.redelivered
                channel.ack(message.tag)
                with self._changed:
                    self._rounds += 1
                    self._changed.notify_all()
        except BaseException as failure:
            with self._changed:
                self._failure = failure
                self._changed.notify_all()


@pytest.fixture
def bystander(address: Address, name: str) -> Iterator[Bystander]:
    """Another connection, on which the test must have no effect."""
    bystander = Bystander(address, f"bystander.{name}")
    bystander.expect_progress()
    yield bystander
    bystander.expect_progress()
    bystander.stop()


@pytest.fixture
def exchange(channel: PeerChannel, name: str) -> Iterator[str]:
    """The name of an exchange that the test may declare; it is deleted afterwards."""
    yield name
    delete_exchange(channel.peer.channel(65), name)


@pytest.fixture
def queues(channel: PeerChannel) -> list[str]:
    """Four queues."""
    return [channel.declare(exclusive=True) for _ in range(4)]


@pytest.fixture
def meet(address: Address) -> Iterator[Meet]:
    """Connect peers, which are closed at the end of the test."""
    peers: list[Peer10] = []

    def meet(to: Address | None = None) -> Peer10:
        peers.append(Peer10(to or address))
        return peers[-1]

    yield meet
    for peer in peers:
        peer.socket.close()


@pytest.fixture(scope="session")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon that speaks AMQP over WebSocket too."""
    daemon = Daemon(tmp_path_factory.mktemp("serving"), ("--websocket-listen", "127.0.0.1:0"))
    yield daemon.wait_until_ready()
    daemon.stop()


@pytest.fixture
def visit() -> Iterator[Visit]:
    """Open WebSockets; they are closed with the test."""
    with ExitStack() as opened:

        def visit(daemon: Daemon, path: str = "/", **options: Any) -> ClientConnection:
            return opened.enter_context(open_websocket(websocket_url(daemon, path), **options))

        yield visit


@pytest.fixture
def bridge() -> Iterator[Bridger]:
    """Build bridges for clients without WebSocket, which are closed at the end of the test."""
    bridges: list[Bridge] = []

    def bridge(daemon: Daemon, **options: Any) -> Address:
        bridges.append(Bridge(websocket_url(daemon), **options))
        return bridges[-1].address

    yield bridge
    for each in bridges:
        each.close()


@pytest.fixture
def begin(meet: Meet) -> Begins:
    """Connects peers of AMQP 1.0 that begin a session."""
    return begins(meet)


@pytest.fixture
def session(begin: Begins) -> PeerSession10:
    """A session of AMQP 1.0 on a connection of its own."""
    return begin()


@pytest.fixture
def node(channel: PeerChannel, name: str) -> Iterator[str]:
    """A queue that any connection may use, deleted afterwards."""
    channel.declare(name)
    yield name
    channel.peer.channel(66).call(Queue.Delete(queue=name), Queue.DeleteOk)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of the journal of `start_daemon`."""
    return tmp_path / "data" / "journal"


@pytest.fixture
def admin_of() -> Iterator[Callable[[Daemon], Api]]:
    """Ask daemons that the test starts over HTTP, as guest."""
    clients: list[Api] = []

    def of(daemon: Daemon) -> Api:
        clients.append(Api(daemon.admin))
        return clients[-1]

    yield of
    for client in clients:
        client.close()
