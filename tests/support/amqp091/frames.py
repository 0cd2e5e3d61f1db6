"""Frames and messages of AMQP 0-9-1 as bytes, also invalid ones."""

import struct
from typing import Final, NamedTuple

from pamqp import base, encode, header
from pamqp import frame as pamqp_frame
from pamqp.commands import Basic

PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"
METHOD: Final = 1
HEADER: Final = 2
BODY: Final = 3
HEARTBEAT: Final = 8
FRAME_END: Final = 0xCE
FRAME_OVERHEAD: Final = 8
PERSISTENT: Final = b"\x10\x00\x02"  # properties: delivery mode 2 and nothing else
HEAD: Final = struct.Struct(">BHI")  # type, channel, size


class Frame(NamedTuple):
    """A received frame."""

    kind: int
    channel: int
    payload: bytes


class Message(NamedTuple):
    """A message as received: its method, its content header's payload after the class, and its body."""

    method: Basic.Deliver | Basic.GetOk | Basic.Return
    header: bytes
    body: bytes
    body_frames: tuple[int, ...]

    @property
    def properties(self) -> Basic.Properties:
        """The properties, decoded."""
        decoded = header.ContentHeader()
        decoded.unmarshal(self.header)
        return decoded.properties

    @property
    def tag(self) -> int:
        """The delivery tag."""
        assert not isinstance(self.method, Basic.Return)
        assert self.method.delivery_tag is not None
        return self.method.delivery_tag

    @property
    def consumer_tag(self) -> str | None:
        """The tag of the consumer it was delivered to."""
        assert isinstance(self.method, Basic.Deliver)
        return self.method.consumer_tag

    @property
    def redelivered(self) -> bool:
        """The redelivered flag."""
        assert not isinstance(self.method, Basic.Return)
        return bool(self.method.redelivered)


class UnexpectedClose(AssertionError):  # noqa: N818  an assertion that failed
    """The broker closed a channel or the connection when the test expected something else."""


def frame_bytes(kind: int, channel: int, payload: bytes, end: int = FRAME_END) -> bytes:
    """Return a frame, well formed by default. [amqp-0-9-1 4.2.3]"""
    return HEAD.pack(kind, channel, len(payload)) + payload + bytes([end])


def method_bytes(command: base.Frame, channel: int = 0) -> bytes:
    """A method frame."""
    return pamqp_frame.marshal(command, channel)


def several_lines(command: base.Frame, channel: int) -> bytes:
    """A method frame with names that `pamqp` refuses to encode: each `##` is a CR and an LF."""
    return method_bytes(command, channel).replace(b"##", b"\r\n")


def header_bytes(size: int, properties: Basic.Properties | bytes | None, channel: int) -> bytes:
    """A content header frame; `properties` may be the encoded flags and values. [amqp-0-9-1 4.2.6.1]"""
    encoded = properties if isinstance(properties, bytes) else (properties or Basic.Properties()).marshal()
    return frame_bytes(HEADER, channel, struct.pack(">HHQ", 60, 0, size) + encoded)


def body_frames(body: bytes, channel: int, frame_max: int) -> list[bytes]:
    """The body frames of a content; none for an empty body. [amqp-0-9-1 4.2.6.2]"""
    step = frame_max - FRAME_OVERHEAD
    return [frame_bytes(BODY, channel, body[at : at + step]) for at in range(0, len(body), step)]


def publish_bytes(
    key: str,
    body: bytes = b"",
    persistent: bool = False,
    mandatory: bool = False,
    channel: int = 1,
    properties: Basic.Properties | None = None,
) -> bytes:
    """A message to the default exchange."""
    command = Basic.Publish(routing_key=key, mandatory=mandatory)
    head = header_bytes(len(body), PERSISTENT if persistent else properties, channel)
    return b"".join([method_bytes(command, channel), head, *body_frames(body, channel, 4096)])


def decode_method(frame: Frame) -> base.Frame:
    """The method in a method frame."""
    assert frame.kind == METHOD, f"expected a method, got a frame of type {frame.kind}"
    _, _, command = pamqp_frame.unmarshal(frame_bytes(*frame))
    assert isinstance(command, base.Frame)
    return command


def describe(command: base.Frame) -> str:
    """A method with its arguments, for people."""
    return f"{command.name}({', '.join(f'{name}={value!r}' for name, value in command)})"


def amqplain(user: str, password: str) -> str:
    """The AMQPLAIN response: a field table's entries without the length before them."""
    return encode.field_table({"LOGIN": user, "PASSWORD": password})[4:].decode()
