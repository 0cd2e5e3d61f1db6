"""Thousands of requests in a single write: answered in order, and other clients do not wait."""

import threading
import time

import pytest
from pamqp import base
from pamqp.commands import Basic, Channel, Queue

from tests.conformance.conftest import Bystander
from tests.support.amqp091.frames import method_bytes, publish_bytes
from tests.support.amqp091.peer import Connector, Peer, PeerChannel
from tests.support.daemon.certificates import Certificates, secure_address
from tests.support.daemon.daemon import PATIENCE_S, Address, DaemonStarter

MANY = 6_000


def answers(channel: PeerChannel, commands: list[base.Frame], answer: type[base.Frame]) -> list[base.Frame]:
    """Write all of it at once, and take as many answers."""
    data = b"".join(method_bytes(command, channel.number) for command in commands)
    writing = threading.Thread(target=channel.peer.send, args=(data,))
    writing.start()
    answers = [channel.expect(answer) for _ in commands]
    writing.join()
    return answers


def names(prefix: str) -> list[str]:
    """Queues."""
    return [f"{prefix}.{number}" for number in range(MANY)]


@pytest.mark.spec("amqp-0-9-1", "queue.declare")
def test_all_are_answered_in_their_order(channel: PeerChannel, bystander: Bystander, name: str) -> None:
    queues = names(name)
    declared = answers(
        channel, [Queue.Declare(queue=each, exclusive=True) for each in queues], Queue.DeclareOk
    )
    assert [each.queue for each in declared if isinstance(each, Queue.DeclareOk)] == queues
    answers(channel, [Queue.Bind(queue=each, exchange="amq.fanout") for each in queues], Queue.BindOk)
    bystander.expect_progress()
    answers(channel, [Queue.Delete(queue=each) for each in queues], Queue.DeleteOk)
    channel.refused(Queue.Declare(queue=queues[-1], passive=True), 404)


def is_there(channel: PeerChannel, queue: str) -> bool:
    """Whether a queue exists: otherwise a message to it is returned."""
    channel.publish(b"?", queue, mandatory=True)
    answer = channel.peer.expect_any((Basic.Return, Basic.Ack), channel.number)
    if isinstance(answer, Basic.Return):
        channel.peer.expect_content(answer, channel.number)
        channel.expect(Basic.Ack)
    return isinstance(answer, Basic.Ack)


@pytest.mark.spec("amqp-0-9-1", "queue.declare#no-wait")
def test_another_client_is_answered_between(connect: Connector, name: str) -> None:
    channel, other = connect().channel(), connect().channel()
    other.confirm_select()
    queues = names(name)
    declarations = [Queue.Declare(queue=each, exclusive=True, nowait=True) for each in queues]
    channel.peer.send(b"".join(method_bytes(each, channel.number) for each in declarations))
    between = 0
    while not is_there(other, queues[-1]):
        between += is_there(other, queues[0]) and not is_there(other, queues[-1])
    assert between >= 3
    assert [channel.counts(queues[number])[0] for number in (1, MANY // 2)] == [0, 0]


@pytest.mark.spec("amqp-0-9-1", "basic.get")
def test_publishes_between_requests_keep_their_place(channel: PeerChannel) -> None:
    queue = channel.declare(exclusive=True)
    get = method_bytes(Basic.Get(queue=queue, no_ack=True), channel.number)
    channel.peer.send((channel.encode_publish(b"x", queue) + get) * 1000)
    for _ in range(1000):
        assert channel.peer.expect_content(channel.expect(Basic.GetOk), channel.number).body == b"x"


@pytest.mark.parametrize("secure", [False, True])
def test_sent_requests_are_done_although_the_client_disconnects(
    start_daemon: DaemonStarter, certificates: Certificates, secure: bool
) -> None:
    daemon = start_daemon(*certificates.options())
    peer = Peer(secure_address(daemon) if secure else daemon.address)
    if secure:
        peer.socket = certificates.trusting().wrap_socket(peer.socket, server_hostname="localhost")
    peer.open().channel(1)
    last = f"q{MANY // 2}"
    commands = [Queue.Declare(queue=f"q{number}", nowait=True) for number in range(MANY // 2)]
    commands.append(Queue.Declare(queue=last, nowait=True))
    data = b"".join(method_bytes(command, 1) for command in commands) + publish_bytes(last, b"last")
    peer.socket.sendall(data)
    peer.socket.close()
    end = time.monotonic() + PATIENCE_S
    while not has_message(daemon.address, last):
        assert time.monotonic() < end


def has_message(address: Address, queue: str) -> bool:
    """Whether a queue is there, and has a message."""
    peer = Peer(address).open()
    peer.channel(1).write(Queue.Declare(queue=queue, passive=True))
    answer = peer.expect_any((Queue.DeclareOk, Channel.Close), 1)
    peer.socket.close()
    return isinstance(answer, Queue.DeclareOk) and answer.message_count == 1
