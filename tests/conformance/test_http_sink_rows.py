"""Rows for staged sinks over HTTP that are refused, whole requests of them, and why."""

import struct
import zlib

import pytest

from protocol.streams.chunk import BODY, SECTIONS, Chunk, ChunkWriter
from tests.conformance.test_http_sinks import Driver, chunk
from tests.support.admin.api import Api


def with_offsets(content: bytes, column: int, *offsets: int) -> bytes:
    """The same chunk, with other positions of the values of a column."""
    written = bytearray(content)
    struct.pack_into(f"<{len(offsets)}i", written, int(Chunk(content).columns[column].offsets), *offsets)
    written[48:52] = bytes(4)
    written[48:52] = zlib.crc32(written).to_bytes(4, "little")
    return bytes(written)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "there are no rows"),
        (chunk([b"a"])[:-8], "cut off"),
        (with_offsets(chunk([b"ab", b"c"]), BODY, 0, 4, 3), "a value from 0 to 4 of 3 bytes"),
        (with_offsets(chunk([b"ab", b"c"]), BODY, -1, 2, 3), "a column whose first offset is not 0"),
        (with_offsets(chunk([b"ab", b"c"]), BODY, 0, -2, 3), "a value from 0 to -2 of 3 bytes"),
        (chunk([b"a"] * 1001), "has 1001 rows, at most 1000"),
        (chunk([b"a"], exchange="absent"), "no exchange 'absent'"),
        (chunk([b"a"], properties=b"\x10"), "has no property flags"),
        (chunk([b"a"], properties=b"\x10\x00"), "property list overruns"),
        (chunk([b"a"], properties=b"\x00\x10\x01x"), "row 0 of the chunk: user_id property set to 'x'"),
        (chunk([b"a"], properties=b"\x01\x00\x01x"), "row 0 of the chunk: invalid expiration 'x'"),
        (
            chunk([b"a"], properties=b"\x02\x00\x15amq.rabbitmq.reply-to"),
            "its reply-to is amq.rabbitmq.reply-to",
        ),
    ],
)
def test_rows_that_make_no_sense_are_refused(api: Api, vhost: str, content: bytes, reason: str) -> None:
    driver = Driver(api, vhost)
    attempt = driver.begin(0)
    status = 404 if "absent" in reason else 400
    assert reason in driver.add(attempt, 0, content, status=status)["reason"]
    assert driver.state()["attempts"][0]["rows"] == 0


def test_rows_of_amqp10_are_refused(api: Api, vhost: str) -> None:
    driver = Driver(api, vhost)
    writer = ChunkWriter()
    writer.add(0, SECTIONS, b"", b"q", b"", b"\x00Su\xa0\x01a")
    assert "its kind is 1" in driver.add(driver.begin(0), 0, writer.take(0, 0), status=400)["reason"]
