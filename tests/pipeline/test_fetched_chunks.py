"""Chunks out of answers of the broker: wherever blocks end, and wherever an answer does."""

from __future__ import annotations

import io
import random
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest

pytest.importorskip("pyspark")

from pipeline.connector import streams
from pipeline.connector.offsets import Place, Range
from pipeline.connector.server import PasswordSource, Server, ServerError, TlsFiles
from pipeline.connector.streams import fetch_range
from protocol.streams.chunk import BODY, ChunkWriter

LENGTHS = [1, 5000, 0, 40, 3, 700, 12, 12, 12, 2500]
WANTED = Range(Place("s", 0), "7", 0, len(LENGTHS))


class Answers:
    """A server with a single stream, and a chunk for each row."""

    vhost = "/"

    def __init__(self) -> None:
        self.chunks = []
        for offset, length in enumerate(LENGTHS):
            writer = ChunkWriter()
            writer.add(1, 0, b"", b"key", b"", random.Random(offset).randbytes(length))
            self.chunks.append(writer.take(offset, 7))
        self.ends: list[int] = []  # the ends of the next answers, in bytes
        self.asked: list[int] = []

    @contextmanager
    def open(self, *path: str, **query: Any) -> Iterator[io.BytesIO]:
        self.asked.append(query["from"])
        answer = b"".join(self.chunks[query["from"] : query["to"]])
        yield io.BytesIO(answer[: self.ends.pop(0)] if self.ends else answer)

    def attempts(self) -> Iterator[float]:
        """Two, without a pause (Server)."""
        return iter((1.0, 1.0))

    def read(self) -> list[bytes]:
        """The bodies."""
        found = fetch_range(cast("Server", self), WANTED, gaps=False)
        return [chunk.value(BODY, start - chunk.header.first) for chunk, start, _ in found]


def bodies() -> list[bytes]:
    return [random.Random(offset).randbytes(length) for offset, length in enumerate(LENGTHS)]


@pytest.mark.parametrize("block", [1, 7, 64, 72, 300, 5000, 8191, 1 << 20])
def test_chunks_are_found_wherever_blocks_end(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "BLOCK_BYTES", block)
    answers = Answers()
    assert answers.read() == bodies()
    assert answers.asked == [0]


def test_an_answer_that_ends_too_soon_is_asked_for_again_from_there() -> None:
    lengths = [len(chunk) for chunk in Answers().chunks]
    for end in (*range(1, sum(lengths), 13), lengths[0], sum(lengths[:3])):
        answers = Answers()
        answers.ends = [end]
        assert answers.read() == bodies()
        whole = next(count for count in range(len(lengths)) if sum(lengths[: count + 1]) > end)
        assert answers.asked == [0, whole]


def test_a_connection_that_always_ends_within_the_same_chunk_is_given_up() -> None:
    answers = Answers()
    answers.ends = [30, 30, 30]
    with pytest.raises(
        ServerError, match="from 0 on: the answer ends 30 bytes after the beginning of a chunk"
    ):
        answers.read()
    assert answers.asked == [0, 0, 0], "the second request has the broker look for damage"


@contextmanager
def breaking(chunks: list[bytes], after: int) -> Iterator[tuple[int, list[int]]]:
    """Run a server whose connections break after so many bytes; yield its port and the requested offsets."""
    asked: list[int] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                request = connection.recv(65536).decode()
                asked.append(int(request.split("from=")[1].split("&")[0]))
                body = b"".join(chunks[asked[-1] :])
                head = f"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{len(body):x}\r\n"
                connection.sendall(head.encode() + body[:after])

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listener.getsockname()[1], asked
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def test_chunks_received_before_a_connection_broke_count() -> None:
    answers = Answers()
    with breaking(answers.chunks, 7000) as (port, asked):
        base = f"http://127.0.0.1:{port}"
        server = Server((), (base,), "guest", PasswordSource(), "/", TlsFiles(), timeout=5, retries=0)
        rows = fetch_range(server, WANTED, gaps=False)
        assert [chunk.value(BODY, 0) for chunk, _, _ in rows] == bodies()
    first, second = asked
    assert first == 0
    assert len(b"".join(answers.chunks[:second])) <= 7000 < len(b"".join(answers.chunks[: second + 1]))
