"""Frames and messages of AMQP 1.0 as peers send them, for tests that alter them."""

from uuid import UUID

from protocol.amqp10.composing import encode_composite
from protocol.amqp10.composites import Accepted, Coordinator, Error, Modified, Rejected, Source, Target
from protocol.amqp10.composites import TransactionalState as InTransaction
from protocol.amqp10.encoding import encode
from protocol.amqp10.frames import AMQP_FRAME, EMPTY_FRAME, SASL_FRAME, frame
from protocol.amqp10.performatives import (
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    SaslInit,
    SaslResponse,
    Transfer,
)
from protocol.amqp10.types import Array, Composite, Described, Map, Symbol, Timestamp, Ubyte, Uint, Ulong
from tests.support.amqp10.reference_codec import compound, described, message, sized

FILTERS = {"selector": Described(Symbol("apache.org:selector-filter:string"), "a = 1")}
SASL = (
    SaslInit(mechanism="PLAIN", initial_response=b"\0guest\0guest", hostname="a"),
    SaslResponse(response=b"x" * 20),
)
PERFORMATIVES: tuple[Composite, ...] = (
    Open(container_id="client", hostname="vhost:a", properties={"product": "x", "list": [1, None, 2.5]}),
    Begin(next_outgoing_id=0, incoming_window=2048, outgoing_window=2**32 - 1, properties={"a": UUID(int=1)}),
    Attach(
        name="link",
        handle=0,
        role=True,
        source=Source(address="/queues/a", filter=FILTERS, outcomes=("amqp:accepted:list",)),
        target=Target(capabilities=("queue",)),
        unsettled={b"tag": Accepted()},
        initial_delivery_count=0,
    ),
    Attach(name="txn", handle=1, role=False, source=Source(), target=Coordinator()),
    Flow(incoming_window=9, next_outgoing_id=1, outgoing_window=9, handle=0, link_credit=5, drain=True),
    Flow(next_incoming_id=300, incoming_window=0, next_outgoing_id=1, outgoing_window=9, properties={"a": 1}),
    Disposition(role=True, first=0, last=4, settled=True, state=Accepted()),
    Disposition(role=True, first=0, state=Rejected(error=Error(condition="amqp:x", info={"a": 1}))),
    Disposition(role=True, first=0, state=Modified(delivery_failed=True, message_annotations={"x-a": 1})),
    Disposition(role=True, first=0, state=InTransaction(txn_id=b"txn", outcome=Accepted())),
    Detach(handle=0, closed=True, error=Error(condition="amqp:not-found", description="x" * 300)),
    End(),
    Close(error=Error(condition="amqp:not-found")),
)
_HEADER = described(0x70, compound(0xC0, [b"\x41", encode(Ubyte(4)), encode(Uint(1000)), b"\x42", b"\x43"]))
_ANNOTATIONS = Map([(Symbol("x-opt-delivery-delay"), Ulong(5)), (Symbol("x-cc"), ["a"])])
_PROPERTIES = [UUID(int=5), b"guest", "/queues/a", "subject", "/queues/b", Ulong(7), Symbol("text/plain")]
_PROPERTIES += [None, Timestamp(1), Timestamp(2), "group", Uint(1), "answers"]
_APPLICATION: dict[object, object] = {"a": 1, "x-b": 2.5, "c": None, "d": Timestamp(3), "e": b"raw"}
_FRONT = (
    _HEADER
    + described(0x71, encode(Map([(Symbol("x-hop"), True)])))
    + described(0x72, encode(_ANNOTATIONS))
    + described(0x73, compound(0xD0, [encode(field) for field in _PROPERTIES]))
    + described(0x74, encode(_APPLICATION))
)
_FOOTER = described(0x78, encode(Map([(Symbol("x-sum"), b"sum")])))
_DATA = message((0x75, sized(0xA0, b"body")), (0x75, sized(0xB0, b"more")))
_VALUE = encode([{"a": Array(0xA1, ["b", "c"])}, Described(Symbol("a:b"), Described(Ulong(1), None))])
MESSAGES = (
    _DATA,
    _FRONT + _DATA + _FOOTER,
    _HEADER + described(0x77, _VALUE),
    _HEADER + message((0x76, b"\x45"), (0x76, compound(0xD0, [b"\x40"]))) + _FOOTER,
    described(0x70, b"\x45") + b"\0" + sized(0xA3, b"amqp:data:binary") + sized(0xA0, b"x"),
)
TRANSFERS = tuple(
    encode_composite(Transfer(handle=0, delivery_id=number, delivery_tag=b"t%d" % number, settled=False))
    + payload
    for number, payload in enumerate(MESSAGES)
)
SESSION = b"".join(
    frame(1, raw, AMQP_FRAME) for raw in [*(encode_composite(made) for made in PERFORMATIVES), *TRANSFERS]
)
SEEDS = (
    SESSION + EMPTY_FRAME,
    b"".join(frame(0, encode_composite(made), SASL_FRAME) for made in SASL),
    *(encode_composite(made) for made in PERFORMATIVES),
    *TRANSFERS,
    *MESSAGES,
)
"""Streams, bodies of frames and messages."""
