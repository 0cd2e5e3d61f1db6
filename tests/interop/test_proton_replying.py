"""python-qpid-proton asks and answers over nodes that the broker makes for a link. Unmodified."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.interop.proton_connection import (
    ACCEPTED,
    ProtonDial,
    Sender,
    bodies,
    dialling,
    handlers,
    proton,
    reactor,
    take,
    url,
    utils,
)
from tests.support.daemon.daemon import PATIENCE_S, Address

CLIENTS = 5
CALLS = 20


@pytest.fixture
def dial(address: Address) -> Iterator[ProtonDial]:
    """Open connections."""
    yield from dialling(address)


class Answering(handlers.MessagingHandler):  # type: ignore[misc]
    """Answers requests in a queue with twice their number until it has answered all."""

    def __init__(self, address: str, queue: str) -> None:
        super().__init__()
        self._address = address
        self._queue = queue
        self._sender: Any = None
        self._unsettled = CLIENTS * CALLS

    def on_start(self, event: Any) -> None:
        """Begin."""
        connection = event.container.connect(self._address)
        self._sender = event.container.create_sender(connection, None)
        event.container.create_receiver(connection, f"/queues/{self._queue}")

    def on_message(self, event: Any) -> None:
        """Answer where the request says."""
        request = event.message
        answer = {"address": request.reply_to, "correlation_id": request.correlation_id}
        self._sender.send(proton.Message(body=request.body * 2, **answer))

    def on_settled(self, event: Any) -> None:
        """Count an answer that was accepted, by a client or for nobody."""
        assert event.delivery.remote_state == proton.Delivery.ACCEPTED
        self._unsettled -= 1
        if not self._unsettled:
            event.connection.close()


def test_requests_are_answered_where_each_asker_says(
    dial: ProtonDial, channel: BlockingChannel, address: Address, name: str
) -> None:
    channel.queue_declare(name)
    answering = threading.Thread(target=reactor.Container(Answering(url(address), name)).run)
    answering.start()
    askers = [utils.SyncRequestResponse(dial(), f"/queues/{name}") for _ in range(CLIENTS)]
    answers = [asker.call(proton.Message(body=number)).body for number in range(CALLS) for asker in askers]
    assert answers == [number * 2 for number in range(CALLS) for _ in askers]
    assert len({asker.reply_to for asker in askers}) == CLIENTS
    answering.join(PATIENCE_S)
    assert not answering.is_alive()
    channel.queue_delete(name)


def test_a_dynamic_node_goes_with_its_link(dial: ProtonDial) -> None:
    connection = dial()
    receiver = connection.create_receiver(None, dynamic=True)
    node = receiver.link.remote_source.address
    sender = Sender(connection, node)
    assert sender.send(proton.Message(body="answer")) == [ACCEPTED]
    assert bodies(take(receiver, 1)) == ["answer"]
    receiver.close()
    with pytest.raises(utils.LinkDetached) as refused:
        dial().create_sender(node)
    assert refused.value.condition == "amqp:not-found"


def test_a_dynamic_node_goes_with_its_connection(dial: ProtonDial) -> None:
    connection = dial()
    node = connection.create_receiver(None, dynamic=True).link.remote_source.address
    assert Sender(dial(), node).send(proton.Message(body="answer")) == [ACCEPTED]
    connection.close()
    with pytest.raises(utils.LinkDetached) as refused:
        dial().create_sender(node)
    assert refused.value.condition == "amqp:not-found"


def test_nobody_else_receives_from_a_dynamic_node(dial: ProtonDial) -> None:
    node = dial().create_receiver(None, dynamic=True).link.remote_source.address
    with pytest.raises(utils.LinkDetached) as refused:
        dial().create_receiver(node)
    assert refused.value.condition == "amqp:resource-locked"
