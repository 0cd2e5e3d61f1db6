"""The example in the README works with an unmodified client."""

import re
import subprocess
import sys
from pathlib import Path

from tests.support.daemon.daemon import Address

ROOT = Path(__file__).resolve().parents[2]


def test_the_example_publishes_and_consumes(address: Address) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    example = re.findall(r"```python\n(.*?)```", readme, flags=re.DOTALL)[0]
    parameters = f'ConnectionParameters("{address.host}", {address.port})'
    here = example.replace('ConnectionParameters("localhost")', parameters)
    assert here != example

    done = subprocess.run(
        [sys.executable, "-c", here], capture_output=True, text=True, timeout=300, check=False
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "hello\n", "")
