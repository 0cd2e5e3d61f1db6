"""Delivery states that a peer has sent. [amqp-1.0 3.4, 4.5.8]"""

from typing import Final, final

from mypy_extensions import i64

from protocol.amqp10.annotations import check_annotations
from protocol.amqp10.conditions import DecodeError
from protocol.amqp10.constructors import (
    BINARY8,
    BINARY32,
    LIST0,
    SMALL_ULONG,
    STRING8,
    STRING32,
    SYMBOL8,
    SYMBOL32,
)
from protocol.amqp10.descriptors import (
    ACCEPTED,
    ERROR,
    MODIFIED,
    RECEIVED,
    REJECTED,
    RELEASED,
    TRANSACTIONAL_STATE,
)
from protocol.amqp10.fields import Fields


@final
class DeliveryState:
    """A delivery state; `code` is its descriptor, which decides the attributes that are meaningful.

    RECEIVED: section_number, section_offset. REJECTED: condition, description, info; without an error the
    condition is "". MODIFIED: delivery_failed, undeliverable_here, annotations. TRANSACTIONAL_STATE: txn_id,
    outcome. `info` and `annotations` are maps, encoded.
    """

    def __init__(self, code: i64) -> None:
        self.code: i64 = code
        self.section_number: i64 = 0
        self.section_offset = 0
        self.condition = ""
        self.description: str | None = None
        self.info: bytes | None = None
        self.delivery_failed = False
        self.undeliverable_here = False
        self.annotations: bytes | None = None
        self.txn_id = b""
        self.outcome: DeliveryState | None = None


ACCEPTED_STATE: Final = DeliveryState(ACCEPTED)
RELEASED_STATE: Final = DeliveryState(RELEASED)


def read_state(data: bytes, start: i64, end: i64, what: str) -> DeliveryState:
    """Return the delivery state from `start` to `end`; states without fields are shared objects.

    Raises DecodeError, also for an unknown state, and for declared, which only a coordinator sends.
    """
    if end - start == 4 and data[start + 3] == LIST0 and data[start + 1] == SMALL_ULONG:
        outcome: i64 = data[start + 2]
        if outcome == ACCEPTED and data[start] == 0:
            return ACCEPTED_STATE
    fields = Fields()
    code = fields.descriptor(data, start, end, what)
    if code == TRANSACTIONAL_STATE:
        state = _read_transactional(fields, data, end)
    elif code == RECEIVED:
        state = _read_received(fields, data, end)
    else:
        state = _read_outcome(fields, code, data, end, what)
    if fields.close() != end:
        raise DecodeError(f"{what}: bytes follow the last field")
    return state


def _read_outcome(fields: Fields, code: i64, data: bytes, end: i64, what: str) -> DeliveryState:
    if code == ACCEPTED:
        fields.open_list(data, fields.p, end, "accepted", 0)
        return ACCEPTED_STATE
    if code == RELEASED:
        fields.open_list(data, fields.p, end, "released", 0)
        return RELEASED_STATE
    state = DeliveryState(code)
    if code == REJECTED:
        fields.open_list(data, fields.p, end, "rejected", 1)
        error = fields.raw("error")
        if error >= 0:
            _read_error(state, data, error, fields.p)
    elif code == MODIFIED:
        fields.open_list(data, fields.p, end, "modified", 3)
        state.delivery_failed = fields.boolean("delivery-failed")
        state.undeliverable_here = fields.boolean("undeliverable-here")
        state.annotations = fields.raw_map("message-annotations")
        if state.annotations is not None:
            check_annotations(state.annotations, 0, len(state.annotations))
    else:
        raise DecodeError(f"{what} has a descriptor that is not allowed here")
    return state


def _read_received(fields: Fields, data: bytes, end: i64) -> DeliveryState:
    state = DeliveryState(RECEIVED)
    fields.open_list(data, fields.p, end, "received", 2)
    state.section_number = fields.required_uint("section-number")
    offset = fields.ulong("section-offset")
    if offset is None:
        raise fields.missing("section-offset")
    state.section_offset = offset
    return state


def _read_transactional(fields: Fields, data: bytes, end: i64) -> DeliveryState:
    state = DeliveryState(TRANSACTIONAL_STATE)
    fields.open_list(data, fields.p, end, "transactional-state", 2)
    txn_id = fields.content("txn-id", BINARY8, BINARY32)
    if txn_id is None:
        raise fields.missing("txn-id")
    state.txn_id = txn_id
    start = fields.raw("outcome")
    if start >= 0:
        inner = Fields()
        code = inner.descriptor(data, start, fields.p, "transactional-state.outcome")
        state.outcome = _read_outcome(inner, code, data, fields.p, "transactional-state.outcome")
        inner.close()
    return state


def _read_error(state: DeliveryState, data: bytes, start: i64, end: i64) -> None:
    fields = Fields()
    fields.open(data, start, end, ERROR, "error", 3)
    condition = fields.content("condition", SYMBOL8, SYMBOL32)
    if condition is None:
        raise fields.missing("condition")
    description = fields.content("description", STRING8, STRING32)
    state.info = fields.raw_map("info")
    fields.close()
    try:
        state.condition = condition.decode("ascii")
        state.description = None if description is None else description.decode("utf-8")
    except UnicodeDecodeError:
        raise DecodeError("error: condition is not ASCII, or description is not valid UTF-8") from None
