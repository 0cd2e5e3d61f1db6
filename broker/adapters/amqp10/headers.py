"""The headers of a message of AMQP 1.0, each found without decoding the others.

They are the annotations that begin with x- and the application properties. Of several with the same name the
first counts, and an annotation before an application property, which is part of the bare message and so
never changed. x-opt-delivery-delay and x-opt-delivery-time go by the core's names for them too. What is
malformed is not there.
"""

from __future__ import annotations

from typing import Final

from broker.adapters.amqp10.header_values import NOTHING, header_value, simple_value
from broker.core.publishing.delay import DELAY, DELIVERY_TIME
from protocol.amqp10.conditions import DecodeError
from protocol.amqp10.constructors import STRING8, SYMBOL8
from protocol.amqp10.decoding import decode
from protocol.amqp10.entries import Entries
from protocol.amqp10.sections import Layout

_ANNOTATED: Final = "x-"  # what the names of annotations that are headers begin with
_SCHEDULED: Final = {DELAY: b"x-opt-delivery-delay", DELIVERY_TIME: b"x-opt-delivery-time"}


def all_headers(content: bytes, layout: Layout) -> dict[str, object]:
    """The headers with their values."""
    headers: dict[str, object] = {}
    entries = _annotations(content, layout)
    while entries.advance():
        name = _key(entries)
        if name is not None and name.isascii() and name.startswith(_ANNOTATED) and name not in headers:
            value = header_value(_decoded(entries))
            if value is not NOTHING:
                headers[name] = value
    for known, other in _SCHEDULED.items():
        if known not in headers and other.decode() in headers:
            headers[known] = headers[other.decode()]
    entries = _application_properties(content, layout)
    while entries.advance():
        name = _key(entries)
        if name is not None and name not in headers:
            value = simple_value(_decoded(entries))
            if value is not NOTHING:
                headers[name] = value
    return headers


def header_named(content: bytes, layout: Layout, name: str) -> object:
    """The header of this name, NOTHING if there is none."""
    try:
        key = name.encode()
    except UnicodeEncodeError:
        return NOTHING
    if name.startswith(_ANNOTATED) and key.isascii():
        value = annotation(content, layout, annotation_name(content, layout, name))
        if value is not NOTHING:
            return value
    entries = _application_properties(content, layout)
    while entries.advance():
        if entries.is_for(key):
            value = simple_value(_decoded(entries))
            if value is not NOTHING:
                return value
    return NOTHING


def annotation_name(content: bytes, layout: Layout, name: str) -> bytes:
    """The name of the annotation that is this header, if there is one."""
    key = name.encode()
    if name in _SCHEDULED and annotation(content, layout, key) is NOTHING:
        other = _SCHEDULED[name]
        if annotation(content, layout, other) is not NOTHING:
            return other
    return key


def annotation(content: bytes, layout: Layout, name: bytes) -> object:
    """The annotation of this name as a header, NOTHING if there is none."""
    entries = _annotations(content, layout)
    while entries.advance():
        if entries.is_for(name):
            value = header_value(_decoded(entries))
            if value is not NOTHING:
                return value
    return NOTHING


def raw_annotation(content: bytes, layout: Layout, name: bytes) -> object:
    """The annotation of this name as it is decoded, NOTHING if there is none."""
    entries = _annotations(content, layout)
    while entries.advance():
        if entries.is_for(name):
            return _decoded(entries)
    return NOTHING


def _annotations(content: bytes, layout: Layout) -> Entries:
    return Entries(content, layout.annotations, layout.annotations_end, SYMBOL8)


def _application_properties(content: bytes, layout: Layout) -> Entries:
    return Entries(content, layout.application_properties, layout.application_properties_end, STRING8)


def _key(entries: Entries) -> str | None:
    try:
        return entries.name().decode()
    except UnicodeDecodeError:
        return None


def _decoded(entries: Entries) -> object:
    """The value of an entry, NOTHING if it does not decode."""
    try:
        value, _ = decode(entries.data, entries.key_end, entries.end)
    except DecodeError:
        return NOTHING
    return value
