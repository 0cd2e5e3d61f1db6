"""Make composites from described lists and back, by the table of definitions. [amqp-1.0 types 1.4]

Decoding is lenient where the meaning is clear. Either descriptor, integers of any width, and strings for
symbols or symbols for strings are accepted. A multiple field may have a single value or a list. Encoding
writes all fields, because some peers find fields by their place without checking the count.
"""

from typing import Final, NamedTuple

from mypy_extensions import i64

from protocol.amqp10 import composites, performatives
from protocol.amqp10.conditions import DecodeError
from protocol.amqp10.decoding import decode_typed
from protocol.amqp10.definitions import COMPOSITES, Definition, Field
from protocol.amqp10.encoding import encode, encode_described, encode_list
from protocol.amqp10.kinds import WRONG, Kind, kind_of
from protocol.amqp10.restricted import RESTRICTED
from protocol.amqp10.types import Array, Composite, Described, Map, Ulong, symbols


class _Place(NamedTuple):
    """A field of a composite: its name, its attribute in Python, and the values that it may have."""

    name: str
    attribute: str
    field: Field
    kinds: tuple[Kind, ...]
    composites: frozenset[str]
    choices: frozenset[object]


class _Shape(NamedTuple):
    definition: Definition
    made: type[Composite]
    places: tuple[_Place, ...]


def decode_composite(data: bytes, offset: i64 = 0, end: i64 = -1) -> tuple[Composite, int]:
    """Return the composite at `offset`, and the offset after the composite. Raises DecodeError."""
    value, after = decode_typed(data, offset, end)
    return compose(value), after


def encode_composite(composite: Composite) -> bytes:
    """Encode a composite with all its fields, never as list0. Raises what `encode` raises."""
    described = decompose(composite)
    fields = described.value
    assert isinstance(fields, list)
    return encode_described(composite.DESCRIPTOR, encode_list([encode(field) for field in fields]))


def compose(value: object) -> Composite:
    """Return the composite of a described value. Raises DecodeError, which names the composite and the field.

    Integers, symbols and maps in fields have Python's types. The values in a map have the types of
    `decode_typed` if `value` has them.
    """
    if not isinstance(value, Described):
        raise DecodeError(f"{_describe(value)} where a composite is expected")
    descriptor = value.descriptor
    shape = _SHAPES.get(descriptor) if isinstance(descriptor, int | str) else None
    if shape is None:
        raise DecodeError(f"unknown descriptor {_describe(descriptor)}")
    name, fields = shape.definition.name, value.value
    if not isinstance(fields, list):
        raise DecodeError(f"{name} is {_describe(fields)} instead of a list")
    if len(fields) > len(shape.places):
        raise DecodeError(f"{name} has {len(fields)} fields, {len(shape.places)} are defined")
    missing = [None] * (len(shape.places) - len(fields))
    arguments = {
        place.attribute: _read(place, field)
        for place, field in zip(shape.places, [*fields, *missing], strict=True)
    }
    return shape.made(**arguments)


def decompose(composite: Composite) -> Described:
    """Return a composite as a described list of its fields. Raises ValueError for a field's wrong value."""
    places = _SHAPES[composite.DESCRIPTOR].places
    return Described(
        Ulong(composite.DESCRIPTOR), [_write(place, getattr(composite, place.attribute)) for place in places]
    )


def _read(place: _Place, value: object) -> object:
    field = place.field
    if value is None:
        if field.mandatory:
            raise DecodeError(f"{place.name} is missing")
        return () if field.multiple else field.default
    if field.multiple:
        items = _several(place, value)
        return tuple(_read_one(place, item) for item in items)
    return _read_one(place, value)


def _several(place: _Place, value: object) -> list[object]:
    if isinstance(value, Array):
        if value.descriptors or len(value.items) != value.count:
            raise DecodeError(f"{place.name} is an array of described values or of values without width")
        return value.items
    return value if isinstance(value, list) else [value]


def _read_one(place: _Place, value: object) -> object:
    if place.composites and isinstance(value, Described):
        composite = compose(value)
        name = _SHAPES[composite.DESCRIPTOR].definition.name
        if name not in place.composites:
            raise DecodeError(f"{place.name} is of type {name} instead of {_expected(place)}")
        return composite
    if not place.kinds and not place.composites:
        return value
    for kind in place.kinds:
        read = kind.read(value)
        if read is not WRONG:
            if place.choices and read not in place.choices:
                raise DecodeError(f"{place.name} is {_describe(value)}, which is not an allowed value")
            return read
    raise DecodeError(f"{place.name} is {_describe(value)} instead of {_expected(place)}")


def _write(place: _Place, value: object) -> object:
    if place.field.multiple:
        assert isinstance(value, tuple)
        if not value and not place.field.mandatory:
            return None
        return symbols(str(_write_one(place, item)) for item in value)
    return None if value is None and not place.field.mandatory else _write_one(place, value)


def _write_one(place: _Place, value: object) -> object:
    if isinstance(value, Composite) and _SHAPES[value.DESCRIPTOR].definition.name in place.composites:
        return decompose(value)
    if not place.kinds and not place.composites:
        return value
    for kind in place.kinds:
        if kind.read(value) is not WRONG:
            written = kind.write(value)
            if isinstance(written, dict):
                return {key: _plain(item) for key, item in written.items()}
            return written
    raise ValueError(f"{place.name} is {value!r} instead of {_expected(place)}")


def _plain(value: object) -> object:
    return decompose(value) if isinstance(value, Composite) else value


def _expected(place: _Place) -> str:
    return " or ".join([kind.name for kind in place.kinds] + sorted(place.composites))


def _describe(value: object) -> str:
    """Return a value in few words, as part of a sentence for the peer."""
    if isinstance(value, Map | dict | list | Array | Described):
        return f"a {type(value).__name__.lower()}"
    text = repr(value)
    return f"{type(value).__name__.lower()} {text if len(text) < 50 else text[:50] + '...'}"


def _place(definition: Definition, field: Field) -> _Place:
    """Return the place of a field.

    The type "*" means each type that provides what the field requires, or any type if none provides it.
    """
    names = [field.type]
    if field.type == "*":
        names = [named.name for named in (*COMPOSITES, *RESTRICTED) if field.requires in named.provides]
    composed = frozenset(named.name for named in COMPOSITES if named.name in names)
    choices = [
        choice for named in RESTRICTED if named.name == field.type for choice in named.choices.values()
    ]
    return _Place(
        f"{definition.name}.{field.name}",
        field.name.replace("-", "_"),
        field,
        tuple(kind_of(name) for name in names if name not in composed),
        composed,
        frozenset(choices),
    )


def _shapes() -> dict[int | str, _Shape]:
    """Return the shapes of all composites, by the number and by the symbol of their descriptors."""
    classes = {
        composite.DESCRIPTOR: composite
        for module in (performatives, composites)
        for composite in vars(module).values()
        if isinstance(composite, type) and issubclass(composite, Composite) and composite is not Composite
    }
    shapes: dict[int | str, _Shape] = {}
    for definition in COMPOSITES:
        places = tuple(_place(definition, field) for field in definition.fields)
        shape = _Shape(definition, classes[definition.code], places)
        shapes[definition.code] = shapes[definition.symbol] = shape
    return shapes


_SHAPES: Final = _shapes()
