"""Values between our codec and proton's, another implementation of AMQP 1.0, in both directions."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from protocol.amqp10.decoding import decode_typed
from protocol.amqp10.encoding import encode
from protocol.amqp10.types import (
    Array,
    Byte,
    Char,
    Decimal,
    Described,
    Float,
    Int,
    Long,
    Map,
    Short,
    Symbol,
    Timestamp,
    Ubyte,
    Uint,
    Ulong,
    Ushort,
)
from tests.support.amqp10.value_bytes import LONGER, SMALLEST

proton: Any = pytest.importorskip("proton", reason="python-qpid-proton is not installed")


def written(value: object) -> bytes:
    """Return the bytes that proton writes for a typed value."""
    data = proton.Data()
    put(data, value)
    return bytes(data.encode())


def put(data: Any, value: object) -> None:
    puts: dict[type, Callable[[Any], None]] = {
        bool: data.put_bool,
        Ubyte: data.put_ubyte,
        Ushort: data.put_ushort,
        Uint: data.put_uint,
        Ulong: data.put_ulong,
        Byte: data.put_byte,
        Short: data.put_short,
        Int: data.put_int,
        Long: data.put_long,
        Float: data.put_float,
        float: data.put_double,
        Char: data.put_char,
        Timestamp: data.put_timestamp,
        UUID: data.put_uuid,
        bytes: data.put_binary,
        str: data.put_string,
        Symbol: data.put_symbol,
    }
    match value:
        case None:
            data.put_null()
        case Decimal():
            put_decimal(data, value)
        case list():
            data.put_list()
            inside(data, value)
        case Map(pairs):
            data.put_map()
            inside(data, [item for pair in pairs for item in pair])
        case Described():
            data.put_described()
            inside(data, [value.descriptor, value.value])
        case _:
            puts[type(value)](plain(value))


def plain(value: object) -> object:
    return str(value) if isinstance(value, Symbol | Char) else value


def put_decimal(data: Any, value: Decimal) -> None:
    if value.code == 0x74:
        data.put_decimal32(int.from_bytes(value.raw, "big"))
    elif value.code == 0x84:
        data.put_decimal64(int.from_bytes(value.raw, "big"))
    else:
        data.put_decimal128(value.raw)


def inside(data: Any, values: list[object]) -> None:
    data.enter()
    for value in values:
        put(data, value)
    data.exit()


def read(raw: bytes) -> object:
    """Return the value that proton reads, as a typed value."""
    data = proton.Data()
    assert data.decode(raw) == len(raw)
    data.rewind()
    assert data.next() is not None
    return got(data)


def got(data: Any) -> object:
    kind = data.type()
    simple: dict[int, Callable[[], object]] = {
        data.NULL: lambda: None,
        data.BOOL: data.get_bool,
        data.UBYTE: lambda: Ubyte(data.get_ubyte()),
        data.USHORT: lambda: Ushort(data.get_ushort()),
        data.UINT: lambda: Uint(data.get_uint()),
        data.ULONG: lambda: Ulong(data.get_ulong()),
        data.BYTE: lambda: Byte(data.get_byte()),
        data.SHORT: lambda: Short(data.get_short()),
        data.INT: lambda: Int(data.get_int()),
        data.LONG: lambda: Long(data.get_long()),
        data.FLOAT: lambda: Float(data.get_float()),
        data.DOUBLE: data.get_double,
        data.CHAR: lambda: Char(data.get_char()),
        data.TIMESTAMP: lambda: Timestamp(data.get_timestamp()),
        data.UUID: lambda: UUID(bytes=data.get_uuid().bytes),
        data.BINARY: lambda: bytes(data.get_binary()),
        data.STRING: data.get_string,
        data.SYMBOL: lambda: Symbol(data.get_symbol()),
        data.DECIMAL32: lambda: Decimal(0x74, int(data.get_decimal32()).to_bytes(4, "big")),
        data.DECIMAL64: lambda: Decimal(0x84, int(data.get_decimal64()).to_bytes(8, "big")),
        data.DECIMAL128: lambda: Decimal(0x94, bytes(data.get_decimal128())),
    }
    if kind in simple:
        return simple[kind]()
    items = children(data)
    if kind in (data.LIST, data.ARRAY):
        return items
    if kind == data.MAP:
        return Map(list(zip(items[::2], items[1::2], strict=True)))
    assert kind == data.DESCRIBED
    return Described(items[0], items[1])


def children(data: Any) -> list[object]:
    items: list[object] = []
    data.enter()
    while data.next() is not None:
        items.append(got(data))
    data.exit()
    return items


def comparable(value: object) -> bool:
    """Whether proton can represent a value: no descriptor of a descriptor, and no array of arrays."""
    if isinstance(value, Array):
        return len(value.items) == value.count and value.code != 0xE0
    return not isinstance(value, Described) or not isinstance(value.descriptor, Described)


READ = [(digits, value) for digits, value in SMALLEST + LONGER if comparable(value)]
WRITTEN = [
    (digits, value) for digits, value in SMALLEST if comparable(value) and not isinstance(value, Array)
]


@pytest.mark.parametrize(("digits", "value"), READ)
def test_proton_reads_the_same_value_of_the_same_type(digits: str, value: object) -> None:
    found = read(bytes.fromhex(digits))

    if isinstance(value, Array):
        assert found == [*value.descriptors, *value.items]
        assert isinstance(found, list)
        assert [type(item) for item in found[len(value.descriptors) :]] == [
            type(item) for item in value.items
        ]
    else:
        assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(("digits", "value"), WRITTEN)
def test_values_written_by_proton_have_the_same_value_and_type(digits: str, value: object) -> None:
    found, behind = decode_typed(written(value))

    assert (found, type(found)) == (value, type(value))
    assert behind == len(written(value)) >= len(encode(value))
