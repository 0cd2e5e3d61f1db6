"""Text and numbers in the encodings of both protocols."""

from librt.strings import read_i32_be
from mypy_extensions import i64

from protocol.amqp10.conditions import DecodeError


def check_text(raw: bytes) -> None:
    """Raise DecodeError unless the bytes of a string are UTF-8."""
    if not is_text(raw):
        raise DecodeError("string that is not valid UTF-8")


def is_text(raw: bytes) -> bool:
    """Whether the bytes are UTF-8."""
    if raw.isascii():
        return True
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def unsigned32(data: bytes, p: i64) -> i64:
    """Return the unsigned number in the four octets at `p`."""
    number: int = read_i32_be(data, p)
    return number & 0xFFFFFFFF
