"""Whether what Spark needs is there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Final

JAVA_MIN: Final = 17
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')


def missing() -> str:
    """One line that says what is missing; empty if all is there."""
    if find_spec("pyspark") is None:
        return "pyspark is not installed: pip install 'amqpd[pipeline]'"
    java = java_command()
    if java is None:
        return f"Java {JAVA_MIN} or later is not installed: no java in JAVA_HOME or PATH"
    version = java_version(java)
    if version < JAVA_MIN:
        return f"Java {JAVA_MIN} or later is wanted; {java} is {f'Java {version}' if version else 'no Java'}"
    return ""


def java_command() -> str | None:
    """The java that Spark would start: that of JAVA_HOME, else that of PATH."""
    home = os.environ.get("JAVA_HOME")
    if home:
        path = Path(home, "bin", "java")
        return str(path) if path.is_file() else None
    return shutil.which("java")


def java_version(java: str) -> int:
    """The first number of its version; 0 if it does not say."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = _VERSION.search(done.stderr + done.stdout)
    return int(found[1]) if found else 0
