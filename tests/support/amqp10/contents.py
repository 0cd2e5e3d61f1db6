"""Messages of AMQP 1.0 as they are kept: a header, annotations if there are any, the bare message."""

from broker.adapters.formats.amqp10 import raw_annotation
from protocol.amqp10.deaths import DEATHS, Death, decode_deaths
from protocol.amqp10.encoding import encode
from protocol.amqp10.properties import NAMES
from protocol.amqp10.sections import scan_preamble
from protocol.amqp10.types import Map, Symbol, Ubyte, Uint
from tests.support.amqp10.reference_codec import compound, described

BODY = described(0x75, b"\xa0\x04body")


def content10(
    annotations: dict[str, object] | None = None,
    application: dict[str, object] | None = None,
    durable: bool | None = None,
    priority: int | None = None,
    ttl: int | None = None,
    body: bytes = BODY,
    **properties: object,
) -> bytes:
    """A message with these properties, whose names have underscores; integers are of the types they need."""
    header = [
        durable,
        None if priority is None else Ubyte(priority),
        None if ttl is None else Uint(ttl),
    ]
    sections = [described(0x70, compound(0xC0, [encode(field) for field in header]))]
    if annotations is not None:
        pairs: list[tuple[object, object]] = [(Symbol(name), value) for name, value in annotations.items()]
        sections.append(described(0x72, encode(Map(pairs))))
    return b"".join(sections) + bare10(application, body, **properties)


def bare10(application: dict[str, object] | None = None, body: bytes = BODY, **properties: object) -> bytes:
    """The bare message of it."""
    assert set(properties) <= {name.replace("-", "_") for name in NAMES}
    sections = []
    if properties:
        fields = [encode(properties.get(name.replace("-", "_"))) for name in NAMES]
        sections.append(described(0x73, compound(0xD0, fields)))
    if application is not None:
        sections.append(described(0x74, encode(dict(application))))
    return b"".join(sections) + body


def history_in(content: bytes) -> list[Death]:
    """The deaths that a dead letter tells of."""
    return decode_deaths(raw_annotation(content, scan_preamble(content), DEATHS))
