"""Messages of AMQP 1.0 in queues of a broker whose parts are moved by hand."""

from broker.core.message import Body, Message, piece_of
from broker.core.publishing.publisher import ROUTED
from tests.support.adapters.connection_without_socket import BrokerBench
from tests.support.amqp10.contents import BODY, content10
from tests.support.amqp10.reference_codec import described

PIECE_BYTES = 131072
ON_DISK = 1_000_000  # and the number of its piece is the sequence of one that is on disk only


def data(payload: bytes) -> bytes:
    """A data section."""
    return described(0x75, b"\xb0" + len(payload).to_bytes(4, "big") + payload)


def put(
    bench: BrokerBench, content: bytes, name: str = "q", expiration: int = -1, size: int = len(BODY)
) -> Message:
    """A message that has been published to the queue of this name."""
    return _publish(bench, content, name, expiration, size, None)


def put_large(
    bench: BrokerBench,
    sections: bytes,
    front: bytes | None = None,
    name: str = "q",
    piece_bytes: int = PIECE_BYTES,
    on_disk: bool = False,
) -> Message:
    """A message with this body, in pieces, behind this front."""
    body = Body([])
    for start in range(0, len(sections), piece_bytes):
        cut = sections[start : start + piece_bytes]
        piece = piece_of(body, cut, len(cut))
        if on_disk:
            piece.sequence = ON_DISK + len(body.pieces)
            bench.store.contents[piece.sequence] = cut
            piece.content = None
    front = content10(body=b"") if front is None else front
    return _publish(bench, front, name, -1, len(sections), body)


def _publish(
    bench: BrokerBench, content: bytes, name: str, expiration: int, size: int, body: Body | None
) -> Message:
    vhost = bench.broker.vhosts["/"]
    route = vhost.publisher.route("", name)
    message = Message(route.address, content, size, True, 0)
    message.expiration = expiration
    message.body = body
    assert vhost.publisher.publish_carefully(route, message) is ROUTED
    return message
