"""Composites of AMQP 1.0 as the described lists that a peer might send."""

from protocol.amqp10.definitions import COMPOSITES
from protocol.amqp10.types import Described, Ulong


def described_list(code: int, /, **fields: object) -> Described:
    """A described list of the fields that are given, null before and between them."""
    names = [
        field.name.replace("-", "_") for named in COMPOSITES if named.code == code for field in named.fields
    ]
    last = max((names.index(name) for name in fields), default=-1)
    return Described(Ulong(code), [fields.get(name) for name in names[: last + 1]])
