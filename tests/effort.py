"""How many random cases a test runs: all with TESTS_THOROUGH=1, which `.ci/run` sets; otherwise a third."""

import os
from typing import Final

THOROUGH: Final = os.environ.get("TESTS_THOROUGH") == "1"


def cases(thorough: int) -> int:
    """The number of cases to run, of `thorough` ones."""
    return thorough if THOROUGH else max(1, thorough // 3)
