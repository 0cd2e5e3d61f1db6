"""The scan of the sections of a body that arrives in parts, cut anywhere. [amqp-1.0 3.2]"""

from typing import Final, final

from mypy_extensions import i64

from protocol.amqp10.conditions import DecodeError
from protocol.amqp10.constructors import NONE, find_value_end, truncated_error
from protocol.amqp10.descriptors import AMQP_SEQUENCE, AMQP_VALUE, DATA, FOOTER
from protocol.amqp10.fields import Fields
from protocol.amqp10.sections import SECTIONS_MAX, section_end

START_BYTES_MAX: Final = 1024  # a section has its size within so many bytes

_HEAD_BYTES_MAX: Final = 9  # constructor, size and count of a list or map
_BODY: Final = (DATA, AMQP_SEQUENCE, AMQP_VALUE)


@final
class BodyScan:
    """A check that the bytes fed are the sections of a single body, and perhaps a footer.

    The values in the sections are not checked, as in a message that arrives whole. The result does not
    depend on how the bytes are cut into parts.
    """

    def __init__(self) -> None:
        self._code: i64 = 0  # the descriptor of the body's sections
        self._left: i64 = 0  # bytes of the current section that have not arrived
        self._footer = False
        self._start = b""  # the bytes of the next section that have arrived
        self._sections: i64 = 0

    def feed(self, part: bytes) -> None:
        """Check the next part. Raises DecodeError."""
        data = self._start + part if self._start else part
        self._start = b""
        p: i64 = 0
        n: i64 = len(data)
        while p < n:
            if self._left == 0 and not self._begin(data, p, n):
                return
            taken: i64 = min(self._left, n - p)
            self._left -= taken
            p += taken

    def end(self) -> None:
        """End the scan after the last part. Raises DecodeError if the last section is incomplete."""
        if self._left > 0 or self._start:
            raise truncated_error("body")

    def _begin(self, data: bytes, p: i64, end: i64) -> bool:
        """Begin the section at `p`; False if too few of its bytes have arrived to know its size."""
        seen: i64 = min(end, p + START_BYTES_MAX)  # no more, so that the result does not depend on the cuts
        fields = Fields()
        end_offset: i64 = NONE
        code: i64 = 0
        try:
            code = fields.descriptor(data, p, seen, "section")
            end_offset = find_value_end(data, fields.p, seen, "section")
        except DecodeError:
            if seen - p == START_BYTES_MAX:
                raise
        if end_offset == NONE or (end_offset > seen and seen - fields.p < _HEAD_BYTES_MAX):
            if seen - p == START_BYTES_MAX:
                raise DecodeError(f"section without a size in its first {START_BYTES_MAX} bytes")
            self._start = data[p:end]
            return False
        self._check_order(code)
        self._left = section_end(data, fields.p, end_offset, code) - p
        return True

    def _check_order(self, code: i64) -> None:
        """Raise DecodeError if a section with this descriptor must not follow the sections before it."""
        self._sections += 1
        if self._sections > SECTIONS_MAX:
            raise DecodeError(f"message of more than {SECTIONS_MAX} sections")
        if self._footer:
            raise DecodeError("section after the footer")
        if code == FOOTER:
            self._footer = True
        elif code not in _BODY or (self._code != 0 and (code != self._code or code == AMQP_VALUE)):
            raise DecodeError("section that is not allowed in this body")
        else:
            self._code = code
