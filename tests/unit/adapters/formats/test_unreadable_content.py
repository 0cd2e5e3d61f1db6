"""Selectors and content that the disk does not give back."""

import errno

import pytest

from broker.adapters.formats.either import SelectorFilter
from broker.core.message import Address, Message
from broker.core.queues.queue import Queue
from broker.core.selector.selector import Selector
from tests.support.core.queue_bench import Client, HandScheduler
from tests.support.core.topology import RecordingStore, content_of, new_vhost


class FailingStore(RecordingStore):
    """Gives back no content."""

    def load(self, message: Message) -> bytes:
        raise OSError(errno.EIO, "Input/output error")


@pytest.fixture
def queue() -> Queue:
    """Three messages with a = 1; the content of the first two is on disk only."""
    queue = new_vhost(FailingStore()).declarations.declare_queue("q", False, None, False, {})
    for number in range(3):
        message = Message(Address("", "q"), content_of(headers={"a": 1}), 1, False, 0)
        queue.enqueue(message)
        if number < 2:
            message.content = None
    return queue


def test_unreadable_content_matches_no_filter_and_is_reported_once(queue: Queue) -> None:
    log_lines: list[str] = []
    client = Client(
        queue, HandScheduler(), entry_filter=SelectorFilter(Selector("a = 1"), queue.store, log_lines.append)
    )
    client.session.connection.pump(16)
    assert [entry.message.content is not None for entry in client.deliveries] == [True]
    assert queue.ready == 2, "they wait for somebody without a selector"
    [text] = log_lines
    assert "a = 1" in text
    assert "Input/output error" in text


def test_a_direct_call_raises_the_error(queue: Queue) -> None:
    [first, *_] = queue.entries
    with pytest.raises(OSError, match="Input/output"):
        SelectorFilter(Selector("a = 1"), queue.store).passes(first)
