"""A pytest plugin for suites that limit tests with aiomisc.timeout: only the limit in suites.py is left.

Their limits say how fast an idle machine is, not whether the broker does what it should.
"""

import importlib
from collections.abc import Callable
from typing import Any

aiomisc: Any = importlib.import_module("aiomisc")  # where the suite runs, not where types are checked


def unlimited(seconds: float) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """In place of aiomisc.timeout: a decorator that returns the test as it is."""
    return lambda test: test


aiomisc.timeout = unlimited
