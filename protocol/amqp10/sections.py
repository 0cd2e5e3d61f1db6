"""The sections of a message, found by constructors and sizes alone. [amqp-1.0 3.2]"""

from typing import Final, final

from librt.strings import read_i32_be
from mypy_extensions import i64

from protocol.amqp10.conditions import DecodeError
from protocol.amqp10.constructors import (
    BINARY8,
    BINARY32,
    LIST0,
    LIST8,
    LIST32,
    MAP8,
    NONE,
    SMALL_ULONG,
    truncated_error,
    undefined_error,
    value_end,
)
from protocol.amqp10.descriptors import (
    AMQP_SEQUENCE,
    AMQP_VALUE,
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
)
from protocol.amqp10.fields import Fields

SECTIONS_MAX: Final = 1000  # sections of a message

NAMES: Final[tuple[str, ...]] = (
    "header",
    "delivery-annotations",
    "message-annotations",
    "properties",
    "application-properties",
    "data",
    "amqp-sequence",
    "amqp-value",
    "footer",
)

_LIST: Final = 0  # the types that the value of a section may have
_MAP: Final = 1
_BINARY: Final = 2
_ANY: Final = 3
_SHAPES: Final = bytes([_LIST, _MAP, _MAP, _LIST, _MAP, _BINARY, _LIST, _ANY, _MAP])
_BODY: Final = 1 << DATA - HEADER | 1 << AMQP_SEQUENCE - HEADER | 1 << AMQP_VALUE - HEADER


@final
class Sections:
    """The sections from `start` to `end`, one after the other.

    After each `advance` that returned True, `code` is the section's descriptor, `start` its offset, `value`
    the offset of its value, and `end` the offset after the section.
    """

    def __init__(self, data: bytes, start: i64, end: i64, ordered: bool = True) -> None:
        self.data = data
        self.code: i64 = 0
        self.start: i64 = start
        self.value: i64 = start
        self.end: i64 = start
        self._limit: i64 = end
        self._ordered = ordered
        self._seen: i64 = 0  # a bit for each kind of section
        self._left: i64 = SECTIONS_MAX

    def advance(self) -> bool:
        """Go to the next section; False after the last section.

        Raises DecodeError for bytes that are no section, and for a value of the wrong type. A second section
        of the same kind is refused too, except in a body. A section in a body of other sections is refused.
        If the sections are `ordered`, a section in the wrong order is refused.
        """
        data = self.data
        p = self.end
        limit = self._limit
        if p >= limit:
            return False
        if limit - p > 3 and data[p] == 0 and data[p + 1] == SMALL_ULONG:
            code: i64 = data[p + 2]
            value: i64 = p + 3
        else:
            fields = Fields()
            code = fields.descriptor(data, p, limit, "section")
            value = fields.p
        if code < HEADER or code > FOOTER:
            raise DecodeError("section with an unknown descriptor")
        self._check_order(code)
        self.code = code
        self.start = p
        self.value = value
        self.end = section_end(data, value, limit, code)
        return True

    def _check_order(self, code: i64) -> None:
        """Raise DecodeError if this section must not follow those before it."""
        bit: i64 = 1 << (code - HEADER)
        seen = self._seen
        self._left -= 1
        if self._left < 0:
            raise DecodeError(f"message of more than {SECTIONS_MAX} sections")
        if seen & bit != 0 and (code < DATA or code > AMQP_SEQUENCE):
            raise DecodeError(f"second section {NAMES[code - HEADER]}")
        if bit & _BODY != 0 and seen & _BODY & ~bit != 0:
            raise DecodeError(f"section {NAMES[code - HEADER]} in a body of other sections")
        if self._ordered and seen >= bit << 1:
            raise DecodeError(f"section {NAMES[code - HEADER]} is in the wrong order")
        self._seen = seen | bit


def section_end(data: bytes, p: i64, limit: i64, code: i64) -> i64:
    """Return the offset after the value at `p` of a section with descriptor `code`.

    Only constructor, size and count are checked. Raises DecodeError.
    """
    shape: i64 = _SHAPES[code - HEADER]
    if shape == _ANY:
        return value_end(data, p, limit, "amqp-value")
    if p >= limit:
        raise truncated_error(NAMES[code - HEADER])
    constructor: i64 = data[p]
    if shape == _BINARY:
        if constructor != BINARY8 and constructor != BINARY32:
            raise undefined_error(data[p], "data")
        return value_end(data, p, limit, "data")
    if shape == _LIST and constructor == LIST0:
        return p + 1
    short: i64 = LIST8 if shape == _LIST else MAP8
    if constructor == short:
        size: int = data[p + 1] - 1 if limit - p >= 3 else -1
        count: int = data[p + 2] if size >= 0 else 0
        p += 3
    elif constructor == short + (LIST32 - LIST8):
        size = read_i32_be(data, p + 1) - 4 if limit - p >= 9 else -1
        count = read_i32_be(data, p + 5) if size >= 0 else 0
        p += 9
    else:
        raise undefined_error(data[p], NAMES[code - HEADER])
    if size < 0 or p + size > limit:
        raise truncated_error(NAMES[code - HEADER])
    if count < 0 or count > size:
        raise DecodeError(f"{NAMES[code - HEADER]} has {size} bytes for {count} values")
    if shape == _MAP and count % 2 != 0:
        raise DecodeError(f"{NAMES[code - HEADER]} has a key without a value")
    return p + size


@final
class Layout:
    """The offsets of the sections of a message; NONE for absent sections.

    Each attribute with the name of a section is the offset of its value, and `..._end` the offset after the
    value. `annotations`: the message-annotations. `header_start`, `annotations_start`: the offsets of these
    sections themselves. `bare`: the offset of the bare message, which the footer follows. `body`: the offset
    of the first section of the body. `body_count`: the number of these sections. `body_code`: their
    descriptor, 0 without a body.
    """

    def __init__(self) -> None:
        self.header_start: i64 = NONE
        self.header: i64 = NONE
        self.header_end: i64 = NONE
        self.annotations_start: i64 = NONE
        self.annotations: i64 = NONE
        self.annotations_end: i64 = NONE
        self.bare: i64 = NONE
        self.properties: i64 = NONE
        self.properties_end: i64 = NONE
        self.application_properties: i64 = NONE
        self.application_properties_end: i64 = NONE
        self.body: i64 = NONE
        self.body_end: i64 = NONE
        self.body_code: i64 = 0
        self.body_count: i64 = 0
        self.footer: i64 = NONE
        self.footer_end: i64 = NONE


def scan(data: bytes, start: i64, end: i64) -> Layout:
    """Return the layout of the message that lies from `start` to `end`. Raises DecodeError."""
    layout = Layout()
    sections = Sections(data, start, end)
    while sections.advance():
        _set_offsets(layout, sections)
    if layout.bare == NONE:
        layout.bare = end
    return layout


def scan_preamble(data: bytes) -> Layout:
    """Return the layout of the sections before the body of a message, without the body and the footer.

    Bytes that are no section, and all bytes after them, count as the body.
    """
    layout = Layout()
    sections = Sections(data, 0, len(data))
    try:
        while sections.advance() and sections.code < DATA:
            _set_offsets(layout, sections)
        bare = sections.start if sections.code >= DATA else sections.end
    except DecodeError:
        bare = sections.end
    if layout.bare == NONE:
        layout.bare = bare
    return layout


def is_sections(content: bytes) -> bool:
    """Whether stored content is a message of AMQP 1.0, which begins with a described value.

    The content of AMQP 0-9-1 begins with the type of a frame.
    """
    return len(content) > 0 and content[0] == 0


def _set_offsets(layout: Layout, sections: Sections) -> None:
    """Set the offsets of the current section of `sections`."""
    code = sections.code
    if code == HEADER:
        layout.header_start = sections.start
        layout.header = sections.value
        layout.header_end = sections.end
    elif code == MESSAGE_ANNOTATIONS:
        layout.annotations_start = sections.start
        layout.annotations = sections.value
        layout.annotations_end = sections.end
    elif code != DELIVERY_ANNOTATIONS:
        if layout.bare == NONE:
            layout.bare = sections.start
        _set_bare_offsets(layout, sections, code)


def _set_bare_offsets(layout: Layout, sections: Sections, code: i64) -> None:
    """Set the offsets of a section of the bare message, or of the footer."""
    if code == PROPERTIES:
        layout.properties = sections.value
        layout.properties_end = sections.end
    elif code == APPLICATION_PROPERTIES:
        layout.application_properties = sections.value
        layout.application_properties_end = sections.end
    elif code == FOOTER:
        layout.footer = sections.value
        layout.footer_end = sections.end
    else:
        if layout.body_count == 0:
            layout.body = sections.start
            layout.body_code = code
        layout.body_count += 1
        layout.body_end = sections.end
