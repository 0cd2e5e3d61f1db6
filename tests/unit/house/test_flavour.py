"""The flavour of the hot modules in a process."""

import sys
from importlib.machinery import EXTENSION_SUFFIXES

from broker.core.message import Message
from broker.flavour import FLAVOUR, flavour


def test_extension_modules_are_compiled() -> None:
    assert flavour(("uvloop.loop", "librt.strings")) == "compiled"


def test_a_single_interpreted_module_makes_the_flavour_pure_python() -> None:
    assert flavour(("librt.strings", "json.decoder")) == "pure Python"


def test_a_module_that_is_not_there_is_not_compiled() -> None:
    assert flavour(("librt.strings", "protocol.no_such_module")) == "pure Python"


def test_this_process_runs_the_flavour_that_it_names() -> None:
    file = sys.modules[Message.__module__].__file__ or ""
    compiled = file.endswith(tuple(EXTENSION_SUFFIXES))
    assert ("compiled" if compiled else "pure Python") == FLAVOUR
