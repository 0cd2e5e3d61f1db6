"""Whether this installation runs its hot path compiled or as ordinary Python."""

from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from typing import Final

HOT: Final = ("broker.core.message", "broker.core.queue", "broker.store.log", "protocol.amqp091.wire")
"""One module of each package that is compiled, and the two that cost most."""


def flavour() -> str:
    """`compiled`, `pure Python`, or `partly compiled` where a build went wrong. Imports no hot module."""
    native = [_is_native(name) for name in HOT]
    if all(native):
        return "compiled"
    return "partly compiled" if any(native) else "pure Python"


def _is_native(name: str) -> bool:
    spec = find_spec(name)
    return spec is not None and spec.origin is not None and spec.origin.endswith(tuple(EXTENSION_SUFFIXES))
