"""A WebSocket between an event loop's socket and a transport, both moved by hand."""

import pytest
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Event, Ping, Pong, Request

from broker.net.transport import READ_BYTES
from broker.net.websocket import FRAMES_PER_STEP
from protocol.websocket import MESSAGE_BYTES
from tests.support.net.websocket_ends import WebSocketEnds


@pytest.fixture
def wired() -> WebSocketEnds:
    """A pair of ends after the handshake."""
    wired = WebSocketEnds()
    assert wired.above.socket is wired.websocket
    wired.send(Request(host="h", target="/", subprotocols=["amqp"]))
    (accepted,) = wired.heard()
    assert isinstance(accepted, AcceptConnection)
    return wired


def small(count: int) -> list[Event]:
    return [BytesMessage(b"%06d" % n) for n in range(count)]


def expected(count: int) -> bytes:
    return b"".join(b"%06d" % n for n in range(count))


def test_socket_methods_that_a_transport_uses(wired: WebSocketEnds) -> None:
    assert wired.websocket.get_extra_info("peername") == ("::1", 7)
    assert wired.websocket.get_extra_info("websocket", False) is True
    assert wired.websocket.get_extra_info("cipher", "none") == "none"
    assert wired.websocket.get_write_buffer_size() == 77
    wired.websocket.set_write_buffer_limits(9, 3)
    assert wired.socket.limits == (9, 3)
    assert not wired.websocket.can_write_eof()
    assert wired.websocket.eof_received() is False
    wired.websocket.connection_lost(None)
    assert wired.above.lost == 1
    assert wired.websocket.get_extra_info("peername") is None
    assert wired.websocket.get_write_buffer_size() == 0
    wired.websocket.close()
    wired.websocket.abort()


def test_payload_goes_up_and_messages_go_down(wired: WebSocketEnds) -> None:
    wired.send(*small(3))
    assert wired.above.heard == expected(3)
    assert wired.above.reads == [18], "in one piece"
    wired.websocket.write(b"x" * (2 * MESSAGE_BYTES + 1))
    messages = wired.heard()
    assert [len(message.data) for message in messages] == [MESSAGE_BYTES, MESSAGE_BYTES, 1]
    assert all(message.message_finished for message in messages)


def test_nothing_is_written_before_the_handshake() -> None:
    wired = WebSocketEnds()
    wired.websocket.write(b"too early")
    assert wired.socket.written == b""
    wired.websocket.close()
    assert wired.socket.closed


def test_many_small_frames_take_several_turns(wired: WebSocketEnds) -> None:
    wired.send(*small(10 * FRAMES_PER_STEP))
    assert wired.above.heard == expected(FRAMES_PER_STEP)
    assert not wired.socket.reading, "nothing more is read while frames are left"
    assert wired.loop.run() >= 9
    assert wired.above.heard == expected(10 * FRAMES_PER_STEP)
    assert wired.socket.reading


def test_a_paused_transport_is_given_nothing(wired: WebSocketEnds) -> None:
    wired.above.on_data = wired.websocket.pause_reading
    wired.send(*small(3 * FRAMES_PER_STEP))
    wired.loop.run()
    assert wired.above.heard == expected(FRAMES_PER_STEP)
    wired.arrive(wired.client.send(BytesMessage(b"late")))  # as loops may with TLS
    wired.loop.run()
    assert wired.above.heard == expected(FRAMES_PER_STEP)
    assert not wired.socket.reading
    wired.above.on_data = lambda: None
    wired.websocket.resume_reading()
    wired.loop.run()
    assert wired.above.heard == expected(3 * FRAMES_PER_STEP) + b"late"
    assert wired.socket.reading


def test_a_transport_that_pauses_and_resumes_at_once_gets_all_in_order(wired: WebSocketEnds) -> None:
    def twice() -> None:
        wired.websocket.pause_reading()
        wired.websocket.resume_reading()

    wired.above.on_data = twice
    wired.send(*small(5 * FRAMES_PER_STEP))
    wired.loop.run()
    assert wired.above.heard == expected(5 * FRAMES_PER_STEP)
    assert wired.socket.reading


def test_no_piece_is_larger_than_the_buffer_of_the_transport(wired: WebSocketEnds) -> None:
    wired.websocket.pause_reading()
    wired.send(BytesMessage(bytes(3 * READ_BYTES)))
    wired.websocket.resume_reading()
    wired.loop.run()
    assert wired.above.heard == bytes(3 * READ_BYTES)
    assert max(wired.above.reads) == READ_BYTES


def test_a_peer_that_does_not_read_gets_one_pong_when_it_does(wired: WebSocketEnds) -> None:
    wired.websocket.pause_writing()
    assert [wired.above.blocked] == [True]
    for number in range(1000):
        wired.send(Ping(b"%d" % number))
    wired.loop.run()
    assert wired.socket.written == b""
    wired.websocket.resume_writing()
    assert [wired.above.blocked] == [False]
    assert wired.heard() == [Pong(b"999")]


def test_a_ping_while_the_transport_is_paused_waits(wired: WebSocketEnds) -> None:
    wired.websocket.pause_reading()
    wired.send(Ping(b"x"))
    assert wired.heard() == []
    wired.websocket.resume_reading()
    wired.loop.run()
    assert wired.heard() == [Pong(b"x")]


def test_the_peer_closes_behind_its_last_words(wired: WebSocketEnds) -> None:
    closing: list[bool] = []
    wired.above.on_data = lambda: closing.append(wired.websocket.is_closing())
    wired.send(BytesMessage(b"last words"), CloseConnection(1000))
    assert wired.above.heard == b"last words"
    assert closing == [True], "an answer to them would come too late"
    assert wired.websocket.is_closing()
    assert wired.socket.closed
    assert wired.heard() == [CloseConnection(1000, "")]
    wired.websocket.write(b"nobody hears that")
    wired.websocket.connection_lost(None)
    assert wired.above.lost == 1


def test_closing_waits_for_the_peer_and_listens_to_nothing_else(wired: WebSocketEnds) -> None:
    wired.websocket.write(b"bye")
    wired.websocket.pause_reading()
    wired.websocket.close()
    wired.websocket.close()
    wired.websocket.write(b"nobody hears that")
    message, closed = wired.heard()
    assert (message.data, closed.code) == (b"bye", 1000)
    assert wired.websocket.is_closing()
    assert not wired.socket.closed
    assert wired.socket.reading, "or the answer would never be read"
    wired.websocket.pause_reading()
    assert wired.socket.reading
    # the peer sent this before it learned of the end
    wired.arrive(b"\x82\x81\0\0\0\0x" * (2 * FRAMES_PER_STEP))
    wired.loop.run()
    assert wired.above.heard == b""
    assert not wired.socket.closed
    wired.send(closed.response())
    assert wired.socket.closed


def test_closing_in_the_middle_of_a_turn(wired: WebSocketEnds) -> None:
    wired.above.on_data = wired.websocket.close
    wired.websocket.pause_reading()
    wired.send(BytesMessage(bytes(2 * READ_BYTES)))
    wired.websocket.resume_reading()
    wired.loop.run()
    assert wired.above.reads == [READ_BYTES], "the rest is not for who has closed"


def test_a_client_without_a_websocket_gets_an_answer_and_is_closed(wired: WebSocketEnds) -> None:
    wired.arrive(b"\x82\x01a")
    (closed,) = wired.heard()
    assert closed.code == 1002
    assert wired.socket.closed


def test_a_client_without_a_handshake_gets_an_answer_and_is_closed() -> None:
    wired = WebSocketEnds()
    wired.arrive(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    assert wired.socket.written.startswith(b"HTTP/1.1 426 ")
    assert wired.socket.closed
    wired.websocket.close()
    wired.websocket.resume_reading()


def test_aborting(wired: WebSocketEnds) -> None:
    wired.websocket.abort()
    assert wired.socket.aborted
