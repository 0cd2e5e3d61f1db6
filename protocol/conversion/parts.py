"""The body of a message of AMQP 1.0 that arrives in parts, cut anywhere. [amqp-1.0 3.2]"""

from typing import Final, final

from mypy_extensions import i64

from protocol.amqp10.conditions import DecodeError
from protocol.amqp10.constructors import BINARY8, BINARY32, NONE, truncated_error, undefined_error
from protocol.amqp10.descriptors import AMQP_SEQUENCE, AMQP_VALUE, DATA, FOOTER
from protocol.amqp10.fields import Fields
from protocol.amqp10.sections import SECTIONS_MAX
from protocol.conversion.octets import unsigned32

START_BYTES_MAX: Final = 27  # a data section before its content, with a long symbol and a long binary


@final
class BodyParts:
    """The content of a body's data sections, part by part.

    `code`: the descriptor of the body's sections, 0 before the first section. `size`: bytes of data sections
    so far. `left`: bytes of the current section that have not come. `ended`: further bytes do not matter,
    because a footer has begun or this body has no data sections.
    """

    def __init__(self) -> None:
        self.code: i64 = 0
        self.size: i64 = 0
        self.left: i64 = 0
        self.ended = False
        self._start = b""  # the beginning of a section, as far as it has arrived
        self._sections: i64 = 0

    def feed(self, part: bytes) -> list[bytes]:
        """Return the content of data sections in the next part.

        Raises DecodeError for a section that does not belong in a body.
        """
        data = self._start + part if self._start else part
        self._start = b""
        contents: list[bytes] = []
        p: i64 = 0
        n: i64 = len(data)
        while p < n and not self.ended:
            if self.left == 0:
                p = self._begin(data, p, n)
                if p == NONE:
                    break
            taken: i64 = min(self.left, n - p)
            if taken > 0:
                contents.append(data[p : p + taken])
                self.skip(taken)
                p += taken
        return contents

    def skip(self, count: i64) -> None:
        """Skip `count` bytes of the current section, at most `left`."""
        self.left -= count
        self.size += count

    def end(self) -> None:
        """End the body after its last part. Raises DecodeError if the last section is incomplete."""
        if self.left > 0 or self._start:
            raise truncated_error("body")

    def _begin(self, data: bytes, p: i64, end: i64) -> i64:
        """Return the offset of the content of the section at `p`; NONE if its start has not all arrived."""
        fields = Fields()
        try:
            code = fields.descriptor(data, p, end, "section")
            if code == DATA:
                value = self._open(data, fields.p, end)
            else:
                self._close(code)
                value = end
        except DecodeError:
            if end - p >= START_BYTES_MAX or self.ended:
                raise
            self._start = data[p:end]
            return NONE
        self._sections += 1
        if self._sections > SECTIONS_MAX:
            raise DecodeError(f"message of more than {SECTIONS_MAX} sections")
        self.code = self.code or code
        return value

    def _open(self, data: bytes, p: i64, end: i64) -> i64:
        """Begin the data section whose value is at `p`, and return the offset of its content."""
        if end - p < 2:
            raise truncated_error("data")
        constructor: i64 = data[p]
        if constructor == BINARY8:
            self.left = data[p + 1]
            return p + 2
        if constructor != BINARY32:
            raise undefined_error(data[p], "data")
        if end - p < 5:
            raise truncated_error("data")
        self.left = unsigned32(data, p + 1)
        return p + 5

    def _close(self, code: i64) -> None:
        """Take the beginning of a section that is no data section. Raises DecodeError."""
        self.ended = True
        if code != FOOTER and (self.code != 0 or (code != AMQP_SEQUENCE and code != AMQP_VALUE)):
            raise DecodeError("section that is not allowed in this body")
