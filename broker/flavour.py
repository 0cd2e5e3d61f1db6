"""The flavour of the hot modules in this process: compiled by mypyc, or the same sources interpreted."""

from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from typing import Final

HOT_MODULES: Final = ("broker.core.queues.queue", "protocol.amqp091.wire")
"""A module of each compiled top-level package. All packages are compiled, or none."""


def flavour(modules: tuple[str, ...] = HOT_MODULES) -> str:
    """Return "compiled" if every one of `modules` is an extension module, else "pure Python"."""
    suffixes = tuple(EXTENSION_SUFFIXES)
    origins = [spec.origin or "" for spec in map(find_spec, modules) if spec is not None]
    compiled = len(origins) == len(modules) and all(origin.endswith(suffixes) for origin in origins)
    return "compiled" if compiled else "pure Python"


FLAVOUR: Final = flavour()
