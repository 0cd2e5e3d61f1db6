"""The number of random cases of a test: all with TESTS_THOROUGH=1, as in the nightly tier; else a third."""

import os
from typing import Final

THOROUGH: Final = os.environ.get("TESTS_THOROUGH") == "1"


def cases(thorough: int) -> int:
    """The number of cases to run, of `thorough` ones."""
    return thorough if THOROUGH else max(1, thorough // 3)
