"""Every confirm follows the fdatasync of its batch: seen from outside, in the system calls of the broker."""

import shutil
from pathlib import Path

import pytest
from pamqp.commands import Basic

from tests.interop import sync_trace
from tests.support.amqp091.peer import Connector, PeerChannel
from tests.support.daemon.daemon import DaemonStarter

PERSISTENT = Basic.Properties(delivery_mode=2)


class MarkingPublisher:
    """Publishes persistent messages with a mark in each, and remembers the mark of every delivery tag."""

    def __init__(self, channel: PeerChannel, queue: str, label: str) -> None:
        self.channel = channel
        self.queue = queue
        self.label = label
        self.marks: dict[int, bytes] = {}
        self.published = 0
        self.confirmed = 0
        channel.confirm_select()

    def encode(self, padding: int = 0) -> bytes:
        """The next message; its mark is at the end of the body."""
        self.published += 1
        mark = b"<mark %s %d>" % (self.label.encode(), self.published)
        self.marks[self.published] = mark
        return self.channel.encode_publish(bytes(padding) + mark, self.queue, properties=PERSISTENT)

    def encode_transient(self) -> bytes:
        """The next message; it need not be on disk."""
        self.published += 1
        return self.channel.encode_publish(b"transient", self.queue)

    def send(self, *messages: bytes) -> None:
        """Send without waiting."""
        self.channel.peer.send(b"".join(messages))

    def await_confirms(self) -> None:
        """Wait until everything so far is confirmed."""
        self.channel.expect_confirms(self.published, first=self.confirmed + 1)
        self.confirmed = self.published


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_every_confirm_follows_the_sync_of_its_batch(
    start_daemon: DaemonStarter, connect: Connector, tmp_path: Path
) -> None:
    trace = tmp_path / "trace"
    daemon = start_daemon(wrapper=sync_trace.command(trace))
    publishers = []
    for label in ("a", "b"):
        channel = connect(daemon.address).channel()
        channel.declare(label, durable=True)
        publishers.append(MarkingPublisher(channel, label, label))
    first, second = publishers

    for _ in range(20):  # singly, alone and together
        first.send(first.encode())
        first.await_confirms()
        first.send(first.encode())
        second.send(second.encode())
        first.await_confirms()
        second.await_confirms()
    for _ in range(5):  # streams: batches fill while others are being synced
        for publisher in publishers:
            publisher.send(*(publisher.encode() for _ in range(300)))
    for publisher in publishers:
        publisher.await_confirms()
    for _ in range(50):  # transient ones in between, which by themselves need not wait
        first.send(first.encode_transient(), first.encode(), first.encode_transient())
        second.send(second.encode_transient())
    for publisher in publishers:
        publisher.await_confirms()
    # writes that are too large for the event loop, with small ones right behind
    first.send(first.encode(3_000_000), first.encode(), first.encode(100_000), first.encode())
    second.send(second.encode(), second.encode(2_000_000))
    for publisher in publishers:
        publisher.await_confirms()
        publisher.channel.peer.close()
    daemon.stop()

    calls = sync_trace.parse(trace)
    published = {publisher.channel.peer.name: publisher.marks for publisher in publishers}
    data = tmp_path / "data"
    assert sync_trace.early_confirms(calls, data, published) == []
    # the same trace without its syncs must not pass, nor without some of them
    syncs = [call for call in calls if call.name == "fdatasync" and str(data) in call.file]
    assert len(syncs) > 50
    without_any = [call for call in calls if call not in syncs]
    marks = sum(len(publisher.marks) for publisher in publishers)
    assert len(sync_trace.early_confirms(without_any, data, published)) == marks
    without_some = [call for call in calls if call not in syncs[::7]]
    assert 0 < len(sync_trace.early_confirms(without_some, data, published)) < marks
