"""Requests and responses as messages. [HTTP over AMQP, working draft 6; RabbitMQ rabbit_amqp_management]"""

from typing import Final, final

from mypy_extensions import i64

from broker.adapters.amqp10.management.refusal import BAD_REQUEST, TOO_LARGE, Refused
from protocol.amqp10.conditions import DecodeError
from protocol.amqp10.constructors import NONE
from protocol.amqp10.decoding import decode
from protocol.amqp10.descriptors import AMQP_SEQUENCE, AMQP_VALUE, APPLICATION_PROPERTIES, DATA, PROPERTIES
from protocol.amqp10.encoding import encode, encode_described
from protocol.amqp10.properties import MESSAGE_ID, REPLY_TO, SUBJECT, TO, read_property, read_text
from protocol.amqp10.sections import Sections
from protocol.amqp10.writing import NULL_VALUE, composite

REQUEST_BYTES_MAX: Final = 32768  # to decode one takes milliseconds
HERE: Final = "$me"  # what a request replies to: the other link of the pair

_VERSION: Final = encode_described(APPLICATION_PROPERTIES, encode({"http:response": "1.1"}))
_VALUE: Final = encode_described(AMQP_VALUE, b"")  # what stands in front of a body


@final
class Request:
    """A request: what `method` does to `target`, a path; `body` is decoded, None if there is none.

    `message_id` is encoded as it came, so that the response has the same value of the same type.
    """

    def __init__(self) -> None:
        self.message_id = NULL_VALUE
        self.method = ""
        self.target = ""
        self.body: object = None

    def read(self, data: bytes) -> None:
        """Take the sections of a message, which may come in any order. Raises Refused.

        As much as can be told is there after that too, first of all `message_id`.
        """
        found = _Found(data)
        if found.properties != NONE:
            try:
                self._read_properties(data, found.properties, found.properties_end)
            except DecodeError as error:
                raise Refused(BAD_REQUEST, error.text) from None
        if len(data) > REQUEST_BYTES_MAX:
            text = f"request of {len(data)} bytes, at most {REQUEST_BYTES_MAX} are taken"
            raise Refused(TOO_LARGE, text)
        if found.fault:
            raise Refused(BAD_REQUEST, found.fault)
        if found.properties == NONE:
            raise Refused(BAD_REQUEST, "request without properties")
        self.body = found.body()

    def _read_properties(self, data: bytes, value: i64, end: i64) -> None:
        """Raises DecodeError, Refused."""
        message_id = read_property(data, value, end, MESSAGE_ID)
        if message_id is not None:
            decode(message_id)  # what is no value is not sent back
            self.message_id = message_id
        target = read_text(data, value, end, TO)
        method = read_text(data, value, end, SUBJECT)
        self.target = target or ""
        self.method = method or ""
        if target is None:
            raise Refused(BAD_REQUEST, "properties.to, the path, is missing")
        if method is None:
            raise Refused(BAD_REQUEST, "properties.subject, the method, is missing")
        reply_to = read_text(data, value, end, REPLY_TO)
        if reply_to is not None and reply_to != HERE:
            raise Refused(BAD_REQUEST, f"properties.reply-to is '{reply_to}', only '{HERE}' is possible")


@final
class _Found:
    """Where the properties and the body of a message lie, as far as its sections are sound."""

    def __init__(self, data: bytes) -> None:
        self.properties: i64 = NONE
        self.properties_end: i64 = NONE
        self.fault = ""
        self._data = data
        self._code: i64 = 0
        self._bodies: list[tuple[i64, i64]] = []
        sections = Sections(data, 0, len(data), ordered=False)
        try:
            while sections.advance():
                if sections.code == PROPERTIES:
                    self.properties = sections.value
                    self.properties_end = sections.end
                elif DATA <= sections.code <= AMQP_VALUE:
                    self._code = sections.code
                    self._bodies.append((sections.value, sections.end))
        except DecodeError as error:
            self.fault = error.text

    def body(self) -> object:
        """The body decoded; data is bytes. Raises Refused."""
        if self._code == AMQP_SEQUENCE:
            raise Refused(BAD_REQUEST, "the body is amqp-sequence, amqp-value is expected")
        if not self._bodies:
            return None
        try:
            values = [decode(self._data, start, end)[0] for start, end in self._bodies]
        except DecodeError as error:
            raise Refused(BAD_REQUEST, error.text) from None
        if self._code == AMQP_VALUE:
            return values[0]
        return b"".join([value for value in values if isinstance(value, bytes)])


def response(status: int, message_id: bytes, body: list[bytes]) -> bytes:
    """The sections of the response to the request with that encoded message-id; `body` is encoded too."""
    absent = NULL_VALUE
    fields = [absent, absent, absent, encode(str(status)), absent, message_id]
    return b"".join([composite(PROPERTIES, fields), _VERSION, _VALUE, *body])
